//! Attributes: a tag, a length, and a value padded to whole words.
//!
//! *Source*: RFC 4171 §5.1 (format), §6 (tags).

use crate::Violation;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Tag of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(pub u32);

#[allow(missing_docs, reason = "the names are the standard's")]
impl Tag {
    pub const DELIMITER: Self = Self(0);
    pub const ENTITY_IDENTIFIER: Self = Self(1);
    pub const ENTITY_PROTOCOL: Self = Self(2);
    pub const REGISTRATION_PERIOD: Self = Self(6);
    pub const PORTAL_IP_ADDRESS: Self = Self(16);
    pub const PORTAL_PORT: Self = Self(17);
    pub const ISCSI_NAME: Self = Self(32);
    pub const ISCSI_NODE_TYPE: Self = Self(33);
    pub const PG_ISCSI_NAME: Self = Self(48);
    pub const PG_PORTAL_IP_ADDRESS: Self = Self(49);
    pub const PG_PORTAL_PORT: Self = Self(50);
    pub const PORTAL_GROUP_TAG: Self = Self(51);
}

/// Encoder of attributes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writer(pub(crate) Vec<u8>);

impl Writer {
    pub(crate) fn bytes(&mut self, tag: Tag, value: &[u8]) {
        assert!(self.0.len().is_multiple_of(4), "attributes fill whole words (RFC 4171 §5.1.7)");
        // The length field includes the padding.
        let padded = value.len().next_multiple_of(4);
        self.0.extend(tag.0.to_be_bytes());
        self.0.extend(u32::try_from(padded).expect("values are short").to_be_bytes());
        self.0.extend(value);
        self.0.resize(self.0.len() + padded - value.len(), 0);
    }

    /// Appends a text with its terminating zero byte.
    pub(crate) fn text(&mut self, tag: Tag, value: &str) {
        assert!(!value.contains('\0'), "a text ends where its value does");
        self.bytes(tag, &[value.as_bytes(), &[0]].concat());
    }

    pub(crate) fn number(&mut self, tag: Tag, value: u32) {
        self.bytes(tag, &value.to_be_bytes());
    }

    /// Appends an address, IPv4 mapped to IPv6, and a TCP port.
    pub(crate) fn portal(&mut self, [ip, port]: [Tag; 2], address: SocketAddr) {
        // The attribute has 16 bytes for both families (RFC 4171 §6.3.1).
        let wide: Ipv6Addr = match address.ip() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        self.bytes(ip, &wide.octets());
        self.number(port, address.port().into());
    }
}

/// Decodes a text up to its terminating zero byte. Invalid UTF-8 is replaced.
pub(crate) fn text_of(value: &[u8]) -> String {
    // A server that omits the terminator is tolerated: the text ends with the value then.
    let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// Decodes a number; none unless it has four bytes.
pub(crate) fn number_of(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_be_bytes)
}

/// Decodes an IP address, unmapping IPv4 from IPv6; none unless it has 16 bytes.
pub(crate) fn ip_of(value: &[u8]) -> Option<IpAddr> {
    <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).to_canonical())
}

/// Iterator over received attributes, each validated when it is reached. It ends after the first violation.
#[derive(Clone, Debug)]
pub struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    fn parse_next(&mut self) -> Option<(Tag, &'a [u8])> {
        let (tag, rest) = self.0.split_first_chunk::<4>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        // Values fill whole words (RFC 4171 §5.1); any other length is a violation.
        let len = usize::try_from(u32::from_be_bytes(*len)).ok().filter(|len| len.is_multiple_of(4))?;
        // A length of the peer causes no allocation: the value is a part of the received message.
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((Tag(u32::from_be_bytes(*tag)), value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<(Tag, &'a [u8]), Violation>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let next = self.parse_next().ok_or(Violation::AttributeCut);
        if next.is_err() {
            // Nothing behind a violation can be located, so the iterator ends.
            self.0 = &[];
        }
        Some(next)
    }
}
