//! Arguments of `blockyard portal …`.

use super::{ListOptions, setting};
use clap::Subcommand;
use model::{Balance, PortalAddress, PortalGroupTag};

/// Actions on portals.
#[derive(Debug, Subcommand)]
pub(crate) enum PortalCommand {
    /// List all portals
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard portal list --no-headers")]
    List(ListOptions),
    /// Add a portal: an address at which hosts log in
    #[command(after_help = "Example:
  blockyard portal add 10.0.1.1 role=data
  blockyard portal add 10.0.2.1:3261 role=data group=2 weight=10

Settings: see blockyard portal set --help.")]
    Add {
        /// Address of the portal [default port: 3260]
        address: PortalAddress,
        /// Settings and their values
        #[arg(value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Set the role, group, weight or advertised address of a portal; without settings, show them
    #[command(after_help = "Example:
  blockyard portal set 10.0.0.1 role=front
  blockyard portal set 10.0.1.1 role=data weight=10
  blockyard portal set 172.17.0.2 advertise=san.example.com:13260

Settings:
  role    plain: sessions stay on the portal they log in to
          front: listed in discovery; each session is redirected to a data portal
          data:  accepts sessions; not listed in discovery where a front portal is reachable
  group   the target portal group tag, 1 to 65535
  weight  share of sessions relative to other data portals, 1 to 1000
  advertise  ADDRESS[:PORT] that hosts connect to, if it differs from the listen address (NAT, containers): an IPv4
             or IPv6 address or a DNS name; used in SendTargets, redirects and iSNS; off removes it [default: off]")]
    Set {
        /// Address of the portal
        address: PortalAddress,
        /// Settings and their values
        #[arg(value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
        /// Change the portal even if sessions lose access
        #[arg(long)]
        force: bool,
    },
    /// Move the sessions of a portal to others, and deny logins until it is resumed
    #[command(after_help = "Hosts are asked to log in again, one path at a time, and are redirected to another portal.

Example:
  blockyard portal drain 10.0.1.1 && blockyard portal list")]
    Drain {
        /// Address of the portal
        address: PortalAddress,
    },
    /// Accept sessions at a drained portal again
    #[command(after_help = "Example:\n  blockyard portal resume 10.0.1.1")]
    Resume {
        /// Address of the portal
        address: PortalAddress,
    },
    /// Remove a portal that was added
    #[command(after_help = "Example:\n  blockyard portal remove 10.0.1.1")]
    Remove {
        /// Address of the portal
        address: PortalAddress,
        /// Close the sessions of hosts that are logged in there
        #[arg(long)]
        force: bool,
    },
    /// List the portal groups and their access states (ALUA)
    #[command(after_help = "Example:\n  blockyard portal groups")]
    Groups(ListOptions),
    /// Set the access state (ALUA) of volumes through the portals of a group; without settings, show it
    #[command(after_help = "Hosts that use ALUA (target port groups) choose their paths by it and are notified of \
             changes. A host may set
another state for a volume itself (SET TARGET PORT GROUPS), which lasts until it is set here again.

Example:
  blockyard portal group 2 access=non-optimized
  blockyard portal group 1 preferred=yes

Settings:
  access     optimized:      preferred path
             non-optimized:  usable, but hosts should prefer an optimized group
             standby:        volumes are visible, but reads and writes are refused
             unavailable:    volumes are reported as not accessible
             offline:        ports are out of service
  preferred  yes or no: preferred over groups with the same access")]
    Group {
        /// Target portal group tag
        tag: PortalGroupTag,
        /// Settings and their values
        #[arg(value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
        /// Change it even if sessions can no longer read or write
        #[arg(long)]
        force: bool,
    },
    /// Choose data portals by the fewest sessions or by the fewest bytes; without an argument, show the choice
    #[command(after_help = "Two rules come first: sessions of one host to one target go to different portals, and a \
             portal in the
network of the host is preferred.

Example:
  blockyard portal balance bytes")]
    Balance {
        /// Measure of load: sessions or bytes
        #[arg(value_name = "BY")]
        by: Option<Balance>,
    },
}
