//! Tags and identifiers in headers.

use std::fmt;

/// Initiator Task Tag: identifies a task, unique in its session while the task lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InitiatorTaskTag(pub u32);

impl InitiatorTaskTag {
    /// Reserved value FFFFFFFFh, which identifies no task.
    pub const RESERVED: Self = Self(u32::MAX);

    /// True for the reserved value.
    #[inline]
    #[must_use]
    pub fn is_reserved(self) -> bool {
        self == Self::RESERVED
    }
}

/// Target Transfer Tag: identifies a transfer, a text exchange or a ping of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetTransferTag(pub u32);

impl TargetTransferTag {
    /// Reserved value FFFFFFFFh: unsolicited data, a new text exchange, a ping without an answer.
    pub const RESERVED: Self = Self(u32::MAX);

    /// True for the reserved value.
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

/// TSIH: session handle that the target assigns; zero before that.
///
/// *Source*: RFC 7143 §11.12.6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tsih(pub u16);

/// CID: identifier of a connection in its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cid(pub u16);

/// Logical unit number as the eight bytes on the wire, the first byte most significant.
///
/// The SCSI layer interprets it (SAM-5 §4.7).
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
