//! What of a list is asked for, beside what every list takes.

use model::{EventSeverity, Timestamp, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which events.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// Only those with a higher number.
    #[serde(default)]
    pub after: Option<u64>,
    /// Only those that happened then or later.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Only those that are as bad or worse.
    #[serde(default)]
    pub severity: Option<EventSeverity>,
    /// Only so many, the latest.
    #[serde(default)]
    pub last: Option<usize>,
}

/// Which snapshots are asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotsOf {
    /// Only those of this volume; all when absent.
    #[serde(default)]
    pub volume: Option<VolumeName>,
}
