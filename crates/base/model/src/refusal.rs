//! Errors reported to operators.

use crate::{Code, SessionLoss};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Rejection of a request: nothing was changed. States the cause and the remedy.
///
/// The same text appears on the command line, in the API and later in the console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, thiserror::Error)]
pub struct Refusal {
    /// Error code, for scripts and for the manual.
    pub code: Code,
    /// Cause.
    pub message: String,
    /// Remedy; empty if unknown.
    pub hint: String,
    /// Sessions that would end or lose access, if that is the cause.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionLoss>,
    /// Field of the request that confirms the operation if it is true; empty if it cannot be confirmed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub confirm: String,
}

/// Refusal passed through a deserializer, whose errors can only be text: its code is appended to the text.
#[derive(Debug, thiserror::Error)]
#[error("{0} ({code})", code = .0.code)]
pub struct ParseRefusal(#[from] Refusal);

impl ParseRefusal {
    /// Recovers the refusal from the text of a deserialization error; `None` if the error is the own one of the
    /// deserializer.
    #[must_use]
    pub fn from_error_text(text: &str) -> Option<Refusal> {
        // Last occurrence: the message may quote foreign text. A deserializer may append its position after it.
        let (before, after) = text.rsplit_once(" (BY-")?;
        let code: Code = format!("BY-{}", after.get(..4)?).parse().ok()?;
        // Parsers produce codes of kind `Invalid` only; any other is a quotation in foreign text.
        let is_ours = after[4..].starts_with(')') && code.kind() == Kind::Invalid;
        // Display form of a refusal: `message; hint`.
        let (message, hint) = before.split_once("; ").unwrap_or((before, ""));
        is_ours.then(|| Refusal::new(code, message, hint))
    }
}

/// Category of an error, which determines the HTTP status in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Malformed or meaningless request.
    Invalid,
    /// Unknown object.
    NotFound,
    /// Valid request that the present state does not permit.
    Refused,
    /// Missing authentication.
    Unproven,
    /// Insufficient permission.
    Forbidden,
    /// Rate limit exceeded; may be retried later.
    TooOften,
    /// Unavailable component or exhausted resource.
    Unavailable,
    /// Internal error: a defect of Blockyard.
    Internal,
}

impl Refusal {
    /// Creates a refusal from cause and remedy, both without a full stop.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: hint.into(), sessions: Vec::new(), confirm: String::new() }
    }

    /// Adds the affected sessions, and the request field `confirm` that permits the operation.
    #[must_use]
    pub fn with_sessions(self, sessions: Vec<SessionLoss>, confirm: impl Into<String>) -> Self {
        Self { sessions, confirm: confirm.into(), ..self }
    }

    /// Returns the category of the error.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.code.kind()
    }
}

impl fmt::Display for Refusal {
    /// Writes one sentence without a full stop: `message; hint`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}
