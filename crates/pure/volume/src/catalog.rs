//! Pool catalog: groups and their members, volumes and their allocation, and all other persistent state of a
//! pool.
//!
//! `Store` commits it to every member disk. Byte layout: `docs/on-disk.md`,
//! *Catalog*.

mod check;
mod copies;
mod family;
mod family_check;
mod family_wire;
mod log;
mod lost;
mod map_shape;
mod reservations;
mod scrub;
mod slab_set;
mod wire;
mod written;

pub use copies::{CopyRecord, SOURCE_BYTES_MAX};
pub use family::{
    BranchRecord, DEAD_RANGES_MAX, DEPTH_MAX, DeadRange, FamilyRecord, GRANULE_BYTES, LOCKED_PERMANENTLY,
    META_RUNS_MAX, Parent, SNAPSHOTS_MAX, SlabRun, SnapshotRecord,
};
pub(crate) use family_check::{BRANCHES_MADE_MAX, LOG_BLOCKS_MIN};
pub(crate) use family_wire::RUN_BYTES;
pub use log::{LogRecord, LogState};
pub use lost::{LOST_RUNS_MAX, LostRecord};
pub(crate) use map_shape::MapShape;
pub use reservations::RESERVATIONS_BYTES_MAX;
pub use scrub::{ScrubPhase, ScrubPosition, ScrubRecord};
pub use slab_set::SlabSet;
pub use wire::CatalogError;
pub(crate) use wire::needed_by;

use block::{Blocks, IoError, IoErrorKind};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Placeholder for the generation of the next commit, which fills it in.
pub(crate) const SINCE_NEXT: u64 = u64::MAX;

/// Maximum number of groups of a pool.
pub const GROUPS_MAX: usize = 64;
/// Maximum number of members of a group.
pub const MEMBERS_MAX: usize = 64;
/// Maximum number of volumes of a pool.
pub const VOLUMES_MAX: usize = 1024;
/// Maximum number of slabs of a pool, over all groups.
pub const SLABS_MAX: u32 = 1 << 22;
/// Maximum number of segments of a pool, over all volumes.
pub const SEGMENTS_MAX: usize = 1 << 16;
/// Maximum size of a volume in bytes.
pub const VOLUME_BYTES_MAX: u64 = 64 << 40;

/// Catalog of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// UUID of the pool.
    pub pool: Uuid,
    /// Name of the pool.
    pub name: String,
    /// Phase of the pool's life.
    pub phase: PoolPhase,
    /// Epoch of the owner's claim, raised by each takeover; later writes are fenced by it.
    pub owner_epoch: u64,
    /// Minimum size of a slab in bytes; each group rounds it up to whole stripes.
    pub slab_bytes: u64,
    /// Disk groups, in an order that never changes.
    pub groups: Vec<GroupRecord>,
    /// Segmented (thick) volumes.
    pub volumes: Vec<VolumeRecord>,
    /// Volume families: volumes with a map, their snapshots and clones.
    pub families: Vec<FamilyRecord>,
    /// Write log, if there is one.
    pub log: Option<LogRecord>,
    /// Persistent reservations by volume, encoded by the SCSI layer; never empty. Entries of deleted volumes
    /// are not committed.
    pub reservations: BTreeMap<Uuid, Vec<u8>>,
    /// Running or last scrub.
    pub scrub: Option<ScrubRecord>,
    /// Unrecoverable blocks, by group index.
    pub lost: BTreeMap<u16, LostRecord>,
    /// Unfinished copies, by target volume. Entries of other volumes are not committed.
    pub copies: BTreeMap<Uuid, CopyRecord>,
    /// Generation of the commit that announced the latest writes, none if unknown; see
    /// [`Catalog::is_written_since`].
    pub written: Option<u64>,
}

/// Phase of a pool's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPhase {
    /// Being created: not all disks are labeled; the pool must not be used, and its disks are free.
    Forming,
    /// In service.
    Live,
    /// Being destroyed: labels are being wiped; the pool must not be used, and its disks are free.
    Destroyed,
}

/// Disk group: an array and its members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// UUID of the group.
    pub id: Uuid,
    /// Purpose of the group.
    pub role: GroupRole,
    /// RAID level in the encoding of the array code (listed in `docs/on-disk.md`).
    pub level: u8,
    /// False while parity may be stale after a crash.
    pub clean: bool,
    /// True when the array keeps its own checksums and redo log: it never needs a resync, and `clean` stays
    /// true.
    pub protected: bool,
    /// Chunk size in bytes: data on one member before the next member follows.
    pub chunk_bytes: u32,
    /// Number of data blocks that each member contributes.
    pub member_blocks: Blocks,
    /// Slab size of this group in blocks: whole stripes.
    pub slab_blocks: u32,
    /// Number of slabs.
    pub slabs: u32,
    /// Members, by position.
    pub members: Vec<MemberRecord>,
}

