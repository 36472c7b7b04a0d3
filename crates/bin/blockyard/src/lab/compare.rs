//! Command `blockyard lab compare`.

use super::{kept, means, measured, scenario_at, whole};
use crate::args::{CompareOptions, Global};
use crate::failure::Failure;
use crate::output::{Output, Rows};
use ::lab::compare::{ROUNDS_MIN, Row, labels, runs};
use ::lab::figure::Measure;
use ::lab::peer::TestResources;
use ::lab::point::Build;
use ::lab::run::Run;
use ::lab::scenario::BUILD;
use anyhow::{Result, anyhow};
use std::io::Read;
use std::path::Path;

/// Measures that are compared.
const COMPARED: [Measure; 5] =
    [Measure::Iops, Measure::P50, Measure::P99, Measure::ServerPerCommand, Measure::ClientPerCommand];

/// Compares two runs, two labels of a run, or two builds.
///
/// *Errors*: a file is no run or no build, or there is no point in both.
pub(super) fn compare(options: &CompareOptions, global: &Global) -> Result<(), Failure> {
    let first = &options.first;
    match (&options.second, &options.axis, options.labels.as_slice(), &options.scenario) {
        (Some(second), _, _, Some(scenario)) => {
            let run = in_turn(scenario, first, second, options, global)?;
            let [this, other] = [Build::This, Build::Other].map(|build| build.to_string());
            print(&labels(&run, BUILD, &this, &other, &COMPARED)?, global)?;
            whole(&run)
        }
        (Some(second), ..) => print(&runs(&a_run(first)?, &a_run(second)?, &COMPARED), global),
        (None, Some(axis), [one, other], None) => print(&labels(&a_run(first)?, axis, one, other, &COMPARED)?, global),
        _ => {
            Err(Failure::Usage("give two runs, two builds and a scenario, or an axis and two of its labels".to_owned()))
        }
    }
}

/// Reads a run; for a program in its place, the error says what is missing.
fn a_run(path: &Path) -> Result<Run> {
    kept(path).map_err(|error| match is_a_program(path) {
        Ok(true) => error.context("to compare builds, give a scenario as well (--scenario FILE)"),
        Ok(false) | Err(_) => error,
    })
}

/// Returns true for an ELF file.
fn is_a_program(path: &Path) -> std::io::Result<bool> {
    // A run is JSON, so its first bytes never equal this magic number.
    let mut magic = [0; 4];
    std::fs::File::open(path)?.read_exact(&mut magic)?;
    Ok(magic == *b"\x7fELF")
}

/// Measures the scenario with both builds alternately.
fn in_turn(scenario: &Path, first: &Path, second: &Path, options: &CompareOptions, global: &Global) -> Result<Run> {
    let mut scenario = scenario_at(scenario, &options.only)?;
    scenario.in_turn()?;
    // With too few rounds the comparison could not give a confidence.
    scenario.rounds = options.rounds.unwrap_or(scenario.rounds.max(ROUNDS_MIN as u32)).max(1);
    let means = TestResources { this: Some(first.to_owned()), other: Some(second.to_owned()), ..means()? };
    measured(scenario, &means, options.out.as_deref(), global)
}

fn print(rows: &[Row], global: &Global) -> Result<(), Failure> {
    if rows.is_empty() {
        return Err(anyhow!("the runs have no point in common").into());
    }
    let row = |row: &Row| {
        let labels: Vec<&str> = row.labels.values().map(String::as_str).collect();
        let said = row.ratio.as_ref().map_or("not measured in both".to_owned(), |ratio| ratio.sentence(row.measure));
        vec![labels.join(", "), row.measure.title().to_owned(), said]
    };
    let rows = rows.iter().map(row).collect();
    Output::new(global).lines(&Rows { header: &["POINT", "MEASURE", "FIRST VS SECOND"], rows })
}
