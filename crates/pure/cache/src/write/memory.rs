//! How much may wait in memory, and how writers are slowed before it is full.

use crate::Runtime;
use block::IoError;
use shard::Signal;
use shard::Time;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Fill, in thousandths, from which writers are slowed.
const SLOW_FROM: u64 = 500;
/// Fill at which they are exactly as fast as what goes below.
const EVEN_AT: u64 = 750;
/// How long what goes below is counted before the rate is believed.
const SAMPLE: Duration = Duration::from_millis(10);

/// The memory of one shard for acknowledged data that waits to be written below. Cheap to clone.
///
/// Half full, writers begin to be slowed, the more the fuller it is, towards the rate at which it empties;
/// so they meet no wall when it is full.
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
    /// How long 1 KiB takes to go below.
    ns_per_kib: u64,
    /// When the next writer may go on.
    next: Time,
}

impl WriteMemory {
    /// Room for `bytes_max`.
    #[must_use]
    pub fn new(bytes_max: u64) -> Self {
        let pace = Pace { sample_begin: Time(0), sample_bytes: 0, ns_per_kib: 1000, next: Time(0) };
        let (bytes_max, used) = (Cell::new(bytes_max), Cell::new(0));
        Self(Rc::new(Inner { bytes_max, used, pace: RefCell::new(pace), room: Signal::default() }))
    }

    /// Room for `bytes_max` from now on; what waits beyond that goes below as it would.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.0.bytes_max.set(bytes_max);
        self.0.room.raise();
    }

    /// Bytes that wait.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.used.get()
    }

    /// How full it is, in thousandths.
    pub(super) fn fill(&self) -> u64 {
        self.0.used.get().saturating_mul(1000) / self.0.bytes_max.get().max(1)
    }

    /// Takes `bytes`, waiting until there is room; `other_fill` is how full something else is that it also needs.
    /// `lose` is asked to make room at once, and makes none unless it is broken on purpose.
    ///
    /// *Errors*: what `refusal` says, also while waiting.
    pub(super) async fn take(
        &self,
        runtime: &impl Runtime,
        bytes: u64,
        other_fill: impl Fn() -> u64,
        refusal: impl Fn() -> Option<IoError>,
        lose: impl Fn(),
    ) -> Result<(), IoError> {
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
                let fits = used == 0 || used + bytes <= inner.bytes_max.get();
                if fits {
                    inner.used.set(used + bytes);
                }
                fits.then_some(Ok(()))
            })
            .await
    }

    /// Those who wait for room look whether they still may.
    pub(super) fn look_again(&self) {
        self.0.room.raise();
    }

    /// Gives `bytes` back.
    pub(super) fn give(&self, bytes: u64) {
        assert!(bytes <= self.0.used.get(), "only memory that was taken is given back");
        self.0.used.set(self.0.used.get() - bytes);
        self.0.room.raise();
    }

    /// What waits has changed from `old` bytes to `new`.
    pub(super) fn adjust(&self, old: u64, new: u64) {
        assert!(old <= self.0.used.get(), "what a volume holds is counted");
        self.0.used.set(self.0.used.get() + new - old);
        if new < old {
            self.0.room.raise();
        }
    }

    /// Notes that `bytes` have gone below.
    pub(super) fn drained(&self, now: Time, bytes: u64) {
        let mut pace = self.0.pace.borrow_mut();
        pace.sample_bytes += bytes;
        let elapsed = now - pace.sample_begin;
        if elapsed >= SAMPLE {
            // A pause says nothing about how fast it goes when it goes.
            let elapsed = u64::try_from(elapsed.min(SAMPLE * 4).as_nanos()).expect("at most 40 ms");
            let sample = elapsed * 1024 / pace.sample_bytes.max(1);
            pace.ns_per_kib = (pace.ns_per_kib * 3 + sample) / 4;
            (pace.sample_begin, pace.sample_bytes) = (now, 0);
        }
    }

    /// Until when a writer of `bytes` has to wait at this fill.
    fn slowed(&self, now: Time, bytes: u64, fill: u64) -> Option<Time> {
        if fill < SLOW_FROM {
            return None;
        }
        let mut pace = self.0.pace.borrow_mut();
        let ns = bytes * pace.ns_per_kib / 1024 * (fill.min(1000) - SLOW_FROM) / (EVEN_AT - SLOW_FROM);
        pace.next = pace.next.max(now) + Duration::from_nanos(ns);
        Some(pace.next)
    }
}
