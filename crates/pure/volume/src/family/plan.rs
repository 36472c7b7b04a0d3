//! Requests and status types for thin volumes, snapshots and clones, as exchanged with callers of the pool.

use crate::catalog::LOCKED_PERMANENTLY;
use crate::crypt::NewKey;
use block::Extent;
use uuid::Uuid;

/// Space provisioning of a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// Thin: space is allocated on write; a write is refused when the pool is full.
    #[default]
    Thin,
    /// Thick: space for the whole volume is reserved, beside what its snapshots hold; no write is refused for
    /// lack of space.
    Thick,
}

/// Parameters of a new thin volume, the first of its family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinPlan {
    /// UUID of the new volume.
    pub id: Uuid,
    /// Name, unique among the volumes of the pool.
    pub name: String,
    /// Size in bytes as hosts see it, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Logical block size as hosts see it: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// Unit of allocation and sharing in bytes: a power of two from 16 KiB to 1 MiB; 0 selects 64 KiB.
    pub granule_bytes: u32,
    /// Provisioning of the volume.
    pub provisioning: Provisioning,
    /// True when whole granules of zeros are not allocated, and zeros written to a part of an unmapped granule
    /// leave it unmapped.
    pub zero_detection: bool,
    /// Data key of the family (the volume, its snapshots and clones); none for no encryption.
    pub encryption: Option<NewKey>,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
}

/// Parameters of a new snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// UUID of the new snapshot.
    pub id: Uuid,
    /// UUID of the volume.
    pub volume: Uuid,
    /// Name, unique among the snapshots of the volume.
    pub name: String,
    /// Retention lock.
    pub lock: Lock,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
}

/// Retention lock: time before which a snapshot cannot be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// Not locked.
    #[default]
    Open,
    /// Locked until this time, in seconds since 1970.
    Until(u64),
    /// Locked permanently.
    Permanent,
}

impl Lock {
    pub(crate) fn until(self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Until(time) => time,
            Self::Permanent => LOCKED_PERMANENTLY,
        }
    }

    pub(crate) fn of(until: u64) -> Self {
        match until {
            // The stored form of a lock: 0 for none, all ones for permanent.
            0 => Self::Open,
            LOCKED_PERMANENTLY => Self::Permanent,
            time => Self::Until(time),
        }
    }
}

/// Parameters of a new clone: a writable volume of the same family that shares unmodified granules with the
/// snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClonePlan {
    /// UUID of the new volume.
    pub id: Uuid,
    /// Name, unique among the volumes of the pool.
    pub name: String,
    /// UUID of the origin snapshot, which cannot be deleted while the clone exists.
    pub snapshot: Uuid,
    /// Provisioning of the clone.
    pub provisioning: Provisioning,
    /// Zero detection, as in [`ThinPlan`].
    pub zero_detection: bool,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
}

/// Current state of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyStatus {
    /// UUID of the family.
    pub id: Uuid,
    /// Granule size in bytes.
    pub granule_bytes: u32,
    /// Bytes of the data slabs it has leased.
    pub data_bytes: u64,
    /// Bytes of the metadata slabs it has leased.
    pub map_bytes: u64,
    /// Bytes of all allocated granules of its volumes and snapshots; none while the family is not open.
    pub allocated_bytes: Option<u64>,
    /// Volumes of the family.
    pub volumes: Vec<ThinStatus>,
}

/// Current state of a volume of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinStatus {
    /// UUID of the volume.
    pub id: Uuid,
    /// Name of the volume.
    pub name: String,
    /// Size in bytes as hosts see it.
    pub size_bytes: u64,
    /// Logical block size in bytes as hosts see it.
    pub block_bytes: u32,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
    /// Provisioning of the volume.
    pub provisioning: Provisioning,
    /// True when zero detection is on.
    pub zero_detection: bool,
    /// True when the data of the family is encrypted on the disks.
    pub is_encrypted: bool,
    /// UUID of the origin snapshot, if the volume is a clone.
    pub clone_of: Option<Uuid>,
    /// True while the volume is being deleted and its space freed.
    pub is_deleting: bool,
    /// True while the volume is the target of an unfinished copy.
    pub is_partial: bool,
    /// True while space that no snapshot or volume refers to is being freed.
    pub is_cleaning: bool,
    /// Bytes mapped, shared or not; none while the family is not open.
    pub mapped_bytes: Option<u64>,
    /// Bytes of these that a snapshot or an origin shares.
    pub shared_bytes: Option<u64>,
    /// Bytes reserved for future writes.
    pub reserved_bytes: u64,
    /// Bytes unmapped since the family was opened: discarded, or zeros detected.
    pub reclaimed_bytes: u64,
    /// Snapshots, oldest first.
    pub snapshots: Vec<SnapshotStatus>,
}

/// Current state of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// UUID of the snapshot.
    pub id: Uuid,
    /// Name of the snapshot.
    pub name: String,
    /// Size of the volume in bytes when the snapshot was taken.
    pub size_bytes: u64,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
    /// Retention lock.
    pub lock: Lock,
    /// True when a clone depends on it.
    pub is_cloned: bool,
    /// UUID of the snapshot set that was taken at one instant; nil for a single snapshot.
    pub set: Uuid,
    /// Bytes mapped.
    pub mapped_bytes: u64,
    /// Lower bound of the bytes that deleting it frees; none while its family is not open.
    pub frees_bytes_min: Option<u64>,
}

/// Run of blocks of a volume that are all mapped or all unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRun {
    /// Blocks of the run, in units of 4096 bytes.
    pub extent: Extent,
    /// False when the blocks are unallocated and read as zeros.
    pub mapped: bool,
}

/// Repair of damaged copies of a map block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRepair {
    /// UUID of the family.
    pub family: Uuid,
    /// Kind of the block: "head", "free-page bitmap", "log block" or "page".
    pub what: &'static str,
    /// Block number in the map.
    pub block: u64,
    /// Number of copies rewritten.
    pub copies: u64,
}

/// Change of a pool's fill level, reported to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceEvent {
    /// Pool usage rose to the soft threshold.
    Soft {
        /// Bytes used.
        used_bytes: u64,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// Pool usage rose to the hard threshold.
    Hard {
        /// Bytes used.
        used_bytes: u64,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// Pool usage fell below the soft threshold.
    Relieved {
        /// Bytes used.
        used_bytes: u64,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// Write refused because the pool is full.
    Exhausted {
        /// UUID of the volume.
        volume: Uuid,
    },
}

/// Usage thresholds of a pool in thousandths of its size; 0 disables one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// Soft threshold: the pool should be extended.
    pub soft: u16,
    /// Hard threshold: writes will soon be refused.
    pub hard: u16,
}

/// Result of one background step over the families of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaintenanceResult {
    /// Number of granules freed.
    pub freed_granules: u64,
    /// Number of slabs returned to the pool.
    pub freed_slabs: u64,
    /// True when more work is due now.
    pub more: bool,
}

/// Progress of freeing unreferenced space of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GcProgress {
    /// UUID of the volume.
    pub volume: Uuid,
    /// Number of granules examined.
    pub done: u64,
    /// Number of granules to examine.
    pub total: u64,
}
