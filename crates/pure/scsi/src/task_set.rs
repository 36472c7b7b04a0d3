//! The task set: which tasks are under way, which must wait for which, and which are aborted (SAM-5, task set management).
//!
//! There is one task set for all nexuses (TST = 0). A task waits for others for two reasons: its task
//! attribute, and its blocks, where it or the other runs alone on them. A task that has begun waits for
//! nobody, a head-of-queue task only for what has begun and for earlier ones of its kind, and any other for
//! those and for earlier tasks: no two ever wait for each other.

use crate::command::{NexusId, Status, TaskAttribute, TaskTag};
use crate::failure::Failure;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::{Blocks, Extent, Lba};
use std::cell::RefCell;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

/// Every block, and every place where tasks wait for their turn.
pub(crate) const EVERYTHING: Extent = Extent { start: Lba(0), len: Blocks(u64::MAX) };
/// No block, and the place where changes of what survives power loss wait for each other: reservations, saved mode parameters.
pub(crate) const TURN: Extent = Extent { start: Lba(u64::MAX - 1), len: Blocks(1) };
/// No block, and the place where changes of access through target port groups wait for each other.
pub(crate) const ACCESS_TURN: Extent = Extent { start: Lba(u64::MAX - 2), len: Blocks(1) };

/// The tasks of one logical unit.
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
    /// Tasks that others may have to wait for: ordered, head of queue, alone on their blocks.
    restraining: usize,
    waiting: usize,
    /// Those who wait for tasks to end.
    watchers: Vec<Waker>,
}

/// What a task asks of the task set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Claim {
    pub nexus: NexusId,
    pub tag: TaskTag,
    pub attribute: TaskAttribute,
    /// The blocks that it touches; empty when none.
    pub extent: Extent,
    /// True when nobody else may touch them meanwhile.
    pub alone: bool,
    /// True for a part of a task that has begun elsewhere: the attributes of others do not hold it back.
    pub is_part: bool,
}

/// A task of a logical unit, as whoever looks on sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStanding {
    /// Whose it is.
    pub nexus: NexusId,
    /// What the initiator calls it.
    pub tag: TaskTag,
    /// The blocks that it touches; empty when none.
    pub extent: Extent,
    /// False while it waits for others before it begins.
    pub has_begun: bool,
}

/// How an aborted task ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aborted {
    /// Without an answer: its own initiator ended it, or TAS is zero.
    Unanswered,
    /// With TASK ABORTED: somebody else ended it, and TAS is one.
    Told,
    /// With COPY ABORTED: COPY OPERATION ABORT ended it. To the transport its command is as open as before, so its initiator
    /// waits for an answer; and TASK ABORTED invites hosts to start the copy again.
    Copy,
}

impl From<Aborted> for Failure {
    fn from(how: Aborted) -> Self {
        match how {
            Aborted::Unanswered => Status::Unanswered.into(),
            Aborted::Told => Status::TaskAborted.into(),
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

/// Which tasks a task management function means.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Affected {
    One(NexusId, TaskTag),
    OfNexus(NexusId),
    /// All of a nexus but one.
    OthersOf(NexusId, TaskTag),
    All,
}

impl TaskSet {
    pub(crate) fn new(tasks_max: usize) -> Self {
        Self { tasks: RefCell::default(), tasks_max }
    }

    /// Takes a task in. It has begun at once unless others restrain it.
    ///
    /// *Errors*: `TaskSetFull`.
    pub(crate) fn enter(&self, claim: Claim) -> Result<Ticket<'_>, Status> {
        if self.tasks.borrow().count() >= self.tasks_max {
            return Err(Status::TaskSetFull);
        }
        Ok(self.enter_anyway(claim))
    }

    /// True when a simple task that ends before anything else happens need not be taken in.
    pub(crate) fn lets_pass(&self) -> bool {
        let tasks = self.tasks.borrow();
        tasks.restraining == 0 && tasks.count() < self.tasks_max
    }

    /// Takes a task in, however many there are.
    pub(crate) fn enter_anyway(&self, claim: Claim) -> Ticket<'_> {
        let mut tasks = self.tasks.borrow_mut();
        let arrival = tasks.arrivals;
        tasks.arrivals += 1;
        let restrains = claim.restrains();
        assert!(!(claim.is_part && restrains), "a part of a copy holds no other task back");
        let mut task = Task { claim, arrival, begun: true, aborted: None, waker: None };
        if restrains || tasks.restraining > 0 {
            task.begun = !Restraints::of(&tasks).hold(&task, &tasks);
        }
        tasks.restraining += usize::from(restrains);
        tasks.waiting += usize::from(!task.begun);
        Ticket { set: self, place: tasks.put(task) }
    }

