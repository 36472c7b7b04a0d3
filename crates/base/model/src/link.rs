//! Network addresses of this machine and their interfaces.

use crate::Network;
use std::net::IpAddr;

/// Network address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// IP address.
    pub address: IpAddr,
    /// Prefix length of the network in bits.
    pub prefix: u8,
    /// Name of the interface.
    pub interface: String,
    /// True if the interface is up and has a carrier.
    pub is_up: bool,
    /// MTU of the interface in bytes; zero if unknown.
    pub mtu_bytes: u32,
}

impl LocalAddress {
    /// Returns the network of the address.
    #[must_use]
    pub fn network(&self) -> Option<Network> {
        Network::new(self.address, self.prefix)
    }
}
