//! Event log of the node.

mod catalogue;

pub use catalogue::*;

use crate::{DiskName, Name, Timestamp};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Entry of the event log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// Sequence number, one more than that of the preceding event. Never reused.
    pub number: u64,
    /// Time of the latest occurrence.
    pub time: Timestamp,
    /// Time of the first occurrence.
    pub since: Timestamp,
    /// Number of occurrences: equal events in close succession are combined.
    #[serde(alias = "times")]
    pub count: u64,
    /// Event code, for scripts and for the manual.
    pub code: EventCode,
    /// Severity.
    pub severity: EventSeverity,
    /// Object that is affected.
    pub subject: Subject,
    /// Description of the event: one sentence without a full stop.
    #[serde(alias = "sentence")]
    pub message: String,
}

/// New event that is not yet in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raised {
    /// Time of the event.
    pub time: Timestamp,
    /// Event code.
    pub code: EventCode,
    /// Object that is affected.
    pub subject: Subject,
    /// Description of the event: one sentence without a full stop.
    pub sentence: String,
}

/// Severity of an event, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventSeverity {
    // The order of declaration ranks the severities: receivers compare them with their minimum.
    /// Informational.
    Info,
    /// All services are available, but attention is required.
    Warning,
    /// A service is unavailable, or data is at risk.
    Critical,
}

/// Object that an event or alert refers to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Subject {
    /// Kind of the object.
    pub kind: SubjectKind,
    /// Name of the object.
    pub name: String,
}

/// Kind of the object that an event refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubjectKind {
    /// A disk.
    Disk,
    /// A pool.
    Pool,
    /// A volume.
    Volume,
    /// Host, or an initiator that belongs to no host.
    Host,
    /// A portal.
    Portal,
    /// The node itself.
    Node,
    /// Receiver of alerts or of the audit log.
    Receiver,
}

impl Raised {
    /// Returns an event that occurred at `time`.
    #[must_use]
    pub fn new(time: Timestamp, code: EventCode, subject: Subject, sentence: impl Into<String>) -> Self {
        Self { time, code, subject, sentence: sentence.into() }
    }
}

impl Event {
    /// Returns the log entry with `number` for the first occurrence.
    #[must_use]
    pub fn first(number: u64, raised: Raised) -> Self {
        // The severity comes from the catalogue alone, so that one code never has two severities.
        let Raised { time, code, subject, sentence } = raised;
        Self { number, time, since: time, count: 1, code, severity: code.severity(), subject, message: sentence }
    }

    /// Returns true if `raised` is a repetition of this event.
    #[must_use]
    pub fn is_like(&self, raised: &Raised) -> bool {
        // Number and time are ignored.
        self.code == raised.code && self.subject == raised.subject && self.message == raised.sentence
    }
}

impl Subject {
    /// Returns the disk of this name as a subject.
    #[must_use]
    pub fn disk(name: &DiskName) -> Self {
        Self::new(SubjectKind::Disk, name)
    }

    /// Returns the pool of this name as a subject.
    #[must_use]
    pub fn pool(name: &Name) -> Self {
        Self::new(SubjectKind::Pool, name)
    }

    /// Returns an object of any kind as a subject.
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
    /// Returns the kind as one word.
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
    /// All severities, lowest first.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// Returns the severity as one word.
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
