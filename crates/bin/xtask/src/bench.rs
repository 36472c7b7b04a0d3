//! Our target and tgtd, or another build of ours, in turn, with the same client: commands per second and server time per command.
//!
//! Figures of a shared machine wobble; the ratios of interleaved repeats are what counts. Nothing here
//! passes or fails.

pub mod measure;

use crate::client::Client;
use crate::workspace;
use anyhow::{Context, Result};
use clap::Args;
use lab::target::{self, Backing, Kind, Setup, Target};
use measure::{Load, Sample};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SERVER_CORE: usize = 1;
const CLIENT_CORE: usize = 0;
const UNIT_BYTES: u64 = 256 << 20;

#[derive(Args)]
pub struct Options {
    /// How often each row is measured; the median counts
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// How long each measurement lasts
    #[arg(long, default_value_t = 2)]
    seconds: u64,
    /// Commands under way at once
    #[arg(long, default_value_t = 32)]
    depth: usize,
    /// Leave tgtd out
    #[arg(long)]
    alone: bool,
    /// Another build of the product in the place of tgtd
    #[arg(long, value_name = "BLOCKYARD", conflicts_with = "alone")]
    against: Option<PathBuf>,
    /// Leave out how much the idle daemon takes
    #[arg(long)]
    no_idle: bool,
}

/// A target under measurement, with a session on each of its units.
struct Contender {
    name: &'static str,
    target: Box<dyn Target>,
    null: Client,
    ram: Client,
    samples: [Vec<Sample>; ROWS.len()],
}

/// What is measured: its name, whether on the null unit, and whether it writes.
const ROWS: [(&str, bool, bool); 4] = [
    ("null, 4 KiB random read", true, false),
    ("null, 4 KiB random write", true, true),
    ("RAM, 4 KiB random read", false, false),
    ("RAM, 4 KiB random write", false, true),
];

/// Measures and prints; always true when it could.
pub fn run(options: &Options) -> Result<bool> {
    measure::stay_on(CLIENT_CORE).context("cannot stay on the client's core")?;
    let scratch = tempfile::tempdir()?;
    let mut contenders = vec![start("blockyard", Kind::Blockyard, None, scratch.path())?];
    if options.against.is_some() {
        contenders.push(start("other", Kind::Blockyard, options.against.clone(), scratch.path())?);
    } else if !options.alone {
        contenders.push(start("tgt", Kind::Tgt, None, scratch.path())?);
    }
    for contender in &mut contenders {
        contender.fill()?;
    }
    for repeat in 0..options.repeats {
        for (row, &(_, null, writes)) in ROWS.iter().enumerate() {
            for contender in &mut contenders {
                let load = Load { depth: options.depth, writes, seed: (repeat * ROWS.len() + row) as u64 };
                let pid = contender.target.pid();
                let client = if null { &mut contender.null } else { &mut contender.ram };
                measure::run(client, pid, &load, Duration::from_millis(300))?;
                let sample = measure::run(client, pid, &load, Duration::from_secs(options.seconds))?;
                contender.samples[row].push(sample);
            }
        }
    }
    print(&contenders, options);
    if !options.no_idle {
        print_idle(&contenders[0])?;
    }
    Ok(true)
}

fn start(name: &'static str, kind: Kind, build: Option<PathBuf>, scratch: &Path) -> Result<Contender> {
    let folder = scratch.join(name);
    std::fs::create_dir(&folder)?;
    let mut setup = Setup::new(folder, 0, &Backing::Null)?;
    setup.units = vec![Backing::Null, Backing::Ram];
    setup.unit_bytes = UNIT_BYTES;
    setup.cores = vec![SERVER_CORE];
    setup.build = match build {
        Some(build) => build,
        None => workspace::product()?,
    };
    let target = target::start(kind, &setup)?;
    let null = Client::log_in(&target.units()[0], 1)?;
    let ram = Client::log_in(&target.units()[1], 2)?;
    Ok(Contender { name, target, null, ram, samples: Default::default() })
}

impl Contender {
    /// Writes the whole memory unit once, so that reads find memory behind every block.
    fn fill(&mut self) -> Result<()> {
        measure::fill(&mut self.ram).with_context(|| format!("cannot fill the memory unit of {}", self.name))
    }

    fn medians(&self, row: usize) -> Sample {
        measure::median(&self.samples[row])
    }
}

fn print(contenders: &[Contender], options: &Options) {
    println!(
        "depth {}, one session, medians of {} × {} s, server on core {SERVER_CORE}, client on core {CLIENT_CORE}",
        options.depth, options.repeats, options.seconds
    );
    println!("{:<26} {:>10} {:>10} {:>12} {:>12}", "", "", "IOPS", "server µs", "client µs");
    for (row, (what, ..)) in ROWS.iter().enumerate() {
        for contender in contenders {
            let Sample { iops, server_us, client_us } = contender.medians(row);
            println!("{what:<26} {:>10} {iops:>10.0} {server_us:>12.2} {client_us:>12.2}", contender.name);
        }
        if let [ours, theirs] = contenders {
            let (ours, theirs) = (ours.medians(row), theirs.medians(row));
            let (faster, leaner) = (ours.iops / theirs.iops, theirs.server_us / ours.server_us);
            println!("{what:<26} {:>10} {faster:>9.2}× {leaner:>11.2}×", "ratio");
        }
    }
}

/// Prints what the daemon takes while two sessions sleep.
fn print_idle(contender: &Contender) -> Result<()> {
    const SPAN: Duration = Duration::from_secs(10);
    let pid = contender.target.pid();
    let before = measure::cpu_time(pid)?;
    std::thread::sleep(SPAN);
    let used = measure::cpu_time(pid)?.saturating_sub(before);
    let share = used.as_secs_f64() / SPAN.as_secs_f64() * 100.0;
    println!("idle for {SPAN:?} with two sessions: {used:?} of CPU ({share:.3} %)");
    println!(
        "resident memory: {} MiB, of which {} MiB is the memory unit",
        measure::resident_kib(pid)? >> 10,
        UNIT_BYTES >> 20
    );
    Ok(())
}
