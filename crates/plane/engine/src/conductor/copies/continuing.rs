//! Continuation of interrupted copies: each continues when both of its pools are open.

use super::{Conductor, CopyEnd, Ends, UnfinishedCopy, VolumeId, VolumeName};
use crate::pool::{self, CopyState, continued};
use model::{Name, PoolId, Subject, SubjectKind, code, event};
use shard::World;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which open pools are searched for copies.
const LOOKED_EVERY: Duration = Duration::from_secs(10 * 60);
/// Time after the start after which pools that were not opened are taken for absent.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// Continues the unfinished copies of the open pools, as far as both pools are open, and deletes what finished copies
/// have left.
pub(crate) async fn continue_copies<W: World>(conductor: &Rc<Conductor<W>>) {
    // A search that runs already sees the request and repeats itself: pools that were opened meanwhile are not missed.
    conductor.copies.look_again.set(true);
    if conductor.copies.continuing.replace(true) {
        return;
    }
    while conductor.copies.look_again.take() {
        look_through_pools(conductor).await;
    }
    // No await since the flag was found clear: a request that comes from here on starts a search of its own.
    conductor.copies.continuing.set(false);
}

/// Starts the periodic search, for copies that could not continue when their pools were opened and for left-over
/// snapshots.
pub(crate) fn start_periodic_search<W: World>(conductor: &Rc<Conductor<W>>) {
    let (weak, world) = (Rc::downgrade(conductor), conductor.shard.world.clone());
    world.clone().spawn(async move {
        loop {
            world.sleep(LOOKED_EVERY).await;
            let Some(conductor) = weak.upgrade().filter(|conductor| !conductor.stopped.get()) else { return };
            continue_copies(&conductor).await;
        }
    });
}

async fn look_through_pools<W: World>(conductor: &Rc<Conductor<W>>) {
    // A copy of the table: the borrow must not last across the calls below.
    let open: Vec<(Name, PoolId, usize)> = {
        let pools = conductor.pools.borrow();
        pools
            .iter()
            .filter(|(_, pool)| !pool.read_only)
            .map(|(name, pool)| (name.clone(), pool.id, pool.home))
            .collect()
    };
    for (pool, _, home) in &open {
        let (name, home) = (pool.clone(), *home);
        let found = conductor.shard.call(home, move |shard| continued::unfinished(shard, name)).await;
        for unfinished in found.unwrap_or_default() {
            // A stop must not be delayed by copies that start now.
            if conductor.stopped.get() {
                return;
            }
            if !is_at_rest(conductor, &unfinished) {
                continue;
            }
            let from = open.iter().find(|(_, id, _)| *id == unfinished.source_pool);
            match from {
                Some((source, _, from)) => start(conductor, unfinished, (source.clone(), *from, home)).await,
                None => {
                    wait(conductor, &unfinished, Some(format!("the copy waits for the pool of {}", unfinished.source)))
                }
            }
        }
    }
    // Listed after the search: copies that it has found keep their snapshots.
    let kept: Vec<VolumeId> = conductor.copies.running.borrow().values().map(|copying| copying.id).collect();
    let ids: Vec<PoolId> = open.iter().map(|(_, id, _)| *id).collect();
    let others_are_away = conductor.shard.world.now().since(conductor.started) >= PATIENCE;
    for (pool, _, home) in open {
        let (kept, ids) = (kept.clone(), ids.clone());
        conductor
            .shard
            .call(home, move |shard| continued::delete_left_snapshots(shard, pool, kept, (ids, others_are_away)))
            .await;
    }
}

/// True unless the copy runs or a task works at its ends.
fn is_at_rest<W: World>(conductor: &Conductor<W>, unfinished: &continued::Unfinished) -> bool {
    let copies = &conductor.copies;
    let runs = copies.running.borrow().values().any(|copying| copying.id == unfinished.id && copying.runs.is_some());
    !runs && !copies.busy.borrow().contains(&unfinished.id)
}

/// Lists the copy as waiting; it continues when the pool of its source is open.
fn wait<W: World>(conductor: &Conductor<W>, unfinished: &continued::Unfinished, why: Option<String>) {
    let state = Arc::<CopyState>::default();
    state.set_progress(unfinished.progress);
    let copying = UnfinishedCopy {
        source: unfinished.source.clone(),
        id: unfinished.id,
        size: unfinished.size,
        block_bytes: unfinished.block_bytes,
        state,
        runs: None,
        why,
    };
    // A copy that is listed already keeps its entry.
    conductor.copies.running.borrow_mut().entry(unfinished.target.clone()).or_insert(copying);
}

