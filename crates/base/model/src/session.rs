//! Sessions and connections of initiators.

use crate::number::unsigned;
use crate::{LatencyReport, Name, Refusal, Size, VolumeName, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Number of a session: its TSIH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct SessionNumber(pub u32);

impl FromStr for SessionNumber {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        unsigned(text).map(Self).ok_or_else(|| {
            let message = format!("{} is not a session number", quoted(text));
            Refusal::new(code::IDENTIFIER_INVALID, message, "see blockyard session list")
        })
    }
}

/// State of a session, as reported by the data path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReport {
    /// TSIH of the session.
    pub id: u32,
    /// Discovery or normal session.
    pub kind: SessionKind,
    /// iSCSI name of the initiator.
    pub initiator: String,
    /// ISID, the part of the session identifier chosen by the initiator, in hexadecimal digits. Reservations are bound
    /// to it.
    #[serde(default)]
    pub isid: String,
    /// Host to which the initiator belongs.
    pub host: Option<Name>,
    /// Address of the initiator.
    pub address: SocketAddr,
    /// Portal that the session was established at.
    pub portal: SocketAddr,
    /// iSCSI name of the target; absent in a discovery session.
    pub target: Option<String>,
    /// Logical unit numbers that are visible in the session.
    pub luns: Vec<u16>,
    /// Volumes that the session has reserved, shares by registration, or is registered for.
    #[serde(default)]
    pub reservations: Vec<SessionReservation>,
    /// True if header digests (CRC32C) are in use.
    pub header_digest: bool,
    /// True if data digests (CRC32C) are in use.
    pub data_digest: bool,
    /// Authentication of the initiator: `none`, or `CHAP` with the algorithm, such as `CHAP SHA3-256`.
    pub authentication: String,
    /// CHAP name of the initiator.
    pub chap_user: Option<String>,
    /// True if the array was authenticated as well (mutual CHAP).
    pub mutual: bool,
    /// Connections, oldest first. Address, portal and digests above are those of the first one that is open.
    #[serde(default)]
    pub connections: Vec<ConnectionReport>,
    /// Negotiated values by key (RFC 7143 §13).
    pub negotiated: BTreeMap<String, String>,
    /// Completed SCSI commands.
    pub commands: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from the initiator.
    pub written_bytes: u64,
    /// Seconds since the login.
    pub connected_seconds: u64,
}

/// Relation of a session to the reservation of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReservation {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Role of the session.
    pub role: ReservationRole,
}

/// Role of a session in a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReservationRole {
    /// Holder of the reservation.
    Holder,
    /// Registered, which permits access under the present reservation.
    RegisteredWithAccess,
    /// Registered without effect: there is no reservation, or it excludes other registrants.
    Registered,
}

impl fmt::Display for ReservationRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holder => "holds",
            Self::RegisteredWithAccess => "shares",
            Self::Registered => "registered for",
        })
    }
}

/// Connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionReport {
    /// CID, chosen by the initiator.
    pub cid: u16,
    /// Address of the initiator.
    pub address: SocketAddr,
    /// Portal of the connection.
    pub portal: SocketAddr,
    /// State of the connection.
    pub state: ConnectionState,
    /// True if header digests (CRC32C) are in use.
    pub header_digest: bool,
    /// True if data digests (CRC32C) are in use.
    pub data_digest: bool,
}

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// Logged in.
    Open,
    /// Lost; its tasks wait to be reassigned to another connection (`ErrorRecoveryLevel` 2).
    Lost,
}

/// Details of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDetail {
    /// Entry in the list of sessions.
    #[serde(flatten)]
    pub session: SessionReport,
    /// Current command window; absent while the session does not respond.
    pub window: Option<CommandWindow>,
    /// Command latencies, measured at the connection.
    pub latencies: Vec<LatencyReport>,
}

/// Command window of a session. *Source*: RFC 7143 §4.2.2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandWindow {
    /// Next expected command sequence number (`ExpCmdSN`).
    pub exp_cmd_sn: u32,
    /// Highest accepted command sequence number (`MaxCmdSN`).
    pub max_cmd_sn: u32,
}

/// Session that a change would end or deprive of access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionLoss {
    /// TSIH of the session.
    pub session: u32,
    /// iSCSI name of the initiator.
    pub initiator: String,
    /// Host to which the initiator belongs.
    pub host: Option<Name>,
    /// Address of the initiator.
    pub address: SocketAddr,
    /// Loss of access, in words.
    pub effect: String,
}

/// Result of ending a session on request of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionEnd {
    /// The initiator has logged out as requested.
    LoggedOut,
    /// The connections were dropped.
    Dropped,
}

/// Kind of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// Discovery session: may only query the available targets.
    Discovery,
    /// Normal session: may send SCSI commands.
    Normal,
}

impl fmt::Display for SessionLoss {
    /// Writes a text such as `iqn.… at 10.0.0.20:51514 (session 3) loses volume tank/vm1 (LUN 0)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} (session {}) {}", self.initiator, self.address, self.session, self.effect)
    }
}

impl SessionReport {
    /// Returns the amount of data in both directions.
    #[must_use]
    pub fn moved(&self) -> Size {
        Size::new(self.read_bytes.saturating_add(self.written_bytes))
    }
}
