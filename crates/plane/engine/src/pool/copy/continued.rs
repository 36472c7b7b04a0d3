//! Copies that were cut short, by the end of the daemon or of a pool, and continue.

use super::{
    FOR_COPY, OpenPool, Original, begin_to_receive, drop_snapshot, find, is_for_copy, offer, refusal, report, uuid_of,
};
use crate::shard_context::ShardContext;
use model::{CopySource, Name, PoolId, Progress, Refusal, Size, Subject, SubjectKind, VolumeId, VolumeName, event};
use shard::World;
use std::rc::Rc;
use volume::{CopyRecord, ThinStatus, Uuid};

/// A snapshot that was made for a copy is kept so long for a pool that is not there. The copy cannot continue afterwards.
const KEPT_FOR_S: u64 = 7 * 24 * 60 * 60;

/// A copy to a volume of an open pool that has not finished.
#[derive(Clone, Debug)]
pub(crate) struct Unfinished {
    pub(crate) target: VolumeName,
    pub(crate) id: VolumeId,
    pub(crate) source: CopySource,
    /// The pool of the source, by its identity: it may have another name by now.
    pub(crate) source_pool: PoolId,
    pub(crate) size: Size,
    pub(crate) block_bytes: u32,
    pub(crate) progress: Progress,
    record: CopyRecord,
}

/// The name of the snapshot that is made for the copy to volume `id` of a pool. No operator can write it, and it fits into a catalog.
pub(super) fn snapshot_name(id: VolumeId, target_pool: PoolId) -> String {
    format!("{FOR_COPY}{}@{}", simple(id), short(target_pool))
}

fn simple(id: VolumeId) -> String {
    Uuid::from_bytes(id.to_bytes()).simple().to_string()
}

/// Enough of a pool's identity to know it among those of a node.
fn short(pool: PoolId) -> String {
    Uuid::from_bytes(pool.to_bytes()).simple().to_string()[..16].to_owned()
}

/// What the catalog of the open pool knows of copies to it that have not finished. Half a copy of which it knows nothing is deleted.
pub(crate) async fn unfinished<W: World>(shard: Rc<ShardContext<W>>, pool: Name) -> Vec<Unfinished> {
    let Ok(pool) = find(&shard, &pool) else { return Vec::new() };
    // What a failed pool says of its catalog may not be on its disks.
    if report::is_reported_failed(&pool) {
        return Vec::new();
    }
    let (status, mut records) = (pool.pool.status(), pool.pool.unfinished_copies());
    let mut found = Vec::new();
    let volumes = status.families.iter().flat_map(|family| &family.volumes);
    for volume in volumes.filter(|volume| volume.is_partial && !volume.is_dying) {
        // It is being copied to.
        if pool.copies.incoming.borrow().contains_key(&VolumeId::from_bytes(volume.id.into_bytes())) {
            continue;
        }
        match records.remove(&volume.id).and_then(|record| describe(&pool, volume, record)) {
            Some(unfinished) => found.push(unfinished),
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
            let sentence = format!("volume {name}, to which something was being copied, is gone: copy it again");
            pool.shard.raise(event::COPY_CLEARED, Subject::new(SubjectKind::Volume, &name), sentence);
        }
        Err(error) => tracing::error!(pool = %pool.name, %error, "half a copy cannot be deleted"),
    }
}

/// What is still to be copied stays as it is until [`super::withdraw_copy`] or [`super::let_go_of_copy`].
///
/// *Errors*: `SNAPSHOT_UNKNOWN` when the snapshot is gone, so that the copy cannot continue; others when it cannot now.
pub(crate) async fn offer_again<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    unfinished: Unfinished,
) -> Result<Original, Refusal> {
    offer(&find(&shard, &pool)?, unfinished.id, unfinished.record).await
}

/// The half of a copy that there is takes the rest.
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

/// Snapshots of the open pool that were made for copies which are over are gone. Those to `kept` volumes continue; those to pools
/// that are not `open` are kept for some days, and while pools may still be opened after a start.
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
