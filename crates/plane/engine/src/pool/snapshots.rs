//! Snapshots of a pool's volumes: create in one consistent set, clone, roll back, lock, delete.

use super::refusals::refusal;
use super::volumes::{provisioning, uuid_of};
use super::{OpenPool, find};
use crate::shard_context::ShardContext;
use crate::unit::{SanitizeGuard, Unit};
use model::{
    Backend, Name, Provision, Refusal, Size, SnapshotId, SnapshotLock, SnapshotName, SnapshotReport, SnapshotState,
    Timestamp, VolumeId, VolumeName, VolumeReport, WritePolicy, code,
};
use shard::World;
use std::rc::Rc;
use volume::{ClonePlan, FamilyStatus, Lock, SnapshotPlan, SnapshotStatus, ThinStatus, Uuid};

/// Takes the snapshots, all at the same instant.
///
/// *Durability*: when it returns; all of them or none.
pub(crate) async fn create_snapshots<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    snapshots: Vec<(SnapshotName, SnapshotId)>,
    lock: SnapshotLock,
) -> Result<Vec<SnapshotReport>, Refusal> {
    let pool = find(&shard, &pool)?;
    let mut plans = Vec::new();
    for (name, id) in &snapshots {
        plans.push(SnapshotPlan {
            id: Uuid::from_bytes(id.to_bytes()),
            volume: pool.mapped_id(&name.volume)?,
            name: name.snapshot.to_string(),
            lock: lock_of(lock),
            created_at: shard.world.unix_seconds(),
        });
    }
    // Writes that were acknowledged from memory belong to the snapshots as well.
    let names = snapshots.iter().map(|(name, _)| &name.volume);
    let created = pool.while_written_through(names, pool.pool.create_snapshots(&plans)).await?;
    created.map_err(|error| refusal(&error, &pool))?;
    let made = |report: &SnapshotReport| snapshots.iter().any(|(_, id)| *id == report.id);
    Ok(pool.snapshots().into_iter().filter(made).collect())
}

/// Deletes the snapshot. Space that only it used is freed in the background.
///
/// *Durability*: when it returns.
pub(crate) async fn delete_snapshot<W: World>(shard: Rc<ShardContext<W>>, name: SnapshotName) -> Result<(), Refusal> {
    let pool = pool_of(&shard, &name)?;
    let (volume, report) = pool.snapshot(&name)?;
    let id = Uuid::from_bytes(report.id.to_bytes());
    let deleted = pool.pool.delete_snapshot(id, shard.world.unix_seconds()).await;
    deleted.map_err(|error| refusal(&error, &pool))?;
    // Kept for the report until its space is free.
    pool.maintenance.space.deleted.borrow_mut().entry(volume).or_default().push(report);
    // Frees the space that only the snapshot has used.
    pool.start_map_work();
    Ok(())
}

/// Locks the snapshot: it cannot be deleted before `lock` ends.
///
/// *Durability*: when it returns.
pub(crate) async fn lock_snapshot<W: World>(
    shard: Rc<ShardContext<W>>,
    name: SnapshotName,
    lock: SnapshotLock,
) -> Result<Vec<SnapshotReport>, Refusal> {
    let pool = pool_of(&shard, &name)?;
    let id = Uuid::from_bytes(pool.snapshot(&name)?.1.id.to_bytes());
    pool.pool.lock_snapshot(id, lock_of(lock)).await.map_err(|error| refusal(&error, &pool))?;
    Ok(vec![pool.snapshot(&name)?.1])
}

/// Parameters of a clone.
pub(crate) struct NewClone {
    /// Snapshot to clone.
    pub snapshot: SnapshotName,
    /// Name of the clone, in the same pool.
    pub name: VolumeName,
    /// Identity of the clone.
    pub id: VolumeId,
    /// Provisioning of the clone.
    pub provision: Provision,
    /// True if whole granules of zeros take no space.
    pub zero_detection: bool,
}

/// Creates a writable clone of the snapshot and serves it.
///
/// *Durability*: when it returns.
pub(crate) async fn clone_snapshot<W: World>(
    shard: Rc<ShardContext<W>>,
    new: NewClone,
) -> Result<VolumeReport, Refusal> {
    let pool = pool_of(&shard, &new.snapshot)?;
    let plan = ClonePlan {
        id: uuid_of(new.id),
        name: new.name.volume().to_string(),
        snapshot: Uuid::from_bytes(pool.snapshot(&new.snapshot)?.1.id.to_bytes()),
        provisioning: provisioning(new.provision),
        zero_detection: new.zero_detection,
        created_at: shard.world.unix_seconds(),
    };
    let made = pool.pool.create_clone(plan).await.map_err(|error| refusal(&error, &pool))?;
    let backend = Backend::Pool {
        stripe_unit: None,
        provision: new.provision,
        granule: Some(Size::new(u64::from(made.granule_bytes()))),
        zero_detection: new.zero_detection,
        encrypted: made.is_encrypted(),
    };
    // A clone may leave maintenance of the family's map to do.
    pool.start_map_work();
    let volume = pool.mapped(made, new.provision == Provision::Thick);
    Ok(pool.show(new.id, new.name, backend, volume))
}

