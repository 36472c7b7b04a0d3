//! Command trace of a volume: a ring buffer of completed commands with their times.

use crate::VolumeName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default size of a trace in commands.
pub const TRACE_COMMANDS: u32 = 1 << 16;
/// Maximum size of a trace, and of all traces together, in commands.
pub const TRACE_COMMANDS_MAX: u32 = 1 << 20;

/// State of the trace of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceReport {
    /// Name of the volume.
    pub volume: VolumeName,
    /// True if the volume is traced; otherwise all following fields are zero.
    pub is_on: bool,
    /// Size of the ring buffer in commands; the oldest are overwritten.
    pub commands_max: u32,
    /// Commands in the buffer.
    pub kept: u64,
    /// Commands overwritten so far.
    pub overwritten: u64,
    /// Commands that have started and not ended: in flight, or lost with their session.
    pub incomplete: u64,
    /// Number of sessions that sent the commands.
    pub sessions: u32,
    /// Duration of the trace in milliseconds.
    pub running_ms: u64,
}

/// Content of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Number of logical blocks of the volume.
    pub blocks: u64,
    /// Start of the trace in nanoseconds since the Unix epoch.
    pub begun_unix_ns: u64,
    /// Duration of the trace at the time of this copy, in nanoseconds.
    pub span_ns: u64,
    /// Commands overwritten so far.
    pub overwritten: u64,
    /// Commands that have started and not ended: in flight, or lost with their session.
    pub unended: u64,
    /// iSCSI names of the initiators, one per session.
    pub sessions: Vec<String>,
    /// Commands in the order of completion.
    pub commands: Vec<TracedCommand>,
}

/// Completed command. Contains no user data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedCommand {
    /// Number in the order of arrival, ascending.
    pub number: u64,
    /// Time of complete arrival, in nanoseconds since the start of the trace.
    pub began_ns: u64,
    /// Latency from then until the unit had executed it, in nanoseconds.
    pub took_ns: u64,
    /// First 16 bytes of the CDB, padded with zeros.
    pub cdb: [u8; 16],
    /// Index of the session in `sessions`.
    pub session: u32,
    /// Data-out bytes.
    pub data_out_bytes: u32,
    /// Data-in bytes.
    pub data_in_bytes: u32,
    /// SCSI status (SAM-5); 40h, TASK ABORTED, for a command that task management aborted without a response.
    pub status: u8,
    /// Sense key, additional sense code and qualifier; zeros without sense data.
    pub sense: [u8; 3],
}
