//! Logout Request: an initiator closes a connection or the session.

use super::{Bhs, Cid, CmdSn, InitiatorTaskTag, Opcode, SegmentLengths, StatSn, field, lengths, opcode};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a Logout Request.
///
/// *Source*: RFC 7143 §11.14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogoutRequest {
    /// I bit: immediate delivery, outside CmdSN order.
    pub immediate: bool,
    /// Reason code: connection or session to close.
    pub reason: LogoutReason,
    /// Initiator Task Tag of the request.
    pub initiator_task_tag: InitiatorTaskTag,
    /// CID of the connection to close; ignored when the session is closed.
    pub cid: Cid,
    /// CmdSN of the request.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: acknowledges all statuses before this one.
    pub exp_stat_sn: StatSn,
}

/// Reason code of a logout.
///
/// *Source*: RFC 7143 §11.14.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogoutReason {
    /// Close the session with all connections and tasks.
    CloseSession = 0,
    /// Close one connection with its tasks.
    CloseConnection = 1,
    /// Remove one connection for recovery; its tasks may be reassigned.
    RemoveForRecovery = 2,
}

impl LogoutRequest {
    /// Parses a header with opcode Logout Request.
    ///
    /// *Errors*: [`Violation::LogoutReasonUnknown`].
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            immediate: opcode::is_immediate(header),
            // The lower seven bits are the reason (RFC 7143 §11.14.1).
            reason: LogoutReason::parse(field::u8_at::<1>(header) & !FINAL)?,
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            cid: Cid(field::u16_at::<20>(header)),
            cmd_sn: CmdSn(field::u32_at::<24>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
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
