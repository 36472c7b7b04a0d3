//! Identity of sessions: number, and the name of the I_T nexus by which session reinstatement is recognized.

use iscsi::pdu::Isid;
use iscsi::{IscsiName, SessionType};

/// Number of a session, unique for the lifetime of the daemon. Also identifies its I_T nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

/// Name of an I_T nexus: the initiator port (initiator name and ISID) and the target. Two sessions with the same name
/// are instances of one nexus (RFC 7143 §4.2.4, SSID without the TSIH).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NexusName {
    /// Initiator name, normalized.
    pub initiator: String,
    /// ISID, the initiator's part of the session identifier.
    pub isid: [u8; 6],
    /// Target name; empty for a discovery session.
    pub target: String,
}

impl NexusName {
    /// Returns the nexus of a session with these login parameters. The target is ignored for a discovery session.
    #[must_use]
    pub fn of(initiator: &IscsiName, isid: Isid, kind: SessionType, target: Option<&IscsiName>) -> Self {
        // A discovery session has no target, even if the initiator names one.
        let target = target.filter(|_| kind == SessionType::Normal).map(IscsiName::as_str).unwrap_or_default();
        Self { initiator: initiator.as_str().to_owned(), isid: isid.0, target: target.to_owned() }
    }
}

/// Formats an ISID as hexadecimal digits.
pub fn isid_text(isid: [u8; 6]) -> String {
    isid.iter().map(|byte| format!("{byte:02x}")).collect()
}
