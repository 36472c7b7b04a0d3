//! What goes wrong with a disk: errors by kind, and what a disk is not believed after.

use super::Verb;
use block::{Extent, IoError, IoErrorKind};
use rustix::io::Errno;
use std::cell::Cell;

/// The first errors of a disk are logged each, later ones at every power of two.
const LOGGED_EACH: u64 = 10;

/// The memory of what went wrong with one disk.
#[derive(Debug)]
pub(super) struct Faults {
    name: String,
    gone: Cell<bool>,
    count: Cell<u64>,
}

impl Faults {
    /// No fault yet, of the disk that the log calls `name`.
    pub fn none(name: String) -> Self {
        Self { name, gone: Cell::new(false), count: Cell::new(0) }
    }

    /// Admits operations until the disk is gone.
    pub fn admit(&self, extent: Extent) -> Result<(), IoError> {
        if self.gone.get() { Err(IoError::new(IoErrorKind::Gone, extent)) } else { Ok(()) }
    }

    /// The error that `errno` means. After a failed flush, or when it says so, the disk is gone for good.
    pub fn record(&self, verb: Verb, errno: Errno, extent: Extent) -> IoError {
        let kind = match verb {
            // The kernel may have dropped what it could not write: a second flush would succeed and lie.
            Verb::Flush => IoErrorKind::Gone,
            Verb::Read | Verb::Write | Verb::Discard | Verb::Reserve => kind_of(errno),
        };
        if kind == IoErrorKind::Gone {
            self.gone.set(true);
        }
        let count = self.count.get() + 1;
        self.count.set(count);
        if count <= LOGGED_EACH || count.is_power_of_two() {
            tracing::error!(disk = %self.name, ?verb, %extent, ?kind, count, "{errno}");
        }
        IoError::new(kind, extent)
    }

    /// A read met the end of the medium: zeros for a sparse file that was cut, a shrunken disk else.
    pub fn end_reached(&self, extent: Extent, is_file: bool) -> Result<(), IoError> {
        if is_file { Ok(()) } else { Err(self.record(Verb::Read, Errno::NXIO, extent)) }
    }
}

fn kind_of(errno: Errno) -> IoErrorKind {
    match errno {
        Errno::NXIO | Errno::NODEV | Errno::BADF | Errno::SHUTDOWN => IoErrorKind::Gone,
        Errno::NOSPC | Errno::DQUOT => IoErrorKind::NoSpace,
        Errno::ROFS | Errno::PERM => IoErrorKind::ReadOnly,
        Errno::OPNOTSUPP => IoErrorKind::Unsupported,
        _ => IoErrorKind::Medium,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_whose_flush_failed_is_gone_for_good() {
        let faults = Faults::none("test".to_owned());
        assert_eq!(faults.record(Verb::Write, Errno::IO, Extent::new(3, 1)).kind, IoErrorKind::Medium);
        assert_eq!(faults.admit(Extent::new(0, 1)), Ok(()));
        assert_eq!(faults.record(Verb::Flush, Errno::IO, Extent::new(0, 9)).kind, IoErrorKind::Gone);
        assert_eq!(faults.admit(Extent::new(0, 1)).expect_err("gone").kind, IoErrorKind::Gone);
    }
}
