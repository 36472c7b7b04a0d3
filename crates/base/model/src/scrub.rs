//! Reading everything, to find what is wrong before it is needed.

use crate::{Progress, Size, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One scrub of a pool: the one that runs, or one that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScrubReport {
    /// How it is.
    pub state: ScrubState,
    /// When it began.
    pub started: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// True when parity and mirrors that disagree with the data are put right, too.
    pub repairs: bool,
    /// How far it is, while it runs.
    pub progress: Option<Progress>,
    /// How much of what volumes hold was read and compared.
    pub checked: Size,
    /// Stripes whose parity or mirrors disagree with the data.
    pub mismatches: u64,
    /// Stripes that could not be read whole and not be put right.
    pub unreadable: u64,
    /// Stripes that were put right.
    pub healed: u64,
}

/// How a scrub is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScrubState {
    /// It reads.
    Running,
    /// It goes on when its hours have come.
    Waiting,
    /// It has read everything.
    Done,
    /// It was stopped before its end.
    Stopped,
    /// It met what it could not pass.
    Failed,
}

impl ScrubReport {
    /// True when everything was read and all is right now.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.state == ScrubState::Done && self.mismatches == 0 && self.unreadable == 0
    }

    /// How long it took so far, in seconds.
    #[must_use]
    pub fn seconds(&self, now: Timestamp) -> u64 {
        self.ended.unwrap_or(now).since(self.started)
    }
}

impl ScrubState {
    /// True for one that has not ended.
    #[must_use]
    pub const fn runs(self) -> bool {
        matches!(self, Self::Running | Self::Waiting)
    }

    /// The state in one word, as tables show it.
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
