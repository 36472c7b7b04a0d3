//! Memory budget of dirty data, with back-pressure that slows writers down before it is exhausted.

use crate::Runtime;
use block::IoError;
use shard::Signal;
use shard::Time;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Fill level, in thousandths, from which writers are slowed down.
const SLOW_FROM: u64 = 500;
/// Fill level at which writers are exactly as fast as destaging.
const EVEN_AT: u64 = 750;
/// Minimum interval over which the destage rate is measured.
const SAMPLE: Duration = Duration::from_millis(10);

/// Memory budget of one shard for acknowledged data that is not yet written below. Cheap to clone.
///
/// From half full on, writers are slowed down progressively towards the rate of destaging, so that they do not stall
/// abruptly when it is full.
#[derive(Clone, Debug)]
pub struct WriteMemory(Rc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes_max: Cell<u64>,
    used: Cell<u64>,
    pace: RefCell<Pace>,
    room: Signal,
}

#[derive(Debug)]
struct Pace {
    sample_begin: Time,
    sample_bytes: u64,
    /// Destage time of 1 KiB, in nanoseconds.
    ns_per_kib: u64,
    /// Time at which the next writer may continue.
    next: Time,
}

impl WriteMemory {
    /// Creates a budget of `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        // About 1 GB/s is assumed until the rate is measured.
        let pace = Pace { sample_begin: Time(0), sample_bytes: 0, ns_per_kib: 1000, next: Time(0) };
        let (bytes_max, used) = (Cell::new(bytes_max), Cell::new(0));
        Self(Rc::new(Inner { bytes_max, used, pace: RefCell::new(pace), room: Signal::default() }))
    }

    /// Changes the budget to `bytes_max`; dirty data beyond it is destaged as usual.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.0.bytes_max.set(bytes_max);
        self.0.room.raise();
    }

    /// Bytes in use.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.used.get()
    }

    /// Fill level, in thousandths.
    pub(super) fn fill(&self) -> u64 {
        // A budget of 0 counts as full once anything is in use.
        self.0.used.get().saturating_mul(1000) / self.0.bytes_max.get().max(1)
    }

    /// Takes `bytes`, waiting until there is room. `other_fill` is the fill level of another resource that the write
    /// needs. `lose` may drop dirty data when there is no room, which only a planted bug does.
    ///
    /// *Errors*: the result of `refusal`, also while waiting.
    pub(super) async fn take(
        &self,
        runtime: &impl Runtime,
        bytes: u64,
        other_fill: impl Fn() -> u64,
        refusal: impl Fn() -> Option<IoError>,
        lose: impl Fn(),
    ) -> Result<(), IoError> {
        // Slowed by the fuller of memory and log, whichever the write will exhaust first.
        if let Some(until) = self.slowed(runtime.now(), bytes, self.fill().max(other_fill())) {
            runtime.sleep_until(until).await;
        }
        let inner = &*self.0;
        inner
            .room
            .wait(|| {
                if let Some(error) = refusal() {
                    return Some(Err(error));
                }
                if inner.used.get() + bytes > inner.bytes_max.get() {
                    lose();
                }
                let used = inner.used.get();
                // A write larger than the budget is admitted alone, or it would wait endlessly.
                let fits = used == 0 || used + bytes <= inner.bytes_max.get();
                if fits {
                    inner.used.set(used + bytes);
                }
                fits.then_some(Ok(()))
            })
            .await
    }

    /// Makes writers that wait for room check their conditions again.
    pub(super) fn look_again(&self) {
        self.0.room.raise();
    }

    /// Returns `bytes`.
    pub(super) fn give(&self, bytes: u64) {
        assert!(bytes <= self.0.used.get(), "only memory that was taken is given back");
        self.0.used.set(self.0.used.get() - bytes);
        self.0.room.raise();
    }

    /// Changes the amount counted for a volume from `old` to `new` bytes.
    pub(super) fn adjust(&self, old: u64, new: u64) {
        assert!(old <= self.0.used.get(), "what a volume holds is counted");
        // Added before it is subtracted: the difference may be negative.
        self.0.used.set(self.0.used.get() + new - old);
        if new < old {
            self.0.room.raise();
        }
    }

    /// Counts `bytes` as destaged, and updates the measured rate.
    pub(super) fn drained(&self, now: Time, bytes: u64) {
        let mut pace = self.0.pace.borrow_mut();
        pace.sample_bytes += bytes;
        let elapsed = now - pace.sample_begin;
        if elapsed >= SAMPLE {
            // An idle time says nothing about the rate, so at most four intervals count.
            let elapsed = u64::try_from(elapsed.min(SAMPLE * 4).as_nanos()).expect("at most 40 ms");
            let sample = elapsed * 1024 / pace.sample_bytes.max(1);
            // Moving average: a single sample must not swing the rate.
            pace.ns_per_kib = (pace.ns_per_kib * 3 + sample) / 4;
            (pace.sample_begin, pace.sample_bytes) = (now, 0);
        }
    }

    /// Returns the time until which a writer of `bytes` must wait at this fill level.
    fn slowed(&self, now: Time, bytes: u64, fill: u64) -> Option<Time> {
        if fill < SLOW_FROM {
            return None;
        }
        let mut pace = self.0.pace.borrow_mut();
        // Weight 0 at `SLOW_FROM`, 1 at `EVEN_AT`, 2 when full.
        let ns = bytes * pace.ns_per_kib / 1024 * (fill.min(1000) - SLOW_FROM) / (EVEN_AT - SLOW_FROM);
        // Delays of concurrent writers add up, so together they follow the rate.
        pace.next = pace.next.max(now) + Duration::from_nanos(ns);
        Some(pace.next)
    }
}
