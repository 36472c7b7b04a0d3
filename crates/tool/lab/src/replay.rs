//! A recorded load, played again: which of the commands of a trace are sent, when each of them is due, and how both compare.
//!
//! Commands that failed, and those that are neither READ, WRITE, WRITE SAME nor SYNCHRONIZE CACHE, are counted and left out.

mod figures;
mod plan;
mod script;
#[cfg(test)]
mod tests;

pub use figures::{Compared, Figures, Late, Recorded, Replayed};
pub use plan::{Fit, Plan, Step};
pub use script::{Due, Score, Script};

use serde::Serialize;

/// What is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// READ of any length of CDB.
    #[serde(rename = "READ")]
    Read,
    /// WRITE of any length of CDB.
    #[serde(rename = "WRITE")]
    Write,
    /// WRITE SAME, with zeros; with UNMAP where it was recorded so.
    #[serde(rename = "WRITE SAME")]
    WriteSame,
    /// SYNCHRONIZE CACHE, of the whole unit.
    #[serde(rename = "SYNCHRONIZE CACHE")]
    Sync,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::WriteSame, Self::Sync];

    /// As the standard names it, without the length of the CDB.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
            Self::WriteSame => "WRITE SAME",
            Self::Sync => "SYNCHRONIZE CACHE",
        }
    }

    /// True for one that changes the unit.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::WriteSame)
    }
}

/// When a command is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// When it began in the recording, which passes so many times as fast; whatever has ended by then.
    Recorded {
        /// 1 is the time of the recording.
        speed: f64,
    },
    /// As soon as all commands of its session that had ended in the recording when it began have ended again.
    Fast,
}
