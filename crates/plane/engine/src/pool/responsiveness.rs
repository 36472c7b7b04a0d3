//! Responsiveness of the disk in one slot: its latency, whether it is slow, and how often it returned after a silence.
//!
//! Updated by [`super::watchdog`]; the thresholds are in `raid::deadlines`.

use crate::array::{self, Disk, interruptible};
use model::MemberLatency;
use raid::deadlines::is_slow;
use shard::{Time, World};
use std::cell::Cell;
use std::time::Duration;

/// Consecutive checks with the same result before a member is called slow, or normal again.
const SLOW_LOOKS: u32 = 3;
/// Operations between two checks that make its mean latency meaningful.
const SLOW_OPERATIONS_MIN: u64 = 16;
/// Returns within [`RETURNS_SPAN`] after which a member stays out.
pub(super) const RETURNS_MAX: u32 = 5;
const RETURNS_SPAN: Duration = Duration::from_secs(3600);

/// Responsiveness of the disk in one slot.
#[derive(Default)]
pub(super) struct Responsiveness {
    /// Read latency at p99.9.
    p999: Cell<Duration>,
    /// True while it is many times slower than the other members.
    is_slow: Cell<bool>,
    otherwise: Cell<u32>,
    /// Operations completed at the last check, and the sum of their latencies in nanoseconds.
    seen: Cell<(u64, u64)>,
    /// Mean latency between the last two checks; `None` if too few operations were completed.
    recent: Cell<Option<Duration>>,
    is_behind: Cell<bool>,
    /// Returns within [`RETURNS_SPAN`], and the time of the first of them.
    returns: Cell<(u32, Time)>,
}

impl Responsiveness {
    /// Updates the latencies from the counters of the disk.
    pub(super) fn learn<W: World>(&self, disk: &Disk<W>) {
        let counted = array::counted(disk);
        self.p999.set(counted.usual_read_latency());
        let counters = counted.counters();
        let now = (counters.reads + counters.writes + counters.flushes, counters.waited_ns);
        let (before, took) = self.seen.replace(now);
        let ended = now.0.saturating_sub(before);
        // A slow member gets few reads, so a single one has to suffice to see that it has recovered.
        let least = if self.is_slow.get() { 1 } else { SLOW_OPERATIONS_MIN };
        let mean = now.1.saturating_sub(took).checked_div(ended).map(Duration::from_nanos);
        self.recent.set(mean.filter(|_| ended >= least));
    }

    /// Compares the member with the mean latencies of the others. `Some` if it has become slow, or normal again.
    pub(super) fn judge_speed(&self, others: &[Duration]) -> Option<bool> {
        let own = self.recent.get()?;
        let is_slow = is_slow(own, others, self.is_slow.get());
        if is_slow == self.is_slow.get() {
            self.otherwise.set(0);
            return None;
        }
        // Hysteresis: one outlier neither marks a member as slow nor clears it.
        self.otherwise.set(self.otherwise.get() + 1);
        if self.otherwise.get() < SLOW_LOOKS {
            return None;
        }
        self.otherwise.set(0);
        self.is_slow.set(is_slow);
        Some(is_slow)
    }

    /// Read latency at p99.9; zero while unknown.
    pub(super) fn p999(&self) -> Duration {
        self.p999.get()
    }

    /// True while the disk is many times slower than the other members.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.get()
    }

    /// Mean latency between the last two checks; `None` if too few operations were completed.
    pub(super) fn recent(&self) -> Option<Duration> {
        self.recent.get()
    }

    /// Marks the disk as given up because it did not answer.
    pub(super) fn fall_behind(&self) {
        self.is_behind.set(true);
    }

    /// True while a disk that was given up may return by itself.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.get()
    }

    /// Latencies for the report of the member.
    pub(super) fn report<W: World>(&self, disk: &Disk<W>) -> MemberLatency {
        let counted = array::counted(disk);
        let us = |reads, per_mille| u64::try_from(counted.latency(reads, per_mille).as_micros()).unwrap_or(u64::MAX);
        let silence = interruptible(disk).response_age();
        let silent = silence.read.max(silence.change).max(silence.progress);
        MemberLatency {
            read_p50_us: us(true, 500),
            read_p99_us: us(true, 990),
            write_p50_us: us(false, 500),
            write_p99_us: us(false, 990),
            unresponsive_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
            slow: self.is_slow.get(),
        }
    }

    /// Resets everything but the count of returns: the disk was opened again and takes part.
    pub(super) fn renew(&self) {
        self.p999.take();
        self.is_slow.take();
        self.otherwise.take();
        self.seen.take();
        self.recent.take();
        self.is_behind.take();
    }

    /// Clears the mark of a disk that was given up: it does not return by itself any more.
    pub(super) fn give_up_waiting(&self) {
        self.is_behind.set(false);
    }

    /// Returns of the disk within [`RETURNS_SPAN`].
    pub(super) fn returns(&self, now: Time) -> u32 {
        let (count, since) = self.returns.get();
        if now.since(since) > RETURNS_SPAN { 0 } else { count }
    }

    pub(super) fn note_return(&self, now: Time) {
        let before = self.returns(now);
        assert!(before < RETURNS_MAX, "a member that comes back too often is not taken back");
        let since = if before == 0 { now } else { self.returns.get().1 };
        self.returns.set((before + 1, since));
    }
}
