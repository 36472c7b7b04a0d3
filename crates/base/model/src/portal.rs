//! Portals: the addresses that hosts log in at, and how sessions are shared out over them.

use crate::setting::{Settings, or_off};
use crate::{Advertised, Misread, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// The port of iSCSI. *Source*: RFC 7143 §4.2.7.1.
pub const ISCSI_PORT: u16 = 3260;

/// An address to listen on, as an operator writes it: iSCSI's port where none is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("examples" = ["10.0.0.1:3260", "[fd00::1]:3260"]))]
pub struct PortalAddress(pub SocketAddr);

/// An address that we listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Where. May be a wildcard; SendTargets then names the address that the asker reached.
    pub address: SocketAddr,
    /// What it is for.
    pub policy: PortalPolicy,
}

/// What an operator has set for a portal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PortalPolicy {
    /// Whether sessions stay here, or are sent elsewhere.
    pub role: PortalRole,
    /// Its target portal group tag, which is also the relative target port that units know.
    pub tag: u16,
    /// Its part of the sessions, against those of other data portals.
    pub weight: u16,
    /// True when no session may stay: those that are there were asked to go, and others are sent elsewhere.
    pub drained: bool,
    /// Where hosts reach it, where that is not where it listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertised>,
}

/// Whether sessions stay at a portal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortalRole {
    /// Hosts are told of it, and stay where they log in.
    #[default]
    Plain,
    /// Hosts are told of it, and each session is sent to a data portal. Where none can be reached, it stays.
    Front,
    /// Sessions are sent to it; hosts that can reach a front portal are not told of it.
    Data,
}

/// By what a data portal is chosen for a session, after the first rules: the one with the fewest sessions of this
/// initiator to this target, and of those one in the initiator's own network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// The fewest sessions for its weight.
    #[default]
    Sessions,
    /// The fewest bytes in the last seconds for its weight.
    Bytes,
}

/// The settings of a portal by name, and what may be written there.
pub const PORTAL_SETTINGS: [(&str, &str); 4] = [
    ("role", "plain, front or data"),
    ("group", "a number from 1 to 65535"),
    ("weight", "a number from 1 to 1000"),
    ("advertise", "an address or DNS name that hosts reach, with or without a port, or off"),
];

const SETTINGS: Settings<4> = Settings { owner: "portal", names: PORTAL_SETTINGS };

impl Default for PortalPolicy {
    fn default() -> Self {
        Self { role: PortalRole::Plain, tag: 1, weight: 1, drained: false, advertise: None }
    }
}

impl PortalPolicy {
    /// The setting `key` is `value`.
    ///
    /// *Errors*: there is no such setting, or the value is none for it.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        let wrong = SETTINGS.wrong(key, value)?;
        let number = |most: u16| value.parse().ok().filter(|number| (1..=most).contains(number));
        match key {
            "role" => self.role = value.parse().map_err(|()| wrong())?,
            "group" => self.tag = number(u16::MAX).ok_or_else(wrong)?,
            "advertise" => self.advertise = or_off(value, |text| text.parse().ok()).ok_or_else(wrong)?,
            _ => self.weight = number(1000).ok_or_else(wrong)?,
        }
        Ok(())
    }

    /// Every setting with its value, as [`PortalPolicy::set`] takes them.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 4] {
        let advertise = self.advertise.as_ref().map_or_else(|| "off".to_owned(), ToString::to_string);
        SETTINGS.with([self.role.to_string(), self.tag.to_string(), self.weight.to_string(), advertise])
    }

    /// Where hosts log in at the portal that listens on `listens`: `HOST:PORT`.
    #[must_use]
    pub fn for_hosts(&self, listens: SocketAddr) -> String {
        self.advertise.as_ref().map_or_else(|| listens.to_string(), |advertise| advertise.for_hosts(listens))
    }

    /// True when sessions may be sent there.
    #[must_use]
    pub fn takes_sessions(&self) -> bool {
        self.role == PortalRole::Data && !self.drained
    }
}

impl FromStr for PortalAddress {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let address = address_of(text, ISCSI_PORT);
        if text.contains('%') || address.is_some_and(|address| is_link_local(address.ip())) {
            let message = format!(
                "{} is a link-local address, which hosts cannot be told: it has no meaning to them",
                quoted(text)
            );
            let hint = "listen on [::], which is reached through every address, or give the interface another one, such as fd00::1";
            return Err(Refusal::new(code::ADDRESS_INVALID, message, hint));
        }
        address.map(Self).ok_or_else(|| {
            Refusal::new(
                code::ADDRESS_INVALID,
                format!("{} is not an address to listen on", quoted(text)),
                "write 10.0.0.1, 10.0.0.1:3260 or [fd00::1]:3260",
            )
        })
    }
}

