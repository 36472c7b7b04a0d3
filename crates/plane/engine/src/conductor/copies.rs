//! Copies of volumes that run, and who ends them.

use super::{Conductor, VolumeHome};
use crate::pool::{self, CopyEnd, CopyState};
use model::{
    Backend, CopyReport, CopySource, Name, Refusal, Subject, SubjectKind, VolumeCounters, VolumeId, VolumeName,
    VolumeReport, VolumeState, code, event,
};
use shard::{Signal, World};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The copies that run, by their targets.
#[derive(Default)]
pub(super) struct Copies {
    running: RefCell<BTreeMap<VolumeName, Copying>>,
    ended: Signal,
}

/// One copy that runs.
#[derive(Clone)]
struct Copying {
    source: CopySource,
    id: VolumeId,
    original: pool::Original,
    state: Arc<CopyState>,
    /// The shards of the two pools.
    from: usize,
    to: usize,
}

impl Copying {
    fn report(&self, name: &VolumeName) -> VolumeReport {
        VolumeReport {
            name: name.clone(),
            id: self.id,
            size: self.original.size,
            block_bytes: self.original.block_bytes,
            backend: Backend::pool(),
            state: VolumeState::Copying,
            why: None,
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
    /// No copy runs any more.
    pub(super) async fn end(&self) {
        self.running.borrow().values().for_each(|copying| copying.state.cancel());
        self.ended.until(|| self.running.borrow().is_empty()).await;
    }

    /// The volumes that are being copied to.
    pub(super) fn reports(&self) -> Vec<VolumeReport> {
        self.running.borrow().iter().map(|(name, copying)| copying.report(name)).collect()
    }

    /// Admits to use a volume, as far as copies go.
    pub(super) fn admit_whole(&self, name: &VolumeName) -> Result<(), Refusal> {
        match self.running.borrow().get(name) {
            None => Ok(()),
            Some(copying) => Err(busy(format!("volume {name} is not whole: {} is being copied to it", copying.source))),
        }
    }

    /// Admits to close the pool, as far as copies go.
    pub(super) fn admit_no_copy(&self, pool: &Name) -> Result<(), Refusal> {
        let running = self.running.borrow();
        let uses = |(target, copying): &(&VolumeName, &Copying)| {
            target.pool() == Some(pool) || copying.source.pool() == Some(pool)
        };
        match running.iter().find(uses) {
            None => Ok(()),
            Some((target, copying)) => Err(busy(format!("{} is being copied to {target}", copying.source))),
        }
    }

    /// Admits to delete the snapshot, as far as copies go.
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
            let message = format!("{source} cannot be copied to {target}: both must lie in pools");
            return Err(Refusal::new(code::VOLUME_NO_MAP, message, "name volumes as POOL/VOLUME"));
        };
        let (from, to) = (self.pool_home(from)?.home, self.pool_home(to)?.home);
        let what = source.clone();
        let original = self.at(from, move |shard| pool::offer_copy(shard, what, id)).await?;
        let (name, like) = (target.clone(), original.clone());
        let received = self.at(to, move |shard| pool::receive_copy(shard, name, id, like)).await;
        let copying = Copying { source: source.clone(), id, original, state: Arc::default(), from, to };
        if let Err(refusal) = received {
            self.withdraw(&copying).await;
            return Err(refusal);
        }
        let report = copying.report(target);
        self.copies.running.borrow_mut().insert(target.clone(), copying.clone());
        let sentence = format!("{source} is being copied to {target}");
        self.shard.raise(event::COPY_BEGAN, Subject::new(SubjectKind::Volume, target), sentence);
        let (conductor, target) = (self.clone(), target.clone());
        self.shard.world.spawn(async move { conductor.copy(target, copying).await });
        Ok(report)
    }

    /// Copies, and sees to both ends.
    async fn copy(&self, target: VolumeName, copying: Copying) {
        let Copying { source, id, state, from, to, .. } = &copying;
        let (id, to) = (*id, *to);
        let pool = source.pool().expect("it was admitted").clone();
        let (name, state) = (target.clone(), state.clone());
        let sent = self.shard.call(*from, move |shard| pool::send_copy(shard, pool, id, name, to, state)).await;
        let ended = match sent.unwrap_or(CopyEnd::Failed("the data plane is stopping".to_owned())) {
            CopyEnd::Whole(taken) => {
                let name = target.clone();
                match self.at(to, move |shard| pool::complete_copy(shard, name, id)).await {
                    Ok(_) => CopyEnd::Whole(taken),
                    Err(refusal) => CopyEnd::Failed(refusal.message),
                }
            }
            ended => ended,
        };
        if !matches!(ended, CopyEnd::Whole(_)) {
            let name = target.clone();
            self.shard.call(to, move |shard| pool::abandon_copy(shard, name, id)).await;
        }
        self.withdraw(&copying).await;
        if matches!(ended, CopyEnd::Whole(_)) {
            // Nobody sees it yet, so there is no access to publish.
            self.volumes.borrow_mut().insert(target.clone(), VolumeHome { id, home: to, serves: true });
        }
        self.copies.running.borrow_mut().remove(&target);
        self.copies.ended.raise();
        let (code, sentence) = match ended {
            CopyEnd::Whole(taken) => (event::COPY_ENDED, format!("volume {target} is a whole copy of {source}{taken}")),
            CopyEnd::Cancelled => (event::COPY_CANCELLED, format!("the copy of {source} to {target} was cancelled")),
            CopyEnd::Failed(why) => (event::COPY_FAILED, format!("{source} could not be copied to {target}: {why}")),
        };
        self.shard.raise(code, Subject::new(SubjectKind::Volume, &target), sentence);
    }

    async fn withdraw(&self, copying: &Copying) {
        let (pool, id) = (copying.source.pool().expect("it was admitted").clone(), copying.id);
        self.shard.call(copying.from, move |shard| pool::withdraw_copy(shard, pool, id)).await;
    }

    /// The copy to this volume has ended, and what it has made is gone.
    pub(super) async fn cancel_copy(&self, target: &VolumeName) -> Result<(), Refusal> {
        let unknown = || {
            let message = format!("nothing is being copied to volume {target}");
            Refusal::new(code::COPY_UNKNOWN, message, "`blockyard volume list` shows what is being copied")
        };
        let copying = self.copies.running.borrow().get(target).cloned().ok_or_else(unknown)?;
        copying.state.cancel();
        self.copies.ended.until(|| !self.copies.running.borrow().contains_key(target)).await;
        // It may have been whole already, and only waited for its pool to say so.
        let is_whole = self.volumes.borrow().get(target).is_some_and(|volume| volume.id == copying.id);
        if is_whole { Err(unknown()) } else { Ok(()) }
    }
}

fn busy(message: String) -> Refusal {
    let hint = "wait for the end, or cancel the copy with blockyard volume cancel-copy";
    Refusal::new(code::VOLUME_COPYING, message, hint)
}
