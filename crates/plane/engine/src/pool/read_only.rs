//! Pools that are opened without a write to their disks: because an operator asks for it, or because the disks take none.
//!
//! Every disk is laid below an overlay that keeps writes in memory, and the pool is recovered as always: what redo log, map logs
//! and log device hold is shown from there. Nobody claims the pool, repairs it or tends its maps, and no host may write.
//! `docs/adr/0018-pools-that-are-read-only.md` says why it is done so.

use super::open::{AfterOpen, Assembled, Looked, assemble_pool, find_pool, look_again, look_at};
use super::own::{self, Taking};
use super::{Candidate, OpenPool, keys, membership, volumes};
use crate::array::{Disk, interruptible, overlay};
use crate::overlay::Memory;
use crate::shard_context::ShardContext;
use cluster::{Claim, WATCH};
use futures_util::future::{Either, join_all, select};
use model::{PoolId, PoolReport, Refusal, RemoteAddress, Size, Subject, VolumeReport, code, event};
use shard::{DiskOptions, Landings, World, mailbox};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::time::Duration;
use volume::{BLOCK_BYTES, Contents, FoundPool};

/// How long a disk may take to show its mark, until the others are judged without it.
const MARK_DEADLINE: Duration = Duration::from_secs(1);

/// Why a pool is read-only whose operator wants it so.
pub(super) const ASKED_FOR: &str = "it was imported with --read-only";

/// Why the pool, which could not be opened for writing, can be opened for reading: its disks refuse writes. Nothing when the
/// refusal has another reason.
pub(super) async fn why_unwritable<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    candidates: &[Candidate],
    looked: Vec<Looked<W>>,
    refusal: &Refusal,
) -> Option<String> {
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
    let disks: Vec<Landings> = looked.iter().map(|looked| interruptible(&looked.disk).landings()).collect();
    drop(looked);
    super::until_let_go(shard, &disks).await;
    if why.is_some() {
        return why;
    }
    // Disks that can be opened for reading alone were not there before.
    let readable = look_at(shard, candidates, true, false).await;
    let found = find_pool(&readable, id).is_ok();
    drop(readable);
    let options = DiskOptions { block_bytes: BLOCK_BYTES, read_only: false };
    for Candidate { name, path } in candidates.iter().filter(|it| found && !RemoteAddress::is_remote(&it.path)) {
        if let Err(error) = shard.world.open_disk(path, options).await {
            return Some(format!("disk {name} cannot be opened for writing: {error}"));
        }
    }
    None
}

/// The pool is open, nothing is written to its disks, and hosts may read its volumes.
///
/// *Errors*: as of any opening; `POOL_OWNED` while another node's marks move; `LIMIT_REACHED` when its logs hold more than memory
/// may be taken for.
pub(super) async fn open_read_only<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    looked: &[Looked<W>],
    taking: &Taking,
    why: String,
) -> Result<(PoolReport, Vec<VolumeReport>), Refusal> {
    let found = find_pool(looked, id)?;
    membership::admit(shard, taking, id, &found)?;
    keys::admit(&found, taking)?;
    // Before anything else: from here on not even a mark reaches a disk.
    let memory = Memory::of(&shard.overlay_room);
    looked.iter().for_each(|looked| overlay::<W>(&looked.disk).keep_in(&memory));
    let found = own::watch(shard, taking, found, async || look_again(looked, id).await).await?;
    let opened = recover(shard, id, looked, &found, taking, &why).await;
    if memory.is_exhausted() {
        // Whatever it has come to: something that the logs hold would not be shown.
        let name = opened.map_or_else(|_| found.catalog.name.clone(), |(pool, _)| pool.name.to_string());
        shard.withdraw_where(|unit| unit.name.pool().is_some_and(|pool| pool.as_str() == name));
        return Err(too_much(&name, &why, shard.limits.read_only_bytes_max));
    }
    let (pool, volumes) = opened?;
    shard.pools.borrow_mut().insert(pool.name.clone(), pool.clone());
    tracing::warn!(pool = %pool.name, why, "the pool is read-only");
    let sentence = format!(
        "pool {} is open read-only: {why}; open it for writing with blockyard pool import {} once its disks may be written",
        pool.name, pool.name
    );
    shard.raise(event::POOL_READ_ONLY, Subject::pool(&pool.name), sentence);
    // Not held: a pool that is closed lets go of its disks at once.
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

/// The pool with what its logs hold, in memory.
async fn recover<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: PoolId,
    looked: &[Looked<W>],
    found: &FoundPool,
    taking: &Taking,
    why: &str,
) -> Result<(Rc<OpenPool<W>>, Vec<VolumeReport>), Refusal> {
    let Assembled { pool, troubles, log_refused } = assemble_pool(shard, id, found, looked, taking).await?;
    assert!(pool.read_only.set(why.to_owned()).is_ok(), "a pool is opened once");
    let opened = AfterOpen { pool: &pool, found };
    opened.tell_of_damage(looked);
    pool.bring_key(taking).await?;
    opened.tell_of_trouble(&troubles);
    opened.agree().await?;
    opened.suspect_dirty();
    let volumes = volumes::open_all(&pool, log_refused).await?;
    Ok((pool, volumes))
}

