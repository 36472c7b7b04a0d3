//! Creation, opening, resizing and deletion of thin volumes and clones.

use super::Pool;
use super::volumes::{admit_bytes, admit_identity};
use crate::catalog::{
    BRANCHES_MADE_MAX, BranchRecord, Catalog, CopyRecord, DEPTH_MAX, FamilyRecord, GRANULE_BYTES, GroupRole,
    LOG_BLOCKS_MIN, MapShape, Parent,
};
use crate::error::PoolError;
use crate::family::plan::{ClonePlan, Provisioning, ThinPlan};
use crate::layout::{BLOCK_BYTES, BODY_BYTES_MAX};
use crate::space::SpaceMap;
use crate::store::Change;
use crate::thin::{BranchView, ThinVolume};
use block::BlockDevice;
use std::rc::Rc;
use uuid::Uuid;

/// Default granule size in bytes.
const GRANULE_BYTES_DEFAULT: u32 = 64 << 10;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Creates a thin volume without mapped granules and opens it.
    ///
    /// *Durability*: when it returns. *Errors*: as [`Pool::create_volume`], `Granule`, and `NoPoolKey` where it
    /// is to be encrypted.
    pub async fn create_thin_volume(&self, plan: ThinPlan) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        self.create_family(plan, None).await
    }

    /// Creates a thin volume as the target of a copy.
    ///
    /// As [`Pool::create_thin_volume`]; its status is partial, also after a crash, until
    /// [`Pool::complete_volume`], and [`Pool::unfinished_copies`] lists `copy`.
    pub async fn create_partial_volume(
        &self,
        plan: ThinPlan,
        copy: CopyRecord,
    ) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        self.create_family(plan, Some(copy)).await
    }

    /// Marks a partial volume as complete.
    ///
    /// *Shape*: what was copied is flushed. *Durability*: when it returns. *Errors*: `VolumeUnknown`,
    /// `CatalogLost`.
    pub async fn complete_volume(&self, id: Uuid) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            let record =
                catalog.branch_mut(id).filter(|branch| !branch.deleting).ok_or(PoolError::VolumeUnknown(id))?;
            record.partial = false;
            // Record and flag change in one commit: the volume is complete, or the copy can continue.
            catalog.copies.remove(&id);
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }

    async fn create_family(&self, plan: ThinPlan, copy: Option<CopyRecord>) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        let id = plan.id;
        let tuning = self.families.tuning.get();
        // The generation of the commit that creates the family distinguishes it from earlier users of its
        // slabs.
        let birth = self.shared.store.generation() + 1;
        // Nothing awaits before the change below, so no other commit takes this generation in between.
        let key = plan.encryption.as_ref().map(|key| self.shared.wrap_key(id, key)).transpose()?;
        if let Some(key) = &key {
            self.admit_key(key.wrapped_with)?;
        }
        let ((), change) = self.shared.store.change(|catalog| {
            let mut record = FamilyRecord { key, ..draft(&plan, catalog, birth, tuning.log_blocks)? };
            record.branches[0].partial = copy.is_some();
            admit_emitted(catalog, record.emitted_bytes() + copy.as_ref().map_or(0, CopyRecord::emitted_bytes))?;
            catalog.families.push(record);
            catalog.copies.extend(copy.map(|copy| (id, copy)));
            Ok(())
        })?;
        let family = self.families.begin(id).ok_or(PoolError::VolumeUnknown(id))?;
        // Includes the first slab of the map, which is returned on refusal.
        let needed_bytes = family.map_slab_bytes() + family.missing_bytes(0, 0);
        // Volume and reservation are one commit, so that a thick volume never exists without its space.
        let undone = self.shared.without_space_events(|| {
            let settled = family.reserve_data(0).and_then(|()| family.make_room_in_map(0));
            settled.is_err().then(|| self.remove_family(id)).transpose()
        })?;
        if let Some(undone) = undone {
            let error = self.full(needed_bytes);
            self.shared.store.committed(undone).await?;
            return Err(error);
        }
        self.shared.store.committed(change).await?;
        // The first checkpoint writes a head, so that opening after a crash finds a formatted map.
        family.checkpoint().await.map_err(|error| error.into_pool_error(id))?;
        self.shared.check_space_thresholds();
        self.open_thin_volume(id).await
    }

    /// Removes a family without open devices from the catalog.
    fn remove_family(&self, id: Uuid) -> Result<Change, PoolError> {
        self.families.forget(id);
        let ((), change) = self.shared.store.change(|catalog| {
            catalog.families.retain(|family| family.id != id);
            Ok(())
        })?;
        Ok(change)
    }

    /// Error for a request of `needed_bytes`, after what was allocated for it was returned.
    pub(super) fn full(&self, needed_bytes: u64) -> PoolError {
        PoolError::Full { free_bytes: self.shared.free_bytes(), needed_bytes }
    }

    /// Opens the volume. All callers share one device.
    ///
    /// *Errors*: `VolumeUnknown` (also for a segmented volume: see [`Pool::open_volume`]), `MapDamaged`,
    /// `GroupFails`, `CatalogLost`; `Key` where it is encrypted and its key is not available.
    pub async fn open_thin_volume(&self, id: Uuid) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        // Uncommitted volumes must not be used, or data of a volume could be acknowledged that a crash undoes.
        self.shared.store.committed(self.shared.store.latest()).await?;
        let family = self.shared.store.with_catalog(|catalog| {
            catalog.branch(id).filter(|(_, branch)| !branch.deleting).map(|(family, _)| family.id)
        });
        let family = self.families.family(family.ok_or(PoolError::VolumeUnknown(id))?).await?;
        // Refused here, because without the key every read would end with a medium error.
        self.families.unlock(&family)?;
        let branch = family.branches.of_volume(id).ok_or(PoolError::VolumeUnknown(id))?;
        Ok(self.families.device(id, || ThinVolume::new(family, branch, id, BranchView::Volume)))
    }

    /// Opens the snapshot as a read-only device.
    ///
    /// *Errors*: `SnapshotUnknown`, and as [`Pool::open_thin_volume`].
    pub async fn open_snapshot(&self, id: Uuid) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        self.shared.store.committed(self.shared.store.latest()).await?;
        let found = self.shared.store.with_catalog(|catalog| {
            let (family, branch, snapshot) = catalog.snapshot(id)?;
            // These never change while the snapshot exists, so copies of them stay right.
            let (epoch, size_bytes, mapped) = (snapshot.epoch, snapshot.size_bytes, snapshot.mapped);
            Some((family.id, branch.id, BranchView::Snapshot { epoch, size_bytes, mapped }))
        });
        let (family, volume, viewer) = found.ok_or(PoolError::SnapshotUnknown(id))?;
        let family = self.families.family(family).await?;
        self.families.unlock(&family)?;
        let branch = family.branches.of_volume(volume).ok_or(PoolError::SnapshotUnknown(id))?;
        Ok(self.families.device(id, || ThinVolume::new(family, branch, id, viewer)))
    }

    /// Creates a writable clone of the snapshot and opens it.
    ///
    /// *Durability*: when it returns. *Errors*: `SnapshotUnknown`, `NameInvalid`, `NameTaken`, `IdTaken`,
    /// `TooManyVolumes`, `TooDeep`, `Full`, `CatalogFull`, `CatalogLost`.
    pub async fn create_clone(&self, plan: ClonePlan) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        let unknown = PoolError::SnapshotUnknown(plan.snapshot);
        let found = self.shared.store.with_catalog(|catalog| {
            let (family, _, snapshot) = catalog.snapshot(plan.snapshot)?;
            Some((family.id, snapshot.size_bytes, snapshot.mapped))
        });
        let (family, size_bytes, mapped) = found.ok_or(unknown.clone())?;
        let family = self.families.family(family).await?;
        // Refused before the catalog changes: a clone without its key could not be opened.
        self.families.unlock(&family)?;
        let granule_bytes = u64::from(family.granule_blocks) * u64::from(BLOCK_BYTES);
        let thick = plan.provisioning == Provisioning::Thick;
        // A thin clone needs map room for holes over what it shares, a thick one for all granules.
        let wanting = if thick { size_bytes.div_ceil(granule_bytes) } else { mapped };
        let places = if thick { wanting } else { 0 };
        let needed_bytes = family.missing_bytes(wanting, places);
        // Room before the clone: once it exists, its copies on write must not fail for lack of map pages.
        family.make_room(wanting, places).map_err(|_| self.full(needed_bytes))?;
        let ((), change) = self.shared.store.change(|catalog| {
            admit_identity(catalog, plan.id, &plan.name)?;
            let (record, branch, snapshot) = catalog.snapshot(plan.snapshot).ok_or(unknown)?;
            // Numbers are never reused: map entries of a deleted branch may still exist.
            let number = record.branches_made;
            if record.depth(branch) + 1 > DEPTH_MAX {
                return Err(PoolError::TooDeep);
            }
            let parent = Parent { branch: branch.number, epoch: snapshot.epoch };
            let clone = BranchRecord {
                parent: Some(parent),
                block_bytes: branch.block_bytes,
                size_bytes,
                mapped: snapshot.mapped,
                ..first_branch(plan.id, &plan.name, number, plan.created_at, thick, plan.zero_detection)
            };
            let id = record.id;
            if number >= BRANCHES_MADE_MAX {
                return Err(PoolError::TooManyVolumes);
            }
            admit_emitted(catalog, clone.emitted_bytes())?;
            let record = catalog.family_mut(id).expect("it was found above");
            // Changed only after every check: an error must leave the catalog as it was.
            record.branches_made += 1;
            record.branches.push(clone);
            Ok(())
        })?;
        // The map waits for this commit: it must not log versions of a branch that a crash undoes.
        family.follow_catalog();
        family.require_commit(change);
        self.shared.store.committed(change).await?;
        self.shared.check_space_thresholds();
        self.open_thin_volume(plan.id).await
    }

    /// Grows the volume to `size_bytes`; see [`Pool::resize_volume`].
    pub(super) async fn resize_thin(&self, id: Uuid, size_bytes: u64) -> Result<(), PoolError> {
        let found = self.shared.store.with_catalog(|catalog| {
            catalog
                .branch(id)
                .map(|(family, branch)| (family.id, branch.size_bytes, branch.block_bytes, branch.deleting))
        });
        let Some((family, bytes, block_bytes, false)) = found else { return Err(PoolError::VolumeUnknown(id)) };
        if size_bytes < bytes {
            return Err(PoolError::VolumeShrink { bytes, asked_bytes: size_bytes });
        }
        admit_bytes(size_bytes, block_bytes)?;
        let family = self.families.family(family).await?;
        let branch = family.branches.of_volume(id).ok_or(PoolError::VolumeUnknown(id))?;
        if branch.thick {
            let granule_bytes = u64::from(family.granule_blocks) * u64::from(BLOCK_BYTES);
            // No underflow: a smaller size was refused above.
            let more = size_bytes.div_ceil(granule_bytes) - bytes.div_ceil(granule_bytes);
            let needed_bytes = family.missing_bytes(more, more);
            // Space before the size: a thick volume must never be larger than what is reserved for it.
            family.make_room(more, more).map_err(|_| self.full(needed_bytes))?;
        }
        let ((), change) = self.shared.store.change(|catalog| {
            let record = catalog.branch_mut(id).ok_or(PoolError::VolumeUnknown(id))?;
            // A concurrent resize may have set a larger size.
            record.size_bytes = record.size_bytes.max(size_bytes);
            Ok(())
        })?;
        self.shared.store.committed(change).await?;
        // Open devices learn the size after its commit: no host may write behind an end that a crash takes back.
        family.follow_catalog();
        Ok(())
    }

    /// Deletes the volume; see [`Pool::delete_volume`]. The space of a clone is freed by [`Pool::run_maintenance`],
    /// that of a volume alone at once.
    pub(super) async fn delete_thin(&self, id: Uuid) -> Result<(), PoolError> {
        let found = self.shared.store.with_catalog(|catalog| {
            let (family, branch) = catalog.branch(id)?;
            Some((family.id, branch.deleting, branch.snapshots.len(), family.branches.len()))
        });
        let Some((family, false, snapshots, branches)) = found else { return Err(PoolError::VolumeUnknown(id)) };
        if snapshots > 0 {
            return Err(PoolError::HasSnapshots(snapshots));
        }
        // Operations in flight end before the record changes; later ones fail with `Gone`.
        if let Some(device) = self.families.opened_device(id) {
            device.close().await;
        }
        // The only volume takes the whole map with it, so no version has to be examined.
        if branches == 1 {
            return self.delete_family(family).await;
        }
        let ((), change) = self.shared.store.change(|catalog| {
            let record = catalog.branch_mut(id).ok_or(PoolError::VolumeUnknown(id))?;
            // Checked again: a snapshot may have been taken while the device was closed.
            if !record.snapshots.is_empty() {
                return Err(PoolError::HasSnapshots(record.snapshots.len()));
            }
            // Name and UUID are free at once; the record stays until its space is freed.
            record.name = format!("deleted {}", record.id);
            record.deleting = true;
            // A new number: a pass that runs already is then followed by another one over all granules.
            record.cleaning += 1;
            Ok(())
        })?;
        if let Some(family) = self.families.opened(family) {
            family.follow_catalog();
            family.require_commit(change);
        }
        self.shared.store.committed(change).await
    }

    async fn delete_family(&self, id: Uuid) -> Result<(), PoolError> {
        if let Some(family) = self.families.opened(id) {
            // Commits in progress must end before its slabs are allocated to another volume.
            family.drain().await;
        }
        let ((), change) = self.shared.store.change(|catalog| {
            let record = catalog.family(id).ok_or(PoolError::VolumeUnknown(id))?;
            // Checked again: a clone or a snapshot may have been made while commits ended.
            let snapshots: usize = record.branches.iter().map(|branch| branch.snapshots.len()).sum();
            if record.branches.len() > 1 || snapshots > 0 {
                return Err(PoolError::HasSnapshots(snapshots));
            }
            catalog.families.retain(|family| family.id != id);
            Ok(())
        })?;
        self.families.forget(id);
        self.shared.store.committed(change).await?;
        self.shared.check_space_thresholds();
        Ok(())
    }
}

