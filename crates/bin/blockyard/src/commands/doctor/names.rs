//! Duplicate target names: hosts take two targets of one name for one, and treat their disks as paths to the same disk.

use super::super::CommandContext;
use crate::failure::Failure;
use conform::{Discovered, discover};
use control::{RENAME_TARGET, TargetReport};
use iscsi::IscsiName;
use model::{Finding, PortalReport};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Initiator name of the check. An array that restricts discovery must allow it.
const INITIATOR: &str = "iqn.2026-11.io.blockyard:doctor";

/// Runs discovery at each of `portals`, and compares the names with those of this array; `ours` are its own portals.
pub(super) fn look(desk: &CommandContext, ours: &[PortalReport], portals: &[String]) -> Result<Vec<Finding>, Failure> {
    if portals.is_empty() {
        return Ok(Vec::new());
    }
    let targets: Vec<TargetReport> = desk.client.get("/targets", "targets")?.decode()?;
    let names: BTreeSet<&str> = targets.iter().map(|target| target.iqn.as_str()).collect();
    let own = Own::of(ours);
    let initiator = IscsiName::parse(INITIATOR).expect("our own name is a name");
    Ok(portals.iter().flat_map(|portal| at(portal, &initiator, &names, &own)).collect())
}

/// Addresses that lead to this array.
struct Own {
    portals: BTreeSet<String>,
    /// Addresses of this machine, for portals that listen on every address.
    machine: BTreeSet<(IpAddr, u16)>,
}

impl Own {
    fn of(portals: &[PortalReport]) -> Self {
        let listens = portals.iter().map(|portal| portal.address.to_string());
        // An advertised address (NAT) is our own as well.
        let told = portals.iter().map(|portal| portal.policy.for_hosts(portal.address));
        let everywhere = portals.iter().map(|portal| portal.address).filter(|at| at.ip().is_unspecified());
        let local = uring::addresses().unwrap_or_default();
        let machine = everywhere.flat_map(|at| local.iter().map(move |local| (local.address, at.port())));
        Self { portals: listens.chain(told).collect(), machine: machine.collect() }
    }

    fn has(&self, address: &str) -> bool {
        let is_local = |(ip, port): &(IpAddr, u16)| std::net::SocketAddr::new(*ip, *port).to_string() == address;
        // As text, because a target may be known by a DNS name, which is not resolved here.
        self.portals.contains(address) || self.machine.iter().any(is_local)
    }
}

fn at(portal: &str, initiator: &IscsiName, names: &BTreeSet<&str>, own: &Own) -> Vec<Finding> {
    let subject = format!("portal {portal}");
    // An IPv6 address without brackets has colons, but no port.
    let portal = if portal.parse::<IpAddr>().is_ok() || !portal.contains(':') {
        format!("{portal}:{}", model::ISCSI_PORT)
    } else {
        portal.to_owned()
    };
    let found = match discover(&portal, initiator) {
        Ok(found) => found,
        Err(why) => {
            let fix = format!("check that the address is a portal and that it allows discovery by {INITIATOR}");
            return vec![Finding::warning(subject, format!("discovery failed: {why}"), fix)];
        }
    };
    let twice = duplicates(&portal, &found, names, own);
    if twice.is_empty() {
        return vec![Finding::good(subject, format!("lists {} targets, none with a name of this array", found.len()))];
    }
    let finding = |(name, at): (String, String)| {
        let sentence = format!("is also the name of a target at {at}. Hosts treat both as one target and corrupt data");
        Finding::bad(format!("target {name}"), sentence, RENAME_TARGET)
    };
    twice.into_iter().map(finding).collect()
}

/// Returns the names of this array that are also served elsewhere, with the address.
fn duplicates(portal: &str, found: &[Discovered], names: &BTreeSet<&str>, own: &Own) -> Vec<(String, String)> {
    // iSCSI names are compared in lower case (RFC 3722).
    let is_ours = |target: &&Discovered| names.contains(target.name.to_ascii_lowercase().as_str());
    let elsewhere = |target: &Discovered| {
        let told = target.addresses.iter().find(|address| !own.has(address)).cloned();
        // A target without an address in the answer is at the portal that was asked (RFC 7143 §13.8).
        let asked = (target.addresses.is_empty() && !own.has(portal)).then(|| portal.to_owned());
        told.or(asked).map(|at| (target.name.clone(), at))
    };
    found.iter().filter(is_ours).filter_map(elsewhere).collect()
}
