//! What a pool remembers of its families: which slabs each has, its volumes, their snapshots and clones.

use super::Catalog;
use crate::crypt::WrappedKey;
use uuid::Uuid;

/// The most snapshots of a pool, over all of its volumes.
pub const SNAPSHOTS_MAX: usize = 1 << 14;
/// The most branches between a clone and the first volume of its family.
pub const DEPTH_MAX: usize = 16;
/// The most times that a volume may have been rolled back while that still matters to somebody.
pub const DEAD_RANGES_MAX: usize = 64;
/// The most metadata slabs of a family.
pub const META_RUNS_MAX: usize = 1 << 12;
/// The smallest and the largest granule, in bytes.
pub const GRANULE_BYTES: std::ops::RangeInclusive<u32> = 16 << 10..=1 << 20;
/// Stands for a lock that nothing ends.
pub const LOCKED_FOR_EVER: u64 = u64::MAX;

/// A volume with its snapshots and clones, and the slabs that they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyRecord {
    /// Which family: the identity of its first volume.
    pub id: Uuid,
    /// The pool's generation when it was made: tells it from an earlier family with the same identity.
    pub birth: u64,
    /// Bytes of a granule.
    pub granule_bytes: u32,
    /// Blocks of the map log.
    pub log_blocks: u32,
    /// True when the head of the map is on its slab; until then no head stands for an empty map.
    pub formatted: bool,
    /// How many branches it ever had; the number of the next.
    pub branches_made: u32,
    /// The slabs of its map, in the order of their addresses.
    pub meta: Vec<SlabRun>,
    /// The slabs of its data, in ascending order.
    pub data: Vec<SlabRun>,
    /// The key of its data, wrapped; none where data lies as hosts wrote it.
    pub key: Option<WrappedKey>,
    /// Its volumes, in the order in which they were made.
    pub branches: Vec<BranchRecord>,
}

/// Slabs of one group that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlabRun {
    /// Which group, by its place in the catalog.
    pub group: u16,
    /// The first slab.
    pub first: u32,
    /// How many slabs.
    pub slabs: u32,
}

/// A volume of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRecord {
    /// Which volume.
    pub id: Uuid,
    /// What it is called in its pool.
    pub name: String,
    /// Its number in the family, never used again.
    pub number: u32,
    /// Its size as hosts see it; a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Bytes of a logical block as hosts see it: 512 or 4096.
    pub block_bytes: u32,
    /// True when space for all of it is kept.
    pub thick: bool,
    /// True when zeros that are written to a hole leave it one.
    pub zero_detection: bool,
    /// True when it is deleted, and what it had is being given back.
    pub dying: bool,
    /// True while what it is to show is being copied to it.
    pub partial: bool,
    /// When it was made, in seconds since 1970.
    pub created_at: u64,
    /// The epoch of what is written now, from 1 on.
    pub epoch: u64,
    /// How many granules it showed as data when the epoch began.
    pub mapped: u64,
    /// Raised by whatever makes versions that nobody sees; the cleaning of that number removes them. 0: all is clean.
    pub cleaning: u32,
    /// For a clone: the number of the branch and the epoch of the snapshot that it was made of.
    pub parent: Option<Parent>,
    /// The epochs that roll-backs left behind, in the order of the roll-backs.
    pub dead: Vec<DeadRange>,
    /// Its snapshots, by ascending epochs.
    pub snapshots: Vec<SnapshotRecord>,
}

/// Where a clone finds what it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The number of the branch.
    pub branch: u32,
    /// The epoch of its snapshot.
    pub epoch: u64,
}

/// Epochs above `after` up to `last`: who stands above `last` continues from `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadRange {
    /// The epoch that was rolled back to.
    pub after: u64,
    /// The epoch that was given up.
    pub last: u64,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// Which snapshot.
    pub id: Uuid,
    /// What it is called; no other snapshot of its volume is.
    pub name: String,
    /// The epoch that it closed.
    pub epoch: u64,
    /// The size of the volume then.
    pub size_bytes: u64,
    /// How many granules it shows as data.
    pub mapped: u64,
    /// When it was made, in seconds since 1970.
    pub created_at: u64,
    /// It cannot be deleted before this time, in seconds since 1970; 0: it can.
    pub locked_until: u64,
    /// What the snapshots have in common that were made at one instant; nil for one alone.
    pub set: Uuid,
}

impl FamilyRecord {
    /// The branch with this number.
    #[must_use]
    pub fn branch(&self, number: u32) -> Option<&BranchRecord> {
        self.branches.iter().find(|branch| branch.number == number)
    }

    /// True when a clone was made of the snapshot of `branch` with this epoch.
    #[must_use]
    pub fn is_cloned(&self, branch: u32, epoch: u64) -> bool {
        self.branches.iter().any(|clone| clone.parent == Some(Parent { branch, epoch }))
    }

    /// How many branches stand between `branch` and the family's first volume, that one included.
    #[must_use]
    pub fn depth(&self, branch: &BranchRecord) -> usize {
        let parent = |branch: &BranchRecord| self.branch(branch.parent?.branch);
        // A clone has a larger number than what it was made of, so this ends.
        std::iter::successors(parent(branch), |&above| parent(above)).count()
    }
}

impl Catalog {
    /// True when a volume takes space as it is written: a thin one, or one with a snapshot.
    #[must_use]
    pub fn takes_space_later(&self) -> bool {
        let mut branches = self.families.iter().flat_map(|family| &family.branches);
        branches.any(|branch| !branch.thick || !branch.snapshots.is_empty())
    }

    /// The family of the volume `id`, and the volume.
    #[must_use]
    pub fn branch(&self, id: Uuid) -> Option<(&FamilyRecord, &BranchRecord)> {
        let mut all =
            self.families.iter().flat_map(|family| family.branches.iter().map(move |branch| (family, branch)));
        all.find(|(_, branch)| branch.id == id)
    }

    /// The family and the volume of the snapshot `id`, and the snapshot.
    #[must_use]
    pub fn snapshot(&self, id: Uuid) -> Option<(&FamilyRecord, &BranchRecord, &SnapshotRecord)> {
        self.families.iter().find_map(|family| {
            family.branches.iter().find_map(|branch| {
                let snapshot = branch.snapshots.iter().find(|snapshot| snapshot.id == id)?;
                Some((family, branch, snapshot))
            })
        })
    }

    /// How many volumes the pool has, of every kind.
    #[must_use]
    pub fn volume_count(&self) -> usize {
        self.volumes.len() + self.families.iter().map(|family| family.branches.len()).sum::<usize>()
    }

    /// True when a volume of any kind has the name.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        let branches = || self.families.iter().flat_map(|family| &family.branches);
        self.volumes.iter().any(|volume| volume.name == name) || branches().any(|branch| branch.name == name)
    }

    /// True when a volume of any kind or a snapshot has the identity.
    #[must_use]
    pub fn has_id(&self, id: Uuid) -> bool {
        self.volume(id).is_some() || self.branch(id).is_some() || self.snapshot(id).is_some()
    }

    /// The family `id`.
    #[must_use]
    pub fn family(&self, id: Uuid) -> Option<&FamilyRecord> {
        self.families.iter().find(|family| family.id == id)
    }

    pub(crate) fn family_mut(&mut self, id: Uuid) -> Option<&mut FamilyRecord> {
        self.families.iter_mut().find(|family| family.id == id)
    }

    pub(crate) fn branch_mut(&mut self, id: Uuid) -> Option<&mut BranchRecord> {
        self.families.iter_mut().flat_map(|family| &mut family.branches).find(|branch| branch.id == id)
    }
}
