//! Task set: ordering, mutual exclusion on blocks, and abort of the tasks of a unit (SAM-5, task set management).
//!
//! All nexuses share one task set (TST = 0). A task is blocked for two reasons: its task attribute, and blocks on which
//! it or another task runs alone. A task that has begun waits for no other. A HEAD OF QUEUE task waits only for tasks
//! that have begun and for earlier tasks of its kind. Any other task waits for those and for earlier tasks. Hence no
//! two tasks ever wait for each other, and there is no deadlock.

use crate::command::{NexusId, Status, TaskAttribute, TaskTag};
use crate::failure::Failure;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::{Blocks, Extent, Lba};
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// All blocks and all serialization slots beyond them.
pub(crate) const EVERYTHING: Extent = Extent { start: Lba(0), len: Blocks(u64::MAX) };
/// Serialization slot for changes of persistent state (reservations, saved mode parameters). An extent behind every
/// possible block, so that it contends with no I/O.
pub(crate) const PERSISTENT_STATE_SLOT: Extent = Extent { start: Lba(u64::MAX - 1), len: Blocks(1) };
/// Serialization slot for changes of ALUA access states.
pub(crate) const ACCESS_STATE_SLOT: Extent = Extent { start: Lba(u64::MAX - 2), len: Blocks(1) };

/// Tasks of one logical unit.
#[derive(Debug)]
pub(crate) struct TaskSet {
    tasks: RefCell<Tasks>,
    tasks_max: usize,
}

#[derive(Debug, Default)]
struct Tasks {
    places: Vec<Option<Task>>,
    free: Vec<usize>,
    arrivals: u64,
    /// Number of tasks that may block others: ORDERED, HEAD OF QUEUE, or alone on their blocks. While it is zero, new
    /// tasks begin without a search.
    may_block_count: usize,
    waiting: usize,
    /// Wakers of futures that await the end of tasks.
    watchers: Vec<Waker>,
}

/// Scheduling parameters of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub nexus: NexusId,
    pub tag: TaskTag,
    pub attribute: TaskAttribute,
    /// Blocks that the task touches; empty when none.
    pub extent: Extent,
    /// True when no other task may touch the blocks while this one runs.
    pub alone: bool,
    /// True for a part of a task that has begun at another unit: task attributes of others do not block it.
    pub is_part: bool,
}

/// Snapshot of a task for management views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskSnapshot {
    /// Nexus that issued the task.
    pub nexus: NexusId,
    /// Tag that the initiator assigned.
    pub tag: TaskTag,
    /// Blocks that the task touches; empty when none.
    pub extent: Extent,
    /// False while the task is blocked by others.
    pub has_begun: bool,
}

/// Completion of an aborted task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aborted {
    /// No response: the own initiator aborted it, or TAS is zero.
    Unanswered,
    /// TASK ABORTED: another nexus or the owner aborted it, and TAS is one.
    WithStatus,
    /// COPY ABORTED: COPY OPERATION ABORT ended it. The transport still holds the command open, so its initiator awaits
    /// a response, and TASK ABORTED would invite hosts to restart the copy.
    Copy,
}

impl From<Aborted> for Failure {
    fn from(how: Aborted) -> Self {
        match how {
            Aborted::Unanswered => Status::Unanswered.into(),
            Aborted::WithStatus => Status::TaskAborted.into(),
            Aborted::Copy => {
                Sense::new(SenseKey::CopyAborted, AdditionalSense::COMMANDS_CLEARED_BY_DEVICE_SERVER).into()
            }
        }
    }
}

#[derive(Debug)]
struct Task {
    claim: Claim,
    arrival: u64,
    begun: bool,
    aborted: Option<Aborted>,
    waker: Option<Waker>,
}

/// Scope of an abort.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Affected {
    One(NexusId, TaskTag),
    OfNexus(NexusId),
    /// All tasks of a nexus except one.
    OthersOf(NexusId, TaskTag),
    All,
}

impl TaskSet {
    pub(crate) fn new(tasks_max: usize) -> Self {
        Self { tasks: RefCell::default(), tasks_max }
    }

