//! `blockyard lab`.

use super::AimOptions;
use clap::{Args, Subcommand};
use model::Size;
use std::path::PathBuf;

/// What the lab does.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Measure a scenario
    #[command(after_help = "Example:
  blockyard lab run lab/scenarios/queue-depth.toml --out queue-depth.json
  blockyard lab run lab/scenarios/queue-depth.toml --only cache=cached --only depth=30 --rounds 1")]
    Run(RunOptions),
    /// Put a load on a unit of any target, or on a file or disk
    #[command(after_help = "Example:
  blockyard lab load iscsi://10.0.0.1/iqn.2026-11.com.example:db/0 depth=8 block=8KiB
  blockyard lab load iscsi://10.0.0.1/iqn.2026-11.com.example:db/0 reads=70 verify=true span=60s --overwrite
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
    /// Say how two runs differ, or two labels of one: ratios, and how sure they are
    #[command(after_help = "Example:
  blockyard lab compare before.json after.json
  blockyard lab compare targets.json --axis target --labels blockyard tgt")]
    Compare(CompareOptions),
    /// Say what limits each point of a run, how that is known, and what would change it
    #[command(after_help = "Example:
  blockyard lab explain queue-depth.json
  blockyard lab explain queue-depth.json --only depth=32")]
    Explain {
        /// What `run` has kept
        #[arg(value_name = "RUN")]
        run: PathBuf,
        /// Only the points with this label on this axis; may be given again
        #[arg(long, value_name = "AXIS=LABEL")]
        only: Vec<String>,
    },
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
    },
}

/// Which points are measured, and where they go.
#[derive(Debug, Args)]
pub struct RunOptions {
    /// The scenario
    #[arg(value_name = "FILE")]
    pub scenario: PathBuf,
    /// Only the points with this label on this axis; may be given again
    #[arg(long, value_name = "AXIS=LABEL")]
    pub only: Vec<String>,
    /// SPDK's iscsi_tgt, for the points that are about it
    #[arg(long, value_name = "PATH")]
    pub spdk: Option<PathBuf>,
    #[command(flatten)]
    pub keeping: KeepingOptions,
}

/// What is loaded, and how.
#[derive(Debug, Args)]
pub struct LoadOptions {
    #[command(flatten)]
    pub aim: AimOptions,
    /// Keys of a point and their values, as in a scenario: depth, block, reads, pattern, rate, sessions, think, verify, span, …
    #[arg(value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Write to it whatever it holds
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub keeping: KeepingOptions,
}

/// What is compared.
#[derive(Debug, Args)]
pub struct CompareOptions {
    /// The run
    #[arg(value_name = "RUN")]
    pub first: PathBuf,
    /// Another one with the same points
    #[arg(value_name = "RUN", required_unless_present = "axis")]
    pub second: Option<PathBuf>,
    /// The axis of the run whose labels are compared
    #[arg(long, value_name = "AXIS", conflicts_with = "second", requires = "labels")]
    pub axis: Option<String>,
    /// The two labels
    #[arg(long, value_name = "LABEL", num_args = 2, requires = "axis")]
    pub labels: Vec<String>,
}

/// How often, and where it is kept.
#[derive(Debug, Args)]
pub struct KeepingOptions {
    /// How often every point is measured [default: as the scenario says, or once]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Where the run is kept, as JSON [default: printed only]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}
