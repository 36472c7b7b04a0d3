//! Full copies of volumes, between two pools or within one. Each end runs on the home shard of its pool.
//!
//! The source is a snapshot, an existing one or one taken for the copy. The target is in its catalog from the
//! beginning, marked as partial, and cannot be used before it is complete. Its catalog also records the source and the
//! progress, so that the copy continues when both pools are open again ([`continued`]).

pub(crate) mod continued;

use super::keys::new_key;
use super::refusals::refusal;
use super::volumes::uuid_of;
use super::work::{Work, WorkKind};
use super::{OpenPool, find, report};
use crate::array::{Disk, Group};
use crate::shard_context::ShardContext;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use futures_util::future::{Either, select};
use model::{CopySource, Name, PoolId, Progress, Refusal, Size, VolumeId, VolumeName, VolumeReport, code};
use shard::World;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use volume::{CopyProgress, CopyRecord, Lock, Provisioning, SnapshotPlan, ThinPlan, ThinVolume, Uuid};

/// Prefix of the names of snapshots that were taken for a copy. It is not a valid name, so no operator can use it.
const FOR_COPY: &str = "copy:";
const SOURCE_CLOSED: &str = "the pool of the source is closed";
/// Interval at which the progress of a copy is recorded in the catalog of the target.
const KEPT_EVERY: Duration = Duration::from_secs(10);

type Device<W> = Rc<ThinVolume<Disk<W>, Group<W>>>;

/// Copies that start or end in a pool, by the identities of their targets.
pub(super) struct Copies<W: World> {
    /// Copies whose snapshot is being taken.
    beginning: RefCell<BTreeSet<VolumeId>>,
    outgoing: RefCell<BTreeMap<VolumeId, Outgoing<W>>>,
    incoming: RefCell<BTreeMap<VolumeId, Device<W>>>,
}

/// Source of a copy, and the snapshot that was taken for it.
#[derive(Clone)]
struct Outgoing<W: World> {
    device: Device<W>,
    made: Option<Uuid>,
}

impl<W: World> Default for Copies<W> {
    fn default() -> Self {
        Self { beginning: RefCell::default(), outgoing: RefCell::default(), incoming: RefCell::default() }
    }
}

/// Properties of the target, taken from the source, and the record of the copy.
#[derive(Clone, Debug)]
pub(crate) struct CopySourceInfo {
    /// Size of the volume.
    pub size: Size,
    /// Block size that hosts see, in bytes.
    pub block_bytes: u32,
    /// Mapped space of the source.
    pub mapped: Size,
    granule_bytes: u32,
    provisioning: Provisioning,
    zero_detection: bool,
    encrypted: bool,
    /// Source and progress of the copy.
    record: CopyRecord,
}

impl CopySourceInfo {
    /// Block at which the copy continues, and the bytes copied before it.
    fn start(&self) -> (Blocks, u64) {
        // An impossible position in the record is not trusted; copying from the start costs time only.
        let inside = self.record.next.bytes(volume::BLOCK_BYTES) <= self.size.bytes();
        if inside { (self.record.next, self.record.copied_bytes) } else { (Blocks(0), 0) }
    }
}

/// Progress and control of a running copy, shared by the shards.
#[derive(Default)]
pub(crate) struct CopyState {
    progress: Mutex<Progress>,
    cancelled: AtomicBool,
    suspended: AtomicBool,
}

