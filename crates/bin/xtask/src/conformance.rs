//! Run of libiscsi's test suite against a target: every test in a process of its own, compared with a table by name and
//! count.

pub(crate) mod expected;
mod judge;
pub(crate) mod mode;
mod outcome;
mod slow;

use crate::workspace;
use anyhow::{Context, Result, ensure};
use clap::Args;
use expected::Expected;
use lab::child::{output_of, run_within};
use lab::target::{Backing, Kind, Setup};
use mode::{Mode, Paths};
use outcome::Outcome;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Program of the suite as Debian packages it; the table of expectations describes this version.
const SUITE: &str = "iscsi-test-cu";
const TABLE: &str = "docs/conformance/libiscsi-1.19.toml";
/// Time limit of a test. The suite's client has no timeout, so a command without an answer would hang it.
const TEST_LIMIT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct Options {
    /// Target to start
    #[arg(long, value_enum, default_value = "blockyard")]
    target: Kind,
    /// Modes in which to run the suite, one after the other
    #[arg(long, value_enum, value_delimiter = ',', default_value = "plain")]
    mode: Vec<Mode>,
    /// Logical units of a running target (iscsi://…), one worker each; their data is destroyed
    #[arg(long)]
    url: Vec<String>,
    /// Number of tests that run at once, each on a unit of its own
    #[arg(long, default_value_t = 3)]
    workers: usize,
    /// Prefix of the names of the tests to run; the number of tests is then not checked
    #[arg(long, default_value = "")]
    only: String,
    /// Another build of the suite, for example of a newer libiscsi; the table does not describe it, so nothing is
    /// expected
    #[arg(long, value_name = "PROGRAM", default_value = SUITE)]
    suite: PathBuf,
    /// Print the outcome of every test
    #[arg(long)]
    verbose: bool,
}

/// Program of the suite and scratch folder of a run.
#[derive(Clone, Copy)]
struct Bench<'a> {
    suite: &'a Path,
    scratch: &'a Path,
}

/// Runs the suite in each mode and prints the results; true when all of them match docs/conformance.
pub(crate) fn run(root: &Path, options: &Options) -> Result<bool> {
    // Tests run in folders of their own, where a relative path of the program would not be valid.
    let suite =
        if options.suite.components().count() > 1 { options.suite.canonicalize() } else { Ok(options.suite.clone()) };
    let suite = suite.with_context(|| format!("{} is not there", options.suite.display()))?;
    let names = listed(&suite, &options.only)?;
    let expected = match options.target {
        // The table describes this target and this version of the suite only.
        Kind::Blockyard if options.url.is_empty() && suite == Path::new(SUITE) => {
            let text = fs::read_to_string(root.join(TABLE)).with_context(|| format!("cannot read {TABLE}"))?;
            Some(Expected::parse(&text).context(TABLE)?)
        }
        _ => None,
    };
    let mut well = true;
    let (mut tried, mut passed) = (BTreeSet::new(), BTreeSet::new());
    for &mode in &options.mode {
        let begin = Instant::now();
        let names = mode.concerned(&names);
        let outcomes = outcomes_of(mode, &suite, &names, options)?;
        let is_passed = |(_, outcome): &(&String, &Outcome)| matches!(outcome, Outcome::Passed { .. });
        passed.extend(outcomes.iter().filter(is_passed).map(|(name, _)| name.clone()));
        tried.extend(outcomes.keys().cloned());
        if options.verbose {
            outcomes.iter().for_each(|(name, outcome)| println!("{name}: {outcome}"));
        }
        println!("{mode:?}: {} tests in {:.0} s", outcomes.len(), begin.elapsed().as_secs_f32());
        let table = expected.as_ref().map(|expected| (expected, mode));
        // Only a complete run can tell that a row of the table is without a test.
        well &= report(table, &names, &outcomes, options.only.is_empty() && mode.is_whole());
    }
    if options.mode.len() > 1 {
        println!("{} of {} tests passed in one mode at least", passed.len(), tried.len());
        tried.difference(&passed).for_each(|name| println!("passed in none: {name}"));
    }
    Ok(well)
}

