//! Instruction counts of the product per command, measured by callgrind, with a limit on their growth.
//!
//! The load is the example `steady_load` of `simulate`: the whole data plane between simulated sockets and the
//! project's own initiator, from one seed. It marks entry to and exit from the product's code, and only instructions in
//! between are counted.

mod rows;

use crate::workspace;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use rows::{ROWS, Row};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Instructions per command of each row at the last `--bless`.
const KEPT: &str = "crates/bin/xtask/instructions.toml";
/// Growth at which a row fails; another compiler or C library causes less.
const GROWTH_MAX: f64 = 1.03;
/// Upper bound of a row relative to the row with which it is compared.
const AGAINST_MAX: f64 = 1.10;
/// Symbols of the example at which counting starts and stops.
const TOGGLES: [&str; 2] = ["steady_load::counted::inside*", "steady_load::counted::outside*"];
/// Callgrind counts a `rep movsb` once per byte, so glibc is configured not to use it for long copies.
const TUNABLES: &str = "glibc.cpu.x86_rep_movsb_threshold=1073741824";

#[derive(Args)]
pub(crate) struct Options {
    /// Store the measured counts as the new reference
    #[arg(long)]
    bless: bool,
    /// Count only rows whose names contain this text
    #[arg(long, value_name = "TEXT", conflicts_with = "bless")]
    only: Option<String>,
    /// Keep the callgrind profile of each row in this folder, for callgrind_annotate
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// Output of the example.
#[derive(Deserialize)]
struct ExampleOutput {
    commands: u64,
    socket_calls: u64,
}

/// Cost of a command of a row.
#[derive(Clone, Copy, Debug)]
struct Count {
    instructions: f64,
    socket_calls: f64,
}

#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct References {
    /// Instructions per command, by row.
    instructions: BTreeMap<String, u64>,
}

/// Counts and prints every row; false when a row exceeds its limit.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    let example = build(root)?;
    let kept = References::read(root)?;
    let scratch = tempfile::tempdir()?;
    let folder = options.keep.as_deref().unwrap_or(scratch.path());
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    println!("{:<52} {:>12} {:>12} {:>8} {:>13}", "instructions per command", "now", "kept", "", "socket calls");
    let mut counted: BTreeMap<&str, f64> = BTreeMap::new();
    let mut findings = Vec::new();
    for row in ROWS.iter().filter(|row| options.only.as_ref().is_none_or(|text| row.name.contains(text))) {
        let Count { instructions, socket_calls } =
            count(&example, row, folder).with_context(|| format!("cannot count \"{}\"", row.name))?;
        counted.insert(row.name, instructions);
        let before = kept.instructions.get(row.name).copied();
        let (shown, change) = before.map_or_else(Default::default, |before| {
            (before.to_string(), format!("{:+.1} %", (instructions / before as f64 - 1.0) * 100.0))
        });
        println!("{:<52} {instructions:>12.0} {shown:>12} {change:>8} {socket_calls:>13.3}", row.name);
        // The row with which it is compared stands before it, unless `--only` leaves that one out.
        findings
            .extend(row.against.and_then(|other| judge_growth(row.name, instructions, other, *counted.get(other)?)));
        // `--bless` changes the references, so deviations from them are no findings then.
        if !options.bless {
            findings.extend(judge(row.name, instructions, before));
        }
    }
    if options.bless {
        References {
            instructions: counted.iter().map(|(&name, &count)| (name.to_owned(), count.round() as u64)).collect(),
        }
        .write(root)?;
    }
    findings.iter().for_each(|finding| println!("{finding}"));
    println!("{} rows, {} findings", counted.len(), findings.len());
    Ok(findings.is_empty())
}

/// Returns the finding for a row whose reference is `before`.
fn judge(name: &str, now: f64, before: Option<u64>) -> Option<String> {
    let Some(before) = before else {
        return Some(format!("\"{name}\" is not in {KEPT}: run `cargo xtask instructions --bless`"));
    };
    (now > before as f64 * GROWTH_MAX).then(|| {
        format!(
            "\"{name}\" takes {now:.0} instructions, and took {before}: find what was added, or bless it and say why"
        )
    })
}

