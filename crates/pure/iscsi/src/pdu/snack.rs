//! SNACK Request: an initiator requests retransmission of PDUs, or acknowledges data.

use super::{Bhs, InitiatorTaskTag, Lun, Opcode, SegmentLengths, StatSn, TargetTransferTag, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a SNACK Request.
///
/// *Source*: RFC 7143 §11.16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snack {
    /// SNACK type.
    pub kind: SnackType,
    /// Copied from the Data-In that is acknowledged.
    pub lun: Lun,
    /// Initiator Task Tag; reserved for statuses and acknowledgements.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Tag of the acknowledged data, or the SNACK Tag of R-Data, else reserved.
    pub target_transfer_tag: TargetTransferTag,
    /// ExpStatSN: acknowledges all statuses before this one.
    pub exp_stat_sn: StatSn,
    /// BegRun: first number requested, or the next one expected.
    pub beg_run: u32,
    /// RunLength: count of numbers; zero means all from `beg_run` on.
    pub run_length: u32,
}

/// SNACK type.
///
/// *Source*: RFC 7143 §11.16.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum SnackType {
    DataOrR2t = 0,
    Status = 1,
    DataAck = 2,
    RData = 3,
}

impl Snack {
    /// Parses a header with opcode SNACK Request.
    ///
    /// *Errors*: [`Violation::SnackTypeUnknown`].
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            kind: SnackType::parse(field::u8_at::<1>(header) & 0x0f)?,
            lun: Lun(field::u64_at::<8>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            target_transfer_tag: TargetTransferTag(field::u32_at::<20>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
            beg_run: field::u32_at::<40>(header),
            run_length: field::u32_at::<44>(header),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        lengths::begin(header, Opcode::SnackRequest, false, FINAL | self.kind as u8, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 4>(header, self.target_transfer_tag.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_stat_sn.0.to_be_bytes());
        field::put::<40, 4>(header, self.beg_run.to_be_bytes());
        field::put::<44, 4>(header, self.run_length.to_be_bytes());
    }
}

impl SnackType {
    fn parse(code: u8) -> Result<Self, Violation> {
        match code {
            0 => Ok(Self::DataOrR2t),
            1 => Ok(Self::Status),
            2 => Ok(Self::DataAck),
            3 => Ok(Self::RData),
            _ => Err(Violation::SnackTypeUnknown),
        }
    }
}
