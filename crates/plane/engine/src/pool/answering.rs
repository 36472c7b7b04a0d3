//! How the disk of one place of a group answers: its latency, whether it is slow, and how often it came back.

use crate::array::{self, Disk, interruptible};
use model::MemberLatency;
use raid::deadlines::is_slow;
use shard::{Time, World};
use std::cell::Cell;
use std::time::Duration;

/// A member is called slow, or not slow any more, after so many looks that say so.
const SLOW_LOOKS: u32 = 3;
/// Operations between two looks that tell something of a member's speed.
const SLOW_OPERATIONS_MIN: u64 = 16;
/// A member that was taken back so often within [`RETURNS_SPAN`] is not taken back again.
pub(super) const RETURNS_MAX: u32 = 5;
const RETURNS_SPAN: Duration = Duration::from_secs(3600);

/// What is known of how the disk of one place answers.
#[derive(Default)]
pub(super) struct Answering {
    /// The latency of reads that one in a thousand exceeds.
    p999: Cell<Duration>,
    /// True while it is many times slower than its neighbors, and for how many looks it has been otherwise.
    is_slow: Cell<bool>,
    otherwise: Cell<u32>,
    /// Operations that had ended at the last look, and the time that they had taken together.
    seen: Cell<(u64, u64)>,
    /// Mean latency between the last two looks, where enough had ended.
    recent: Cell<Option<Duration>>,
    is_behind: Cell<bool>,
    /// How often it was taken back, and when for the first time, since [`RETURNS_SPAN`].
    returns: Cell<(u32, Time)>,
}

impl Answering {
    /// Learns how the disk has answered since the last look.
    pub(super) fn learn<W: World>(&self, disk: &Disk<W>) {
        let counted = array::counted(disk);
        self.p999.set(counted.usual_read_latency());
        let counters = counted.counters();
        let now = (counters.reads + counters.writes + counters.flushes, counters.waited_ns);
        let (before, took) = self.seen.replace(now);
        let ended = now.0.saturating_sub(before);
        let least = if self.is_slow.get() { 1 } else { SLOW_OPERATIONS_MIN };
        let mean = now.1.saturating_sub(took).checked_div(ended).map(Duration::from_nanos);
        self.recent.set(mean.filter(|_| ended >= least));
    }

    /// Whether the member is slow beside others with these mean latencies; `Some` when that has changed.
    pub(super) fn judge_speed(&self, others: &[Duration]) -> Option<bool> {
        let own = self.recent.get()?;
        let is_slow = is_slow(own, others, self.is_slow.get());
        if is_slow == self.is_slow.get() {
            self.otherwise.set(0);
            return None;
        }
        self.otherwise.set(self.otherwise.get() + 1);
        if self.otherwise.get() < SLOW_LOOKS {
            return None;
        }
        self.otherwise.set(0);
        self.is_slow.set(is_slow);
        Some(is_slow)
    }

    /// The latency of reads that one in a thousand exceeds; zero while that is not known.
    pub(super) fn p999(&self) -> Duration {
        self.p999.get()
    }

    /// True while the disk is many times slower than its neighbors.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.get()
    }

    /// Mean latency between the last two looks, where enough had ended to tell.
    pub(super) fn recent(&self) -> Option<Duration> {
        self.recent.get()
    }

    /// The disk is not waited for any longer.
    pub(super) fn fall_behind(&self) {
        self.is_behind.set(true);
    }

    /// True while the disk is waited for that was given up because it did not answer.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind.get()
    }

    /// How the disk answers, in the words of the model.
    pub(super) fn report<W: World>(&self, disk: &Disk<W>) -> MemberLatency {
        let counted = array::counted(disk);
        let us = |reads, per_mille| u64::try_from(counted.latency(reads, per_mille).as_micros()).unwrap_or(u64::MAX);
        let silence = interruptible(disk).silence();
        let silent = silence.read.max(silence.change).max(silence.progress);
        MemberLatency {
            read_p50_us: us(true, 500),
            read_p99_us: us(true, 990),
            write_p50_us: us(false, 500),
            write_p99_us: us(false, 990),
            silent_ms: u64::try_from(silent.as_millis()).unwrap_or(u64::MAX),
            slow: self.is_slow.get(),
        }
    }

    /// The disk was opened anew and takes part again: nothing is known of it but how often it came back.
    pub(super) fn renew(&self) {
        self.p999.take();
        self.is_slow.take();
        self.otherwise.take();
        self.seen.take();
        self.recent.take();
        self.is_behind.take();
    }

    /// Nobody waits for the disk any more.
    pub(super) fn give_up_waiting(&self) {
        self.is_behind.set(false);
    }

    /// How often the disk was taken back lately.
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
