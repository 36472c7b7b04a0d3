//! Link state of the network interfaces below the portals.

use model::{LocalAddress, Network};
use std::net::IpAddr;

/// Addresses of this machine with their link state; empty when the operating system does not report them.
#[derive(Clone, Debug, Default)]
pub struct Links(pub Vec<LocalAddress>);

/// Reason why an address of this machine is unreachable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLink {
    /// Interface is down or has no carrier.
    Down {
        /// Name of the interface.
        interface: String,
    },
    /// Address is not assigned to any interface.
    Gone,
}

impl Links {
    /// Returns the reason why hosts cannot reach `address`. `None` when they can, or when the link state is unknown.
    #[must_use]
    pub fn missing_at(&self, address: IpAddr) -> Option<NoLink> {
        let address = address.to_canonical();
        // Wildcard and loopback addresses have no link of their own.
        if self.0.is_empty() || address.is_unspecified() || address.is_loopback() {
            return None;
        }
        match self.at(address) {
            Some(local) if local.is_up => None,
            Some(local) => Some(NoLink::Down { interface: local.interface.clone() }),
            None => Some(NoLink::Gone),
        }
    }

    /// Returns the link state of a local address. If several interfaces have the address, one that is up is preferred.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Option<&LocalAddress> {
        let ours = || self.0.iter().filter(|local| local.address == address.to_canonical());
        // A redundant address on a second interface keeps the portal reachable.
        ours().find(|local| local.is_up).or_else(|| ours().next())
    }

    /// True when both addresses are in the same directly connected network.
    #[must_use]
    pub fn are_near(&self, one: IpAddr, other: IpAddr) -> bool {
        let mut networks = self.0.iter().filter_map(LocalAddress::network);
        networks.any(|network: Network| network.contains(one) && network.contains(other))
    }
}

impl std::fmt::Display for NoLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Down { interface } => write!(f, "{interface} is down or its cable is disconnected"),
            Self::Gone => f.write_str("no interface of this machine has its address"),
        }
    }
}
