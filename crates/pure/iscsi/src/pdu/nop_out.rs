//! NOP-Out: a ping by the initiator, or its answer to a ping of the target.

use super::{
    Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths, opcode,
};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a NOP-Out; its data segment is returned in the answer.
///
/// *Source*: RFC 7143 §11.18.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopOut {
    /// I bit: immediate delivery, outside CmdSN order.
    pub immediate: bool,
    /// Copied from the NOP-In that is answered.
    pub lun: Lun,
    /// Tag of the ping; reserved when no answer is expected.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Tag of the target's ping that is answered, else reserved.
    pub target_transfer_tag: TargetTransferTag,
    /// CmdSN of the request.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: acknowledges all statuses before this one.
    pub exp_stat_sn: StatSn,
}

impl NopOut {
    /// Parses a header with opcode NOP-Out.
    ///
    /// *Errors*: [`Violation::PingWithoutTagNotImmediate`].
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let nop = Self {
            immediate: opcode::is_immediate(header),
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            target_transfer_tag: TargetTransferTag(field::u32_at::<20>(header)),
            cmd_sn: CmdSn(field::u32_at::<24>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
        };
        // No response reports its CmdSN as received, so it must not take one (RFC 7143 §11.18.3).
        if nop.initiator_task_tag.is_reserved() && !nop.immediate {
            return Err(Violation::PingWithoutTagNotImmediate);
        }
        Ok(nop)
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        lengths::begin(header, Opcode::NopOut, self.immediate, FINAL, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.target_transfer_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.cmd_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_stat_sn.0.to_be_bytes());
    }
}
