//! Logins that were not let in, and what would let them in.

use crate::{Name, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// An initiator that tried to log in and was not let in, perhaps often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedLogin {
    /// Its iSCSI name; none when it never said one that was one.
    pub initiator: Option<String>,
    /// Where it was.
    pub address: IpAddr,
    /// The target that it asked for; none to discover.
    pub target: Option<String>,
    /// Why, the last time.
    pub why: RefusedWhy,
    /// What it was told: class and detail of RFC 7143 §11.13.5 in words.
    pub status: String,
    /// For how many milliseconds its answer was held back, because it has failed often.
    #[serde(default)]
    pub held_back_ms: u64,
    /// How often.
    pub times: u64,
    /// When it was the last time.
    pub last: Timestamp,
}

/// Why a login was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RefusedWhy {
    /// No host has this initiator.
    UnknownInitiator,
    /// The initiator is a host's, which may not come from there.
    WrongAddress {
        /// The host.
        host: Name,
    },
    /// It did not prove who it is.
    NotProven {
        /// The host that it says to be.
        host: Name,
        /// What was wrong, as a sentence without its end.
        how: String,
    },
    /// It did not prove what discovery asks for.
    DiscoveryNotProven {
        /// What was wrong, as a sentence without its end.
        how: String,
    },
    /// Too many have failed to prove themselves as this host, or from there, and another proof was being judged.
    HeldBack {
        /// The host that it says to be.
        host: Name,
    },
    /// There is no such target.
    UnknownTarget,
    /// The host sees nothing in this target.
    NothingShown {
        /// The host.
        host: Name,
    },
    /// Something else, which the status says.
    Other,
}

impl RefusedLogin {
    /// Why, as a sentence without its end.
    #[must_use]
    pub fn reason(&self) -> String {
        let target = self.target.as_deref().unwrap_or("discovery");
        match &self.why {
            RefusedWhy::UnknownInitiator => "no host has this initiator".to_owned(),
            RefusedWhy::WrongAddress { host } => format!("host {host} may not come from {}", self.address),
            RefusedWhy::NotProven { host, how } => format!("it did not prove to be host {host}: {how}"),
            RefusedWhy::DiscoveryNotProven { how } => format!("it did not prove what discovery asks for: {how}"),
            RefusedWhy::HeldBack { host } => {
                format!("too many have failed to prove to be host {host}, or from there; they are judged one at a time")
            }
            RefusedWhy::UnknownTarget => format!("there is no target {target}"),
            RefusedWhy::NothingShown { host } => format!("host {host} sees nothing in target {target}"),
            RefusedWhy::Other => self.status.clone(),
        }
    }

    /// What would let it in, if that is wanted.
    #[must_use]
    pub fn remedy(&self) -> String {
        let initiator = self.initiator.as_deref().unwrap_or("IQN");
        match &self.why {
            RefusedWhy::UnknownInitiator => format!("blockyard host add NAME --initiator {initiator}"),
            RefusedWhy::WrongAddress { host } => format!("blockyard host change {host} --address {}", self.address),
            RefusedWhy::DiscoveryNotProven { .. } => {
                "set the same CHAP name and secret for discovery there and with blockyard auth discovery --chap-secret-file FILE"
                    .to_owned()
            }
            RefusedWhy::NotProven { host, .. } => {
                format!(
                    "set the same CHAP name and secret there and with blockyard host change {host} --chap-secret-file FILE"
                )
            }
            RefusedWhy::HeldBack { .. } => "wait, and see blockyard event list for who guesses".to_owned(),
            RefusedWhy::UnknownTarget => "log in to one of blockyard target list".to_owned(),
            RefusedWhy::NothingShown { host } => format!("blockyard present VOLUME {host}"),
            RefusedWhy::Other => "see blockyard event list".to_owned(),
        }
    }
}
