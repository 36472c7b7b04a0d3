//! Arguments of `blockyard debug`.

use clap::Subcommand;
use model::Span;

/// Debugging of commands that wait.
#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Show commands without a response, and the place where each of them waits
    #[command(
        after_help = "Two samples are taken: a command that is in both has waited at least the time between them.

Example:
  blockyard debug tasks
  blockyard debug tasks --older 5s"
    )]
    Tasks {
        /// Show only commands that have waited at least this long [default: all]
        #[arg(long, value_name = "SPAN")]
        older: Option<Span>,
    },
}
