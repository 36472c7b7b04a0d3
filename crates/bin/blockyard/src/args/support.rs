//! `blockyard support`.

use clap::Subcommand;
use std::path::PathBuf;

/// What helps those who help.
#[derive(Debug, Subcommand)]
pub(crate) enum SupportCommand {
    /// Write everything that somebody needs to understand the array into one file, without secrets
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
