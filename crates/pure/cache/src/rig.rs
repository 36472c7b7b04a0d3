//! Test rig: a shard with a virtual clock and a seeded task order, disks that record and fail, and an oracle of the
//! permitted content of each block.

pub(crate) mod disk;
pub(crate) mod oracle;

use crate::Runtime;
use futures_util::future::{AbortHandle, abortable};
use shard::time::{Sleep, Timers};
use shard::{Executor, Time};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Pseudo-random numbers from a seed (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub(crate) fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

/// Virtual clock and tasks of a [`Rig`].
#[derive(Clone)]
pub(crate) struct TestRuntime {
    executor: Executor,
    timers: Timers,
    now: Rc<Cell<Time>>,
    random: Rc<RefCell<Random>>,
}

impl TestRuntime {
    pub(crate) fn random(&self, bound: u64) -> u64 {
        self.random.borrow_mut().below(bound)
    }
}

impl Runtime for TestRuntime {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        self.timers.sleep_until(at)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(task);
    }
}

/// Command in flight.
pub(crate) struct Running<T> {
    result: Rc<Cell<Option<T>>>,
    abort: AbortHandle,
}

impl<T> Running<T> {
    pub(crate) fn result(&self) -> Option<T> {
        self.result.take()
    }

    /// Drops the command's future at its next poll.
    pub(crate) fn abort(&self) {
        self.abort.abort();
    }
}

pub(crate) struct Rig {
    pub(crate) runtime: TestRuntime,
    in_order: bool,
}

impl Rig {
    /// Creates a shard that runs its tasks in an order derived from `seed`.
    pub(crate) fn seeded(seed: u64) -> Self {
        let (timers, now) = (Timers::default(), Rc::new(Cell::new(Time(1_000_000_000))));
        timers.fire(now.get());
        let random = Rc::new(RefCell::new(Random(seed)));
        Self { runtime: TestRuntime { executor: Executor::new(Box::new(|| {})), timers, now, random }, in_order: false }
    }

    /// Creates a shard that runs its tasks in the order in which they are woken, as a real one does.
    pub(crate) fn in_order() -> Self {
        let mut rig = Self::seeded(1);
        rig.in_order = true;
        rig
    }

    pub(crate) fn begin<T: 'static>(&self, command: impl Future<Output = T> + 'static) -> Running<T> {
        let result = Rc::new(Cell::new(None));
        let tell = result.clone();
        let (command, abort) = abortable(command);
        self.runtime.spawn(async move { tell.set(command.await.ok()) });
        Running { result, abort }
    }

    /// Runs one task, or advances the clock to the next timer; false when neither exists.
    pub(crate) fn step(&self) -> bool {
        let choose = |count: usize| if self.in_order { 0 } else { self.runtime.random(count as u64) as usize };
        if self.runtime.executor.run_one(choose) {
            return true;
        }
        // The clock advances only when no task is ready, so a run does not depend on the speed of the machine.
        let Some(next) = self.runtime.timers.next() else { return false };
        self.runtime.now.set(self.runtime.now.get().max(next));
        self.runtime.timers.fire(self.runtime.now.get());
        true
    }

    /// Runs all woken tasks without advancing the clock.
    pub(crate) fn settle(&self) {
        while self.runtime.executor.run_one(|_| 0) {}
    }

    /// Advances the clock by `duration`, running tasks and timers.
    pub(crate) fn pass(&self, duration: Duration) {
        let end = self.runtime.now.get() + duration;
        loop {
            self.settle();
            match self.runtime.timers.next().filter(|&next| next <= end) {
                Some(next) => self.runtime.now.set(self.runtime.now.get().max(next)),
                None => break,
            }
            self.runtime.timers.fire(self.runtime.now.get());
        }
        self.runtime.now.set(end);
        self.runtime.timers.fire(end);
    }

    /// Runs `command` to completion.
    pub(crate) fn run<T: 'static>(&self, command: impl Future<Output = T> + 'static) -> T {
        let running = self.begin(command);
        for _ in 0..5_000_000 {
            if let Some(result) = running.result() {
                return result;
            }
            assert!(self.step(), "the command waits for something that never happens");
        }
        panic!("the command does not end");
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Tasks hold the runtime, and the runtime holds the tasks: the cycle is broken here.
        self.runtime.executor.clear();
    }
}
