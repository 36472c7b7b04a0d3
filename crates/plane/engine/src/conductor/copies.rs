//! Copies of volumes: start, completion, cancellation, and their reports.

pub(super) mod continuing;

use super::{Conductor, PoolHome, VolumeHome};
use crate::pool::{self, CopyEnd, CopyState};
use crate::shard_context::ShardContext;
use model::{
    Backend, CopyReport, CopySource, Name, Refusal, Size, Subject, SubjectKind, VolumeCounters, VolumeId, VolumeName,
    VolumeReport, VolumeState, code, event,
};
use shard::{Signal, World};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Copies that run or wait for a pool, by target.
#[derive(Default)]
pub(super) struct Copies {
    running: RefCell<BTreeMap<VolumeName, UnfinishedCopy>>,
    ended: Signal,
    /// Copies at whose ends a task is working; no other task may touch them.
    busy: RefCell<BTreeSet<VolumeId>>,
    /// True while pools are searched for copies to continue; `look_again` requests another search when a pool was
    /// opened in between.
    continuing: Cell<bool>,
    look_again: Cell<bool>,
}

/// An unfinished copy.
#[derive(Clone)]
struct UnfinishedCopy {
    source: CopySource,
    id: VolumeId,
    size: Size,
    block_bytes: u32,
    state: Arc<CopyState>,
    /// Ends of the copy while it runs; `None` while it waits for a pool.
    runs: Option<Ends>,
    /// Reason for waiting.
    why: Option<String>,
}

/// Both ends of a running copy.
#[derive(Clone)]
struct Ends {
    original: pool::CopySourceInfo,
    /// Name of the pool of the source.
    pool: Name,
    /// Home shards of the source's pool and of the target's pool.
    from: usize,
    to: usize,
}

/// Guard of a task that works at the ends of a copy.
struct Busy<'a> {
    copies: &'a Copies,
    id: VolumeId,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.copies.busy.borrow_mut().remove(&self.id);
        // Wakes a cancellation that waits for the end of this work.
        self.copies.ended.raise();
    }
}

impl UnfinishedCopy {
    fn report(&self, name: &VolumeName) -> VolumeReport {
        VolumeReport {
            name: name.clone(),
            id: self.id,
            size: self.size,
            block_bytes: self.block_bytes,
            backend: Backend::pool(),
            state: VolumeState::Copying,
            reason: self.why.clone(),
            counters: VolumeCounters::default(),
            space: None,
            policy: None,
            cache: None,
            copy: Some(Box::new(CopyReport { source: self.source.clone(), progress: self.state.progress() })),
            reservation: None,
            sanitize: None,
        }
    }
}

impl Copies {
    /// Takes the guard of the copy until the result is dropped.
    fn keep_busy(&self, id: VolumeId) -> Busy<'_> {
        let is_first = self.busy.borrow_mut().insert(id);
        assert!(is_first, "one task at a time works at the ends of a copy");
        Busy { copies: self, id }
    }

    /// Suspends all running copies and waits for it. They continue at the next start.
    pub(super) async fn end(&self) {
        // Suspended and not cancelled: what was copied is kept.
        self.running.borrow().values().for_each(|copying| copying.state.suspend());
        self.ended.until(|| self.running.borrow().values().all(|copying| copying.runs.is_none())).await;
    }

    /// Reports of the volumes that are being copied to.
    pub(super) fn reports(&self) -> Vec<VolumeReport> {
        self.running.borrow().iter().map(|(name, copying)| copying.report(name)).collect()
    }

    /// Admits the use of a volume: refused for the target of an unfinished copy.
    pub(super) fn admit_whole(&self, name: &VolumeName) -> Result<(), Refusal> {
        match self.running.borrow().get(name) {
            None => Ok(()),
            Some(copying) => {
                Err(busy(format!("volume {name} is incomplete: {} is being copied to it", copying.source)))
            }
        }
    }

    /// Admits closing the pool: refused while a copy from it or to it runs.
    pub(super) fn admit_no_copy(&self, pool: &Name) -> Result<(), Refusal> {
        let running = self.running.borrow();
        // A copy that waits has neither of its ends open.
        let uses = |(target, copying): &(&VolumeName, &UnfinishedCopy)| {
            copying.runs.as_ref().is_some_and(|ends| target.pool() == Some(pool) || ends.pool == *pool)
        };
        match running.iter().find(uses) {
            None => Ok(()),
            Some((target, copying)) => Err(busy(format!("{} is being copied to {target}", copying.source))),
        }
    }

    /// Admits deleting the snapshot: refused while it is being copied.
    pub(super) fn admit_not_copied(&self, snapshot: &model::SnapshotName) -> Result<(), Refusal> {
        let running = self.running.borrow();
        let source = CopySource::Snapshot(snapshot.clone());
        match running.iter().find(|(_, copying)| copying.source == source) {
            None => Ok(()),
            Some((target, _)) => Err(busy(format!("snapshot {snapshot} is being copied to {target}"))),
        }
    }
}

