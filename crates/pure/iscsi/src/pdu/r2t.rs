//! Ready To Transfer (R2T): the target solicits a part of a write's data.

use super::{
    Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, R2tSn, SegmentLengths, StatSn, TargetTransferTag, field, lengths,
};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of an R2T. It has no data segment.
///
/// *Source*: RFC 7143 §11.8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct R2t {
    /// Logical unit number that the Data-Out must carry.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Target Transfer Tag that the Data-Out must carry; never reserved.
    pub target_transfer_tag: TargetTransferTag,
    /// Next StatSN; not advanced by this PDU.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// R2TSN: number of the R2T among those of the task.
    pub r2t_sn: R2tSn,
    /// Offset of the solicited data within the command's data, in bytes.
    pub buffer_offset_bytes: u32,
    /// Length of the solicited data in bytes; never zero, at most MaxBurstLength.
    pub desired_data_transfer_bytes: u32,
}

impl R2t {
    /// Parses a header with opcode R2T.
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
        // Data-Out with the reserved tag is unsolicited (RFC 7143 §11.7.4), so it could not answer this R2T.
        if r2t.target_transfer_tag.is_reserved() {
            return Err(Violation::R2tWithoutTransferTag);
        }
        // An R2T for no bytes would be answered by no PDU (RFC 7143 §11.8.4).
        if r2t.desired_data_transfer_bytes == 0 {
            return Err(Violation::R2tOfNothing);
        }
        Ok(r2t)
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
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
