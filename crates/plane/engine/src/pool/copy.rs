//! Full copies of volumes, between two pools or within one, each end on the home shard of its pool.
//!
//! The source is a snapshot, one of the operator's or one that is made for the copy. The target is in its catalog from the
//! beginning, marked as partial, and is nobody's to use before it is whole. Neither survives the daemon that copies:
//! whoever opens a pool clears away what it finds of copies.

use super::keys::new_key;
use super::refusals::refusal;
use super::volumes::uuid_of;
use super::work::{Work, WorkKind};
use super::{OpenPool, find};
use crate::array::{Disk, Group};
use crate::shard_context::ShardContext;
use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use futures_util::future::{Either, select};
use model::{CopySource, Name, Progress, Refusal, Size, VolumeId, VolumeName, VolumeReport, code, event};
use shard::World;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use volume::{Copied, Lock, Provisioning, SnapshotPlan, ThinPlan, ThinVolume, Uuid};

/// What the names of snapshots begin with that are there for a copy; no operator can write it.
const FOR_COPY: &str = "copy:";

type Device<W> = Rc<ThinVolume<Disk<W>, Group<W>>>;

/// The copies that begin or end in a pool, by the identities of their targets.
pub(super) struct Copies<W: World> {
    outgoing: RefCell<BTreeMap<VolumeId, Outgoing<W>>>,
    incoming: RefCell<BTreeMap<VolumeId, Device<W>>>,
}

/// What is copied, and the snapshot that was made for it.
#[derive(Clone)]
struct Outgoing<W: World> {
    device: Device<W>,
    made: Option<Uuid>,
}

impl<W: World> Default for Copies<W> {
    fn default() -> Self {
        Self { outgoing: RefCell::default(), incoming: RefCell::default() }
    }
}

/// What a copy is to be like.
#[derive(Clone, Debug)]
pub struct Original {
    /// Its size.
    pub size: Size,
    /// Bytes of a logical block as hosts see it.
    pub block_bytes: u32,
    /// How much of it takes space.
    pub mapped: Size,
    granule_bytes: u32,
    provisioning: Provisioning,
    zero_detection: bool,
    encrypted: bool,
}

/// What the shards know of a copy that runs.
#[derive(Default)]
pub struct CopyState {
    progress: Mutex<Progress>,
    cancelled: AtomicBool,
}

