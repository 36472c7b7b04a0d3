//! A task of the target, from its header to its last response.

use super::data_out::DataOut;
use super::event::{Cdb, Enrolment, Response, SendTargets};
use crate::pdu::{CmdSn, InitiatorTaskTag, Lun, Residual, TargetTransferTag, TaskAttribute, TaskFunction};
use crate::session::TaskId;
use crate::session::tasks::Tagged;
use crate::text::{TextCollector, TextWriter};
use block::Buf;
use shard::Time;
use std::collections::BTreeSet;

/// A request that lives until it is answered.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: InitiatorTaskTag,
    pub(crate) lun: Lun,
    pub(crate) cmd_sn: CmdSn,
    /// The place of the connection that it belongs to; none when that is lost.
    pub(crate) slot: Option<usize>,
    /// Outside the order of CmdSN, and of the places that MaxCmdSN is counted from.
    pub(crate) immediate: bool,
    /// When it came, as the gate tells the time.
    pub(crate) since: Time,
    /// The task management function that will end it.
    pub(crate) doomed_by: Option<TaskId>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Command(CommandTask),
    TaskManagement(TaskFunction),
    Text(TextTask),
}

/// A SCSI command.
#[derive(Debug)]
pub(crate) struct CommandTask {
    pub(crate) cdb: Cdb,
    /// The first byte of the CDB, also when that was handed out.
    pub(crate) operation_code: u8,
    pub(crate) attribute: TaskAttribute,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) expected_out_bytes: u32,
    pub(crate) expected_in_bytes: u32,
    /// Bytes of memory that it counts for.
    pub(crate) held_bytes: usize,
    pub(crate) data_out: DataOut,
    /// True when its data is not wanted: it is handed out without.
    pub(crate) forgone: bool,
    /// True when the gate was asked whether it ends at once, and it does not.
    pub(crate) declined: bool,
    /// The payload that counts as received and is on its way to its place.
    pub(crate) placing: Option<Placing>,
    /// True when no Data-Out has come since somebody looked.
    pub(crate) stale: bool,
    /// Where its data-out goes; absent when there is none, when it is thrown away, and while a payload is
    /// being received into it.
    pub(crate) buf: Option<Buf>,
    pub(crate) progress: Progress,
    /// What the gate gave it to wait with.
    pub(crate) enrolment: Option<Enrolment>,
    /// The gate's answer, while the command is refused and waits for data that it announced.
    pub(crate) refusal: Option<Box<Response>>,
}

/// Which way the initiator expects data to go, and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moves {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) expected_out_bytes: u32,
    pub(crate) expected_in_bytes: u32,
}

/// An answer that is being sent, or was and may be asked for again.
#[derive(Debug)]
pub(crate) struct Responding {
    /// The task, which is forgotten with the last PDU of its answer.
    pub(crate) task: TaskId,
    pub(crate) tag: InitiatorTaskTag,
    pub(crate) response: Response,
    /// What was not moved, and for a bidirectional command what was not read.
    pub(crate) residual: Residual,
    pub(crate) read_residual: Residual,
    /// How many R2Ts the command had.
    pub(crate) solicitations: u32,
    /// True when the status has a PDU of its own whatever it is.
    pub(crate) apart: bool,
    /// Of an R-Data SNACK, else zero.
    pub(crate) snack_tag: u32,
    /// The most data of one PDU: what the initiator takes at once when the answer begins.
    pub(crate) segment_bytes_max: u32,
    /// MaxBurstLength: no Data-In goes beyond a multiple of it.
    pub(crate) burst_bytes_max: u32,
    /// What the initiator gets of its data in all, and what was sent.
    pub(crate) data_in_total: u32,
    pub(crate) data_in_bytes: u32,
    pub(crate) data_in_pdus: u32,
}

/// A payload on its way to its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placing {
    pub(crate) offset: u32,
    /// True for the last of its sequence.
    pub(crate) last: bool,
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its data comes.
    Receiving,
    /// It has its answer, which waits for data that was announced and is thrown away.
    Refused,
    /// The driver has it.
    Running,
    /// Its answer is being sent.
    Responding,
}

/// A text exchange.
#[derive(Debug)]
pub(crate) struct TextTask {
    /// What was asked, while the driver has it.
    pub(crate) asked: Option<SendTargets>,
    /// The tag of the next part of the exchange.
    pub(crate) transfer_tag: TargetTransferTag,
    /// Keys that came and are not answered: the text so far.
    pub(crate) request: TextCollector,
    /// What is left to answer.
    pub(crate) answer: TextWriter,
    /// True when the last request had the F bit: the initiator has no more to say.
    pub(crate) ends: bool,
    /// The keys that have come: none comes twice.
    pub(crate) keys: BTreeSet<String>,
    /// The MaxRecvDataSegmentLength that holds once the exchange is over.
    pub(crate) declared_segment_bytes_max: Option<u32>,
}

/// A command that has no answer yet, as whoever looks on sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// What the driver knows it by.
    pub task: TaskId,
    /// The initiator task tag.
    pub tag: u32,
    /// Its CmdSN.
    pub cmd_sn: u32,
    /// The logical unit number, as it came.
    pub lun: u64,
    /// The first byte of its CDB.
    pub operation_code: u8,
    /// When its header came.
    pub since: Time,
    /// Where it stands.
    pub stage: Stage,
}

/// Where a command stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Its data, or a command before it, has not come.
    Receiving,
    /// The driver has it.
    Running,
    /// Its answer is being sent.
    Responding,
}

impl Task {
    /// The command, where it is one.
    pub(crate) fn standing(&self, task: TaskId) -> Option<Standing> {
        let Kind::Command(command) = &self.kind else { return None };
        let stage = match command.progress {
            Progress::Receiving | Progress::Refused => Stage::Receiving,
            Progress::Running => Stage::Running,
            Progress::Responding => Stage::Responding,
        };
        let (lun, operation_code) = (self.lun.0, command.operation_code);
        Some(Standing { task, tag: self.tag.0, cmd_sn: self.cmd_sn.0, lun, operation_code, since: self.since, stage })
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