impl CopyState {
    /// Present progress.
    #[must_use]
    pub(crate) fn progress(&self) -> Progress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the copy; it ends after the present step.
    pub(crate) fn cancel(&self) {
        // Relaxed: the flag guards no other data, and the copy reads it at its next step.
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// True if the copy was cancelled.
    #[must_use]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Suspends the copy; it ends after the present step and continues later.
    pub(crate) fn suspend(&self) {
        self.suspended.store(true, Ordering::Relaxed);
    }

    fn is_to_end(&self) -> bool {
        self.is_cancelled() || self.suspended.load(Ordering::Relaxed)
    }

    pub(crate) fn set_progress(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

/// Outcome of a copy.
#[derive(Clone, Debug)]
pub(crate) enum CopyEnd {
    /// All of it is stable on the disks of the target; the text is a summary.
    Whole(String),
    /// Cancelled by an order.
    Cancelled,
    /// Suspended: continues when both pools are open again, or after a restart. The text is the reason.
    Suspended(String),
    /// Failed, for this reason.
    Failed(String),
}

/// True for a snapshot that was taken for a copy.
pub(super) fn is_for_copy(snapshot: &str) -> bool {
    snapshot.starts_with(FOR_COPY)
}

/// Opens the source of a copy and pins it until [`withdraw_copy`].
///
/// *Errors*: `VOLUME_UNKNOWN`, `SNAPSHOT_UNKNOWN`, `VOLUME_NO_MAP`, and those of taking a snapshot.
pub(crate) async fn open_copy_source<W: World>(
    shard: Rc<ShardContext<W>>,
    source: CopySource,
    (id, target_pool): (VolumeId, PoolId),
) -> Result<CopySourceInfo, Refusal> {
    let pool = find(&shard, source.pool().expect("the conductor sends volumes of pools here"))?;
    // Keeps the clean-up of left-over snapshots from deleting the one that is being taken.
    pool.copies.beginning.borrow_mut().insert(id);
    let offered = begin_offer(&pool, source, (id, target_pool)).await;
    pool.copies.beginning.borrow_mut().remove(&id);
    offered
}

async fn begin_offer<W: World>(
    pool: &Rc<OpenPool<W>>,
    source: CopySource,
    (id, target_pool): (VolumeId, PoolId),
) -> Result<CopySourceInfo, Refusal> {
    let (snapshot, made) = match &source {
        CopySource::Snapshot(name) => (Uuid::from_bytes(pool.snapshot(name)?.1.id.to_bytes()), None),
        CopySource::Volume(name) => {
            let made = snapshot_for_copy(pool, name, (id, target_pool)).await?;
            (made, Some(made))
        }
    };
    let source_pool = Uuid::from_bytes(pool.id.to_bytes());
    let (source, made_here) = (source.to_string(), made.is_some());
    let record = CopyRecord { source_pool, snapshot, made: made_here, source, next: Blocks(0), copied_bytes: 0 };
    let offered = offer(pool, id, record).await;
    // Nothing half done is left: the snapshot was taken for this copy only.
    if offered.is_err() {
        drop_snapshot(pool, made).await;
    }
    offered
}

/// Opens the snapshot of `record` as the source of a copy.
async fn offer<W: World>(pool: &Rc<OpenPool<W>>, id: VolumeId, record: CopyRecord) -> Result<CopySourceInfo, Refusal> {
    let snapshot = record.snapshot;
    let device = pool.pool.open_snapshot(snapshot).await.map_err(|error| refusal(&error, pool))?;
    assert!(device.is_read_only(), "what is copied stays as it is");
    // The record names only the snapshot; its volume and family follow from the catalog.
    let status = pool.pool.status();
    let has = |volume: &&volume::ThinStatus| volume.snapshots.iter().any(|one| one.id == snapshot);
    let found = status.families.iter().find_map(|family| Some((family, family.volumes.iter().find(has)?)));
    let (family, volume) = found.expect("a snapshot that is open is one of a volume");
    let original = CopySourceInfo {
        size: Size::new(device.size_bytes()),
        block_bytes: device.logical_block_bytes(),
        mapped: Size::new(device.space().map_or(0, |space| space.mapped_bytes)),
        granule_bytes: family.granule_bytes,
        provisioning: volume.provisioning,
        zero_detection: volume.zero_detection,
        encrypted: volume.is_encrypted,
        record: record.clone(),
    };
    let made = record.made.then_some(snapshot);
    let before = pool.copies.outgoing.borrow_mut().insert(id, Outgoing { device, made });
    assert!(before.is_none(), "a copy has one source");
    Ok(original)
}

/// Closes the source of a copy and deletes the snapshot that was taken for it.
pub(crate) async fn withdraw_copy<W: World>(shard: Rc<ShardContext<W>>, pool: Name, id: VolumeId) {
    let Ok(pool) = find(&shard, &pool) else { return };
    let outgoing = pool.copies.outgoing.borrow_mut().remove(&id);
    if let Some(Outgoing { device, made }) = outgoing {
        // The device must be closed before its snapshot can be deleted.
        drop(device);
        drop_snapshot(&pool, made).await;
    }
}

/// Creates the target in its pool, empty and not usable yet.
///
/// *Errors*: as for creating a volume; `POOL_FULL` also if the mapped space of the source does not fit. *Durability*:
/// when it returns.
pub(crate) async fn create_copy_target<W: World>(
    shard: Rc<ShardContext<W>>,
    name: VolumeName,
    id: VolumeId,
    original: CopySourceInfo,
) -> Result<(), Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let free = Size::new(pool.pool.status().free_bytes);
    // Checked in advance, so that a copy does not fill the pool of the target and fail at its end.
    if original.mapped > free {
        let message = format!("pool {} has {} free, but the copy needs {}", pool.name, free, original.mapped);
        return Err(Refusal::new(code::POOL_FULL, message, "free space in that pool, or add disks to it"));
    }
    let plan = ThinPlan {
        id: uuid_of(id),
        name: name.volume().to_string(),
        size_bytes: original.size.bytes(),
        block_bytes: original.block_bytes,
        granule_bytes: original.granule_bytes,
        provisioning: original.provisioning,
        zero_detection: original.zero_detection,
        // A key of its own: the source has that of its family, and may be in another pool.
        encryption: original.encrypted.then(|| new_key(&shard.world)),
        created_at: shard.world.unix_seconds(),
    };
    pool.watch_space();
    let made = pool.pool.create_partial_volume(plan, original.record).await.map_err(|error| refusal(&error, &pool))?;
    begin_to_receive(&pool, id, made);
    Ok(())
}

/// Registers the target for the writes of the copy.
fn begin_to_receive<W: World>(pool: &Rc<OpenPool<W>>, id: VolumeId, target: Device<W>) {
    let before = pool.copies.incoming.borrow_mut().insert(id, target);
    assert!(before.is_none(), "a copy has one target");
    pool.start_map_work();
}

/// Copies from the source of [`open_copy_source`] to the target that [`create_copy_target`] created on the shard
/// `home`, at the pace of the repair policy of the source's pool.
pub(crate) async fn send_copy<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    id: VolumeId,
    target: VolumeName,
    (home, original): (usize, CopySourceInfo),
    state: Arc<CopyState>,
) -> CopyEnd {
    let Ok(pool) = find(&shard, &pool) else { return CopyEnd::Suspended(SOURCE_CLOSED.to_owned()) };
    let device = pool.copies.outgoing.borrow().get(&id).map(|outgoing| outgoing.device.clone());
    let device = device.expect("it was offered, and is withdrawn only after this");
    let total = device.space().map_or(0, |space| space.mapped_bytes);
    let (from, before) = original.start();
    // `Work` asserts that no more is done than there is, and the record is not trusted that far.
    let before = before.min(total);
    let mut work = Work::resumed(WorkKind::Copy, shard.world.now(), before, total);
    let (mut gait, mut kept) = (pool.maintenance.resume_pace(before), shard.world.now());
    state.set_progress(work.progress(shard.world.now()));
    // The target was created with the size of the source, so it has the same geometry.
    let far = RemoteTarget { shard: shard.clone(), home, target, id, geometry: device.geometry() };
    let progress = async |copied: CopyProgress| {
        let (done, now) = (before + copied.bytes, shard.world.now());
        work.advance(now, done);
        state.set_progress(work.progress(now));
        // Recording the progress costs a flush and a commit, so it is not done at each step.
        if now.since(kept) >= KEPT_EVERY {
            kept = now;
            far.keep(Blocks(copied.scanned_bytes / u64::from(volume::BLOCK_BYTES)), done).await;
        }
        pool.maintenance.keep_pace(&mut gait, done, total, |_| true).await;
        !state.is_to_end()
    };
    let copied = {
        // The copy also ends when the pool of its source is closed.
        let (copying, halted) = (pin!(device.copy_to(&far, from, progress)), pin!(pool.halt.raised()));
        match select(copying, halted).await {
            Either::Left((copied, _)) => Some(copied),
            Either::Right(_) => None,
        }
    };
    // The order of the arms matters: a cancelled copy is not suspended, and a failed pool is not an error of the copy.
    match copied {
        _ if state.is_cancelled() => CopyEnd::Cancelled,
        _ if state.is_to_end() => CopyEnd::Suspended("the engine stops".to_owned()),
        Some(Ok(copied)) => CopyEnd::Whole(work.summary(shard.world.now(), copied.bytes, "it")),
        Some(Err(error)) if error.kind == IoErrorKind::NoSpace => {
            CopyEnd::Failed("the pool of the copy is full".to_owned())
        }
        Some(Err(_)) if report::is_reported_failed(&pool) => CopyEnd::Suspended(SOURCE_CLOSED.to_owned()),
        Some(Err(_)) if !far.serves().await => CopyEnd::Suspended("the pool of the copy is closed".to_owned()),
        Some(Err(error)) => CopyEnd::Failed(error.to_string()),
        None => CopyEnd::Suspended(SOURCE_CLOSED.to_owned()),
    }
}

/// Marks the target as complete and serves it.
///
/// *Durability*: when it returns.
pub(crate) async fn complete_copy<W: World>(
    shard: Rc<ShardContext<W>>,
    name: VolumeName,
    id: VolumeId,
) -> Result<VolumeReport, Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let uuid = uuid_of(id);
    // Durable before it serves: a host must not write to a volume that a restart would treat as partial.
    pool.pool.complete_volume(uuid).await.map_err(|error| refusal(&error, &pool))?;
    let device = pool.copies.incoming.borrow_mut().remove(&id).expect("it was received");
    let status = pool.pool.status();
    let found = status
        .families
        .iter()
        .find_map(|family| Some((family, family.volumes.iter().find(|volume| volume.id == uuid)?)));
    let (family, volume) = found.expect("the pool has just said that it is whole");
    let backend = super::volumes::backend_of(volume, family.granule_bytes);
    let thick = volume.provisioning == Provisioning::Thick;
    Ok(pool.show(id, name, backend, pool.mapped(device, thick)))
}

