//! Text Response: the target's pairs.

use super::text_request::{CONTINUE, FINAL, parse_flags};
use super::{Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths};
use crate::Violation;

/// The header of a Text Response; its data segment is text.
///
/// *Source*: RFC 7143 §11.11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextResponse {
    /// The last of the exchange.
    pub is_final: bool,
    /// The text goes on in the next response.
    pub continues: bool,
    /// To be copied into the next request of the exchange.
    pub lun: Lun,
    /// The exchange.
    pub initiator_task_tag: InitiatorTaskTag,
    /// What the next request of the exchange shall name; reserved in the last response.
    pub target_transfer_tag: TargetTransferTag,
    /// The number of this status.
    pub stat_sn: StatSn,
    /// The next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// The last command that the target will take.
    pub max_cmd_sn: CmdSn,
}

impl TextResponse {
    /// The fields of a header whose opcode is Text Response.
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

    /// The header holds these fields and the lengths of what follows.
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
