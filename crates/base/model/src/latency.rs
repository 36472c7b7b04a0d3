//! Latency percentiles of SCSI commands.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Latency of the commands of one operation, from the receipt of the complete command to its response.
///
/// *Shape*: microseconds; each value is at most one eighth too high.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyReport {
    /// Operation, as named in SPC and SBC: `READ (10)`.
    pub operation: String,
    /// Number of commands.
    pub commands: u64,
    /// Median latency.
    pub p50_us: u64,
    /// 99th percentile.
    pub p99_us: u64,
    /// 99.9th percentile.
    pub p999_us: u64,
    /// Maximum.
    pub longest_us: u64,
}
