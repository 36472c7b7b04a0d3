//! Snapshots: names, locks and state.

use crate::{Name, ParseRefusal, Refusal, Size, SnapshotId, Timestamp, VolumeName, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Name of a snapshot: `pool/volume@snapshot`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z0-9][a-z0-9._-]{0,62}/[a-z0-9][a-z0-9._-]{0,62}@[a-z0-9][a-z0-9._-]{0,62}$"))]
pub struct SnapshotName {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Name of the snapshot within the volume.
    pub snapshot: Name,
}

impl SnapshotName {
    /// Returns the name of `snapshot` of `volume`.
    #[must_use]
    pub fn of(volume: VolumeName, snapshot: Name) -> Self {
        Self { volume, snapshot }
    }
}

impl FromStr for SnapshotName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // A second `@` ends up in the snapshot part, whose rules reject it.
        let parsed = text.split_once('@').and_then(|(volume, snapshot)| {
            let volume: VolumeName = volume.parse().ok()?;
            // Only volumes in a pool have snapshots.
            volume.pool()?;
            Some(Self { volume, snapshot: snapshot.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            let hint = "write POOL/VOLUME@SNAPSHOT, such as tank/vm1@monday";
            Refusal::new(code::NAME_INVALID, format!("{} is not a snapshot name", quoted(text)), hint)
        })
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<SnapshotName> for String {
    fn from(name: SnapshotName) -> Self {
        name.to_string()
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}@{}", self.volume, self.snapshot))
    }
}

/// Lock of a snapshot against deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotLock {
    /// Not locked.
    #[default]
    Unlocked,
    /// Locked until this time.
    Until(Timestamp),
    /// Locked permanently.
    Permanent,
}

impl fmt::Display for SnapshotLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlocked => f.pad("-"),
            Self::Until(time) => f.pad(&time.to_string()),
            Self::Permanent => f.pad("permanent"),
        }
    }
}

/// State of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotReport {
    /// Name of the snapshot.
    pub name: SnapshotName,
    /// Identity of the snapshot.
    pub id: SnapshotId,
    /// State.
    pub state: SnapshotState,
    /// Time of creation.
    pub created: Timestamp,
    /// Size of the volume at that time.
    pub size: Size,
    /// Allocated bytes that the snapshot references.
    pub mapped: Size,
    /// Lower bound of the space that its deletion reclaims.
    pub reclaimable: Size,
    /// Lock against deletion.
    pub lock: SnapshotLock,
    /// True if it has clones, which prevent its deletion.
    pub cloned: bool,
    /// Common identity of snapshots that were created at one point in time; absent for a single snapshot.
    pub set: Option<SnapshotId>,
}

/// State of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotState {
    /// Available for rollback and cloning.
    Available,
    /// Deleted; its exclusive space is being reclaimed.
    Deleting {
        /// Progress in percent.
        percent: u8,
    },
}

impl fmt::Display for SnapshotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Available => f.pad("available"),
            Self::Deleting { percent } => f.pad(&format!("deleting, {percent} %")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_name_is_a_volume_of_a_pool_and_one_more_name() {
        let name: SnapshotName = "tank/vm1@monday".parse().expect("a name");
        assert_eq!((name.volume.to_string().as_str(), name.snapshot.as_str()), ("tank/vm1", "monday"));
        assert_eq!(name.to_string().parse(), Ok(name));
        for text in ["", "@", "tank/vm1", "tank/vm1@", "vm1@monday", "tank/vm1@a@b", "tank/vm1@Monday", "@monday"] {
            assert_eq!(text.parse::<SnapshotName>().expect_err(text).code, code::NAME_INVALID, "{text}");
        }
    }
}
