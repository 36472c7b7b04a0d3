//! SCSI Data-In: data of a read, the last PDU optionally with the status (phase collapse).

use super::{
    Bhs, CmdSn, DataSn, InitiatorTaskTag, Lun, Opcode, Residual, SegmentLengths, StatSn, TargetTransferTag, field,
    lengths,
};
use crate::Violation;

const FINAL: u8 = 0x80;
const ACKNOWLEDGE: u8 = 0x40;
const STATUS: u8 = 0x01;

/// Header of a SCSI Data-In.
///
/// *Source*: RFC 7143 §11.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataIn {
    /// F bit: last PDU of its sequence.
    pub is_final: bool,
    /// A bit: the initiator shall acknowledge the data with a SNACK (error recovery level 1 and above).
    pub acknowledge: bool,
    /// S bit: status of the task, when no SCSI Response follows.
    pub status: Option<DataInStatus>,
    /// Logical unit number; meaningful only with a transfer tag.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Tag that the acknowledgement names, else reserved.
    pub target_transfer_tag: TargetTransferTag,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// DataSN: number of the PDU among the Data-In of the task.
    pub data_sn: DataSn,
    /// Buffer Offset: position of this data within the command's data, in bytes.
    pub buffer_offset_bytes: u32,
}

/// Status of a task, carried by its last Data-In.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataInStatus {
    /// SCSI status code; never one that comes with sense data.
    pub status: u8,
    /// StatSN of this status.
    pub stat_sn: StatSn,
    /// Residual of the transfer.
    pub residual: Residual,
}

impl DataIn {
    /// Parses a header with opcode SCSI Data-In.
    ///
    /// *Errors*: [`Violation::StatusBeforeFinalData`], [`Violation::ResidualBothWays`].
    #[inline]
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let flags = field::u8_at::<1>(header);
        // The S bit is valid only together with the F bit (RFC 7143 §11.7.1).
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

    /// Writes the header, with these fields and the lengths of the segments that follow.
    #[inline]
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        assert!(self.is_final || self.status.is_none(), "a status comes with the last data");
        let residual = self.status.map_or(Residual::None, |status| status.residual);
        let flags = field::bit(self.is_final, FINAL)
            | field::bit(self.acknowledge, ACKNOWLEDGE)
            | field::bit(self.status.is_some(), STATUS)
            | residual.flags();
        lengths::begin(header, Opcode::DataIn, false, flags, follows);
        // StatSN and status are reserved without the S bit.
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
