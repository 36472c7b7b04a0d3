//! What a look at everything that a pool says of its volumes has found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is wrong with the maps of a pool's volumes, and how much was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolCheck {
    /// What is wrong; nothing, if all is well.
    pub findings: Vec<CheckFinding>,
    /// Entries of maps that were looked at.
    pub entries: u64,
    /// Granules that are in use.
    pub granules: u64,
    /// Pages of maps that are in use.
    pub pages: u64,
}

/// Something that is wrong with a volume and what shares a map with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinding {
    /// The volume that came first, by its name, or by its identity when it is gone.
    pub volume: String,
    /// Of what kind it is.
    pub kind: CheckKind,
    /// What it is, in words.
    pub what: String,
}

/// The kinds of what can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// Space that nobody has is not free.
    Leak,
    /// Space that somebody has is free, and may be given to another.
    Unguarded,
    /// Two have the same space.
    DoubleUse,
    /// The map speaks of what is not there.
    OutOfRange,
    /// A part of the map cannot be read, or is not whole.
    Damaged,
    /// Something was counted wrongly.
    Count,
    /// Blocks of the map are lost in every copy, and the volume does not serve. What is left can be used, and some blocks may be older then.
    Lost,
    /// The volume does not serve, because it lacks what it has acknowledged last.
    Held,
}

impl CheckKind {
    /// The kind in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::Unguarded => "unguarded",
            Self::DoubleUse => "double use",
            Self::OutOfRange => "out of range",
            Self::Damaged => "damaged",
            Self::Count => "count",
            Self::Lost => "lost",
            Self::Held => "held",
        }
    }

    /// What a repair does about it; none where nothing can be done.
    #[must_use]
    pub const fn repair(self) -> Option<&'static str> {
        match self {
            Self::Leak => Some("free the space"),
            Self::Unguarded => Some("take the space for who has it"),
            Self::Count => Some("count again"),
            // Never by itself: see `is_repaired_at_a_loss`.
            Self::Lost | Self::DoubleUse | Self::OutOfRange | Self::Damaged | Self::Held => None,
        }
    }

    /// True when a repair goes on with what is left, where the operator accepts the loss.
    #[must_use]
    pub const fn is_repaired_at_a_loss(self) -> bool {
        matches!(self, Self::Lost)
    }
}
