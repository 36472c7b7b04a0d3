//! Results of a consistency check of the volume maps of a pool.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Inconsistencies in the volume maps of a pool, and the extent of the check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PoolCheck {
    /// Inconsistencies; empty if the maps are consistent.
    pub findings: Vec<CheckFinding>,
    /// Number of map entries checked.
    pub entries: u64,
    /// Number of granules in use.
    pub granules: u64,
    /// Number of map pages in use.
    pub pages: u64,
}

/// Inconsistency of a volume, or of volumes that share a map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFinding {
    /// Name of the first affected volume, or its identity if the volume no longer exists.
    pub volume: String,
    /// Kind of inconsistency.
    pub kind: CheckKind,
    /// Description.
    pub description: String,
}

/// Kind of inconsistency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CheckKind {
    /// Space that no volume references is marked as allocated.
    Leak,
    /// Space that a volume references is marked as free, and might be allocated again.
    MarkedFree,
    /// Two volumes reference the same space without sharing it.
    DoubleUse,
    /// The map references space outside of the pool.
    OutOfRange,
    /// Part of the map cannot be read or is invalid.
    Damaged,
    /// A reference count is wrong.
    Count,
    /// Blocks of the map are lost in every copy, and the volume is offline. The remaining data can be used; some blocks
    /// may be older then.
    Lost,
    /// The volume is offline because the last acknowledged writes are missing.
    Offline,
}

impl CheckKind {
    /// Returns the kind in a few words, as the output of a check shows it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Leak => "leak",
            Self::MarkedFree => "marked free",
            Self::DoubleUse => "double use",
            Self::OutOfRange => "out of range",
            Self::Damaged => "damaged",
            Self::Count => "reference count",
            Self::Lost => "lost",
            Self::Offline => "offline",
        }
    }

    /// Returns the action of a repair; `None` if it cannot be repaired.
    #[must_use]
    pub const fn repair(self) -> Option<&'static str> {
        match self {
            // These three concern bookkeeping only: the maps and the data below them are intact.
            Self::Leak => Some("free the space"),
            Self::MarkedFree => Some("allocate the space to its owner"),
            Self::Count => Some("correct the reference count"),
            // Never repaired automatically: see `is_repaired_at_a_loss`.
            Self::Lost | Self::DoubleUse | Self::OutOfRange | Self::Damaged | Self::Offline => None,
        }
    }

    /// Returns true if a repair continues with the remaining data, provided that the operator accepts the loss.
    #[must_use]
    pub const fn is_repaired_at_a_loss(self) -> bool {
        // Lost blocks are known, so the rest of the map is right. With double use or damage it is unknown which entries
        // are right.
        matches!(self, Self::Lost)
    }
}
