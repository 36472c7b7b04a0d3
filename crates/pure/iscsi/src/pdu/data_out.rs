//! SCSI Data-Out: data of a write, asked for by an R2T or sent unasked behind its command.

use super::{Bhs, DataSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;

/// The header of a SCSI Data-Out.
///
/// *Source*: RFC 7143 §11.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataOut {
    /// The last of its sequence.
    pub is_final: bool,
    /// The logical unit that the R2T named; says something only with a transfer tag.
    pub lun: Lun,
    /// The task.
    pub initiator_task_tag: InitiatorTaskTag,
    /// The R2T that is answered, or reserved for unsolicited data.
    pub target_transfer_tag: TargetTransferTag,
    /// Statuses up to here, without it, have arrived.
    pub exp_stat_sn: StatSn,
    /// Its place in the sequence.
    pub data_sn: DataSn,
    /// Where in the command's data its data begins.
    pub buffer_offset_bytes: u32,
}

impl DataOut {
    /// The fields of a header whose opcode is SCSI Data-Out.
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

    /// The header holds these fields and the lengths of what follows.
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
