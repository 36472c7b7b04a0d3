//! What an array says about itself.

use crate::level::Level;
use crate::members::MemberStatus;
use crate::plan::{KINDS, Kind};
use block::IoError;
use std::cell::Cell;

/// A snapshot of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The level.
    pub level: Level,
    /// Blocks of a chunk.
    pub chunk_blocks: u64,
    /// How many stripes.
    pub stripes: u64,
    /// Why the array does not serve writes any more; absent while it does.
    pub stopped: Option<IoError>,
    /// The members, in order.
    pub members: Vec<MemberStatus>,
    /// What the array has done.
    pub counters: Counters,
    /// Sums and log, where the array has them.
    pub protection: Option<ProtectionStatus>,
    /// How far it is reshaped, while it is.
    pub reshape: Option<Progress>,
}

/// How far a walk over stripes has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Stripes that are done.
    pub done: u64,
    /// Stripes in all.
    pub total: u64,
    /// The stripe behind the last that is done.
    pub front_stripe: u64,
}

/// What a walk over stripes has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Stripes that were compared.
    pub stripes: u64,
    /// Of these, stripes whose parity or mirrors disagreed with the data.
    pub mismatches: u64,
    /// Stripes that could not be compared because a member could not read them.
    pub unreadable: u64,
    /// Stripes that could not be compared because members are not in service.
    pub skipped: u64,
}

/// A snapshot of the sums and the log of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtectionStatus {
    /// Blocks of the log.
    pub log_blocks: u64,
    /// Of these, blocks that a crash would make to be replayed.
    pub log_filled_blocks: u64,
    /// Batches that were ever written.
    pub batches: u64,
    /// Checkpoints since the array was opened.
    pub checkpoints: u64,
    /// Pages of sums in memory.
    pub pages_held: u64,
    /// Of these, pages that have to be written.
    pub pages_dirty: u64,
    /// Stripes written fresh, whose sums are not in the log yet.
    pub fresh_stripes: u64,
}

/// What an array has done since it was assembled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads by the layer above.
    pub reads: u64,
    /// Writes by the layer above.
    pub writes: u64,
    /// Pieces of reads that were served from redundancy.
    pub degraded_reads: u64,
    /// Times that unreadable blocks were written back from redundancy.
    pub heals: u64,
    /// Writes of part of a stripe, by plan, in the order of [`KINDS`]; levels with parity only.
    pub plans: [PlanCount; KINDS.len()],
}

/// How often a plan was carried out, and what it cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanCount {
    /// How often.
    pub times: u64,
    /// Member reads.
    pub reads: u64,
    /// Member writes.
    pub writes: u64,
}

impl Counters {
    /// What `kind` has cost so far.
    #[must_use]
    pub fn plan(&self, kind: Kind) -> PlanCount {
        self.plans[kind as usize]
    }
}

/// The counters where they are counted.
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
