//! Task of a target session, from its request to its last response PDU.

use super::data_out::DataOut;
use super::event::{Cdb, Response, SendTargets, WaitGuard};
use crate::pdu::{CmdSn, InitiatorTaskTag, Lun, Residual, TargetTransferTag, TaskAttribute, TaskFunction};
use crate::session::TaskId;
use crate::session::tasks::Tagged;
use crate::text::{TextCollector, TextWriter};
use block::Buf;
use shard::Time;
use std::collections::BTreeSet;

/// Request that lives until it has been answered.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: InitiatorTaskTag,
    pub(crate) lun: Lun,
    pub(crate) cmd_sn: CmdSn,
    /// Slot of its connection; `None` when that is lost.
    pub(crate) slot: Option<usize>,
    /// True for an immediate request, which is outside CmdSN order and does not occupy a place of MaxCmdSN.
    pub(crate) immediate: bool,
    /// Time of arrival, as the gate reports it.
    pub(crate) since: Time,
    /// Task management functions under way that affect the task: the first one that completes ends it.
    pub(crate) affected_by: Vec<TaskId>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Command(CommandTask),
    TaskManagement(TaskFunction),
    Text(TextTask),
}

/// SCSI command.
#[derive(Debug)]
pub(crate) struct CommandTask {
    pub(crate) cdb: Cdb,
    /// First byte of the CDB, kept after the CDB was delivered.
    pub(crate) operation_code: u8,
    pub(crate) attribute: TaskAttribute,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) expected_out_bytes: u32,
    pub(crate) expected_in_bytes: u32,
    /// Bytes of memory allocated for its data.
    pub(crate) held_bytes: usize,
    pub(crate) data_out: DataOut,
    /// True when its data is not wanted: it is delivered without data.
    pub(crate) without_data: bool,
    /// True when the fast path was tried and the gate declined.
    pub(crate) declined: bool,
    /// Payload that counts as received and is still being placed.
    pub(crate) placing: Option<Placing>,
    /// True when no Data-Out has arrived since the last recovery check.
    pub(crate) stale: bool,
    /// Buffer for its data-out. `None` when there is none, when data is discarded, and while a payload is being
    /// received into it.
    pub(crate) buf: Option<Buf>,
    pub(crate) progress: Progress,
    /// Object that the gate attached while the command awaits data.
    pub(crate) wait_guard: Option<WaitGuard>,
    /// Response of a refused command, which waits for announced data to arrive.
    pub(crate) refusal: Option<Box<Response>>,
}

/// Data direction and length that the initiator announced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferLengths {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) expected_out_bytes: u32,
    pub(crate) expected_in_bytes: u32,
}

/// Response that is being sent, or was sent and is retained for retransmission.
#[derive(Debug)]
pub(crate) struct Responding {
    /// Task, which is removed with the last PDU of the response.
    pub(crate) task: TaskId,
    pub(crate) tag: InitiatorTaskTag,
    pub(crate) response: Response,
    /// Residual, and the read residual of a bidirectional command.
    pub(crate) residual: Residual,
    pub(crate) read_residual: Residual,
    /// Number of R2Ts of the command.
    pub(crate) solicitations: u32,
    /// True when the status must have a PDU of its own.
    pub(crate) apart: bool,
    /// SNACK Tag of an R-Data SNACK, else zero.
    pub(crate) snack_tag: u32,
    /// Maximum data segment of a Data-In: the initiator's MaxRecvDataSegmentLength when the response started.
    pub(crate) segment_bytes_max: u32,
    /// MaxBurstLength: a Data-In never crosses a multiple of it.
    pub(crate) burst_bytes_max: u32,
    /// Bytes of Data-In in all, followed by the bytes and PDUs sent so far.
    pub(crate) data_in_total: u32,
    pub(crate) data_in_bytes: u32,
    pub(crate) data_in_pdus: u32,
}

/// Payload that is being placed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placing {
    pub(crate) offset: u32,
    /// True for the last PDU of its sequence.
    pub(crate) last: bool,
}

/// State of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Data is arriving, or a command with a lower CmdSN is missing.
    Receiving,
    /// Response known; announced data must arrive first and is discarded.
    Refused,
    /// The driver is executing it.
    Running,
    /// Response in transmission.
    Responding,
}

/// Text exchange.
#[derive(Debug)]
pub(crate) struct TextTask {
    /// Pending SendTargets query, while the driver has it.
    pub(crate) asked: Option<SendTargets>,
    /// Target Transfer Tag for the continuation of the exchange.
    pub(crate) transfer_tag: TargetTransferTag,
    /// Unanswered text received so far.
    pub(crate) request: TextCollector,
    /// Remaining text of the response.
    pub(crate) answer: TextWriter,
    /// True when the last request had the F bit: the initiator has no more text.
    pub(crate) ends: bool,
    /// Keys received so far; none may be repeated.
    pub(crate) keys: BTreeSet<String>,
    /// MaxRecvDataSegmentLength that takes effect at the end of the exchange.
    pub(crate) declared_segment_bytes_max: Option<u32>,
}

/// Snapshot of an unanswered command for management views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandSnapshot {
    /// Identifier of the task.
    pub task: TaskId,
    /// Initiator Task Tag.
    pub tag: u32,
    /// CmdSN.
    pub cmd_sn: u32,
    /// Logical unit number as on the wire.
    pub lun: u64,
    /// First byte of the CDB.
    pub operation_code: u8,
    /// Time at which its header arrived.
    pub since: Time,
    /// State of the command.
    pub stage: CommandStage,
}

/// State of a command in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStage {
    /// Awaits data or a preceding command.
    Receiving,
    /// The driver is executing it.
    Running,
    /// Response in transmission.
    Responding,
}

impl Task {
    /// Returns the snapshot of a command; `None` for any other task.
    pub(crate) fn snapshot(&self, task: TaskId) -> Option<CommandSnapshot> {
        let Kind::Command(command) = &self.kind else { return None };
        let stage = match command.progress {
            // Both wait for Data-Out.
            Progress::Receiving | Progress::Refused => CommandStage::Receiving,
            Progress::Running => CommandStage::Running,
            Progress::Responding => CommandStage::Responding,
        };
        let (lun, operation_code) = (self.lun.0, command.operation_code);
        Some(CommandSnapshot {
            task,
            tag: self.tag.0,
            cmd_sn: self.cmd_sn.0,
            lun,
            operation_code,
            since: self.since,
            stage,
        })
    }
}

impl Tagged for Task {
    fn tag(&self) -> InitiatorTaskTag {
        self.tag
    }

    fn is_immediate(&self) -> bool {
        self.immediate
    }

    fn is_tagged(&self) -> bool {
        // The tag of a task whose connection is lost is free for the initiator.
        self.slot.is_some()
    }
}

impl Task {
    pub(crate) fn command(&self) -> Option<&CommandTask> {
        if let Kind::Command(command) = &self.kind { Some(command) } else { None }
    }

    pub(crate) fn command_mut(&mut self) -> Option<&mut CommandTask> {
        if let Kind::Command(command) = &mut self.kind { Some(command) } else { None }
    }
}
