//! Errors of a disk: their classification, and the failed state after which the disk is not trusted.

use super::OperationKind;
use block::{Extent, IoError, IoErrorKind};
use rustix::io::Errno;
use std::cell::Cell;

/// Number of errors of a disk that are logged individually; later ones are logged at every power of two.
const LOGGED_EACH: u64 = 10;

/// Error state of one disk.
#[derive(Debug)]
pub(super) struct ErrorState {
    name: String,
    gone: Cell<bool>,
    count: Cell<u64>,
}

impl ErrorState {
    /// Returns the state without errors; the log calls the disk `name`.
    pub fn none(name: String) -> Self {
        Self { name, gone: Cell::new(false), count: Cell::new(0) }
    }

    /// Admits operations unless the disk has failed.
    pub fn admit(&self, extent: Extent) -> Result<(), IoError> {
        if self.gone.get() { Err(IoError::new(IoErrorKind::Gone, extent)) } else { Ok(()) }
    }

    /// Records `errno` and returns the error. A failed flush, or an error of kind `Gone`, fails the disk permanently.
    pub fn record(&self, verb: OperationKind, errno: Errno, extent: Extent) -> IoError {
        let kind = match verb {
            // The kernel may have dropped the pages that it could not write: a second flush would falsely succeed.
            OperationKind::Flush => IoErrorKind::Gone,
            OperationKind::Read | OperationKind::Write | OperationKind::Discard | OperationKind::Reserve => {
                kind_of(errno)
            }
        };
        if kind == IoErrorKind::Gone {
            self.gone.set(true);
        }
        let count = self.count.get() + 1;
        self.count.set(count);
        // Limits the log: the first ten errors, then only powers of two.
        if count <= LOGGED_EACH || count.is_power_of_two() {
            tracing::error!(disk = %self.name, ?verb, %extent, ?kind, count, "{errno}");
        }
        IoError::new(kind, extent)
    }

    /// Handles a read past the end of the medium: zeros for a file that was truncated, `Gone` for a disk that shrank.
    pub fn end_reached(&self, extent: Extent, is_file: bool) -> Result<(), IoError> {
        // ENXIO makes the disk `Gone`: blocks behind a new end must not read as zeros.
        if is_file { Ok(()) } else { Err(self.record(OperationKind::Read, Errno::NXIO, extent)) }
    }
}

fn kind_of(errno: Errno) -> IoErrorKind {
    match errno {
        // The device was removed or shut down: no later operation can succeed.
        Errno::NXIO | Errno::NODEV | Errno::BADF | Errno::SHUTDOWN => IoErrorKind::Gone,
        Errno::NOSPC | Errno::DQUOT => IoErrorKind::NoSpace,
        // EPERM: the file has the immutable or append-only attribute, or is sealed.
        Errno::ROFS | Errno::PERM => IoErrorKind::ReadOnly,
        Errno::OPNOTSUPP => IoErrorKind::Unsupported,
        // EIO and all others may concern these sectors only; the RAID layer counts them.
        _ => IoErrorKind::Medium,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_whose_flush_failed_is_gone_for_good() {
        let faults = ErrorState::none("test".to_owned());
        assert_eq!(faults.record(OperationKind::Write, Errno::IO, Extent::new(3, 1)).kind, IoErrorKind::Medium);
        assert_eq!(faults.admit(Extent::new(0, 1)), Ok(()));
        assert_eq!(faults.record(OperationKind::Flush, Errno::IO, Extent::new(0, 9)).kind, IoErrorKind::Gone);
        assert_eq!(faults.admit(Extent::new(0, 1)).expect_err("gone").kind, IoErrorKind::Gone);
    }
}
