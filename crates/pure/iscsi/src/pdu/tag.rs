//! Tags and identifiers that headers carry.

use std::fmt;

/// The initiator's name for a task, unique in its session while the task lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InitiatorTaskTag(pub u32);

impl InitiatorTaskTag {
    /// Names no task.
    pub const RESERVED: Self = Self(u32::MAX);

    /// True when the tag names no task.
    #[inline]
    #[must_use]
    pub fn is_reserved(self) -> bool {
        self == Self::RESERVED
    }
}

/// The target's name for a transfer, a text exchange or a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetTransferTag(pub u32);

impl TargetTransferTag {
    /// Names no transfer: unsolicited data, a new text exchange, a ping that wants no answer.
    pub const RESERVED: Self = Self(u32::MAX);

    /// True when the tag names no transfer.
    #[inline]
    #[must_use]
    pub fn is_reserved(self) -> bool {
        self == Self::RESERVED
    }
}

/// The initiator's part of a session's identifier.
///
/// *Source*: RFC 7143 §11.12.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isid(pub [u8; 6]);

/// The target's handle of a session; zero means that there is none yet.
///
/// *Source*: RFC 7143 §11.12.6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tsih(pub u16);

/// A connection's number in its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid(pub u16);

/// A logical unit number as the eight bytes of the wire, the first byte the highest.
///
/// What it addresses is for the SCSI layer to say (SAM-5 §4.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lun(pub u64);

impl fmt::Display for Isid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
