//! SCSI Command: starts a task, often with immediate data.

use super::{Bhs, CmdSn, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, field, lengths, opcode};
use crate::Violation;

const FINAL: u8 = 0x80;
const READ: u8 = 0x40;
const WRITE: u8 = 0x20;
const ATTRIBUTE: u8 = 0x07;

/// Header of a SCSI Command.
///
/// *Source*: RFC 7143 §11.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiCommand {
    /// I bit: immediate delivery, outside CmdSN order.
    pub immediate: bool,
    /// F bit: no unsolicited Data-Out follows.
    pub is_final: bool,
    /// R bit: data is expected to flow to the initiator.
    pub read: bool,
    /// W bit: data is expected to flow to the target.
    pub write: bool,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Logical unit number.
    pub lun: Lun,
    /// Initiator Task Tag.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Expected Data Transfer Length in bytes; of the write when both directions are set.
    pub expected_data_transfer_bytes: u32,
    /// CmdSN of the command.
    pub cmd_sn: CmdSn,
    /// ExpStatSN: acknowledges all statuses before this one.
    pub exp_stat_sn: StatSn,
    /// CDB, or its first 16 bytes when an additional header segment carries more.
    pub cdb: [u8; 16],
}

/// Task attribute.
///
/// *Source*: RFC 7143 §11.3.1, SAM-5 §8.6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum TaskAttribute {
    #[default]
    Untagged = 0,
    Simple = 1,
    Ordered = 2,
    HeadOfQueue = 3,
    Aca = 4,
}

impl ScsiCommand {
    /// Parses a header with opcode SCSI Command.
    ///
    /// *Errors*: [`Violation::TaskAttributeReserved`], [`Violation::FinalClearWithoutWrite`].
    #[inline]
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let flags = field::u8_at::<1>(header);
        // A cleared F bit announces Data-Out, which only a write has (RFC 7143 §11.3.1).
        if flags & (FINAL | WRITE) == 0 {
            return Err(Violation::FinalClearWithoutWrite);
        }
        Ok(Self {
            immediate: opcode::is_immediate(header),
            is_final: flags & FINAL != 0,
            read: flags & READ != 0,
            write: flags & WRITE != 0,
            attribute: TaskAttribute::parse(flags & ATTRIBUTE)?,
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            expected_data_transfer_bytes: field::u32_at::<20>(header),
            cmd_sn: CmdSn(field::u32_at::<24>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
            cdb: field::bytes_at::<32, 16>(header),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    #[inline]
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        let flags = field::bit(self.is_final, FINAL)
            | field::bit(self.read, READ)
            | field::bit(self.write, WRITE)
            | self.attribute as u8;
        lengths::begin(header, Opcode::ScsiCommand, self.immediate, flags, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.expected_data_transfer_bytes.to_be_bytes());
        field::put::<24, 4>(header, self.cmd_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_stat_sn.0.to_be_bytes());
        field::put::<32, 16>(header, self.cdb);
    }
}

impl TaskAttribute {
    fn parse(code: u8) -> Result<Self, Violation> {
        Ok(match code {
            0 => Self::Untagged,
            1 => Self::Simple,
            2 => Self::Ordered,
            3 => Self::HeadOfQueue,
            4 => Self::Aca,
            _ => return Err(Violation::TaskAttributeReserved),
        })
    }
}
