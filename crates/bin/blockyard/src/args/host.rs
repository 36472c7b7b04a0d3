//! Arguments of `blockyard host …`, `blockyard group …` and `blockyard target …`.

use super::{ChapOptions, ListOptions};
use clap::Subcommand;
use model::{Iqn, Name, Network, VolumeName};

/// Actions on hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum HostCommand {
    /// List all hosts
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard host list")]
    List(ListOptions),
    /// Show a host: initiators, authentication, mapped volumes, sessions
    #[command(after_help = "Example:\n  blockyard host show web")]
    Show {
        /// Name of the host
        name: Name,
    },
    /// Add a host: initiator names, CHAP credentials, allowed networks
    #[command(
        after_help = "Secrets are never given on the command line: they are read from a file, from standard input \
             (-), or
from BLOCKYARD_CHAP_SECRET and BLOCKYARD_MUTUAL_SECRET. A secret has 12 to 255 bytes; one line break at the end is not
part of it. With --encoded it is written as 0x… or 0b….

Example:
  blockyard host add web --initiator iqn.1993-08.org.debian:01:abc123
  blockyard host add db --initiator iqn.1991-05.com.microsoft:db --address 192.168.1.0/24 \\
      --chap-secret-file /root/db.secret --mutual-secret-file /root/ours.secret
  blockyard host add lab --any"
    )]
    Add {
        /// Name of the host
        name: Name,
        /// iSCSI name of an initiator; may be repeated
        #[arg(long = "initiator", value_name = "IQN", required_unless_present = "any")]
        initiators: Vec<Iqn>,
        /// Match every initiator that no other host names
        #[arg(long, conflicts_with = "initiators")]
        any: bool,
        /// Allowed address or network; may be repeated [default: any]
        #[arg(long = "address", value_name = "ADDRESS")]
        networks: Vec<Network>,
        #[command(flatten)]
        chap: ChapOptions,
        /// Add the host even if sessions of its initiators, logged in as another host, lose access
        #[arg(long)]
        force: bool,
    },
    /// Change a host: initiator names, allowed networks, CHAP credentials
    #[command(
        after_help = "Sessions of a removed initiator, and sessions from an address that is no longer allowed, are \
             closed. Without
--force the change is refused and lists these sessions. New CHAP settings apply from the next login.

Example:
  blockyard host change web --add-initiator iqn.1993-08.org.debian:01:def456
  blockyard host change web --add-address 10.0.1.7
  blockyard host change web --address 10.0.0.0/24 --chap-secret-file /root/web.secret
  blockyard host change web --mutual required
  blockyard host change web --anywhere --no-chap"
    )]
    Change {
        /// Name of the host
        name: Name,
        /// Add an initiator; may be repeated
        #[arg(long = "add-initiator", value_name = "IQN")]
        add_initiators: Vec<Iqn>,
        /// Remove an initiator; may be repeated
        #[arg(long = "remove-initiator", value_name = "IQN")]
        remove_initiators: Vec<Iqn>,
        /// Replace the allowed addresses with this address or network; may be repeated
        #[arg(long = "address", value_name = "ADDRESS", conflicts_with = "anywhere")]
        networks: Vec<Network>,
        /// Add an allowed address or network; may be repeated
        #[arg(long = "add-address", value_name = "ADDRESS", conflicts_with_all = ["anywhere", "networks"])]
        add_networks: Vec<Network>,
        /// Remove an allowed address or network; may be repeated
        #[arg(long = "remove-address", value_name = "ADDRESS", conflicts_with_all = ["anywhere", "networks"])]
        remove_networks: Vec<Network>,
        /// Allow logins from any address
        #[arg(long)]
        anywhere: bool,
        #[command(flatten)]
        chap: ChapOptions,
        /// Disable authentication in both directions
        #[arg(long, conflicts_with_all = ["chap_secret_file", "mutual_secret_file"])]
        no_chap: bool,
        /// Disable mutual CHAP
        #[arg(long, conflicts_with = "mutual_secret_file")]
        no_mutual: bool,
        /// Change the host even if sessions end or lose access
        #[arg(long)]
        force: bool,
    },
    /// List denied logins with the reason and the fix
    #[command(after_help = "An entry is removed when its initiator logs in. The list survives a restart of the \
             daemon.\n\nExample:\n  blockyard host denied -o table")]
    #[command(name = "denied", alias = "refused")]
    Refused(ListOptions),
    /// Explain whether a volume is mapped to a host and usable by it, with every reason
    #[command(after_help = "Exit code 1 if the volume is not mapped to the host or the host cannot use \
             it.\n\nExample:\n  blockyard host explain web tank/vm1")]
    Explain {
        /// Name of the host
        host: Name,
        /// Name of the volume
        volume: VolumeName,
    },
    /// Release the LUN numbers that a host had for volumes, so that other volumes may use them
    #[command(
        after_help = "A LUN number that a host used for one volume is not reused for another: the host may still \
             have it open and would
