//! Read-only pools: opened without a write to their disks, by order of an operator or because the disks refuse writes.
//!
//! Every disk gets an overlay that keeps writes in memory, and recovery runs as usual: the content of redo log, map
//! logs and log device is shown from there. Such a pool is not claimed, not repaired, its maps are not maintained, and
//! hosts cannot write. The reasons are in `docs/adr/0018-pools-that-are-read-only.md`.

use super::open::{AfterOpen, Assembled, ProbedDisk, assemble_pool, find_pool, probe_disks, reprobe};
use super::ownership::{self, ClaimRequest};
use super::{Candidate, OpenPool, keys, membership, volumes};
use crate::array::{Disk, interruptible, overlay};
use crate::overlay::Memory;
use crate::shard_context::ShardContext;
use cluster::{Claim, WATCH};
use futures_util::future::{Either, join_all, select};
use model::{PoolId, PoolReport, Refusal, RemoteAddress, Size, Subject, VolumeReport, code, event};
use shard::{DiskOptions, InFlightOperations, World, mailbox};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;
use volume::{AssembledPool, BLOCK_BYTES, Contents};

/// Timeout for reading the mark of a disk; the others are judged without it.
const MARK_DEADLINE: Duration = Duration::from_secs(1);

/// Reason of a pool that an operator opened read-only.
pub(super) const ASKED_FOR: &str = "imported with --read-only";

/// Reason why a pool that could not be opened for writing can be opened read-only: its disks refuse writes. `None` if
/// the opening failed for another reason.
pub(super) async fn why_unwritable<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    candidates: &[Candidate],
    looked: Vec<ProbedDisk<W>>,
    refusal: &Refusal,
) -> Option<String> {
    // These refusals have other causes than disks that refuse writes.
    if matches!(
        refusal.code,
        code::POOL_OWNED
            | code::POOL_NOT_RELEASED
            | code::POOL_KEY_WRONG
            | code::POOL_OUTDATED
            | code::POOL_WAITING
            | code::POOL_SPLIT
            | code::UNCONFIRMED
    ) {
        return None;
    }
    let refused =
        looked.iter().find_map(|looked| Some((&looked.candidate.name, overlay::<W>(&looked.disk).refused()?)));
    let why = refused.map(|(disk, error)| format!("disk {disk} refuses writes: {error}"));
    let disks: Vec<InFlightOperations> = looked.iter().map(|looked| interruptible(&looked.disk).in_flight()).collect();
    drop(looked);
    // The disks must be closed before they are opened again below.
    super::until_let_go(shard, &disks).await;
    if why.is_some() {
        return why;
    }
    // Disks that can only be opened for reading were missing in the first attempt.
    let readable = probe_disks(shard, candidates, true, false).await;
    let found = find_pool(&readable, id).is_ok();
    // Closed before the loop below opens them for writing.
    drop(readable);
    let options = DiskOptions { block_bytes: BLOCK_BYTES, read_only: false };
    // Remote disks are not tried: opening one for writing registers a key with it.
    for Candidate { name, path } in candidates.iter().filter(|it| found && !RemoteAddress::is_remote(&it.path)) {
        if let Err(error) = shard.world.open_disk(path, options).await {
            return Some(format!("disk {name} cannot be opened for writing: {error}"));
        }
    }
    None
}

/// Opens the pool without writing to its disks. Hosts may read its volumes.
///
/// *Errors*: as for any opening; `POOL_OWNED` while the marks of another node move; `LIMIT_REACHED` if its logs hold
/// more than the memory limit.
pub(super) async fn open_read_only<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    looked: &[ProbedDisk<W>],
    taking: &ClaimRequest,
    why: String,
) -> Result<(PoolReport, Vec<VolumeReport>), Refusal> {
    let found = find_pool(looked, id)?;
    membership::admit(shard, taking, id, &found)?;
    keys::admit(&found, taking)?;
    // Before anything else: from here on not even a mark reaches a disk.
    let memory = Memory::of(&shard.overlay_room);
    looked.iter().for_each(|looked| overlay::<W>(&looked.disk).divert_writes(&memory));
    // A reader excludes nobody, but content that another node changes cannot be read consistently.
    let found = ownership::watch(shard, taking, found, async || reprobe(looked, id).await).await?;
    let opened = recover(shard, id, looked, &found, taking, &why).await;
    if memory.is_exhausted() {
        // Whatever the result of the recovery: a part of the content of the logs would be missing.
        let name = opened.map_or_else(|_| found.catalog.name.clone(), |(pool, _)| pool.name.to_string());
        shard.withdraw_where(|unit| unit.name.pool().is_some_and(|pool| pool.as_str() == name));
        return Err(too_much(&name, &why, shard.limits.read_only_bytes_max));
    }
    let (pool, volumes) = opened?;
    shard.pools.borrow_mut().insert(pool.name.clone(), pool.clone());
    tracing::warn!(pool = %pool.name, why, "the pool is read-only");
    let sentence = format!(
        "pool {} is open read-only: {why}; when its disks are writable, open it with blockyard pool import {}",
        pool.name, pool.name
    );
    shard.raise(event::POOL_READ_ONLY, Subject::pool(&pool.name), sentence);
    // Weak references: closing the pool must close its disks at once.
    let disks: Vec<Watched<W>> = looked.iter().map(|looked| Watched::new(&looked.disk)).collect();
    let before = newest_marks(found.marks());
    let own = volume::Uuid::from_bytes(id.to_bytes());
    let world = shard.world.clone();
    let look = async move || {
        let probes = join_all(disks.iter().map(|disk| disk.probe(&world))).await;
        let probes: Vec<_> = probes.into_iter().flatten().collect();
        let is_foreign = probes.iter().any(|probe| is_of_another(probe, own));
        let found = volume::assemble(&probes).pools.into_iter().find(|found| found.catalog.pool == own);
        (is_foreign, found.map(|found| newest_marks(found.marks())))
    };
    shard.world.spawn(watch_marks(Rc::downgrade(&pool), shard.clone(), before, look));
    Ok((pool.report(), volumes))
}

