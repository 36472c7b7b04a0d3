//! Progress and rate of background operations (rebuild, resync, scrub, reshape, copy).

use model::{Progress, Size};
use shard::Time;
use std::time::Duration;

/// Least span of a rate; a rate is that of the last one to two spans.
const LATELY: Duration = Duration::from_secs(5);

/// Progress of one background operation on a group or a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    kind: WorkKind,
    started: Time,
    total_bytes: u64,
    done_bytes: u64,
    /// Two samples of the progress, the older one first. They are at least [`LATELY`] apart once the operation has run
    /// that long.
    marks: [(Time, u64); 2],
}

/// Kind of a background operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkKind {
    /// Reconstruction of a member.
    Rebuild,
    /// Comparison of redundancy with the data after a crash.
    Resync,
    /// Verification of all data.
    Scrub,
    /// Move of stripes to one member more.
    Reshape,
    /// Copy of a volume.
    Copy,
}

impl Work {
    /// Creates the record of an operation that starts at `now`.
    pub(super) fn new(kind: WorkKind, now: Time, total_bytes: u64) -> Self {
        Self::resumed(kind, now, 0, total_bytes)
    }

    /// Creates the record of an operation that continues at `now`, after `done_bytes`.
    pub(super) fn resumed(kind: WorkKind, now: Time, done_bytes: u64, total_bytes: u64) -> Self {
        assert!(done_bytes <= total_bytes, "no more is done than there is");
        Self { kind, started: now, total_bytes, done_bytes, marks: [(now, done_bytes); 2] }
    }

    pub(super) fn kind(self) -> WorkKind {
        self.kind
    }

    pub(super) fn done_bytes(self) -> u64 {
        self.done_bytes
    }

    pub(super) fn total_bytes(self) -> u64 {
        self.total_bytes
    }

    /// Sets the progress at `now`.
    pub(super) fn advance(&mut self, now: Time, done_bytes: u64) {
        self.done_bytes = done_bytes.min(self.total_bytes);
        // Shifting the samples keeps the rate recent: an early fast phase must not hide that the operation has slowed
        // down.
        if now.since(self.marks[1].0) >= LATELY {
            self.marks = [self.marks[1], (now, self.done_bytes)];
        }
    }

    /// Summary text of bytes written to `place`, to follow a sentence. Skipped blocks were not written and do not
    /// count.
    pub(super) fn summary(self, now: Time, written: u64, place: &str) -> String {
        // At least a tenth of a second, or the rate of a very short operation would say nothing.
        let seconds = now.since(self.started).as_secs_f64().max(0.1);
        let time = if seconds < 10.0 { format!("{seconds:.1}") } else { format!("{seconds:.0}") };
        if written == 0 {
            return format!(": no writes to {place} were needed, in {time} s");
        }
        let rate = Size::new((written as f64 / seconds) as u64).decimal();
        format!(": {} written to {place} in {time} s, {rate}/s", Size::new(written).iec())
    }

    /// Progress, rate and remaining time at `now`.
    pub(super) fn progress(self, now: Time) -> Progress {
        let (since, before) = self.marks[0];
        assert!(before <= self.done_bytes && self.done_bytes <= self.total_bytes, "work goes forward, up to its end");
        let elapsed = now.since(since).as_secs_f64();
        // Without elapsed time there is no rate yet, and no division by zero.
        let rate = if elapsed > 0.0 { (self.done_bytes - before) as f64 / elapsed } else { 0.0 };
        // Below one byte per second the remaining time would be meaningless.
        let left = (rate >= 1.0).then(|| ((self.total_bytes - self.done_bytes) as f64 / rate).ceil() as u64);
        Progress {
            done_bytes: self.done_bytes,
            total_bytes: self.total_bytes,
            bytes_per_second: rate as u64,
            seconds_left: left,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_counts_what_was_written_over_the_time_that_it_took() {
        let work = Work::new(WorkKind::Rebuild, Time::default(), 4 << 30);
        let after = |ms: u64, written: u64| {
            work.summary(Time::default() + Duration::from_millis(ms), written, "it").trim_start_matches(": ").to_owned()
        };
        assert_eq!(after(120, 0), "no writes to it were needed, in 0.1 s");
        assert_eq!(after(2_040, 2 << 30), "2 GiB written to it in 2.0 s, 1.1 GB/s");
        assert_eq!(after(64_000, 64 << 20), "64 MiB written to it in 64 s, 1 MB/s");
        assert_eq!(after(1, 4096), "4 KiB written to it in 0.1 s, 41 KB/s");
    }

    #[test]
    fn work_tells_the_rate_of_late_and_not_of_always() {
        let at = |seconds: u64| Time::default() + Duration::from_secs(seconds);
        let mut work = Work::new(WorkKind::Rebuild, at(0), 10_000);
        // 100 bytes per second at first, 10 later.
        let done = |second: u64| if second <= 20 { second * 100 } else { 2_000 + (second - 20) * 10 };
        for second in 1..=60 {
            work.advance(at(second), done(second));
            if second == 20 {
                assert_eq!(work.progress(at(20)).bytes_per_second, 100);
            }
        }
        let progress = work.progress(at(60));
        assert_eq!((progress.done_bytes, progress.bytes_per_second), (2_400, 10));
        assert_eq!(progress.seconds_left, Some(760));
        assert_eq!(work.progress(at(100_000)).seconds_left, None, "what does not move never ends");
    }
}
