//! The answer to an operator who erred.

use crate::{Code, SessionLoss};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Nothing was changed, and this sentence says why and what would be right.
///
/// The same text stands in the command line, in the API and later in the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
pub struct Refusal {
    /// Which rule, for scripts and for the manual.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// What would be right. May be empty where nobody can tell.
    pub hint: String,
    /// The sessions that would end or lose access, where that is why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionLoss>,
    /// The field of the request that confirms it when it is true; empty where nothing can be confirmed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub confirm: String,
}

/// A refusal on its way through a deserializer, whose errors are text alone: its code stands at the end of the text.
#[derive(Debug, thiserror::Error)]
#[error("{0} ({code})", code = .0.code)]
pub struct Misread(#[from] Refusal);

impl Misread {
    /// The refusal that the error of a deserializer tells of; none where the error is the deserializer's own.
    #[must_use]
    pub fn in_error(text: &str) -> Option<Refusal> {
        let (before, after) = text.rsplit_once(" (BY-")?;
        let code: Code = format!("BY-{}", after.get(..4)?).parse().ok()?;
        let is_ours = after[4..].starts_with(')') && code.kind() == Kind::Invalid;
        let (message, hint) = before.split_once("; ").unwrap_or((before, ""));
        is_ours.then(|| Refusal::new(code, message, hint))
    }
}

/// What sort of refusal a code is; the API's status follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request itself makes no sense.
    Invalid,
    /// What it names is not there.
    NotFound,
    /// It makes sense, but not in the present state.
    Refused,
    /// Nobody knows who asks.
    Unproven,
    /// The asker may not ask this.
    Forbidden,
    /// The asker has asked too often, and may try again in a while.
    TooOften,
    /// The part that should answer is not there, or the machine is out of something.
    Unavailable,
    /// Our bug.
    Internal,
}

impl Refusal {
    /// A refusal: what is wrong, and what would be right. Neither ends with a full stop.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into(), sessions: Vec::new(), confirm: String::new() }
    }

    /// The refusal, because of these sessions, until `confirm` is true.
    #[must_use]
    pub fn with_sessions(self, sessions: Vec<SessionLoss>, confirm: impl Into<String>) -> Self {
        Self { sessions, confirm: confirm.into(), ..self }
    }

    /// The sort of refusal.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.code.kind()
    }
}

impl fmt::Display for Refusal {
    /// One sentence without its full stop: `message; hint`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}
