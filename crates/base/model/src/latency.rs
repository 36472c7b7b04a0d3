//! How long commands take.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How long the commands of one operation took, from when all of them was there to their answer.
///
/// *Shape*: microseconds; each is at most an eighth more than it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyReport {
    /// The operation, as SPC and SBC name it: `READ (10)`.
    pub operation: String,
    /// How many commands.
    pub commands: u64,
    /// Half of them took no longer.
    pub p50_us: u64,
    /// 99 of 100 took no longer.
    pub p99_us: u64,
    /// 999 of 1000 took no longer.
    pub p999_us: u64,
    /// None took longer.
    pub longest_us: u64,
}
