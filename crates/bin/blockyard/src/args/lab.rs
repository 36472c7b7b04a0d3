//! `blockyard lab`.

use super::{AimOptions, WhoOptions};
use clap::{Args, Subcommand, ValueEnum};
use model::Size;
use std::path::PathBuf;

/// What the lab does.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Measure a scenario
    #[command(after_help = "Example:
  blockyard lab run lab/scenarios/queue-depth.toml --out queue-depth.json
  blockyard lab run lab/scenarios/queue-depth.toml --only cache=cached --only depth=30 --rounds 1
  blockyard lab run lab/scenarios/targets.toml --against old/blockyard --out builds.json")]
    Run(RunOptions),
    /// Put a load on a unit of any target, or on a file or disk
    #[command(after_help = "Example:
  blockyard lab load iscsi://10.0.0.1/iqn.2026-11.com.example:db/0 depth=8 block=8KiB
  blockyard lab load iscsi://10.0.0.1/iqn.2026-11.com.example:db/0 reads=70 verify=true span=60s --overwrite
  blockyard lab load iscsi://10.0.0.1/iqn.2026-11.com.example:db/0 sessions=2 connections=4
  blockyard lab load /dev/sdb pattern=sequential block=1MiB")]
    Load(LoadOptions),
    /// Draw runs: one page, and each figure, table and run as a file of its own
    #[command(after_help = "Example:\n  blockyard lab report queue-depth.json raid-levels.json --to report")]
    Report {
        /// What `run` has kept
        #[arg(value_name = "RUN", required = true)]
        runs: Vec<PathBuf>,
        /// The folder for it
        #[arg(long, value_name = "FOLDER", default_value = "report")]
        to: PathBuf,
    },
    /// Say how two runs differ, or two labels of one, or two builds: ratios, and how sure they are
    #[command(after_help = "Example:
  blockyard lab compare before.json after.json
  blockyard lab compare targets.json --axis target --labels blockyard tgt
  blockyard lab compare new/blockyard old/blockyard --scenario lab/scenarios/builds.toml --out builds.json")]
    Compare(CompareOptions),
    /// Say what limits each point of a run, how that is known, and what would change it
    #[command(after_help = "Example:
  blockyard lab explain queue-depth.json
  blockyard lab explain queue-depth.json --only depth=32")]
    Explain {
        /// What `run` has kept
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// Only the points with this label on this axis; given again, with any of them
        #[arg(long, value_name = "AXIS=LABEL")]
        only: Vec<String>,
    },
    /// Send the commands of a volume's trace again, to another unit, file or disk, and say how long they took then and now
    #[command(
        after_help = "The file is from blockyard volume trace. READ, WRITE, WRITE SAME and SYNCHRONIZE CACHE that ended with GOOD are sent again, in as
many sessions as they came from; what is left out is counted. A trace has no data: what is written says where it belongs.

Example:
  blockyard lab replay db.trace
  blockyard lab replay db.trace --show -o json
  blockyard lab replay db.trace --to iscsi://10.0.0.1/iqn.2026-11.com.example:new/0 --overwrite
  blockyard lab replay db.trace --to iscsi://10.0.0.1/iqn.2026-11.com.example:new/0 --speed 2 --overwrite
  blockyard lab replay db.trace --to /dev/sdb --pace fast --wrap --overwrite"
    )]
    Replay(ReplayOptions),
    /// Write a stream that shows afterwards what became of it
    #[command(after_help = "Example:\n  blockyard lab genstream 10GiB --seed 7 > /mnt/stream")]
    Genstream {
        /// How much
        size: Size,
        /// The run, which `checkstream` must be told as well
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
    },
    /// Judge a stream that `genstream` wrote
    #[command(after_help = "Example:\n  blockyard lab checkstream --seed 7 --size 10GiB < /mnt/stream")]
    Checkstream {
        /// The run
        #[arg(long, value_name = "N", default_value_t = 0)]
        seed: u64,
        /// How much there must be
        #[arg(long, value_name = "SIZE")]
        size: Option<Size>,
    },
    /// Serve bare bytes, for the lab itself
    #[command(hide = true, after_help = "Example:\n  blockyard lab serve-bare --tell address --spin")]
    ServeBare {
        /// The file that is told the address
        #[arg(long, value_name = "FILE")]
        tell: PathBuf,
        /// Never sleep
        #[arg(long)]
        spin: bool,
        /// Send what lies in a memory of this size, and keep there what comes
        #[arg(long, value_name = "SIZE")]
        memory: Option<Size>,
    },
}

