//! SCSI Data-In: data of a read, the last of it possibly with the status (phase collapse).

use super::{
    Bhs, CmdSn, DataSn, InitiatorTaskTag, Lun, Opcode, Residual, SegmentLengths, StatSn, TargetTransferTag, field,
    lengths,
};
use crate::Violation;

const FINAL: u8 = 0x80;
const ACKNOWLEDGE: u8 = 0x40;
const STATUS: u8 = 0x01;

/// The header of a SCSI Data-In.
///
/// *Source*: RFC 7143 §11.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// The last of its sequence.
    pub is_final: bool,
    /// The initiator shall acknowledge the data with a SNACK (error recovery level 1 and above).
    pub acknowledge: bool,
    /// The end of the task, when no SCSI Response will follow.
    pub status: Option<DataInStatus>,
    /// The logical unit; says something only with a transfer tag.
    pub lun: Lun,
    /// The task.
    pub initiator_task_tag: InitiatorTaskTag,
    /// What the acknowledgement shall name, else reserved.
    pub target_transfer_tag: TargetTransferTag,
    /// The next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// The last command that the target will take.
    pub max_cmd_sn: CmdSn,
    /// Its place among the task's data.
    pub data_sn: DataSn,
    /// Where in the command's data its data begins.
    pub buffer_offset_bytes: u32,
}

/// The status of a task, riding on its last data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataInStatus {
    /// The SCSI status; never one that comes with sense.
    pub status: u8,
    /// The number of this status.
    pub stat_sn: StatSn,
    /// What was not moved.
    pub residual: Residual,
}

impl DataIn {
    /// The fields of a header whose opcode is SCSI Data-In.
    ///
    /// *Errors*: [`Violation::StatusBeforeFinalData`], [`Violation::ResidualBothWays`].
    #[inline]
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let flags = field::u8_at::<1>(header);
        if flags & (FINAL | STATUS) == STATUS {
            return Err(Violation::StatusBeforeFinalData);
        }
        Ok(Self {
            is_final: flags & FINAL != 0,
            acknowledge: flags & ACKNOWLEDGE != 0,
            status: (flags & STATUS != 0).then(|| DataInStatus::parse(flags, header)).transpose()?,
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            target_transfer_tag: TargetTransferTag(field::u32_at::<20>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
            data_sn: DataSn(field::u32_at::<36>(header)),
            buffer_offset_bytes: field::u32_at::<40>(header),
        })
    }

    /// The header holds these fields and the lengths of what follows.
    #[inline]
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        assert!(self.is_final || self.status.is_none(), "a status comes with the last data");
        let residual = self.status.map_or(Residual::None, |status| status.residual);
        let flags = field::bit(self.is_final, FINAL)
            | field::bit(self.acknowledge, ACKNOWLEDGE)
            | field::bit(self.status.is_some(), STATUS)
            | residual.flags();
        lengths::begin(header, Opcode::DataIn, false, flags, follows);
        if let Some(status) = &self.status {
            field::put::<3, 1>(header, [status.status]);
            field::put::<24, 4>(header, status.stat_sn.0.to_be_bytes());
        }
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.target_transfer_tag.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
        field::put::<36, 4>(header, self.data_sn.0.to_be_bytes());
        field::put::<40, 4>(header, self.buffer_offset_bytes.to_be_bytes());
        field::put::<44, 4>(header, residual.bytes().to_be_bytes());
    }
}

impl DataInStatus {
    #[inline]
    fn parse(flags: u8, header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            status: field::u8_at::<3>(header),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            residual: Residual::parse_flags(flags, field::u32_at::<44>(header))?,
        })
    }
}
