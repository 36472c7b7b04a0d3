//! Counts of completed commands in the measured window.

use crate::run::{Latency, Tally};
use hdrhistogram::Histogram;
use shard::Time;
use std::time::Duration;

/// Largest recorded latency; longer ones are recorded as this.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// Measured window: commands that were due in it count.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Start of the window.
    pub from: Time,
    /// End of the window, from which nothing is sent.
    pub to: Time,
}

impl Window {
    /// Returns true for a command that was due in the window.
    #[must_use]
    pub fn holds(&self, due: Time) -> bool {
        self.from <= due && due < self.to
    }
}

/// Running counts of both directions.
#[derive(Debug)]
pub struct Tallies {
    reads: Counts,
    writes: Counts,
    /// Time for which sessions had a command that the target's window did not admit, summed over all sessions.
    pub held: Duration,
}

#[derive(Debug)]
struct Counts {
    commands: u64,
    bytes: u64,
    errors: u64,
    latency: Histogram<u64>,
}

impl Default for Tallies {
    fn default() -> Self {
        Self { reads: Counts::new(), writes: Counts::new(), held: Duration::ZERO }
    }
}

impl Counts {
    fn new() -> Self {
        // Two significant digits: an error of at most one percent.
        let latency = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 2).expect("the bounds are in order");
        Self { commands: 0, bytes: 0, errors: 0, latency }
    }

    fn finish(&self) -> Tally {
        let buckets = self.latency.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value()));
        let latency = Latency { buckets: buckets.collect() };
        Tally { commands: self.commands, bytes: self.bytes, errors: self.errors, latency }
    }
}

impl Tallies {
    /// Adds a command with its latency in `nanos` and its success.
    pub fn add(&mut self, write: bool, bytes: u32, nanos: u64, well: bool) {
        let counts = if write { &mut self.writes } else { &mut self.reads };
        if !well {
            // Failed commands are often fast, and would improve the latency.
            counts.errors += 1;
            return;
        }
        counts.commands += 1;
        counts.bytes += u64::from(bytes);
        // The histogram has no bucket for zero.
        counts.latency.saturating_record(nanos.max(1));
    }

    /// Returns the counts of reads and of writes.
    #[must_use]
    pub fn finish(&self) -> (Tally, Tally) {
        (self.reads.finish(), self.writes.finish())
    }
}
