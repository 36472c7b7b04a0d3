//! The flight recorder of a volume: which commands it had, and when.

use crate::VolumeName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many commands a trace keeps unless told otherwise.
pub const TRACE_COMMANDS: u32 = 1 << 16;
/// The most commands that a trace keeps, and those of all volumes together.
pub const TRACE_COMMANDS_MAX: u32 = 1 << 20;

/// How the trace of a volume is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceReport {
    /// Of which volume.
    pub volume: VolumeName,
    /// False for a volume that is not traced; all that follows is zero then.
    pub is_on: bool,
    /// How many commands are kept at most; the oldest give way.
    pub commands_max: u32,
    /// Commands that are kept.
    pub kept: u64,
    /// Commands that were kept and gave way.
    pub overwritten: u64,
    /// Commands that began and have not ended: they are under way, or were cut off with their session.
    pub unended: u64,
    /// Sessions that the commands came from.
    pub sessions: u32,
    /// Since when, in milliseconds.
    pub running_ms: u64,
}

/// What a trace holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// Of which volume.
    pub volume: VolumeName,
    /// Bytes of one of its logical blocks.
    pub block_bytes: u32,
    /// How many of those it has.
    pub blocks: u64,
    /// When the trace was begun: nanoseconds of Unix time.
    pub begun_unix_ns: u64,
    /// How long it ran when this was taken out, in nanoseconds.
    pub span_ns: u64,
    /// Commands that were kept and gave way.
    pub overwritten: u64,
    /// Commands that began and have not ended: they are under way, or were cut off with their session.
    pub unended: u64,
    /// The initiators of the sessions that the commands came from.
    pub sessions: Vec<String>,
    /// The commands, in the order in which they ended.
    pub commands: Vec<TracedCommand>,
}

/// One command that has ended. No data of users is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedCommand {
    /// Its number among those that began, ascending.
    pub number: u64,
    /// When all of it was there: nanoseconds since the trace was begun.
    pub began_ns: u64,
    /// How long it took from then until the unit had done it, in nanoseconds.
    pub took_ns: u64,
    /// The first 16 bytes of its CDB, with zeros behind a shorter one.
    pub cdb: [u8; 16],
    /// Which of the sessions it came from.
    pub session: u32,
    /// Bytes of data that it brought.
    pub data_out_bytes: u32,
    /// Bytes of data that it was answered with.
    pub data_in_bytes: u32,
    /// Its status (SAM-5); 40h, TASK ABORTED, for one that was ended by task management and got no answer.
    pub status: u8,
    /// Sense key, additional sense code and its qualifier; zeros without sense data.
    pub sense: [u8; 3],
}
