//! Discovery session: lists the targets that a portal offers to an initiator, and their addresses.

use crate::checks::text;
use crate::session::{LoginOutcome, Session};
use crate::test_target::PATIENCE;
use crate::{Finding, TestTarget};
use iscsi::IscsiName;
use iscsi::login::InitiatorAuth;
use std::time::Duration;

/// Target found by discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// iSCSI name of the target.
    pub name: String,
    /// Portals of the target, `HOST:PORT`.
    pub addresses: Vec<String>,
}

/// Error of a discovery: a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotDiscovered(String);

/// Returns the targets that `portal`, `HOST:PORT`, offers to `initiator` without authentication.
///
/// *Errors*: the portal is not reachable, or the login is refused.
pub fn discover(portal: &str, initiator: &IscsiName) -> Result<Vec<Discovered>, NotDiscovered> {
    let aim = TestTarget {
        portal: portal.to_owned(),
        // A placeholder: a discovery session has no TargetName, which is removed below.
        target: initiator.clone(),
        lun: 0,
        initiator: initiator.clone(),
        auth: InitiatorAuth::None,
        listen: Duration::ZERO,
        patience: PATIENCE,
    };
    // Without a TargetName the session is one for discovery, in which SendTargets=All is allowed (RFC 7143 Appendix C).
    let told = match Session::enter(&aim, |config| config.target_name = None) {
        Ok(LoginOutcome::In(mut session)) => text(&mut session, "SendTargets=All\0"),
        Ok(LoginOutcome::Refused(status)) => Err(Finding::Untried(format!("the login is refused: {status}"))),
        Ok(LoginOutcome::Closed) => Err(Finding::Untried("it closes the connection".to_owned())),
        Err(finding) => Err(finding),
    };
    told.map(|told| targets_of(&told)).map_err(|finding| NotDiscovered(finding.to_string()))
}

/// Parses a SendTargets answer: each TargetName is followed by its TargetAddress keys (RFC 7143 §4.3).
fn targets_of(told: &str) -> Vec<Discovered> {
    let mut targets: Vec<Discovered> = Vec::new();
    for (key, value) in told.split('\0').filter_map(|pair| pair.split_once('=')) {
        match (key, targets.last_mut()) {
            ("TargetName", _) => targets.push(Discovered { name: value.to_owned(), addresses: Vec::new() }),
            ("TargetAddress", Some(target)) => {
                // The portal group tag follows the comma.
                let address = value.rsplit_once(',').map_or(value, |(address, _)| address);
                target.addresses.push(address.to_owned());
            }
            _ => {}
        }
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_with_the_addresses_behind_their_names() {
        let told = "TargetName=iqn.a\0TargetAddress=10.0.0.1:3260,1\0TargetAddress=[::1]:3261,2\0TargetName=iqn.b\0";
        let target = |name: &str, addresses: &[&str]| Discovered {
            name: name.to_owned(),
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        };
        assert_eq!(targets_of(told), [target("iqn.a", &["10.0.0.1:3260", "[::1]:3261"]), target("iqn.b", &[])]);
        assert!(discover("127.0.0.1:1", &IscsiName::parse("iqn.2026-11.x:a").expect("a name")).is_err());
    }
}
