//! What happened, as a digest of everything and the last of it in words.

use shard::Time;
use std::collections::VecDeque;
use std::fmt;

/// Events that a report shows.
const KEPT: usize = 40;

/// The record of one run.
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
        // FNV-1a, 64 bits: stable between versions of Rust, which its own hashers are not.
        Self { digest: 0xcbf2_9ce4_8422_2325, count: 0, last: VecDeque::new() }
    }

    /// Adds an event.
    pub(crate) fn record(&mut self, at: Time, what: &'static str, who: u64, detail: u64) {
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

    /// Equal for equal runs, and for no others that one will meet.
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
