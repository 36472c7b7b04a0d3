//! How much memory the daemon may use, and what it does with it.

use crate::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The memory of the daemon: what was found, and what is used of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryReport {
    /// The memory of the machine.
    pub machine: Size,
    /// The smallest of the machine's memory and all limits on the daemon; defaults are parts of it.
    pub limit: Size,
    /// What the limit is: `machine`, a file of a control group, or a resource limit.
    pub limited_by: String,
    /// The read cache may have so much, maps of volumes included.
    pub cache_max: Size,
    /// So much of it while memory is short; as much as `cache_max` otherwise.
    pub cache_now: Size,
    /// The share of the last 10 seconds in which tasks waited for memory, in percent; nothing where the system does not tell.
    pub pressure_percent: Option<u32>,
}
