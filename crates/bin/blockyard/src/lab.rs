//! Front end of the benchmark lab (`blockyard lab`); the measurements are in the crate `lab`.

mod compare;
mod explain;
mod replay;

use crate::args::{Global, KeepingOptions, LabCommand, LoadOptions, RunOptions};
use crate::conform::test_target;
use crate::failure::Failure;
use crate::output::{Output, Rows};
use crate::stop::StopSignals;
use ::lab::figure::Measure;
use ::lab::label_filter::LabelFilter;
use ::lab::load::Verification;
use ::lab::measure::{self, Watch};
use ::lab::peer::{Given, TestResources};
use ::lab::run::{FORMAT, Machine, Measured, Run, Sample};
use ::lab::scenario::Scenario;
use ::lab::target::Unit;
use anyhow::{Context, Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use model::{Size, Timestamp};
use std::fs;
use std::net::{Ipv4Addr, TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;

const HEADER: &[&str] = &["POINT", "IOPS", "MB/S", "P50 US", "P99 US", "SERVER US", "CLIENT US"];

/// Limit of a scenario file in bytes; the largest in the repository has some kilobytes.
const SCENARIO_BYTES_MAX: u64 = 1 << 20;
/// Limit of a run file in bytes: 10,000 points with their latencies take some hundred megabytes.
const RUN_BYTES_MAX: u64 = 1 << 30;

/// Runs a command of the lab.
pub(crate) fn run(command: &LabCommand, global: &Global) -> Result<(), Failure> {
    match command {
        LabCommand::Run(options) => {
            let (scenario, means) = scenario_of(options)?;
            measure(scenario, &means, &options.keeping, global)
        }
        LabCommand::Load(options) => {
            let (scenario, means) = load_of(options)?;
            measure(scenario, &means, &options.keeping, global)
        }
        LabCommand::Report { runs, to } => report(runs, to, global),
        LabCommand::Compare(options) => compare::compare(options, global),
        LabCommand::Replay(options) => replay::replay(options, global),
        LabCommand::Explain { run, only } => explain::explain(&kept(run)?, only, global),
        LabCommand::Genstream { size, seed } => {
            Ok(::lab::stream::generate(&mut std::io::stdout().lock(), size.bytes(), *seed)?)
        }
        LabCommand::Checkstream { seed, size } => {
            let proof = ::lab::stream::check(&mut std::io::stdin().lock(), size.map(Size::bytes), *seed)?;
            say_proof(&proof, global)
        }
        LabCommand::ServeBare { tell, spin, memory } => Ok(serve_bare(tell, *spin, *memory)?),
    }
}

fn kept(path: &Path) -> Result<Run> {
    let text = bounded::source(path, RUN_BYTES_MAX).with_context(|| format!("cannot read {}", path.display()))?;
    Run::parse(&text).with_context(|| path.display().to_string())
}

fn report(runs: &[PathBuf], to: &Path, global: &Global) -> Result<(), Failure> {
    let runs: Result<Vec<Run>> = runs.iter().map(|path| kept(path)).collect();
    let written = ::lab::report::write(&runs?, to)?;
    written.remarks.iter().for_each(|remark| eprintln!("{remark}"));
    Output::new(global).said(&format!("{} ({} files in {})", written.page.display(), written.files.len(), to.display()))
}

fn serve_bare(tell: &Path, spin: bool, memory: Option<Size>) -> Result<()> {
    let memory_bytes = memory.map(|memory| usize::try_from(memory.bytes())).transpose()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let written = tell.with_extension("new");
    // Renamed when it is complete: the reader polls for the file and must not see an empty one.
    fs::write(&written, listener.local_addr()?.to_string())?;
    fs::rename(written, tell)?;
    ::lab::bare::serve(&listener, spin, memory_bytes)
}

fn unix_seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn means() -> Result<TestResources> {
    Ok(TestResources { own: std::env::current_exe()?, ..TestResources::default() })
}

fn scenario_of(options: &RunOptions) -> Result<(Scenario, TestResources)> {
    let mut scenario = scenario_at(&options.scenario, &options.only)?;
    if options.against.is_some() {
        scenario.in_turn()?;
    }
    Ok((scenario, TestResources { spdk: options.spdk.clone(), other: options.against.clone(), ..means()? }))
}

/// Reads a scenario, and keeps only the points with these labels.
fn scenario_at(path: &Path, only: &[String]) -> Result<Scenario> {
    let text = bounded::source(path, SCENARIO_BYTES_MAX).and_then(bounded::text_of);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    let mut scenario = Scenario::parse(&text).with_context(|| path.display().to_string())?;
    scenario.keep(&LabelFilter::parse(only)?)?;
    Ok(scenario)
}

/// Builds a scenario of one point from the unit and the settings of the command line.
fn load_of(options: &LoadOptions) -> Result<(Scenario, TestResources), Failure> {
    let mut means = TestResources { overwrite: options.overwrite, ..means()? };
    let url = &options.aim.url;
    let peer = if url.starts_with("iscsi://") {
        let aim = test_target(&options.aim)?;
        let resolved = aim.portal.to_socket_addrs().with_context(|| format!("no address of {}", aim.portal))?.next();
        let portal = resolved.with_context(|| format!("no address of {}", aim.portal))?;
        let unit = Unit { portal, iqn: aim.target.as_str().to_owned(), lun: aim.lun };
        means.given.push(Given { unit, initiator: aim.initiator, auth: aim.auth });
        "given"
    } else {
        means.devices.push(url.clone());
        "native"
    };
    let mut text = format!("name = \"load\"\ntitle = \"\"\nrounds = 1\n[base]\npeer = \"{peer}\"\n");
    for setting in &options.settings {
        let (key, value) =
            setting.split_once('=').ok_or_else(|| Failure::Usage(format!("\"{setting}\": write KEY=VALUE")))?;
        // A value that is not TOML by itself is a word, and is quoted here.
        let value = match toml::from_str::<toml::Table>(&format!("value = {value}")) {
            Ok(_) => value.to_owned(),
            Err(_) => toml::Value::from(value).to_string(),
        };
        text.push_str(&format!("{key} = {value}\n"));
    }
    let scenario = Scenario::parse(&text).map_err(|error| Failure::Usage(format!("{error:#}")))?;
    Ok((scenario, means))
}

fn measure(
    mut scenario: Scenario,
    means: &TestResources,
    keeping: &KeepingOptions,
    global: &Global,
) -> Result<(), Failure> {
    scenario.rounds = keeping.rounds.unwrap_or(scenario.rounds).max(1);
    let run = measured(scenario, means, keeping.out.as_deref(), global)?;
    let rows = run.points.iter().map(row).collect();
    Output::new(global).lines(&Rows { header: HEADER, rows })?;
    // Rounds without verification have no result, so none of them stays none.
    let mut proof: Option<Verification> = None;
    for found in run.points.iter().flat_map(|point| &point.samples).filter_map(|sample| sample.proof.clone()) {
        proof.get_or_insert_default().add(found);
    }
    if let Some(proof) = proof {
        say_proof(&proof, global)?;
    }
    whole(&run)
}

/// *Errors*: the run was stopped before every point was measured.
fn whole(run: &Run) -> Result<(), Failure> {
    match run.complete {
        true => Ok(()),
        false => Err(anyhow!("stopped before all points were measured; the results so far are kept").into()),
    }
}

/// *Errors*: blocks held wrong data.
fn say_proof(proof: &Verification, global: &Global) -> Result<(), Failure> {
    for words in &proof.words {
        eprintln!("{words}");
    }
    if proof.faults > 0 {
        return Err(anyhow!("{} of {} blocks failed verification", proof.faults, proof.judged).into());
    }
    if !Output::new(global).is_quiet() {
        eprintln!("{} blocks read and verified", proof.judged);
    }
    Ok(())
}

/// Measures a scenario, and writes the run to `out` if given.
///
/// *Errors*: something could not be measured; the results until then are written all the same.
fn measured(scenario: Scenario, means: &TestResources, out: Option<&Path>, global: &Global) -> Result<Run> {
    let all = scenario.points()?.len() as u64 * u64::from(scenario.rounds);
    let mut watch = Progress::new(all, Output::new(global).is_quiet())?;
    let (mut machine, begun) = (Machine::here(), Timestamp::from_unix(unix_seconds()).to_string());
    machine.facts.extend(means.builds()?);
    let measure::Outcome { points, end } = measure::run(&scenario, means, &mut watch)?;
    watch.bar.finish_and_clear();
    // An error counts as incomplete.
    let complete = *end.as_ref().unwrap_or(&false);
    let run = Run { format: FORMAT, scenario, machine, begun, complete, points };
    // Written even after an error: hours of measurements must not be lost.
    if let Some(out) = out {
        fs::write(out, serde_json::to_string(&run)?).with_context(|| format!("cannot write {}", out.display()))?;
    }
    match (end, out) {
        (Ok(_), _) => Ok(run),
        (Err(error), Some(out)) => {
            Err(error.context(format!("the run is incomplete; the results so far are in {}", out.display())))
        }
        (Err(error), None) => Err(error),
    }
}

/// Returns the medians of a point.
fn row(measured: &Measured) -> Vec<String> {
    let labels: Vec<&str> = measured.labels.values().map(String::as_str).collect();
    let mut row = vec![labels.join(", ")];
    if let Some(why) = &measured.untried {
        row.push(why.clone());
        return row;
    }
    let median = |of: &dyn Fn(&Sample) -> Option<f64>| {
        let mut figures: Vec<f64> = measured.samples.iter().filter_map(of).collect();
        figures.sort_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied()
    };
    let quantile = |quantile: f64| move |sample: &Sample| Some(sample.latency().quantile(quantile)? as f64 / 1e3);
    let figures: [(Option<f64>, usize); 6] = [
        (median(&|sample| Some(sample.iops())), 0),
        (median(&|sample| Some(sample.bandwidth() / 1e6)), 1),
        (median(&quantile(0.5)), 1),
        (median(&quantile(0.99)), 1),
        (median(&|sample| Measure::ServerPerCommand.of(&measured.point, sample)), 2),
        (median(&|sample| Measure::ClientPerCommand.of(&measured.point, sample)), 2),
    ];
    row.extend(figures.map(|(figure, digits)| figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))));
    row
}

