//! Latency histograms of host commands: one of fixed size for each operation, written by one shard and read by any
//! thread.

use model::histogram::{BUCKETS, bucket_of};
use model::{LatencyReport, Took};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Operations with a histogram of their own, and their operation codes. All other codes count as the last one.
const OPERATIONS: [(&str, &[u8]); 13] = [
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
    ("READ (6), (12)", &[0x08, 0xa8]),
    ("WRITE (6), (12)", &[0x0a, 0xaa]),
    ("others", &[]),
];

const _: () = assert!(OPERATIONS.len() <= u8::MAX as usize, "the number of an operation is one byte");

/// Index into [`OPERATIONS`] of each operation code.
const OPERATION_OF: [u8; 256] = {
    // Codes without an entry of their own count as the last operation.
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

/// Histograms by operation, 792 bytes each, allocated at the first command of an operation; a session uses three or
/// four.
#[derive(Default)]
pub struct Latencies([OnceLock<Box<Histogram>>; OPERATIONS.len()]);

struct Histogram {
    buckets: Buckets,
    /// Overflows of each bucket: 2^32 commands are a few hours of a busy unit.
    rounds: OnceLock<Box<Buckets>>,
    longest_us: AtomicU64,
}

type Buckets = [AtomicU32; BUCKETS];

const fn zeros() -> Buckets {
    [const { AtomicU32::new(0) }; BUCKETS]
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: zeros(), rounds: OnceLock::new(), longest_us: AtomicU64::new(0) }
    }
}

impl Latencies {
    /// Records a command that took `us` microseconds. Only one thread may call it: a load and a store cost less than an
    /// atomic addition.
    #[inline]
    pub fn record(&self, operation_code: u8, us: u64) {
        // Allocated at first use: a session uses few operations.
        let histogram = self.0[usize::from(OPERATION_OF[usize::from(operation_code)])].get_or_init(Box::default);
        let number = bucket_of(us);
        let bucket = &histogram.buckets[number];
        let (count, is_round) = bucket.load(Relaxed).overflowing_add(1);
        bucket.store(count, Relaxed);
        // The bucket has wrapped around.
        if is_round {
            histogram.come_round(number);
        }
        // No compare-and-swap: only the writing thread changes the value.
        if us > histogram.longest_us.load(Relaxed) {
            histogram.longest_us.store(us, Relaxed);
        }
    }

    /// Latencies by kind of command: reads, writes, others.
    pub fn took(&self) -> Took {
        let mut took = Took::default();
        for (histogram, (operation, _)) in self.0.iter().zip(OPERATIONS) {
            let kind = match operation {
                _ if operation.starts_with("READ ") => &mut took.reads,
                // Without WRITE SAME, whose duration depends on the number of blocks and not on their transfer.
                _ if operation.starts_with("WRITE (") => &mut took.writes,
                _ => &mut took.others,
            };
            if let Some(histogram) = histogram.get() {
                kind.add(&histogram.counts());
            }
        }
        took
    }

    /// Latency report of each operation that occurred.
    pub fn report(&self) -> Vec<LatencyReport> {
        let histograms = self.0.iter().zip(OPERATIONS);
        histograms.filter_map(|(histogram, (operation, _))| histogram.get()?.report(operation)).collect()
    }
}

impl Histogram {
    #[cold]
    fn come_round(&self, bucket: usize) {
        self.rounds.get_or_init(|| Box::new(zeros()))[bucket].fetch_add(1, Relaxed);
    }

    fn counts(&self) -> model::Histogram {
        let rounds = self.rounds.get();
        let count = |(number, bucket): (usize, &AtomicU32)| {
            let rounds = rounds.map_or(0, |rounds| rounds[number].load(Relaxed));
            // The two loads are not atomic together; a report may be off by one overflow for an instant.
            u64::from(rounds) << 32 | u64::from(bucket.load(Relaxed))
        };
        model::Histogram::new(self.buckets.iter().enumerate().map(count))
    }

    fn report(&self, operation: &str) -> Option<LatencyReport> {
        let counts = self.counts();
        let commands = counts.commands();
        let longest_us = self.longest_us.load(Relaxed);
        let shown = [500, 990, 999].map(|per_mille| counts.within_us(per_mille));
        assert!(shown.is_sorted(), "most commands take no longer than all but a few");
        // A bucket has an upper bound beyond its longest command; no percentile is reported above the maximum.
        let within = |per_mille| counts.within_us(per_mille).min(longest_us);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_that_comes_round_goes_on_counting() {
        let latencies = Latencies::default();
        latencies.record(0x28, 5);
        latencies.0[0].get().expect("was recorded").buckets[5].store(u32::MAX, Relaxed);
        latencies.record(0x28, 5);
        latencies.record(0x28, 5);
        assert_eq!(latencies.took().reads.commands(), (1 << 32) + 1);
    }

    #[test]
    fn latencies_are_told_apart_by_operation_and_counted_by_rank() {
        let latencies = Latencies::default();
        for us in 1..=1000 {
            latencies.record(0x28, us);
        }
        latencies.record(0x91, 100_000_000);
        latencies.record(0x35, 0);
        latencies.record(0x12, 9);
        let told = latencies.report();
        let names: Vec<&str> = told.iter().map(|report| report.operation.as_str()).collect();
        assert_eq!(names, ["READ (10)", "SYNCHRONIZE CACHE", "others"]);
        let reads = &told[0];
        assert_eq!((reads.commands, reads.longest_us), (1000, 1000));
        for (told, exact) in [(reads.p50_us, 500), (reads.p99_us, 990), (reads.p999_us, 999)] {
            assert!((exact..=exact + exact / 8).contains(&told), "{told} for {exact}");
        }
        assert_eq!((told[1].p50_us, told[1].longest_us), (0, 100_000_000));
        assert_eq!(std::mem::size_of::<Histogram>(), 792);
        let took = latencies.took();
        assert_eq!([&took.reads, &took.writes, &took.others].map(model::Histogram::commands), [1000, 0, 3]);
        assert_eq!(took.all().commands(), 1003);
    }
}
