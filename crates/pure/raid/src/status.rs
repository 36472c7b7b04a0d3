//! Status and counters of an array.

use crate::level::Level;
use crate::members::MemberStatus;
use crate::plan::{KINDS, Kind};
use block::IoError;
use std::cell::Cell;

/// Snapshot of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// RAID level.
    pub level: Level,
    /// Blocks of a chunk.
    pub chunk_blocks: u64,
    /// Number of stripes.
    pub stripes: u64,
    /// Error that stopped the array; `None` while it serves writes.
    pub stopped: Option<IoError>,
    /// Members, in order of their places.
    pub members: Vec<MemberStatus>,
    /// Counters since the array was assembled.
    pub counters: Counters,
    /// Checksums and redo log; `None` for a plain array.
    pub protection: Option<ProtectionStatus>,
    /// Progress of the reshape, while one is unfinished.
    pub reshape: Option<Progress>,
}

/// Progress of a walk over stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Stripes done.
    pub done: u64,
    /// Stripes in total.
    pub total: u64,
    /// Stripe behind the last one done.
    pub front_stripe: u64,
}

/// Result of a resync or of a check without repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Stripes that were compared.
    pub stripes: u64,
    /// Stripes among them whose parity or mirrors disagreed with the data.
    pub mismatches: u64,
    /// Stripes that could not be compared because of read errors.
    pub unreadable: u64,
    /// Stripes that could not be compared because members are out of service.
    pub skipped: u64,
}

/// Snapshot of the checksums and the redo log of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionStatus {
    /// Blocks of the log.
    pub log_blocks: u64,
    /// Blocks among them that would be replayed after a crash.
    pub log_filled_blocks: u64,
    /// Log batches written since the array was formatted.
    pub batches: u64,
    /// Checkpoints since the array was opened.
    pub checkpoints: u64,
    /// Checksum pages in memory.
    pub pages_held: u64,
    /// Pages among them that are dirty.
    pub pages_dirty: u64,
    /// Stripes written fresh whose checksums are not in the log yet.
    pub fresh_stripes: u64,
}

/// Counters of an array since it was assembled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads by the layer above.
    pub reads: u64,
    /// Writes by the layer above.
    pub writes: u64,
    /// Pieces of reads that were served from redundancy.
    pub degraded_reads: u64,
    /// Writes that restored unreadable blocks from redundancy.
    pub heals: u64,
    /// Partial-stripe writes by plan, in the order of [`KINDS`]; levels with parity only.
    pub plans: [PlanCount; KINDS.len()],
}

/// Use and cost of one plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCount {
    /// Number of times it was executed.
    pub times: u64,
    /// Member reads.
    pub reads: u64,
    /// Member writes.
    pub writes: u64,
}

impl Counters {
    /// Use and cost of `kind` so far.
    #[must_use]
    pub fn plan(&self, kind: Kind) -> PlanCount {
        // `KINDS` and the counters are in the order of the discriminants.
        self.plans[kind as usize]
    }
}

/// Mutable counters, shared by the layouts of an array.
#[derive(Debug, Default)]
pub(crate) struct Tally(Cell<Counters>);

impl Tally {
    pub(crate) fn counters(&self) -> Counters {
        self.0.get()
    }

    pub(crate) fn add(&self, add: impl FnOnce(&mut Counters)) {
        let mut counters = self.0.get();
        add(&mut counters);
        self.0.set(counters);
    }

    pub(crate) fn plan(&self, kind: Kind, reads: usize, writes: usize) {
        self.add(|counters| {
            let plan = &mut counters.plans[kind as usize];
            plan.times += 1;
            plan.reads += reads as u64;
            plan.writes += writes as u64;
        });
    }
}
