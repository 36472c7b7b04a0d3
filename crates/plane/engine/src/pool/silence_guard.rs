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
pub(super) struct SilenceGuard(Rc<RefCell<Option<CanSpare>>>);

impl SilenceGuard {
    /// Guards these disks until it is dropped.
    pub(super) fn over<'a, W: World>(shard: &ShardContext<W>, disks: impl Iterator<Item = &'a Disk<W>>) -> Self {
        let disks: Vec<GuardedDisk<W>> = disks.map(GuardedDisk::new).collect();
        let guard = Self(Rc::default());
        let (world, can_spare) = (shard.world.clone(), Rc::downgrade(&guard.0));
        shard.world.spawn(async move {
            while let Some(can_spare) = can_spare.upgrade() {
                disks.iter().for_each(GuardedDisk::interrupt_silent);
                if let Some(can_spare) = &*can_spare.borrow() {
                    interrupt_slow(&disks, can_spare);
                }
                // Not held while the task sleeps: the guard ends with its owner.
                drop(can_spare);
                world.sleep(CLOCK_STEP).await;
            }
        });
        guard
    }

    /// Interrupts slow disks, too, from now on, where `can_spare` says that the opening can continue without those that
    /// are marked, by their index among the guarded disks.
    pub(super) fn spare_slow(&self, can_spare: impl Fn(&[bool]) -> bool + 'static) {
        *self.0.borrow_mut() = Some(Box::new(can_spare));
    }
}

/// Interrupts the disks that hold up the opening and that it can spare.
fn interrupt_slow<W: World>(disks: &[GuardedDisk<W>], can_spare: &CanSpare) {
    let speeds: Vec<Option<Speed>> = disks.iter().map(GuardedDisk::speed).collect();
    let mut given_up: Vec<bool> = speeds.iter().map(Option::is_none).collect();
    for (at, speed) in speeds.iter().enumerate() {
        let Some(speed) = speed.as_ref().filter(|speed| speed.busy >= MEMBER_DEADLINE) else { continue };
        let others = speeds.iter().enumerate().filter(|(other, _)| *other != at && !given_up[*other]);
        let others: Vec<Duration> = others.filter_map(|(_, other)| Some(other.as_ref()?.latency)).collect();
        if !is_slow(speed.latency, &others, false) {
            continue;
        }
        given_up[at] = true;
        if can_spare(&given_up) {
            tracing::warn!(latency = ?speed.latency, busy = ?speed.busy, "a slow disk is left out of an opening");
            disks[at].interrupt();
        } else {
            given_up[at] = false;
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

    fn interrupt_silent(&self) {
        if self.disk.upgrade().is_some_and(|disk| interruptible(&disk).response_age().progress >= MEMBER_DEADLINE) {
            self.interrupt();
        }
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
