//! Ready To Transfer: the target asks for a piece of a write's data.

use super::{
    Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, R2tSn, SegmentLengths, StatSn, TargetTransferTag, field, lengths,
};
use crate::Violation;

const FINAL: u8 = 0x80;

/// The header of an R2T. It has no data segment.
///
/// *Source*: RFC 7143 §11.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// The logical unit that the Data-Out shall name.
    pub lun: Lun,
    /// The task.
    pub initiator_task_tag: InitiatorTaskTag,
    /// What the Data-Out shall name; never reserved.
    pub target_transfer_tag: TargetTransferTag,
    /// The next status number; not advanced.
    pub stat_sn: StatSn,
    /// The next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// The last command that the target will take.
    pub max_cmd_sn: CmdSn,
    /// Its place among the task's R2Ts.
    pub r2t_sn: R2tSn,
    /// Where in the command's data the piece begins.
    pub buffer_offset_bytes: u32,
    /// How long the piece is; never zero, at most MaxBurstLength.
    pub desired_data_transfer_bytes: u32,
}

impl R2t {
    /// The fields of a header whose opcode is R2T.
    ///
    /// *Errors*: [`Violation::R2tWithoutTransferTag`], [`Violation::R2tOfNothing`].
    #[inline]
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let r2t = Self {
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            target_transfer_tag: TargetTransferTag(field::u32_at::<20>(header)),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
            r2t_sn: R2tSn(field::u32_at::<36>(header)),
            buffer_offset_bytes: field::u32_at::<40>(header),
            desired_data_transfer_bytes: field::u32_at::<44>(header),
        };
        if r2t.target_transfer_tag.is_reserved() {
            return Err(Violation::R2tWithoutTransferTag);
        }
        if r2t.desired_data_transfer_bytes == 0 {
            return Err(Violation::R2tOfNothing);
        }
        Ok(r2t)
    }

    /// The header holds these fields and the lengths of what follows.
    #[inline]
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        assert!(self.desired_data_transfer_bytes > 0, "an R2T asks for something");
        lengths::begin(header, Opcode::R2t, false, FINAL, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.target_transfer_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
        field::put::<36, 4>(header, self.r2t_sn.0.to_be_bytes());
        field::put::<40, 4>(header, self.buffer_offset_bytes.to_be_bytes());
        field::put::<44, 4>(header, self.desired_data_transfer_bytes.to_be_bytes());
    }
}
