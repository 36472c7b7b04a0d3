//! Report of runs: one page, its drawings as files, and every sample as a table.

mod chart;
mod csv;
mod draw;
mod html;
mod markup;
mod scale;

use crate::references::PAPERS;
use crate::run::Run;
use anyhow::{Context, Result, ensure};
use chart::Chart;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files of a report.
#[derive(Debug, Default)]
pub struct Written {
    /// Path of the page.
    pub page: PathBuf,
    /// All files, the page first.
    pub files: Vec<PathBuf>,
    /// Files that could not be written, with the remedy.
    pub remarks: Vec<String>,
}

/// Writes the report of `runs` into `folder`, which is created if missing: `report.html`; samples of each run as CSV
/// and the run as JSON; each figure as SVG and, if `rsvg-convert` is installed, as PNG.
///
/// *Errors*: there is no run, or a file cannot be written.
pub fn write(runs: &[Run], folder: &Path) -> Result<Written> {
    ensure!(!runs.is_empty(), "a report needs a run");
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut written = Written { page: folder.join("report.html"), ..Written::default() };
    written.add(written.page.clone(), &html::page(runs))?;
    for (index, run) in runs.iter().enumerate() {
        let stem = stem(runs, index);
        written.add(folder.join(format!("{stem}.csv")), &csv::samples(run))?;
        written.add(folder.join(format!("{stem}.json")), &serde_json::to_string(run)?)?;
        for (number, figure) in run.scenario.figures.iter().enumerate() {
            // As a file it has no page from which it could take its colors.
            let drawing = draw::svg(&Chart::of(run, figure, &PAPERS), true);
            let path = folder.join(format!("{stem}-{}.svg", number + 1));
            written.add(path.clone(), &drawing)?;
            written.picture(&path)?;
        }
    }
    Ok(written)
}

impl Written {
    fn add(&mut self, path: PathBuf, text: &str) -> Result<()> {
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.files.push(path);
        Ok(())
    }

    /// Renders the drawing with two pixels per unit.
    fn picture(&mut self, drawing: &Path) -> Result<()> {
        let picture = drawing.with_extension("png");
        match Command::new("rsvg-convert").args(["--zoom", "2", "--output"]).arg(&picture).arg(drawing).output() {
            Ok(output) if output.status.success() => self.files.push(picture),
            Ok(output) => {
                // A remark and no error, because the SVG shows the same.
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                self.remarks.push(format!("rsvg-convert made no {}: {said}", picture.display()));
            }
            // PNG is optional, and the remark is made once.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let remark = "there are no PNG files, because rsvg-convert is not installed: apt install librsvg2-bin";
                if !self.remarks.iter().any(|known| known == remark) {
                    self.remarks.push(remark.to_owned());
                }
            }
            Err(error) => return Err(error).context("cannot run rsvg-convert"),
        }
        Ok(())
    }
}

/// Returns the base name of a run's files: its scenario, with a number if there are several runs.
fn stem(runs: &[Run], index: usize) -> String {
    // The name comes from a file, and must not leave the folder.
    let kept = |c: char| if c.is_ascii_alphanumeric() || c == '-' || c == '.' { c } else { '-' };
    let name: String = runs[index].scenario.name.chars().map(kept).collect();
    let name = name.trim_start_matches('.');
    if runs.len() > 1 { format!("{}-{name}", index + 1) } else { name.to_owned() }
}

/// Formats a value with its significant digits, and commas between thousands: `12,345`, `61.5`, `0.042`.
#[must_use]
pub fn number(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    let digits = format!("{value:.decimals$}");
    let (whole, part) = digits.split_once('.').unwrap_or((&digits, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let part = part.trim_end_matches('0');
    let point = if part.is_empty() { "" } else { "." };
    format!("{sign}{grouped}{point}{part}")
}

#[cfg(test)]
mod tests;
