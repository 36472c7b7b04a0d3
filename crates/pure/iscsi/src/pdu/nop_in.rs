//! NOP-In: a ping by the target, or its answer to a ping of the initiator.

use super::{Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a NOP-In; its data segment is that of the ping that it answers.
///
/// *Source*: RFC 7143 §11.19.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NopIn {
    /// Logical unit number that the answer copies.
    pub lun: Lun,
    /// Tag of the initiator's ping that is answered, else reserved.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Tag of the target's ping; reserved when no answer is expected.
    pub target_transfer_tag: TargetTransferTag,
    /// StatSN of this status, or the next StatSN when no ping is answered.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
}

impl NopIn {
    /// Parses a header with opcode NOP-In.
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
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
        lengths::begin(header, Opcode::NopIn, false, FINAL, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.target_transfer_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
    }
}
