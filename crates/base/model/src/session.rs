//! Who is connected, and where.

use crate::{LatencyReport, Name, Refusal, Size, VolumeName, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The number of a session: its TSIH.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
pub struct SessionNumber(pub u32);

impl FromStr for SessionNumber {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        text.parse().map(Self).map_err(|_| {
            let message = format!("{} is not the number of a session", quoted(text));
            Refusal::new(code::IDENTIFIER_INVALID, message, "blockyard session list shows them")
        })
    }
}

/// One session as it is now, told by the data path itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReport {
    /// Which session: its TSIH.
    pub id: u32,
    /// Discovery or normal.
    pub kind: SessionKind,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The initiator's part of the session identifier (ISID), in hexadecimal digits. Reservations are bound to it.
    #[serde(default)]
    pub isid: String,
    /// The host that this initiator is.
    pub host: Option<Name>,
    /// Where the initiator is.
    pub address: SocketAddr,
    /// The portal that it reached.
    pub portal: SocketAddr,
    /// The target's iSCSI name; none in a discovery session.
    pub target: Option<String>,
    /// The logical unit numbers that it sees.
    pub luns: Vec<u16>,
    /// The volumes that it has reserved, shares, or is registered for.
    #[serde(default)]
    pub reservations: Vec<SessionReservation>,
    /// True when headers carry a CRC32C.
    pub header_digest: bool,
    /// True when data carries a CRC32C.
    pub data_digest: bool,
    /// How the initiator proved who it is: `none`, or `CHAP` and the algorithm, as in `CHAP SHA3-256`.
    pub authentication: String,
    /// The CHAP name that it proved.
    pub chap_user: Option<String>,
    /// True when we proved who we are, too.
    pub mutual: bool,
    /// Its connections, the oldest first. What stands above of address, portal and digests is the first one's that is open.
    #[serde(default)]
    pub connections: Vec<ConnectionReport>,
    /// What was negotiated, by the keys of RFC 7143 §13.
    pub negotiated: BTreeMap<String, String>,
    /// SCSI commands done.
    pub commands: u64,
    /// Bytes sent to the initiator.
    pub read_bytes: u64,
    /// Bytes received from the initiator.
    pub written_bytes: u64,
    /// For how many seconds it has been logged in.
    pub connected_seconds: u64,
}

/// What a session is to the reservation of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReservation {
    /// The volume.
    pub volume: VolumeName,
    /// What the session is to it.
    pub role: ReservationRole,
}

/// What a session is to a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReservationRole {
    /// It holds the reservation.
    Holder,
    /// It is registered, which is enough for the reservation that there is.
    Shares,
    /// It is registered, and that lets it in nowhere: nothing is reserved, or for another alone.
    Registered,
}

impl fmt::Display for ReservationRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Holder => "holds",
            Self::Shares => "shares",
            Self::Registered => "registered for",
        })
    }
}

/// One connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionReport {
    /// What the initiator calls it.
    pub cid: u16,
    /// Where the initiator is.
    pub address: SocketAddr,
    /// The portal that it reached.
    pub portal: SocketAddr,
    /// How it is.
    pub state: ConnectionState,
    /// True when headers carry a CRC32C.
    pub header_digest: bool,
    /// True when data carries a CRC32C.
    pub data_digest: bool,
}

/// How a connection of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// It is logged in.
    Open,
    /// It is gone, and its tasks wait for another one to take them over (ErrorRecoveryLevel 2).
    Lost,
}

/// One session in all detail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionDetail {
    /// What the list of sessions says of it.
    #[serde(flatten)]
    pub session: SessionReport,
    /// Where its commands are numbered just now; none while it does not answer.
    pub window: Option<CommandWindow>,
    /// How long its commands took, seen from its connection.
    pub latencies: Vec<LatencyReport>,
}

/// The window of command numbers. *Source*: RFC 7143 §4.2.2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CommandWindow {
    /// The number of the next command that is awaited.
    pub exp_cmd_sn: u32,
    /// The highest that is taken.
    pub max_cmd_sn: u32,
}

/// A session that a change would end, or take access from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionLoss {
    /// Which session: its TSIH.
    pub session: u32,
    /// The initiator's iSCSI name.
    pub initiator: String,
    /// The host that this initiator is.
    pub host: Option<Name>,
    /// Where the initiator is.
    pub address: SocketAddr,
    /// What it would lose.
    pub loses: String,
}

/// How a session has ended that an operator ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionEnd {
    /// The initiator has logged out, as it was asked to.
    LoggedOut,
    /// Its connection was cut off.
    CutOff,
}

/// What a session is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SessionKind {
    /// It may only ask which targets there are.
    Discovery,
    /// It sends commands.
    Normal,
}

impl fmt::Display for SessionLoss {
    /// `iqn.… at 10.0.0.20:51514 (session 3) loses volume tank/vm1 (LUN 0)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {} (session {}) {}", self.initiator, self.address, self.session, self.loses)
    }
}

impl SessionReport {
    /// How much went both ways.
    #[must_use]
    pub fn moved(&self) -> Size {
        Size::new(self.read_bytes.saturating_add(self.written_bytes))
    }
}
