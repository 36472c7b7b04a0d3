//! Registration of targets at an iSNS server.

use crate::portal::address_of;
use crate::{ParseRefusal, Refusal, Timestamp, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Default port of iSNS servers. *Source*: RFC 4171 §2.9.
const ISNS_PORT: u16 = 3205;

/// Address of an iSNS server. The port defaults to 3205.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("examples" = ["10.0.0.5:3205", "[fd00::5]:3205"]))]
pub struct IsnsServer(pub SocketAddr);

/// State of the iSNS registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IsnsReport {
    /// Configured server; absent if targets are not registered.
    pub server: Option<IsnsServer>,
    /// Entity identifier under which the array registers.
    pub entity: String,
    /// Current state.
    pub state: IsnsState,
    /// Targets of the latest registration.
    pub targets: Vec<String>,
    /// Portals of the latest registration.
    pub portals: Vec<SocketAddr>,
}

/// State of the registration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum IsnsState {
    /// No server is configured, or it has not been contacted yet.
    #[default]
    Off,
    /// Nothing to register: no target presents a volume, or no portal is open.
    Nothing,
    /// Registered.
    Registered {
        /// Time of the latest confirmation by the server.
        last_confirmed: Timestamp,
    },
    /// Registration failed, or the server does not respond. Retried automatically.
    Failing {
        /// Error in words.
        reason: String,
    },
}

impl FromStr for IsnsServer {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        address_of(text, ISNS_PORT).map(Self).ok_or_else(|| {
            let message = format!("{} is not the address of an iSNS server", quoted(text));
            Refusal::new(code::ADDRESS_INVALID, message, "write 10.0.0.5, 10.0.0.5:3205 or [fd00::5]:3205")
        })
    }
}

impl TryFrom<String> for IsnsServer {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
        Ok(text.parse()?)
    }
}

impl From<IsnsServer> for String {
    fn from(server: IsnsServer) -> Self {
        server.to_string()
    }
}

impl fmt::Display for IsnsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
