//! The links below our portals, as this machine's addresses tell of them.

use model::{LocalAddress, Network};
use std::net::IpAddr;

/// The addresses of this machine; none while the system does not tell.
#[derive(Clone, Debug, Default)]
pub struct Links(pub Vec<LocalAddress>);

/// Why hosts cannot reach an address of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLink {
    /// Its interface is down, or has no carrier.
    Down {
        /// Which.
        interface: String,
    },
    /// No interface has it any more.
    Gone,
}

impl Links {
    /// Why hosts cannot reach us at `address`; nothing when they can, or when nobody knows.
    #[must_use]
    pub fn missing_at(&self, address: IpAddr) -> Option<NoLink> {
        let address = address.to_canonical();
        if self.0.is_empty() || address.is_unspecified() || address.is_loopback() {
            return None;
        }
        match self.at(address) {
            Some(local) if local.is_up => None,
            Some(local) => Some(NoLink::Down { interface: local.interface.clone() }),
            None => Some(NoLink::Gone),
        }
    }

    /// What is known of this address of ours. Where several interfaces have it, one that is up.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Option<&LocalAddress> {
        let ours = || self.0.iter().filter(|local| local.address == address.to_canonical());
        ours().find(|local| local.is_up).or_else(|| ours().next())
    }

    /// True when one network of ours holds both.
    #[must_use]
    pub fn are_near(&self, one: IpAddr, other: IpAddr) -> bool {
        let mut networks = self.0.iter().filter_map(LocalAddress::network);
        networks.any(|network: Network| network.contains(one) && network.contains(other))
    }
}

impl std::fmt::Display for NoLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Down { interface } => write!(f, "{interface} is down, or its cable is out"),
            Self::Gone => f.write_str("no interface of this machine has its address"),
        }
    }
}
