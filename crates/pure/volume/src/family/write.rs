//! Writing to a branch: in place where it may, else to new places, which the map is told of when they hold the data.

use super::data::{Step, Steps};
use super::parts::{Parts, parts};
use super::{Branch, Family, MapError};
use crate::maplog::Record;
use crate::sabotage::{self, Sabotage};
use crate::tree::{Key, Place};
use block::{BlockDevice, Extent, View};
use std::ops::Range;
use std::rc::Rc;

/// The longest atomic write, in blocks: 1 MiB.
const ATOMIC_BLOCKS_MAX: u64 = 256;

/// What a write does, decided under its locks.
#[derive(Default)]
struct Plan {
    /// Written where they lie.
    stay: Steps,
    /// Written to new places.
    go: Steps,
    /// Become holes.
    punch: Steps,
    /// A crash leaves all of the changes or none.
    whole: bool,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// The blocks of `extent` hold `data` for everybody who reads the volume from now on.
    pub(crate) async fn write(
        self: &Rc<Self>,
        branch: &Rc<Branch>,
        extent: Extent,
        data: View,
    ) -> Result<(), MapError> {
        self.admit_change().await?;
        let parts = parts(extent, self.granule_blocks);
        let range = granules(&parts);
        {
            let _held = branch.locks.shared(range.clone()).await;
            let steps = self.steps(branch, &parts).await?;
            if self.all_stay(branch, &steps, &data) {
                return self.data.write_in_place(&steps, &data).await;
            }
        }
        // Apart, so that a write in place is a small future.
        Box::pin(self.write_elsewhere(branch, &parts, range, data)).await
    }

    /// The same, where the map has to be changed.
    async fn write_elsewhere(
        self: &Rc<Self>,
        branch: &Rc<Branch>,
        parts: &Parts,
        range: Range<u64>,
        data: View,
    ) -> Result<(), MapError> {
        let _held = branch.locks.exclusive(range).await;
        let steps = self.steps(branch, parts).await?;
        let plan = self.plan(branch, &steps, &data, true);
        match self.carry_out(branch, plan, &data).await {
            // Moving what could stay needs space, too.
            Err(MapError::Full) => {
                let plan = self.plan(branch, &steps, &data, false);
                self.carry_out(branch, plan, &data).await
            }
            result => result,
        }
    }