/// Purpose of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupRole {
    /// Data: its slabs belong to volumes.
    #[default]
    Data,
    /// Write log; the group has no slabs.
    Log,
    /// Removed: without members and slabs; the entry stays so that its index is not reused.
    Removed,
}

/// Position of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// UUID of the disk.
    pub disk: Uuid,
    /// State of the member.
    pub state: MemberState,
    /// Generation that set this state; rebuild progress does not count.
    pub since: u64,
}

/// State of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Up to date.
    InService,
    /// Being rebuilt; its content is valid below `front`.
    Rebuilding {
        /// Rebuild progress in blocks of the member's data area.
        front: Blocks,
    },
    /// Failed while the pool was open; its content is outdated.
    Failed,
    /// Not found when the pool was opened, or given up because it did not answer; its content is outdated.
    Missing,
}

impl MemberState {
    /// True when the disk participates: it gets every write and every commit.
    #[must_use]
    pub fn takes_part(self) -> bool {
        matches!(self, Self::InService | Self::Rebuilding { .. })
    }

    /// State in which a member is recorded that failed with this error: one that only did not answer in time may
    /// return by itself.
    #[must_use]
    pub fn after(error: IoError) -> Self {
        match error.kind {
            IoErrorKind::TimedOut => Self::Missing,
            _ => Self::Failed,
        }
    }

    /// True when both states are equal except for the rebuild progress.
    pub(crate) fn is_like(self, other: Self) -> bool {
        // States of one kind differ in the rebuild front alone.
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// Segmented volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// UUID of the volume.
    pub id: Uuid,
    /// Name of the volume, unique in its pool.
    pub name: String,
    /// Size in bytes as hosts see it; a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Logical block size as hosts see it: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// Stripe unit in bytes: data on one group before the next group follows; 0 for one full stripe of each
    /// group.
    pub stripe_unit_bytes: u32,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
    /// Segments in address order.
    pub segments: Vec<Segment>,
}

/// Rows of slabs over the same groups; each column is a run of slabs of one group.
///
/// Row `r` consists of slab `first_slab + r` of every column. Its blocks are striped over the columns in units
/// of `unit_blocks`, for as many rounds as the shortest column allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Number of rows.
    pub rows: u32,
    /// Number of rounds in a row.
    pub rounds: u32,
    /// Columns, in striping order.
    pub columns: Vec<Column>,
    /// Initialized slabs; the others read as zeros. Slab `r * columns + c` is that of row `r` and column `c`.
    pub initialised: SlabSet,
}

/// Run of slabs of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Index of the group in the catalog.
    pub group: u16,
    /// Slab of the first row.
    pub first_slab: u32,
    /// Stripe unit in blocks.
    pub unit_blocks: u32,
}

impl Segment {
    /// Number of blocks in one round over the columns.
    #[must_use]
    pub fn round_blocks(&self) -> u64 {
        self.columns.iter().map(|column| u64::from(column.unit_blocks)).sum()
    }

    /// Number of blocks in one row.
    #[must_use]
    pub fn row_blocks(&self) -> u64 {
        // Blocks behind the last full round of a slab are unused.
        self.round_blocks() * u64::from(self.rounds)
    }

    /// Number of blocks in all rows.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.row_blocks() * u64::from(self.rows)
    }
}

impl Catalog {
    /// Segmented volume `id`, if it exists.
    #[must_use]
    pub fn volume(&self, id: Uuid) -> Option<&VolumeRecord> {
        // A pool has at most 1,024 volumes, and reads and writes do not look them up here.
        self.volumes.iter().find(|volume| volume.id == id)
    }

    /// Members of all groups.
    pub fn members(&self) -> impl Iterator<Item = &MemberRecord> {
        self.groups.iter().flat_map(|group| &group.members)
    }

    /// Member with disk UUID `disk`.
    #[must_use]
    pub fn member(&self, disk: Uuid) -> Option<&MemberRecord> {
        self.members().find(|member| member.disk == disk)
    }

    pub(crate) fn member_mut(&mut self, disk: Uuid) -> Option<&mut MemberRecord> {
        // A disk is in at most one position; `check` verifies that.
        self.groups.iter_mut().flat_map(|group| &mut group.members).find(|member| member.disk == disk)
    }
}
