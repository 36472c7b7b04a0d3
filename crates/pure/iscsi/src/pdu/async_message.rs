//! Asynchronous Message: unsolicited notification by the target.

use super::{Bhs, CmdSn, Lun, Opcode, SegmentLengths, StatSn, field, lengths};
use crate::Violation;

const FINAL: u8 = 0x80;

/// Header of an Asynchronous Message.
///
/// *Source*: RFC 7143 §11.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncMessage {
    /// Logical unit number, for SCSI events.
    pub lun: Lun,
    /// StatSN of this status.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// Event that the message reports.
    pub event: AsyncEvent,
}

/// Event of an Asynchronous Message.
///
/// *Source*: RFC 7143 §11.9.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// SCSI asynchronous event; its sense data is the data segment.
    Scsi,
    /// The target requests a logout within `within_s` seconds.
    LogoutRequested {
        /// Seconds that the initiator has to comply.
        within_s: u16,
    },
    /// The target drops connection `cid`.
    ConnectionDropped {
        /// CID of the connection.
        cid: u16,
        /// Time2Wait: seconds to wait before reconnecting.
        time2wait_s: u16,
        /// Time2Retain: seconds for which the tasks of the connection are retained.
        time2retain_s: u16,
    },
    /// The target drops all connections of the session.
    SessionDropped {
        /// Time2Wait: seconds to wait before reconnecting.
        time2wait_s: u16,
        /// Time2Retain: seconds for which the tasks of the session are retained.
        time2retain_s: u16,
    },
    /// The target requests a parameter negotiation within `within_s` seconds.
    NegotiationRequested {
        /// Seconds that the initiator has to comply.
        within_s: u16,
    },
    /// All active tasks of the logical unit are being terminated.
    TasksTerminated,
    /// Reserved or vendor-specific event with its vendor code and three parameters.
    Other {
        /// AsyncEvent.
        event: u8,
        /// AsyncVCode.
        vendor_code: u8,
        /// Parameter1 to Parameter3.
        parameters: [u16; 3],
    },
}

impl AsyncMessage {
    /// Parses a header with opcode Asynchronous Message.
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let parameters = [field::u16_at::<38>(header), field::u16_at::<40>(header), field::u16_at::<42>(header)];
        Ok(Self {
            lun: Lun(field::u64_at::<8>(header)),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
            event: AsyncEvent::parse(field::u8_at::<36>(header), field::u8_at::<37>(header), parameters),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        let (event, vendor_code, [first, second, third]) = self.event.codes();
        lengths::begin(header, Opcode::AsyncMessage, false, FINAL, follows);
        field::put::<8, 8>(header, self.lun.0.to_be_bytes());
        // The task tag field is reserved and all ones (RFC 7143 §11.9).
        field::put::<16, 4>(header, [0xff; 4]);
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
        field::put::<36, 2>(header, [event, vendor_code]);
        field::put::<38, 2>(header, first.to_be_bytes());
        field::put::<40, 2>(header, second.to_be_bytes());
        field::put::<42, 2>(header, third.to_be_bytes());
    }
}

impl AsyncEvent {
    fn parse(event: u8, vendor_code: u8, parameters: [u16; 3]) -> Self {
        let [first, second, third] = parameters;
        match event {
            0 => Self::Scsi,
            1 => Self::LogoutRequested { within_s: third },
            2 => Self::ConnectionDropped { cid: first, time2wait_s: second, time2retain_s: third },
            3 => Self::SessionDropped { time2wait_s: second, time2retain_s: third },
            4 => Self::NegotiationRequested { within_s: third },
            5 => Self::TasksTerminated,
            _ => Self::Other { event, vendor_code, parameters },
        }
    }

    fn codes(self) -> (u8, u8, [u16; 3]) {
        match self {
            Self::Scsi => (0, 0, [0; 3]),
            Self::LogoutRequested { within_s } => (1, 0, [0, 0, within_s]),
            Self::ConnectionDropped { cid, time2wait_s, time2retain_s } => (2, 0, [cid, time2wait_s, time2retain_s]),
            Self::SessionDropped { time2wait_s, time2retain_s } => (3, 0, [0, time2wait_s, time2retain_s]),
            Self::NegotiationRequested { within_s } => (4, 0, [0, 0, within_s]),
            Self::TasksTerminated => (5, 0, [0; 3]),
            Self::Other { event, vendor_code, parameters } => (event, vendor_code, parameters),
        }
    }
}
