//! Maintenance state of an open pool: the operator's repair policy, the scrub, space monitoring, and the pace of
//! background work.

use super::find;
use super::pace::{Pacer, Step};
use super::scrub::Scrub;
use super::space::Space;
use crate::shard_context::ShardContext;
use crate::unit::Meter;
use futures_util::future::select;
use model::{Name, PoolReport, Refusal, RepairPolicy};
use shard::{Signal, Time, World, yield_now};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;

/// Maintenance state of one pool.
pub(super) struct Maintenance<W> {
    world: W,
    /// Counter of host commands of the pool.
    pub meter: Rc<Meter>,
    /// Scrub that runs, or ran last.
    pub scrub: Scrub,
    /// Space monitoring and deferred work on maps.
    pub space: Space,
    policy: RefCell<RepairPolicy>,
    /// Number of changes so far that a waiting task may depend on.
    changes: Cell<u64>,
    changed: Signal,
}

/// Pace of one background operation, and its position at the last step.
pub(super) struct Pace {
    pacer: Pacer,
    stepped: Time,
    done_bytes: u64,
}

/// Sets the repair policy of the pool. Operations that run already follow it from their next step.
pub(crate) async fn set_repair<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    policy: RepairPolicy,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    *pool.maintenance.policy.borrow_mut() = policy;
    pool.maintenance.tell_of_change();
    Ok(pool.report())
}

impl<W: World> Maintenance<W> {
    pub(super) fn new(world: W) -> Self {
        let (meter, scrub, space, policy, changes, changed) = Default::default();
        Self { world, meter, scrub, space, policy, changes, changed }
    }

    /// Repair policy of the pool.
    pub(super) fn repair_policy(&self) -> RepairPolicy {
        self.policy.borrow().clone()
    }

    /// Wakes the waiting tasks, which evaluate their conditions again.
    pub(super) fn tell_of_change(&self) {
        self.changes.set(self.changes.get() + 1);
        self.changed.raise();
    }

    /// Starts the pace of an operation.
    pub(super) fn start_pace(&self) -> Pace {
        self.resume_pace(0)
    }

    /// Starts the pace of an operation that continues after `done_bytes`.
    pub(super) fn resume_pace(&self, done_bytes: u64) -> Pace {
        let now = self.world.now();
        Pace { pacer: Pacer::new(now, self.meter.load()), stepped: now, done_bytes }
    }

    /// Marks the start of a step after another wait, which then does not count as time of the step.
    pub(super) fn step(&self, gait: &mut Pace) {
        gait.stepped = self.world.now();
    }

    /// Waits until the next step may start, and `may` is true. Returns false once, when the promised end cannot be met
    /// any more.
    pub(super) async fn keep_pace(
        &self,
        gait: &mut Pace,
        done_bytes: u64,
        total_bytes: u64,
        may: impl Fn(&Self) -> bool,
    ) -> bool {
        let world = &self.world;
        let now = world.now();
        assert!(done_bytes >= gait.done_bytes, "who goes back in his work begins another gait");
        let step = Step {
            now,
            took: now.since(gait.stepped),
            bytes: done_bytes - gait.done_bytes,
            left_bytes: total_bytes.saturating_sub(done_bytes),
            host: self.meter.load(),
        };
        gait.done_bytes = done_bytes;
        // The policy may change during the wait: a shorter one must take effect at once.
        let before = self.changes.get();
        let wait = gait.pacer.wait(&self.policy.borrow(), step);
        if wait.is_zero() {
            // Queued commands of hosts run first.
            yield_now().await;
        } else {
            select(pin!(world.sleep(wait)), pin!(self.until(|care| care.changes.get() != before))).await;
        }
        // The operator may have paused all repairs during the wait.
        self.until(may).await;
        gait.stepped = world.now();
        // Judged by the end of the step: the pause itself is no delay of the disks.
        !gait.pacer.is_late(now)
    }

    /// Waits while an operator has paused all repair.
    pub(super) async fn until_resumed(&self) {
        self.until(Self::is_resumed).await;
    }

    /// True unless an operator has paused all repair of the pool.
    pub(super) fn is_resumed(&self) -> bool {
        !self.policy.borrow().paused
    }

    /// Waits until `holds`; it is evaluated after every change.
    pub(super) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        self.changed.until(|| holds(self)).await;
    }
}
