//! Advertised address of a portal, for hosts that reach it under another address than it listens on: behind NAT, or in
//! a container.
//!
//! Used wherever an address is given to hosts: SendTargets, login redirects, iSNS, and the output of commands that show
//! portals to hosts.

use crate::number::unsigned;
use crate::{ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Maximum lengths of a DNS name and of a label, in bytes (RFC 1035 §2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Address of a portal as hosts reach it: an IP address or a DNS name, and a port if it differs from the listening
/// port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("examples" = ["203.0.113.5", "203.0.113.5:13260", "[2001:db8::5]:3260", "san.example.com"]))]
pub struct Advertised {
    host: AdvertisedHost,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum AdvertisedHost {
    Ip(IpAddr),
    Name(String),
}

impl Advertised {
    /// Returns the address in the form that initiators use, `HOST:PORT` with brackets around an IPv6 address, for a
    /// portal that listens on `listens`.
    ///
    /// *Source*: RFC 7143 §13.8, TargetAddress.
    #[must_use]
    pub fn for_hosts(&self, listens: SocketAddr) -> String {
        // NAT without port translation keeps the port, so the listening port is the one that hosts reach.
        format!("{}:{}", self.host, self.port.unwrap_or(listens.port()))
    }

    /// Returns the IP address and port; `None` for a DNS name.
    #[must_use]
    pub fn socket_address(&self, listens: SocketAddr) -> Option<SocketAddr> {
        match self.host {
            AdvertisedHost::Ip(ip) => Some(SocketAddr::new(ip, self.port.unwrap_or(listens.port()))),
            // Not resolved here: the answer depends on the DNS server of each initiator.
            AdvertisedHost::Name(_) => None,
        }
    }
}

impl AdvertisedHost {
    fn parse(text: &str) -> Option<Self> {
        match text.parse::<IpAddr>() {
            // An IP address that is not reachable is rejected, never tried as a name.
            Ok(ip) => can_be_reached(ip).then_some(Self::Ip(ip)),
            // DNS names are compared without regard to case (RFC 4343), so one spelling is stored.
            Err(_) => is_dns_name(text).then(|| Self::Name(text.to_ascii_lowercase())),
        }
    }
}

/// Returns false for addresses that cannot be a destination, or that are ambiguous because they are valid per link.
fn can_be_reached(ip: IpAddr) -> bool {
    let is_local = match ip {
        // Loopback is permitted: an initiator can run on the same machine.
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    // TCP connects to unicast addresses only, and a link-local one would need a zone on the initiator.
    !is_local && !ip.is_unspecified() && !ip.is_multicast()
}

/// Returns true for labels of letters, digits and hyphens (RFC 1123 §2.1) whose last label is not a number: such a name
/// would be a mistyped address.
fn is_dns_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=LABEL_BYTES_MAX).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let ends_in_number = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|c| c.is_ascii_digit()));
    text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label) && !ends_in_number
}

impl FromStr for Advertised {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // A bare IPv6 address has colons itself, so it is tried before the text is split at the last colon.
        let (host, port) = if let Ok(bare) = text.parse::<Ipv6Addr>() {
            (bare.to_string(), None)
        } else {
            let (host, port) = match text.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            // An IPv6 address with brackets: the last colon is inside of them if no port follows.
            match (host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')), text.ends_with(']')) {
                (Some(inner), _) => (inner.to_owned(), port),
                (None, true) => (text.trim_start_matches('[').trim_end_matches(']').to_owned(), None),
                (None, false) => (host.to_owned(), port),
            }
        };
        // Two levels: no port is permitted, an invalid one is not. Port 0 is no destination.
        let port = port.map(|port| unsigned(port).filter(|&port: &u16| port > 0));
        match (AdvertisedHost::parse(&host), port) {
            (Some(host), None) => Ok(Self { host, port: None }),
            (Some(host), Some(Some(port))) => Ok(Self { host, port: Some(port) }),
            _ => Err(Refusal::new(
                code::ADDRESS_INVALID,
                format!("{} is not an address that hosts can reach", quoted(text)),
                "write 203.0.113.5, 203.0.113.5:13260, [2001:db8::5]:3260 or san.example.com",
            )),
        }
    }
}

impl TryFrom<String> for Advertised {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<Advertised> for String {
    fn from(advertised: Advertised) -> Self {
        advertised.to_string()
    }
}

impl fmt::Display for AdvertisedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // RFC 7143 §13.8 requires brackets around an IPv6 address.
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Ip(ip) => write!(f, "{ip}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            // The default is not written out: it follows the portal when that listens on another port.
            None => write!(f, "{}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advertised_address_is_an_ip_address_or_a_dns_name_with_or_without_a_port() {
        let listens: SocketAddr = "10.0.0.1:3260".parse().expect("an address");
        let told = |text: &str| text.parse::<Advertised>().ok().map(|one| (one.to_string(), one.for_hosts(listens)));
        let pair = |shown: &str, told: &str| Some((shown.to_owned(), told.to_owned()));
        assert_eq!(told("203.0.113.5"), pair("203.0.113.5", "203.0.113.5:3260"));
        assert_eq!(told("203.0.113.5:13260"), pair("203.0.113.5:13260", "203.0.113.5:13260"));
        assert_eq!(told("2001:db8::5"), pair("[2001:db8::5]", "[2001:db8::5]:3260"));
        assert_eq!(told("[2001:db8::5]"), pair("[2001:db8::5]", "[2001:db8::5]:3260"));
        assert_eq!(told("[2001:db8::5]:99"), pair("[2001:db8::5]:99", "[2001:db8::5]:99"));
        assert_eq!(told("SAN.example.com"), pair("san.example.com", "san.example.com:3260"));
        assert_eq!(told("san:99"), pair("san:99", "san:99"));
        for text in [
            "",
            ":3260",
            "10.0.0",
            "10.0.0.300",
            "0.0.0.0",
            "[::]:3260",
            "224.0.0.1",
            "fe80::1",
            "169.254.1.1",
            "san:0",
            "san:70000",
            "san:+99",
            "san:",
            "-san",
            "san..example",
            "a b",
            "san/x",
            "[san]:1]",
            "fd00::1:",
            "san,1",
        ] {
            assert_eq!(told(text), None, "{text}");
        }
        let long = format!("{}.com", "a".repeat(64));
        assert_eq!(told(&long), None);
        for text in ["203.0.113.5:1", "[2001:db8::5]", "san.example.com:7"] {
            let one: Advertised = text.parse().expect("an address");
            assert_eq!(one.to_string().parse(), Ok(one));
        }
    }
}
