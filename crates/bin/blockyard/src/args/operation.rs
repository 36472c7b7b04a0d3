//! `blockyard operation …`

use super::{ListOptions, PatienceOptions};
use clap::Subcommand;
use model::OperationId;

/// What can be done about long work.
#[derive(Debug, Subcommand)]
pub(crate) enum OperationCommand {
    /// List what is under way: rebuilds, scrubs, copies and the like, whoever began them
    #[command(after_help = "Example:\n  blockyard operation list")]
    List(ListOptions),
    /// Show one operation, or wait for its end
    #[command(
        after_help = "Example:\n  blockyard operation show scrub:tank\n  blockyard operation show copy:tank/vm2 --wait"
    )]
    Show {
        /// Which, see blockyard operation list
        id: OperationId,
        /// Return when it has ended
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// End an operation before its end, where that can be
    #[command(after_help = "Example:\n  blockyard operation cancel scrub:tank")]
    Cancel {
        /// Which, see blockyard operation list
        id: OperationId,
    },
}