/// Returns the finding for a row that should cost as much as the row `other`.
fn judge_growth(name: &str, now: f64, other: &str, others: f64) -> Option<String> {
    (now > others * AGAINST_MAX).then(|| {
        let percent = (now / others - 1.0) * 100.0;
        format!("\"{name}\" takes {percent:.1} % more than \"{other}\"; at most 10 % is promised")
    })
}

/// Builds the example in the same way as the product.
fn build(root: &Path) -> Result<PathBuf> {
    // Built together with the product, because features of shared libraries would otherwise differ and force a second
    // build.
    let packages = ["--package", "blockyard", "--package", "simulate", "--example", "steady_load"];
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--locked"])
        .args(packages)
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    ensure!(built.success(), "the load could not be built");
    Ok(workspace::target_folder().join("release/examples/steady_load"))
}

fn count(example: &Path, row: &Row, folder: &Path) -> Result<Count> {
    // The name of a row has characters that a file name should not have.
    let profile = folder.join(format!("{}.callgrind", row.name.replace([' ', ',', '/'], "-")));
    let out = Command::new("valgrind")
        .args(["--quiet", "--tool=callgrind"])
        .args(TOGGLES.map(|toggle| format!("--toggle-collect={toggle}")))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(example)
        .args(row.arguments)
        .env("GLIBC_TUNABLES", TUNABLES)
        .output()
        .context("cannot start valgrind; it is in Debian's package of that name")?;
    ensure!(out.status.success(), "the load failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    let ran: ExampleOutput = serde_json::from_slice(&out.stdout).context("the load did not say what it has done")?;
    let total = total(&fs::read_to_string(&profile)?)?;
    // Without a match of the symbols callgrind counts nothing and still succeeds.
    ensure!(
        total > 0 && ran.commands > 0,
        "nothing was counted: are the functions {TOGGLES:?} in {}?",
        example.display()
    );
    let commands = ran.commands as f64;
    Ok(Count { instructions: total as f64 / commands, socket_calls: ran.socket_calls as f64 / commands })
}

/// Returns the number of instructions in a callgrind profile.
fn total(profile: &str) -> Result<u64> {
    match profile.lines().find_map(|line| line.strip_prefix("totals: ")) {
        Some(total) => total.trim().parse().context("callgrind's total is no number"),
        None => bail!("callgrind's profile has no total"),
    }
}

impl References {
    fn read(root: &Path) -> Result<Self> {
        let text = fs::read_to_string(root.join(KEPT)).with_context(|| format!("cannot read {KEPT}"))?;
        toml::from_str(&text).with_context(|| format!("{KEPT} is not as expected"))
    }

    fn write(&self, root: &Path) -> Result<()> {
        let head = "# Instructions of the product per command, as `cargo xtask instructions --bless` counted them.\n\
                    # A row that grows by more than 3 % fails.\n\n";
        let text = format!("{head}{}", toml::to_string(self)?);
        fs::write(root.join(KEPT), text).with_context(|| format!("cannot write {KEPT}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_fails_when_it_grows_by_more_than_three_percent() {
        assert_eq!(judge("row", 1030.0, Some(1000)), None);
        assert_eq!(judge("row", 500.0, Some(1000)), None);
        assert!(judge("row", 1031.0, Some(1000)).is_some_and(|finding| finding.contains("1031")));
        assert!(judge("row", 1.0, None).is_some_and(|finding| finding.contains("--bless")));
    }

    #[test]
    fn row_fails_when_it_takes_a_tenth_more_than_the_one_beside() {
        assert_eq!(judge_growth("many", 1099.0, "one", 1000.0), None);
        assert!(judge_growth("many", 1101.0, "one", 1000.0).is_some());
    }

    #[test]
    fn total_is_found_in_a_profile() {
        assert_eq!(total("events: Ir\nsummary: 1\n\nfn=(1) a\n1 5\n\ntotals: 56\n").ok(), Some(56));
        assert!(total("events: Ir\n").is_err());
    }

    #[test]
    fn rows_are_named_once_and_stand_behind_what_they_are_measured_against() {
        for (at, row) in ROWS.iter().enumerate() {
            let before = &ROWS[..at];
            assert!(before.iter().all(|other| other.name != row.name), "{}", row.name);
            assert!(row.against.is_none_or(|name| before.iter().any(|other| other.name == name)), "{}", row.name);
        }
    }
}