/// Closes both ends of a suspended copy. The partial target and the snapshot stay.
pub(crate) async fn close_copy_ends<W: World>(shard: Rc<ShardContext<W>>, pool: Name, id: VolumeId) {
    let Ok(pool) = find(&shard, &pool) else { return };
    drop(pool.copies.outgoing.borrow_mut().remove(&id));
    drop(pool.copies.incoming.borrow_mut().remove(&id));
}

/// Deletes the partial target of a copy.
pub(crate) async fn abandon_copy<W: World>(shard: Rc<ShardContext<W>>, name: VolumeName, id: VolumeId) {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"));
    let Ok(pool) = pool else { return };
    // Dropped first, so that nothing writes to the volume while it is deleted.
    drop(pool.copies.incoming.borrow_mut().remove(&id));
    if let Err(error) = pool.pool.delete_volume(uuid_of(id)).await {
        tracing::error!(volume = %name, %error, "what a copy has left is cleared away when its pool is opened");
    }
    pool.maintenance.space.chores.leave();
}

/// Takes the snapshot for the copy `id` of the volume.
async fn snapshot_for_copy<W: World>(
    pool: &OpenPool<W>,
    name: &VolumeName,
    (id, target_pool): (VolumeId, PoolId),
) -> Result<Uuid, Refusal> {
    let snapshot = super::new_uuid(&pool.shard.world);
    let plan = SnapshotPlan {
        id: snapshot,
        volume: pool.mapped_id(name)?,
        name: continued::snapshot_name(id, target_pool),
        // Not locked, because the copy deletes it at its end.
        lock: Lock::Open,
        created_at: pool.shard.world.unix_seconds(),
    };
    // Writes that were acknowledged from memory belong to the snapshot as well.
    let plans = [plan];
    let made = pool.while_written_through([name], pool.pool.create_snapshots(&plans)).await?;
    made.map(|()| snapshot).map_err(|error| refusal(&error, pool))
}

