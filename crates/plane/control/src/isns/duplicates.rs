//! Detection of target names that the iSNS server also lists for another array: hosts take two targets of one
//! name for one, and write to the disks of one what is meant for the other.
//!
//! A storage node name is unique in an iSNS database, so the array that registers second is refused or takes
//! the name over; either way the server lists portals that are not ours.

use super::{RegistrationTask, exchange, resolved};
use crate::isns::IsnsRegistration;
use bounded::quoted;
use isns::{Request, Status};
use model::{IsnsServer, PortalReport, Problem, Refusal, Severity, Subject, SubjectKind, event, first_few};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Advice for a target name that another array uses as well.
pub const RENAME_TARGET: &str =
    "add a target with another name here (blockyard target add), present the volumes through it, and remove this one";

/// Limit on the names in one sentence.
const LISTED_MAX: usize = 3;

/// A target name of ours with a portal of another array.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Duplicate {
    name: String,
    portal: SocketAddr,
    entity: Option<String>,
}

/// Portals through which this array is reached.
struct Own {
    portals: BTreeSet<SocketAddr>,
    /// Ports of portals that listen on every address of this machine.
    wildcards: BTreeSet<u16>,
}

impl Own {
    fn of(portals: &[PortalReport], registered: impl Iterator<Item = SocketAddr>) -> Self {
        let listens = portals.iter().map(|portal| portal.address);
        let told = portals.iter().filter_map(|portal| portal.policy.advertise.as_ref()?.socket_address(portal.address));
        let wildcards = listens.clone().filter(|at| at.ip().is_unspecified()).map(|at| at.port()).collect();
        Self { portals: listens.chain(told).chain(registered).collect(), wildcards }
    }

    fn has(&self, portal: SocketAddr) -> bool {
        // A wildcard portal is reached through every address of this machine.
        self.portals.contains(&portal) || (self.wildcards.contains(&portal.port()) && is_of_this_machine(portal.ip()))
    }
}

/// Returns true for an address that a socket of this machine can bind.
fn is_of_this_machine(ip: IpAddr) -> bool {
    // The kernel binds only addresses of this machine, and port 0 takes any free port; nothing is sent.
    UdpSocket::bind((ip, 0)).is_ok()
}

impl RegistrationTask {
    /// Looks up the names of all targets with presentations. A name that another array has is a problem of the
    /// status until the server no longer lists it; while the server does not answer, the problem stays as it
    /// was.
    pub(super) async fn check_duplicates(&self, server: IsnsServer) {
        let isns = &self.isns;
        let (names, portals) = match isns.names_and_portals().await {
            Ok(found) => found,
            // The data plane is gone, so the daemon ends as well.
            Err(_) => return,
        };
        // Addresses that were registered count as ours, even if a portal has changed since.
        let registered = self.known.iter().flat_map(|(_, entity)| entity.portals.iter().map(|portal| portal.address));
        let own = Own::of(&portals, registered);
        let asker = self.known.as_ref().and_then(|(_, entity)| entity.targets.first()).map(|target| &*target.name);
        let found = find(server.0, asker, &names, &own).await;
        let node = Subject::new(SubjectKind::Node, &isns.core.settings.node);
        match &found {
            Ok(twins) if twins.is_empty() => {
                let sentence =
                    format!("iSNS server {server} no longer has target names of this array for another array");
                isns.notices.settle(event::TARGET_NAME_TAKEN, node, event::TARGET_NAME_FREE, &sentence);
            }
            Ok(twins) => isns.notices.add(event::TARGET_NAME_TAKEN, node, problem(server, twins)),
            Err(why) => tracing::debug!(%server, why, "the server was not asked for targets of the same name"),
        }
        isns.shown().looked = Some(found.map(|_| names.len()));
    }
}

impl IsnsRegistration {
    /// Ends the problem when no server is configured any more.
    pub(super) fn forget_duplicates(&self) {
        let node = Subject::new(SubjectKind::Node, &self.core.settings.node);
        let sentence = "no iSNS server is asked for target names of this array any more";
        self.notices.settle(event::TARGET_NAME_TAKEN, node, event::TARGET_NAME_FREE, sentence);
    }

    async fn names_and_portals(&self) -> Result<(BTreeSet<String>, Vec<PortalReport>), Refusal> {
        let portals = self.portals.list().await?;
        let state = self.core.state();
        // Only targets with presentations are registered, so only their names matter.
        let targets = state.presentations.iter().filter_map(|shown| state.targets.get(&shown.target));
        Ok((targets.map(|record| record.iqn.to_string()).collect(), portals))
    }
}

