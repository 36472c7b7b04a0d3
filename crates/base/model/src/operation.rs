//! Long-running operations of all kinds.

use crate::{Name, ParseRefusal, Progress, Refusal, Subject, Timestamp, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// State of a long-running operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationReport {
    /// Identifier, constant from start to end, also across a restart.
    pub id: OperationId,
    /// Kind of operation.
    pub kind: OperationKind,
    /// Object of the operation.
    pub subject: Subject,
    /// Description, as a sentence without a full stop.
    pub description: String,
    /// Progress in whole percent; absent while it cannot be determined.
    pub percent: Option<u8>,
    /// Progress in bytes and estimated time, where bytes are counted.
    pub progress: Option<Progress>,
    /// Time of the start, if known.
    pub started: Option<Timestamp>,
    /// False while it is paused: outside of its permitted hours, or until its pool is resumed.
    pub is_running: bool,
    /// True if it can be cancelled.
    pub cancellable: bool,
}

/// Kind of a long-running operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// Rebuild: the data of a group member is reconstructed.
    Rebuild,
    /// Resync: redundancy is made consistent with the data after a crash.
    Resync,
    /// Reshape: the data of a group is redistributed over an additional member.
    Reshape,
    /// Scrub: all data of a pool is read and verified.
    Scrub,
    /// Copy of a volume to another volume.
    Copy,
    /// Reclamation of space that is no longer referenced.
    Cleaning,
    /// Reclamation of space that only a deleted snapshot referenced.
    Deletion,
    /// Sanitize of a volume, requested by a host.
    Sanitize,
}

/// Identifier of an operation: kind and object, such as `scrub:tank`, `rebuild:tank:0` or `copy:tank/vm2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^(rebuild|resync|reshape|scrub|copy|cleaning|deletion|sanitize):[a-z0-9][a-z0-9._/@:-]{0,255}$"))]
pub struct OperationId {
    /// Kind of operation.
    pub kind: OperationKind,
    /// Object of the operation; `POOL:GROUP` for a disk group.
    pub of: String,
}

impl OperationId {
    /// Returns the identifier of an operation on a group of a pool.
    #[must_use]
    pub fn of_group(kind: OperationKind, pool: &Name, group: &str) -> Self {
        Self { kind, of: format!("{pool}:{group}") }
    }

    /// Returns the identifier of an operation on a named object.
    #[must_use]
    pub fn of(kind: OperationKind, name: &impl ToString) -> Self {
        Self { kind, of: name.to_string() }
    }
}

impl FromStr for OperationId {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        // Enough for the longest name of a snapshot.
        let parsed = text.split_once(':').filter(|(_, of)| !of.is_empty() && of.len() <= 256).and_then(|(kind, of)| {
            let kind = OperationKind::ALL.into_iter().find(|known| known.as_str() == kind)?;
            // The object is not validated: a name that does not exist is reported as an operation that is not running.
            Some(Self { kind, of: of.to_owned() })
        });
        parsed.ok_or_else(|| {
            let message = format!("{} is not an operation identifier", quoted(text));
            Refusal::new(
                code::IDENTIFIER_INVALID,
                message,
                "see blockyard operation list for identifiers such as scrub:tank",
            )
        })
    }
}

impl TryFrom<String> for OperationId {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<OperationId> for String {
    fn from(id: OperationId) -> Self {
        id.to_string()
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.kind.as_str(), self.of))
    }
}

impl OperationKind {
    /// All kinds.
    pub const ALL: [Self; 8] = [
        Self::Rebuild,
        Self::Resync,
        Self::Reshape,
        Self::Scrub,
        Self::Copy,
        Self::Cleaning,
        Self::Deletion,
        Self::Sanitize,
    ];

    /// Returns the kind as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rebuild => "rebuild",
            Self::Resync => "resync",
            Self::Reshape => "reshape",
            Self::Scrub => "scrub",
            Self::Copy => "copy",
            Self::Cleaning => "cleaning",
            Self::Deletion => "deletion",
            Self::Sanitize => "sanitize",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operation_id_is_read_as_it_is_written() {
        let pool: Name = "tank".parse().expect("a name");
        for kind in OperationKind::ALL {
            let id = OperationId::of_group(kind, &pool, "log");
            assert_eq!(id.to_string().parse(), Ok(id.clone()));
            assert_eq!(serde_json::to_value(&id).expect("json"), format!("{}:tank:log", kind.as_str()));
        }
        for text in ["", "scrub", "scrub:", "dance:tank", ":tank"] {
            assert!(text.parse::<OperationId>().is_err(), "{text}");
        }
    }
}