/// Creates the record of the family that `plan` describes, with its first metadata slab.
fn draft(plan: &ThinPlan, catalog: &Catalog, birth: u64, log_blocks: u32) -> Result<FamilyRecord, PoolError> {
    admit_identity(catalog, plan.id, &plan.name)?;
    if !matches!(plan.block_bytes, 512 | BLOCK_BYTES) {
        return Err(PoolError::VolumeBlockSize(plan.block_bytes));
    }
    admit_bytes(plan.size_bytes, plan.block_bytes)?;
    let granule_bytes = if plan.granule_bytes == 0 { GRANULE_BYTES_DEFAULT } else { plan.granule_bytes };
    let groups = catalog.groups.iter().filter(|group| group.role == GroupRole::Data);
    // A granule must fit in a slab of every group that the family may use.
    let slab_blocks = groups.map(|group| group.slab_blocks).min().unwrap_or(0);
    let fits = granule_bytes.is_power_of_two() && GRANULE_BYTES.contains(&granule_bytes);
    if !fits || granule_bytes / BLOCK_BYTES > slab_blocks {
        return Err(PoolError::Granule(plan.granule_bytes));
    }
    // Free space follows from the catalog, so it is computed within the change that uses it.
    let mut space = SpaceMap::of(catalog);
    let free: Vec<u32> = space.free_slabs().collect();
    // Of equally empty groups the first, so that the choice is deterministic.
    let emptiest = (0_u16..).zip(free).max_by_key(|&(group, free)| (free, std::cmp::Reverse(group)));
    let run = emptiest.and_then(|(group, _)| space.take_run(group, 1, None));
    let run = run.ok_or_else(|| {
        // The size of the map is not known without the volume; one slab is the minimum.
        let data_bytes = if plan.provisioning == Provisioning::Thick { plan.size_bytes } else { 0 };
        PoolError::Full { free_bytes: 0, needed_bytes: data_bytes.saturating_add(catalog.slab_bytes) }
    })?;
    let own = MapShape::of(&catalog.groups[usize::from(run.group)]).slab_addresses();
    let own = u32::try_from(own).unwrap_or(u32::MAX);
    let thick = plan.provisioning == Provisioning::Thick;
    let branch = BranchRecord {
        size_bytes: plan.size_bytes,
        block_bytes: plan.block_bytes,
        ..first_branch(plan.id, &plan.name, 0, plan.created_at, thick, plan.zero_detection)
    };
    Ok(FamilyRecord {
        id: plan.id,
        birth,
        granule_bytes,
        // Half of the first slab at most: tree pages need space in it as well.
        log_blocks: log_blocks.min(own / 2).max(LOG_BLOCKS_MIN),
        // Set by the first checkpoint; until then a missing head means an empty map.
        formatted: false,
        branches_made: 1,
        meta: vec![run],
        data: Vec::new(),
        key: None,
        branches: vec![branch],
    })
}

/// Record of an empty branch.
fn first_branch(id: Uuid, name: &str, number: u32, created_at: u64, thick: bool, zero_detection: bool) -> BranchRecord {
    BranchRecord {
        id,
        name: name.to_owned(),
        number,
        size_bytes: 0,
        block_bytes: 512,
        thick,
        zero_detection,
        deleting: false,
        partial: false,
        created_at,
        // Lookups see versions above epoch 0, so epochs begin at 1.
        epoch: 1,
        mapped: 0,
        cleaning: 0,
        parent: None,
        dead: Vec::new(),
        snapshots: Vec::new(),
    }
}

/// Admits `more` bytes of records in the catalog.
pub(super) fn admit_emitted(catalog: &Catalog, more: usize) -> Result<(), PoolError> {
    if catalog.emitted_bytes_max() + more <= BODY_BYTES_MAX { Ok(()) } else { Err(PoolError::CatalogFull) }
}
