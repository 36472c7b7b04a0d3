//! The iSNS server that targets are registered with.

use crate::portal::address_of;
use crate::{Misread, Refusal, Timestamp, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The port of iSNS servers. *Source*: RFC 4171 §2.9.
const ISNS_PORT: u16 = 3205;

/// The address of an iSNS server, as an operator writes it: iSNS' port where none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("examples" = ["10.0.0.5:3205", "[fd00::5]:3205"]))]
pub struct IsnsServer(pub SocketAddr);

/// How the registration is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IsnsReport {
    /// With which server; none when targets are not to be registered.
    pub server: Option<IsnsServer>,
    /// What the server knows us as.
    pub entity: String,
    /// How it is.
    pub state: IsnsState,
    /// The targets that were registered last.
    pub targets: Vec<String>,
    /// The portals that were registered last.
    pub portals: Vec<SocketAddr>,
}

/// How a registration is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum IsnsState {
    /// No server is set, or it has not been spoken to.
    #[default]
    Off,
    /// No target shows anything to anybody, or no portal is open.
    Nothing,
    /// The server knows us.
    Registered {
        /// When it said so last.
        heard: Timestamp,
    },
    /// It does not, or does not answer; this is tried again.
    Failing {
        /// Why, in words.
        why: String,
    },
}

impl FromStr for IsnsServer {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        address_of(text, ISNS_PORT).map(Self).ok_or_else(|| {
            let message = format!("{} is not the address of a server", quoted(text));
            Refusal::new(code::ADDRESS_INVALID, message, "write 10.0.0.5, 10.0.0.5:3205 or [fd00::5]:3205")
        })
    }
}

impl TryFrom<String> for IsnsServer {
    type Error = Misread;
    fn try_from(text: String) -> Result<Self, Misread> {
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
