//! `blockyard state …`

use clap::Subcommand;

/// What can be done about the state of the array.
#[derive(Debug, Subcommand)]
pub enum StateCommand {
    /// Show the version of the state that is served, and why changes are refused
    #[command(after_help = "Example:\n  blockyard state show")]
    Show,
    /// Accept the older version of the state that is served, and take changes again
    #[command(
        after_help = "Where the latest version of the state is damaged, the daemon serves the latest whole one and refuses changes.
Check hosts, mappings and users first: what was changed after that version is missing. The damaged file is kept as *.damaged.

Example:
  blockyard state show
  blockyard state accept"
    )]
    Accept,
}
