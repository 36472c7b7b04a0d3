//! Filters of list requests, in addition to those that every list has.

use model::{EventSeverity, Timestamp, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Filter of an event list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// Lowest event number, exclusive.
    #[serde(default)]
    pub after: Option<u64>,
    /// Earliest time, inclusive.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// Lowest severity.
    #[serde(default)]
    pub severity: Option<EventSeverity>,
    /// Maximum number of events; the latest are returned.
    #[serde(default)]
    pub last: Option<usize>,
}

/// Filter of a snapshot list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SnapshotsOf {
    /// Volume of the snapshots; all volumes when absent.
    #[serde(default)]
    pub volume: Option<VolumeName>,
}
