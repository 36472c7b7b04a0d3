//! Commands, their outcomes and task management functions as the transport passes them to a logical unit.

use crate::cdb::Cdb;
use crate::sense::Sense;
use block::{Rope, View};

/// Identifier of an I_T nexus: an initiator port and a target port; for iSCSI, a session.
///
/// Assigned by the caller, unique among the nexuses attached to a logical unit and never reused. The highest value is
/// reserved and denotes no nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId(pub u64);

/// Tag of a task within its nexus; for iSCSI, the Initiator Task Tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskTag(pub u32);

/// Task attribute: order of a task among the others of its task set (SAM-5, task attributes).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskAttribute {
    /// Any order among SIMPLE tasks; also the attribute of an untagged task.
    #[default]
    Simple,
    /// After all earlier tasks and before all later ones.
    Ordered,
    /// Before all tasks that have not begun.
    HeadOfQueue,
    /// Auto contingent allegiance, which no logical unit here supports: refused.
    Aca,
}

/// SCSI command with its data-out.
#[derive(Clone, Debug)]
pub struct Command {
    /// Tag within its nexus.
    pub tag: TaskTag,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Command descriptor block.
    pub cdb: Cdb,
    /// Data-out received: the first `min(data_out_expected, DataNeed::data_out)` bytes of the data of the initiator, or
    /// nothing when [`judge`](crate::judge) refused the command. Further bytes are ignored.
    pub data_out: View,
    /// Bytes that the initiator announced to send (iSCSI Expected Data Transfer Length of a write); 0 for a command
    /// that writes nothing.
    pub data_out_expected: u64,
    /// Bytes that the initiator announced to expect; 0 for a command that reads nothing.
    pub data_in_expected: u64,
}

/// Borrowed command for the fast path, with its data in place.
#[derive(Clone, Copy, Debug)]
pub struct CommandRef<'a> {
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Command descriptor block.
    pub cdb: Cdb,
    /// Complete data-out of the initiator.
    pub data_out: &'a [u8],
}

impl Command {
    /// Returns the borrowed form of the command.
    #[must_use]
    pub fn borrowed(&self) -> CommandRef<'_> {
        CommandRef { attribute: self.attribute, cdb: self.cdb, data_out: &self.data_out }
    }
}

/// Completion of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// SCSI status.
    pub status: Status,
    /// Sense data, present where the status is [`Status::CheckCondition`].
    pub sense: Option<Box<Sense>>,
    /// Data-in. The transport truncates it to the expected length and reports residuals. For a READ with a medium
    /// error: the blocks before the bad one.
    pub data_in: Rope,
}

impl Outcome {
    /// Completes with GOOD and `data_in`.
    #[must_use]
    pub fn good(data_in: Rope) -> Self {
        Self { status: Status::Good, sense: None, data_in }
    }

    /// Completes with CHECK CONDITION and `sense`.
    #[must_use]
    pub fn check(sense: Sense) -> Self {
        Self { status: Status::CheckCondition, sense: Some(Box::new(sense)), data_in: Rope::new() }
    }

    /// Completes with a status that has no sense data.
    #[must_use]
    pub fn status(status: Status) -> Self {
        Self { status, sense: None, data_in: Rope::new() }
    }
}

/// SCSI status code (SAM-5, status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Completed without error.
    Good,
    /// Failed; the sense data gives the reason.
    CheckCondition,
    /// The logical unit cannot accept the command now; the initiator retries.
    Busy,
    /// A reservation of another nexus conflicts.
    ReservationConflict,
    /// The task set is full; the initiator retries after a task has completed.
    TaskSetFull,
    /// Another nexus aborted the task with TAS at one, or its logical unit was removed. The command may have been
    /// executed in part.
    TaskAborted,
    /// The own nexus aborted the task, or another did while TAS was zero. *Never sent*: the caller drops the task
    /// without a response.
    Unanswered,
}

impl Status {
    /// Returns the status byte on the wire.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Good => 0x00,
            Self::CheckCondition => 0x02,
            Self::Busy => 0x08,
            Self::ReservationConflict => 0x18,
            Self::TaskSetFull => 0x28,
            // `Unanswered` is never sent, so its code reaches no initiator.
            Self::TaskAborted | Self::Unanswered => 0x40,
        }
    }
}

/// Transfer lengths of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataNeed {
    /// Bytes of data-out: the length to solicit and the base of the residual count.
    pub data_out: u64,
    /// Maximum bytes of data-in.
    pub data_in: u64,
}

/// Task management functions of a logical unit (SAM-5, task management functions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskManagement {
    /// Aborts one task of the asking nexus.
    AbortTask(TaskTag),
    /// Aborts all tasks of the asking nexus.
    AbortTaskSet,
    /// Aborts all tasks of all nexuses.
    ClearTaskSet,
    /// Aborts all tasks and returns the logical unit to its state after power on.
    LogicalUnitReset,
    /// As `LogicalUnitReset`, ordered for the whole target; the caller applies it to each logical unit.
    TargetReset,
}

/// Result of a task management function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagementOutcome {
    /// Function complete: no affected task is running, and none will be answered.
    Complete,
    /// No such task: unknown, or completed before.
    TaskDoesNotExist,
}
