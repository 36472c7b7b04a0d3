//! IP networks, used to restrict the addresses of hosts.

use crate::number::unsigned;
use crate::{ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// IP address, or network in CIDR notation: `192.168.1.10`, `10.0.0.0/8`, `fd00::/64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("examples" = ["192.168.1.10", "10.0.0.0/8", "fd00::/64"], "pattern" = "^[0-9A-Fa-f:.]{2,45}(/[0-9]{1,3})?$"))]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Length of the prefix `::ffff:0:0/96` that all IPv4-mapped addresses have. *Source*: RFC 4291 §2.5.5.2.
const MAPPED_PREFIX: u8 = 96;

impl Network {
    /// Returns the network of `address` with the given prefix length; `None` if the length exceeds that of the address.
    /// A network of IPv4-mapped IPv6 addresses (`::ffff:10.0.0.0/104`) becomes the IPv4 network (`10.0.0.0/8`).
    #[must_use]
    pub fn new(address: IpAddr, prefix: u8) -> Option<Self> {
        // `contains` compares peers in their IPv4 form, so a network in the mapped form would never match one.
        // Below 96 bits the network has addresses outside of the mapped range and stays an IPv6 network.
        let (address, prefix) = match (address.to_canonical(), prefix.checked_sub(MAPPED_PREFIX)) {
            (mapped @ IpAddr::V4(_), Some(rest)) if address.is_ipv6() => (mapped, rest),
            _ => (address, prefix),
        };
        (prefix <= longest(address)).then_some(Self { address, prefix })
    }

    /// Returns true if `address` is in this network. An IPv4-mapped IPv6 address (`::ffff:…`) counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                // 64 bits, because a shift of a `u32` by 32 (prefix 0) would overflow.
                let host_bits = 32 - u32::from(self.prefix);
                (u64::from(ours.to_bits()) >> host_bits) == (u64::from(theirs.to_bits()) >> host_bits)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let host_bits = 128 - u32::from(self.prefix);
                // Prefix 0 shifts by 128, which gives `None` on both sides: equal.
                ours.to_bits().checked_shr(host_bits) == theirs.to_bits().checked_shr(host_bits)
            }
            // The families never match: `::/0` does not include IPv4.
            _ => false,
        }
    }
}

/// Returns the length of the address in bits.
fn longest(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl FromStr for Network {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        // Host bits are kept, so that the network is shown as it was written; `contains` ignores them.
        let parsed = address.parse::<IpAddr>().ok().and_then(|address| {
            let prefix = prefix.map_or(Some(longest(address)), unsigned)?;
            Self::new(address, prefix)
        });
        parsed.ok_or_else(|| {
            Refusal::new(
                code::ADDRESS_INVALID,
                format!("{} is neither an address nor a network", quoted(text)),
                "write 192.168.1.10, 192.168.1.0/24 or fd00::/64",
            )
        })
    }
}

impl TryFrom<String> for Network {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Network> for String {
    fn from(network: Network) -> Self {
        network.to_string()
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, prefix } = self;
        if *prefix == longest(*address) { write!(f, "{address}") } else { write!(f, "{address}/{prefix}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, address: &str) -> bool {
        network.parse::<Network>().expect(network).contains(address.parse().expect(address))
    }

    #[test]
    fn network_contains_its_own_addresses_only() {
        assert!(contains("192.168.1.10", "192.168.1.10"));
        assert!(!contains("192.168.1.10", "192.168.1.11"));
        assert!(contains("192.168.1.0/24", "192.168.1.255"));
        assert!(!contains("192.168.1.0/24", "192.168.2.0"));
        assert!(contains("0.0.0.0/0", "203.0.113.9"));
        assert!(contains("::/0", "fd00::1"));
        assert!(contains("fd00::/64", "fd00::ffff"));
        assert!(!contains("fd00::/64", "fd00:0:0:1::"));
        assert!(!contains("::/0", "10.0.0.1"));
        assert!(contains("10.0.0.0/8", "::ffff:10.1.2.3"));
    }

    #[test]
    fn network_of_mapped_addresses_is_the_ipv4_network() {
        for (mapped, plain) in [
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:192.168.1.10", "192.168.1.10"),
            ("::ffff:0.0.0.0/96", "0.0.0.0/0"),
        ] {
            let network: Network = mapped.parse().expect(mapped);
            assert_eq!((network.to_string().as_str(), Ok(network)), (plain, plain.parse::<Network>()));
        }
        assert!(contains("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(contains("::ffff:10.0.0.0/104", "::ffff:10.1.2.3"));
        assert!(!contains("::ffff:10.0.0.0/104", "11.0.0.1"));
    }

    #[test]
    fn network_refuses_nonsense() {
        for text in ["", "10.0.0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/+8", "fd00::/129", "host.example"] {
            assert_eq!(text.parse::<Network>().expect_err(text).code, code::ADDRESS_INVALID);
        }
    }
}
