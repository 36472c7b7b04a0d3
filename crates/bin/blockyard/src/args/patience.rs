//! Timeout of commands that wait for an operation.

use clap::Args;
use model::Span;

/// Timeout of `--wait`.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct PatienceOptions {
    /// With --wait, exit with code 8 after this time; the operation continues
    #[arg(long, value_name = "SPAN", requires = "wait")]
    pub timeout: Option<Span>,
}