impl CopyState {
    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Progress {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It ends with its present step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// True when it was told to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn tell(&self, progress: Progress) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }
}

/// How a copy ended.
#[derive(Clone, Debug)]
pub enum CopyEnd {
    /// All of it is on the disks of the target, and this is what it took.
    Whole(String),
    /// It was told to end.
    Cancelled,
    /// It could not go on, in words.
    Failed(String),
}

/// True for a snapshot that is there for a copy.
pub(super) fn is_for_copy(snapshot: &str) -> bool {
    snapshot.starts_with(FOR_COPY)
}

/// What is to be copied stays as it is until [`withdraw_copy`].
///
/// *Errors*: `VOLUME_UNKNOWN`, `SNAPSHOT_UNKNOWN`, `VOLUME_NO_MAP`, and what making a snapshot is refused with.
pub async fn offer_copy<W: World>(
    shard: Rc<ShardContext<W>>,
    source: CopySource,
    id: VolumeId,
) -> Result<Original, Refusal> {
    let pool = find(&shard, source.pool().expect("the conductor sends volumes of pools here"))?;
    let (snapshot, made) = match &source {
        CopySource::Snapshot(name) => (Uuid::from_bytes(pool.snapshot(name)?.1.id.to_bytes()), None),
        CopySource::Volume(name) => {
            let made = snapshot_for_copy(&pool, name, id).await?;
            (made, Some(made))
        }
    };
    let opened = pool.pool.open_snapshot(snapshot).await;
    let device = match opened {
        Ok(device) => device,
        Err(error) => {
            drop_snapshot(&pool, made).await;
            return Err(refusal(&error, &pool));
        }
    };
    let status = pool.pool.status();
    let has = |volume: &&volume::ThinStatus| volume.snapshots.iter().any(|one| one.id == snapshot);
    let found = status.families.iter().find_map(|family| Some((family, family.volumes.iter().find(has)?)));
    let (family, volume) = found.expect("a snapshot that is open is one of a volume");
    let original = Original {
        size: Size::new(device.size_bytes()),
        block_bytes: device.logical_block_bytes(),
        mapped: Size::new(device.space().map_or(0, |space| space.mapped_bytes)),
        granule_bytes: family.granule_bytes,
        provisioning: volume.provisioning,
        zero_detection: volume.zero_detection,
        encrypted: volume.is_encrypted,
    };
    pool.copies.outgoing.borrow_mut().insert(id, Outgoing { device, made });
    Ok(original)
}

/// What was copied, or was to be, need not be kept any more.
pub async fn withdraw_copy<W: World>(shard: Rc<ShardContext<W>>, pool: Name, id: VolumeId) {
    let Ok(pool) = find(&shard, &pool) else { return };
    let outgoing = pool.copies.outgoing.borrow_mut().remove(&id);
    if let Some(Outgoing { device, made }) = outgoing {
        drop(device);
        drop_snapshot(&pool, made).await;
    }
}

/// The target is in its pool, empty, and nobody can use it.
///
/// *Errors*: as of making a volume; `POOL_FULL` also where there is no room for what takes space in the original.
/// *Durability*: when it returns.
pub async fn receive_copy<W: World>(
    shard: Rc<ShardContext<W>>,
    name: VolumeName,
    id: VolumeId,
    original: Original,
) -> Result<(), Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let free = Size::new(pool.pool.status().free_bytes);
    if original.mapped > free {
        let message = format!("pool {} has {} free, and the copy would take {}", pool.name, free, original.mapped);
        return Err(Refusal::new(code::POOL_FULL, message, "make room there, or give the pool more disks"));
    }
    let plan = ThinPlan {
        id: uuid_of(id),
        name: name.volume().to_string(),
        size_bytes: original.size.bytes(),
        block_bytes: original.block_bytes,
        granule_bytes: original.granule_bytes,
        provisioning: original.provisioning,
        zero_detection: original.zero_detection,
        encryption: original.encrypted.then(|| new_key(&shard.world)),
        created_at: shard.world.unix_seconds(),
    };
    pool.watch_space();
    let made = pool.pool.create_partial_volume(plan).await.map_err(|error| refusal(&error, &pool))?;
    pool.copies.incoming.borrow_mut().insert(id, made);
    pool.begin_tending();
    Ok(())
}

/// Copies what [`offer_copy`] has kept to the volume that [`receive_copy`] has made on the shard `home`, at the pace that
/// is set for repairs of the source's pool.
pub async fn send_copy<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    id: VolumeId,
    target: VolumeName,
    home: usize,
    state: Arc<CopyState>,
) -> CopyEnd {
    let Ok(pool) = find(&shard, &pool) else { return CopyEnd::Failed("the pool of the source is closed".to_owned()) };
    let device = pool.copies.outgoing.borrow().get(&id).map(|outgoing| outgoing.device.clone());
    let device = device.expect("it was offered, and is withdrawn only after this");
    let total = device.space().map_or(0, |space| space.mapped_bytes);
    let mut work = Work::new(WorkKind::Copy, shard.world.now(), total);
    let mut gait = pool.care.gait();
    state.tell(work.progress(shard.world.now()));
    let far = Far { shard: shard.clone(), home, target, id, geometry: device.geometry() };
    let progress = async |copied: Copied| {
        work.advance(shard.world.now(), copied.bytes);
        state.tell(work.progress(shard.world.now()));
        pool.care.keep_pace(&mut gait, copied.bytes, total, |_| true).await;
        !state.is_cancelled()
    };
    let copied = {
        let (copying, halted) = (pin!(device.copy_to(&far, progress)), pin!(pool.halt.pulled()));
        match select(copying, halted).await {
            Either::Left((copied, _)) => Some(copied),
            Either::Right(_) => None,
        }
    };
    match copied {
        _ if state.is_cancelled() => CopyEnd::Cancelled,
        Some(Ok(copied)) => CopyEnd::Whole(work.summary(shard.world.now(), copied.bytes, "it")),
        Some(Err(error)) if error.kind == IoErrorKind::NoSpace => {
            CopyEnd::Failed("the pool of the copy is full".to_owned())
        }
        Some(Err(error)) => CopyEnd::Failed(error.to_string()),
        None => CopyEnd::Failed("the pool of the source was closed".to_owned()),
    }
}

