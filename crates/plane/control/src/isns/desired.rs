//! Desired iSNS registration, derived from the state and the open portals.

use super::resolved;
use crate::isns::IsnsRegistration;
use isns::{Entity, Portal, Target};
use model::{IsnsServer, PortalPolicy, PortalState, Refusal, is_shown_in, only_fronts};
use std::net::SocketAddr;
use std::time::Duration;

/// Desired registration with one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredRegistration {
    pub(super) server: IsnsServer,
    identifier: String,
    portals: Vec<Portal>,
    targets: Vec<Target>,
}

impl IsnsRegistration {
    /// Returns the entity identifier: the node's name, and the first part of its UUID, which survives a rename.
    pub(super) fn entity_identifier(&self) -> String {
        let name = &self.core.settings.node;
        let id = self.core.state().node.map(|id| id.to_string()).unwrap_or_default();
        match id.split_once('-') {
            Some((id, _)) => format!("{name}.{id}"),
            None => name.to_string(),
        }
    }

    /// Returns the targets with presentations, and the portals that are announced to hosts and lead to one of
    /// these targets. Which host may discover which target is decided by the server's discovery domains; what
    /// it sees there, by this array.
    pub(super) async fn desired(&self, server: IsnsServer) -> Result<DesiredRegistration, Refusal> {
        let open = self.portals.list().await?.into_iter();
        let open = open.filter(|portal| portal.state == PortalState::Open && !portal.policy.drained);
        let mut portals: Vec<(SocketAddr, PortalPolicy)> = open.map(|portal| (portal.address, portal.policy)).collect();
        // Where front portals exist, only these are announced; they redirect sessions to the others.
        only_fronts(&mut portals);
        let mut portals: Vec<Portal> =
            portals.into_iter().filter_map(|(listens, policy)| portal_of(listens, &policy)).collect();
        let state = self.core.state();
        let targets = state.targets.iter().filter_map(|(name, record)| {
            let shown = || state.presentations.iter().filter(|shown| shown.target == *name);
            let shows = |tag: u16| shown().any(|shown| is_shown_in(&shown.groups, tag));
            let tags: Vec<u16> = portals.iter().map(|portal| portal.tag).filter(|&tag| shows(tag)).collect();
            (!tags.is_empty()).then(|| Target { name: record.iqn.to_string(), tags })
        });
        let targets: Vec<Target> = targets.collect();
        // A portal without any target would only mislead hosts.
        portals.retain(|portal| targets.iter().any(|target| target.tags.contains(&portal.tag)));
        Ok(DesiredRegistration { server, identifier: self.entity_identifier(), portals, targets })
    }
}

/// Returns the portal as hosts reach it; `None` for one advertised by a DNS name, because iSNS knows IP
/// addresses alone (RFC 4171 §6.3.1).
fn portal_of(listens: SocketAddr, policy: &PortalPolicy) -> Option<Portal> {
    let address = match &policy.advertise {
        Some(advertise) => advertise.socket_address(listens)?,
        None => listens,
    };
    Some(Portal { address, tag: policy.tag })
}

impl DesiredRegistration {
    /// Returns true when there is nothing to register.
    pub(super) fn is_empty(&self) -> bool {
        self.portals.is_empty() || self.targets.is_empty()
    }

    /// Returns the entity for a server that is reached from `local`.
    pub(super) fn entity(&self, local: SocketAddr, period: Duration) -> Entity {
        let resolve = |portal: &Portal| Portal { address: resolved(portal.address, local), ..*portal };
        let mut portals: Vec<Portal> = self.portals.iter().map(resolve).collect();
        // A wildcard resolves to the local address, which may be a portal of its own as well.
        portals.sort_by_key(|portal| (portal.address, portal.tag));
        portals.dedup_by_key(|portal| portal.address);
        Entity { identifier: self.identifier.clone(), period, portals, targets: self.targets.clone() }
    }
}
