//! Logins that were not let in, and what would let them in.

use crate::{Name, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// An initiator that tried to log in and was not let in, perhaps often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedLogin {
    /// Its iSCSI name; none when it never said one that was one.
    pub initiator: Option<String>,
    /// Where it was.
    pub address: IpAddr,
    /// The target that it asked for; none to discover.
    pub target: Option<String>,
    /// Why. What was refused for another reason stands by itself.
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
        /// What has to be put right.
        lack: ProofLack,
    },
    /// It did not prove what discovery asks for.
    DiscoveryNotProven {
        /// What was wrong, as a sentence without its end.
        how: String,
        /// What has to be put right.
        lack: ProofLack,
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
        /// The target, by its name among ours.
        through: Name,
    },
    /// It broke a rule of the protocol.
    Protocol {
        /// The key that did, where one did.
        key: Option<String>,
        /// The rule, as a sentence without its end that says what was so instead, and where it stands.
        rule: String,
    },
    /// It wants to join a session that is not there.
    NoSession,
    /// It wants to join a session that came in through another portal group.
    OtherGroup,
    /// The portal takes no sessions, and it reaches no other one that does.
    NoPortal {
        /// The portal.
        portal: SocketAddr,
    },
    /// There are as many sessions as there may be.
    Full,
    /// Something else, which the status says.
    Other,
}

/// What has to be put right before a proof is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofLack {
    /// CHAP is set up on one side alone.
    Method,
    /// The hash functions that it knows are forbidden.
    Hash,
    /// The name or the secret is another one.
    Secret,
    /// It must ask us to prove ourselves.
    Mutual,
    /// Nothing is set that we could prove.
    MutualSecret,
    /// Its initiator does not speak CHAP as it should.
    Initiator,
}

impl RefusedLogin {
    /// Why, as a sentence without its end.
    #[must_use]
    pub fn reason(&self) -> String {
        let target = self.target.as_deref().unwrap_or("discovery");
        match &self.why {
            RefusedWhy::UnknownInitiator => "no host has this initiator".to_owned(),
            RefusedWhy::WrongAddress { host } => format!("host {host} may not come from {}", self.address),
            RefusedWhy::NotProven { host, how, .. } => format!("it did not prove to be host {host}: {how}"),
            RefusedWhy::DiscoveryNotProven { how, .. } => format!("it did not prove what discovery asks for: {how}"),
            RefusedWhy::HeldBack { host } => {
                format!("too many have failed to prove to be host {host}, or from there; they are judged one at a time")
            }
            RefusedWhy::UnknownTarget => format!("there is no target {target}"),
            RefusedWhy::NothingShown { host, .. } => format!("host {host} sees nothing in target {target}"),
            RefusedWhy::Protocol { key: Some(key), rule } => format!("it broke the protocol with {key}: {rule}"),
            RefusedWhy::Protocol { key: None, rule } => format!("it broke the protocol: {rule}"),
            RefusedWhy::NoSession => "it wants to join a session that is not there".to_owned(),
            RefusedWhy::OtherGroup => "it wants to join a session of another portal group".to_owned(),
            RefusedWhy::NoPortal { portal } => {
                format!("portal {portal} takes no sessions, and it reaches no other one of its group that does")
            }
            RefusedWhy::Full => "there are as many sessions as there may be".to_owned(),
            RefusedWhy::Other => self.status.clone(),
        }
    }

    /// What would let it in, if that is wanted.
    #[must_use]
    pub fn remedy(&self) -> String {
        match &self.why {
            RefusedWhy::UnknownInitiator => {
                format!("blockyard host add NAME --initiator {}", self.initiator.as_deref().unwrap_or("IQN"))
            }
            RefusedWhy::WrongAddress { host } => format!("blockyard host change {host} --add-address {}", self.address),
            RefusedWhy::DiscoveryNotProven { lack, .. } => lack.remedy("blockyard auth discovery", "discovery"),
            RefusedWhy::NotProven { host, lack, .. } => {
                lack.remedy(&format!("blockyard host change {host}"), &format!("host {host}"))
            }
            RefusedWhy::HeldBack { .. } => "wait, and see blockyard event list for who guesses".to_owned(),
            RefusedWhy::UnknownTarget => "log in to one of blockyard target list".to_owned(),
            RefusedWhy::NothingShown { host, through } => {
                format!("blockyard present VOLUME {host} --target {through}, or log out of that target there")
            }
            RefusedWhy::Protocol { key, .. } => remedy_of_key(key.as_deref(), self.address),
            RefusedWhy::NoSession => "let it log in anew, without the number of a session".to_owned(),
            RefusedWhy::OtherGroup => {
                "let all connections of a session come through one of blockyard portal groups".to_owned()
            }
            RefusedWhy::NoPortal { portal } => format!("blockyard portal resume {portal}"),
            RefusedWhy::Full => {
                "end sessions that nobody needs: blockyard session list, blockyard session kill".to_owned()
            }
            RefusedWhy::Other => "see what the daemon's log says at that time".to_owned(),
        }
    }
}

