//! SCSI Response: completion of a task, with status, residuals and sense data.

use super::{Bhs, CmdSn, DataSn, InitiatorTaskTag, Opcode, SegmentLengths, StatSn, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;
const READ_OVERFLOW: u8 = 0x10;
const READ_UNDERFLOW: u8 = 0x08;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;

/// Header of a SCSI Response. Sense data, if present, is in the data segment, behind two bytes that hold its length.
///
/// *Source*: RFC 7143 §11.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// iSCSI service response.
    pub response: ServiceResponse,
    /// SCSI status code; meaningful only when the command was completed.
    pub status: u8,
    /// Initiator Task Tag.
    pub initiator_task_tag: InitiatorTaskTag,
    /// SNACK Tag of the R-Data SNACK that renumbered the data, else zero.
    pub snack_tag: u32,
    /// StatSN of this status.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// ExpDataSN: number of Data-In and R2T PDUs of the task.
    pub exp_data_sn: DataSn,
    /// Bidirectional read residual.
    pub read_residual: Residual,
    /// Residual.
    pub residual: Residual,
}

/// iSCSI service response: whether the target executed the command.
///
/// *Source*: RFC 7143 §11.4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceResponse {
    /// Command completed at target; the SCSI status gives the result.
    Completed,
    /// Target failure before execution.
    TargetFailure,
    /// Reserved or vendor-specific code.
    Other(u8),
}

/// Difference between the expected transfer length and the length that the command transfers.
///
/// *Source*: RFC 7143 §11.4.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// No residual.
    #[default]
    None,
    /// Number of expected bytes that were not transferred.
    Underflow(u32),
    /// Number of bytes that were not transferred because they were not expected.
    Overflow(u32),
}

impl ScsiResponse {
    /// Parses a header with opcode SCSI Response.
    ///
    /// *Errors*: [`Violation::ResidualBothWays`].
    #[inline]
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let flags = field::u8_at::<1>(header);
        let read_bits = (flags & READ_OVERFLOW != 0, flags & READ_UNDERFLOW != 0);
        Ok(Self {
            response: ServiceResponse::parse(field::u8_at::<2>(header)),
            status: field::u8_at::<3>(header),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            snack_tag: field::u32_at::<20>(header),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
            exp_data_sn: DataSn(field::u32_at::<36>(header)),
            read_residual: Residual::parse(read_bits, field::u32_at::<40>(header))?,
            residual: Residual::parse_flags(flags, field::u32_at::<44>(header))?,
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    #[inline]
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        let (overflow, underflow) = self.read_residual.bits();
        let flags =
            FINAL | field::bit(overflow, READ_OVERFLOW) | field::bit(underflow, READ_UNDERFLOW) | self.residual.flags();
        lengths::begin(header, Opcode::ScsiResponse, false, flags, follows);
        field::put::<2, 2>(header, [self.response.code(), self.status]);
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.snack_tag.to_be_bytes());
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
        field::put::<36, 4>(header, self.exp_data_sn.0.to_be_bytes());
        field::put::<40, 4>(header, self.read_residual.bytes().to_be_bytes());
        field::put::<44, 4>(header, self.residual.bytes().to_be_bytes());
    }
}

impl Residual {
    /// Parses the residual bits, which Data-In has at the same positions.
    #[inline]
    pub(super) fn parse_flags(flags: u8, bytes: u32) -> Result<Self, Violation> {
        Self::parse((flags & OVERFLOW != 0, flags & UNDERFLOW != 0), bytes)
    }

    /// Emits the residual bits; shared with Data-In.
    #[inline]
    pub(super) fn flags(self) -> u8 {
        let (overflow, underflow) = self.bits();
        field::bit(overflow, OVERFLOW) | field::bit(underflow, UNDERFLOW)
    }

    #[inline]
    fn parse((overflow, underflow): (bool, bool), bytes: u32) -> Result<Self, Violation> {
        match (overflow, underflow) {
            (false, false) => Ok(Self::None),
            (false, true) => Ok(Self::Underflow(bytes)),
            (true, false) => Ok(Self::Overflow(bytes)),
            // Overflow and underflow exclude each other (RFC 7143 §11.4.1).
            (true, true) => Err(Violation::ResidualBothWays),
        }
    }

    #[inline]
    fn bits(self) -> (bool, bool) {
        (matches!(self, Self::Overflow(_)), matches!(self, Self::Underflow(_)))
    }

    /// Returns the residual count in bytes.
    #[inline]
    #[must_use]
    pub fn bytes(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Underflow(bytes) | Self::Overflow(bytes) => bytes,
        }
    }
}

impl ServiceResponse {
    fn parse(code: u8) -> Self {
        match code {
            0 => Self::Completed,
            1 => Self::TargetFailure,
            other => Self::Other(other),
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::TargetFailure => 1,
            Self::Other(code) => code,
        }
    }
}
