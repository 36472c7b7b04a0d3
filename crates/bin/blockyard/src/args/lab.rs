//! Arguments of `blockyard lab`.

use super::{TargetOptions, WhoOptions};
use clap::{Args, Subcommand, ValueEnum};
use model::Size;
use std::path::PathBuf;

/// Actions of the benchmark lab.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Measure the points of a scenario
    #[command(after_help = "Example:
  blockyard lab run lab/scenarios/queue-depth.toml --out queue-depth.json
  blockyard lab run lab/scenarios/queue-depth.toml --only cache=cached --only depth=30 --rounds 1
  blockyard lab run lab/scenarios/targets.toml --against old/blockyard --out builds.json")]
    Run(RunOptions),
    /// Generate load on a unit of any target, or on a file or disk
    #[command(after_help = "Example:
  blockyard lab load iscsi://10.0.0.1/iqn.2026-11.com.example:db/0 depth=8 block=8KiB
  blockyard lab load iscsi://10.0.0.1/iqn.2026-11.com.example:db/0 reads=70 verify=true span=60s --overwrite
  blockyard lab load iscsi://10.0.0.1/iqn.2026-11.com.example:db/0 sessions=2 connections=4
  blockyard lab load /dev/sdb pattern=sequential block=1MiB")]
    Load(LoadOptions),
    /// Create a report of runs: one page, and a file for each figure, table and run
    #[command(after_help = "Example:\n  blockyard lab report queue-depth.json raid-levels.json --to report")]
    Report {
        /// Files with results of blockyard lab run
        #[arg(value_name = "RUN", required = true)]
        runs: Vec<PathBuf>,
        /// Set the folder of the report
        #[arg(long, value_name = "FOLDER", default_value = "report")]
        to: PathBuf,
    },
    /// Compare two runs, two labels of one run, or two builds: ratios and their confidence
    #[command(after_help = "Example:
  blockyard lab compare before.json after.json
  blockyard lab compare targets.json --axis target --labels blockyard tgt
  blockyard lab compare new/blockyard old/blockyard --scenario lab/scenarios/builds.toml --out builds.json")]
    Compare(CompareOptions),
    /// Explain the bottleneck of each point of a run, with the evidence and the remedy
    #[command(after_help = "Example:
  blockyard lab explain queue-depth.json
  blockyard lab explain queue-depth.json --only depth=32")]
    Explain {
        /// File with results of blockyard lab run
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// Select the points with this label on this axis; repeat it to select any of several
        #[arg(long, value_name = "AXIS=LABEL")]
        only: Vec<String>,
    },
    /// Replay the commands of a volume's trace on another unit, file or disk, and compare the latencies
    #[command(
        after_help = "The file is from blockyard volume trace. READ, WRITE, WRITE SAME and SYNCHRONIZE CACHE that \
             ended with GOOD are replayed, in as
many sessions as recorded; skipped commands are counted. A trace holds no data: a generated pattern is written instead.

Example:
  blockyard lab replay db.trace
  blockyard lab replay db.trace --show -o json
  blockyard lab replay db.trace --to iscsi://10.0.0.1/iqn.2026-11.com.example:new/0 --overwrite
  blockyard lab replay db.trace --to iscsi://10.0.0.1/iqn.2026-11.com.example:new/0 --speed 2 --overwrite
  blockyard lab replay db.trace --to /dev/sdb --pace fast --wrap --overwrite"
    )]
    Replay(ReplayOptions),
    /// Write a test stream that a later check can verify
    #[command(after_help = "Example:\n  blockyard lab genstream 10GiB --seed 7 > /mnt/stream")]
    Genstream {
        /// Size of the stream
        size: Size,
        /// Set the seed of the stream; checkstream needs the same value
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
    },
    /// Verify a stream written by genstream
    #[command(after_help = "Example:\n  blockyard lab checkstream --seed 7 --size 10GiB < /mnt/stream")]
    Checkstream {
        /// Set the seed of the stream, as given to genstream
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// Set the expected size of the stream
        #[arg(long, value_name = "SIZE")]
        size: Option<Size>,
    },
    /// Serve raw bytes over TCP without iSCSI, for the lab itself
    #[command(hide = true, after_help = "Example:\n  blockyard lab serve-bare --tell address --spin")]
    ServeBare {
        /// File that the listening address is written to
        #[arg(long, value_name = "FILE")]
        tell: PathBuf,
        /// Poll without sleeping
        #[arg(long)]
        spin: bool,
        /// Send from and receive into a memory buffer of this size
        #[arg(long, value_name = "SIZE")]
        memory: Option<Size>,
    },
}

