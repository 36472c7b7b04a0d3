//! Volumes: state, space allocation and backends.

use crate::{
    CacheReport, CopyReport, Progress, ReservationReport, Size, SnapshotName, VolumeId, VolumeName, VolumePolicy,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum number of volumes of an array.
pub const VOLUMES_MAX: usize = 16_384;
/// Maximum number of volumes of a pool, including clones (docs/on-disk.md).
pub const POOL_VOLUMES_MAX: usize = 1024;

/// Minimum size of a new volume. Smaller volumes of earlier versions remain usable.
pub const VOLUME_SIZE_MIN: Size = Size::mib(1);

/// State of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeReport {
    /// Name of the volume.
    pub name: VolumeName,
    /// Identity, which is reported to hosts.
    pub id: VolumeId,
    /// Capacity.
    pub size: Size,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Storage that holds the data.
    pub backend: Backend,
    /// State.
    pub state: VolumeState,
    /// Reason why it is offline, if it is and the reason is known.
    #[serde(default)]
    pub reason: Option<String>,
    /// Host I/O since it was opened.
    pub counters: VolumeCounters,
    /// Space allocation in the pool; absent for volumes without a map.
    #[serde(default)]
    pub space: Option<SpaceReport>,
    /// Caching policy and QoS limits; absent for volumes that do not belong to a pool.
    #[serde(default)]
    pub policy: Option<VolumePolicy>,
    /// Cache counters; absent for volumes that do not belong to a pool.
    #[serde(default)]
    pub cache: Option<CacheReport>,
    /// Copy that fills the volume, until it is complete; the volume cannot be used before.
    #[serde(default)]
    pub copy: Option<Box<CopyReport>>,
    /// Persistent reservation or registrations of hosts, if there are any.
    #[serde(default)]
    pub reservation: Option<Box<ReservationReport>>,
    /// State of a SANITIZE requested by a host; the volume is offline until it has succeeded.
    #[serde(default)]
    pub sanitize: Option<SanitizeReport>,
}

impl VolumeReport {
    /// Returns the report of an offline volume, for which nothing more is known.
    #[must_use]
    pub fn offline(
        name: VolumeName,
        id: VolumeId,
        size: Size,
        block_bytes: u32,
        backend: Backend,
        (state, why): (VolumeState, Option<String>),
    ) -> Self {
        // Counters live in the open volume, so an offline one has none to report.
        let counters = VolumeCounters::default();
        let (space, policy, cache, copy, reservation, sanitize) = (None, None, None, None, None, None);
        Self {
            name,
            id,
            size,
            block_bytes,
            backend,
            state,
            reason: why,
            counters,
            space,
            policy,
            cache,
            copy,
            reservation,
            sanitize,
        }
    }
}

/// State of a SANITIZE requested by a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SanitizeReport {
    /// In progress.
    Running {
        /// Progress in percent.
        percent: u8,
    },
    /// Failed, and not requested again.
    Failed,
}

/// Space allocation of a volume with a map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpaceReport {
    /// Allocated bytes of the volume, including those shared with snapshots.
    pub mapped: Size,
    /// Part of these that is also referenced by a snapshot or by the origin of a clone.
    pub shared: Size,
    /// Bytes reserved for future writes.
    pub reserved: Size,
    /// Bytes released by hosts since the pool was opened: unmapped, or written as zeros with zero detection.
    pub reclaimed: Size,
    /// Bytes referenced only by its snapshots; absent if clones share them.
    pub held_by_snapshots: Option<Size>,
    /// Number of snapshots.
    pub snapshots: u32,
    /// Snapshot of which the volume is a clone.
    pub clone_of: Option<SnapshotName>,
    /// Progress of the reclamation of unreferenced space, while it runs.
    pub cleaning: Option<Progress>,
}

/// Space allocation of a volume in a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Provision {
    /// Thick: space for the whole volume is reserved, and no write fails for lack of space.
    #[default]
    Thick,
    /// Thin: space is allocated on write.
    Thin,
    /// Contiguous: whole slabs without a map; no snapshots.
    Segments,
}

/// Storage that holds the data of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Backend {
    /// Pool that the volume name begins with.
    Pool {
        /// Contiguous bytes in one disk group, for a volume in segments; absent for a choice by the pool.
        stripe_unit: Option<Size>,
        /// Space allocation.
        #[serde(default)]
        provision: Provision,
        /// Allocation unit; absent for 64 KiB, and for a volume in segments.
        #[serde(default)]
        granule: Option<Size>,
        /// True if whole granules of zeros do not occupy space.
        #[serde(default)]
        zero_detection: bool,
        /// True if the data is encrypted on the disks.
        #[serde(default)]
        encrypted: bool,
    },
    /// File or block device, passed through unchanged.
    File {
        /// Path.
        path: String,
    },
    /// Memory; lost when the daemon stops.
    Ram,
    /// Null device: writes are discarded, reads return zeros. For benchmarks of the remaining data path.
    Null,
}

/// State of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Online.
    Online,
    /// Offline: its pool has failed, or its file does not respond.
    Failed,
    /// Known, but its storage was not found.
    Missing,
    /// Being filled by a copy, and not usable before its completion.
    Copying,
}

/// Host I/O of a volume since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeCounters {
    /// Read commands.
    pub reads: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands that failed with a medium error or hardware error.
    pub errors: u64,
    /// Commands that failed with a reservation conflict.
    #[serde(default)]
    pub conflicts: u64,
}

impl Provision {
    /// Returns the allocation as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Thick => "thick",
            Self::Thin => "thin",
            Self::Segments => "segments",
        }
    }
}

impl Backend {
    /// Returns the backend of a thick volume in a pool with default options.
    #[must_use]
    pub const fn pool() -> Self {
        Self::Pool {
            stripe_unit: None,
            provision: Provision::Thick,
            granule: None,
            zero_detection: false,
            encrypted: false,
        }
    }

    /// Returns the kind as one word; for a volume in a pool its space allocation.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Pool { provision, .. } => provision.as_str(),
            Self::File { .. } => "file",
            Self::Ram => "ram",
            Self::Null => "null",
        }
    }
}

impl VolumeState {
    /// Returns the state as one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Failed => "failed",
            Self::Missing => "missing",
            Self::Copying => "copying",
        }
    }
}
