//! Who talks with us: sessions by number, and by what makes two of them the same I_T nexus.

use iscsi::pdu::Isid;
use iscsi::{IscsiName, SessionType};

/// One I_T nexus of this daemon's life: a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// What makes two sessions the same nexus: RFC 7143 §4.2.4 (the SSID without the target's half) and the target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NexusName {
    /// The initiator's name, normalised.
    pub initiator: String,
    /// The initiator's part of the session identifier.
    pub isid: [u8; 6],
    /// The target's name; empty for a discovery session.
    pub target: String,
}

impl NexusName {
    /// The nexus of a session that this initiator has, or asks for.
    #[must_use]
    pub fn of(initiator: &IscsiName, isid: Isid, kind: SessionType, target: Option<&IscsiName>) -> Self {
        let target = target.filter(|_| kind == SessionType::Normal).map(IscsiName::as_str).unwrap_or_default();
        Self { initiator: initiator.as_str().to_owned(), isid: isid.0, target: target.to_owned() }
    }
}

/// An ISID as it is shown: hexadecimal digits.
pub fn isid_text(isid: [u8; 6]) -> String {
    isid.iter().map(|byte| format!("{byte:02x}")).collect()
}
