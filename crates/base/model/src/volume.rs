//! How a volume is.

use crate::{Size, VolumeId, VolumeName};
use serde::{Deserialize, Serialize};

/// One volume as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: VolumeName,
    /// Its identity, which hosts see.
    pub id: VolumeId,
    /// How much it holds.
    pub size: Size,
    /// Bytes of a logical block as hosts see it.
    pub block_bytes: u32,
    /// What holds its data.
    pub backend: Backend,
    /// How it is.
    pub state: VolumeState,
    /// What hosts have done with it since it was opened.
    pub counters: VolumeCounters,
}

/// What holds a volume's data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Backend {
    /// The pool that its name begins with.
    Pool {
        /// Bytes in one disk group before the next group's turn; none leaves the choice to the pool.
        stripe_unit: Option<Size>,
    },
    /// A file or a block device, as it is.
    File {
        /// Where.
        path: String,
    },
    /// Memory. Gone with the daemon.
    Ram,
    /// Nothing: writes are forgotten, reads are zeros. To measure everything else.
    Null,
}

/// How a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// It serves.
    Online,
    /// It does not serve: its pool has failed, or its file does not answer.
    Failed,
    /// It is known, but what holds its data was not found.
    Missing,
}

/// What hosts have done with a volume since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCounters {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands that ended with a medium or hardware error.
    pub errors: u64,
}

impl Backend {
    /// The kind in one word.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pool { .. } => "pool",
            Self::File { .. } => "file",
            Self::Ram => "ram",
            Self::Null => "null",
        }
    }
}

impl VolumeState {
    /// The state in one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}