/// Rolls the volume back to its snapshot and notifies its initiators that the content was replaced.
///
/// *Durability*: when it returns. *Errors*: `VOLUME_BUSY` while sessions use the volume, unless `in_use` permits that.
pub(crate) async fn roll_back<W: World>(
    shard: Rc<ShardContext<W>>,
    name: SnapshotName,
    in_use: bool,
) -> Result<VolumeReport, Refusal> {
    let pool = pool_of(&shard, &name)?;
    let (volume, report) = pool.snapshot(&name)?;
    let unit = pool.unit(volume, &name.volume)?;
    let sessions = unit.sessions();
    // Hosts with mounted file systems would mix cached blocks of one content with the other.
    if sessions > 0 && !in_use {
        let who = if sessions == 1 { "1 session uses it".to_owned() } else { format!("{sessions} sessions use it") };
        let message = format!("volume {} cannot be rolled back while {who}", name.volume);
        let hint = "log out its hosts first, because their caches would be stale; or repeat with --force";
        return Err(Refusal::new(code::VOLUME_BUSY, message, hint));
    }
    let id = Uuid::from_bytes(report.id.to_bytes());
    // Cached writes must be on disk before the roll-back: written later, they would end up in the restored content.
    let rolling = unit.replace_content(pool.pool.roll_back(id));
    let back = pool.while_written_through([&name.volume], rolling).await?;
    back.map_err(|error| refusal(&error, &pool))?;
    // Frees the versions that the roll-back has left behind.
    pool.start_map_work();
    Ok(pool.report_of(&unit))
}

/// Snapshots of all pools at home here, including those that are being deleted.
pub(crate) fn snapshots<W: World>(shard: &ShardContext<W>) -> Vec<SnapshotReport> {
    shard.pools.borrow().values().flat_map(|pool| pool.snapshots()).collect()
}

fn pool_of<W: World>(shard: &ShardContext<W>, name: &SnapshotName) -> Result<Rc<OpenPool<W>>, Refusal> {
    find(shard, name.volume.pool().expect("a snapshot is of a volume of a pool"))
}

fn lock_of(lock: SnapshotLock) -> Lock {
    match lock {
        SnapshotLock::Unlocked => Lock::Open,
        SnapshotLock::Until(time) => Lock::Until(time.unix()),
        SnapshotLock::Permanent => Lock::Permanent,
    }
}

impl<W: World> OpenPool<W> {
    /// Identity of the volume `name`, which must have a map.
    pub(super) fn mapped_id(&self, name: &VolumeName) -> Result<Uuid, Refusal> {
        let id = self.volume_id(name)?;
        let families = self.pool.status().families;
        // A volume in segments belongs to no family.
        if families.iter().flat_map(|family| &family.volumes).any(|volume| volume.id == id) {
            return Ok(id);
        }
        let message = format!("volume {name} has a stripe unit and no map, so it cannot have snapshots");
        let hint = "create a volume without --stripe-unit and copy the data";
        Err(Refusal::new(code::VOLUME_NO_MAP, message, hint))
    }

