//! Scrubs: verification of all data of a pool.

use crate::{Progress, Size, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Running or completed scrub of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScrubReport {
    /// State of the scrub.
    pub state: ScrubState,
    /// Time of the start.
    pub started: Timestamp,
    /// Time of the end.
    pub ended: Option<Timestamp>,
    /// True if parity and mirrors that differ from the data are repaired.
    pub repairs: bool,
    /// Progress while it runs.
    pub progress: Option<Progress>,
    /// Amount of volume data that was read and verified.
    pub checked: Size,
    /// Number of stripes whose parity or mirrors differ from the data.
    pub mismatches: u64,
    /// Number of stripes that could not be read completely and could not be repaired.
    pub unreadable: u64,
    /// Number of repaired stripes.
    #[serde(alias = "healed")]
    pub repaired: u64,
}

/// State of a scrub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// In progress.
    Running,
    /// Paused until its permitted hours.
    Waiting,
    /// Completed.
    Done,
    /// Stopped before its end.
    Stopped,
    /// Aborted by an error.
    Failed,
}

impl ScrubReport {
    /// Returns true if all data was read and no unrepaired errors remain.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        // A scrub that ended early proves nothing about the data that it did not reach.
        self.state == ScrubState::Done && self.mismatches == 0 && self.unreadable == 0
    }

    /// Returns the duration up to now, in seconds.
    #[must_use]
    pub fn seconds(&self, now: Timestamp) -> u64 {
        self.ended.unwrap_or(now).since(self.started)
    }
}

impl ScrubState {
    /// Returns true for a scrub that has not ended.
    #[must_use]
    pub const fn runs(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }

    /// Returns the state as one word, as tables show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Done => "done",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}
