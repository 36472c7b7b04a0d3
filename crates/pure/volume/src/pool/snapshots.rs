//! Snapshots: consistent creation, roll-back, locking and deletion.

use super::Pool;
use super::thin::admit_emitted;
use super::volumes::is_name;
use crate::bug_injection::{self, InjectedBug};
use crate::catalog::{BranchRecord, Catalog, DEAD_RANGES_MAX, DeadRange, SNAPSHOTS_MAX, SnapshotRecord};
use crate::error::PoolError;
use crate::family::plan::{Lock, SnapshotPlan};
use crate::family::{Branch, Family, needed_ranges};
use block::BlockDevice;
use shard::RangeGuard;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use uuid::Uuid;

/// Volumes with writes blocked, by family and branch number.
type BlockedVolumes<D, G> = BTreeMap<(Uuid, u32), (Rc<Family<D, G>>, Rc<Branch>)>;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Creates the snapshots, all of the same instant between call and return, including unflushed writes.
    ///
    /// *Durability*: when it returns; all or none. *Errors*: `VolumeUnknown`, `NameInvalid`,
    /// `SnapshotNameTaken`, `IdTaken`, `TooManySnapshots`, `Full` (a thick volume needs space for what it may
    /// change, and every map for its holes), `GroupFails`, `CatalogFull`, `CatalogLost`.
    pub async fn create_snapshots(&self, plans: &[SnapshotPlan]) -> Result<(), PoolError> {
        self.shared.store.with_catalog(|catalog| admit_snapshots(catalog, plans))?;
        let mut standing = BlockedVolumes::new();
        for plan in plans {
            let (family, branch) = self.branch(plan.volume).await?;
            // In the order of families and branches, in which `freeze_writes` takes the locks.
            standing.insert((family.id, branch.number), (family, branch));
        }
        // Writes are blocked on all volumes, so that the snapshots are of one instant.
        let held = freeze_writes(&standing).await;
        // Flushed while writes are blocked: the snapshot's content is durable before the commit that names it.
        self.flush_blocked(&standing).await?;
        // After the snapshot every granule of the old epoch may be copied on write once more.
        self.make_room(&standing, |branch| branch.own_versions.get(), |branch| branch.own_versions.get())?;
        let set = if plans.len() > 1 { plans[0].id } else { Uuid::nil() };
        // Counted while writes are blocked, so that the figure is that of the snapshot's instant.
        let mapped: BTreeMap<Uuid, u64> =
            standing.values().map(|(_, branch)| (branch.id, branch.mapped.get())).collect();
        let ((), change) = self.shared.store.change(|catalog| {
            // Checked again: the catalog may have changed while writes were drained.
            admit_snapshots(catalog, plans)?;
            for plan in plans {
                let record = catalog.branch_mut(plan.volume).ok_or(PoolError::VolumeUnknown(plan.volume))?;
                add_snapshot(record, plan, mapped[&plan.volume], set);
            }
            Ok(())
        })?;
        for (family, _) in standing.values() {
            family.require_commit(change);
            if !bug_injection::is_injected(InjectedBug::SnapshotKeepsEpoch) {
                family.follow_catalog();
            }
        }
        // Writes from here on are of the next epoch, and committed after the catalog.
        drop(held);
        self.shared.store.committed(change).await?;
        // A thick volume with a snapshot allocates on write again, so thresholds apply.
        self.shared.check_space_thresholds();
        Ok(())
    }

    /// Rolls the volume back to the snapshot, keeping its present size; newer snapshots are unchanged.
    ///
    /// *Durability*: when it returns. *Errors*: `SnapshotUnknown`, `TooManyRollBacks`, `Full`, `GroupFails`,
    /// `CatalogFull`, `CatalogLost`.
    pub async fn roll_back(&self, snapshot: Uuid) -> Result<(), PoolError> {
        let unknown = PoolError::SnapshotUnknown(snapshot);
        let found = self.shared.store.with_catalog(|catalog| {
            let (_, branch, snapshot) = catalog.snapshot(snapshot)?;
            Some((branch.id, snapshot.epoch, snapshot.mapped))
        });
        let (volume, epoch, mapped) = found.ok_or(unknown.clone())?;
        let (family, branch) = self.branch(volume).await?;
        let standing = BlockedVolumes::from([((family.id, branch.number), (family.clone(), branch.clone()))]);
        let held = freeze_writes(&standing).await;
        self.flush_blocked(&standing).await?;
        let (granule_blocks, thick) = (family.granule_blocks, branch.thick);
        // After the roll-back nothing is written in the new epoch, so all of it may still be needed.
        let all = if thick { branch.granules(granule_blocks) } else { mapped };
        let more = all.saturating_sub(branch.needed_entries(granule_blocks));
        self.make_room(&standing, |_| more, |_| more)?;
        let ((), change) = self.shared.store.change(|catalog| {
            let (_, record, _) = catalog.snapshot(snapshot).ok_or(unknown)?;
            if record.dead.len() >= DEAD_RANGES_MAX {
                return Err(PoolError::TooManyRollBacks);
            }
            // Two numbers of 64 bits: on disk as long as in memory.
            admit_emitted(catalog, size_of::<DeadRange>())?;
            let record = catalog.branch_mut(volume).ok_or(PoolError::VolumeUnknown(volume))?;
            assert!(epoch < record.epoch, "a volume goes back to an epoch that is over");
            if !bug_injection::is_injected(InjectedBug::OmitDeadEpochs) {
                // The epochs since the snapshot become a dead range; no map entry is touched.
                record.dead.push(DeadRange { after: epoch, last: record.epoch });
            }
            record.epoch += 1;
            // The new epoch begins with what the snapshot maps.
            record.mapped = mapped;
            record.cleaning += 1;
            record.dead = needed_ranges(&record.dead, record);
            Ok(())
        })?;
        family.follow_catalog();
        family.require_commit(change);
        // The volume sees the snapshot's versions again, so none of them is exclusive.
        branch.exclusive.borrow_mut().remove(&epoch);
        drop(held);
        self.shared.store.committed(change).await
    }

    /// Deletes the snapshot. Space that only it used is freed by [`Pool::run_maintenance`]; open devices of it fail
    /// with `Gone` from now on.
    ///
    /// *Shape*: `now` is the time in seconds since 1970. *Durability*: when it returns. *Errors*:
    /// `SnapshotUnknown`, `SnapshotLocked`, `SnapshotCloned`, `CatalogLost`.
    pub async fn delete_snapshot(&self, id: Uuid, now: u64) -> Result<(), PoolError> {
        let family = self.shared.store.with_catalog(|catalog| admit_deletion(catalog, id, now))?;
        if let Some(device) = self.families.opened_device(id) {
            device.close().await;
        }
        let ((), change) = self.shared.store.change(|catalog| {
            // Checked again: it may have been cloned or locked while its device was closed.
            admit_deletion(catalog, id, now)?;
            let volume = catalog.snapshot(id).expect("it was admitted").1.id;
            let record = catalog.branch_mut(volume).expect("it was found above");
            record.snapshots.retain(|snapshot| snapshot.id != id);
            record.cleaning += 1;
            // Without this snapshot, some dead ranges may not be passed by any lookup any more.
            record.dead = needed_ranges(&record.dead, record);
            Ok(())
        })?;
        if let Some(family) = self.families.opened(family) {
            family.follow_catalog();
            family.require_commit(change);
        }
        self.shared.store.committed(change).await?;
        self.shared.check_space_thresholds();
        Ok(())
    }

    /// Locks the snapshot against deletion until `lock` ends. A lock can only be extended.
    ///
    /// *Durability*: when it returns. *Errors*: `SnapshotUnknown`, `SnapshotLocked` for a shorter one,
    /// `CatalogLost`.
    pub async fn lock_snapshot(&self, id: Uuid, lock: Lock) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            let volume = catalog.snapshot(id).ok_or(PoolError::SnapshotUnknown(id))?.1.id;
            let record = catalog.branch_mut(volume).expect("it was found above");
            let snapshot = record.snapshots.iter_mut().find(|one| one.id == id).expect("it was found above");
            // A lock is a retention promise: not even an operator can shorten it.
            if lock.until() < snapshot.locked_until {
                let (name, until) = (snapshot.name.clone(), snapshot.locked_until);
                return Err(PoolError::SnapshotLocked { name, until });
            }
            snapshot.locked_until = lock.until();
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }

    /// Open family and branch of a volume.
    pub(super) async fn branch(&self, volume: Uuid) -> Result<(Rc<Family<D, G>>, Rc<Branch>), PoolError> {
        let unknown = PoolError::VolumeUnknown(volume);
        let family = self.shared.store.with_catalog(|catalog| {
            catalog.branch(volume).filter(|(_, branch)| !branch.deleting).map(|(family, _)| family.id)
        });
        let family = self.families.family(family.ok_or(unknown.clone())?).await?;
        let branch = family.branches.of_volume(volume).ok_or(unknown)?;
        Ok((family, branch))
    }

    /// Makes all writes to the volumes durable.
    async fn flush_blocked(&self, standing: &BlockedVolumes<D, G>) -> Result<(), PoolError> {
        let mut done = BTreeSet::new();
        for (family, _) in standing.values().filter(|(family, _)| done.insert(family.id)) {
            family.commit().await.map_err(|error| error.into_pool_error(family.id))?;
        }
        Ok(())
    }

    /// Reserves room for the next epoch of the volumes: map entries, and places for thick volumes.
    fn make_room(
        &self,
        standing: &BlockedVolumes<D, G>,
        entries: impl Fn(&Branch) -> u64,
        places: impl Fn(&Branch) -> u64,
    ) -> Result<(), PoolError> {
        for (family, _) in standing.values() {
            let own = || standing.values().filter(|(other, _)| other.id == family.id).map(|(_, branch)| branch);
            let needed: u64 = own().filter(|branch| branch.thick).map(|branch| places(branch)).sum();
            let entries: u64 = own().map(|branch| entries(branch)).sum();
            let needed_bytes = family.missing_bytes(entries, needed);
            family.make_room(entries, needed).map_err(|_| self.full(needed_bytes))?;
        }
        Ok(())
    }
}

