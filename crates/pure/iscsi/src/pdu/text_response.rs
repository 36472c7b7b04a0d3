//! Text Response: answer of the target in a text exchange.

use super::text_request::{CONTINUE, FINAL, parse_flags};
use super::{Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths};
use crate::Violation;

/// Header of a Text Response; its data segment is text.
///
/// *Source*: RFC 7143 §11.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// F bit: last PDU of the exchange.
    pub is_final: bool,
    /// C bit: the text continues in the next response.
    pub continues: bool,
    /// Logical unit number that the next request of the exchange copies.
    pub lun: Lun,
    /// Initiator Task Tag of the exchange.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Tag that the next request of the exchange must carry; reserved in the last response.
    pub target_transfer_tag: TargetTransferTag,
    /// StatSN of this status.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
}

impl TextResponse {
    /// Parses a header with opcode Text Response.
    ///
    /// *Errors*: [`Violation::FinalTextContinues`].
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let (is_final, continues) = parse_flags(header)?;
        Ok(Self {
            is_final,
            continues,
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            target_transfer_tag: TargetTransferTag(field::u32_at::<20>(header)),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        let flags = field::bit(self.is_final, FINAL) | field::bit(self.continues, CONTINUE);
        lengths::begin(header, Opcode::TextResponse, false, flags, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.target_transfer_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
    }
}
