//! Recordings of iSCSI traffic.

use crate::{Network, Refusal, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Connections to record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Recordable {
    /// Connections of the session with this TSIH, from the next PDU in each direction until the session ends.
    Session(u32),
    /// Connections from this network: existing ones from the next PDU in each direction, new ones from their first
    /// byte.
    From(Network),
}

/// Both addresses of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireEnds {
    /// Address of the initiator.
    pub initiator: SocketAddr,
    /// Address of the portal.
    pub portal: SocketAddr,
}

/// Recorded event of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Time in nanoseconds since the Unix epoch.
    pub at_ns: u64,
    /// Connection of the event.
    pub ends: WireEnds,
    /// Event.
    pub what: Wire,
}

/// Event of a recorded connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// Connection established.
    Opened,
    /// Data of one receive or send.
    Moved {
        /// True if the initiator sent the data.
        from_initiator: bool,
        /// Number of bytes before these, in the same direction, that were dropped because they were not fetched in
        /// time.
        bytes_lost: u64,
        /// Recorded bytes; the digits of CHAP responses are replaced by zeros.
        bytes: Vec<u8>,
    },
    /// Connection closed.
    Closed,
}

/// Recorded traffic since the last order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recordings {
    /// Recorded events in order.
    pub pieces: Vec<Recorded>,
    /// Number of receives and sends dropped so far because they were not fetched in time.
    pub lost: u64,
    /// True if the recording has ended and nothing follows.
    pub is_over: bool,
}

impl Recordable {
    /// Returns the recording target from exactly one of the options.
    ///
    /// *Errors*: `OPTIONS_CONFLICT` if neither or both are given.
    pub fn one_of(session: Option<u32>, from: Option<Network>) -> Result<Self, Refusal> {
        // Neither would record all traffic of the array, and both are ambiguous.
        match (session, from) {
            (Some(session), None) => Ok(Self::Session(session)),
            (None, Some(from)) => Ok(Self::From(from)),
            _ => {
                let message = "a recording covers either one session or the connections from one address or network";
                Err(Refusal::new(code::OPTIONS_CONFLICT, message, "give a session number or --from with an address"))
            }
        }
    }
}
