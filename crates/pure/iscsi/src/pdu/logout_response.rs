//! Logout Response: result of a logout.

use super::{Bhs, CmdSn, InitiatorTaskTag, Opcode, SegmentLengths, StatSn, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a Logout Response.
///
/// *Source*: RFC 7143 §11.15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutResponse {
    /// Response code.
    pub outcome: LogoutOutcome,
    /// Initiator Task Tag of the request.
    pub initiator_task_tag: InitiatorTaskTag,
    /// StatSN of this status.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// Time2Wait: seconds to wait before reconnecting.
    pub time2wait_s: u16,
    /// Time2Retain: seconds for which tasks are retained for another connection.
    pub time2retain_s: u16,
}

/// Response code of a logout.
///
/// *Source*: RFC 7143 §11.15.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum LogoutOutcome {
    Closed,
    CidNotFound,
    RecoveryNotSupported,
    CleanupFailed,
    /// Reserved code.
    Other(u8),
}

impl LogoutResponse {
    /// Parses a header with opcode Logout Response.
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            outcome: LogoutOutcome::parse(field::u8_at::<2>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
            time2wait_s: field::u16_at::<40>(header),
            time2retain_s: field::u16_at::<42>(header),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        lengths::begin(header, Opcode::LogoutResponse, false, FINAL, follows);
        field::put::<2, 1>(header, [self.outcome.code()]);
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
        field::put::<40, 2>(header, self.time2wait_s.to_be_bytes());
        field::put::<42, 2>(header, self.time2retain_s.to_be_bytes());
    }
}

impl LogoutOutcome {
    fn parse(code: u8) -> Self {
        match code {
            0 => Self::Closed,
            1 => Self::CidNotFound,
            2 => Self::RecoveryNotSupported,
            3 => Self::CleanupFailed,
            other => Self::Other(other),
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Closed => 0,
            Self::CidNotFound => 1,
            Self::RecoveryNotSupported => 2,
            Self::CleanupFailed => 3,
            Self::Other(code) => code,
        }
    }
}
