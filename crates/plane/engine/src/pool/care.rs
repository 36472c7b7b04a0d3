//! How an open pool is cared for: what its operator has set, and the pace that follows from it.

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

/// What belongs to the care of one pool.
pub(super) struct Care<W> {
    world: W,
    /// What its hosts meet.
    pub meter: Rc<Meter>,
    /// The scrub that runs, or ran last.
    pub scrub: Scrub,
    /// How full it is, and what is done about it.
    pub space: Space,
    policy: RefCell<RepairPolicy>,
    /// Changes so far that somebody may wait for.
    changes: Cell<u64>,
    changed: Signal,
}

/// The pace of one repair, and how far it was at its last step.
pub(super) struct Gait {
    pacer: Pacer,
    stepped: Time,
    done_bytes: u64,
}

/// From now on the pool is repaired as `policy` says, also what is being repaired already.
pub(crate) async fn set_repair<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    policy: RepairPolicy,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    *pool.care.policy.borrow_mut() = policy;
    pool.care.tell_of_change();
    Ok(pool.report())
}

impl<W: World> Care<W> {
    pub(super) fn new(world: W) -> Self {
        let (meter, scrub, space, policy, changes, changed) = Default::default();
        Self { world, meter, scrub, space, policy, changes, changed }
    }

    /// What is set for the pool.
    pub(super) fn repair_policy(&self) -> RepairPolicy {
        self.policy.borrow().clone()
    }

    /// Whoever waits looks again whether it may go on.
    pub(super) fn tell_of_change(&self) {
        self.changes.set(self.changes.get() + 1);
        self.changed.raise();
    }

    /// The pace of a repair that begins now.
    pub(super) fn gait(&self) -> Gait {
        self.gait_from(0)
    }

    /// The pace of a repair that goes on now, with so much done before.
    pub(super) fn gait_from(&self, done_bytes: u64) -> Gait {
        let now = self.world.now();
        Gait { pacer: Pacer::new(now, self.meter.load()), stepped: now, done_bytes }
    }

    /// A step begins now, after something else was waited for.
    pub(super) fn step(&self, gait: &mut Gait) {
        gait.stepped = self.world.now();
    }

    /// Ready when the next step may begin, and `may` says so. False once, when a promised end cannot be kept.
    pub(super) async fn keep_pace(
        &self,
        gait: &mut Gait,
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
        let before = self.changes.get();
        let wait = gait.pacer.wait(&self.policy.borrow(), step);
        if wait.is_zero() {
            // Commands of hosts that wait for their turn get it.
            yield_now().await;
        } else {
            select(pin!(world.sleep(wait)), pin!(self.until(|care| care.changes.get() != before))).await;
        }
        self.until(may).await;
        gait.stepped = world.now();
        !gait.pacer.is_late(now)
    }

    /// Ready when repair may begin.
    pub(super) async fn until_resumed(&self) {
        self.until(Self::is_resumed).await;
    }

    /// True unless an operator has paused all repair of the pool.
    pub(super) fn is_resumed(&self) -> bool {
        !self.policy.borrow().paused
    }

    /// Ready when `holds`, which is looked at whenever something was changed.
    pub(super) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        self.changed.until(|| holds(self)).await;
    }
}
