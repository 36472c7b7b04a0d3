//! What the daemon has given up, so that a fault in it does not own the machine (docs/adr/0019-process-model.md).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One measure that confines the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// No core dumps, and no process of the same user reads its memory.
    Memory,
    /// No capabilities, and no way to gain any (`no_new_privs`).
    Privileges,
    /// Files are limited to its own by Landlock.
    Landlock,
    /// System calls are limited to a list by seccomp.
    Seccomp,
    /// Rings carry only the operations of the data plane.
    Rings,
}

impl Measure {
    /// All of them, in the order in which they are taken.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Privileges, Self::Landlock, Self::Seccomp, Self::Rings];

    /// The measure in one word, as tables and metrics show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Privileges => "privileges",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Rings => "rings",
        }
    }
}

/// Whether a measure is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeasureState {
    /// It is in force, for all threads.
    InForce,
    /// The kernel does not have it, or does not let this process use it.
    NotSupported,
    /// `--no-sandbox`, or `sandbox = false` in the configuration.
    SwitchedOff,
}

impl MeasureState {
    /// The state in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::NotSupported => "not supported by this kernel",
            Self::SwitchedOff => "switched off",
        }
    }
}

/// One measure, and whether it is in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeasureReport {
    /// Which.
    pub measure: Measure,
    /// Whether it is in force.
    pub state: MeasureState,
    /// What it is limited to, or what the kernel says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
