//! Request bodies for snapshots.

use model::{Name, SnapshotLock, Span, Timestamp, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Create snapshots of several volumes at one instant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSnapshots {
    /// Names of the volumes, all of one pool.
    pub volumes: Vec<VolumeName>,
    /// Name of the snapshot of each.
    pub name: Name,
    /// Lock against deletion.
    #[serde(default)]
    pub lock: LockWish,
}

/// Requested lock of a snapshot against deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LockWish {
    /// No lock.
    #[default]
    #[serde(alias = "open")]
    Unlocked,
    /// Locked until this time.
    Until(Timestamp),
    /// Locked for this duration by the array's clock, which may differ from the client's.
    // No example in the description: schemars would take one of a single variant for one of the whole type.
    For(#[schemars(with = "String", extend("pattern" = "^ *[0-9]{1,6} *(w|d|h|min|m|s) *$"))] Span),
    /// Locked without end.
    #[serde(alias = "for_ever")]
    Permanent,
}

impl LockWish {
    /// Returns the lock that the request means at `now`.
    #[must_use]
    pub fn at(self, now: Timestamp) -> SnapshotLock {
        match self {
            Self::Unlocked => SnapshotLock::Unlocked,
            Self::Until(time) => SnapshotLock::Until(time),
            Self::For(span) => SnapshotLock::Until(now.plus(span.seconds())),
            Self::Permanent => SnapshotLock::Permanent,
        }
    }
}

impl From<SnapshotLock> for LockWish {
    fn from(lock: SnapshotLock) -> Self {
        match lock {
            SnapshotLock::Unlocked => Self::Unlocked,
            SnapshotLock::Until(time) => Self::Until(time),
            SnapshotLock::Permanent => Self::Permanent,
        }
    }
}

/// Lock a snapshot against deletion.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LockSnapshot {
    /// End of the lock.
    pub lock: LockWish,
}