impl<W: World> Conductor<W> {
    pub(super) async fn copy_volume(
        self: &Rc<Self>,
        source: &CopySource,
        target: &VolumeName,
        id: VolumeId,
    ) -> Result<VolumeReport, Refusal> {
        self.admit_name(target)?;
        self.admit_one_more()?;
        let (Some(from), Some(to)) = (source.pool(), target.pool()) else {
            let message = format!("{source} cannot be copied to {target}: both must be in pools");
            return Err(Refusal::new(code::VOLUME_NO_MAP, message, "write POOL/VOLUME"));
        };
        let (pool, from) = (from.clone(), self.pool_home(from)?.home);
        let PoolHome { id: target_pool, home: to, .. } = self.pool_home(to)?;
        // Keeps the search for unfinished copies away until this one is listed.
        let _busy = self.copies.keep_busy(id);
        let what = source.clone();
        let original = self.at(from, move |shard| pool::open_copy_source(shard, what, (id, target_pool))).await?;
        let (name, like) = (target.clone(), original.clone());
        let received = self.at(to, move |shard| pool::create_copy_target(shard, name, id, like)).await;
        let (size, block_bytes) = (original.size, original.block_bytes);
        let ends = Ends { original, pool, from, to };
        // Nothing half done is left: the source is released again.
        if let Err(refusal) = received {
            self.withdraw(&ends, id).await;
            return Err(refusal);
        }
        let (source_name, runs) = (source.clone(), Some(ends.clone()));
        let copying =
            UnfinishedCopy { source: source_name, id, size, block_bytes, state: Arc::default(), runs, why: None };
        let report = copying.report(target);
        // Listed before the task starts, so that a stop that comes now suspends it.
        let before = self.copies.running.borrow_mut().insert(target.clone(), copying.clone());
        assert!(before.is_none(), "one copy is made to a volume");
        let sentence = format!("{source} is being copied to {target}");
        self.shard.raise(event::COPY_BEGAN, Subject::new(SubjectKind::Volume, target), sentence);
        // The order returns now; the copy runs as a task.
        let (conductor, target) = (self.clone(), target.clone());
        self.shard.world.spawn(async move { conductor.copy(target, copying, ends).await });
        Ok(report)
    }

