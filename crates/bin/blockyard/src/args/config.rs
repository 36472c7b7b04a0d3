//! Arguments of `blockyard export`, `diff`, `apply` and `config`.

use clap::{Args, Subcommand};
use model::{ConfigVersion, Iqn, Span};
use std::path::PathBuf;

/// Document with the desired configuration, and its treatment.
#[derive(Debug, Args)]
pub(crate) struct DocumentOptions {
    /// File with the document, as TOML or JSON; - is standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Remove hosts, groups, targets and presentations that the document does not contain, and users and alert
    /// receivers that its sections do not contain; disks, pools and volumes always stay
    #[arg(long)]
    pub prune: bool,
    /// Assign the LUNs in the document to its volumes even if hosts had other volumes under them
    #[arg(long)]
    pub reuse_luns: bool,
}

/// Permission to end sessions or to take volumes away from hosts that are logged in. Without it the array refuses such
/// a change with the list of sessions.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct DisruptionOption {
    /// Continue even if sessions end or lose access
    #[arg(long)]
    pub allow_disruption: bool,
}

/// Options of `blockyard diff`.
#[derive(Debug, Args)]
pub(crate) struct DiffOptions {
    #[command(flatten)]
    pub document: DocumentOptions,
    /// Exit with code 10 if the document would change anything
    #[arg(long)]
    pub exit_code: bool,
}

/// Options of `blockyard apply`.
#[derive(Debug, Args)]
pub(crate) struct ApplyOptions {
    #[command(flatten)]
    pub document: DocumentOptions,
    /// Show the changes without making them
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub disruption: DisruptionOption,
    /// Initiator that must be logged in afterwards, otherwise the earlier mappings are restored; may be repeated
    #[arg(long = "initiator", value_name = "IQN")]
    pub initiators: Vec<Iqn>,
    /// Set the time limit for these logins [default: 1min]
    #[arg(long, value_name = "SPAN", requires = "initiators")]
    pub within: Option<Span>,
}

/// Actions on earlier configurations.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// List the latest twenty configurations with their mappings
    #[command(after_help = "Example:\n  blockyard config list")]
    List,
    /// Restore the mappings of an earlier configuration; disks, pools and volumes stay as they are
    #[command(after_help = "Example:\n  blockyard config restore 41")]
    Restore {
        /// Number of the configuration
        version: ConfigVersion,
        /// Do not ask for confirmation
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        disruption: DisruptionOption,
        /// Restore it even if hosts by now know other volumes under its LUNs
        #[arg(long)]
        reuse_luns: bool,
    },
}
