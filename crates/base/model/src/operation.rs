//! Long work that is under way, whoever began it.

use crate::{Misread, Name, Progress, Refusal, Subject, Timestamp, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Something that takes its time, as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperationReport {
    /// Which: the same from its begin to its end, also after a restart.
    pub id: OperationId,
    /// What is done.
    pub kind: OperationKind,
    /// What it is done to.
    pub subject: Subject,
    /// What is done, as a sentence without its end.
    pub sentence: String,
    /// How far it is, in whole percent; none while nobody can tell.
    pub percent: Option<u8>,
    /// How far it is in bytes, and how long it will take, where bytes are counted.
    pub progress: Option<Progress>,
    /// When it began, where that is remembered.
    pub begun: Option<Timestamp>,
    /// False while it waits: for its hours, or until its pool is resumed.
    pub is_running: bool,
    /// True when it can be cancelled.
    pub cancellable: bool,
}

/// The kinds of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OperationKind {
    /// A member of a group is being filled.
    Rebuild,
    /// After a crash, redundancy is compared with the data.
    Resync,
    /// A group is being laid out over one member more.
    Reshape,
    /// Everything in a pool is read and compared.
    Scrub,
    /// A volume is being filled with another one.
    Copy,
    /// Space is given back that nobody sees any more.
    Cleaning,
    /// What only a deleted snapshot held is given back.
    Deletion,
    /// A volume is being sanitized by order of a host.
    Sanitize,
}

/// Which operation: its kind, and what it is done to, as in `scrub:tank`, `rebuild:tank:0` or `copy:tank/vm2`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("pattern" = "^(rebuild|resync|reshape|scrub|copy|cleaning|deletion|sanitize):[a-z0-9][a-z0-9._/@:-]{0,255}$"))]
pub struct OperationId {
    /// What is done.
    pub kind: OperationKind,
    /// What it is done to.
    pub of: String,
}

impl OperationId {
    /// What is done to a group of a pool.
    #[must_use]
    pub fn of_group(kind: OperationKind, pool: &Name, group: &str) -> Self {
        Self { kind, of: format!("{pool}:{group}") }
    }

    /// What is done to something with a name of its own.
    #[must_use]
    pub fn of(kind: OperationKind, name: &impl ToString) -> Self {
        Self { kind, of: name.to_string() }
    }
}

impl FromStr for OperationId {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parsed = text.split_once(':').filter(|(_, of)| !of.is_empty() && of.len() <= 256).and_then(|(kind, of)| {
            let kind = OperationKind::ALL.into_iter().find(|known| known.as_str() == kind)?;
            Some(Self { kind, of: of.to_owned() })
        });
        parsed.ok_or_else(|| {
            let message = format!("{} is not an operation", quoted(text));
            Refusal::new(code::IDENTIFIER_INVALID, message, "blockyard operation list shows them, such as scrub:tank")
        })
    }
}

impl TryFrom<String> for OperationId {
    type Error = Misread;
    fn try_from(text: String) -> Result<Self, Misread> {
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
    /// All of them.
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

    /// The kind in one word.
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
