//! What is asked of a pool about thin volumes, snapshots and clones, and what it tells of them.

use crate::catalog::LOCKED_FOR_EVER;
use crate::crypt::NewKey;
use block::Extent;
use uuid::Uuid;

/// Whether the space of a volume is kept for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// Space is taken as it is written; a write is refused when the pool is full.
    #[default]
    Thin,
    /// Space for all of the volume is kept, beside what its snapshots hold; no write is ever refused for want of it.
    Thick,
}

/// A volume with a map, to be made: the first of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinPlan {
    /// Which volume it will be.
    pub id: Uuid,
    /// What it will be called; no other volume of the pool is.
    pub name: String,
    /// Its size as hosts see it, a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Bytes of a logical block as hosts see it: 512 or 4096.
    pub block_bytes: u32,
    /// The unit in which space is given and shared: a power of two from 16 KiB to 1 MiB; 0 for 64 KiB.
    pub granule_bytes: u32,
    /// Whether its space is kept for it.
    pub provisioning: Provisioning,
    /// True when whole granules of zeros take no space, and a part of one leaves a hole a hole.
    pub zero_detection: bool,
    /// The key of its data, and of its snapshots and clones; none to leave it as hosts write it.
    pub encryption: Option<NewKey>,
    /// The time, in seconds since 1970.
    pub created_at: u64,
}

/// A snapshot to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// Which snapshot it will be.
    pub id: Uuid,
    /// Of which volume.
    pub volume: Uuid,
    /// What it will be called; no other snapshot of the volume is.
    pub name: String,
    /// Until when it cannot be deleted.
    pub lock: Lock,
    /// The time, in seconds since 1970.
    pub created_at: u64,
}

/// Until when a snapshot cannot be deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// It can be deleted.
    #[default]
    Open,
    /// Not before this time, in seconds since 1970.
    Until(u64),
    /// Never.
    ForEver,
}

impl Lock {
    pub(crate) fn until(self) -> u64 {
        match self {
            Self::Open => 0,
            Self::Until(time) => time,
            Self::ForEver => LOCKED_FOR_EVER,
        }
    }

    pub(crate) fn of(until: u64) -> Self {
        match until {
            0 => Self::Open,
            LOCKED_FOR_EVER => Self::ForEver,
            time => Self::Until(time),
        }
    }
}

/// A writable copy of a snapshot, to be made: a volume of the same family that shares what it does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClonePlan {
    /// Which volume it will be.
    pub id: Uuid,
    /// What it will be called; no other volume of the pool is.
    pub name: String,
    /// Of which snapshot; that cannot be deleted as long as the clone is there.
    pub snapshot: Uuid,
    /// Whether its space is kept for it.
    pub provisioning: Provisioning,
    /// As in [`ThinPlan`].
    pub zero_detection: bool,
    /// The time, in seconds since 1970.
    pub created_at: u64,
}

/// A family as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyStatus {
    /// Which family.
    pub id: Uuid,
    /// Bytes of a granule.
    pub granule_bytes: u32,
    /// Bytes of the slabs that its data has.
    pub data_bytes: u64,
    /// Bytes of the slabs that its map has.
    pub map_bytes: u64,
    /// Bytes of all granules that its volumes and snapshots hold together; none while the family is not open.
    pub allocated_bytes: Option<u64>,
    /// Its volumes.
    pub volumes: Vec<ThinStatus>,
}

/// A volume of a family as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinStatus {
    /// Which volume.
    pub id: Uuid,
    /// What it is called in its pool.
    pub name: String,
    /// Its size as hosts see it.
    pub size_bytes: u64,
    /// Bytes of a logical block as hosts see it.
    pub block_bytes: u32,
    /// When it was made, in seconds since 1970.
    pub created_at: u64,
    /// Whether its space is kept for it.
    pub provisioning: Provisioning,
    /// True when zeros take no space.
    pub zero_detection: bool,
    /// True when what it holds is encrypted on the disks, with that of its family.
    pub is_encrypted: bool,
    /// The snapshot that it is a clone of.
    pub clone_of: Option<Uuid>,
    /// True when it is deleted, and what it held is being given back.
    pub is_dying: bool,
    /// True while what it is to show is being copied to it.
    pub is_partial: bool,
    /// True while space that nobody sees any more is being given back.
    pub is_cleaning: bool,
    /// Bytes that it shows as data, shared or not; none while its family is not open.
    pub mapped_bytes: Option<u64>,
    /// Of these, bytes that a snapshot or an origin holds, too.
    pub shared_bytes: Option<u64>,
    /// Bytes that are kept for what it may still write.
    pub reserved_bytes: u64,
    /// Bytes that became holes since the family was opened: discarded, or zeros where those take no space.
    pub reclaimed_bytes: u64,
    /// Its snapshots, the oldest first.
    pub snapshots: Vec<SnapshotStatus>,
}

/// A snapshot as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotStatus {
    /// Which snapshot.
    pub id: Uuid,
    /// What it is called.
    pub name: String,
    /// The size of the volume when it was made.
    pub size_bytes: u64,
    /// When it was made, in seconds since 1970.
    pub created_at: u64,
    /// Until when it cannot be deleted.
    pub lock: Lock,
    /// True when a clone needs it.
    pub is_cloned: bool,
    /// What the snapshots have in common that were made at one instant; nil for one alone.
    pub set: Uuid,
    /// Bytes that it shows as data.
    pub mapped_bytes: u64,
    /// Deleting it gives back at least so many bytes; none while its family is not open.
    pub frees_bytes_min: Option<u64>,
}

/// A run of blocks of a volume that are all mapped, or none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedRun {
    /// Which blocks, in blocks of 4096 bytes.
    pub extent: Extent,
    /// False when they read as zeros and take no space.
    pub mapped: bool,
}

/// Copies of a block of a family's map that were not whole, and are again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRepair {
    /// Which family.
    pub family: Uuid,
    /// What the block is: "head", "free-page bitmap", "log block" or "page".
    pub what: &'static str,
    /// Its number in the map.
    pub block: u64,
    /// How many copies were written again.
    pub copies: u64,
}

/// Something about the space of a pool that an operator wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceEvent {
    /// What is used has risen to the soft threshold.
    Soft {
        /// Bytes that are used.
        used_bytes: u64,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// What is used has risen to the hard threshold.
    Hard {
        /// Bytes that are used.
        used_bytes: u64,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// What is used has fallen below the soft threshold.
    Relieved {
        /// Bytes that are used.
        used_bytes: u64,
        /// Bytes of the pool.
        bytes: u64,
    },
    /// A write to the volume was refused because nothing is left.
    Exhausted {
        /// Which volume.
        volume: Uuid,
    },
}

/// How full a pool may be before somebody hears of it, in thousandths; 0: nobody does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thresholds {
    /// The operator should think of more disks.
    pub soft: u16,
    /// Writes will be refused soon.
    pub hard: u16,
}

/// What one step of the background work of a pool's families has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tended {
    /// Granules that were given back.
    pub freed_granules: u64,
    /// Slabs that the pool has back.
    pub freed_slabs: u64,
    /// True when there is more to do now.
    pub more: bool,
}

/// How far the cleaning of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// Which volume.
    pub volume: Uuid,
    /// Granules that were looked at.
    pub done: u64,
    /// Granules that are to be looked at.
    pub total: u64,
}