    /// Runs the copy and completes or releases both ends.
    async fn copy(self: Rc<Self>, target: VolumeName, copying: UnfinishedCopy, ends: Ends) {
        let UnfinishedCopy { source, id, state, .. } = &copying;
        let (id, to) = (*id, ends.to);
        let (pool, original) = (ends.pool.clone(), ends.original.clone());
        let (name, state) = (target.clone(), state.clone());
        let sent = self
            .shard
            .call(ends.from, move |shard| pool::send_copy(shard, pool, id, name, (to, original), state))
            .await;
        // A shard that does not answer has stopped; the copy continues after the restart.
        let ended = match sent.unwrap_or(CopyEnd::Suspended("the engine stops".to_owned())) {
            CopyEnd::Suspended(why) => return continuing::suspend(&self, &target, (copying, ends), &why).await,
            CopyEnd::Whole(taken) => {
                // The catalog marks the target as complete before it serves.
                let name = target.clone();
                match self.at(to, move |shard| pool::complete_copy(shard, name, id)).await {
                    Ok(_) => CopyEnd::Whole(taken),
                    Err(refusal) => CopyEnd::Failed(refusal.message),
                }
            }
            ended => ended,
        };
        // A failed or cancelled copy leaves no partial volume.
        if !matches!(ended, CopyEnd::Whole(_)) {
            let name = target.clone();
            self.shard.call(to, move |shard| pool::abandon_copy(shard, name, id)).await;
        }
        // After the target is complete or deleted: until then the copy needs its snapshot to continue after a crash.
        self.withdraw(&ends, id).await;
        if matches!(ended, CopyEnd::Whole(_)) {
            // No host has a mapping of it yet, so there is nothing to publish.
            let before = self.volumes.borrow_mut().insert(target.clone(), VolumeHome { id, home: to, serves: true });
            assert!(before.is_none(), "a copy gets a name that no volume has");
        }
        let ran = self.copies.running.borrow_mut().remove(&target);
        assert!(ran.is_some_and(|copying| copying.id == id), "a copy ends once");
        self.copies.ended.raise();
        tell_end(&self.shard, &target, &source.to_string(), ended);
    }

    async fn withdraw(&self, ends: &Ends, id: VolumeId) {
        let pool = ends.pool.clone();
        self.shard.call(ends.from, move |shard| pool::withdraw_copy(shard, pool, id)).await;
    }

    /// Cancels the copy to this volume and deletes the partial volume.
    pub(super) async fn cancel_copy(self: &Rc<Self>, target: &VolumeName) -> Result<(), Refusal> {
        let unknown = || {
            let message = format!("no copy to volume {target} is running");
            Refusal::new(code::COPY_UNKNOWN, message, "`blockyard volume list` shows running copies")
        };
        let mut id = None;
        // The state of the copy may change during each wait, so it is evaluated again after it.
        loop {
            let found = self.copies.running.borrow().get(target).cloned();
            let Some(copying) = found.filter(|copying| id.is_none_or(|id| id == copying.id)) else { break };
            id = Some(copying.id);
            if self.copies.busy.borrow().contains(&copying.id) {
                self.copies.ended.until(|| !self.copies.busy.borrow().contains(&copying.id)).await;
            } else if copying.runs.is_none() {
                continuing::give_up(self, target, copying.id).await;
                return Ok(());
            } else {
                copying.state.cancel();
                let runs = || self.copies.running.borrow().get(target).is_some_and(|copying| copying.runs.is_some());
                self.copies.ended.until(|| !runs()).await;
            }
        }
        let id = id.ok_or_else(unknown)?;
        // The copy may have been complete already, with only the commit outstanding.
        let is_whole = self.volumes.borrow().get(target).is_some_and(|volume| volume.id == id);
        if is_whole { Err(unknown()) } else { Ok(()) }
    }
}

/// Raises the event for the end of a copy.
fn tell_end<W: World>(shard: &ShardContext<W>, target: &VolumeName, source: &str, ended: CopyEnd) {
    let (code, sentence) = match ended {
        CopyEnd::Whole(taken) => (event::COPY_ENDED, format!("copy of {source} to volume {target} finished{taken}")),
        CopyEnd::Cancelled => (event::COPY_CANCELLED, format!("copy of {source} to {target} canceled")),
        CopyEnd::Suspended(why) => unreachable!("a copy that is suspended ({why}) has not ended"),
        CopyEnd::Failed(why) => (event::COPY_FAILED, format!("copy of {source} to {target} failed: {why}")),
    };
    shard.raise(code, Subject::new(SubjectKind::Volume, target), sentence);
}

fn busy(message: String) -> Refusal {
    let hint = "wait until it has finished, or cancel the copy with blockyard volume cancel-copy";
    Refusal::new(code::VOLUME_COPYING, message, hint)
}
