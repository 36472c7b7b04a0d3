//! Text Request: key=value pairs after the login, and SendTargets.

use super::{
    Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths, opcode,
};
use crate::Violation;

pub(super) const FINAL: u8 = 0x80;
pub(super) const CONTINUE: u8 = 0x40;

/// Header of a Text Request; its data segment is text.
///
/// *Source*: RFC 7143 §11.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// I bit: immediate delivery, outside CmdSN order.
    pub immediate: bool,
    /// F bit: last PDU of the exchange.
    pub is_final: bool,
    /// C bit: the text continues in the next request.
    pub continues: bool,
    /// Copied from the response when a transfer tag is set.
    pub lun: Lun,
    /// Initiator Task Tag of the exchange.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Copied from the response that is answered; reserved in the first request.
    pub target_transfer_tag: TargetTransferTag,
    /// CmdSN of the request.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: acknowledges all statuses before this one.
    pub exp_stat_sn: StatSn,
}

impl TextRequest {
    /// Parses a header with opcode Text Request.
    ///
    /// *Errors*: [`Violation::FinalTextContinues`].
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let (is_final, continues) = parse_flags(header)?;
        Ok(Self {
            immediate: opcode::is_immediate(header),
            is_final,
            continues,
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            target_transfer_tag: TargetTransferTag(field::u32_at::<20>(header)),
            cmd_sn: CmdSn(field::u32_at::<24>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        let flags = field::bit(self.is_final, FINAL) | field::bit(self.continues, CONTINUE);
        lengths::begin(header, Opcode::TextRequest, self.immediate, flags, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.target_transfer_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.cmd_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_stat_sn.0.to_be_bytes());
    }
}

/// Parses the F and C bits, which exclude each other.
pub(super) fn parse_flags(header: &Bhs) -> Result<(bool, bool), Violation> {
    let flags = field::u8_at::<1>(header);
    match (flags & FINAL != 0, flags & CONTINUE != 0) {
        // Text that continues is not the last of its exchange (RFC 7143 §11.10.2).
        (true, true) => Err(Violation::FinalTextContinues),
        bits => Ok(bits),
    }
}