/// The target is whole, and serves.
///
/// *Durability*: when it returns.
pub async fn complete_copy<W: World>(
    shard: Rc<ShardContext<W>>,
    name: VolumeName,
    id: VolumeId,
) -> Result<VolumeReport, Refusal> {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"))?;
    let uuid = uuid_of(id);
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

/// The target is no more.
pub async fn abandon_copy<W: World>(shard: Rc<ShardContext<W>>, name: VolumeName, id: VolumeId) {
    let pool = find(&shard, name.pool().expect("the conductor sends volumes of pools here"));
    let Ok(pool) = pool else { return };
    drop(pool.copies.incoming.borrow_mut().remove(&id));
    if let Err(error) = pool.pool.delete_volume(uuid_of(id)).await {
        tracing::error!(volume = %name, %error, "what a copy has left is cleared away when its pool is opened");
    }
    pool.care.space.chores.leave();
}

/// Makes the snapshot that the copy `id` of the volume is made of.
async fn snapshot_for_copy<W: World>(pool: &OpenPool<W>, name: &VolumeName, id: VolumeId) -> Result<Uuid, Refusal> {
    let snapshot = super::new_uuid(&pool.shard.world);
    let plan = SnapshotPlan {
        id: snapshot,
        volume: pool.mapped_id(name)?,
        name: format!("{FOR_COPY}{id}"),
        lock: Lock::Open,
        created_at: pool.shard.world.unix_seconds(),
    };
    // What was acknowledged from memory belongs to the instant, too.
    let plans = [plan];
    let made = pool.while_written_through([name], pool.pool.create_snapshots(&plans)).await?;
    made.map(|()| snapshot).map_err(|error| refusal(&error, pool))
}

/// The snapshot that was made for a copy is no more.
async fn drop_snapshot<W: World>(pool: &Rc<OpenPool<W>>, made: Option<Uuid>) {
    let Some(snapshot) = made else { return };
    if let Err(error) = pool.pool.delete_snapshot(snapshot, pool.shard.world.unix_seconds()).await {
        tracing::error!(pool = %pool.name, %error, "the snapshot of a copy is cleared away when the pool is opened");
    }
    pool.begin_tending();
}

/// What copies have left that were cut short is gone.
pub(super) async fn clear<W: World>(pool: &Rc<OpenPool<W>>) {
    let status = pool.pool.status();
    let volumes = || status.families.iter().flat_map(|family| &family.volumes);
    for volume in volumes().filter(|volume| volume.is_partial && !volume.is_dying) {
        match pool.pool.delete_volume(volume.id).await {
            Ok(()) => {
                let name = format!("{}/{}", pool.name, volume.name);
                let sentence = format!("volume {name}, to which something was being copied, is gone: copy it again");
                pool.shard.raise(event::COPY_CLEARED, model::Subject::new(model::SubjectKind::Volume, &name), sentence);
            }
            Err(error) => tracing::error!(pool = %pool.name, %error, "half a copy cannot be cleared away"),
        }
    }
    let snapshots = volumes().flat_map(|volume| &volume.snapshots);
    for snapshot in snapshots.filter(|snapshot| is_for_copy(&snapshot.name)) {
        drop_snapshot(pool, Some(snapshot.id)).await;
    }
}

/// The target of a copy, as the shard of the source sees it.
struct Far<W: World> {
    shard: Rc<ShardContext<W>>,
    home: usize,
    target: VolumeName,
    id: VolumeId,
    geometry: Geometry,
}

impl<W: World> Far<W> {
    /// Does `act` with the volume on its own shard.
    async fn at_home<T: Send + 'static>(
        &self,
        extent: Extent,
        act: impl AsyncFnOnce(Device<W>) -> Result<T, IoError> + Send + 'static,
    ) -> Result<T, IoError> {
        let (target, id, gone) = (self.target.clone(), self.id, IoError::new(IoErrorKind::Gone, extent));
        let done = self.shard.call(self.home, move |shard| async move {
            let pool = target.pool().and_then(|name| find(&shard, name).ok());
            let device = pool.and_then(|pool| pool.copies.incoming.borrow().get(&id).cloned());
            act(device.ok_or(gone)?).await
        });
        done.await.unwrap_or(Err(gone))
    }
}

impl<W: World> BlockDevice for Far<W> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
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
