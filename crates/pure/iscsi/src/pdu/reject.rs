//! Reject: the target refuses a PDU; the refused header is the data segment.

use super::{Bhs, CmdSn, DataSn, Opcode, SegmentLengths, StatSn, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of a Reject.
///
/// *Source*: RFC 7143 §11.17.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Reason code.
    pub reason: RejectReason,
    /// StatSN of this status.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// Next DataSN or R2TSN of the task; only for refused SNACKs.
    pub data_sn: DataSn,
}

/// Reason code of a Reject.
///
/// *Source*: RFC 7143 §11.17.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the standard's")]
pub enum RejectReason {
    DataDigestError,
    SnackReject,
    ProtocolError,
    CommandNotSupported,
    TooManyImmediateCommands,
    TaskInProgress,
    InvalidDataAck,
    InvalidPduField,
    LongOperationReject,
    WaitingForLogout,
    /// Reserved or deprecated code.
    Other(u8),
}

impl Reject {
    /// Parses a header with opcode Reject.
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            reason: RejectReason::parse(field::u8_at::<2>(header)),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
            data_sn: DataSn(field::u32_at::<36>(header)),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        lengths::begin(header, Opcode::Reject, false, FINAL, follows);
        field::put::<2, 1>(header, [self.reason.code()]);
        // The task tag field is reserved and all ones (RFC 7143 §11.17).
        field::put::<16, 4>(header, [0xff; 4]);
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
        field::put::<36, 4>(header, self.data_sn.0.to_be_bytes());
    }
}

impl RejectReason {
    fn parse(code: u8) -> Self {
        match code {
            0x02 => Self::DataDigestError,
            0x03 => Self::SnackReject,
            0x04 => Self::ProtocolError,
            0x05 => Self::CommandNotSupported,
            0x06 => Self::TooManyImmediateCommands,
            0x07 => Self::TaskInProgress,
            0x08 => Self::InvalidDataAck,
            0x09 => Self::InvalidPduField,
            0x0a => Self::LongOperationReject,
            0x0c => Self::WaitingForLogout,
            other => Self::Other(other),
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::DataDigestError => 0x02,
            Self::SnackReject => 0x03,
            Self::ProtocolError => 0x04,
            Self::CommandNotSupported => 0x05,
            Self::TooManyImmediateCommands => 0x06,
            Self::TaskInProgress => 0x07,
            Self::InvalidDataAck => 0x08,
            Self::InvalidPduField => 0x09,
            Self::LongOperationReject => 0x0a,
            Self::WaitingForLogout => 0x0c,
            Self::Other(code) => code,
        }
    }
}