/// Recovers the pool in memory from its logs.
async fn recover<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    looked: &[ProbedDisk<W>],
    found: &AssembledPool,
    taking: &ClaimRequest,
    why: &str,
) -> Result<(Rc<OpenPool<W>>, Vec<VolumeReport>), Refusal> {
    let Assembled { pool, troubles, log_refused } = assemble_pool(shard, id, found, looked, taking).await?;
    assert!(pool.read_only.set(why.to_owned()).is_ok(), "a pool is opened once");
    let opened = AfterOpen { pool: &pool, found, guard: None };
    opened.tell_of_damage(looked);
    pool.bring_key(taking).await?;
    opened.report_problems(&troubles);
    opened.agree().await?;
    opened.suspect_dirty();
    let volumes = volumes::open_all(&pool, log_refused).await?;
    Ok((pool, volumes))
}

fn too_much(name: &str, why: &str, bytes: u64) -> Refusal {
    let most = Size::new(bytes).iec();
    let message = format!(
        "pool {name} cannot be opened read-only ({why}): its unreplayed log data exceeds the {most} of memory for \
         read-only pools"
    );
    let hint = format!("make its disks writable and run blockyard pool import {name}");
    Refusal::new(code::LIMIT_REACHED, message, hint)
}

type Marks = BTreeMap<volume::Uuid, (u64, u64)>;

fn newest_marks(marks: &[(volume::Uuid, Claim)]) -> Marks {
    marks.iter().map(|(disk, mark)| (*disk, (mark.epoch, mark.beat))).collect()
}

/// A disk whose mark is read periodically.
struct Watched<W: World> {
    disk: Weak<<Disk<W> as Deref>::Target>,
    /// True while the last read has not been answered.
    is_asked: Rc<Cell<bool>>,
}

impl<W: World> Watched<W> {
    fn new(disk: &Disk<W>) -> Self {
        Self { disk: Rc::downgrade(disk), is_asked: Rc::default() }
    }

    /// Probes the disk; `None` if it is closed or does not answer in time. No further probe is sent before the last one
    /// is answered.
    async fn probe(&self, world: &W) -> Option<volume::Probe> {
        let disk = self.disk.upgrade()?;
        if self.is_asked.replace(true) {
            return None;
        }
        let ((tell, told), is_asked) = (mailbox::channel(), self.is_asked.clone());
        world.spawn(async move {
            // Below the overlay: the marks of the other node are on the disk, not in memory.
            let probe = volume::probe(overlay(&disk).device()).await;
            is_asked.set(false);
            // The send fails after the deadline, when the receiver is gone.
            let _ = tell.send(probe);
        });
        match select(pin!(told.receive()), world.sleep(MARK_DEADLINE)).await {
            Either::Left((probe, _)) => probe,
            Either::Right(_) => None,
        }
    }
}

/// True if the disk is visibly not a member of the pool any more. A disk that cannot be read proves nothing.
fn is_of_another(probe: &volume::Probe, pool: volume::Uuid) -> bool {
    match &probe.contents {
        Contents::Member(member) => member.label.pool != pool,
        Contents::Unreadable(_) => false,
        _ => true,
    }
}

/// True if a disk has another mark than before. A disk that cannot be read proves nothing.
fn has_moved(before: &Marks, now: &Marks) -> bool {
    now.iter().any(|(disk, mark)| before.get(disk).is_some_and(|known| known != mark))
}

/// Ends a pool that another node opens for writing: reads would mix content of different times.
async fn watch_marks<W: World>(
    pool: Weak<OpenPool<W>>,
    shard: Rc<ShardContext<W>>,
    before: Marks,
    look: impl AsyncFn() -> (bool, Option<Marks>),
) {
    loop {
        shard.world.sleep(WATCH).await;
        if pool.upgrade().is_none() {
            return;
        }
        let (is_foreign, now) = look().await;
        if is_foreign || now.is_some_and(|now| has_moved(&before, &now)) {
            break;
        }
    }
    let Some(pool) = pool.upgrade() else { return };
    // Set before the units are withdrawn: orders that come in between are refused with this reason.
    let _ = pool.overtaken.set("another node writes to its disks".to_owned());
    // Hosts must not read content that another node changes.
    shard.withdraw_where(|unit| unit.name.pool() == Some(&pool.name));
    let name = &pool.name;
    let sentence =
        format!("another node has opened pool {name}, which was read-only here; this node has stopped using it");
    shard.raise(event::POOL_FENCED, Subject::pool(name), sentence);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(beats: &[(u8, u64)]) -> Marks {
        beats.iter().map(|&(disk, beat)| (volume::Uuid::from_bytes([disk; 16]), (1, beat))).collect()
    }

    /// Regression: a disk that did not answer was taken for one that another node had written to.
    #[test]
    fn mark_moves_on_a_disk_that_shows_it_and_on_no_other() {
        let before = marks(&[(1, 5), (2, 5)]);
        assert!(!has_moved(&before, &marks(&[(1, 5), (2, 5)])));
        assert!(!has_moved(&before, &marks(&[(2, 5)])), "one does not answer");
        assert!(!has_moved(&before, &marks(&[])));
        assert!(has_moved(&before, &marks(&[(2, 6)])));
    }
}
