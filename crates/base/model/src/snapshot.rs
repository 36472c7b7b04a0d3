//! Snapshots: what they are called, and how they are.

use crate::{Misread, Name, Refusal, Size, SnapshotId, Timestamp, VolumeName, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The name of a snapshot: `pool/volume@snapshot`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^[a-z0-9][a-z0-9._-]{0,62}/[a-z0-9][a-z0-9._-]{0,62}@[a-z0-9][a-z0-9._-]{0,62}$"))]
pub struct SnapshotName {
    /// Of which volume.
    pub volume: VolumeName,
    /// Which of its snapshots.
    pub snapshot: Name,
}

impl SnapshotName {
    /// The snapshot `snapshot` of `volume`.
    #[must_use]
    pub fn of(volume: VolumeName, snapshot: Name) -> Self {
        Self { volume, snapshot }
    }
}

impl FromStr for SnapshotName {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parsed = text.split_once('@').and_then(|(volume, snapshot)| {
            let volume: VolumeName = volume.parse().ok()?;
            volume.pool()?;
            Some(Self { volume, snapshot: snapshot.parse().ok()? })
        });
        parsed.ok_or_else(|| {
            let hint = "write POOL/VOLUME@SNAPSHOT, such as tank/vm1@monday";
            Refusal::new(code::NAME_INVALID, format!("{} is not a snapshot's name", quoted(text)), hint)
        })
    }
}

impl TryFrom<String> for SnapshotName {
    type Error = Misread;
    fn try_from(text: String) -> Result<Self, Misread> {
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

/// Until when a snapshot cannot be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotLock {
    /// It can be deleted.
    #[default]
    Open,
    /// Not before this time.
    Until(Timestamp),
    /// Never.
    ForEver,
}

impl fmt::Display for SnapshotLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.pad("-"),
            Self::Until(time) => f.pad(&time.to_string()),
            Self::ForEver => f.pad("for ever"),
        }
    }
}

/// One snapshot as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotReport {
    /// What it is called.
    pub name: SnapshotName,
    /// Which snapshot.
    pub id: SnapshotId,
    /// How it is.
    pub state: SnapshotState,
    /// When it was made.
    pub created: Timestamp,
    /// The size of the volume then.
    pub size: Size,
    /// Bytes that it shows as data.
    pub mapped: Size,
    /// Deleting it gives back at least so much.
    pub frees: Size,
    /// Until when it cannot be deleted.
    pub lock: SnapshotLock,
    /// True when clones are made of it, which keeps it from being deleted.
    pub cloned: bool,
    /// What the snapshots have in common that were made at one instant; none for one alone.
    pub set: Option<SnapshotId>,
}

/// How a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotState {
    /// It can be gone back to, and cloned.
    Whole,
    /// It is deleted, and what only it held is being given back.
    Deleting {
        /// How far that is.
        percent: u8,
    },
}

impl fmt::Display for SnapshotState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.pad("whole"),
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
