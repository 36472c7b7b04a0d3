//! SCSI Response: the end of a task, with its status, residuals and sense.

use super::{Bhs, CmdSn, DataSn, InitiatorTaskTag, Opcode, SegmentLengths, StatSn, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;
const READ_OVERFLOW: u8 = 0x10;
const READ_UNDERFLOW: u8 = 0x08;
const OVERFLOW: u8 = 0x04;
const UNDERFLOW: u8 = 0x02;

/// The header of a SCSI Response. Sense data, when there is any, is the data segment, behind two bytes that hold its length.
///
/// *Source*: RFC 7143 §11.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScsiResponse {
    /// What became of the command on the way.
    pub response: ServiceResponse,
    /// The SCSI status; says something only when the command was completed.
    pub status: u8,
    /// The task.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Copied from the R-Data SNACK that changed the numbers of the data, else zero.
    pub snack_tag: u32,
    /// The number of this status.
    pub stat_sn: StatSn,
    /// The next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// The last command that the target will take.
    pub max_cmd_sn: CmdSn,
    /// How many Data-In and R2T PDUs the task had.
    pub exp_data_sn: DataSn,
    /// What was not moved of the read of a bidirectional command.
    pub read_residual: Residual,
    /// What was not moved.
    pub residual: Residual,
}

/// Whether a command was carried out at all.
///
/// *Source*: RFC 7143 §11.4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceResponse {
    /// Carried out; the SCSI status tells how it went.
    Completed,
    /// The target failed before it could carry it out.
    TargetFailure,
    /// A code that is reserved or a vendor's own.
    Other(u8),
}

/// The difference between what the initiator expected to move and what there was to move.
///
/// *Source*: RFC 7143 §11.4.5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Residual {
    /// None.
    #[default]
    None,
    /// So many bytes fewer were moved than expected.
    Underflow(u32),
    /// So many bytes more would have been moved, had they been expected.
    Overflow(u32),
}

impl ScsiResponse {
    /// The fields of a header whose opcode is SCSI Response.
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

    /// The header holds these fields and the lengths of what follows.
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
    /// Shared with Data-In, which has the same bits in the same places.
    #[inline]
    pub(super) fn parse_flags(flags: u8, bytes: u32) -> Result<Self, Violation> {
        Self::parse((flags & OVERFLOW != 0, flags & UNDERFLOW != 0), bytes)
    }

    /// Shared with Data-In.
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
            (true, true) => Err(Violation::ResidualBothWays),
        }
    }

    #[inline]
    fn bits(self) -> (bool, bool) {
        (matches!(self, Self::Overflow(_)), matches!(self, Self::Underflow(_)))
    }

    /// How many bytes the residual is, either way.
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
