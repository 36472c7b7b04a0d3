//! `blockyard debug`.

use clap::Subcommand;
use model::Span;

/// What helps to find out why something waits.
#[derive(Debug, Subcommand)]
pub(crate) enum DebugCommand {
    /// Show commands that have no answer yet, and where each of them waits
    #[command(after_help = "It looks twice: a command that is there both times has waited so long at least.

Example:
  blockyard debug tasks
  blockyard debug tasks --older 5s")]
    Tasks {
        /// Only those that have waited so long at least [default: all that are there]
        #[arg(long, value_name = "SPAN")]
        older: Option<Span>,
    },
}
