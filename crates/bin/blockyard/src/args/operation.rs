//! Arguments of `blockyard operation …`.

use super::{ListOptions, PatienceOptions};
use clap::Subcommand;
use model::OperationId;

/// Actions on long-running operations.
#[derive(Debug, Subcommand)]
pub(crate) enum OperationCommand {
    /// List running operations: rebuilds, scrubs, copies and others, regardless of their origin
    #[command(after_help = "Example:\n  blockyard operation list")]
    List(ListOptions),
    /// Show one operation, or wait until it has finished
    #[command(
        after_help = "Example:\n  blockyard operation show scrub:tank\n  blockyard operation show copy:tank/vm2 --wait"
    )]
    Show {
        /// Identifier, as listed by blockyard operation list
        id: OperationId,
        /// Return only when the operation has finished
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// Cancel an operation, where possible
    #[command(after_help = "Example:\n  blockyard operation cancel scrub:tank")]
    Cancel {
        /// Identifier, as listed by blockyard operation list
        id: OperationId,
    },
}