/// Returns the outcomes of the tests in one mode, or on the given units.
fn outcomes_of(
    mode: Mode,
    suite: &Path,
    names: &BTreeSet<String>,
    options: &Options,
) -> Result<BTreeMap<String, Outcome>> {
    let scratch = tempfile::tempdir()?;
    let bench = Bench { suite, scratch: scratch.path() };
    if !options.url.is_empty() {
        let units: Vec<_> = options.url.iter().map(|url| vec![url.clone()]).collect();
        return run_all(&units, names, bench);
    }
    let mut setup = Setup::new(scratch.path().to_owned(), options.workers, &Backing::Ram)?;
    setup.unit_bytes = 128 << 20;
    if options.target == Kind::Blockyard {
        setup.build = workspace::product()?;
    }
    let (_target, units) = mode.start(options.target, setup)?;
    // Slow tests run on a target of their own, concurrently with the others.
    let (slow, other) = names.iter().cloned().partition(|name| slow::wants(options.target, name));
    let (some, more) = std::thread::scope(|scope| {
        let slow = scope.spawn(|| slow::run(&slow, bench));
        (run_all(&units, &other, bench), slow.join().expect("it reports its errors"))
    });
    // Both halves have ended before an error of one of them ends the run.
    Ok(some?.into_iter().chain(more?).collect())
}

/// Returns the names of the suite's tests, as SUITE.TEST.
fn listed(suite: &Path, only: &str) -> Result<BTreeSet<String>> {
    let text = output_of(Command::new(suite).arg("--list"), TEST_LIMIT)
        .with_context(|| format!("{} is not there; install libiscsi-bin", suite.display()))?;
    let all = text.lines().filter_map(|line| line.trim().strip_prefix("ALL."));
    let names: BTreeSet<String> =
        all.filter(|name| name.contains('.') && name.starts_with(only)).map(Into::into).collect();
    ensure!(!names.is_empty(), "no test of {} has a name that begins with \"{only}\"", suite.display());
    Ok(names)
}

/// Test that compares 257 blocks with zeros and overwrites the first 256; it may fail on a unit that another test has
/// written.
const NEEDS_NEW_UNIT: &str = "MultipathIO.CompareAndWrite";

/// Runs every test once, in parallel on the units.
fn run_all(units: &[Paths], names: &BTreeSet<String>, bench: Bench<'_>) -> Result<BTreeMap<String, Outcome>> {
    // The test that needs an unwritten unit is started first.
    let (mut order, others): (VecDeque<&String>, VecDeque<_>) = names.iter().partition(|name| *name == NEEDS_NEW_UNIT);
    order.extend(others);
    let waiting = Mutex::new(order);
    let next = || waiting.lock().expect("no worker panics with the queue in hand").pop_front();
    std::thread::scope(|scope| {
        let workers: Vec<_> = units
            .iter()
            .map(|urls| {
                scope.spawn(|| -> Result<Vec<(String, Outcome)>> {
                    let mut ended = Vec::new();
                    while let Some(name) = next() {
                        ended.push((name.clone(), run_one(urls, name, bench, TEST_LIMIT)?));
                    }
                    Ok(ended)
                })
            })
            .collect();
        let mut outcomes = BTreeMap::new();
        for worker in workers {
            outcomes.extend(worker.join().expect("a worker reports its errors")?);
        }
        Ok(outcomes)
    })
}

/// Runs one test in an empty folder, because the suite reads a file with the name of a test as a list of tests.
fn run_one(urls: &[String], name: &str, bench: Bench<'_>, limit: Duration) -> Result<Outcome> {
    let empty = tempfile::tempdir_in(bench.scratch)?;
    let mut command = Command::new(bench.suite);
    // Without these options the suite skips every test that overwrites data.
    command
        .args(["--dataloss", "--allow-sanitize"])
        .arg(format!("--test=ALL.{name}"))
        .args(urls)
        .current_dir(empty.path());
    Ok(Outcome::of(&run_within(&mut command, limit)?))
}

/// Prints deviations and the final line; true when there are none.
fn report(
    expected: Option<(&Expected, Mode)>,
    names: &BTreeSet<String>,
    outcomes: &BTreeMap<String, Outcome>,
    whole: bool,
) -> bool {
    let verdict = judge::judge(expected, names, outcomes, whole);
    for fault in &verdict.faults {
        println!("FAILED {fault}");
    }
    for excused in &verdict.excused {
        println!("excused, and counted as skipped: {excused}");
    }
    println!("{} passed, {} failed, {} skipped", verdict.passed, verdict.faults.len(), verdict.skipped);
    verdict.faults.is_empty()
}