    /// The owner's turn at a place where tasks wait for each other. A function that ends all tasks does not end this one.
    pub(crate) async fn owner_turn(&self, place: Extent) -> Ticket<'_> {
        assert!(place == TURN || place == ACCESS_TURN, "the owner does not wait for blocks");
        let attribute = TaskAttribute::Simple;
        let claim =
            Claim { nexus: NexusId(u64::MAX), tag: TaskTag(0), attribute, extent: place, alone: true, is_part: false };
        let mut turn = self.enter_anyway(claim);
        while poll_fn(|cx| turn.poll_begun(cx)).await.is_err() {
            turn = self.enter_anyway(claim);
        }
        turn
    }

    /// Marks the affected tasks as aborted: those that wait end now, those that have begun when they come to their end.
    /// Each ends as `how` says for its nexus. True when there was one.
    pub(crate) fn abort(&self, affected: Affected, how: impl Fn(NexusId) -> Aborted) -> bool {
        let mut wakers = Vec::new();
        let mut any = false;
        for task in self.tasks.borrow_mut().places.iter_mut().flatten() {
            if affected.covers(&task.claim) {
                any = true;
                // Its own initiator does not expect an answer any more, whoever aborted it before.
                if task.aborted != Some(Aborted::Unanswered) {
                    task.aborted = Some(how(task.claim.nexus));
                }
                wakers.extend(task.waker.take());
            }
        }
        wakers.into_iter().for_each(Waker::wake);
        any
    }

    /// All tasks, in no order.
    pub(crate) fn standing(&self) -> Vec<TaskStanding> {
        let tasks = self.tasks.borrow();
        let standing = |task: &Task| {
            let Claim { nexus, tag, extent, .. } = task.claim;
            TaskStanding { nexus, tag, extent, has_begun: task.begun }
        };
        tasks.places.iter().flatten().map(standing).collect()
    }

    /// The nexuses that have a task.
    pub(crate) fn nexuses(&self) -> Vec<NexusId> {
        self.tasks.borrow().places.iter().flatten().map(|task| task.claim.nexus).collect()
    }

    /// Is ready when none of the affected tasks that are here now is here any more.
    pub(crate) async fn ended(&self, affected: Affected) {
        let before = self.tasks.borrow().arrivals;
        self.gone(|task| task.arrival < before && affected.covers(&task.claim)).await;
    }

    /// Is ready when none of the tasks that are meant and have begun now is here any more.
    pub(crate) async fn begun_ended(&self, is_meant: impl Fn(&Claim) -> bool) {
        let before = self.tasks.borrow().arrivals;
        self.gone(|task| task.arrival < before && task.begun && is_meant(&task.claim)).await;
    }

    /// Is ready when no such task is here.
    async fn gone(&self, remains: impl Fn(&Task) -> bool) {
        poll_fn(|cx| {
            let mut tasks = self.tasks.borrow_mut();
            if !tasks.places.iter().flatten().any(&remains) {
                return Poll::Ready(());
            }
            if !tasks.watchers.iter().any(|watcher| watcher.will_wake(cx.waker())) {
                tasks.watchers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn stand_aside(&self, place: usize) {
        let mut wakers = Vec::new();
        {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.at(place);
            assert!(task.begun, "a task that waits has nobody behind it to let pass");
            let claim = &mut task.claim;
            let restrained = claim.restrains();
            *claim = Claim { attribute: TaskAttribute::Simple, extent: Extent::default(), alone: false, ..*claim };
            tasks.restraining -= usize::from(restrained);
            if tasks.waiting > 0 {
                tasks.begin_unrestrained(&mut wakers);
            }
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    fn leave(&self, place: usize) {
        let mut wakers = Vec::new();
        {
            let mut tasks = self.tasks.borrow_mut();
            let task = tasks.take(place);
            tasks.waiting -= usize::from(!task.begun);
            tasks.restraining -= usize::from(task.claim.restrains());
            let count = tasks.count();
            assert!(tasks.waiting <= count && tasks.restraining <= count, "only tasks that are here are counted");
            wakers.append(&mut tasks.watchers);
            if tasks.waiting > 0 {
                tasks.begin_unrestrained(&mut wakers);
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

    fn begin_unrestrained(&mut self, wakers: &mut Vec<Waker>) {
        let restraints = Restraints::of(self);
        for place in 0..self.places.len() {
            let Some(task) = &self.places[place] else { continue };
            if task.begun || restraints.hold(task, self) {
                continue;
            }
            let task = self.at(place);
            task.begun = true;
            wakers.extend(task.waker.take());
            self.waiting -= 1;
        }
        // The first of those that wait, by attribute and arrival, can only wait for one that has begun.
        assert!(self.waiting == 0 || self.waiting < self.count(), "tasks do not wait for each other alone");
    }
}

/// What holds tasks back, gathered in one walk so that each waiting task is judged by comparison alone.
struct Restraints {
    head_of_queue: bool,
    oldest: u64,
    oldest_ordered: u64,
    any_alone: bool,
}

impl Restraints {
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

    /// True when `task`, which has not begun, must wait.
    fn hold(&self, task: &Task, tasks: &Tasks) -> bool {
        let by_attribute = match task.claim.attribute {
            _ if task.claim.is_part => false,
            TaskAttribute::HeadOfQueue => false,
            TaskAttribute::Ordered => self.head_of_queue || self.oldest < task.arrival,
            TaskAttribute::Simple | TaskAttribute::Aca => self.head_of_queue || self.oldest_ordered < task.arrival,
        };
        by_attribute || ((task.claim.alone || self.any_alone) && tasks.contend_for_blocks(task))
    }
}

impl Tasks {
    /// True when a task that has begun, or one that goes first, is on blocks of `task`.
    fn contend_for_blocks(&self, task: &Task) -> bool {
        let is_head = |task: &Task| task.claim.attribute == TaskAttribute::HeadOfQueue;
        // Who waits may wait for the task that this is a part of.
        let goes_first = |other: &Task| !task.claim.is_part && other.arrival < task.arrival;
        self.places.iter().flatten().any(|other| {
            other.arrival != task.arrival
                && (other.begun || (goes_first(other) && (is_head(other) || !is_head(task))))
                && (task.claim.alone || other.claim.alone)
                && other.claim.extent.overlaps(task.claim.extent)
        })
    }
}

impl Claim {
    fn restrains(&self) -> bool {
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

/// A task's place in the task set; dropping it ends the task.
#[derive(Debug)]
#[must_use = "the task is in the task set only while its ticket lives"]
pub(crate) struct Ticket<'a> {
    set: &'a TaskSet,
    place: usize,
}

impl Ticket<'_> {
    /// Is ready when the task may run.
    ///
    /// *Errors*: how it ends, when it was aborted before.
    pub(crate) fn poll_begun(&self, cx: &mut Context<'_>) -> Poll<Result<(), Aborted>> {
        let mut tasks = self.set.tasks.borrow_mut();
        let task = tasks.at(self.place);
        if let Some(how) = task.aborted {
            return Poll::Ready(Err(how));
        }
        if task.begun {
            return Poll::Ready(Ok(()));
        }
        if !task.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            task.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    /// True when the task may run.
    pub(crate) fn has_begun(&self) -> bool {
        self.set.tasks.borrow_mut().at(self.place).begun
    }

    /// Is ready when the task was aborted.
    pub(crate) fn poll_aborted(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut tasks = self.set.tasks.borrow_mut();
        let task = tasks.at(self.place);
        if task.aborted.is_some() {
            return Poll::Ready(());
        }
        task.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The task, which has begun, holds nobody back from now on.
    pub(crate) fn stand_aside(&self) {
        self.set.stand_aside(self.place);
    }

    /// Refuses to go on with a task that was aborted.
    pub(crate) fn check_live(&self) -> Result<(), Aborted> {
        self.set.tasks.borrow_mut().at(self.place).aborted.map_or(Ok(()), Err)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.set.leave(self.place);
    }
}

#[cfg(test)]
mod tests;
