//! `blockyard host …`, `blockyard group …` and `blockyard target …`

use super::{ChapOptions, ListOptions};
use clap::Subcommand;
use model::{Iqn, Name, Network, VolumeName};

/// What can be done with hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// List all hosts
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard host list")]
    List(ListOptions),
    /// Show a host: who it is, what it proves, what it sees, where it is logged in
    #[command(after_help = "Example:\n  blockyard host show web")]
    Show {
        /// Which host
        name: Name,
    },
    /// Know a host: its initiators, and what it must prove
    #[command(
        after_help = "Secrets never stand on the command line: they are read from a file, from standard input (-), or
from BLOCKYARD_CHAP_SECRET and BLOCKYARD_MUTUAL_SECRET. They may be any 12 to 255 bytes; one line break at the end is not
part of them. With --encoded they are written as 0x… or 0b….

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
        #[command(flatten)]
        chap: ChapOptions,
        /// Add it though sessions of its initiators, which were let in as another host, lose access
        #[arg(long)]
        force: bool,
    },
    /// Change a host: its initiators, where it may come from, what it must prove
    #[command(
        after_help = "Sessions of an initiator that is taken away end, and so do those from an address that is not allowed any more: without
--force that is refused with the list of them. What must be proven is asked at the next login.

Example:
  blockyard host change web --add-initiator iqn.1993-08.org.debian:01:def456
  blockyard host change web --add-address 10.0.1.7
  blockyard host change web --address 10.0.0.0/24 --chap-secret-file /root/web.secret
  blockyard host change web --mutual required
  blockyard host change web --anywhere --no-chap"
    )]
    Change {
        /// Which
        name: Name,
        /// An initiator that is its own, too; may be repeated
        #[arg(long = "add-initiator", value_name = "IQN")]
        add_initiators: Vec<Iqn>,
        /// An initiator that is its own no more; may be repeated
        #[arg(long = "remove-initiator", value_name = "IQN")]
        remove_initiators: Vec<Iqn>,
        /// Where it may come from instead, an address or a network; may be repeated
        #[arg(long = "address", value_name = "ADDRESS", conflicts_with = "anywhere")]
        networks: Vec<Network>,
        /// Where it may come from, too; may be repeated
        #[arg(long = "add-address", value_name = "ADDRESS", conflicts_with_all = ["anywhere", "networks"])]
        add_networks: Vec<Network>,
        /// Where it may come from no more; may be repeated
        #[arg(long = "remove-address", value_name = "ADDRESS", conflicts_with_all = ["anywhere", "networks"])]
        remove_networks: Vec<Network>,
        /// It may come from anywhere
        #[arg(long)]
        anywhere: bool,
        #[command(flatten)]
        chap: ChapOptions,
        /// It need not prove anything, nor do we
        #[arg(long, conflicts_with_all = ["chap_secret_file", "mutual_secret_file"])]
        no_chap: bool,
        /// We do not prove anything
        #[arg(long, conflicts_with = "mutual_secret_file")]
        no_mutual: bool,
        /// Change it though sessions end or lose access
        #[arg(long)]
        force: bool,
    },
    /// List who was not let in lately, why, and what would let it in
    #[command(
        after_help = "An initiator that comes in is taken off the list. The list is of this start of the daemon; blockyard event list keeps\nwhat was before.\n\nExample:\n  blockyard host refused -o table"
    )]
    Refused(ListOptions),
    /// Say whether a host sees a volume and can use it, and every reason for it or against it
    #[command(
        after_help = "Exit code 1 when it does not, or cannot use it.\n\nExample:\n  blockyard host explain web tank/vm1"
    )]
    Explain {
        /// Which host
        host: Name,
        /// Which volume
        volume: VolumeName,
    },
    /// Forget the LUN numbers that a host had for volumes, so that other volumes may get them
    #[command(
        after_help = "A LUN number that a host had for one volume is not given to another by itself: the host may still have it open, and would
write into the other volume. Forget them when the host has logged out of the target, or has scanned it again. The numbers
of its groups are forgotten with blockyard group forget-luns, those of all hosts with the name everyone.

Example:
  blockyard host show web
  blockyard host forget-luns web"
    )]
    ForgetLuns {
        /// Which host, or everyone
        name: Name,
    },
    /// Remove a host, and forget the LUN numbers that it had
    #[command(
        after_help = "Refused while volumes are presented to it or it is in a group, with the list of its sessions.\n\nExample:\n  blockyard host remove web"
    )]
    Remove {
        /// Which
        name: Name,
        /// Remove it with its presentations and group memberships, though sessions end
        #[arg(long)]
        force: bool,
    },
}

/// What can be done with groups of hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List all groups of hosts
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard group list")]
    List(ListOptions),
    /// Make a group of hosts; what is presented to it, all of them see
    #[command(after_help = "Example:\n  blockyard group add cluster web db\n  blockyard present tank/shared cluster")]
    Add {
        /// What to call it
        name: Name,
        /// Its hosts
        hosts: Vec<Name>,
    },
    /// Let hosts see what the group sees
    #[command(after_help = "Example:\n  blockyard group join cluster mail")]
    Join {
        /// Which
        name: Name,
        /// Who comes
        #[arg(required = true)]
        hosts: Vec<Name>,
    },
    /// Let hosts see what the group sees no more
    #[command(after_help = "Example:\n  blockyard group leave cluster db")]
    Leave {
        /// Which
        name: Name,
        /// Who goes
        #[arg(required = true)]
        hosts: Vec<Name>,
        /// Let them go though sessions lose access
        #[arg(long)]
        force: bool,
    },
    /// Forget the LUN numbers that a group had for volumes, so that other volumes may get them
    #[command(after_help = "See blockyard host forget-luns --help.\n\nExample:\n  blockyard group forget-luns cluster")]
    ForgetLuns {
        /// Which
        name: Name,
    },
    /// Remove a group; its hosts stay
    #[command(after_help = "Refused while volumes are presented to it.\n\nExample:\n  blockyard group remove cluster")]
    Remove {
        /// Which
        name: Name,
        /// Remove it with its presentations, though sessions lose access
        #[arg(long)]
        force: bool,
    },
}

/// What can be done with targets.
#[derive(Debug, Subcommand)]
pub(crate) enum TargetCommand {
    /// List all targets
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard target list")]
    List(ListOptions),
    /// Serve another target
    #[command(after_help = "Example:\n  blockyard target add fast")]
    Add {
        /// What to call it
        name: Name,
        /// Its iSCSI name [default: made from the node's name and this one]
        #[arg(long, value_name = "IQN")]
        iqn: Option<Iqn>,
    },
    /// Remove a target
    #[command(
        after_help = "Refused while volumes are presented through it. Hosts that know its iSCSI name keep their LUN numbers for when it is\nadded again.\n\nExample:\n  blockyard target remove fast"
    )]
    Remove {
        /// Which
        name: Name,
        /// Remove it with its presentations, though sessions end
        #[arg(long)]
        force: bool,
    },
}
