//! Portals as hosts write them.

use model::ISCSI_PORT;

/// A portal as hosts write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Portal {
    /// An IP address, in brackets where it is one of IPv6, or a DNS name.
    pub address: String,
    pub port: u16,
    /// It stands for every address of this node.
    pub wildcard: bool,
}

impl Portal {
    /// One at an address that is not known here.
    pub(super) fn anywhere() -> Self {
        Self { address: "ADDRESS".to_owned(), port: ISCSI_PORT, wildcard: true }
    }

    /// Those of a target.
    pub(super) fn all(addresses: &[&str]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for portal in addresses.iter().map(|address| Self::of(address)) {
            // Every address in IPv4 and every one in IPv6 are one to a host.
            if !all.contains(&portal) {
                all.push(portal);
            }
        }
        all
    }

    /// One that the array names `HOST:PORT`.
    fn of(text: &str) -> Self {
        let (address, port) = text.rsplit_once(':').unwrap_or((text, ""));
        let port = port.parse().unwrap_or(ISCSI_PORT);
        if ["0.0.0.0", "[::]"].contains(&address) {
            return Self { port, ..Self::anywhere() };
        }
        Self { address: address.to_owned(), port, wildcard: false }
    }

    /// `ADDRESS:PORT`.
    pub(super) fn with_port(&self) -> String {
        format!("{}:{}", self.address, self.port)
    }

    /// The address without brackets.
    pub(super) fn bare(&self) -> &str {
        self.address.trim_start_matches('[').trim_end_matches(']')
    }
}