/// An address that means another place on each link.
fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// The address that an operator writes, with `port` where it names none.
pub(crate) fn address_of(text: &str, port: u16) -> Option<SocketAddr> {
    let bare = || text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    text.parse().or_else(|_| bare().map(|address| SocketAddr::new(address, port))).ok()
}

impl TryFrom<String> for PortalAddress {
    type Error = Misread;
    fn try_from(text: String) -> Result<Self, Misread> {
        Ok(text.parse()?)
    }
}

impl From<PortalAddress> for String {
    fn from(address: PortalAddress) -> Self {
        address.to_string()
    }
}

impl fmt::Display for PortalAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl PortalRole {
    const ALL: [Self; 3] = [Self::Plain, Self::Front, Self::Data];

    /// The role in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Front => "front",
            Self::Data => "data",
        }
    }
}

impl FromStr for PortalRole {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.into_iter().find(|role| role.as_str() == text).ok_or(())
    }
}

impl fmt::Display for PortalRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Balance {
    /// The measure in one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Bytes => "bytes",
        }
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Balance {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        [Self::Sessions, Self::Bytes].into_iter().find(|balance| balance.as_str() == text).ok_or_else(|| {
            let message = format!("sessions cannot be balanced by {}", quoted(text));
            Refusal::new(code::SETTING_INVALID, message, "write sessions or bytes")
        })
    }
}

/// Hosts that can reach a front portal are told of no other.
pub fn only_fronts(portals: &mut Vec<(SocketAddr, PortalPolicy)>) {
    let is_front = |(_, policy): &(SocketAddr, PortalPolicy)| policy.role == PortalRole::Front;
    if portals.iter().any(is_front) {
        portals.retain(is_front);
    }
}

/// One portal as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortalReport {
    /// Where it listens, with its real port.
    pub address: SocketAddr,
    /// What it is for.
    #[serde(flatten)]
    pub policy: PortalPolicy,
    /// How it is.
    pub state: PortalState,
    /// True when it listens for hosts of IPv4 though its address is one of IPv6: `[::]`, unless somebody else has its port there.
    #[serde(default)]
    pub also_ipv4: bool,
    /// How many sessions came in through it.
    pub sessions: u32,
}

/// How a portal is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PortalState {
    /// It listens.
    Open,
    /// It listens, but hosts cannot reach it.
    NoLink {
        /// Why, in words.
        why: String,
    },
    /// It is configured, but does not listen.
    Failed {
        /// Why, in words.
        why: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_address_is_refused_with_what_to_use() {
        for text in ["fe80::1", "[fe80::1]:3260", "fe80::1%eth0", "[fe80::1%2]:3260"] {
            let refusal = text.parse::<PortalAddress>().expect_err(text);
            assert!(refusal.message.contains("link-local") && refusal.hint.starts_with("listen on [::]"), "{refusal}");
        }
        assert_eq!("[::]".parse::<PortalAddress>().expect("all").to_string(), "[::]:3260");
    }

    #[test]
    fn portal_address_has_the_port_of_iscsi_unless_it_names_one() {
        let written = |text: &str| text.parse::<PortalAddress>().map(|address| address.to_string()).ok();
        assert_eq!(written("10.0.0.1").as_deref(), Some("10.0.0.1:3260"));
        assert_eq!(written("[fd00::1]:99").as_deref(), Some("[fd00::1]:99"));
        assert_eq!(written("fd00::1"), written("[fd00::1]"));
        assert_eq!(written("nas.example"), None);
    }

    #[test]
    fn portal_settings_are_read_as_they_are_written() {
        let mut policy = PortalPolicy::default();
        for (key, value) in [("role", "data"), ("group", "7"), ("weight", "10"), ("advertise", "san.example.com:99")] {
            policy.set(key, value).expect("a setting");
        }
        let advertise = Some("san.example.com:99".parse().expect("a name"));
        assert_eq!(policy, PortalPolicy { role: PortalRole::Data, tag: 7, weight: 10, drained: false, advertise });
        let mut again = PortalPolicy::default();
        policy.settings().into_iter().for_each(|(key, value)| again.set(key, &value).expect("as it was written"));
        assert_eq!(again, policy);
        let listens = "10.0.0.1:3260".parse().expect("an address");
        assert_eq!(again.for_hosts(listens), "san.example.com:99");
        again.set("advertise", "off").expect("a setting");
        assert_eq!(again.for_hosts(listens), "10.0.0.1:3260");
        for (key, value) in [
            ("role", "back"),
            ("group", "0"),
            ("group", "65536"),
            ("weight", "1001"),
            ("advertise", "0.0.0.0"),
            ("speed", "9"),
        ] {
            assert!(again.set(key, value).is_err(), "{key}={value}");
        }
        assert!("bytes".parse() == Ok(Balance::Bytes) && "luck".parse::<Balance>().is_err());
    }
}