/// Blocks writes to the volumes while the guards live. The order is fixed, so that two callers with the same
/// volumes cannot deadlock.
async fn freeze_writes<D: BlockDevice + 'static, G: BlockDevice + 'static>(
    standing: &BlockedVolumes<D, G>,
) -> Vec<RangeGuard> {
    let mut held = Vec::with_capacity(standing.len());
    if bug_injection::is_injected(InjectedBug::SnapshotPassesWrites) {
        return held;
    }
    for (_, branch) in standing.values() {
        // Writes in flight hold the locks of their granules, so this waits until they have ended.
        held.push(branch.locks.exclusive(0..u64::MAX).await);
    }
    held
}

fn admit_snapshots(catalog: &Catalog, plans: &[SnapshotPlan]) -> Result<(), PoolError> {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for plan in plans {
        let branch = catalog.branch(plan.volume).filter(|(_, branch)| !branch.deleting);
        let (_, branch) = branch.ok_or(PoolError::VolumeUnknown(plan.volume))?;
        if !is_name(&plan.name) {
            return Err(PoolError::NameInvalid(plan.name.clone()));
        }
        let known = branch.snapshots.iter().any(|snapshot| snapshot.name == plan.name);
        if known || !names.insert((plan.volume, &plan.name)) {
            return Err(PoolError::SnapshotNameTaken(plan.name.clone()));
        }
        if catalog.has_id(plan.id) || !ids.insert(plan.id) {
            return Err(PoolError::IdTaken(plan.id));
        }
    }
    // Two snapshots of one volume at one instant would have the same epoch.
    let volumes: BTreeSet<Uuid> = plans.iter().map(|plan| plan.volume).collect();
    if volumes.len() < plans.len() {
        return Err(PoolError::Plan("a volume has one snapshot of an instant, not several"));
    }
    // The limit is pool-wide.
    let branches = catalog.families.iter().flat_map(|family| &family.branches);
    if branches.map(|branch| branch.snapshots.len()).sum::<usize>() + plans.len() > SNAPSHOTS_MAX {
        return Err(PoolError::TooManySnapshots);
    }
    // The length depends on the name alone, so the other fields may have any value.
    let bytes = plans.iter().map(|plan| record_of(plan, 0, 0, 0, Uuid::nil()).emitted_bytes()).sum();
    admit_emitted(catalog, bytes)
}