fn too_much(name: &str, why: &str, bytes: u64) -> Refusal {
    let most = Size::new(bytes).iec();
    let message = format!(
        "pool {name} cannot be opened read-only ({why}): what its logs hold and its disks do not takes more than is left of the {most} of memory for such pools"
    );
    let hint = format!("make its disks writable and open it for writing with blockyard pool import {name}");
    Refusal::new(code::LIMIT_REACHED, message, hint)
}

type Marks = BTreeMap<volume::Uuid, (u64, u64)>;

fn newest_marks(marks: &[(volume::Uuid, Claim)]) -> Marks {
    marks.iter().map(|(disk, mark)| (*disk, (mark.epoch, mark.beat))).collect()
}

/// A disk whose mark is read again and again.
struct Watched<W: World> {
    disk: Weak<<Disk<W> as Deref>::Target>,
    /// True while it has not answered the last time.
    is_asked: Rc<Cell<bool>>,
}

impl<W: World> Watched<W> {
    fn new(disk: &Disk<W>) -> Self {
        Self { disk: Rc::downgrade(disk), is_asked: Rc::default() }
    }

    /// What is on the disk; none where it is closed or does not answer in time. Until then it is not asked again.
    async fn probe(&self, world: &W) -> Option<volume::Probe> {
        let disk = self.disk.upgrade()?;
        if self.is_asked.replace(true) {
            return None;
        }
        let ((tell, told), is_asked) = (mailbox::channel(), self.is_asked.clone());
        world.spawn(async move {
            let probe = volume::probe(overlay(&disk).device()).await;
            is_asked.set(false);
            // Nobody waits for it after the deadline.
            let _ = tell.send(probe);
        });
        match select(pin!(told.receive()), world.sleep(MARK_DEADLINE)).await {
            Either::Left((probe, _)) => probe,
            Either::Right(_) => None,
        }
    }
}

/// True where the disk shows that it is no member of the pool any more. One that cannot be read says nothing.
fn is_of_another(probe: &volume::Probe, pool: volume::Uuid) -> bool {
    match &probe.contents {
        Contents::Member(member) => member.label.pool != pool,
        Contents::Unreadable(_) => false,
        _ => true,
    }
}

/// True where a disk has another mark than before. One that cannot be read says nothing.
fn has_moved(before: &Marks, now: &Marks) -> bool {
    now.iter().any(|(disk, mark)| before.get(disk).is_some_and(|known| known != mark))
}

/// Ends a pool that somebody opens for writing meanwhile: what it shows would be of no moment that ever was.
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
    let _ = pool.overtaken.set("another node writes to its disks".to_owned());
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

    /// A disk that did not answer was taken for one that another node has written to.
    #[test]
    fn mark_moves_on_a_disk_that_shows_it_and_on_no_other() {
        let before = marks(&[(1, 5), (2, 5)]);
        assert!(!has_moved(&before, &marks(&[(1, 5), (2, 5)])));
        assert!(!has_moved(&before, &marks(&[(2, 5)])), "one does not answer");
        assert!(!has_moved(&before, &marks(&[])));
        assert!(has_moved(&before, &marks(&[(2, 6)])));
    }
}
