//! `blockyard auth …`, and the options of whoever has something to prove.

use clap::{Args, Subcommand};
use model::{ChapAlgorithm, Demand};
use std::path::PathBuf;

/// What can be done about authentication.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Show what logins have to prove, whichever host asks
    #[command(after_help = "Example:\n  blockyard auth show")]
    Show,
    /// Forbid weak hash functions of CHAP: md5 allows all, sha-256 forbids MD5 and SHA-1
    #[command(
        after_help = "The strongest function that both sides know is taken in any case. A host that knows none that is allowed is
refused at its next login; Windows and older Linux know MD5 alone.

Example:
  blockyard auth weakest sha-256"
    )]
    Weakest {
        /// md5, sha-1, sha-256 or sha3-256
        algorithm: ChapAlgorithm,
    },
    /// Say what discovery sessions prove: something of their own, nothing, or what their host proves
    #[command(
        after_help = "Whoever discovers must have the name of a host's initiator in any case, and hears only of what that host sees.

Example:
  blockyard auth discovery --chap-secret-file /root/discovery.secret --mutual-secret-file /root/ours.secret
  blockyard auth discovery --as-host"
    )]
    Discovery {
        #[command(flatten)]
        chap: ChapOptions,
        /// We do not prove anything
        #[arg(long, conflicts_with = "mutual_secret_file")]
        no_mutual: bool,
        /// What their host proves for other sessions
        #[arg(long, conflicts_with_all = ["open", "chap_secret_file", "mutual_secret_file"])]
        as_host: bool,
        /// Nothing
        #[arg(long, conflicts_with_all = ["chap_secret_file", "mutual_secret_file"])]
        open: bool,
    },
}

/// What each side proves.
#[derive(Debug, Args)]
pub(crate) struct ChapOptions {
    /// The CHAP name it must prove [default: its own name]
    #[arg(long, value_name = "NAME")]
    pub chap_user: Option<String>,
    /// The file of the CHAP secret it must prove
    #[arg(long, value_name = "FILE")]
    pub chap_secret_file: Option<PathBuf>,
    /// Whether that is required, or offered [default: required]
    #[arg(long, value_name = "WHETHER")]
    pub chap: Option<Demand>,
    /// The CHAP name we prove [default: the node's name]
    #[arg(long, value_name = "NAME")]
    pub mutual_user: Option<String>,
    /// The file of the CHAP secret we prove
    #[arg(long, value_name = "FILE")]
    pub mutual_secret_file: Option<PathBuf>,
    /// Whether it is required to ask for that, or we offer it [default: offered]
    #[arg(long, value_name = "WHETHER")]
    pub mutual: Option<Demand>,
    /// The files hold 0x hexadecimal or 0b base64 constants, not the bytes of the secrets themselves
    #[arg(long)]
    pub encoded: bool,
}