/// Continues the copy. Its ends are on the shards `from` and `to`, and its source is in `pool`.
async fn start<W: World>(
    conductor: &Rc<Conductor<W>>,
    unfinished: continued::Unfinished,
    (pool, from, to): (Name, usize, usize),
) {
    let (target, id) = (unfinished.target.clone(), unfinished.id);
    // Listed before it starts, so that reports show it at once.
    wait(conductor, &unfinished, None);
    let _busy = conductor.copies.keep_busy(id);
    let (again, name) = (unfinished.clone(), pool.clone());
    let original = match conductor.at(from, move |shard| continued::offer_again(shard, name, again)).await {
        Ok(original) => original,
        // Without its snapshot the rest can never be copied; all other errors may pass.
        Err(refusal) if refusal.code == code::SNAPSHOT_UNKNOWN => {
            let why = "the source of the copy no longer exists";
            return end(conductor, &target, id, CopyEnd::Failed(why.to_owned())).await;
        }
        Err(refusal) => {
            tracing::warn!(volume = %target, %refusal, "a copy does not continue yet");
            return;
        }
    };
    let name = target.clone();
    let received = conductor.at(to, move |shard| continued::receive_again(shard, name, id)).await;
    if let Err(refusal) = received {
        tracing::warn!(volume = %target, %refusal, "a copy does not continue yet");
        conductor.shard.call(from, move |shard| pool::close_copy_ends(shard, pool, id)).await;
        return;
    }
    let ends = Ends { original, pool, from, to };
    let begin = |copying: &mut UnfinishedCopy| {
        (copying.state, copying.runs, copying.why) = (Arc::default(), Some(ends.clone()), None);
        copying.clone()
    };
    let is_wanted = !conductor.stopped.get();
    let copying = conductor.copies.running.borrow_mut().get_mut(&target).filter(|_| is_wanted).map(begin);
    // The pool was closed in the meantime, or the engine stops.
    let Some(copying) = copying else {
        let_go(conductor, target.pool(), id, &ends).await;
        return;
    };
    let sentence = format!("copy of {} to {target} continues", copying.source);
    tracing::info!("{sentence}");
    conductor.shard.raise(event::COPY_BEGAN, Subject::new(SubjectKind::Volume, &target), sentence);
    let worker = conductor.clone();
    conductor.shard.world.spawn(async move { worker.copy(target, copying, ends).await });
}

/// Suspends the copy. Its partial target and its snapshot stay.
pub(super) async fn suspend<W: World>(
    conductor: &Conductor<W>,
    target: &VolumeName,
    (copying, ends): (UnfinishedCopy, Ends),
    why: &str,
) {
    let id = copying.id;
    // Held until the ends are closed: neither a cancellation nor a search may touch them in between.
    let _busy = conductor.copies.keep_busy(id);
    tracing::warn!(volume = %target, why, "a copy is suspended");
    let target_pool = target.pool().expect("a copy is made to a volume of a pool").clone();
    let closed = !conductor.pools.borrow().contains_key(&target_pool);
    let_go(conductor, Some(&target_pool), id, &ends).await;
    let mut running = conductor.copies.running.borrow_mut();
    // A copy to a closed pool is listed again when that is opened.
    match running.get_mut(target) {
        Some(_) if closed => drop(running.remove(target)),
        Some(copying) => (copying.runs, copying.why) = (None, Some(format!("the copy waits: {why}"))),
        None => {}
    }
    drop(running);
    conductor.copies.ended.raise();
}

async fn let_go<W: World>(conductor: &Conductor<W>, target_pool: Option<&Name>, id: VolumeId, ends: &Ends) {
    let target_pool = target_pool.cloned().map(|pool| (ends.to, pool));
    for (home, pool) in [(ends.from, ends.pool.clone())].into_iter().chain(target_pool) {
        conductor.shard.call(home, move |shard| pool::close_copy_ends(shard, pool, id)).await;
    }
}

/// Ends a copy that waits.
pub(super) async fn give_up<W: World>(conductor: &Rc<Conductor<W>>, target: &VolumeName, id: VolumeId) {
    {
        // Ends with the block: the search below leaves out copies at whose ends a task works.
        let _busy = conductor.copies.keep_busy(id);
        end(conductor, target, id, CopyEnd::Cancelled).await;
    }
    // Deletes the snapshot that was taken for it.
    let conductor = conductor.clone();
    conductor.shard.world.clone().spawn(async move { continue_copies(&conductor).await });
}

async fn end<W: World>(conductor: &Conductor<W>, target: &VolumeName, id: VolumeId, how: CopyEnd) {
    let source = conductor.copies.running.borrow().get(target).map(|copying| copying.source.to_string());
    let home = target.pool().and_then(|pool| conductor.pool_home(pool).ok());
    if let Some(home) = home {
        let name = target.clone();
        conductor.shard.call(home.home, move |shard| pool::abandon_copy(shard, name, id)).await;
    }
    conductor.copies.running.borrow_mut().remove(target);
    conductor.copies.ended.raise();
    super::tell_end(&conductor.shard, target, &source.unwrap_or_default(), how);
}

/// Removes waiting copies to the pool, which was closed, from the list.
pub(crate) fn forget<W: World>(conductor: &Conductor<W>, pool: &Name) {
    conductor
        .copies
        .running
        .borrow_mut()
        .retain(|target, copying| copying.runs.is_some() || target.pool() != Some(pool));
}
