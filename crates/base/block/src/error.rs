//! What a medium can do to us. The peer's errors and the operator's live elsewhere.

use crate::Extent;
use std::fmt;

/// A medium failed to do what it was asked.
///
/// Mapped to SCSI sense in exactly one place (`scsi`), to a failed member in one (`raid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct IoError {
    /// What went wrong.
    pub kind: IoErrorKind,
    /// Which blocks, in the addresses of the device that returns the error.
    pub extent: Extent,
    /// Which member of an array failed, where that is known.
    pub member: Option<u16>,
}

/// The kinds of failure that a caller treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// These blocks cannot be read or written; the rest of the device may be well.
    Medium,
    /// The device does not answer any more; nothing can be read from it or written to it.
    Gone,
    /// The extent passes the end of the device, or a buffer does not match it: a caller's bug that is refused, never done in part.
    OutOfRange,
    /// There is no space left to put the data (thin pools, full file systems below a file-backed disk).
    NoSpace,
    /// The device refuses writes (write-protected, fenced, read-only after an error).
    ReadOnly,
    /// The device does not know this operation.
    Unsupported,
    /// The device has not answered in time. What was asked may still happen.
    TimedOut,
    /// The device is not reached now and comes back by itself. Everything that it acknowledged is kept; this was not done, or
    /// not in full, and can be asked again.
    Away,
}

impl IoError {
    /// An error of `kind` on `extent`, of no known member.
    #[must_use]
    pub fn new(kind: IoErrorKind, extent: Extent) -> Self {
        Self { kind, extent, member: None }
    }

    /// The same error, told to be the fault of `member`.
    #[must_use]
    pub fn of_member(self, member: u16) -> Self {
        Self { member: Some(member), ..self }
    }

    /// The same error, told in the addresses of the device above.
    #[must_use]
    pub fn at(self, extent: Extent) -> Self {
        Self { extent, ..self }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            IoErrorKind::Medium => "medium error",
            IoErrorKind::Gone => "device gone",
            IoErrorKind::OutOfRange => "out of range",
            IoErrorKind::NoSpace => "no space left",
            IoErrorKind::ReadOnly => "write refused",
            IoErrorKind::Unsupported => "operation not supported",
            IoErrorKind::TimedOut => "no answer in time",
            IoErrorKind::Away => "away, and expected back",
        };
        write!(f, "{what} at {}", self.extent)?;
        if let Some(member) = self.member {
            write!(f, " of member {member}")?;
        }
        Ok(())
    }
}
