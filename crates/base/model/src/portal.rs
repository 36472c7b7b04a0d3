//! Portals: addresses that accept sessions, and the distribution of sessions over them.

use crate::number::unsigned;
use crate::setting::{Settings, or_off};
use crate::{Advertised, ParseRefusal, Refusal, code};
use bounded::quoted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Default port of iSCSI. *Source*: RFC 7143 §13.8, TargetAddress.
pub const ISCSI_PORT: u16 = 3260;

/// Address of a portal. The port defaults to 3260.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(extend("examples" = ["10.0.0.1:3260", "[fd00::1]:3260"]))]
pub struct PortalAddress(pub SocketAddr);

/// Portal: an address that accepts sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Address to listen on. For a wildcard address, SendTargets reports the address that the initiator has reached.
    pub address: SocketAddr,
    /// Settings of the portal.
    pub policy: PortalPolicy,
}

/// Settings of a portal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PortalPolicy {
    /// Role in the distribution of sessions over portals.
    pub role: PortalRole,
    /// Target portal group tag, which is also the relative target port identifier of the logical units.
    pub tag: u16,
    /// Weight in the distribution of sessions, relative to other data portals.
    pub weight: u16,
    /// True if the portal is drained: its sessions were asked to log out, and new ones are redirected.
    pub drained: bool,
    /// Address under which hosts reach the portal, if it differs from the listening address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advertise: Option<Advertised>,
}

/// Role of a portal in the distribution of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PortalRole {
    /// Reported in discovery; sessions stay where they log in.
    #[default]
    Plain,
    /// Reported in discovery; each session is redirected to a data portal. If none is reachable, the session stays.
    Front,
    /// Target of redirection; not reported in discovery to hosts that can reach a front portal.
    Data,
}

/// Metric by which a data portal is selected for a session. Earlier criteria are: the fewest sessions of this initiator
/// to this target, then the network of the initiator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Balance {
    /// Fewest sessions relative to the weight.
    #[default]
    Sessions,
    /// Fewest bytes in the last seconds relative to the weight.
    Bytes,
}

/// Settings of a portal: names and permitted values.
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
    /// Sets `key` to `value`.
    ///
    /// *Errors*: unknown setting, or invalid value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Refusal> {
        let wrong = SETTINGS.wrong(key, value)?;
        // From 1: SPC-4 reserves the relative target port identifier 0, which the tag also is.
        let number = |most: u16| unsigned(value).filter(|number| (1..=most).contains(number));
        match key {
            "role" => self.role = value.parse().map_err(|()| wrong())?,
            "group" => self.tag = number(u16::MAX).ok_or_else(wrong)?,
            "advertise" => self.advertise = or_off(value, |text| text.parse().ok()).ok_or_else(wrong)?,
            // `SETTINGS.wrong` has rejected all unknown keys, so this is `weight`.
            _ => self.weight = number(1000).ok_or_else(wrong)?,
        }
        Ok(())
    }

    /// Returns all settings with their values, in the form that [`PortalPolicy::set`] accepts.
    #[must_use]
    pub fn settings(&self) -> [(&'static str, String); 4] {
        let advertise = self.advertise.as_ref().map_or_else(|| "off".to_owned(), ToString::to_string);
        SETTINGS.with([self.role.to_string(), self.tag.to_string(), self.weight.to_string(), advertise])
    }

    /// Returns the address for hosts, `HOST:PORT`, of the portal that listens on `listens`.
    #[must_use]
    pub fn for_hosts(&self, listens: SocketAddr) -> String {
        // The display form of a socket address has the brackets that RFC 7143 §13.8 requires for IPv6.
        self.advertise.as_ref().map_or_else(|| listens.to_string(), |advertise| advertise.for_hosts(listens))
    }

    /// Returns true if sessions may be redirected to it.
    #[must_use]
    pub fn takes_sessions(&self) -> bool {
        // Only data portals are targets: a front portal would redirect the session again.
        self.role == PortalRole::Data && !self.drained
    }
}

impl FromStr for PortalAddress {
    type Err = Refusal;
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let address = address_of(text, ISCSI_PORT);
        // A percent sign introduces the zone of a link-local address.
        if text.contains('%') || address.is_some_and(|address| is_link_local(address.ip())) {
            let message = format!(
                "{} is a link-local address, which is valid on one link only and cannot be reported to hosts",
                quoted(text)
            );
            let hint =
                "listen on [::] to use every address, or assign another address to the interface, such as fd00::1";
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

/// Returns true for an address that is valid only on one link.
fn is_link_local(address: IpAddr) -> bool {
    // IPv4 link-local addresses need no zone and are accepted.
    matches!(address, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

/// Parses an address, with `port` if the text does not contain one.
pub(crate) fn address_of(text: &str, port: u16) -> Option<SocketAddr> {
    // An IPv6 address without a port is accepted with and without brackets.
    let bare = || text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    text.parse().or_else(|_| bare().map(|address| SocketAddr::new(address, port))).ok()
}

impl TryFrom<String> for PortalAddress {
    type Error = ParseRefusal;
    fn try_from(text: String) -> Result<Self, ParseRefusal> {
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

    /// Returns the role as one word.
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
    /// Returns the metric as one word.
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

/// Retains only the front portals if there is one: discovery reports no others to hosts that can reach it.
pub fn only_fronts(portals: &mut Vec<(SocketAddr, PortalPolicy)>) {
    let is_front = |(_, policy): &(SocketAddr, PortalPolicy)| policy.role == PortalRole::Front;
    // Without a front portal, plain and data portals must stay visible, or hosts would discover nothing.
    if portals.iter().any(is_front) {
        portals.retain(is_front);
    }
}

/// State of a portal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PortalReport {
    /// Address on which it listens, with the actual port.
    pub address: SocketAddr,
    /// Settings of the portal.
    #[serde(flatten)]
    pub policy: PortalPolicy,
    /// State of the portal.
    pub state: PortalState,
    /// True if it also accepts IPv4 although its address is an IPv6 address: `[::]`, unless another program has its
    /// port there.
    #[serde(default)]
    pub also_ipv4: bool,
    /// Number of sessions established through it.
    pub sessions: u32,
}

/// State of a portal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PortalState {
    /// Listening.
    Open,
    /// Listening, but not reachable for hosts.
    NoLink {
        /// Reason in words.
        reason: String,
    },
    /// Configured, but not listening.
    Failed {
        /// Reason in words.
        reason: String,
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
            ("group", "+7"),
            ("weight", "1001"),
            ("advertise", "0.0.0.0"),
            ("speed", "9"),
        ] {
            assert!(again.set(key, value).is_err(), "{key}={value}");
        }
        assert!("bytes".parse() == Ok(Balance::Bytes) && "luck".parse::<Balance>().is_err());
    }
}
