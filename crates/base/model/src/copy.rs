//! Full copies of volumes: source and progress.

use crate::{Name, ParseRefusal, Progress, Refusal, SnapshotName, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Source of a copy, written as `POOL/VOLUME` or `POOL/VOLUME@SNAPSHOT`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^([a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62})?|[a-z0-9][a-z0-9._-]{0,62}/[a-z0-9][a-z0-9._-]{0,62}@[a-z0-9][a-z0-9._-]{0,62})$"))]
pub enum CopySource {
    /// Content of the volume at the start of the copy.
    Volume(VolumeName),
    /// Content of the snapshot.
    Snapshot(SnapshotName),
}

/// Running copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CopyReport {
    /// Source of the copy.
    pub source: CopySource,
    /// Progress, relative to the allocated space of the source.
    pub progress: Progress,
}

impl CopySource {
    /// Returns the volume that is copied, or to which the snapshot belongs.
    #[must_use]
    pub fn volume(&self) -> &VolumeName {
        match self {
            Self::Volume(volume) => volume,
            Self::Snapshot(snapshot) => &snapshot.volume,
        }
    }

    /// Returns the pool of the source, if it belongs to a pool.
    #[must_use]
    pub fn pool(&self) -> Option<&Name> {
        self.volume().pool()
    }
}

impl FromStr for CopySource {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // No volume name contains `@`, so it identifies a snapshot. The refusal then names the kind that was meant.
        match text.contains('@') {
            true => text.parse().map(Self::Snapshot),
            false => text.parse().map(Self::Volume),
        }
    }
}

impl TryFrom<String> for CopySource {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<CopySource> for String {
    fn from(source: CopySource) -> Self {
        source.to_string()
    }
}

impl fmt::Display for CopySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // `fmt` instead of `write!` passes the column width of tables on.
            Self::Volume(volume) => volume.fmt(f),
            Self::Snapshot(snapshot) => snapshot.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_source_is_a_volume_or_one_of_its_snapshots() {
        for text in ["tank/vm1", "tank/vm1@monday", "image"] {
            let source: CopySource = text.parse().expect("a name");
            assert_eq!(
                (source.to_string().as_str(), source.volume().to_string().as_str()),
                (text, text.trim_end_matches("@monday"))
            );
            assert_eq!(matches!(source, CopySource::Snapshot(_)), text.contains('@'));
        }
        assert!("tank/vm1@".parse::<CopySource>().is_err() && "a@b".parse::<CopySource>().is_err());
    }
}
