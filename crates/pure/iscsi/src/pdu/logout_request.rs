//! Logout Request: an initiator ends a connection or the session.

use super::{Bhs, Cid, CmdSn, InitiatorTaskTag, Opcode, SegmentLengths, StatSn, field, lengths, opcode};
use crate::Violation;

const FINAL: u8 = 0x80;

/// The header of a Logout Request.
///
/// *Source*: RFC 7143 §11.14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// Delivered at once, outside the order of CmdSN.
    pub immediate: bool,
    /// What to end.
    pub reason: LogoutReason,
    /// The request.
    pub initiator_task_tag: InitiatorTaskTag,
    /// The connection to end; says nothing when the session ends.
    pub cid: Cid,
    /// The request's place in the session.
    pub cmd_sn: CmdSn,
    /// Statuses up to here, without it, have arrived.
    pub exp_stat_sn: StatSn,
}

/// What a logout ends.
///
/// *Source*: RFC 7143 §11.14.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogoutReason {
    /// All connections, and the session with its tasks.
    CloseSession = 0,
    /// One connection with its tasks.
    CloseConnection = 1,
    /// One connection, whose tasks may move to another.
    RemoveForRecovery = 2,
}

impl LogoutRequest {
    /// The fields of a header whose opcode is Logout Request.
    ///
    /// *Errors*: [`Violation::LogoutReasonUnknown`].
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            immediate: opcode::is_immediate(header),
            reason: LogoutReason::parse(field::u8_at::<1>(header) & !FINAL)?,
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            cid: Cid(field::u16_at::<20>(header)),
            cmd_sn: CmdSn(field::u32_at::<24>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
        })
    }

    /// The header holds these fields and the lengths of what follows.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        lengths::begin(header, Opcode::LogoutRequest, self.immediate, FINAL | self.reason as u8, follows);
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 2>(header, self.cid.0.to_be_bytes());
        field::put::<24, 4>(header, self.cmd_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_stat_sn.0.to_be_bytes());
    }
}

impl LogoutReason {
    fn parse(code: u8) -> Result<Self, Violation> {
        match code {
            0 => Ok(Self::CloseSession),
            1 => Ok(Self::CloseConnection),
            2 => Ok(Self::RemoveForRecovery),
            _ => Err(Violation::LogoutReasonUnknown),
        }
    }
}
