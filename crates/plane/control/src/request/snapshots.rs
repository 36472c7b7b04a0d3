//! What is asked of snapshots.

use model::{Name, SnapshotLock, Span, Timestamp, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Make snapshots, all of one instant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSnapshots {
    /// Of which volumes, all of one pool.
    pub volumes: Vec<VolumeName>,
    /// What to call the snapshot of each.
    pub name: Name,
    /// Until when they cannot be deleted.
    #[serde(default)]
    pub lock: LockWish,
}

/// Until when a snapshot shall be kept from being deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LockWish {
    /// It can be deleted.
    #[default]
    Open,
    /// Not before this time.
    Until(Timestamp),
    /// Not for so long, by the array's clock: that of who asks may be another.
    // The description has no example here: one of a single form would be taken for one of the whole.
    For(#[schemars(with = "String", extend("pattern" = "^ *[0-9]{1,6} *(w|d|h|min|m|s) *$"))] Span),
    /// Never.
    ForEver,
}

impl LockWish {
    /// The lock that is wished for at `now`.
    #[must_use]
    pub fn at(self, now: Timestamp) -> SnapshotLock {
        match self {
            Self::Open => SnapshotLock::Open,
            Self::Until(time) => SnapshotLock::Until(time),
            Self::For(span) => SnapshotLock::Until(now.plus(span.seconds())),
            Self::ForEver => SnapshotLock::ForEver,
        }
    }
}

impl From<SnapshotLock> for LockWish {
    fn from(lock: SnapshotLock) -> Self {
        match lock {
            SnapshotLock::Open => Self::Open,
            SnapshotLock::Until(time) => Self::Until(time),
            SnapshotLock::ForEver => Self::ForEver,
        }
    }
}

/// Keep a snapshot from being deleted.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LockSnapshot {
    /// Until when.
    pub lock: LockWish,
}
