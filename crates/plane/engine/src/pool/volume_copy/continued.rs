//! Continuation of copies that were interrupted by the end of the daemon or the closing of a pool.

use super::{
    CopySourceInfo, FOR_COPY, OpenPool, begin_to_receive, drop_snapshot, find, is_for_copy, offer, refusal, report,
    uuid_of,
};
use crate::shard_context::ShardContext;
use model::{CopySource, Name, PoolId, Progress, Refusal, Size, Subject, SubjectKind, VolumeId, VolumeName, event};
use shard::World;
use std::rc::Rc;
use volume::{CopyRecord, ThinStatus, Uuid};

/// Time in seconds that a snapshot taken for a copy is kept for a pool that is not open. The copy cannot continue
/// afterwards.
const KEPT_FOR_S: u64 = 7 * 24 * 60 * 60;

/// An unfinished copy to a volume of an open pool.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    pub(crate) target: VolumeName,
    pub(crate) id: VolumeId,
    pub(crate) source: CopySource,
    /// Identity of the pool of the source, which may have been renamed.
    pub(crate) source_pool: PoolId,
    pub(crate) size: Size,
    pub(crate) block_bytes: u32,
    pub(crate) progress: Progress,
    record: CopyRecord,
}

/// Name of the snapshot for the copy to the volume `id`. No operator can use such a name, and it fits the catalog.
pub(super) fn snapshot_name(id: VolumeId, target_pool: PoolId) -> String {
    // 54 bytes; the catalog has room for 63.
    format!("{FOR_COPY}{}@{}", simple(id), short(target_pool))
}

fn simple(id: VolumeId) -> String {
    Uuid::from_bytes(id.to_bytes()).simple().to_string()
}

/// Shortened pool identity, long enough to be unique among the pools of a node.
fn short(pool: PoolId) -> String {
    Uuid::from_bytes(pool.to_bytes()).simple().to_string()[..16].to_owned()
}

/// Unfinished copies recorded in the catalog of the open pool. A partial volume without a record is deleted.
pub(crate) async fn unfinished<W: World>(shard: Rc<ShardContext<W>>, pool: Name) -> Vec<Unfinished> {
    let Ok(pool) = find(&shard, &pool) else { return Vec::new() };
    // The catalog of a failed pool may be ahead of its disks; nothing is decided by it.
    if report::is_reported_failed(&pool) {
        return Vec::new();
    }
    let (status, mut records) = (pool.pool.status(), pool.pool.unfinished_copies());
    let mut found = Vec::new();
    let volumes = status.families.iter().flat_map(|family| &family.volumes);
    for volume in volumes.filter(|volume| volume.is_partial && !volume.is_deleting) {
        // A copy to this volume is running.
        if pool.copies.incoming.borrow().contains_key(&VolumeId::from_bytes(volume.id.into_bytes())) {
            continue;
        }
        match records.remove(&volume.id).and_then(|record| describe(&pool, volume, record)) {
            Some(unfinished) => found.push(unfinished),
            // Without a record that can be read, the copy can never continue.
            None => delete_half(&pool, volume).await,
        }
    }
    found
}

fn describe<W: World>(pool: &OpenPool<W>, volume: &ThinStatus, record: CopyRecord) -> Option<Unfinished> {
    let done_bytes = record.copied_bytes;
    Some(Unfinished {
        target: format!("{}/{}", pool.name, volume.name).parse().ok()?,
        id: VolumeId::from_bytes(volume.id.into_bytes()),
        source: record.source.parse().ok()?,
        source_pool: PoolId::from_bytes(record.source_pool.into_bytes()),
        size: Size::new(volume.size_bytes),
        block_bytes: volume.block_bytes,
        progress: Progress { done_bytes, total_bytes: volume.size_bytes.max(done_bytes), ..Progress::default() },
        record,
    })
}

async fn delete_half<W: World>(pool: &Rc<OpenPool<W>>, volume: &ThinStatus) {
    match pool.pool.delete_volume(volume.id).await {
        Ok(()) => {
            let name = format!("{}/{}", pool.name, volume.name);
            // The operator ordered the copy and would look for it.
            let sentence = format!("the partial copy {name} was lost: start the copy again");
            pool.shard.raise(event::COPY_CLEARED, Subject::new(SubjectKind::Volume, &name), sentence);
        }
        // It stays partial, so the next search tries again.
        Err(error) => tracing::error!(pool = %pool.name, %error, "half a copy cannot be deleted"),
    }
}

/// Opens the source of an unfinished copy and pins it until [`super::withdraw_copy`] or [`super::close_copy_ends`].
///
/// *Errors*: `SNAPSHOT_UNKNOWN` if the snapshot is gone and the copy can never continue; any other means that it cannot
/// continue now.
pub(crate) async fn offer_again<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    unfinished: Unfinished,
) -> Result<CopySourceInfo, Refusal> {
    offer(&find(&shard, &pool)?, unfinished.id, unfinished.record).await
}

/// Opens the partial target of an unfinished copy for the rest.
///
/// *Errors*: its pool is closed, or the volume cannot be opened now.
pub(crate) async fn receive_again<W: World>(
    shard: Rc<ShardContext<W>>,
    name: VolumeName,
    id: VolumeId,
) -> Result<(), Refusal> {
    let pool = find(&shard, name.pool().expect("a copy is made to a volume of a pool"))?;
    let half = pool.pool.open_thin_volume(uuid_of(id)).await.map_err(|error| refusal(&error, &pool))?;
    pool.watch_space();
    begin_to_receive(&pool, id, half);
    Ok(())
}

/// Deletes snapshots of the open pool that were taken for copies which are over. Those of copies to `kept` volumes
/// stay. Those of copies to pools that are not `open` stay for [`KEPT_FOR_S`], and while pools may still be opened
/// after a start.
pub(crate) async fn delete_left_snapshots<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    kept: Vec<VolumeId>,
    (open, others_are_away): (Vec<PoolId>, bool),
) {
    let Ok(pool) = find(&shard, &pool) else { return };
    let now = shard.world.unix_seconds();
    let is_left = |snapshot: &volume::SnapshotStatus| {
        let is_of = |id: &VolumeId| snapshot.name.contains(&simple(*id));
        let copies = &pool.copies;
        // A copy that runs or starts right now is not in `kept` yet.
        let is_used = copies.outgoing.borrow().keys().any(is_of) || copies.beginning.borrow().iter().any(is_of);
        let is_kept = is_used || kept.iter().any(is_of);
        let is_open = open.iter().any(|&pool| snapshot.name.ends_with(&short(pool)));
        let is_old = others_are_away && now.saturating_sub(snapshot.created_at) > KEPT_FOR_S;
        is_for_copy(&snapshot.name) && !is_kept && (is_open || is_old)
    };
    let status = pool.pool.status();
    let snapshots = status.families.iter().flat_map(|family| &family.volumes).flat_map(|volume| &volume.snapshots);
    for snapshot in snapshots.filter(|snapshot| is_left(snapshot)) {
        drop_snapshot(&pool, Some(snapshot.id)).await;
    }
}
