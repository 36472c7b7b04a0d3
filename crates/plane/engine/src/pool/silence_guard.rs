//! Guard of disks that belong to no open pool yet, so that none of them holds up an opening, a copy or a return.
//!
//! A disk is interrupted after [`MEMBER_DEADLINE`] without progress. While a pool is opened, so is one that has kept the
//! opening busy for that long and is many times slower than the others, if its groups can serve without it
//! ([`SilenceGuard::spare_slow`]).

use super::watchdog::MEMBER_DEADLINE;
use crate::array::{self, Disk, interruptible};
use crate::shard_context::ShardContext;
use model::DiskCounters;
use raid::deadlines::is_slow;
use shard::{CLOCK_STEP, World};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Tells whether an opening can continue without the disks that are marked, by their index in the guard.
type CanSpare = Box<dyn Fn(&[bool]) -> bool>;

/// Guard of the disks that it was made with, until it is dropped.
pub(super) struct SilenceGuard(Rc<Shared>);

#[derive(Default)]
struct Shared {
    /// Rule for slow disks; without one they are only waited for.
    can_spare: RefCell<Option<CanSpare>>,
    /// Disks that the guard has interrupted, by their index.
    given_up: RefCell<Vec<bool>>,
}

impl SilenceGuard {
    /// Guards these disks until it is dropped.
    pub(super) fn over<'a, W: World>(shard: &ShardContext<W>, disks: impl Iterator<Item = &'a Disk<W>>) -> Self {
        let disks: Vec<GuardedDisk<W>> = disks.map(GuardedDisk::new).collect();
        let guard = Self(Rc::new(Shared { given_up: RefCell::new(vec![false; disks.len()]), ..Shared::default() }));
        let (world, shared) = (shard.world.clone(), Rc::downgrade(&guard.0));
        shard.world.spawn(async move {
            while let Some(shared) = shared.upgrade() {
                shared.look(&disks);
                // Not held while the task sleeps: the guard ends with its owner.
                drop(shared);
                world.sleep(CLOCK_STEP).await;
            }
        });
        guard
    }

    /// True if the guard has interrupted the disk with this index.
    pub(super) fn has_given_up(&self, disk: usize) -> bool {
        self.0.given_up.borrow()[disk]
    }

    /// Interrupts slow disks, too, from now on, where `can_spare` says that the opening can continue without those that
    /// are marked, by their index among the guarded disks.
    pub(super) fn spare_slow(&self, can_spare: impl Fn(&[bool]) -> bool + 'static) {
        *self.0.can_spare.borrow_mut() = Some(Box::new(can_spare));
    }
}

impl Shared {
    fn look<W: World>(&self, disks: &[GuardedDisk<W>]) {
        for (at, disk) in disks.iter().enumerate().filter(|(_, disk)| disk.is_silent()) {
            self.give_up(at, disk);
        }
        if let Some(can_spare) = &*self.can_spare.borrow() {
            self.give_up_slow(disks, can_spare);
        }
    }

    fn give_up<W: World>(&self, at: usize, disk: &GuardedDisk<W>) {
        self.given_up.borrow_mut()[at] = true;
        disk.interrupt();
    }

    /// Gives up the disks that hold up the opening and that it can spare.
    fn give_up_slow<W: World>(&self, disks: &[GuardedDisk<W>], can_spare: &CanSpare) {
        let speeds: Vec<Option<Speed>> = disks.iter().map(GuardedDisk::speed).collect();
        for (at, speed) in speeds.iter().enumerate() {
            let Some(speed) = speed.as_ref().filter(|speed| speed.busy >= MEMBER_DEADLINE) else { continue };
            let mut without = self.given_up.borrow().clone();
            let others = speeds.iter().enumerate().filter(|(other, _)| *other != at && !without[*other]);
            let others: Vec<Duration> = others.filter_map(|(_, other)| Some(other.as_ref()?.latency)).collect();
            without[at] = true;
            if is_slow(speed.latency, &others, false) && can_spare(&without) {
                tracing::warn!(latency = ?speed.latency, busy = ?speed.busy, "a slow disk is left out of an opening");
                self.give_up(at, &disks[at]);
            }
        }
    }
}

/// Speed of a disk since the guard was made.
struct Speed {
    /// Time during which at least one operation was in flight.
    busy: Duration,
    /// Mean latency.
    latency: Duration,
}

struct GuardedDisk<W: World> {
    disk: Weak<array::MemberStack<W>>,
    /// Counters when the guard was made.
    before: DiskCounters,
}

impl<W: World> GuardedDisk<W> {
    fn new(disk: &Disk<W>) -> Self {
        Self { disk: Rc::downgrade(disk), before: array::counted(disk).counters() }
    }

    fn interrupt(&self) {
        if let Some(disk) = self.disk.upgrade() {
            interruptible(&disk).interrupt();
        }
    }

    /// True while the disk is open, not interrupted and over its deadline.
    fn is_silent(&self) -> bool {
        let disk = self.disk.upgrade();
        disk.is_some_and(|disk| {
            !interruptible(&disk).is_interrupted() && interruptible(&disk).response_age().progress >= MEMBER_DEADLINE
        })
    }

    /// Speed of the disk; `None` once it is closed or interrupted.
    fn speed(&self) -> Option<Speed> {
        let disk = self.disk.upgrade().filter(|disk| !interruptible(disk).is_interrupted())?;
        let (now, before) = (array::counted(&disk).counters(), &self.before);
        let operations = |counters: &DiskCounters| counters.reads + counters.writes + counters.flushes;
        // The first operation may still be in flight; its time counts.
        let ended = operations(&now).saturating_sub(operations(before)).max(1);
        Some(Speed {
            busy: Duration::from_nanos(now.busy_ns.saturating_sub(before.busy_ns)),
            latency: Duration::from_nanos(now.waited_ns.saturating_sub(before.waited_ns) / ended),
        })
    }
}
