//! Arguments of `blockyard support`.

use clap::Subcommand;
use std::path::PathBuf;

/// Actions for support cases.
#[derive(Debug, Subcommand)]
pub(crate) enum SupportCommand {
    /// Create a support bundle: one file with everything needed to analyze the array, without secrets
    #[command(
        after_help = "A tar file with the output of other commands: reports, events, metrics, the last lines of the \
             daemon log, doctor findings and system information.
It contains names of hosts, initiators and addresses, but no secrets and no data.

Example:
  blockyard support bundle
  blockyard support bundle --to array1.tar"
    )]
    Bundle {
        /// The new file, or - for standard output [default: blockyard-NODE-TIME.tar]
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}
