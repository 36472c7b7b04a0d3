//! Why a family cannot do what it is asked.

use crate::crypt::Locked;
use crate::tree::Damage;
use block::{Extent, IoError, IoErrorKind};

/// What stops an operation on a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapError {
    /// A group failed, in its own addresses.
    Group { group: u16, error: IoError },
    /// The map is not as we write it.
    Damaged(Damage),
    /// No space is left for what was asked. Nothing has changed.
    Full,
    /// The catalog takes no change any more.
    CatalogLost,
    /// The data is encrypted, and its key is not there.
    Locked,
    /// An earlier failure left the map without a way to become durable; it can be read.
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
    /// The error as the host of a volume is told it, for blocks of the volume.
    pub(crate) fn told(self, extent: Extent) -> IoError {
        let kind = match self {
            Self::Group { error, .. } => return error.at(extent),
            Self::Damaged(_) | Self::Locked => IoErrorKind::Medium,
            Self::Full => IoErrorKind::NoSpace,
            Self::CatalogLost | Self::Stopped => IoErrorKind::ReadOnly,
        };
        IoError::new(kind, extent)
    }
}
