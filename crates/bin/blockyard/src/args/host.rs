//! `blockyard host …` and `blockyard target …`

use clap::Subcommand;
use model::{Iqn, Name, Network};
use std::path::PathBuf;

/// What can be done with hosts.
#[derive(Debug, Subcommand)]
pub enum HostCommand {
    /// List all hosts
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard host list")]
    List,
    /// Know a host: its initiators, and what it must prove
    #[command(
        after_help = "Secrets never stand on the command line: they are read from a file, from standard input (-), or
from BLOCKYARD_CHAP_SECRET and BLOCKYARD_MUTUAL_SECRET.

Example:
  blockyard host add web --initiator iqn.1993-08.org.debian:01:abc123
  blockyard host add db --initiator iqn.1991-05.com.microsoft:db --address 192.168.1.0/24 \\
      --chap-secret-file /root/db.secret --mutual-secret-file /root/ours.secret
  blockyard host add lab --any"
    )]
    Add {
        /// What to call it
        name: Name,
        /// Its initiator's iSCSI name; may be repeated
        #[arg(long = "initiator", value_name = "IQN", required_unless_present = "any")]
        initiators: Vec<Iqn>,
        /// It stands for every initiator that no other host names
        #[arg(long, conflicts_with = "initiators")]
        any: bool,
        /// Where it may come from, an address or a network; may be repeated
        #[arg(long = "address", value_name = "ADDRESS")]
        networks: Vec<Network>,
        /// The CHAP name it must prove [default: the host's name]
        #[arg(long, value_name = "NAME")]
        chap_user: Option<String>,
        /// The file of the CHAP secret it must prove
        #[arg(long, value_name = "FILE")]
        chap_secret_file: Option<PathBuf>,
        /// The CHAP name we prove [default: the node's name]
        #[arg(long, value_name = "NAME")]
        mutual_user: Option<String>,
        /// The file of the CHAP secret we prove
        #[arg(long, value_name = "FILE")]
        mutual_secret_file: Option<PathBuf>,
    },
    /// Forget a host that sees nothing
    #[command(after_help = "Example:\n  blockyard host remove web")]
    Remove {
        /// Which
        name: Name,
    },
}

/// What can be done with targets.
#[derive(Debug, Subcommand)]
pub enum TargetCommand {
    /// List all targets
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard target list")]
    List,
    /// Serve another target
    #[command(after_help = "Example:\n  blockyard target add fast")]
    Add {
        /// What to call it
        name: Name,
        /// Its iSCSI name [default: made from the node's name and this one]
        #[arg(long, value_name = "IQN")]
        iqn: Option<Iqn>,
    },
    /// Serve a target no more
    #[command(after_help = "Example:\n  blockyard target remove fast")]
    Remove {
        /// Which
        name: Name,
    },
}
