//! Memory limits of the daemon and their use.

use crate::Size;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Memory of the daemon: detected limits and cache sizes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryReport {
    /// Memory of the machine.
    pub machine: Size,
    /// Effective limit: the smallest of the machine memory and all limits on the daemon. Default sizes are fractions of
    /// it.
    pub limit: Size,
    /// Origin of the limit: `machine`, a control group file, or a resource limit.
    pub limited_by: String,
    /// Configured maximum of the read cache, including volume maps.
    pub cache_max: Size,
    /// Current maximum of the read cache: reduced while memory is short, otherwise equal to `cache_max`.
    pub cache_now: Size,
    /// Memory pressure (PSI): percentage of the last 10 seconds in which tasks waited for memory. Absent where the
    /// system does not report it.
    pub pressure_percent: Option<u32>,
}
