//! Queries about sessions and portals.

use super::{IscsiFront, reservations};
use crate::access::AccessView;
use crate::nexus::{NexusName, isid_text};
use crate::registry::Entry;
use model::{
    ConnectionState, Order, PortalReport, PortalState, Refusal, Report, SessionActivity, SessionKind, SessionReport,
    SessionReservation,
};
use shard::World;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

impl<W: World> IscsiFront<W> {
    /// Executes a query or an order about sessions, captures, traces and portals.
    pub(super) async fn answer(&self, order: &Order) -> Result<Report, Refusal> {
        Ok(match order {
            Order::Tasks => Report::Tasks(self.task_reports().await),
            Order::Sessions => Report::Sessions(self.session_reports().await),
            Order::Session { id } => Report::Session(Box::new(self.session_detail(*id).await?)),
            Order::EndSession { id, now } => Report::SessionEnd(self.end_session(*id, *now).await?),
            Order::EndConnection { id, cid } => {
                self.end_connection(*id, *cid).await?;
                Report::Done
            }
            Order::Record { what, time } => Report::Recording(self.record(*what, *time)?),
            Order::NextRecorded { recording } => Report::Recorded(self.next_recorded(*recording).await),
            Order::StopRecording { recording } => Report::Recorded(self.stop_recording(*recording).await),
            Order::Trace { volume } => Report::Trace(self.trace(volume).await?),
            Order::StartTrace { volume, commands } => Report::Trace(self.start_trace(volume, *commands).await?),
            Order::TakeTrace { volume } => Report::Traced(Box::new(self.take_trace(volume).await?)),
            Order::StopTrace { volume } => Report::Trace(self.stop_trace(volume).await?),
            Order::Portals => Report::Portals(self.portal_reports()),
            Order::RefusedLogins => Report::Refused(self.shard.registry.refused()),
            _ => unreachable!("{order:?} is not for front ends; `Order::is_for_front_ends` decides"),
        })
    }

    async fn session_reports(&self) -> Vec<SessionReport> {
        // The only await comes first, so that sessions and snapshot are of one instant.
        let roles = self.reservation_roles().await;
        let view = self.shard.access.borrow().clone();
        let now = self.shard.world.now();
        self.shard.registry.sessions().iter().map(|(_, entry)| session_report(entry, &view, &roles, now)).collect()
    }

    /// Returns the role of each session in the reservations of volumes.
    pub(super) async fn reservation_roles(&self) -> ReservationRoles {
        let mut roles = ReservationRoles::new();
        for home in 0..self.shard.limits.shards {
            let here = self.shard.call(home, move |shard| async move { reservations::roles(&shard) }).await;
            // A shard that has stopped contributes no roles.
            for (nexus, role) in here.unwrap_or_default() {
                roles.entry(nexus).or_default().push(role);
            }
        }
        roles
    }

    fn portal_reports(&self) -> Vec<PortalReport> {
        let (sessions, view) = (self.shard.registry.sessions(), self.shard.access.borrow().clone());
        let count = |address| sessions.iter().filter(|(_, entry)| entry.came_through(address)).count();
        self.portals
            .borrow()
            .iter()
            .map(|(&address, portal)| PortalReport {
                address,
                also_ipv4: portal.also_ipv4,
                policy: view.policy_at(address),
                state: match self.links.borrow().missing_at(address.ip()) {
                    Some(why) => PortalState::NoLink { reason: why.to_string() },
                    None => PortalState::Open,
                },
                sessions: u32::try_from(count(address)).unwrap_or(u32::MAX),
            })
            .collect()
    }
}

/// Roles of nexuses in the reservations of volumes.
pub(super) type ReservationRoles = BTreeMap<NexusName, Vec<SessionReservation>>;

pub(super) fn session_activity(entry: &Entry) -> SessionActivity {
    SessionActivity {
        id: u32::from(entry.tsih),
        host: entry.host.parse().ok(),
        initiator: entry.nexus.initiator.clone(),
        address: entry.peer,
        portal: entry.portal,
        commands: entry.counters.commands.load(Relaxed),
        read_bytes: entry.counters.read_bytes.load(Relaxed),
        written_bytes: entry.counters.written_bytes.load(Relaxed),
        took: entry.counters.latencies.took(),
    }
}

pub(super) fn session_report(
    entry: &Entry,
    view: &AccessView,
    roles: &ReservationRoles,
    now: shard::Time,
) -> SessionReport {
    let target = Some(entry.nexus.target.clone()).filter(|name| !name.is_empty());
    let host = view.host(&entry.host);
    let luns = match (target.as_deref().and_then(|name| view.target_of(name)), host) {
        (Some(target), Some(host)) => view.luns(target, host, view.policy_at(entry.portal).tag).into_keys().collect(),
        _ => Vec::new(),
    };
    let proven = entry.authentication.as_ref();
    let mut open = entry.connections.iter().filter(|connection| connection.state == ConnectionState::Open);
    // Without an open connection, the first lost one is described.
    let first = open.next().or(entry.connections.first());
    SessionReport {
        id: u32::from(entry.tsih),
        kind: if target.is_some() { SessionKind::Normal } else { SessionKind::Discovery },
        initiator: entry.nexus.initiator.clone(),
        isid: isid_text(entry.nexus.isid),
        host: host.map(|host| host.name.clone()),
        address: entry.peer,
        portal: entry.portal,
        target,
        luns,
        reservations: roles.get(&entry.nexus).cloned().unwrap_or_default(),
        header_digest: first.is_some_and(|connection| connection.header_digest),
        data_digest: first.is_some_and(|connection| connection.data_digest),
        authentication: proven.map_or_else(|| "none".to_owned(), |proven| format!("CHAP {}", proven.algorithm)),
        chap_user: proven.map(|proven| proven.name.clone()),
        mutual: proven.is_some_and(|proven| proven.mutual),
        connections: entry.connections.clone(),
        negotiated: entry.negotiated.clone(),
        commands: entry.counters.commands.load(Relaxed),
        read_bytes: entry.counters.read_bytes.load(Relaxed),
        written_bytes: entry.counters.written_bytes.load(Relaxed),
        connected_seconds: now.since(entry.since).as_secs(),
    }
}
