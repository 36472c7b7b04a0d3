//! The addresses of this machine, and the links below them.

use crate::Network;
use std::net::IpAddr;

/// An address of this machine as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of its network's prefix.
    pub prefix: u8,
    /// The interface that has it.
    pub interface: String,
    /// True when the interface is up and has its carrier.
    pub is_up: bool,
    /// Bytes of the largest packet that the interface sends; zero when that is not known.
    pub mtu_bytes: u32,
}

impl LocalAddress {
    /// The network that the address is in.
    #[must_use]
    pub fn network(&self) -> Option<Network> {
        Network::new(self.address, self.prefix)
    }
}
