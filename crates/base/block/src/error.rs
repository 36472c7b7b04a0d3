//! Errors of media. Errors of peers and operators have types of their own.

use crate::Extent;
use std::fmt;

/// Failed operation of a medium.
///
/// Mapped to SCSI sense in exactly one place (`scsi`), to a failed member in one (`raid`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct IoError {
    /// Class of the failure.
    pub kind: IoErrorKind,
    /// Affected blocks, in the addresses of the device that returns the error.
    pub extent: Extent,
    /// Member of an array that failed, where known.
    pub member: Option<u16>,
}

/// Failure classes that callers treat differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoErrorKind {
    /// Medium error: these blocks cannot be read or written; the rest of the device may be healthy.
    Medium,
    /// The device no longer responds; nothing can be read from it or written to it.
    Gone,
    /// The extent passes the end of the device, or a buffer does not match it: a bug of the caller, refused without
    /// partial effects.
    OutOfRange,
    /// Out of space (thin pool, full file system below a file-backed disk).
    NoSpace,
    /// Write-protected: the device refuses writes (read-only, fenced, read-only after an error).
    ReadOnly,
    /// The device does not support this operation.
    Unsupported,
    /// The device did not respond within the deadline. The operation may still take effect.
    TimedOut,
    /// The device is unreachable for the moment and returns by itself. Acknowledged writes are kept; this operation was
    /// not done, or only in part, and can be retried.
    Unreachable,
}

impl IoError {
    /// Returns an error of `kind` on `extent`, without a member.
    #[must_use]
    pub fn new(kind: IoErrorKind, extent: Extent) -> Self {
        Self { kind, extent, member: None }
    }

    /// Returns the same error attributed to `member`.
    #[must_use]
    pub fn of_member(self, member: u16) -> Self {
        Self { member: Some(member), ..self }
    }

    /// Returns the same error with `extent` in the addresses of the device above.
    #[must_use]
    pub fn at(self, extent: Extent) -> Self {
        Self { extent, ..self }
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            IoErrorKind::Medium => "medium error",
            IoErrorKind::Gone => "device failed",
            IoErrorKind::OutOfRange => "out of range",
            IoErrorKind::NoSpace => "no space left",
            IoErrorKind::ReadOnly => "write-protected",
            IoErrorKind::Unsupported => "operation not supported",
            IoErrorKind::TimedOut => "timed out",
            IoErrorKind::Unreachable => "temporarily unreachable",
        };
        write!(f, "{what} at {}", self.extent)?;
        if let Some(member) = self.member {
            write!(f, " of member {member}")?;
        }
        Ok(())
    }
}
