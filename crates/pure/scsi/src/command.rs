//! What a nexus asks of a logical unit, and what it is answered.

use crate::cdb::Cdb;
use crate::sense::Sense;
use block::{Rope, View};

/// One I_T nexus: the relation of an initiator port to a target port; for iSCSI, a session.
///
/// Chosen by the caller, unique among those attached to a logical unit and never used again; the highest number is nobody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId(pub u64);

/// The name of a task within its nexus; for iSCSI, the Initiator Task Tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskTag(pub u32);

/// How a task is ordered among the others of its task set (SAM-5, task attributes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskAttribute {
    /// In any order among other simple tasks; also what an untagged task is.
    #[default]
    Simple,
    /// After all earlier tasks and before all later ones.
    Ordered,
    /// At once.
    HeadOfQueue,
    /// Only for auto contingent allegiance, which no logical unit here has: refused.
    Aca,
}

/// One SCSI command, with all the data that it brings.
#[derive(Clone, Debug)]
pub struct Command {
    /// The task's name within its nexus.
    pub tag: TaskTag,
    /// The task's place among others.
    pub attribute: TaskAttribute,
    /// What is asked.
    pub cdb: Cdb,
    /// The data that came: the first `min(data_out_expected, DataNeed::data_out)` bytes of what the
    /// initiator has, or nothing when [`judge`](crate::judge) refused the command. More is ignored.
    pub data_out: View,
    /// How many bytes the initiator said that it has (iSCSI's expected data transfer length of a
    /// write; 0 for a command that writes nothing).
    pub data_out_expected: u64,
    /// How many bytes the initiator said that it expects to get; 0 for a command that reads nothing.
    pub data_in_expected: u64,
}

/// A command that may be done at once, with its data where it lies.
#[derive(Clone, Copy, Debug)]
pub struct CommandRef<'a> {
    /// The task's place among others.
    pub attribute: TaskAttribute,
    /// What is asked.
    pub cdb: Cdb,
    /// All data that the initiator has.
    pub data_out: &'a [u8],
}

impl Command {
    /// The command, to be looked at.
    #[must_use]
    pub fn borrowed(&self) -> CommandRef<'_> {
        CommandRef { attribute: self.attribute, cdb: self.cdb, data_out: &self.data_out }
    }
}

/// How a command ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The status.
    pub status: Status,
    /// Why, where the status is [`Status::CheckCondition`].
    pub sense: Option<Box<Sense>>,
    /// The answer; the transport cuts it to what the initiator expects and reports residuals. A READ that
    /// ends with a medium error has the blocks before the bad one here.
    pub data_in: Rope,
}

impl Outcome {
    /// GOOD, with `data_in` as the answer.
    #[must_use]
    pub fn good(data_in: Rope) -> Self {
        Self { status: Status::Good, sense: None, data_in }
    }

    /// CHECK CONDITION for the reason in `sense`.
    #[must_use]
    pub fn check(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(Box::new(sense)), data_in: Rope::new() }
    }

    /// A status that says everything by itself.
    #[must_use]
    pub fn status(status: Status) -> Self {
        Self { status, sense: None, data_in: Rope::new() }
    }
}

/// A SCSI status (SAM-5, status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// The command did what was asked.
    Good,
    /// It did not; the sense data says why.
    CheckCondition,
    /// The logical unit cannot take the command now; ask again.
    Busy,
    /// Another nexus holds a reservation.
    ReservationConflict,
    /// The task set has no room; ask again when a task has ended.
    TaskSetFull,
    /// Another nexus ended the task, or its logical unit was removed (SAM-5, TAS is one). It may have been done in part.
    TaskAborted,
    /// Its own nexus ended the task, or another did while TAS was zero. *Never sent*: the caller drops the task without a
    /// response.
    Unanswered,
}

impl Status {
    /// The byte that goes on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Good => 0x00,
            Self::CheckCondition => 0x02,
            Self::Busy => 0x08,
            Self::ReservationConflict => 0x18,
            Self::TaskSetFull => 0x28,
            Self::TaskAborted | Self::Unanswered => 0x40,
        }
    }
}

/// What a command is about to move.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataNeed {
    /// Bytes that the command takes: what there is to solicit, and what residuals are counted against.
    pub data_out: u64,
    /// Bytes that the command answers at most.
    pub data_in: u64,
}

/// The task management functions that a logical unit serves (SAM-5, task management functions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagement {
    /// Ends one task of the asking nexus.
    AbortTask(TaskTag),
    /// Ends all tasks of the asking nexus.
    AbortTaskSet,
    /// Ends all tasks of all nexuses.
    ClearTaskSet,
    /// Ends all tasks and puts the logical unit into the state that it had when it came up.
    LogicalUnitReset,
    /// The same, asked of the target as a whole; the caller asks it of each logical unit.
    TargetReset,
}

/// How a task management function ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagementOutcome {
    /// Done: no affected task runs, and none will be answered.
    Complete,
    /// There is no such task: it was never here, or its outcome was given already.
    TaskDoesNotExist,
}