fn add_snapshot(record: &mut BranchRecord, plan: &SnapshotPlan, mapped: u64, set: Uuid) {
    let is_newest = record.snapshots.last().is_none_or(|last| last.epoch < record.epoch);
    assert!(is_newest, "a snapshot stands above those before");
    record.snapshots.push(record_of(plan, record.epoch, record.size_bytes, mapped, set));
    record.epoch += 1;
    record.mapped = mapped;
}

fn record_of(plan: &SnapshotPlan, epoch: u64, size_bytes: u64, mapped: u64, set: Uuid) -> SnapshotRecord {
    SnapshotRecord {
        id: plan.id,
        name: plan.name.clone(),
        epoch,
        size_bytes,
        mapped,
        created_at: plan.created_at,
        locked_until: plan.lock.until(),
        set,
    }
}

/// Admits the deletion of a snapshot; returns its family.
fn admit_deletion(catalog: &Catalog, id: Uuid, now: u64) -> Result<Uuid, PoolError> {
    let (family, branch, snapshot) = catalog.snapshot(id).ok_or(PoolError::SnapshotUnknown(id))?;
    if snapshot.locked_until > now {
        return Err(PoolError::SnapshotLocked { name: snapshot.name.clone(), until: snapshot.locked_until });
    }
    let parent = crate::catalog::Parent { branch: branch.number, epoch: snapshot.epoch };
    match family.branches.iter().find(|clone| clone.parent == Some(parent)) {
        None => Ok(family.id),
        // The record of a deleted clone refers to the snapshot until its space is freed.
        Some(clone) if clone.deleting => Err(PoolError::CloneDeleting(snapshot.name.clone())),
        Some(clone) => Err(PoolError::SnapshotCloned { snapshot: snapshot.name.clone(), clone: clone.name.clone() }),
    }
}
