//! Login Request: step of an initiator in the login phase.

use super::{Bhs, Cid, CmdSn, InitiatorTaskTag, Isid, Opcode, SegmentLengths, StatSn, Tsih, field, lengths};
use crate::Violation;

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;

/// Header of a Login Request; its data segment is text.
///
/// *Source*: RFC 7143 §11.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// Current stage, and the requested next one.
    pub transit: Transit,
    /// Version-max: highest protocol version of the initiator.
    pub version_max: u8,
    /// Version-min: lowest protocol version of the initiator.
    pub version_min: u8,
    /// ISID: initiator part of the session identifier.
    pub isid: Isid,
    /// TSIH of the session to join; zero for a new session.
    pub tsih: Tsih,
    /// Initiator Task Tag, the same throughout the login.
    pub initiator_task_tag: InitiatorTaskTag,
    /// Connection identifier.
    pub cid: Cid,
    /// Initial CmdSN of the session.
    pub cmd_sn: CmdSn,
    /// ExpStatSN, from the second request on.
    pub exp_stat_sn: StatSn,
}

/// Stage of the login phase.
///
/// *Source*: RFC 7143 §11.12.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Stage {
    /// `SecurityNegotiation`.
    Security = 0,
    /// `LoginOperationalNegotiation`.
    Operational = 1,
    /// `FullFeaturePhase`.
    FullFeature = 3,
}

/// Stage fields of a login PDU: the T and C bits, CSG and NSG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transit {
    /// CSG: stage of this PDU; never full feature.
    pub current: Stage,
    /// NSG when the T bit is set: the sender is ready to enter it.
    pub next: Option<Stage>,
    /// C bit: the text continues in the next PDU. Never together with the T bit.
    pub continues: bool,
}

impl LoginRequest {
    /// Creates the first request of a new session: version 0, CID and task tag 0, CmdSN 1.
    #[must_use]
    pub const fn leading(isid: Isid, transit: Transit) -> Self {
        Self {
            transit,
            version_max: 0,
            version_min: 0,
            isid,
            tsih: Tsih(0),
            initiator_task_tag: InitiatorTaskTag(0),
            cid: Cid(0),
            cmd_sn: CmdSn(1),
            exp_stat_sn: StatSn(0),
        }
    }

    /// Parses a header with opcode Login Request.
    ///
    /// *Errors*: [`Violation::StageReserved`], [`Violation::StageDoesNotAdvance`], [`Violation::TransitTextContinues`].
    pub fn parse(header: &Bhs) -> Result<Self, Violation> {
        Ok(Self {
            transit: Transit::parse(field::u8_at::<1>(header))?,
            version_max: field::u8_at::<2>(header),
            version_min: field::u8_at::<3>(header),
            isid: Isid(field::bytes_at::<8, 6>(header)),
            tsih: Tsih(field::u16_at::<14>(header)),
            initiator_task_tag: InitiatorTaskTag(field::u32_at::<16>(header)),
            cid: Cid(field::u16_at::<20>(header)),
            cmd_sn: CmdSn(field::u32_at::<24>(header)),
            exp_stat_sn: StatSn(field::u32_at::<28>(header)),
        })
    }

    /// Writes the header, with these fields and the lengths of the segments that follow.
    pub fn emit(&self, follows: SegmentLengths, header: &mut Bhs) {
        // A Login Request is always immediate (RFC 7143 §11.12).
        lengths::begin(header, Opcode::LoginRequest, true, self.transit.flags(), follows);
        field::put::<2, 2>(header, [self.version_max, self.version_min]);
        field::put::<8, 6>(header, self.isid.0);
        field::put::<14, 2>(header, self.tsih.0.to_be_bytes());
        field::put::<16, 4>(header, self.initiator_task_tag.0.to_be_bytes());
        field::put::<20, 2>(header, self.cid.0.to_be_bytes());
        field::put::<24, 4>(header, self.cmd_sn.0.to_be_bytes());
        field::put::<28, 4>(header, self.exp_stat_sn.0.to_be_bytes());
    }
}

impl Transit {
    /// Stays in `current`.
    #[must_use]
    pub const fn stay(current: Stage) -> Self {
        Self { current, next: None, continues: false }
    }

    /// Belongs to `current`, ready to enter `next`.
    #[must_use]
    pub const fn to(current: Stage, next: Stage) -> Self {
        Self { current, next: Some(next), continues: false }
    }

    /// Parses the flags byte; shared with Login Response.
    pub(super) fn parse(flags: u8) -> Result<Self, Violation> {
        let current = Stage::parse(flags >> 2 & 3)?;
        let continues = flags & CONTINUE != 0;
        // NSG is reserved without the T bit, so it is not checked then (RFC 7143 §11.12.3).
        let next = if flags & TRANSIT == 0 { None } else { Some(Stage::parse(flags & 3)?) };
        // Stage 2 is not assigned, so the numeric order of the stages is their order in the login.
        if current == Stage::FullFeature || next.is_some_and(|next| next <= current) {
            return Err(Violation::StageDoesNotAdvance);
        }
        if continues && next.is_some() {
            return Err(Violation::TransitTextContinues);
        }
        Ok(Self { current, next, continues })
    }

    /// Emits the flags byte; shared with Login Response.
    pub(super) fn flags(self) -> u8 {
        let transit = self.next.map_or(0, |next| TRANSIT | next as u8);
        transit | field::bit(self.continues, CONTINUE) | (self.current as u8) << 2
    }
}

impl Stage {
    fn parse(code: u8) -> Result<Self, Violation> {
        match code {
            0 => Ok(Self::Security),
            1 => Ok(Self::Operational),
            3 => Ok(Self::FullFeature),
            _ => Err(Violation::StageReserved),
        }
    }
}