/// Deletes the snapshot that was taken for a copy.
async fn drop_snapshot<W: World>(pool: &Rc<OpenPool<W>>, made: Option<Uuid>) {
    let Some(snapshot) = made else { return };
    if let Err(error) = pool.pool.delete_snapshot(snapshot, pool.shard.world.unix_seconds()).await {
        tracing::error!(pool = %pool.name, %error, "the snapshot of a copy is cleared away when the pool is opened");
    }
    pool.start_map_work();
}

/// Pool of the volume, if it is open.
fn pool_of<W: World>(shard: &ShardContext<W>, volume: &VolumeName) -> Option<Rc<OpenPool<W>>> {
    volume.pool().and_then(|name| find(shard, name).ok())
}

/// Target of a copy as seen from the shard of the source. Writes and flushes are forwarded to its home.
struct RemoteTarget<W: World> {
    shard: Rc<ShardContext<W>>,
    home: usize,
    target: VolumeName,
    id: VolumeId,
    geometry: Geometry,
}

impl<W: World> RemoteTarget<W> {
    /// Runs `act` with the target on its home shard.
    async fn at_home<T: Send + 'static>(
        &self,
        extent: Extent,
        act: impl AsyncFnOnce(Device<W>) -> Result<T, IoError> + Send + 'static,
    ) -> Result<T, IoError> {
        let (target, id, gone) = (self.target.clone(), self.id, IoError::new(IoErrorKind::Gone, extent));
        let done = self.shard.call(self.home, move |shard| async move {
            let pool = pool_of(&shard, &target);
            // The pool may have been closed since the last call.
            let device = pool.and_then(|pool| pool.copies.incoming.borrow().get(&id).cloned());
            act(device.ok_or(gone)?).await
        });
        done.await.unwrap_or(Err(gone))
    }
}

