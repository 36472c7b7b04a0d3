//! Status of a pool at one instant.

use super::Pool;
use crate::catalog::GroupRecord;
use crate::catalog::{BranchRecord, FamilyRecord, Parent, SlabRun};
use crate::family::Family;
use crate::family::plan::{FamilyStatus, Lock, Provisioning, SnapshotStatus, ThinStatus};
use crate::layout::BLOCK_BYTES;
use crate::space::SpaceMap;
use block::{BlockDevice, Blocks};
use uuid::Uuid;

/// Current state of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolStatus {
    /// UUID of the pool.
    pub id: Uuid,
    /// Name of the pool.
    pub name: String,
    /// Generation of the newest commit.
    pub generation: u64,
    /// Groups, by index.
    pub groups: Vec<GroupStatus>,
    /// Segmented volumes.
    pub volumes: Vec<VolumeStatus>,
    /// Volume families: thin volumes, their snapshots and clones.
    pub families: Vec<FamilyStatus>,
    /// Bytes that volumes can use in total.
    pub bytes: u64,
    /// Bytes not allocated to a volume.
    pub free_bytes: u64,
}

/// Space summary of a pool, without the status of each volume: cheap even with ten thousand volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpace {
    /// Bytes that volumes can use in total.
    pub bytes: u64,
    /// Bytes not allocated to a volume.
    pub free_bytes: u64,
    /// Number of volumes, without those being deleted.
    pub volumes: usize,
    /// True when a volume allocates space on write: a thin one, or one with a snapshot. Thresholds apply only
    /// then.
    pub allocates_on_write: bool,
}

/// Current state of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Catalog record.
    pub record: GroupRecord,
    /// Number of slabs not allocated to a volume.
    pub free_slabs: u32,
}

/// Current state of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
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
    /// Bytes of all of its slabs.
    pub allocated_bytes: u64,
    /// Number of initialized slabs; the others read as zeros.
    pub initialised_slabs: u64,
    /// Number of slabs.
    pub slabs: u64,
    /// Groups that it is on, by index.
    pub groups: Vec<u16>,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Current state of the pool.
    #[must_use]
    pub fn status(&self) -> PoolStatus {
        let generation = self.shared.store.generation();
        // Computed before the catalog is borrowed, because it borrows the catalog itself.
        let families = self.family_statuses();
        self.shared.store.with_catalog(|catalog| {
            // Computed from what the catalog names. There is no counter of free space that could disagree with it.
            let space = SpaceMap::of(catalog);
            let groups: Vec<GroupStatus> = catalog
                .groups
                .iter()
                .zip(space.free_slabs())
                .map(|(record, free_slabs)| GroupStatus { record: record.clone(), free_slabs })
                .collect();
            let sum = |slabs: fn(&GroupStatus) -> u32| groups.iter().map(|group| group.bytes_of(slabs(group))).sum();
            PoolStatus {
                id: catalog.pool,
                name: catalog.name.clone(),
                generation,
                bytes: sum(|group| group.record.slabs),
                free_bytes: sum(|group| group.free_slabs),
                volumes: catalog.volumes.iter().map(VolumeStatus::of).collect(),
                families,
                groups,
            }
        })
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Summary of [`Pool::status`].
    #[must_use]
    pub fn space(&self) -> PoolSpace {
        self.shared.store.with_catalog(|catalog| {
            let of_slabs = |group: u16, slabs: u32| {
                let blocks = u64::from(slabs) * u64::from(catalog.groups[usize::from(group)].slab_blocks);
                Blocks(blocks).bytes(BLOCK_BYTES)
            };
            let segments = catalog.volumes.iter().flat_map(|volume| &volume.segments);
            let columns =
                segments.flat_map(|segment| segment.columns.iter().map(|column| (column.group, segment.rows)));
            let runs = catalog.families.iter().flat_map(|family| family.meta.iter().chain(&family.data));
            // A leased slab counts as used, also where all of its granules are free.
            let used = columns.chain(runs.map(|run| (run.group, run.slabs)));
            let used: u64 = used.map(|(group, slabs)| of_slabs(group, slabs)).sum();
            let bytes: u64 = (0..).zip(&catalog.groups).map(|(at, group)| of_slabs(at, group.slabs)).sum();
            let branches = || catalog.families.iter().flat_map(|family| &family.branches);
            let volumes = catalog.volumes.len() + branches().filter(|branch| !branch.deleting).count();
            // No underflow: `Catalog::check` rules out slabs that are used twice or lie behind their group.
            PoolSpace { bytes, free_bytes: bytes - used, volumes, allocates_on_write: catalog.allocates_on_write() }
        })
    }

    fn family_statuses(&self) -> Vec<FamilyStatus> {
        let records: Vec<FamilyRecord> = self.shared.store.with_catalog(|catalog| catalog.families.clone());
        let slab_blocks = self.shared.slab_blocks();
        let bytes = |run: &SlabRun| {
            Blocks(u64::from(run.slabs) * u64::from(slab_blocks[usize::from(run.group)])).bytes(BLOCK_BYTES)
        };
        let status = |record: &FamilyRecord| {
            // Figures that only the map knows are missing while the family is not open.
            let open = self.families.opened(record.id);
            let granule = u64::from(record.granule_bytes);
            FamilyStatus {
                id: record.id,
                granule_bytes: record.granule_bytes,
                data_bytes: record.data.iter().map(bytes).sum(),
                map_bytes: record.meta.iter().map(bytes).sum(),
                allocated_bytes: open.as_ref().map(|family| family.allocated.get() * granule),
                volumes: record.branches.iter().map(|branch| thin_status(record, branch, open.as_deref())).collect(),
            }
        };
        records.iter().map(status).collect()
    }
}

