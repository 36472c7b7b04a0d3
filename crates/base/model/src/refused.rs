//! Rejected logins, and their remedies.

use crate::{Name, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Rejected login of an initiator, possibly repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedLogin {
    /// iSCSI name of the initiator; absent if it never sent a valid one.
    pub initiator: Option<String>,
    /// Address of the initiator.
    pub address: IpAddr,
    /// Requested target; absent for discovery.
    pub target: Option<String>,
    /// Reason. Rejections for different reasons are separate entries.
    #[serde(alias = "why")]
    pub reason: RefusedWhy,
    /// Login status that was returned: class and detail of RFC 7143 §11.13.5 in words.
    pub status: String,
    /// Delay of the response in milliseconds, after many failures (brute-force protection).
    #[serde(default)]
    #[serde(alias = "held_back_ms")]
    pub delay_ms: u64,
    /// Number of rejections.
    #[serde(alias = "times")]
    pub count: u64,
    /// Time of the latest rejection.
    pub last: Timestamp,
}

/// Reason for the rejection of a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RefusedWhy {
    /// No host has this initiator.
    UnknownInitiator,
    /// The host of the initiator may not log in from this address.
    WrongAddress {
        /// Name of the host.
        host: Name,
    },
    /// Authentication as a host failed.
    #[serde(alias = "not_proven")]
    AuthenticationFailed {
        /// Claimed host.
        host: Name,
        /// Error, as a sentence without a full stop.
        #[serde(alias = "how")]
        error: String,
        /// Required correction.
        #[serde(alias = "lack")]
        cause: ProofLack,
    },
    /// Authentication for discovery failed.
    #[serde(alias = "discovery_not_proven")]
    DiscoveryAuthenticationFailed {
        /// Error, as a sentence without a full stop.
        #[serde(alias = "how")]
        error: String,
        /// Required correction.
        #[serde(alias = "lack")]
        cause: ProofLack,
    },
    /// Throttled: too many failed authentications as this host or from this address, while another attempt was in
    /// progress.
    #[serde(alias = "held_back")]
    Throttled {
        /// Claimed host.
        host: Name,
    },
    /// Unknown target.
    UnknownTarget,
    /// No volume of this target is presented to the host.
    #[serde(alias = "nothing_shown")]
    NoMapping {
        /// Name of the host.
        host: Name,
        /// Name of the target within the array.
        #[serde(alias = "through")]
        target: Name,
    },
    /// Protocol violation.
    Protocol {
        /// Offending key, if there was one.
        key: Option<String>,
        /// Violated rule with its source, as a sentence without a full stop that states the actual value.
        rule: String,
    },
    /// Attempt to join a session that does not exist.
    NoSession,
    /// Attempt to join a session of another portal group.
    OtherGroup,
    /// The portal does not accept sessions, and the initiator cannot be redirected to another one that does.
    NoPortal {
        /// Address of the portal.
        portal: SocketAddr,
    },
    /// The limit of sessions is reached.
    Full,
    /// Other reason; see the status.
    Other,
}

/// Correction that is required for a successful authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofLack {
    /// CHAP is configured on one side only.
    Method,
    /// All hash functions that the initiator offers are forbidden.
    Hash,
    /// Name or secret differs.
    Secret,
    /// The initiator must request mutual CHAP.
    Mutual,
    /// No secret is configured for mutual CHAP.
    MutualSecret,
    /// The initiator violates the CHAP protocol.
    Initiator,
}

impl RefusedLogin {
    /// Returns the reason as a sentence without a full stop.
    #[must_use]
    pub fn reason(&self) -> String {
        // A login without a target name is a discovery session.
        let target = self.target.as_deref().unwrap_or("discovery");
        match &self.reason {
            RefusedWhy::UnknownInitiator => "unknown initiator".to_owned(),
            RefusedWhy::WrongAddress { host } => format!("address {} not allowed for host {host}", self.address),
            RefusedWhy::AuthenticationFailed { host, error: how, .. } => {
                format!("authentication as host {host} failed: {how}")
            }
            RefusedWhy::DiscoveryAuthenticationFailed { error: how, .. } => {
                format!("discovery authentication failed: {how}")
            }
            RefusedWhy::Throttled { host } => {
                format!("logins throttled: too many failed authentications as host {host} or from this address")
            }
            RefusedWhy::UnknownTarget => format!("unknown target {target}"),
            RefusedWhy::NoMapping { host, .. } => format!("no volume presented to host {host} through target {target}"),
            RefusedWhy::Protocol { key: Some(key), rule } => format!("protocol error: {key}: {rule}"),
            RefusedWhy::Protocol { key: None, rule } => format!("protocol error: {rule}"),
            RefusedWhy::NoSession => "session to join does not exist".to_owned(),
            RefusedWhy::OtherGroup => "session to join belongs to another portal group".to_owned(),
            RefusedWhy::NoPortal { portal } => {
                format!("portal {portal} accepts no sessions and no other portal of its group is reachable")
            }
            RefusedWhy::Full => "session limit reached".to_owned(),
            // No fact beyond the status is known, so the status is the reason.
            RefusedWhy::Other => self.status.clone(),
        }
    }