/// Options of `blockyard lab run`.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// File with the scenario
    #[arg(value_name = "FILE")]
    pub scenario: PathBuf,
    /// Select the points with this label on this axis; repeat it to select any of several
    #[arg(long, value_name = "AXIS=LABEL")]
    pub only: Vec<String>,
    /// Measure every point with this build of Blockyard as well, alternating
    #[arg(long, value_name = "PROGRAM")]
    pub against: Option<PathBuf>,
    /// Path of SPDK's iscsi_tgt, for the points that measure it
    #[arg(long, value_name = "PATH")]
    pub spdk: Option<PathBuf>,
    #[command(flatten)]
    pub keeping: KeepingOptions,
}

/// Options of `blockyard lab load`.
#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    #[command(flatten)]
    pub aim: TargetOptions,
    /// Keys of a point and their values, as in a scenario: depth, block, reads, pattern, rate, sessions, connections,
    /// think, verify, span, …
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Write to the unit regardless of its content and of the initiators registered with it
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub keeping: KeepingOptions,
}

/// Options of `blockyard lab replay`.
#[derive(Debug, Args)]
pub(crate) struct ReplayOptions {
    /// File with the trace
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,
    /// Set the destination: iscsi://HOST[:PORT]/TARGET[/LUN], or a file or disk [default: only summarize the trace]
    #[arg(long, value_name = "URL|PATH")]
    pub to: Option<String>,
    /// Set the pace: at the recorded times, or as soon as all commands that had completed before have completed again
    #[arg(long, value_enum, default_value_t = ReplayPace::Recorded, requires = "to")]
    pub pace: ReplayPace,
    /// Set the factor by which the recording is accelerated [default: 1]
    #[arg(long, value_name = "X", requires = "to")]
    pub speed: Option<f64>,
    /// Wrap addresses beyond the end of a smaller unit into its range
    #[arg(long, requires = "to")]
    pub wrap: bool,
    /// Write to the destination regardless of its content
    #[arg(long, requires = "to")]
    pub overwrite: bool,
    /// List the commands of the trace
    #[arg(long, conflicts_with = "to")]
    pub show: bool,
    #[command(flatten)]
    pub who: WhoOptions,
}

/// Pace at which recorded commands are sent.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReplayPace {
    /// At the recorded times
    Recorded,
    /// As soon as all commands that had completed before have completed again
    Fast,
}

/// Options of `blockyard lab compare`.
#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    /// File with the first run; with --scenario, the first build of Blockyard
    #[arg(value_name = "RUN|PROGRAM")]
    pub first: PathBuf,
    /// File with another run of the same points; with --scenario, another build
    #[arg(value_name = "RUN|PROGRAM", required_unless_present = "axis")]
    pub second: Option<PathBuf>,
    /// Compare labels of this axis of the run
    #[arg(long, value_name = "AXIS", conflicts_with = "second", requires = "labels")]
    pub axis: Option<String>,
    /// Set the two labels to compare
    #[arg(long, value_name = "LABEL", num_args = 2, requires = "axis")]
    pub labels: Vec<String>,
    /// Measure this scenario with the two builds alternately, and compare them
    #[arg(long, value_name = "FILE", conflicts_with = "axis", requires = "second")]
    pub scenario: Option<PathBuf>,
    /// With --scenario, select the points with this label on this axis; repeat it to select any of several
    #[arg(long, value_name = "AXIS=LABEL", requires = "scenario")]
    pub only: Vec<String>,
    /// With --scenario, set the number of measurements of each point [default: the scenario's, or 6]
    #[arg(long, value_name = "N", requires = "scenario")]
    pub rounds: Option<u32>,
    /// With --scenario, write the run to this file as JSON [default: not written]
    #[arg(long, value_name = "FILE", requires = "scenario")]
    pub out: Option<PathBuf>,
}

/// Number of measurements, and file for the results.
#[derive(Debug, Args)]
pub(crate) struct KeepingOptions {
    /// Set the number of measurements of each point [default: the scenario's, or 1]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Write the run to this file as JSON [default: printed only]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
