//! `blockyard export`, `diff`, `apply` and `config`.

use clap::{Args, Subcommand};
use model::{ConfigVersion, Iqn, Span};
use std::path::PathBuf;

/// A document, and how it is meant.
#[derive(Debug, Args)]
pub(crate) struct DocumentOptions {
    /// The document, as TOML or JSON; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Remove hosts, groups, targets and presentations that are not in it, and users and receivers of alerts not in the sections of it; disks, pools and volumes stay always
    #[arg(long)]
    pub prune: bool,
    /// Give LUNs that the document states to its volumes though hosts had other volumes under them
    #[arg(long)]
    pub reuse_luns: bool,
}

/// Whether a change may take something away from hosts that are logged in; the array refuses it with the list of sessions otherwise.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DisruptionOption {
    /// Go on though sessions end or lose access
    #[arg(long)]
    pub allow_disruption: bool,
}

/// What to compare.
#[derive(Debug, Args)]
pub(crate) struct DiffOptions {
    #[command(flatten)]
    pub document: DocumentOptions,
    /// End with exit code 10 when something would change
    #[arg(long)]
    pub exit_code: bool,
}

/// What to apply.
#[derive(Debug, Args)]
pub(crate) struct ApplyOptions {
    #[command(flatten)]
    pub document: DocumentOptions,
    /// Say what would be done, and do nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub disruption: DisruptionOption,
    /// An initiator that must be logged in afterwards, or everybody sees again what they saw; may be given again
    #[arg(long = "initiator", value_name = "IQN")]
    pub initiators: Vec<Iqn>,
    /// How long these may take [default: 1min]
    #[arg(long, value_name = "SPAN", requires = "initiators")]
    pub within: Option<Span>,
}

/// What can be done about earlier configurations.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show who saw what before: the latest twenty configurations
    #[command(after_help = "Example:\n  blockyard config list")]
    List,
    /// Let everybody see what they saw then; disks, pools and volumes stay as they are
    #[command(after_help = "Example:\n  blockyard config restore 41")]
    Restore {
        /// Which, by its number
        version: ConfigVersion,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        disruption: DisruptionOption,
        /// Restore it though LUNs become other volumes than hosts know under them by now
        #[arg(long)]
        reuse_luns: bool,
    },
}