write to the wrong volume. Release the numbers after the host has logged out of the target or has rescanned it. Release
those of a host group with blockyard group forget-luns, those of all hosts with the name everyone.

Example:
  blockyard host show web
  blockyard host forget-luns web"
    )]
    ForgetLuns {
        /// Name of the host, or everyone
        name: Name,
    },
    /// Remove a host and release its LUN numbers
    #[command(
        after_help = "Refused while volumes are presented to it or it is in a group, with the list of its sessions.\n\nExample:\n  blockyard host remove web"
    )]
    Remove {
        /// Name of the host
        name: Name,
        /// Remove the host with its presentations and group memberships, even if sessions end
        #[arg(long)]
        force: bool,
    },
}

/// Actions on groups of hosts.
#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// List all groups of hosts
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard group list")]
    List(ListOptions),
    /// Create a group of hosts; a volume presented to it is mapped to all of them
    #[command(after_help = "Example:\n  blockyard group add cluster web db\n  blockyard present tank/shared cluster")]
    Add {
        /// Name of the group
        name: Name,
        /// Hosts of the group
        hosts: Vec<Name>,
    },
    /// Add hosts to a group: volumes presented to the group are mapped to them
    #[command(after_help = "Example:\n  blockyard group join cluster mail")]
    Join {
        /// Name of the group
        name: Name,
        /// Hosts to add
        #[arg(required = true)]
        hosts: Vec<Name>,
    },
    /// Remove hosts from a group: volumes presented to the group are unmapped from them
    #[command(after_help = "Example:\n  blockyard group leave cluster db")]
    Leave {
        /// Name of the group
        name: Name,
        /// Hosts to remove
        #[arg(required = true)]
        hosts: Vec<Name>,
        /// Remove the hosts even if sessions lose access
        #[arg(long)]
        force: bool,
    },
    /// Release the LUN numbers that a group had for volumes, so that other volumes may use them
    #[command(after_help = "See blockyard host forget-luns --help.\n\nExample:\n  blockyard group forget-luns cluster")]
    ForgetLuns {
        /// Name of the group
        name: Name,
    },
    /// Remove a group; its hosts stay
    #[command(after_help = "Refused while volumes are presented to it.\n\nExample:\n  blockyard group remove cluster")]
    Remove {
        /// Name of the group
        name: Name,
        /// Remove the group with its presentations, even if sessions lose access
        #[arg(long)]
        force: bool,
    },
}

/// Actions on targets.
#[derive(Debug, Subcommand)]
pub(crate) enum TargetCommand {
    /// List all targets
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard target list")]
    List(ListOptions),
    /// Add a target
    #[command(after_help = "Example:\n  blockyard target add fast")]
    Add {
        /// Name of the target
        name: Name,
        /// Set the iSCSI name of the target [default: made from the node's name and the target's name]
        #[arg(long, value_name = "IQN")]
        iqn: Option<Iqn>,
    },
    /// Remove a target
    #[command(after_help = "Refused while volumes are presented through it. The LUN numbers of its hosts are kept in \
             case the target is added\nagain.\n\nExample:\n  blockyard target remove fast")]
    Remove {
        /// Name of the target
        name: Name,
        /// Remove the target with its presentations, even if sessions end
        #[arg(long)]
        force: bool,
    },
}
