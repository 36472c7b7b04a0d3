//! Table of text keys.

use std::ops::RangeInclusive;

/// Negotiated operational keys, and MaxRecvDataSegmentLength, which is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub(crate) enum Key {
    HeaderDigest,
    DataDigest,
    MaxConnections,
    InitialR2T,
    ImmediateData,
    MaxRecvDataSegmentLength,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    MaxOutstandingR2T,
    DataPDUInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    ProtocolLevel,
    TaskReporting,
}

/// Negotiation rule of a key. Numbers, booleans (0 and 1) and indexes into a list of values are all `u32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Minimum of the two numbers.
    Least(RangeInclusive<u32>),
    /// Maximum of the two numbers.
    Greatest(RangeInclusive<u32>),
    /// Boolean AND: `Yes` when both sides say so.
    And,
    /// Boolean OR: `Yes` when one side says so.
    Or,
    /// First offered value that the responder accepts.
    List(&'static [&'static str]),
    /// Declaration of each side, which is not answered.
    Declared(RangeInclusive<u32>),
}

/// Row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) name: &'static str,
    pub(crate) rule: Rule,
    /// Default value, in effect without negotiation.
    pub(crate) default: u32,
    /// True for keys answered with `Irrelevant` in a discovery session.
    pub(crate) normal_only: bool,
}

/// Number of rows of the table.
pub(crate) const KEYS: usize = 16;

const DIGESTS: &[&str] = &["None", "CRC32C"];
const TASK_REPORTING: &[&str] = &["RFC3720", "ResponseFence", "FastAbort"];
const SEGMENT: RangeInclusive<u32> = 512..=0x00ff_ffff;

const fn row(key: Key, name: &'static str, rule: Rule, default: u32, normal_only: bool) -> Row {
    Row { key, name, rule, default, normal_only }
}

/// Operational keys of RFC 7143 §13, in the order in which they are offered.
#[rustfmt::skip]
pub(crate) static TABLE: [Row; KEYS] = [
    row(Key::HeaderDigest, "HeaderDigest", Rule::List(DIGESTS), 0, false),
    row(Key::DataDigest, "DataDigest", Rule::List(DIGESTS), 0, false),
    row(Key::MaxConnections, "MaxConnections", Rule::Least(1..=65_535), 1, true),
    row(Key::InitialR2T, "InitialR2T", Rule::Or, 1, true),
    row(Key::ImmediateData, "ImmediateData", Rule::And, 1, true),
    row(Key::MaxRecvDataSegmentLength, "MaxRecvDataSegmentLength", Rule::Declared(SEGMENT), 8192, false),
    row(Key::MaxBurstLength, "MaxBurstLength", Rule::Least(SEGMENT), 262_144, true),
    row(Key::FirstBurstLength, "FirstBurstLength", Rule::Least(SEGMENT), 65_536, true),
    row(Key::DefaultTime2Wait, "DefaultTime2Wait", Rule::Greatest(0..=3600), 2, false),
    row(Key::DefaultTime2Retain, "DefaultTime2Retain", Rule::Least(0..=3600), 20, false),
    row(Key::MaxOutstandingR2T, "MaxOutstandingR2T", Rule::Least(1..=65_535), 1, true),
    row(Key::DataPDUInOrder, "DataPDUInOrder", Rule::Or, 1, true),
    row(Key::DataSequenceInOrder, "DataSequenceInOrder", Rule::Or, 1, true),
    row(Key::ErrorRecoveryLevel, "ErrorRecoveryLevel", Rule::Least(0..=2), 0, false),
    row(Key::ProtocolLevel, "iSCSIProtocolLevel", Rule::Least(0..=31), 1, true),
    row(Key::TaskReporting, "TaskReporting", Rule::List(TASK_REPORTING), 0, true),
];

impl Key {
    /// Returns the row of the key.
    pub(crate) fn row(self) -> &'static Row {
        // Sixteen rows: a scan is as fast as an index and cannot disagree with the order of the table.
        TABLE.iter().find(|row| row.key == self).expect("every key has a row")
    }

    /// True for keys that only the leading connection may negotiate. Source: RFC 7143 §13, "Use: LO".
    pub(crate) fn is_leading_only(self) -> bool {
        !matches!(self, Self::HeaderDigest | Self::DataDigest | Self::MaxRecvDataSegmentLength)
    }

    /// Returns the key with this name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.key)
    }
}

/// Side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Initiator,
    Target,
}

/// Known key that is not negotiated through the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// Declaration of identity or purpose, sent by this side only, in any stage of the login.
    Declaration(Role),
    /// Key of the security stage.
    Security,
    /// Key of full feature phase.
    FullFeature,
    /// `IFMarker` and `OFMarker`: markers are obsolete, so they are answered with `No`.
    ObsoleteMarker,
    /// `IFMarkInt` and `OFMarkInt`: obsolete, answered with `Reject`.
    ObsoleteInterval,
}

/// Known keys outside the table. Source: RFC 7143 §12, §13.
#[rustfmt::skip]
const NAMED: [(&str, Named); 18] = [
    ("InitiatorName", Named::Declaration(Role::Initiator)),
    ("InitiatorAlias", Named::Declaration(Role::Initiator)),
    ("TargetName", Named::Declaration(Role::Initiator)),
    ("SessionType", Named::Declaration(Role::Initiator)),
    ("TargetAlias", Named::Declaration(Role::Target)),
    ("TargetAddress", Named::Declaration(Role::Target)),
    ("TargetPortalGroupTag", Named::Declaration(Role::Target)),
    ("AuthMethod", Named::Security),
    ("CHAP_A", Named::Security),
    ("CHAP_I", Named::Security),
    ("CHAP_C", Named::Security),
    ("CHAP_N", Named::Security),
    ("CHAP_R", Named::Security),
    ("SendTargets", Named::FullFeature),
    ("IFMarker", Named::ObsoleteMarker),
    ("OFMarker", Named::ObsoleteMarker),
    ("IFMarkInt", Named::ObsoleteInterval),
    ("OFMarkInt", Named::ObsoleteInterval),
];

impl Named {
    /// Returns the class of a known key outside the table.
    pub(crate) fn of(name: &str) -> Option<Self> {
        NAMED.iter().find(|(known, _)| *known == name).map(|&(_, named)| named)
    }
}

/// True for every key that is valid in a login. Full feature phase answers such a key with `Reject`, and an unknown key
/// with `NotUnderstood`.
#[must_use]
pub fn is_login_key(name: &str) -> bool {
    Key::of(name).is_some() || Named::of(name).is_some_and(|named| named != Named::FullFeature)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_row_in_its_place() {
        for (at, row) in TABLE.iter().enumerate() {
            assert_eq!(row.key as usize, at, "{}", row.name);
            assert_eq!(Key::of(row.name), Some(row.key));
            assert!(is_login_key(row.name));
        }
        assert!(is_login_key("CHAP_A") && is_login_key("IFMarker") && !is_login_key("SendTargets"));
        assert!(!is_login_key("X-com.example.key") && !is_login_key(""));
    }
}
