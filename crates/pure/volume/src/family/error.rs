//! Errors of family operations.

use crate::crypt::Locked;
use crate::tree::Damage;
use block::{Extent, IoError, IoErrorKind};

/// Reason why an operation on a family failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapError {
    /// I/O error of a group, in the group's addresses.
    Group { group: u16, error: IoError },
    /// Damaged map.
    Damaged(Damage),
    /// No space for the request; nothing has changed.
    Full,
    /// Catalog store that accepts no more changes.
    CatalogLost,
    /// Encrypted data without its key.
    Locked,
    /// Map that an earlier failure left unable to become durable; it can still be read.
    Stopped,
}

impl From<Damage> for MapError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl From<Locked> for MapError {
    fn from(Locked: Locked) -> Self {
        Self::Locked
    }
}

impl MapError {
    /// Converts the error to the one that the host of a volume gets, for blocks of the volume.
    pub(crate) fn into_io_error(self, extent: Extent) -> IoError {
        let kind = match self {
            Self::Group { error, .. } => return error.at(extent),
            Self::Damaged(_) | Self::Locked => IoErrorKind::Medium,
            Self::Full => IoErrorKind::NoSpace,
            Self::CatalogLost | Self::Stopped => IoErrorKind::ReadOnly,
        };
        IoError::new(kind, extent)
    }
}
