//! Catalog records of volume families: leased slabs, volumes, snapshots and clones.

use super::Catalog;
use crate::crypt::WrappedKey;
use uuid::Uuid;

/// Maximum number of snapshots of a pool, over all volumes.
pub const SNAPSHOTS_MAX: usize = 1 << 14;
/// Maximum number of branches between a clone and the first volume of its family.
pub const DEPTH_MAX: usize = 16;
/// Maximum number of roll-backs of a volume that still affect a viewer.
pub const DEAD_RANGES_MAX: usize = 64;
/// Maximum number of metadata slab runs of a family.
pub const META_RUNS_MAX: usize = 1 << 12;
/// Minimum and maximum granule size in bytes.
pub const GRANULE_BYTES: std::ops::RangeInclusive<u32> = 16 << 10..=1 << 20;
/// Lock time of a snapshot that is locked permanently.
pub const LOCKED_PERMANENTLY: u64 = u64::MAX;

/// Volume family: a volume with its snapshots and clones, and the slabs that they share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilyRecord {
    /// UUID of the family, which is that of its first volume.
    pub id: Uuid,
    /// Generation of the pool when it was created; distinguishes it from an earlier family with the same UUID.
    pub birth: u64,
    /// Granule size in bytes.
    pub granule_bytes: u32,
    /// Length of the map log in blocks.
    pub log_blocks: u32,
    /// True when the map has a head on disk; until then a missing head means an empty map.
    pub formatted: bool,
    /// Number of branches ever created; the number of the next one.
    pub branches_made: u32,
    /// Metadata slabs, in the order of their addresses.
    pub meta: Vec<SlabRun>,
    /// Data slabs, in ascending order.
    pub data: Vec<SlabRun>,
    /// Wrapped data key; none where the data is not encrypted.
    pub key: Option<WrappedKey>,
    /// Volumes, in the order of their creation.
    pub branches: Vec<BranchRecord>,
}

/// Run of adjacent slabs of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SlabRun {
    /// Index of the group in the catalog.
    pub group: u16,
    /// First slab.
    pub first: u32,
    /// Number of slabs.
    pub slabs: u32,
}

/// Volume of a family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchRecord {
    /// UUID of the volume.
    pub id: Uuid,
    /// Name of the volume, unique in its pool.
    pub name: String,
    /// Number in the family, never reused.
    pub number: u32,
    /// Size in bytes as hosts see it; a multiple of `block_bytes`.
    pub size_bytes: u64,
    /// Logical block size as hosts see it: 512 or 4096 bytes.
    pub block_bytes: u32,
    /// True when space for the whole volume is reserved.
    pub thick: bool,
    /// True when zeros written to a hole leave it a hole.
    pub zero_detection: bool,
    /// True when the volume is deleted and its space is being freed.
    pub deleting: bool,
    /// True while the volume is the target of an unfinished copy.
    pub partial: bool,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
    /// Epoch of current writes, from 1 on.
    pub epoch: u64,
    /// Number of granules mapped when the epoch began.
    pub mapped: u64,
    /// Number of the requested cleaning, raised by each operation that leaves unreferenced versions; 0 when all is
    /// clean.
    pub cleaning: u32,
    /// For a clone, its origin: branch number and snapshot epoch.
    pub parent: Option<Parent>,
    /// Epochs left behind by roll-backs, in the order of the roll-backs.
    pub dead: Vec<DeadRange>,
    /// Snapshots, by ascending epoch.
    pub snapshots: Vec<SnapshotRecord>,
}

/// Origin of a clone, where lookups continue for granules that the clone does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Number of the branch.
    pub branch: u32,
    /// Epoch of its snapshot.
    pub epoch: u64,
}

/// Dead epochs above `after` up to `last`: a viewer above `last` continues at `after`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadRange {
    /// Epoch of the snapshot that the volume was rolled back to.
    pub after: u64,
    /// Epoch that was given up.
    pub last: u64,
}

/// Snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRecord {
    /// UUID of the snapshot.
    pub id: Uuid,
    /// Name, unique among the snapshots of its volume.
    pub name: String,
    /// Epoch that it closed.
    pub epoch: u64,
    /// Size of the volume in bytes when it was taken.
    pub size_bytes: u64,
    /// Number of granules mapped.
    pub mapped: u64,
    /// Creation time in seconds since 1970.
    pub created_at: u64,
    /// Time before which it cannot be deleted, in seconds since 1970; 0 when it is not locked.
    pub locked_until: u64,
    /// UUID of the snapshot set that was taken at one instant; nil for a single snapshot.
    pub set: Uuid,
}

impl FamilyRecord {
    /// Branch with this number.
    #[must_use]
    pub fn branch(&self, number: u32) -> Option<&BranchRecord> {
        self.branches.iter().find(|branch| branch.number == number)
    }

    /// True when a clone depends on the snapshot of `branch` with this epoch.
    #[must_use]
    pub fn is_cloned(&self, branch: u32, epoch: u64) -> bool {
        self.branches.iter().any(|clone| clone.parent == Some(Parent { branch, epoch }))
    }

    /// Number of branches between `branch` and the family's first volume, including the latter.
    #[must_use]
    pub fn depth(&self, branch: &BranchRecord) -> usize {
        // The first volume of the family has no parent and ends the chain.
        let parent = |branch: &BranchRecord| self.branch(branch.parent?.branch);
        // Bounded: in a catalog that is being checked the parents may form a circle.
        std::iter::successors(parent(branch), |&above| parent(above)).take(DEPTH_MAX + 1).count()
    }
}

impl Catalog {
    /// True when a volume allocates space on later writes: a thin one, or one with a snapshot.
    #[must_use]
    pub fn allocates_on_write(&self) -> bool {
        let mut branches = self.families.iter().flat_map(|family| &family.branches);
        // A snapshot makes a thick volume copy on write, which takes new granules.
        branches.any(|branch| !branch.thick || !branch.snapshots.is_empty())
    }

    /// Family and branch of the volume `id`.
    #[must_use]
    pub fn branch(&self, id: Uuid) -> Option<(&FamilyRecord, &BranchRecord)> {
        let mut all =
            self.families.iter().flat_map(|family| family.branches.iter().map(move |branch| (family, branch)));
        all.find(|(_, branch)| branch.id == id)
    }

    /// Family, branch and record of the snapshot `id`.
    #[must_use]
    pub fn snapshot(&self, id: Uuid) -> Option<(&FamilyRecord, &BranchRecord, &SnapshotRecord)> {
        self.families.iter().find_map(|family| {
            family.branches.iter().find_map(|branch| {
                let snapshot = branch.snapshots.iter().find(|snapshot| snapshot.id == id)?;
                Some((family, branch, snapshot))
            })
        })
    }

    /// Number of volumes of all kinds.
    #[must_use]
    pub fn volume_count(&self) -> usize {
        // A volume that is being deleted counts until its space is freed: its record still takes part of the catalog.
        self.volumes.len() + self.families.iter().map(|family| family.branches.len()).sum::<usize>()
    }

    /// True when a volume of any kind has the name.
    #[must_use]
    pub fn has_name(&self, name: &str) -> bool {
        // Names are unique over both kinds of volumes.
        let branches = || self.families.iter().flat_map(|family| &family.branches);
        self.volumes.iter().any(|volume| volume.name == name) || branches().any(|branch| branch.name == name)
    }

    /// True when a volume of any kind or a snapshot has the UUID.
    #[must_use]
    pub fn has_id(&self, id: Uuid) -> bool {
        // Hosts address volumes and snapshots alike by UUID.
        self.volume(id).is_some() || self.branch(id).is_some() || self.snapshot(id).is_some()
    }

    /// Family `id`.
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