    /// As [`Family::write`], and the blocks have their old content or `data` all together, whatever happens: all of it goes to
    /// new places, and one block of the log tells of them.
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
        let _held = branch.locks.exclusive(granules(&parts)).await;
        let steps = self.steps(branch, &parts).await?;
        let go = steps.into_iter().filter(|step| step.seen.is_some() || !is_zero(branch, step, &data)).collect();
        let plan = Plan { go, whole: !sabotage::is(Sabotage::SplitAtomic), ..Plan::default() };
        self.carry_out(branch, plan, &data).await
    }

    /// The longest write that can be atomic wherever it begins, in blocks: one block of the log tells of its granules.
    pub(crate) fn atomic_blocks_max(&self) -> u64 {
        let granules = self.tuning.records_max as u64 - 1;
        ATOMIC_BLOCKS_MAX.min(granules * u64::from(self.granule_blocks))
    }

    /// The map may be changed: it is in order, and not too far ahead of its disks.
    pub(crate) async fn admit_change(self: &Rc<Self>) -> Result<(), MapError> {
        if self.stopped().is_some() {
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
        let seen = self.seen_by_parts(branch, branch.epoch.get(), parts).await?;
        Ok(parts.iter().zip(seen).map(|(&part, seen)| Step { part, seen }).collect())
    }

    /// True when every granule is written where it lies, and nothing is gained elsewhere.
    fn all_stay(&self, branch: &Branch, steps: &Steps, data: &View) -> bool {
        let punched = |step: &Step| step.part.is_whole(self.granule_blocks) && is_zero(branch, step, data);
        steps.iter().all(|step| is_own(branch, step) && !punched(step)) && !self.gains_by_moving(branch, steps)
    }

    /// What is to be done with each granule; whole stripes are moved where the group prefers that and `moves`.
    fn plan(&self, branch: &Branch, steps: &Steps, data: &View, moves: bool) -> Plan {
        let whole = |step: &Step| step.part.is_whole(self.granule_blocks);
        let moving = moves && self.gains_by_moving(branch, steps);
        let mut plan = Plan::default();
        for &step in steps {
            let zero = is_zero(branch, &step, data);
            match step.seen {
                None if zero => {}
                Some(_) if zero && whole(&step) => plan.punch.push(step),
                Some(_) if is_own(branch, &step) && !(moving && whole(&step)) => plan.stay.push(step),
                _ => plan.go.push(step),
            }
        }
        plan
    }

    /// True when the write overwrites whole stripes of a group that would rather write fresh ones, and there are some.
    fn gains_by_moving(&self, branch: &Branch, steps: &Steps) -> bool {
        let own = |step: &&Step| step.part.is_whole(self.granule_blocks) && is_own(branch, step);
        let mut own = steps.iter().filter(own);
        let Some(seen) = own.next().and_then(|step| step.seen) else { return false };
        let prefers = self.shared.gate(seen.place.group()).device().geometry().prefers_fresh;
        let unit = self.space.granules.borrow().unit(seen.place.group()) as usize;
        prefers && own.count() + 1 >= unit && self.space.granules.borrow_mut().has_unit()
    }

    async fn carry_out(self: &Rc<Self>, branch: &Rc<Branch>, plan: Plan, data: &View) -> Result<(), MapError> {
        if plan.go.is_empty() {
            self.data.write_in_place(&plan.stay, data).await?;
            return self.punch_steps(branch, &plan.punch).await;
        }
        let first = plan.go[0].part.granule;
        let holes = plan.go.iter().filter(|step| step.seen.is_none()).count();
        let taken = self.take_places(branch, first, plan.go.len(), holes).await?;
        let (stay, go) = futures_util::future::join(
            self.data.write_in_place(&plan.stay, data),
            self.data.write_to(&plan.go, &taken.places, data),
        )
        .await;
        stay.and(go)?;
        let first = self.log.borrow().serial;
        // From here on nothing is waited for: the map has all of it or nothing.
        for (step, place) in plan.go.iter().zip(taken.keep()) {
            self.change(moved(branch, step, place));
        }
        if plan.whole {
            let mut log = self.log.borrow_mut();
            let serials = first..log.serial;
            let fits = serials.end - serials.start <= self.tuning.records_max as u64;
            assert!(fits, "one block of the log tells of an atomic write");
            log.whole.push(serials);
        }
        self.punch_steps(branch, &plan.punch).await
    }

    async fn punch_steps(&self, branch: &Rc<Branch>, steps: &Steps) -> Result<(), MapError> {
        for step in steps {
            self.punch(branch, step.part.granule).await?;
        }
        Ok(())
    }
}

/// True when the granule has a version of the branch's own epoch with a place: nobody else sees it.
fn is_own(branch: &Branch, step: &Step) -> bool {
    let epoch = (branch.number, branch.epoch.get());
    step.seen.is_some_and(|seen| (seen.branch, seen.epoch) == epoch && seen.place.is_data())
}

/// True when the write brings zeros that need not be kept as such.
fn is_zero(branch: &Branch, step: &Step, data: &View) -> bool {
    branch.zero_detection && step.part.of(data).iter().all(|&byte| byte == 0)
}

/// The change that makes a written place known.
fn moved(branch: &Branch, step: &Step, place: Place) -> Record {
    let own = is_own(branch, step);
    let older = step.seen.filter(|seen| seen.branch == branch.number && !own);
    Record {
        key: Key::version(branch.number, step.part.granule, branch.epoch.get()),
        value: Some(place.0),
        freed: step.seen.filter(|_| own).map(|seen| seen.place),
        mapped: i8::from(step.seen.is_none()),
        exclusive: older.is_some_and(|seen| branch.is_exclusive(seen.epoch)),
    }
}

/// The granules of the parts.
fn granules(parts: &Parts) -> Range<u64> {
    let first = parts.first().map_or(0, |part| u64::from(part.granule));
    let last = parts.last().map_or(0, |part| u64::from(part.granule) + 1);
    first..last
}
