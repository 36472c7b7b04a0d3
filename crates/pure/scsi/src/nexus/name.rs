//! Names of I_T nexuses, which registrations are bound to, and TransportIDs (SPC-4, iSCSI TransportID).

use crate::identity::TargetPort;
use crate::sense::{AdditionalSense, Sense};
use std::fmt;

/// Maximum length of an iSCSI name in bytes (RFC 7143 §4.2.7.1).
pub(crate) const NAME_BYTES_MAX: usize = 223;
/// First byte of a TransportID: PROTOCOL IDENTIFIER iSCSI (5h) and TPID FORMAT 00b, a name without an ISID.
const DEVICE_FORMAT: u8 = 0x05;
/// The same with TPID FORMAT 01b: a name and an ISID.
const PORT_FORMAT: u8 = 0x45;
/// Separator between the name and the ISID, which is written as 12 hexadecimal digits.
const SEPARATOR: &str = ",i,0x";
const ISID_DIGITS: usize = 12;
const HEADER_BYTES: usize = 4;
/// Minimum length of a TransportID in bytes.
const BYTES_MIN: usize = 24;

/// Initiator port: iSCSI name and ISID of the initiator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InitiatorPort {
    /// iSCSI name, normalized.
    pub name: String,
    /// ISID (RFC 7143 §11.12.5).
    pub isid: [u8; 6],
}

/// Name of an I_T nexus: unchanged by logins, restarts and moves of the pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ItNexus {
    pub initiator: InitiatorPort,
    pub target_name: String,
    pub portal_group_tag: u16,
}

impl ItNexus {
    pub(crate) fn new(initiator: InitiatorPort, port: &TargetPort) -> Self {
        Self { initiator, target_name: port.target_name.clone(), portal_group_tag: port.portal_group_tag }
    }
}

impl fmt::Display for InitiatorPort {
    /// Writes the port name (RFC 7143 §4.2.7).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{SEPARATOR}", self.name)?;
        self.isid.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl InitiatorPort {
    /// Returns the length of the TransportID of the port in bytes.
    pub(crate) fn transport_id_bytes(&self) -> usize {
        // The terminating null takes one byte.
        let name = self.name.len() + SEPARATOR.len() + ISID_DIGITS + 1;
        // A TransportID has at least 24 bytes and a multiple of four (SPC-4).
        (HEADER_BYTES + name).next_multiple_of(4).max(BYTES_MIN)
    }

    /// Returns the TransportID of the port in the format with an ISID.
    pub(crate) fn transport_id(&self) -> Vec<u8> {
        let bytes = self.transport_id_bytes();
        let [high, low] = u16::try_from(bytes - HEADER_BYTES).expect("a name is short").to_be_bytes();
        let mut id = vec![PORT_FORMAT, 0, high, low];
        id.extend_from_slice(self.to_string().as_bytes());
        assert!(id.len() < bytes, "a name is followed by a zero");
        id.resize(bytes, 0);
        id
    }
}

/// Parsed TransportID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TransportId {
    Port(InitiatorPort),
    /// Initiator device, with any ISID.
    Device(String),
}

impl TransportId {
    /// Parses the TransportID at offset `at` of `list` and returns it with its length in bytes.
    ///
    /// *Errors*: 1A/00 when it is truncated; 26/00 at the invalid byte.
    pub(crate) fn parse(list: &[u8], at: usize) -> Result<(Self, usize), Sense> {
        let cut = Sense::illegal(AdditionalSense::PARAMETER_LIST_LENGTH_ERROR);
        let rest = list.get(at..).ok_or(cut)?;
        let &[format, _, high, low, ..] = rest else { return Err(cut) };
        // Other formats belong to other transport protocols, or are reserved.
        if !matches!(format, DEVICE_FORMAT | PORT_FORMAT) {
            return Err(pointer(at));
        }
        let len = HEADER_BYTES.saturating_add(usize::from(u16::from_be_bytes([high, low])));
        if len < BYTES_MIN || !len.is_multiple_of(4) {
            return Err(pointer(at.saturating_add(2)));
        }
        let text = rest.get(HEADER_BYTES..len).ok_or(cut)?;
        let named = Self::of_text(text, format == PORT_FORMAT);
        Ok((named.ok_or(pointer(at.saturating_add(HEADER_BYTES)))?, len))
    }

