//! Login Response: answer of the target to a step of the login phase.

use super::{Bhs, CmdSn, InitiatorTaskTag, Isid, Opcode, SegmentLengths, StatSn, Transit, Tsih, field, lengths};
use crate::{LoginStatus, Violation};

/// Header of a Login Response; its data segment is text.
///
/// *Source*: RFC 7143 §11.13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// Current stage, and the stage that both sides enter now.
    pub transit: Transit,
    /// Version-max: highest protocol version of the target.
    pub version_max: u8,
    /// Version-active: protocol version in use.
    pub version_active: u8,
    /// Copied from the request.
    pub isid: Isid,
    /// TSIH: copied from the request until the last response, which assigns that of a new session.
    pub tsih: Tsih,
    /// Copied from the request.
    pub initiator_task_tag: InitiatorTaskTag,
    /// StatSN of this status; the target chooses the first one.
    pub stat_sn: StatSn,
    /// ExpCmdSN: CmdSN of the next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// MaxCmdSN: highest CmdSN that the target accepts.
    pub max_cmd_sn: CmdSn,
    /// Status class and detail.
    pub status: LoginStatus,
}

impl LoginResponse {
    /// Parses a header with opcode Login Response.
    ///
    /// The flags of a response that refuses the login are reserved, and not validated.
    ///
    /// *Errors*: [`Violation::StageReserved`], [`Violation::StageDoesNotAdvance`], [`Violation::TransitTextContinues`].
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        let status = LoginStatus::parse(field::u8_at::<36>(header), field::u8_at::<37>(header));
        let transit = match Transit::parse(field::u8_at::<1>(header)) {
            Err(_) if status != LoginStatus::Success => Transit::stay(super::Stage::Security),
            judged => judged?,
        };
        Ok(Self {
            transit,
            version_max: field::u8_at::<2>(header),
            version_active: field::u8_at::<3>(header),
            isid: Isid(field::bytes_at::<8, 6>(header)),
            tsih: Tsih(field::u16_at::<14>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            stat_sn: StatSn(field::u32_at::<24>(header)),
            exp_cmd_sn: CmdSn(field::u32_at::<28>(header)),
            max_cmd_sn: CmdSn(field::u32_at::<32>(header)),
            status,
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        let (class, detail) = self.status.codes();
        lengths::begin(header, Opcode::LoginResponse, false, self.transit.flags(), follows);
        field::put::<2, 2>(header, [self.version_max, self.version_active]);
        field::put::<8, 6>(header, self.isid.0);
        field::put::<14, 2>(header, self.tsih.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<24, 4>(header, self.stat_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_cmd_sn.0.to_be_bytes());
        field::put::<32, 4>(header, self.max_cmd_sn.0.to_be_bytes());
        field::put::<36, 2>(header, [class, detail]);
    }
}
