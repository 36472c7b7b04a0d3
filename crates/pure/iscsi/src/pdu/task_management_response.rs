//! Task Management Function Response: result of a function.

use super::{Bhs, CmdSn, InitiatorTaskTag, Opcode, SegmentLengths, StatSn, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a Task Management Function Response.
///
/// *Source*: RFC 7143 §11.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskManagementResponse {
    /// Response code.
    pub outcome: TaskFunctionOutcome,
    /// Initiator Task Tag of the request.
    pub initiator_task_tag: InitiatorTaskTag,
    /// StatSN of this status.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
}

/// Response code of a task management function.
///
/// *Source*: RFC 7143 §11.6.1; `Succeeded`: RFC 7144 §4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum TaskFunctionOutcome {
    Complete,
    TaskDoesNotExist,
    LunDoesNotExist,
    TaskStillAllegiant,
    ReassignmentNotSupported,
    FunctionNotSupported,
    AuthorizationFailed,
    Succeeded,
    Rejected,
    /// Reserved code.
    Other(u8),
}

impl TaskManagementResponse {
    /// Parses a header with opcode Task Management Function Response.
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            outcome: TaskFunctionOutcome::parse(field::u8_at::<2>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        lengths::begin(header, Opcode::TaskManagementResponse, false, FINAL, follows);
        field::put::<2, 1>(header, [self.outcome.code()]);
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
    }
}

impl TaskFunctionOutcome {
    fn parse(code: u8) -> Self {
        match code {
            0 => Self::Complete,
            1 => Self::TaskDoesNotExist,
            2 => Self::LunDoesNotExist,
            3 => Self::TaskStillAllegiant,
            4 => Self::ReassignmentNotSupported,
            5 => Self::FunctionNotSupported,
            6 => Self::AuthorizationFailed,
            7 => Self::Succeeded,
            255 => Self::Rejected,
            other => Self::Other(other),
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::TaskDoesNotExist => 1,
            Self::LunDoesNotExist => 2,
            Self::TaskStillAllegiant => 3,
            Self::ReassignmentNotSupported => 4,
            Self::FunctionNotSupported => 5,
            Self::AuthorizationFailed => 6,
            Self::Succeeded => 7,
            Self::Rejected => 255,
            Self::Other(code) => code,
        }
    }
}
