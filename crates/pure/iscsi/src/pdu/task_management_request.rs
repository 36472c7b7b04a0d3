//! Task Management Function Request: aborts, resets and reassignment of tasks.

use super::{Bhs, CmdSn, DataSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, field, lengths, opcode};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a Task Management Function Request.
///
/// *Source*: RFC 7143 §11.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementRequest {
    /// I bit: immediate delivery, outside CmdSN order.
    pub immediate: bool,
    /// Requested function.
    pub function: TaskFunction,
    /// Logical unit number, for functions that address one.
    pub lun: Lun,
    /// Initiator Task Tag of the request itself.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Referenced Task Tag of the task to abort or to reassign, else reserved.
    pub referenced_task_tag: InitiatorTaskTag,
    /// CmdSN of the request.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: acknowledges all statuses before this one.
    pub exp_stat_sn: StatSn,
    /// RefCmdSN: CmdSN of the task to abort.
    pub ref_cmd_sn: CmdSn,
    /// ExpDataSN: next data PDU that a reassigned task expects.
    pub exp_data_sn: DataSn,
}

/// Task management function.
///
/// *Source*: RFC 7143 §11.5.1; those with Query and Nexus in their names: RFC 7144 §4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum TaskFunction {
    AbortTask,
    AbortTaskSet,
    ClearAca,
    ClearTaskSet,
    LogicalUnitReset,
    TargetWarmReset,
    TargetColdReset,
    TaskReassign,
    QueryTask,
    QueryTaskSet,
    NexusReset,
    QueryAsynchronousEvent,
    /// Code that no standard assigns; answered with "not supported".
    Other(u8),
}

/// Functions in the order of their codes, from 1.
const FUNCTIONS: [TaskFunction; 12] = [
    TaskFunction::AbortTask,
    TaskFunction::AbortTaskSet,
    TaskFunction::ClearAca,
    TaskFunction::ClearTaskSet,
    TaskFunction::LogicalUnitReset,
    TaskFunction::TargetWarmReset,
    TaskFunction::TargetColdReset,
    TaskFunction::TaskReassign,
    TaskFunction::QueryTask,
    TaskFunction::QueryTaskSet,
    TaskFunction::NexusReset,
    TaskFunction::QueryAsynchronousEvent,
];

impl TaskManagementRequest {
    /// Parses a header with opcode Task Management Function Request.
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            immediate: opcode::is_immediate(header),
            function: TaskFunction::parse(field::u8_at::<1>(header) & !FINAL),
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            referenced_task_tag: InitiatorTaskTag(field::u32_at::<20>(header)),
            cmd_sn: CmdSn(field::u32_at::<24>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
            ref_cmd_sn: CmdSn(field::u32_at::<32>(header)),
            exp_data_sn: DataSn(field::u32_at::<36>(header)),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        let flags = FINAL | self.function.code();
        lengths::begin(header, Opcode::TaskManagementRequest, self.immediate, flags, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.referenced_task_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.cmd_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_stat_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.ref_cmd_sn.0.to_be_bytes());
        field::put::<36, 4>(header, self.exp_data_sn.0.to_be_bytes());
    }
}

impl TaskFunction {
    fn parse(code: u8) -> Self {
        // Code zero is not assigned.
        let known = code.checked_sub(1).and_then(|index| FUNCTIONS.get(usize::from(index)));
        known.copied().unwrap_or(Self::Other(code))
    }

    fn code(self) -> u8 {
        match self {
            Self::Other(code) => code & !FINAL,
            known => FUNCTIONS.iter().zip(1..).find_map(|(&f, code)| (f == known).then_some(code)).unwrap_or_default(),
        }
    }
}
