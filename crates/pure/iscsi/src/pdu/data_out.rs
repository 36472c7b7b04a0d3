//! SCSI Data-Out: data of a write, solicited by an R2T or unsolicited behind its command.

use super::{Bhs, DataSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a SCSI Data-Out.
///
/// *Source*: RFC 7143 §11.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// F bit: last PDU of its sequence.
    pub is_final: bool,
    /// Logical unit number of the R2T; meaningful only with a transfer tag.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Target Transfer Tag of the R2T that is answered; reserved for unsolicited data.
    pub target_transfer_tag: TargetTransferTag,
    /// ExpStatSN: acknowledges all statuses before this one.
    pub exp_stat_sn: StatSn,
    /// DataSN: number of the PDU in its sequence.
    pub data_sn: DataSn,
    /// Buffer Offset: position of this data within the command's data, in bytes.
    pub buffer_offset_bytes: u32,
}

impl DataOut {
    /// Parses a header with opcode SCSI Data-Out.
    #[inline]
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            is_final: field::u8_at::<1>(header) & FINAL != 0,
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            target_transfer_tag: TargetTransferTag(field::u32_at::<20>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
            data_sn: DataSn(field::u32_at::<36>(header)),
            buffer_offset_bytes: field::u32_at::<40>(header),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    #[inline]
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        lengths::begin(header, Opcode::DataOut, false, field::bit(self.is_final, FINAL), follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.target_transfer_tag.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_stat_sn.0.to_be_bytes());
        field::put::<36, 4>(header, self.data_sn.0.to_be_bytes());
        field::put::<40, 4>(header, self.buffer_offset_bytes.to_be_bytes());
    }
}
