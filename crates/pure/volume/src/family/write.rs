//! Writes to a branch: in place where no snapshot shares the granule, otherwise to new places that enter the
//! map once they hold the data.

use super::data::{Step, Steps};
use super::parts::{Parts, parts};
use super::{Branch, Family, MapError};
use crate::bug_injection::{self, InjectedBug};
use crate::maplog::Record;
use crate::tree::{GranuleAddress, Key};
use block::{BlockDevice, Extent, View};
use std::ops::Range;
use std::rc::Rc;

/// Maximum length of an atomic write in blocks: 1 MiB.
const ATOMIC_BLOCKS_MAX: u64 = 256;

/// Actions of one write, decided under its locks.
#[derive(Default)]
struct WritePlan {
    /// Granules overwritten in place.
    in_place: Steps,
    /// Granules written to new places.
    relocate: Steps,
    /// Granules that become holes.
    unmap: Steps,
    /// True when all changes must survive a crash together.
    atomic: bool,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Writes `data` to the blocks of `extent`; later reads of the volume see it.
    pub(crate) async fn write(
        self: &Rc<Self>,
        branch: &Rc<Branch>,
        extent: Extent,
        data: View,
    ) -> Result<(), MapError> {
        // Before the locks, so that snapshots and other writers do not wait for a checkpoint as well.
        self.admit_change().await?;
        let parts = parts(extent, self.granule_blocks);
        let range = granules(&parts);
        // Shared: writes in place do not change the map, so concurrent ones only keep map changes and snapshots
        // out.
        {
            let _held = branch.locks.shared(range.clone()).await;
            let steps = self.steps(branch, &parts).await?;
            if self.all_in_place(branch, &steps, &data) {
                return self.data.write_in_place(&steps, &data).await;
            }
        }
        // Boxed apart, so that the future of a write in place stays small.
        Box::pin(self.write_relocated(branch, &parts, range, data)).await
    }

    /// Writes where the map must change, under an exclusive lock.
    async fn write_relocated(
        self: &Rc<Self>,
        branch: &Rc<Branch>,
        parts: &Parts,
        range: Range<u64>,
        data: View,
    ) -> Result<(), MapError> {
        let _held = branch.locks.exclusive(range).await;
        // Looked up again: the map may have changed between the two locks.
        let steps = self.steps(branch, parts).await?;
        let plan = self.plan(branch, &steps, &data, true);
        match self.execute(branch, plan, &data).await {
            // Moving granules that could be overwritten in place needs space; without it they stay.
            Err(MapError::Full) => {
                let plan = self.plan(branch, &steps, &data, false);
                self.execute(branch, plan, &data).await
            }
            result => result,
        }
    }

    /// Writes as [`Family::write`], but atomically: after a crash all blocks have their old content or all have
    /// the new. All data goes to new places, and one log block records them.
    ///
    /// *Shape*: at most [`Family::atomic_blocks_max`].
    pub(crate) async fn write_atomic(
        self: &Rc<Self>,
        branch: &Rc<Branch>,
        extent: Extent,
        data: View,
    ) -> Result<(), MapError> {
        self.admit_change().await?;
        let parts = parts(extent, self.granule_blocks);
        // Exclusive: the map changes for every granule of an atomic write.
        let _held = branch.locks.exclusive(granules(&parts)).await;
        let steps = self.steps(branch, &parts).await?;
        // Zeros over a hole need no change, so they take no part in the atomic write.
        let go = steps.into_iter().filter(|step| step.seen.is_some() || !is_zero(branch, step, &data)).collect();
        let plan = WritePlan {
            relocate: go,
            atomic: !bug_injection::is_injected(InjectedBug::SplitAtomic),
            ..WritePlan::default()
        };
        self.execute(branch, plan, &data).await
    }

    /// Maximum length in blocks of a write that is atomic at any alignment: one log block records all of its
    /// granules.
    pub(crate) fn atomic_blocks_max(&self) -> u64 {
        // One granule less, because an unaligned write touches one more.
        let granules = self.tuning.records_max as u64 - 1;
        ATOMIC_BLOCKS_MAX.min(granules * u64::from(self.granule_blocks))
    }

    /// Admits a change of the map; first makes room with a checkpoint or commit where too many changes are
    /// pending.
    pub(crate) async fn admit_change(self: &Rc<Self>) -> Result<(), MapError> {
        if self.failure().is_some() {
            return Err(MapError::Stopped);
        }
        if self.is_checkpoint_overdue() {
            self.checkpoint().await?;
        }
        if self.is_commit_due() {
            self.commit().await?;
        }
        Ok(())
    }

    async fn steps(&self, branch: &Rc<Branch>, parts: &Parts) -> Result<Steps, MapError> {
        let seen = self.visible_versions(branch, branch.epoch.get(), parts).await?;
        Ok(parts.iter().zip(seen).map(|(&part, seen)| Step { part, seen }).collect())
    }

