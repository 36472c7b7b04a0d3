//! Result of a login: identities and operational parameters.

use super::key::Key;
use super::state_machine::Negotiation;
use crate::IscsiName;
use crate::chap::Authentication;
use crate::pdu::{Cid, CmdSn, Isid, Tsih};

/// Session type.
///
/// *Source*: RFC 7143 §13.21.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SessionType {
    /// Discovery session: queries for targets only.
    Discovery,
    /// Normal session with a target.
    #[default]
    Normal,
}

/// Identities of a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// iSCSI name of the initiator.
    pub initiator_name: IscsiName,
    /// Human-readable alias of the initiator, if declared.
    pub initiator_alias: Option<String>,
    /// Result of CHAP; `None` where it was not used.
    pub authentication: Option<Authentication>,
    /// Session type.
    pub session_type: SessionType,
    /// Target name; `None` in most discovery sessions.
    pub target_name: Option<IscsiName>,
    /// ISID: initiator part of the session identifier.
    pub isid: Isid,
    /// TSIH of the session; never zero.
    pub tsih: Tsih,
    /// True for a further connection of an existing session.
    pub joins: bool,
    /// Connection identifier.
    pub cid: Cid,
    /// Initial CmdSN of the session.
    pub cmd_sn: CmdSn,
}

/// Operational parameters in effect in full feature phase, with the identities.
///
/// *Source*: RFC 7143 §13.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Identities of the login.
    pub identity: Identity,
    /// Session type, the same as in the identity.
    pub session_type: SessionType,
    /// HeaderDigest is CRC32C.
    pub header_digest: bool,
    /// DataDigest is CRC32C.
    pub data_digest: bool,
    /// MaxConnections.
    pub connections_max: u16,
    /// InitialR2T: no unsolicited Data-Out.
    pub initial_r2t: bool,
    /// ImmediateData: commands may carry data.
    pub immediate_data: bool,
    /// MaxRecvDataSegmentLength of the peer in bytes.
    pub peer_data_segment_bytes_max: u32,
    /// MaxRecvDataSegmentLength that this side declared, in bytes.
    pub own_data_segment_bytes_max: u32,
    /// MaxBurstLength in bytes.
    pub burst_bytes_max: u32,
    /// FirstBurstLength in bytes; at most MaxBurstLength.
    pub first_burst_bytes_max: u32,
    /// DefaultTime2Wait in seconds.
    pub time2wait_s: u16,
    /// DefaultTime2Retain in seconds.
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
    /// Collects the values of `parley`, whose ranges the table of keys guarantees.
    pub(super) fn new(identity: Identity, parley: &Negotiation) -> Self {
        let yes = |key| parley.value(key) == 1;
        // No range in `TABLE` that `short` reads ends above 65,535, and none that `byte` reads above 31.
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
            // The default of FirstBurstLength may exceed a smaller MaxBurstLength, which bounds it (RFC 7143 §13.14).
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