/// Returns the names that the server lists at portals that are not ours. A server may answer known nodes only,
/// so the query names a registered target, `asker`, or else the target itself as its source.
///
/// *Errors*: the reason of the failure, in words.
async fn find(
    server: SocketAddr,
    asker: Option<&str>,
    names: &BTreeSet<String>,
    own: &Own,
) -> Result<Vec<Duplicate>, String> {
    let mut found = Vec::new();
    if names.is_empty() {
        return Ok(found);
    }
    let mut server = exchange::connect(server).await?;
    let local = server.local_address();
    for name in names {
        let answer = server.ask(Request::Locate { source: asker.unwrap_or(name), name }).await?;
        // The server does not know the name at all.
        if answer.status == Status::NO_SUCH_ENTRY {
            continue;
        }
        if answer.status != Status::SUCCESSFUL {
            return Err(format!("it rejected the query for {name}: {}", answer.status));
        }
        let located = answer.reachable_targets().map_err(|violation| violation.to_string())?;
        let is_other =
            |portal: SocketAddr| !own.has(portal) && !own.portals.iter().any(|&at| resolved(at, local) == portal);
        let other = located.into_iter().find(|it| it.target.eq_ignore_ascii_case(name) && is_other(it.portal));
        if let Some(other) = other {
            let entity = answer.entity().map_err(|violation| violation.to_string())?;
            found.push(Duplicate { name: name.clone(), portal: other.portal, entity });
        }
    }
    Ok(found)
}

fn problem(server: IsnsServer, twins: &[Duplicate]) -> Problem {
    let noun = if twins.len() == 1 { "target" } else { "targets" };
    let places: BTreeMap<SocketAddr, &Option<String>> = twins.iter().map(|twin| (twin.portal, &twin.entity)).collect();
    let place = |(portal, entity): (SocketAddr, &Option<String>)| match entity {
        Some(entity) => format!("{portal} (entity {})", quoted(entity)),
        None => portal.to_string(),
    };
    let places: Vec<String> = places.into_iter().take(LISTED_MAX).map(place).collect();
    Problem {
        severity: Severity::Critical,
        subject: format!("{noun} {}", first_few(twins.iter().map(|twin| &twin.name), LISTED_MAX)),
        state: "registered by another array".to_owned(),
        meaning: format!(
            "iSNS server {server} has the same name at {}; hosts treat both as one target and corrupt data",
            places.join(", ")
        ),
        action: RENAME_TARGET.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn twin(name: &str, portal: &str, entity: Option<&str>) -> Duplicate {
        let portal = portal.parse().expect("an address");
        Duplicate { name: name.to_owned(), portal, entity: entity.map(str::to_owned) }
    }

    #[test]
    fn problem_names_targets_and_where_they_are() {
        let server = "10.0.0.5".parse().expect("a server");
        let one = problem(server, &[twin("iqn.a", "10.0.0.9:3260", Some("other"))]);
        assert_eq!(one.subject, "target iqn.a");
        assert!(
            one.meaning.starts_with("iSNS server 10.0.0.5:3205 has the same name at 10.0.0.9:3260 (entity \"other\");")
        );
        let many = ["iqn.a", "iqn.b", "iqn.c", "iqn.d"].map(|name| twin(name, "10.0.0.9:3260", None));
        let many = problem(server, &many);
        assert_eq!(many.subject, "targets iqn.a, iqn.b, iqn.c and 1 more");
        assert!(many.meaning.contains("at 10.0.0.9:3260;"), "{}", many.meaning);
    }

    #[test]
    fn portal_is_ours_as_it_listens_as_it_is_advertised_and_as_it_was_registered() {
        let portal = |address: &str, advertise: Option<&str>| PortalReport {
            address: address.parse().expect("an address"),
            policy: model::PortalPolicy {
                advertise: advertise.map(|text| text.parse().expect("an address")),
                ..model::PortalPolicy::default()
            },
            state: model::PortalState::Open,
            also_ipv4: false,
            sessions: 0,
        };
        let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        let portals = [portal("10.0.0.1:3260", Some("203.0.113.5:13260")), portal("0.0.0.0:3261", None)];
        let own = Own::of(&portals, std::iter::once(at("10.0.0.7:3261")));
        for ours in ["10.0.0.1:3260", "203.0.113.5:13260", "10.0.0.7:3261", "127.0.0.1:3261"] {
            assert!(own.has(at(ours)), "{ours}");
        }
        for other in ["10.0.0.1:3261", "203.0.113.5:3260", "127.0.0.1:3260", "203.0.113.9:3261"] {
            assert!(!own.has(at(other)), "{other}");
        }
    }
}