    /// True when every granule can be overwritten in place and nothing is gained by moving it.
    fn all_in_place(&self, branch: &Branch, steps: &Steps, data: &View) -> bool {
        let punched = |step: &Step| step.part.is_whole(self.granule_blocks) && is_zero(branch, step, data);
        steps.iter().all(|step| is_own(branch, step) && !punched(step)) && !self.prefers_relocation(branch, steps)
    }

    /// Decides the action for each granule; whole stripes move to new places where the group prefers that and
    /// `moves` is set.
    fn plan(&self, branch: &Branch, steps: &Steps, data: &View, moves: bool) -> WritePlan {
        let whole = |step: &Step| step.part.is_whole(self.granule_blocks);
        let moving = moves && self.prefers_relocation(branch, steps);
        let mut plan = WritePlan::default();
        for &step in steps {
            let zero = is_zero(branch, &step, data);
            match step.seen {
                // Zeros that are written to a hole leave it a hole.
                None if zero => {}
                Some(_) if zero && whole(&step) => plan.unmap.push(step),
                Some(_) if is_own(branch, &step) && !(moving && whole(&step)) => plan.in_place.push(step),
                // Holes, versions that a snapshot or an origin shares, and whole granules that are to be moved.
                _ => plan.relocate.push(step),
            }
        }
        plan
    }

    /// True when the write overwrites whole stripes of a group that prefers full-stripe writes to new places,
    /// and free stripes exist.
    fn prefers_relocation(&self, branch: &Branch, steps: &Steps) -> bool {
        let own = |step: &&Step| step.part.is_whole(self.granule_blocks) && is_own(branch, step);
        let mut own = steps.iter().filter(own);
        let Some(seen) = own.next().and_then(|step| step.seen) else { return false };
        let prefers = self.shared.gate(seen.place.group()).device().geometry().prefers_unlogged;
        let unit = self.space.granules.borrow().unit(seen.place.group()) as usize;
        // The first such granule was taken off the iterator above, hence + 1.
        prefers && own.count() + 1 >= unit && self.space.granules.borrow_mut().has_unit()
    }

    async fn execute(self: &Rc<Self>, branch: &Rc<Branch>, plan: WritePlan, data: &View) -> Result<(), MapError> {
        if plan.relocate.is_empty() {
            self.data.write_in_place(&plan.in_place, data).await?;
            return self.unmap_steps(branch, &plan.unmap).await;
        }
        let first = plan.relocate[0].part.granule;
        let holes = plan.relocate.iter().filter(|step| step.seen.is_none()).count();
        let taken = self.allocate_places(branch, first, plan.relocate.len(), holes).await?;
        let (stay, go) = futures_util::future::join(
            self.data.write_in_place(&plan.in_place, data),
            self.data.write_to(&plan.relocate, &taken.places, data),
        )
        .await;
        // Both have ended here, also when one failed: no write continues after the answer.
        stay.and(go)?;
        let first = self.log.borrow().serial;
        // No await from here on: all changes of the write enter the map together or not at all.
        for (step, place) in plan.relocate.iter().zip(taken.into_places()) {
            self.change(relocation_record(branch, step, place));
        }
        if plan.atomic {
            let mut log = self.log.borrow_mut();
            let serials = first..log.serial;
            let fits = serials.end - serials.start <= self.tuning.records_max as u64;
            assert!(fits, "one block of the log tells of an atomic write");
            log.atomic_ranges.push(serials);
        }
        self.unmap_steps(branch, &plan.unmap).await
    }

    async fn unmap_steps(&self, branch: &Rc<Branch>, steps: &Steps) -> Result<(), MapError> {
        for step in steps {
            self.unmap_granule(branch, step.part.granule).await?;
        }
        Ok(())
    }
}

/// True when the granule has a version with data in the branch's own epoch: no snapshot shares it.
fn is_own(branch: &Branch, step: &Step) -> bool {
    let epoch = (branch.number, branch.epoch.get());
    step.seen.is_some_and(|seen| (seen.branch, seen.epoch) == epoch && seen.place.is_data())
}

/// True when the data is zeros that zero detection drops.
fn is_zero(branch: &Branch, step: &Step, data: &View) -> bool {
    branch.zero_detection && step.part.of(data).iter().all(|&byte| byte == 0)
}

/// Change record that puts a written place into the map.
fn relocation_record(branch: &Branch, step: &Step, place: GranuleAddress) -> Record {
    let own = is_own(branch, step);
    let older = step.seen.filter(|seen| seen.branch == branch.number && !own);
    Record {
        key: Key::version(branch.number, step.part.granule, branch.epoch.get()),
        value: Some(place.0),
        // An own version is replaced, so its place becomes free; an older one still belongs to a snapshot.
        freed: step.seen.filter(|_| own).map(|seen| seen.place),
        mapped: i8::from(step.seen.is_none()),
        exclusive: older.is_some_and(|seen| branch.is_exclusive(seen.epoch)),
    }
}

/// Range of granules that the parts cover.
fn granules(parts: &Parts) -> Range<u64> {
    let first = parts.first().map_or(0, |part| u64::from(part.granule));
    let last = parts.last().map_or(0, |part| u64::from(part.granule) + 1);
    first..last
}
