//! Portals as hosts write them.

use model::ISCSI_PORT;
use std::net::SocketAddr;

/// A portal as hosts write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// An IPv6 address is in brackets.
    pub address: String,
    pub port: u16,
    /// It stands for every address of this node.
    pub wildcard: bool,
}

impl Portal {
    /// One at an address that is not known here.
    pub fn anywhere() -> Self {
        Self { address: "ADDRESS".to_owned(), port: ISCSI_PORT, wildcard: true }
    }

    /// Those of a target.
    pub fn all(addresses: &[SocketAddr]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for portal in addresses.iter().map(Self::of) {
            // Every address in IPv4 and every one in IPv6 are one to a host.
            if !all.contains(&portal) {
                all.push(portal);
            }
        }
        all
    }

    fn of(address: &SocketAddr) -> Self {
        let bare = address.ip();
        if bare.is_unspecified() {
            return Self { port: address.port(), ..Self::anywhere() };
        }
        let text = if bare.is_ipv6() { format!("[{bare}]") } else { bare.to_string() };
        Self { address: text, port: address.port(), wildcard: false }
    }

    /// `ADDRESS:PORT`.
    pub fn with_port(&self) -> String {
        format!("{}:{}", self.address, self.port)
    }

    /// The address without brackets.
    pub fn bare(&self) -> &str {
        self.address.trim_start_matches('[').trim_end_matches(']')
    }
}