    /// Returns the correction that would permit the login, if it is legitimate.
    #[must_use]
    pub fn remedy(&self) -> String {
        match &self.reason {
            RefusedWhy::UnknownInitiator => {
                // The text is a command to copy, so it contains the actual name where one was sent.
                format!("blockyard host add NAME --initiator {}", self.initiator.as_deref().unwrap_or("IQN"))
            }
            // Adds the address: replacing the list would lock out logins that work today.
            RefusedWhy::WrongAddress { host } => format!("blockyard host change {host} --add-address {}", self.address),
            RefusedWhy::DiscoveryAuthenticationFailed { cause: lack, .. } => {
                lack.remedy("blockyard auth discovery", "discovery")
            }
            RefusedWhy::AuthenticationFailed { host, cause: lack, .. } => {
                lack.remedy(&format!("blockyard host change {host}"), &format!("host {host}"))
            }
            RefusedWhy::Throttled { .. } => {
                "wait, and look for the source of the failed attempts with blockyard event list".to_owned()
            }
            RefusedWhy::UnknownTarget => "log in to a target listed by blockyard target list".to_owned(),
            RefusedWhy::NoMapping { host, target: through } => {
                format!("blockyard present VOLUME {host} --target {through}, or log out of the target on the host")
            }
            RefusedWhy::Protocol { key, .. } => remedy_of_key(key.as_deref(), self.address),
            RefusedWhy::NoSession => "log in again with a new session (TSIH 0)".to_owned(),
            RefusedWhy::OtherGroup => {
                "use portals of one group for all connections of a session; see blockyard portal groups".to_owned()
            }
            RefusedWhy::NoPortal { portal } => format!("blockyard portal resume {portal}"),
            RefusedWhy::Full => "end unused sessions: blockyard session list, blockyard session kill".to_owned(),
            RefusedWhy::Other => "check the log of the daemon at that time".to_owned(),
        }
    }
}

impl ProofLack {
    /// Returns the correction, on the initiator or here. `change` is the command that changes the CHAP settings of
    /// `whose` logins.
    fn remedy(self, change: &str, whose: &str) -> String {
        match self {
            // Equal credentials on both sides correct either case.
            Self::Method | Self::Secret => {
                format!("set the same CHAP name and secret on the initiator and with {change} --chap-secret-file FILE")
            }
            Self::Hash => {
                "enable a stronger CHAP hash function on the initiator, or permit weaker ones for all hosts with blockyard auth weakest"
                    .to_owned()
            }
            Self::Mutual => {
                format!("enable mutual CHAP on the initiator, or make it optional for {whose} with {change} --mutual offered")
            }
            Self::MutualSecret => {
                format!("disable mutual CHAP on the initiator, or set the secret of the array with {change} --mutual-secret-file FILE")
            }
            Self::Initiator => "the initiator violates RFC 7143 §12.1: use another version of it".to_owned(),
        }
    }
}

/// Returns the correction for a login that violates the protocol.
fn remedy_of_key(key: Option<&str>, address: IpAddr) -> String {
    match key {
        Some("InitiatorName") => {
            "set a valid initiator name on the host, such as iqn.2001-04.com.example:web".to_owned()
        }
        Some("TargetName") => "log in to a target listed by blockyard target list".to_owned(),
        // All other violations are defects of the initiator, which no setting corrects.
        _ => format!(
            "use another version of the initiator; blockyard session record --from {address} --to FILE records its traffic"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(why: RefusedWhy) -> (String, String) {
        let login = RefusedLogin {
            initiator: Some("iqn.2001-04.com.example:web".to_owned()),
            address: "127.0.0.1".parse().expect("an address"),
            target: Some("iqn.2026-11.io.blockyard:vm.second".to_owned()),
            reason: why,
            status: "authorization failure (0202)".to_owned(),
            delay_ms: 0,
            count: 1,
            last: Timestamp::from_unix(0),
        };
        (login.reason(), login.remedy())
    }

    fn unproven(lack: ProofLack) -> String {
        told(RefusedWhy::AuthenticationFailed {
            host: "web".parse().expect("a name"),
            error: "so".to_owned(),
            cause: lack,
        })
        .1
    }

    #[test]
    fn remedy_is_what_lets_in_who_was_refused_and_nobody_loses_by_it() {
        let host = || "db".parse::<Name>().expect("a name");
        let address = told(RefusedWhy::WrongAddress { host: host() }).1;
        assert_eq!(address, "blockyard host change db --add-address 127.0.0.1", "others may come as before");
        let through = "second".parse().expect("a name");
        let shown = told(RefusedWhy::NoMapping { host: host(), target: through }).1;
        assert!(shown.starts_with("blockyard present VOLUME db --target second"), "{shown}");
        assert!(unproven(ProofLack::Mutual).contains("enable mutual CHAP on the initiator"));
        assert!(unproven(ProofLack::Mutual).contains("blockyard host change web --mutual offered"));
        assert!(unproven(ProofLack::Hash).contains("blockyard auth weakest"));
        assert!(unproven(ProofLack::Secret).contains("--chap-secret-file"));
        assert!(unproven(ProofLack::MutualSecret).contains("--mutual-secret-file"));
    }

    #[test]
    fn broken_rule_is_told_with_its_key_and_what_to_do() {
        let rule = || "a key came twice in one login (RFC 7143 §6.3)".to_owned();
        let (reason, remedy) = told(RefusedWhy::Protocol { key: Some("HeaderDigest".to_owned()), rule: rule() });
        assert_eq!(reason, "protocol error: HeaderDigest: a key came twice in one login (RFC 7143 §6.3)");
        assert!(remedy.contains("session record --from 127.0.0.1"), "{remedy}");
        let (_, remedy) = told(RefusedWhy::Protocol { key: Some("InitiatorName".to_owned()), rule: rule() });
        assert!(remedy.contains("valid initiator name"), "{remedy}");
    }
}
