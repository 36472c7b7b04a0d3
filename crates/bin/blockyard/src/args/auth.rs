//! Arguments of `blockyard auth …`, and the CHAP options of hosts and of discovery.

use clap::{Args, Subcommand};
use model::{ChapAlgorithm, Demand};
use std::path::PathBuf;

/// Actions on the authentication settings of the array.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Show the authentication settings that apply to all hosts
    #[command(after_help = "Example:\n  blockyard auth show")]
    Show,
    /// Set the weakest CHAP hash function that is allowed: md5 allows all, sha-256 forbids MD5 and SHA-1
    #[command(
        after_help = "The strongest function that both sides support is always used. A host that supports none of \
             the allowed functions is
denied at its next login; Windows and older Linux support MD5 only.

Example:
  blockyard auth weakest sha-256"
    )]
    Weakest {
        /// Weakest hash function: md5, sha-1, sha-256 or sha3-256
        algorithm: ChapAlgorithm,
    },
    /// Set the authentication of discovery sessions: own credentials, none, or those of the host
    #[command(after_help = "A discovery session always needs the initiator name of a known host and lists only the \
             targets mapped to that host.

Example:
  blockyard auth discovery --chap-secret-file /root/discovery.secret --mutual-secret-file /root/ours.secret
  blockyard auth discovery --as-host")]
    Discovery {
        #[command(flatten)]
        chap: ChapOptions,
        /// Disable mutual CHAP
        #[arg(long, conflicts_with = "mutual_secret_file")]
        no_mutual: bool,
        /// Require the credentials that the host uses for its other sessions
        #[arg(long, conflicts_with_all = ["open", "chap_secret_file", "mutual_secret_file"])]
        as_host: bool,
        /// Require no authentication
        #[arg(long, conflicts_with_all = ["chap_secret_file", "mutual_secret_file"])]
        open: bool,
    },
}

/// CHAP credentials of both sides.
#[derive(Debug, Args)]
pub(crate) struct ChapOptions {
    /// Set the CHAP name of the initiator [default: its own name]
    #[arg(long, value_name = "NAME")]
    pub chap_user: Option<String>,
    /// File with the CHAP secret of the initiator
    #[arg(long, value_name = "FILE")]
    pub chap_secret_file: Option<PathBuf>,
    /// Set whether CHAP is required or offered [default: required]
    #[arg(long, value_name = "WHETHER")]
    pub chap: Option<Demand>,
    /// Set the CHAP name of this node in mutual CHAP [default: the node's name]
    #[arg(long, value_name = "NAME")]
    pub mutual_user: Option<String>,
    /// File with the CHAP secret of this node (mutual CHAP)
    #[arg(long, value_name = "FILE")]
    pub mutual_secret_file: Option<PathBuf>,
    /// Set whether initiators are required to request mutual CHAP, or it is only offered [default: offered]
    #[arg(long, value_name = "WHETHER")]
    pub mutual: Option<Demand>,
    /// Read secrets from the files as 0x hexadecimal or 0b base64 constants, not as the bytes themselves
    #[arg(long)]
    pub encoded: bool,
}
