//! Event trace of a run: a digest of all events, and the last ones as text.

use shard::Time;
use std::collections::VecDeque;
use std::fmt;

/// Number of events that a report shows.
const KEPT: usize = 40;

/// Trace of one run.
#[derive(Debug)]
pub(crate) struct Trace {
    digest: u64,
    count: u64,
    last: VecDeque<Entry>,
}

#[derive(Debug)]
struct Entry {
    at: Time,
    what: &'static str,
    who: u64,
    detail: u64,
}

impl Trace {
    pub(crate) fn new() -> Self {
        // FNV-1a, 64 bits: unlike the hashers of `std`, stable across versions of Rust.
        Self { digest: 0xcbf2_9ce4_8422_2325, count: 0, last: VecDeque::new() }
    }

    /// Appends an event.
    pub(crate) fn record(&mut self, at: Time, what: &'static str, who: u64, detail: u64) {
        // Every field counts: the first difference between two runs then changes the digest.
        self.mix(&at.0.to_le_bytes());
        self.mix(what.as_bytes());
        self.mix(&who.to_le_bytes());
        self.mix(&detail.to_le_bytes());
        self.count += 1;
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(Entry { at, what, who, detail });
    }

    /// Digest of all events: equal for equal runs.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    fn mix(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the last of {} events:", self.count)?;
        for Entry { at, what, who, detail } in &self.last {
            writeln!(f, "  {:>16} ns  {what} {who} {detail}", at.0)?;
        }
        Ok(())
    }
}
