//! How commands ended, while it counts.

use crate::run::{Latency, Tally};
use hdrhistogram::Histogram;
use shard::Time;
use std::time::Duration;

/// The longest latency that is told from longer ones.
const LATENCY_MAX_NS: u64 = 60_000_000_000;

/// When commands count: those that were due in it.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its beginning.
    pub from: Time,
    /// Its end; nothing is sent from then on.
    pub to: Time,
}

impl Window {
    /// True for a command that was due then.
    #[must_use]
    pub fn holds(&self, due: Time) -> bool {
        self.from <= due && due < self.to
    }
}

/// Both directions' counts, while they grow.
#[derive(Debug)]
pub struct Tallies {
    reads: Counts,
    writes: Counts,
    /// How long sessions had a command to send that the target's window did not admit, all sessions together.
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
    /// A command ended well or otherwise, so long after it was due.
    pub fn add(&mut self, write: bool, bytes: u32, nanos: u64, well: bool) {
        let counts = if write { &mut self.writes } else { &mut self.reads };
        if !well {
            counts.errors += 1;
            return;
        }
        counts.commands += 1;
        counts.bytes += u64::from(bytes);
        counts.latency.saturating_record(nanos.max(1));
    }

    /// Reads and writes.
    #[must_use]
    pub fn finish(&self) -> (Tally, Tally) {
        (self.reads.finish(), self.writes.finish())
    }
}
