//! Login Response: the target's answer to a step of the login.

use super::{Bhs, CmdSn, InitiatorTaskTag, Isid, Opcode, SegmentLengths, StatSn, Transit, Tsih, field, lengths};
use crate::{LoginStatus, Violation};

/// The header of a Login Response; its data segment is text.
///
/// *Source*: RFC 7143 §11.13.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// The stage that this belongs to, and the one that both go to now.
    pub transit: Transit,
    /// The highest version that the target speaks.
    pub version_max: u8,
    /// The version in force.
    pub version_active: u8,
    /// As in the request.
    pub isid: Isid,
    /// The session: as in the request until the last response, which names a new one.
    pub tsih: Tsih,
    /// As in the request.
    pub initiator_task_tag: InitiatorTaskTag,
    /// The number of this status; the first one is the target's choice.
    pub stat_sn: StatSn,
    /// The next command that the target expects.
    pub exp_cmd_sn: CmdSn,
    /// The last command that the target will take.
    pub max_cmd_sn: CmdSn,
    /// How the login goes.
    pub status: LoginStatus,
}

impl LoginResponse {
    /// The fields of a header whose opcode is Login Response.
    ///
    /// A response that refuses says nothing with its flags, and they are not judged.
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

    /// The header holds these fields and the lengths of what follows.
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