impl<W: World> RemoteTarget<W> {
    /// Records in the catalog of the target that the copy is at block `next`, after `copied_bytes` of data.
    async fn keep(&self, next: Blocks, copied_bytes: u64) {
        let (target, id) = (self.target.clone(), self.id);
        let kept = self.shard.call(self.home, move |shard| async move {
            let pool = pool_of(&shard, &target)?;
            let device = pool.copies.incoming.borrow().get(&id).cloned()?;
            // Flush before the commit: the record must not claim data that a power loss could still take away.
            let _: Stable = device.flush(Written::attest()).await.ok()?;
            pool.pool.store_copied(uuid_of(id), next, copied_bytes).await.ok()
        });
        // Only the position after a restart is older; the copy itself goes on.
        if kept.await.flatten().is_none() {
            tracing::warn!(volume = %self.target, "how far its copy is could not be recorded");
        }
    }

    /// True if the pool of the target is open and has not failed.
    async fn serves(&self) -> bool {
        let target = self.target.clone();
        let serves = self.shard.call(self.home, move |shard| async move {
            pool_of(&shard, &target).is_some_and(|pool| !report::is_reported_failed(&pool))
        });
        serves.await.unwrap_or(false)
    }
}

impl<W: World> BlockDevice for RemoteTarget<W> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        // A copy only writes to its target.
        Err(IoError::new(IoErrorKind::Unsupported, extent))
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry.extent_of(start, data.len())?;
        let written = self.at_home(extent, async move |device: Device<W>| device.write(start, data).await.map(drop));
        written.await.map(|()| Written::attest())
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        let flushed = async |device: Device<W>| device.flush(Written::attest()).await.map(drop);
        self.at_home(self.geometry.all(), flushed).await.map(|()| Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        Err(IoError::new(IoErrorKind::Unsupported, extent))
    }
}