    /// Adds a task. It begins at once unless other tasks block it.
    ///
    /// *Errors*: `TaskSetFull`.
    pub(crate) fn enter(&self, claim: Claim) -> Result<TaskGuard<'_>, Status> {
        // The limit applies to commands alone; the parts of copies and the owner use `enter_unlimited`.
        if self.tasks.borrow().count() >= self.tasks_max {
            return Err(Status::TaskSetFull);
        }
        Ok(self.enter_unlimited(claim))
    }

    /// True when a SIMPLE task that completes synchronously may bypass the task set.
    pub(crate) fn permits_bypass(&self) -> bool {
        let tasks = self.tasks.borrow();
        // A synchronous task never occupies a place, but must not exceed the limit that others observe.
        tasks.may_block_count == 0 && tasks.count() < self.tasks_max
    }

    /// Adds a task without regard to the limit on their number.
    pub(crate) fn enter_unlimited(&self, claim: Claim) -> TaskGuard<'_> {
        let mut tasks = self.tasks.borrow_mut();
        let arrival = tasks.arrivals;
        tasks.arrivals += 1;
        let restrains = claim.may_block();
        // A part waits for a task elsewhere; if it could block others, two copies could block each other.
        assert!(!(claim.is_part && restrains), "a part of a copy holds no other task back");
        let mut task = Task { claim, arrival, begun: true, aborted: None, waker: None };
        // Common case: no task restrains another, so the search is skipped.
        if restrains || tasks.may_block_count > 0 {
            task.begun = !BlockingConditions::of(&tasks).blocks(&task, &tasks);
        }
        tasks.may_block_count += usize::from(restrains);
        tasks.waiting += usize::from(!task.begun);
        TaskGuard { set: self, place: tasks.put(task) }
    }

    /// Acquires a serialization slot for the owner. The abort of all tasks does not end the wait.
    pub(crate) async fn acquire_owner_slot(&self, place: Extent) -> TaskGuard<'_> {
        assert!(place == PERSISTENT_STATE_SLOT || place == ACCESS_STATE_SLOT, "the owner does not wait for blocks");
        let attribute = TaskAttribute::Simple;
        let claim =
            // The highest nexus number is never assigned, so no abort of a nexus covers this task.
            Claim { nexus: NexusId(u64::MAX), tag: TaskTag(0), attribute, extent: place, alone: true, is_part: false };
        let mut turn = self.enter_unlimited(claim);
        // CLEAR TASK SET and resets abort every task, also this one. The owner is no initiator, so it enters again.
        while poll_fn(|cx| turn.poll_begun(cx)).await.is_err() {
            turn = self.enter_unlimited(claim);
        }
        turn
    }

    /// Marks the affected tasks as aborted: blocked tasks end now, running tasks at their completion. `how` gives the
    /// completion by nexus. Returns true when at least one task was affected.
    pub(crate) fn abort(&self, affected: Affected, how: impl Fn(NexusId) -> Aborted) -> bool {
        let mut wakers = Vec::new();
        let mut any = false;
        for task in self.tasks.borrow_mut().places.iter_mut().flatten() {
            if affected.covers(&task.claim) {
                any = true;
                // An abort by its own initiator is final: that initiator does not expect a response, whoever else
                // aborts the task.
                if task.aborted != Some(Aborted::Unanswered) {
                    task.aborted = Some(how(task.claim.nexus));
                }
                wakers.extend(task.waker.take());
            }
        }
        // Woken after the borrow has ended: a waker may run code that borrows the task set again.
        wakers.into_iter().for_each(Waker::wake);
        any
    }

    /// Lists all tasks, in no particular order.
    pub(crate) fn snapshots(&self) -> Vec<TaskSnapshot> {
        let tasks = self.tasks.borrow();
        let standing = |task: &Task| {
            let Claim { nexus, tag, extent, .. } = task.claim;
            TaskSnapshot { nexus, tag, extent, has_begun: task.begun }
        };
        tasks.places.iter().flatten().map(standing).collect()
    }

    /// Lists the nexuses that have a task; a nexus may be listed more than once.
    pub(crate) fn nexuses(&self) -> Vec<NexusId> {
        self.tasks.borrow().places.iter().flatten().map(|task| task.claim.nexus).collect()
    }

    /// Waits until every affected task that is present now has left. Later arrivals are not awaited.
    pub(crate) async fn ended(&self, affected: Affected) {
        // Later arrivals are excluded, so that the wait ends although new tasks keep coming.
        let before = self.tasks.borrow().arrivals;
        self.wait_until_none(|task| task.arrival < before && affected.covers(&task.claim)).await;
    }

    /// Waits until every matching task that has begun by now has left.
    pub(crate) async fn begun_ended(&self, is_meant: impl Fn(&Claim) -> bool) {
        let before = self.tasks.borrow().arrivals;
        // A blocked task that begins during the wait is awaited as well, because it arrived before.
        self.wait_until_none(|task| task.arrival < before && task.begun && is_meant(&task.claim)).await;
    }

    /// Waits until no task matches `remains`.
    async fn wait_until_none(&self, remains: impl Fn(&Task) -> bool) {
        poll_fn(|cx| {
            let mut tasks = self.tasks.borrow_mut();
            if !tasks.places.iter().flatten().any(&remains) {
                return Poll::Ready(());
            }
            // A watcher is registered once per waker, however often its future is polled.
            if !tasks.watchers.iter().any(|watcher| watcher.will_wake(cx.waker())) {
                tasks.watchers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn release_claims(&self, place: usize) {
        let mut wakers = Vec::new();
        {
            // The inner scope ends the borrow before any waker runs.
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.at(place);
            assert!(task.begun, "a task that waits has nobody behind it to let pass");
            let claim = &mut task.claim;
            let restrained = claim.may_block();
            // An empty extent of a SIMPLE task restrains nothing, yet the task stays counted and can still be aborted.
            *claim = Claim { attribute: TaskAttribute::Simple, extent: Extent::default(), alone: false, ..*claim };
            tasks.may_block_count -= usize::from(restrained);
            if tasks.waiting > 0 {
                tasks.begin_unblocked(&mut wakers);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    fn leave(&self, place: usize) {
        let mut wakers = Vec::new();
        {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.take(place);
            // A task that was aborted while blocked leaves without having begun.
            tasks.waiting -= usize::from(!task.begun);
            tasks.may_block_count -= usize::from(task.claim.may_block());
            let count = tasks.count();
            assert!(tasks.waiting <= count && tasks.may_block_count <= count, "only tasks that are here are counted");
            // Watchers are woken for every task that leaves; each evaluates its own condition again.
            wakers.append(&mut tasks.watchers);
            if tasks.waiting > 0 {
                tasks.begin_unblocked(&mut wakers);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Tasks {
    fn count(&self) -> usize {
        self.places.len() - self.free.len()
    }

    fn put(&mut self, task: Task) -> usize {
        // Places are reused, so that the memory is bounded by the highest number of tasks at one time.
        match self.free.pop() {
            Some(place) => {
                assert!(self.places[place].is_none(), "no task is in a free place");
                self.places[place] = Some(task);
                place
            }
            None => {
                self.places.push(Some(task));
                self.places.len() - 1
            }
        }
    }

    fn take(&mut self, place: usize) -> Task {
        self.free.push(place);
        self.places[place].take().expect("a ticket keeps its place")
    }

    fn at(&mut self, place: usize) -> &mut Task {
        self.places[place].as_mut().expect("a ticket keeps its place")
    }

    fn begin_unblocked(&mut self, wakers: &mut Vec<Waker>) {
        // Gathered once: a task that begins in the loop changes none of these conditions.
        let restraints = BlockingConditions::of(self);
        for place in 0..self.places.len() {
            let Some(task) = &self.places[place] else { continue };
            if task.begun || restraints.blocks(task, self) {
                continue;
            }
            let task = self.at(place);
            task.begun = true;
            wakers.extend(task.waker.take());
            self.waiting -= 1;
        }
        // The first blocked task by attribute and arrival can only be blocked by one that has begun.
        assert!(self.waiting == 0 || self.waiting < self.count(), "tasks do not wait for each other alone");
    }
}

/// Blocking conditions, gathered in one pass so that each blocked task is evaluated by comparison alone.
struct BlockingConditions {
    head_of_queue: bool,
    oldest: u64,
    oldest_ordered: u64,
    any_alone: bool,
}

impl BlockingConditions {
    fn of(tasks: &Tasks) -> Self {
        let mut found = Self { head_of_queue: false, oldest: u64::MAX, oldest_ordered: u64::MAX, any_alone: false };
        for task in tasks.places.iter().flatten() {
            found.oldest = found.oldest.min(task.arrival);
            found.any_alone |= task.claim.alone;
            match task.claim.attribute {
                TaskAttribute::HeadOfQueue => found.head_of_queue = true,
                TaskAttribute::Ordered => found.oldest_ordered = found.oldest_ordered.min(task.arrival),
                TaskAttribute::Simple | TaskAttribute::Aca => {}
            }
        }
        found
    }

    /// True when `task`, which has not begun, is blocked.
    fn blocks(&self, task: &Task, tasks: &Tasks) -> bool {
        let by_attribute = match task.claim.attribute {
            // The task that it is a part of has begun: its order among other tasks is settled.
            _ if task.claim.is_part => false,
            // Tasks of this kind run side by side: only blocks on which one of them runs alone keep them apart.
            TaskAttribute::HeadOfQueue => false,
            // ORDERED: also blocked by every earlier task (SAM-5).
            TaskAttribute::Ordered => self.head_of_queue || self.oldest < task.arrival,
            // SIMPLE: blocked by any HEAD OF QUEUE task, and by an earlier ORDERED task.
            TaskAttribute::Simple | TaskAttribute::Aca => self.head_of_queue || self.oldest_ordered < task.arrival,
        };
        by_attribute || ((task.claim.alone || self.any_alone) && tasks.contend_for_blocks(task))
    }
}

impl Tasks {
    /// True when a task that has begun, or one with precedence, holds blocks that `task` needs.
    fn contend_for_blocks(&self, task: &Task) -> bool {
        let is_head = |task: &Task| task.claim.attribute == TaskAttribute::HeadOfQueue;
        // A part of a copy never waits for blocked tasks: those may wait for the very task that it is a part of.
        let goes_first = |other: &Task| !task.claim.is_part && other.arrival < task.arrival;
        self.places.iter().flatten().any(|other| {
            // The task itself is in the table as well.
            other.arrival != task.arrival
                && (other.begun || (goes_first(other) && (is_head(other) || !is_head(task))))
                && (task.claim.alone || other.claim.alone)
                && other.claim.extent.overlaps(task.claim.extent)
        })
    }
}

impl Claim {
    fn may_block(&self) -> bool {
        self.alone || matches!(self.attribute, TaskAttribute::Ordered | TaskAttribute::HeadOfQueue)
    }
}

impl Affected {
    fn covers(self, claim: &Claim) -> bool {
        match self {
            Self::One(nexus, tag) => (claim.nexus, claim.tag) == (nexus, tag),
            Self::OfNexus(nexus) => claim.nexus == nexus,
            Self::OthersOf(nexus, tag) => claim.nexus == nexus && claim.tag != tag,
            Self::All => true,
        }
    }
}

/// Membership of a task in the task set; dropping it removes the task.
#[derive(Debug)]
#[must_use = "the task is in the task set only while its ticket lives"]
pub(crate) struct TaskGuard<'a> {
    set: &'a TaskSet,
    place: usize,
}

impl TaskGuard<'_> {
    /// Ready when the task may run.
    ///
    /// *Errors*: the completion of the task, if it was aborted before.
    pub(crate) fn poll_begun(&self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        let mut tasks = self.set.tasks.borrow_mut();
        let task = tasks.at(self.place);
        // Checked first: an abort also ends the wait of a blocked task.
        if let Some(how) = task.aborted {
            return Poll::Ready(Err(how));
        }
        if task.begun {
            return Poll::Ready(Ok(()));
        }
        // A stored waker is replaced only if the task has moved to another one.
        if !task.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            task.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// True when the task may run.
    pub(crate) fn has_begun(&self) -> bool {
        self.set.tasks.borrow_mut().at(self.place).begun
    }

    /// Ready when the task is aborted.
    pub(crate) fn poll_aborted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut tasks = self.set.tasks.borrow_mut();
        let task = tasks.at(self.place);
        if task.aborted.is_some() {
            return Poll::Ready(());
        }
        task.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Releases the claims of a running task: it blocks no other task from now on.
    pub(crate) fn release_claims(&self) {
        self.set.release_claims(self.place);
    }

    /// Checks that the task was not aborted.
    ///
    /// *Errors*: the completion of the aborted task.
    pub(crate) fn check_live(&self) -> Result<(), Aborted> {
        self.set.tasks.borrow_mut().at(self.place).aborted.map_or(Ok(()), Err)
    }
}

impl Drop for TaskGuard<'_> {
    fn drop(&mut self) {
        self.set.leave(self.place);
    }
}

#[cfg(test)]
mod tests;
