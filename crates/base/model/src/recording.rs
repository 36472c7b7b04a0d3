//! What goes over the wire of hosts, recorded.

use crate::{Network, Refusal, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// Whose connections are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Recordable {
    /// Those of the session with this TSIH, from the next PDU of each direction on, until it ends.
    Session(u32),
    /// All that come from here: those that are there from the next PDU of each direction on, and new ones from their first byte on.
    From(Network),
}

/// Where the two ends of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireEnds {
    /// The initiator's.
    pub initiator: SocketAddr,
    /// Ours.
    pub portal: SocketAddr,
}

/// Something that happened to a connection that is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// When: nanoseconds of Unix time.
    pub at_ns: u64,
    /// Which connection it is.
    pub ends: WireEnds,
    /// What.
    pub what: Wire,
}

/// What happens on a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wire {
    /// The connection was made.
    Opened,
    /// One receive or send.
    Moved {
        /// True when the initiator sent them.
        from_initiator: bool,
        /// How many bytes before them, in the same direction, were not recorded because nobody took them in time.
        bytes_lost: u64,
        /// The bytes; the digits of CHAP responses are zeros.
        bytes: Vec<u8>,
    },
    /// The connection is closed.
    Closed,
}

/// What was recorded since this was asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recordings {
    /// In order.
    pub pieces: Vec<Recorded>,
    /// How many receives and sends were not recorded so far, because nobody took them in time.
    pub lost: u64,
    /// True when nothing follows.
    pub is_over: bool,
}

impl Recordable {
    /// The one of both that is named.
    ///
    /// *Errors*: none is, or both are.
    pub fn one_of(session: Option<u32>, from: Option<Network>) -> Result<Self, Refusal> {
        match (session, from) {
            (Some(session), None) => Ok(Self::Session(session)),
            (None, Some(from)) => Ok(Self::From(from)),
            _ => {
                let message = "a recording is of one session, or of what comes from one address or network";
                Err(Refusal::new(code::OPTIONS_CONFLICT, message, "name the number of a session, or --from an address"))
            }
        }
    }
}