    /// Parses a null-terminated text; all bytes behind the terminator must be zero.
    fn of_text(text: &[u8], names_port: bool) -> Option<Self> {
        let end = text.iter().position(|&byte| byte == 0)?;
        let (text, padding) = text.split_at_checked(end)?;
        if padding.iter().any(|&byte| byte != 0) {
            return None;
        }
        // iSCSI names are compared in their normalized form, which is lower case (RFC 7143 §4.2.7.2).
        let text = std::str::from_utf8(text).ok()?.to_ascii_lowercase();
        let (name, isid) = if names_port { text.rsplit_once(SEPARATOR)? } else { (text.as_str(), "") };
        if name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || name.contains(|c: char| c.is_control() || matches!(c, ' ' | ','))
        {
            return None;
        }
        let name = name.to_owned();
        Some(if names_port { Self::Port(InitiatorPort { name, isid: isid_of(isid)? }) } else { Self::Device(name) })
    }
}

fn isid_of(digits: &str) -> Option<[u8; 6]> {
    if digits.is_empty() || digits.len() > ISID_DIGITS || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    // The ISID is the low six bytes of the number.
    // Twelve digits are 48 bits, so the two bytes above are zero.
    let [_, _, isid @ ..] = u64::from_str_radix(digits, 16).ok()?.to_be_bytes();
    Some(isid)
}

/// 26/00 INVALID FIELD IN PARAMETER LIST with a pointer to a byte of the list.
pub(crate) fn pointer(at: usize) -> Sense {
    Sense::parameter(u16::try_from(at).unwrap_or(u16::MAX), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> InitiatorPort {
        InitiatorPort { name: name.into(), isid: [0x80, 0x12, 0x34, 0x56, 0, 0x0A] }
    }

    #[test]
    fn transport_id_names_a_port_in_format_1_padded_to_four_bytes() {
        let id = port("iqn.2026-01.example:a").transport_id();
        assert_eq!(&id[..4], [0x45, 0, 0, 40]);
        assert_eq!(&id[4..], b"iqn.2026-01.example:a,i,0x80123456000a\0\0");
        assert_eq!(TransportId::parse(&id, 0), Ok((TransportId::Port(port("iqn.2026-01.example:a")), id.len())));
        assert_eq!(port("a").transport_id().len(), 24, "the shortest has 24 bytes");
        for len in 1..=NAME_BYTES_MAX {
            let named = port(&"x".repeat(len));
            let id = named.transport_id();
            assert_eq!((id.len() % 4, id.len(), id.last()), (0, named.transport_id_bytes(), Some(&0)));
            assert_eq!(TransportId::parse(&id, 0).map(|(id, _)| id), Ok(TransportId::Port(named)));
        }
    }

    #[test]
    fn transport_id_is_read_in_any_case_with_few_digits_and_without_a_port() {
        let mut id = vec![0x45, 0, 0, 20];
        id.extend_from_slice(b"IQN.2026-01:B,i,0xA\0");
        let isid = [0, 0, 0, 0, 0, 0x0A];
        let named = InitiatorPort { name: "iqn.2026-01:b".into(), isid };
        assert_eq!(TransportId::parse(&id, 0), Ok((TransportId::Port(named), 24)));
        let mut id = vec![0x05, 0, 0, 20];
        id.extend_from_slice(b"iqn.2026-01:b\0\0\0\0\0\0\0");
        assert_eq!(TransportId::parse(&id, 0), Ok((TransportId::Device("iqn.2026-01:b".into()), 24)));
    }

    #[test]
    fn transport_id_that_lies_is_refused_where_it_lies() {
        let good = port("iqn.2026-01.example:a").transport_id();
        let with = |at: usize, byte: u8| {
            let mut id = good.clone();
            id[at] = byte;
            TransportId::parse(&id, 0).map(|_| ()).map_err(|sense| (sense.code, sense.field.map(|field| field.byte)))
        };
        let wrong = |byte| Err((AdditionalSense(0x26, 0), Some(byte)));
        let cut = Err((AdditionalSense(0x1A, 0), None));
        assert_eq!(with(0, 0x46), wrong(0), "another protocol");
        assert_eq!(with(0, 0x85), wrong(0), "a format that there is not");
        assert_eq!(with(3, 41), wrong(2), "not a multiple of four");
        assert_eq!(with(3, 16), wrong(2), "too short");
        assert_eq!(with(3, 44), cut);
        assert_eq!(with(2, 0xFF), cut);
        assert_eq!(with(4, 0), wrong(4), "no name");
        assert_eq!(with(5, 0xFF), wrong(4), "no text");
        assert_eq!(with(30, b'g'), wrong(4), "no digit");
        assert_eq!(with(43, b'0'), wrong(4), "something behind the end");
        assert_eq!(with(0, 0x05), wrong(4), "a port where an initiator is named");
        for len in 0..good.len() {
            assert_eq!(TransportId::parse(&good[..len], 0).map_err(|sense| sense.code), Err(AdditionalSense(0x1A, 0)));
        }
    }
}