impl ProofLack {
    /// What puts it right, there or here, where `change` changes what `whose` logins prove.
    fn remedy(self, change: &str, whose: &str) -> String {
        match self {
            Self::Method | Self::Secret => {
                format!("set the same CHAP name and secret there and with {change} --chap-secret-file FILE")
            }
            Self::Hash => {
                "let it speak a stronger hash function, or allow everybody weaker ones with blockyard auth weakest"
                    .to_owned()
            }
            Self::Mutual => {
                format!("turn on mutual CHAP there, or let {whose} go without with {change} --mutual offered")
            }
            Self::MutualSecret => {
                format!("turn off mutual CHAP there, or set what we prove with {change} --mutual-secret-file FILE")
            }
            Self::Initiator => "its initiator breaks RFC 7143 §12.1: use another version of it".to_owned(),
        }
    }
}

/// What puts a login right that breaks the protocol.
fn remedy_of_key(key: Option<&str>, address: IpAddr) -> String {
    match key {
        Some("InitiatorName") => "set its initiator's name there, such as iqn.2001-04.com.example:web".to_owned(),
        Some("TargetName") => "log in to one of blockyard target list".to_owned(),
        _ => format!(
            "use another version of its initiator; blockyard session record --from {address} --to FILE shows what it says"
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
            why,
            status: "authorization failure (0202)".to_owned(),
            held_back_ms: 0,
            times: 1,
            last: Timestamp::from_unix(0),
        };
        (login.reason(), login.remedy())
    }

    fn unproven(lack: ProofLack) -> String {
        told(RefusedWhy::NotProven { host: "web".parse().expect("a name"), how: "so".to_owned(), lack }).1
    }

    #[test]
    fn remedy_is_what_lets_in_who_was_refused_and_nobody_loses_by_it() {
        let host = || "db".parse::<Name>().expect("a name");
        let address = told(RefusedWhy::WrongAddress { host: host() }).1;
        assert_eq!(address, "blockyard host change db --add-address 127.0.0.1", "others may come as before");
        let through = "second".parse().expect("a name");
        let shown = told(RefusedWhy::NothingShown { host: host(), through }).1;
        assert!(shown.starts_with("blockyard present VOLUME db --target second"), "{shown}");
        assert!(unproven(ProofLack::Mutual).contains("turn on mutual CHAP there"));
        assert!(unproven(ProofLack::Mutual).contains("blockyard host change web --mutual offered"));
        assert!(unproven(ProofLack::Hash).contains("blockyard auth weakest"));
        assert!(unproven(ProofLack::Secret).contains("--chap-secret-file"));
        assert!(unproven(ProofLack::MutualSecret).contains("--mutual-secret-file"));
    }

    #[test]
    fn broken_rule_is_told_with_its_key_and_what_to_do() {
        let rule = || "a key came twice in one login (RFC 7143 §6.3)".to_owned();
        let (reason, remedy) = told(RefusedWhy::Protocol { key: Some("HeaderDigest".to_owned()), rule: rule() });
        assert_eq!(reason, "it broke the protocol with HeaderDigest: a key came twice in one login (RFC 7143 §6.3)");
        assert!(remedy.contains("session record --from 127.0.0.1"), "{remedy}");
        let (_, remedy) = told(RefusedWhy::Protocol { key: Some("InitiatorName".to_owned()), rule: rule() });
        assert!(remedy.contains("initiator's name"), "{remedy}");
    }
}
