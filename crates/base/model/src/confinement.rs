//! Process confinement of the daemon, which limits the effect of a fault or an exploit
//! (docs/adr/0019-process-model.md).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Confinement measure of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// No core dumps, and no access to its memory by other processes of the same user.
    Memory,
    /// No capabilities, and no means to gain any (`no_new_privs`).
    Privileges,
    /// File access limited to the files of the daemon by Landlock.
    Landlock,
    /// System calls limited to an allow list by seccomp.
    Seccomp,
    /// `io_uring` instances limited to the operations of the data plane.
    Rings,
}

impl Measure {
    /// All measures, in the order in which they are applied.
    pub const ALL: [Self; 5] = [Self::Memory, Self::Privileges, Self::Landlock, Self::Seccomp, Self::Rings];

    /// Returns the measure as one word, as tables and metrics show it.
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

/// State of a confinement measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MeasureState {
    /// In force for all threads.
    InForce,
    /// Not available: the kernel does not support it, or does not permit it for this process.
    NotSupported,
    /// Disabled by `--no-sandbox`, or by `sandbox = false` in the configuration.
    SwitchedOff,
}

impl MeasureState {
    /// Returns the state in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InForce => "in force",
            Self::NotSupported => "not supported by this kernel",
            Self::SwitchedOff => "switched off",
        }
    }
}

/// Confinement measure and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MeasureReport {
    /// Measure.
    pub measure: Measure,
    /// State of the measure.
    pub state: MeasureState,
    /// Scope of the restriction, or the error of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}