/// Which points are measured, and where they go.
#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    /// The scenario
    #[arg(value_name = "FILE")]
    pub scenario: PathBuf,
    /// Only the points with this label on this axis; given again, with any of them
    #[arg(long, value_name = "AXIS=LABEL")]
    pub only: Vec<String>,
    /// Another build of Blockyard: every point of this one is measured with it as well, in turn
    #[arg(long, value_name = "PROGRAM")]
    pub against: Option<PathBuf>,
    /// SPDK's iscsi_tgt, for the points that are about it
    #[arg(long, value_name = "PATH")]
    pub spdk: Option<PathBuf>,
    #[command(flatten)]
    pub keeping: KeepingOptions,
}

/// What is loaded, and how.
#[derive(Debug, Args)]
pub(crate) struct LoadOptions {
    #[command(flatten)]
    pub aim: AimOptions,
    /// Keys of a point and their values, as in a scenario: depth, block, reads, pattern, rate, sessions, connections, think, verify, span, …
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Write to it whatever it holds, and whoever has registered with it
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub keeping: KeepingOptions,
}

/// What is replayed, and where.
#[derive(Debug, Args)]
pub(crate) struct ReplayOptions {
    /// The trace
    #[arg(value_name = "FILE")]
    pub trace: PathBuf,
    /// The unit, iscsi://HOST[:PORT]/TARGET[/LUN], or a file or disk [default: only say what the trace has]
    #[arg(long, value_name = "URL|PATH")]
    pub to: Option<String>,
    /// When commands are sent: when they were, or as soon as all that had ended before have ended again
    #[arg(long, value_enum, default_value_t = ReplayPace::Recorded, requires = "to")]
    pub pace: ReplayPace,
    /// How many times as fast the recording passes [default: 1]
    #[arg(long, value_name = "X", requires = "to")]
    pub speed: Option<f64>,
    /// Let what lies behind the end of a smaller unit go where there is room
    #[arg(long, requires = "to")]
    pub wrap: bool,
    /// Write to it whatever it holds
    #[arg(long, requires = "to")]
    pub overwrite: bool,
    /// List the commands
    #[arg(long, conflicts_with = "to")]
    pub show: bool,
    #[command(flatten)]
    pub who: WhoOptions,
}

/// When commands of a recording are sent.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ReplayPace {
    /// When they were
    Recorded,
    /// As soon as all that had ended before have ended again
    Fast,
}

/// What is compared.
#[derive(Debug, Args)]
pub(crate) struct CompareOptions {
    /// The run; with --scenario a build of Blockyard
    #[arg(value_name = "RUN|PROGRAM")]
    pub first: PathBuf,
    /// Another one with the same points; with --scenario another build
    #[arg(value_name = "RUN|PROGRAM", required_unless_present = "axis")]
    pub second: Option<PathBuf>,
    /// The axis of the run whose labels are compared
    #[arg(long, value_name = "AXIS", conflicts_with = "second", requires = "labels")]
    pub axis: Option<String>,
    /// The two labels
    #[arg(long, value_name = "LABEL", num_args = 2, requires = "axis")]
    pub labels: Vec<String>,
    /// Measure this scenario with two builds in turn, and compare them
    #[arg(long, value_name = "FILE", conflicts_with = "axis", requires = "second")]
    pub scenario: Option<PathBuf>,
    /// With --scenario, only the points with this label on this axis; given again, with any of them
    #[arg(long, value_name = "AXIS=LABEL", requires = "scenario")]
    pub only: Vec<String>,
    /// With --scenario, how often every point is measured [default: as the scenario says, or 6 times]
    #[arg(long, value_name = "N", requires = "scenario")]
    pub rounds: Option<u32>,
    /// With --scenario, where the run is kept, as JSON [default: not at all]
    #[arg(long, value_name = "FILE", requires = "scenario")]
    pub out: Option<PathBuf>,
}

/// How often, and where it is kept.
#[derive(Debug, Args)]
pub(crate) struct KeepingOptions {
    /// How often every point is measured [default: as the scenario says, or once]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Where the run is kept, as JSON [default: printed only]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
