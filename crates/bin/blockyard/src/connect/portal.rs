//! Addresses of portals in the notation of hosts.

use model::ISCSI_PORT;

/// Portal in the notation of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Portal {
    /// IP address, in brackets for IPv6, or DNS name.
    pub address: String,
    pub port: u16,
    /// Stands for any address of this node.
    pub wildcard: bool,
}

impl Portal {
    /// Returns the placeholder for an address that is not known here.
    pub(super) fn anywhere() -> Self {
        Self { address: "ADDRESS".to_owned(), port: ISCSI_PORT, wildcard: true }
    }

    /// Parses the portals of a target, each once.
    pub(super) fn all(addresses: &[&str]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for portal in addresses.iter().map(|address| Self::of(address)) {
            // The unspecified addresses of IPv4 and IPv6 give the same placeholder.
            if !all.contains(&portal) {
                all.push(portal);
            }
        }
        all
    }

    /// Parses `HOST:PORT`.
    fn of(text: &str) -> Self {
        // From the right, since an IPv6 address contains colons.
        let (address, port) = text.rsplit_once(':').unwrap_or((text, ""));
        let port = port.parse().unwrap_or(ISCSI_PORT);
        if ["0.0.0.0", "[::]"].contains(&address) {
            return Self { port, ..Self::anywhere() };
        }
        Self { address: address.to_owned(), port, wildcard: false }
    }

    /// Formats `ADDRESS:PORT`.
    pub(super) fn with_port(&self) -> String {
        format!("{}:{}", self.address, self.port)
    }

    /// Returns the address without brackets.
    pub(super) fn bare(&self) -> &str {
        self.address.trim_start_matches('[').trim_end_matches(']')
    }
}
