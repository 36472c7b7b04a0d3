//! What a pool knows of itself: its groups and their members, its volumes and where they lie.

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
    BranchRecord, DEAD_RANGES_MAX, DEPTH_MAX, DeadRange, FamilyRecord, GRANULE_BYTES, LOCKED_FOR_EVER, META_RUNS_MAX,
    Parent, SNAPSHOTS_MAX, SlabRun, SnapshotRecord,
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

use block::Blocks;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Stands for "the generation that commits this" until a commit puts it there.
pub(crate) const SINCE_NEXT: u64 = u64::MAX;

/// The most groups of a pool.
pub const GROUPS_MAX: usize = 64;
/// The most members of a group.
pub const MEMBERS_MAX: usize = 64;
/// The most volumes of a pool.
pub const VOLUMES_MAX: usize = 1024;
/// The most slabs of a pool, over all of its groups.
pub const SLABS_MAX: u32 = 1 << 22;
/// The most segments of a pool, over all of its volumes.
pub const SEGMENTS_MAX: usize = 1 << 16;
/// The largest volume, in bytes.
pub const VOLUME_BYTES_MAX: u64 = 64 << 40;

/// Everything that a pool must remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalog {
    /// Which pool.
    pub pool: Uuid,
    /// What it is called.
    pub name: String,
    /// Whether the pool is whole, not yet made or not any more.
    pub phase: PoolPhase,
    /// Raised by whoever takes the pool over from another node; every later write is fenced by it.
    pub owner_epoch: u64,
    /// The least size of a slab, in bytes; each group rounds it up to whole stripes.
    pub slab_bytes: u64,
    /// The disk groups, in an order that never changes.
    pub groups: Vec<GroupRecord>,
    /// The volumes that lie in segments.
    pub volumes: Vec<VolumeRecord>,
    /// The families: volumes with a map, their snapshots and clones.
    pub families: Vec<FamilyRecord>,
    /// The write log, once there is one.
    pub log: Option<LogRecord>,
    /// What hosts have reserved of volumes and want to find again, in the words of who serves them; never empty. What is
    /// kept of a volume that is gone is not committed.
    pub reservations: BTreeMap<Uuid, Vec<u8>>,
    /// The scrub that runs, or the last one.
    pub scrub: Option<ScrubRecord>,
    /// Blocks of groups whose content could not be restored, by the place of the group.
    pub lost: BTreeMap<u16, LostRecord>,
    /// Copies to volumes that are not whole yet, by these. What is kept of other volumes is not committed.
    pub copies: BTreeMap<Uuid, CopyRecord>,
    /// The commit that announced the latest writes; see [`Catalog::is_written_since`]. None where nobody knows.
    pub written: Option<u64>,
}

/// Where a pool stands between its creation and its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolPhase {
    /// Not all of its disks are labelled: nothing of it may be used, and its disks are free.
    Forming,
    /// It serves.
    Live,
    /// Its labels are being wiped: nothing of it may be used, and its disks are free.
    Destroyed,
}

/// One disk group: an array and who is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// Which group.
    pub id: Uuid,
    /// What it is there for.
    pub role: GroupRole,
    /// Its RAID level, in the code of who builds the array (`docs/on-disk.md` lists them).
    pub level: u8,
    /// False while parity may be stale after a crash.
    pub clean: bool,
    /// True where the array keeps sums and a log of its own: it is never stale, and `clean` stays true.
    pub protected: bool,
    /// Bytes on one member before the next member's turn.
    pub chunk_bytes: u32,
    /// How many blocks of its data area each member gives.
    pub member_blocks: Blocks,
    /// Blocks of one slab of this group: whole stripes.
    pub slab_blocks: u32,
    /// How many slabs the group has.
    pub slabs: u32,
    /// Its members, by position.
    pub members: Vec<MemberRecord>,
}

/// What a group is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupRole {
    /// Its slabs are the volumes'.
    #[default]
    Data,
    /// The write log lies on it; it has no slabs.
    Log,
    /// It was removed: it has no members and no slabs, and keeps its place so that no other gets its number.
    Removed,
}

/// One position of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Which disk belongs there.
    pub disk: Uuid,
    /// How it is.
    pub state: MemberState,
    /// The generation that gave it this state; progress of a rebuild does not count.
    pub since: u64,
}

/// How a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// It holds all that it should.
    InService,
    /// It is being filled, and holds what it should below `front`.
    Rebuilding {
        /// In blocks of the member's data area.
        front: Blocks,
    },
    /// It was given up while the pool was open; what it holds is old.
    Failed,
    /// It was not there when the pool was opened; what it holds is old.
    Missing,
}

impl MemberState {
    /// True when the disk takes part: it gets every write and every catalog.
    #[must_use]
    pub fn takes_part(self) -> bool {
        matches!(self, Self::InService | Self::Rebuilding { .. })
    }

    /// True when both are the same but for the progress of a rebuild.
    pub(crate) fn is_like(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

/// One volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Which volume.
    pub id: Uuid,
    /// What it is called in its pool.
    pub name: String,
    /// Its size as hosts see it; a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Bytes of a logical block as hosts see it: 512 or 4096.
    pub block_bytes: u32,
    /// Bytes on one group before the next group's turn; 0 for one full stripe of each group.
    pub stripe_unit_bytes: u32,
    /// When it was made, in seconds since 1970.
    pub created_at: u64,
    /// Where its blocks lie, in order.
    pub segments: Vec<Segment>,
}

/// Consecutive rows over the same groups, each column a run of slabs of one group.
///
/// Row `r` is made of slab `first_slab + r` of every column. Its blocks go round the columns, `unit_blocks`
/// to each, as often as every column has room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// How many rows.
    pub rows: u32,
    /// How often a row goes round its columns.
    pub rounds: u32,
    /// The columns, in the order of their turns.
    pub columns: Vec<Column>,
    /// Which slabs hold what their volume wrote; the others read as zeros. Slab `r * columns + c` is that of row `r` and column `c`.
    pub initialised: SlabSet,
}

/// A run of slabs of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Which group, by its place in the catalog.
    pub group: u16,
    /// The slab of the first row.
    pub first_slab: u32,
    /// Blocks of one turn.
    pub unit_blocks: u32,
}

impl Segment {
    /// Blocks of one time round the columns.
    #[must_use]
    pub fn round_blocks(&self) -> u64 {
        self.columns.iter().map(|column| u64::from(column.unit_blocks)).sum()
    }

    /// Blocks of one row.
    #[must_use]
    pub fn row_blocks(&self) -> u64 {
        self.round_blocks() * u64::from(self.rounds)
    }

    /// Blocks of all rows.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.row_blocks() * u64::from(self.rows)
    }
}

impl Catalog {
    /// The volume `id`.
    #[must_use]
    pub fn volume(&self, id: Uuid) -> Option<&VolumeRecord> {
        self.volumes.iter().find(|volume| volume.id == id)
    }

    /// All members of all groups.
    pub fn members(&self) -> impl Iterator<Item = &MemberRecord> {
        self.groups.iter().flat_map(|group| &group.members)
    }

    /// The member that is disk `disk`.
    #[must_use]
    pub fn member(&self, disk: Uuid) -> Option<&MemberRecord> {
        self.members().find(|member| member.disk == disk)
    }

    pub(crate) fn member_mut(&mut self, disk: Uuid) -> Option<&mut MemberRecord> {
        self.groups.iter_mut().flat_map(|group| &mut group.members).find(|member| member.disk == disk)
    }
}
