//! For how long a command waits that waits for the end of something.

use clap::Args;
use model::Span;

/// For how long to wait.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct PatienceOptions {
    /// With --wait: end with exit code 8 when it has not ended after so long; it goes on all the same
    #[arg(long, value_name = "SPAN", requires = "wait")]
    pub timeout: Option<Span>,
}
