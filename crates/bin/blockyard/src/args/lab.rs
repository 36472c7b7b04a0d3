//! `blockyard lab`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What the lab does.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Measure a scenario
    #[command(after_help = "Example:
  blockyard lab run lab/scenarios/queue-depth.toml --out queue-depth.json
  blockyard lab run lab/scenarios/queue-depth.toml --only peer=blockyard --only depth=32 --rounds 1")]
    Run(RunOptions),
    /// Serve bare bytes, for the lab itself
    #[command(hide = true)]
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
    /// Where the run is kept, as JSON [default: printed only]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Only the points with this label on this axis; may be given again
    #[arg(long, value_name = "AXIS=LABEL")]
    pub only: Vec<String>,
    /// How often every point is measured [default: as the scenario says]
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// SPDK's iscsi_tgt, for the points that are about it
    #[arg(long, value_name = "PATH")]
    pub spdk: Option<PathBuf>,
}