    /// Runs `work` while the volumes are in write-through, so that all acknowledged data is on the disks.
    ///
    /// *Errors*: `POOL_FAILED` if the data cannot be written; `work` is not started then.
    pub(super) async fn while_written_through<'a, T>(
        &self,
        names: impl IntoIterator<Item = &'a VolumeName>,
        work: impl Future<Output = T>,
    ) -> Result<T, Refusal> {
        let through = WrittenThrough::begin(self, names).await?;
        let done = work.await;
        through.end().await;
        Ok(done)
    }

    /// True if content of the volume can also be read elsewhere: from a snapshot, or from the origin of a clone.
    pub fn shares_content_of(&self, id: VolumeId) -> bool {
        let id = uuid_of(id);
        let families = self.pool.status().families;
        let volume = families.iter().flat_map(|family| &family.volumes).find(|volume| volume.id == id);
        volume.is_some_and(|volume| !volume.snapshots.is_empty() || volume.clone_of.is_some())
    }

    /// Snapshot with this name, and its volume.
    pub(super) fn snapshot(&self, name: &SnapshotName) -> Result<(Uuid, SnapshotReport), Refusal> {
        let volume = self.mapped_id(&name.volume)?;
        // A snapshot that is being deleted has given up its name.
        let found = self.snapshots().into_iter().find(|one| one.name == *name && one.state == SnapshotState::Available);
        found.map(|report| (volume, report)).ok_or_else(|| {
            let hint = "`blockyard snapshot list` shows the snapshots";
            Refusal::new(code::SNAPSHOT_UNKNOWN, format!("snapshot {name} does not exist"), hint)
        })
    }

    /// All snapshots of the pool, the oldest of each volume first, including those that are being deleted.
    fn snapshots(&self) -> Vec<SnapshotReport> {
        let status = self.pool.status();
        let volumes = || status.families.iter().flat_map(|family: &FamilyStatus| &family.volumes);
        let of_volume = |volume: &ThinStatus| {
            let own = VolumeName::in_pool(self.name.clone(), volume.name.parse().ok()?);
            Some(volume.snapshots.iter().filter_map(|one| report(&own, one)).collect::<Vec<_>>())
        };
        let mut all: Vec<SnapshotReport> = volumes().filter_map(of_volume).flatten().collect();
        let cleanings = self.pool.gc_progress();
        // Entries whose space is free by now are dropped here.
        self.maintenance.space.deleted.borrow_mut().retain(|volume, deleted| {
            let cleaning = cleanings.iter().find(|cleaning| cleaning.volume == *volume);
            if let Some(cleaning) = cleaning {
                // A volume without granules has nothing to examine.
                let percent = (cleaning.done * 100).checked_div(cleaning.total).unwrap_or(100);
                let state = SnapshotState::Deleting { percent: u8::try_from(percent).unwrap_or(100) };
                all.extend(deleted.iter().map(|report| SnapshotReport { state, ..report.clone() }));
            }
            cleaning.is_some()
        });
        all
    }
}

/// Guard that keeps volumes in write-through whatever their policies, and protects them from SANITIZE.
struct WrittenThrough<W: World> {
    /// Volumes with another write policy, to be restored.
    late: Vec<Rc<Unit<W>>>,
    _spared: Vec<SanitizeGuard<W>>,
}

impl<W: World> WrittenThrough<W> {
    /// Writes all acknowledged data of the volumes to the disks and switches them to write-through.
    ///
    /// *Errors*: `VOLUME_SANITIZED`; `POOL_FAILED` if the data cannot be written, with the former policies restored.
    async fn begin<'a>(pool: &OpenPool<W>, names: impl IntoIterator<Item = &'a VolumeName>) -> Result<Self, Refusal> {
        let spare = |name: &VolumeName| {
            // A volume that is held back has no unit: its latest writes may not be on the disks.
            let unit = pool.unit(pool.volume_id(name)?, name)?;
            let spared = SanitizeGuard::of(unit.clone()).ok_or_else(|| {
                let message = format!("volume {name} is being sanitized by a host");
                Refusal::new(code::VOLUME_SANITIZED, message, "wait until it has finished: see blockyard event list")
            })?;
            Ok((unit, spared))
        };
        // All volumes are checked before the first one is switched.
        let spared: Result<Vec<_>, Refusal> = names.into_iter().map(spare).collect();
        let (units, spared): (Vec<_>, Vec<_>) = spared?.into_iter().unzip();
        let mut through = Self { late: Vec::new(), _spared: spared };
        for unit in units {
            if unit.policy().write == WritePolicy::Through {
                continue;
            }
            let written = unit.write_through().await;
            // Added before the result is examined: a failed switch must be undone as well.
            through.late.push(unit.clone());
            if let Err(error) = written {
                through.end().await;
                let message = format!("the acknowledged writes of volume {} cannot be destaged: {error}", unit.name);
                return Err(Refusal::new(code::POOL_FAILED, message, "see blockyard status, then try again"));
            }
        }
        Ok(through)
    }

    /// Restores the write policies.
    async fn end(self) {
        for unit in &self.late {
            // The unit has kept its policy; setting it again puts the write policy back into effect.
            if let Err(error) = unit.set_policy(unit.policy()).await {
                tracing::error!(volume = %unit.name, %error, "a volume is written through, against its policy");
            }
        }
    }
}

fn report(volume: &VolumeName, status: &SnapshotStatus) -> Option<SnapshotReport> {
    let id = |uuid: Uuid| SnapshotId::from_bytes(uuid.into_bytes());
    Some(SnapshotReport {
        name: SnapshotName::of(volume.clone(), status.name.parse().ok()?),
        id: id(status.id),
        state: SnapshotState::Available,
        created: Timestamp::from_unix(status.created_at),
        size: Size::new(status.size_bytes),
        mapped: Size::new(status.mapped_bytes),
        reclaimable: Size::new(status.frees_bytes_min.unwrap_or(0)),
        lock: match status.lock {
            Lock::Open => SnapshotLock::Unlocked,
            Lock::Until(time) => SnapshotLock::Until(Timestamp::from_unix(time)),
            Lock::Permanent => SnapshotLock::Permanent,
        },
        cloned: status.is_cloned,
        set: (!status.set.is_nil()).then(|| id(status.set)),
    })
}