/// Progress bar on the terminal, and the flag that a signal sets to stop the run.
struct Progress {
    bar: ProgressBar,
    stopped: Arc<AtomicBool>,
}

impl Progress {
    fn new(samples: u64, quiet: bool) -> Result<Self> {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(samples) };
        bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left  {msg}")?);
        let stopped = Arc::new(AtomicBool::new(false));
        // `StopSignals` needs a runtime with I/O, which the measuring thread does not have.
        let (told, (tell, heard)) = (stopped.clone(), mpsc::sync_channel(1));
        let listen = move || -> std::io::Result<()> {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(async {
                let mut stops = StopSignals::install()?;
                // The receiver waits below, until signals no longer end the process.
                let _ = tell.send(());
                loop {
                    stops.next().await;
                    // The flag guards no other data, so no ordering is needed.
                    told.store(true, Relaxed);
                }
            })
        };
        let listening = std::thread::Builder::new().name("stops".to_owned()).spawn(listen)?;
        // The sender was dropped: the thread ended with an error.
        if heard.recv().is_err() {
            listening.join().unwrap_or(Ok(())).context("cannot install signal handlers")?;
        }
        Ok(Self { bar, stopped })
    }
}

impl Watch for Progress {
    fn sampled(&mut self, _: usize, _: u32, measured: &Measured) {
        let labels: Vec<&str> = measured.labels.values().map(String::as_str).collect();
        self.bar.set_message(labels.join(", "));
        self.bar.inc(1);
    }

    fn stops(&self) -> bool {
        self.stopped.load(Relaxed)
    }
}
