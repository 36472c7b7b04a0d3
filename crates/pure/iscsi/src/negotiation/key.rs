//! The table of keys.

use std::ops::RangeInclusive;

/// The operational keys that are negotiated, and the declared length that is one of them in all but name.
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

/// How a key's value comes about. Numbers, booleans (0 and 1) and places in a list of values are all `u32`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The lesser of the two numbers.
    Least(RangeInclusive<u32>),
    /// The greater of the two numbers.
    Greatest(RangeInclusive<u32>),
    /// `Yes` when both say so.
    And,
    /// `Yes` when one says so.
    Or,
    /// The first of the offered values that the answerer takes.
    List(&'static [&'static str]),
    /// Each side tells the other; nothing is answered.
    Declared(RangeInclusive<u32>),
}

/// One row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) key: Key,
    pub(crate) name: &'static str,
    pub(crate) rule: Rule,
    /// What holds when nobody speaks of it.
    pub(crate) default: u32,
    /// Answered `Irrelevant` in a discovery session.
    pub(crate) normal_only: bool,
}

/// How many keys the table has.
pub(crate) const KEYS: usize = 16;

const DIGESTS: &[&str] = &["None", "CRC32C"];
const TASK_REPORTING: &[&str] = &["RFC3720", "ResponseFence", "FastAbort"];
const SEGMENT: RangeInclusive<u32> = 512..=0x00ff_ffff;

const fn row(key: Key, name: &'static str, rule: Rule, default: u32, normal_only: bool) -> Row {
    Row { key, name, rule, default, normal_only }
}

/// RFC 7143 §13, in the order in which keys are offered.
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
    /// The row of the key.
    pub(crate) fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.key == self).expect("every key has a row")
    }

    /// True for what only the leading connection's login may speak of. Source: RFC 7143 §13, "Use: LO".
    pub(crate) fn is_leading_only(self) -> bool {
        !matches!(self, Self::HeaderDigest | Self::DataDigest | Self::MaxRecvDataSegmentLength)
    }

    /// The key of a name.
    pub(crate) fn of(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.name == name).map(|row| row.key)
    }
}

/// Which side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Initiator,
    Target,
}

/// A key that is known, and not negotiated by way of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// Says who somebody is or what is wanted; sent by this side only, at any stage of the login.
    Declaration(Role),
    /// Belongs to the security stage.
    Security,
    /// Belongs to full feature phase.
    FullFeature,
    /// `IFMarker` and `OFMarker`: markers are gone, so they are answered `No`.
    ObsoleteMarker,
    /// `IFMarkInt` and `OFMarkInt`: answered `Reject`.
    ObsoleteInterval,
}

/// The known keys that are not in the table. Source: RFC 7143 §12, §13.
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
    /// What is known of a key that is not in the table.
    pub(crate) fn of(name: &str) -> Option<Self> {
        NAMED.iter().find(|(known, _)| *known == name).map(|&(_, named)| named)
    }
}

/// True for every key that a login may speak of, so that full feature phase can tell it from one that
/// nobody knows: the former is answered `Reject`, the latter `NotUnderstood`.
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
