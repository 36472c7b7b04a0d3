//! Arguments of `blockyard support`.

use clap::Subcommand;
use std::path::PathBuf;

/// Actions for support cases.
#[derive(Debug, Subcommand)]
pub(crate) enum SupportCommand {
    /// Create a support bundle: one file with everything needed to analyze the array, without secrets
    #[command(
        after_help = "Everything is what other commands print, and can be read with tar: reports, events, metrics, the last lines of the daemon's log, what doctor says, and facts of the machine.
Names of hosts, initiators and addresses are in it; secrets and data are not.

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