fn thin_status<D: BlockDevice + 'static, G: BlockDevice + 'static>(
    family: &FamilyRecord,
    record: &BranchRecord,
    open: Option<&Family<D, G>>,
) -> ThinStatus {
    let granule = u64::from(family.granule_bytes);
    let branch = open.and_then(|open| open.branch(record.number));
    let origin = |parent: Parent| {
        let snapshots = &family.branch(parent.branch)?.snapshots;
        snapshots.iter().find(|snapshot| snapshot.epoch == parent.epoch).map(|snapshot| snapshot.id)
    };
    // Reservations follow from the map, so a closed family reports none.
    let reserved = branch.as_ref().zip(open).map(|(branch, open)| branch.reserved(open.granule_blocks) * granule);
    let snapshots = record.snapshots.iter().map(|snapshot| SnapshotStatus {
        id: snapshot.id,
        name: snapshot.name.clone(),
        size_bytes: snapshot.size_bytes,
        created_at: snapshot.created_at,
        lock: Lock::of(snapshot.locked_until),
        is_cloned: family.is_cloned(record.number, snapshot.epoch),
        set: snapshot.set,
        mapped_bytes: snapshot.mapped * granule,
        frees_bytes_min: branch
            .as_ref()
            .map(|branch| branch.exclusive.borrow().get(&snapshot.epoch).copied().unwrap_or(0) * granule),
    });
    ThinStatus {
        id: record.id,
        name: record.name.clone(),
        size_bytes: record.size_bytes,
        block_bytes: record.block_bytes,
        created_at: record.created_at,
        provisioning: if record.thick { Provisioning::Thick } else { Provisioning::Thin },
        zero_detection: record.zero_detection,
        is_encrypted: family.key.is_some(),
        clone_of: record.parent.and_then(origin),
        is_deleting: record.deleting,
        is_partial: record.partial,
        is_cleaning: record.cleaning > 0,
        mapped_bytes: branch.as_ref().map(|branch| branch.mapped.get() * granule),
        // The volume shares exactly what it maps but did not write in its own epoch.
        shared_bytes: branch
            .as_ref()
            .map(|branch| branch.mapped.get().saturating_sub(branch.own_versions.get()) * granule),
        reserved_bytes: reserved.unwrap_or(0),
        reclaimed_bytes: branch.as_ref().map_or(0, |branch| branch.unmapped.get() * granule),
        snapshots: snapshots.collect(),
    }
}

impl GroupStatus {
    fn bytes_of(&self, slabs: u32) -> u64 {
        Blocks(u64::from(slabs) * u64::from(self.record.slab_blocks)).bytes(BLOCK_BYTES)
    }
}

impl VolumeStatus {
    fn of(record: &crate::catalog::VolumeRecord) -> Self {
        let sets = || record.segments.iter().map(|segment| &segment.initialised);
        let columns = record.segments.iter().flat_map(|segment| &segment.columns);
        let mut groups: Vec<u16> = columns.map(|column| column.group).collect();
        // Each segment has a column on the group, so a group may occur many times.
        groups.sort_unstable();
        groups.dedup();
        Self {
            id: record.id,
            name: record.name.clone(),
            size_bytes: record.size_bytes,
            block_bytes: record.block_bytes,
            created_at: record.created_at,
            allocated_bytes: Blocks(record.allocated_blocks()).bytes(BLOCK_BYTES),
            initialised_slabs: sets().map(|set| u64::from(set.count())).sum(),
            slabs: sets().map(|set| u64::from(set.len())).sum(),
            groups,
        }
    }
}
