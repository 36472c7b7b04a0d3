//! Replay of a recorded load: the commands of a trace that are sent, their due times, and the comparison.
//!
//! Commands that failed, and those other than READ, WRITE, WRITE SAME and SYNCHRONIZE CACHE, are counted and omitted.

mod figures;
mod plan;
mod script;
#[cfg(test)]
mod tests;

pub use figures::{Compared, Figures, Late, Recorded, Replayed};
pub use plan::{Fit, Plan, Step};
pub use script::{Due, Score, Script};

use serde::Serialize;

/// Replayed operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// READ of any CDB length.
    #[serde(rename = "READ")]
    Read,
    /// WRITE of any CDB length.
    #[serde(rename = "WRITE")]
    Write,
    /// WRITE SAME of zeros, with UNMAP if recorded so.
    #[serde(rename = "WRITE SAME")]
    WriteSame,
    /// SYNCHRONIZE CACHE of the whole unit.
    #[serde(rename = "SYNCHRONIZE CACHE")]
    Sync,
}

impl Kind {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::WriteSame, Self::Sync];

    /// Returns the name in the standard, without the CDB length.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::WriteSame => "WRITE SAME",
            Self::Sync => "SYNCHRONIZE CACHE",
        }
    }

    /// Returns true for an operation that changes the unit.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::WriteSame)
    }
}

/// Due times of replayed commands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// At the recorded times, divided by the speed, regardless of completions.
    Recorded {
        /// Factor of acceleration; 1 is the original speed.
        speed: f64,
    },
    /// As soon as all commands of the session that had completed before it in the recording have completed again.
    Fast,
}
