//! Text Request: key=value pairs after the login, and SendTargets.

use super::{
    Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths, opcode,
};
use crate::Violation;

pub(super) const FINAL: u8 = 0x80;
pub(super) const CONTINUE: u8 = 0x40;

/// The header of a Text Request; its data segment is text.
///
/// *Source*: RFC 7143 §11.10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRequest {
    /// Delivered at once, outside the order of CmdSN.
    pub immediate: bool,
    /// The last of the exchange.
    pub is_final: bool,
    /// The text goes on in the next request.
    pub continues: bool,
    /// Copied from the response when a transfer tag is named.
    pub lun: Lun,
    /// The exchange.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Copied from the response that is answered; reserved in the first request.
    pub target_transfer_tag: TargetTransferTag,
    /// The request's place in the session.
    pub cmd_sn: CmdSn,
    /// Statuses up to here, without it, have arrived.
    pub exp_stat_sn: StatSn,
}

impl TextRequest {
    /// The fields of a header whose opcode is Text Request.
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

    /// The header holds these fields and the lengths of what follows.
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

/// The final bit and the continue bit, which exclude each other.
pub(super) fn parse_flags(header: &Bhs) -> Result<(bool, bool), Violation> {
    let flags = field::u8_at::<1>(header);
    match (flags & FINAL != 0, flags & CONTINUE != 0) {
        (true, true) => Err(Violation::FinalTextContinues),
        bits => Ok(bits),
    }
}
