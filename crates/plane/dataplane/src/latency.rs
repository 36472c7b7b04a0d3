//! How long commands take: a histogram for each operation, of fixed size, written by one shard and read by whoever asks.
//!
//! Its buckets are log-linear: eight to each doubling of the time, so that a value is known to an eighth of itself from a microsecond to a minute.

use model::LatencyReport;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The operations that are told apart, with their operation codes. What is not here is counted as the last one.
const OPERATIONS: [(&str, &[u8]); 12] = [
    ("READ (10)", &[0x28]),
    ("READ (16)", &[0x88]),
    ("WRITE (10)", &[0x2a]),
    ("WRITE (16)", &[0x8a]),
    ("SYNCHRONIZE CACHE", &[0x35, 0x91]),
    ("UNMAP", &[0x42]),
    ("WRITE SAME", &[0x41, 0x93]),
    ("COMPARE AND WRITE", &[0x89]),
    ("EXTENDED COPY", &[0x83, 0x84]),
    ("PERSISTENT RESERVE", &[0x5e, 0x5f]),
    ("READ or WRITE (6), (12)", &[0x08, 0x0a, 0xa8, 0xaa]),
    ("others", &[]),
];

/// The operation of every operation code.
const OPERATION_OF: [u8; 256] = {
    let mut table = [OPERATIONS.len() as u8 - 1; 256];
    let mut operation = 0;
    while operation < OPERATIONS.len() {
        let codes = OPERATIONS[operation].1;
        let mut at = 0;
        while at < codes.len() {
            table[codes[at] as usize] = operation as u8;
            at += 1;
        }
        operation += 1;
    }
    table
};

/// Buckets to each doubling, as a power of two.
const STEPS_BITS: u32 = 3;
const STEPS: usize = 1 << STEPS_BITS;
/// Doublings above the first eight microseconds; what takes longer, more than a minute, is counted in the last bucket.
const DOUBLINGS: usize = 24;
const BUCKETS: usize = STEPS * DOUBLINGS;

/// The histograms of the operations of which there was a command, 776 bytes each: a session uses three or four of them.
#[derive(Default)]
pub struct Latencies([OnceLock<Box<Histogram>>; OPERATIONS.len()]);

struct Histogram {
    buckets: [AtomicU32; BUCKETS],
    longest_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU32::new(0) }; BUCKETS], longest_us: AtomicU64::new(0) }
    }
}

impl Latencies {
    /// A command with this operation code took so long. Only from one thread: a load and a store cost less than a locked addition.
    pub fn record(&self, operation_code: u8, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let histogram = self.0[usize::from(OPERATION_OF[usize::from(operation_code)])].get_or_init(Box::default);
        let bucket = &histogram.buckets[bucket_of(us)];
        bucket.store(bucket.load(Relaxed).saturating_add(1), Relaxed);
        if us > histogram.longest_us.load(Relaxed) {
            histogram.longest_us.store(us, Relaxed);
        }
    }

    /// The operations of which there was a command.
    pub fn report(&self) -> Vec<LatencyReport> {
        let histograms = self.0.iter().zip(OPERATIONS);
        histograms.filter_map(|(histogram, (operation, _))| histogram.get()?.report(operation)).collect()
    }
}

impl Histogram {
    fn report(&self, operation: &str) -> Option<LatencyReport> {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| u64::from(bucket.load(Relaxed))).collect();
        let commands: u64 = counts.iter().sum();
        let longest_us = self.longest_us.load(Relaxed);
        let within = |per_mille: u64| {
            let wanted = (commands * per_mille).div_ceil(1000);
            let mut seen = 0;
            let bucket = counts.iter().position(|count| {
                seen += count;
                seen >= wanted
            });
            bucket.map_or(0, |bucket| last_of(bucket).min(longest_us))
        };
        (commands > 0).then(|| LatencyReport {
            operation: operation.to_owned(),
            commands,
            p50_us: within(500),
            p99_us: within(990),
            p999_us: within(999),
            longest_us,
        })
    }
}

/// The bucket of so many microseconds.
fn bucket_of(us: u64) -> usize {
    let Some(doublings) = us.checked_ilog2().and_then(|log| log.checked_sub(STEPS_BITS)) else {
        return usize::try_from(us).unwrap_or(BUCKETS - 1);
    };
    // The leading one of what is left stands for the doubling itself.
    let step = (us >> doublings) as usize;
    (doublings as usize * STEPS + step).min(BUCKETS - 1)
}

/// The most microseconds that are counted in a bucket.
fn last_of(bucket: usize) -> u64 {
    if bucket < 2 * STEPS {
        return bucket as u64;
    }
    let (doublings, step) = (bucket / STEPS - 1, bucket % STEPS + STEPS);
    ((step as u64 + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_and_are_an_eighth_wide_at_most() {
        assert_eq!((0..16).map(bucket_of).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
        let mut us = 0;
        for bucket in 0..BUCKETS - 1 {
            let last = last_of(bucket);
            assert!(last >= us && (last - us) * 8 <= us, "bucket {bucket}: {us} to {last}");
            assert_eq!((bucket_of(us), bucket_of(last), bucket_of(last + 1)), (bucket, bucket, bucket + 1));
            us = last + 1;
        }
        assert!(us > 60_000_000, "a minute has a bucket");
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn latencies_are_told_apart_by_operation_and_counted_by_rank() {
        let latencies = Latencies::default();
        for us in 1..=1000 {
            latencies.record(0x28, Duration::from_micros(us));
        }
        latencies.record(0x91, Duration::from_secs(100));
        latencies.record(0x35, Duration::from_nanos(10));
        latencies.record(0x12, Duration::from_micros(9));
        let told = latencies.report();
        let names: Vec<&str> = told.iter().map(|report| report.operation.as_str()).collect();
        assert_eq!(names, ["READ (10)", "SYNCHRONIZE CACHE", "others"]);
        let reads = &told[0];
        assert_eq!((reads.commands, reads.longest_us), (1000, 1000));
        for (told, exact) in [(reads.p50_us, 500), (reads.p99_us, 990), (reads.p999_us, 999)] {
            assert!((exact..=exact + exact / 8).contains(&told), "{told} for {exact}");
        }
        assert_eq!((told[1].p50_us, told[1].longest_us), (0, 100_000_000));
        assert_eq!(std::mem::size_of::<Histogram>(), 776);
    }
}
