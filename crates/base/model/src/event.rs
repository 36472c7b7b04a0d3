//! What has happened: one log for the whole node.

mod catalogue;

pub use catalogue::*;

use crate::{DiskName, Name, Timestamp};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Its number: one more than that of the event before. Numbers are not used again.
    pub number: u64,
    /// When it happened; of several equal ones the last.
    pub time: Timestamp,
    /// When it happened first.
    pub since: Timestamp,
    /// How often: equal ones that follow each other closely are one event.
    pub times: u64,
    /// What sort of event it is, for scripts and for the manual.
    pub code: EventCode,
    /// How bad it is.
    pub severity: EventSeverity,
    /// What it happened to.
    pub subject: Subject,
    /// What happened, in one sentence without its full stop.
    pub sentence: String,
}

/// Something that has just happened, before the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// When.
    pub time: Timestamp,
    /// What sort of event it is.
    pub code: EventCode,
    /// What it happened to.
    pub subject: Subject,
    /// What happened, in one sentence without its full stop.
    pub sentence: String,
}

/// How bad an event is, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventSeverity {
    /// Good to know.
    Info,
    /// Everything serves, and something wants attention.
    Warning,
    /// Something does not serve, or data is in danger.
    Critical,
}

/// What an event happened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// What sort of thing it is.
    pub kind: SubjectKind,
    /// What it is called.
    pub name: String,
}

/// What sort of thing an event happened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    /// A disk.
    Disk,
    /// A pool.
    Pool,
    /// A volume.
    Volume,
    /// A host, or an initiator that none is known of.
    Host,
    /// A portal.
    Portal,
    /// The node itself.
    Node,
    /// Somebody who is told of alerts, or of what is written in the audit.
    Receiver,
}

impl Raised {
    /// It happened at `time`.
    #[must_use]
    pub fn new(time: Timestamp, code: EventCode, subject: Subject, sentence: impl Into<String>) -> Self {
        Self { time, code, subject, sentence: sentence.into() }
    }
}

impl Event {
    /// The event in the log under `number`.
    #[must_use]
    pub fn first(number: u64, raised: Raised) -> Self {
        let Raised { time, code, subject, sentence } = raised;
        Self { number, time, since: time, times: 1, code, severity: code.severity(), subject, sentence }
    }

    /// True when `raised` is the same again.
    #[must_use]
    pub fn is_like(&self, raised: &Raised) -> bool {
        self.code == raised.code && self.subject == raised.subject && self.sentence == raised.sentence
    }
}

impl Subject {
    /// The disk of this name.
    #[must_use]
    pub fn disk(name: &DiskName) -> Self {
        Self::new(SubjectKind::Disk, name)
    }

    /// The pool of this name.
    #[must_use]
    pub fn pool(name: &Name) -> Self {
        Self::new(SubjectKind::Pool, name)
    }

    /// Anything.
    #[must_use]
    pub fn new(kind: SubjectKind, name: &impl ToString) -> Self {
        Self { kind, name: name.to_string() }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} {}", self.kind.as_str(), self.name))
    }
}

impl SubjectKind {
    /// The kind in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Pool => "pool",
            Self::Volume => "volume",
            Self::Host => "host",
            Self::Portal => "portal",
            Self::Node => "node",
            Self::Receiver => "receiver",
        }
    }
}

impl EventSeverity {
    /// All severities, best first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// The severity in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl FromStr for EventSeverity {
    type Err = crate::Refusal;

    fn from_str(text: &str) -> Result<Self, crate::Refusal> {
        Self::ALL.into_iter().find(|severity| severity.as_str() == text).ok_or_else(|| {
            let message = format!("{} is not a severity", quoted(text));
            crate::Refusal::new(crate::code::WORD_UNKNOWN, message, "write info, warning or critical")
        })
    }
}
