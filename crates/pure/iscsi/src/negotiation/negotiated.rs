//! What a login has come to.

use super::key::Key;
use super::parley::Parley;
use crate::IscsiName;
use crate::chap::Authentication;
use crate::pdu::{Cid, CmdSn, Isid, Tsih};

/// What a session is for.
///
/// *Source*: RFC 7143 §13.21.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionType {
    /// To ask for targets.
    Discovery,
    /// To use a target.
    #[default]
    Normal,
}

/// Who logged in to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The initiator's iSCSI name.
    pub initiator_name: IscsiName,
    /// What the initiator calls itself for people, when it says.
    pub initiator_alias: Option<String>,
    /// What CHAP has proven; nothing where it was not spoken.
    pub authentication: Option<Authentication>,
    /// What the session is for.
    pub session_type: SessionType,
    /// The target; none in most discovery sessions.
    pub target_name: Option<IscsiName>,
    /// The initiator's part of the session's identifier.
    pub isid: Isid,
    /// The session; never zero.
    pub tsih: Tsih,
    /// True for a connection more of a session that is there.
    pub joins: bool,
    /// The connection.
    pub cid: Cid,
    /// The CmdSN of the session's first command.
    pub cmd_sn: CmdSn,
}

/// The operational parameters in force in full feature phase, and between whom.
///
/// *Source*: RFC 7143 §13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Who logged in to what.
    pub identity: Identity,
    /// What the session is for; the same as in the identity.
    pub session_type: SessionType,
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// MaxConnections.
    pub connections_max: u16,
    /// InitialR2T: no unsolicited Data-Out.
    pub initial_r2t: bool,
    /// ImmediateData: commands may bring data.
    pub immediate_data: bool,
    /// The most data that the peer takes in one PDU: its MaxRecvDataSegmentLength.
    pub peer_data_segment_bytes_max: u32,
    /// The most data that we take in one PDU: what we declared.
    pub own_data_segment_bytes_max: u32,
    /// MaxBurstLength.
    pub burst_bytes_max: u32,
    /// FirstBurstLength; at most MaxBurstLength.
    pub first_burst_bytes_max: u32,
    /// DefaultTime2Wait.
    pub time2wait_s: u16,
    /// DefaultTime2Retain.
    pub time2retain_s: u16,
    /// MaxOutstandingR2T.
    pub outstanding_r2t_max: u16,
    /// DataPDUInOrder.
    pub data_pdu_in_order: bool,
    /// DataSequenceInOrder.
    pub data_sequence_in_order: bool,
    /// ErrorRecoveryLevel.
    pub error_recovery_level: u8,
    /// iSCSIProtocolLevel.
    pub protocol_level: u8,
}

impl Negotiated {
    /// The values that `parley` has come to, whose ranges the table of keys holds.
    pub(super) fn new(identity: Identity, parley: &Parley) -> Self {
        let yes = |key| parley.value(key) == 1;
        let short = |key| u16::try_from(parley.value(key)).expect("the key's range has 16 bits");
        let byte = |key| u8::try_from(parley.value(key)).expect("the key's range has 8 bits");
        let burst_bytes_max = parley.value(Key::MaxBurstLength);
        Self {
            session_type: identity.session_type,
            identity,
            header_digest: yes(Key::HeaderDigest),
            data_digest: yes(Key::DataDigest),
            connections_max: short(Key::MaxConnections),
            initial_r2t: yes(Key::InitialR2T),
            immediate_data: yes(Key::ImmediateData),
            peer_data_segment_bytes_max: parley.value(Key::MaxRecvDataSegmentLength),
            own_data_segment_bytes_max: parley.own_data_segment_bytes_max(),
            burst_bytes_max,
            first_burst_bytes_max: parley.value(Key::FirstBurstLength).min(burst_bytes_max),
            time2wait_s: short(Key::DefaultTime2Wait),
            time2retain_s: short(Key::DefaultTime2Retain),
            outstanding_r2t_max: short(Key::MaxOutstandingR2T),
            data_pdu_in_order: yes(Key::DataPDUInOrder),
            data_sequence_in_order: yes(Key::DataSequenceInOrder),
            error_recovery_level: byte(Key::ErrorRecoveryLevel),
            protocol_level: byte(Key::ProtocolLevel),
        }
    }
}
