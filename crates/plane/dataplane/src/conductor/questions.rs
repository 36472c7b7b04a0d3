//! Questions: how everything is, now.

use super::Conductor;
use crate::access::AccessView;
use crate::nexus::{NexusName, isid_text};
use crate::registry::Entry;
use crate::unit;
use model::{
    Activity, ConnectionState, EngineReport, Order, PortalReport, PortalState, Refusal, Report, SessionActivity,
    SessionKind, SessionReport, SessionReservation,
};
use shard::World;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

impl<W: World> Conductor<W> {
    pub(super) async fn answer(&self, order: &Order) -> Result<Report, Refusal> {
        Ok(match order {
            Order::Status => Report::Engine(self.engine_report()),
            Order::Disks => Report::Disks(self.disk_reports().await),
            Order::InspectDisk { path, remote } => Report::Disk(self.inspect_disk(path, remote.as_deref()).await?),
            Order::Pools => Report::Pools(self.pool_reports().await),
            Order::Volumes => Report::Volumes(self.volume_reports().await),
            Order::HeldVolumes => Report::Volumes(self.held_volumes().await),
            Order::VolumeNames => Report::VolumeNames(self.volume_names()),
            Order::Volume { volume } => Report::Volumes(self.volume_report(volume).await.into_iter().collect()),
            Order::Snapshots => Report::Snapshots(self.snapshot_reports().await),
            Order::CheckPool { pool, repair, accept_loss } => {
                let (pool, repair, accept_loss) = (pool.clone(), *repair, *accept_loss);
                let home = self.pool_home(&pool)?.home;
                Report::Check(self.at(home, move |seat| crate::pool::check(seat, pool, repair, accept_loss)).await?)
            }
            Order::DumpPool { pool } => {
                let pool = pool.clone();
                let home = self.pool_home(&pool)?.home;
                Report::Text(self.at(home, move |seat| crate::pool::dump(seat, pool)).await?)
            }
            Order::Activity => Report::Activity(self.activity().await),
            Order::Tasks => Report::Tasks(self.task_reports().await),
            Order::Sessions => Report::Sessions(self.session_reports().await),
            Order::Session { id } => Report::Session(Box::new(self.session_detail(*id).await?)),
            Order::EndSession { id, now } => Report::SessionEnd(self.end_session(*id, *now).await?),
            Order::EndConnection { id, cid } => {
                self.end_connection(*id, *cid).await?;
                Report::Done
            }
            Order::Latencies { volume } => Report::Latencies(self.latencies(volume).await?),
            Order::Record { what, time } => Report::Recording(self.record(*what, *time)?),
            Order::NextRecorded { recording } => Report::Recorded(self.next_recorded(*recording).await),
            Order::StopRecording { recording } => Report::Recorded(self.stop_recording(*recording).await),
            Order::Trace { volume } => Report::Trace(self.trace(volume).await?),
            Order::StartTrace { volume, commands } => Report::Trace(self.start_trace(volume, *commands).await?),
            Order::TakeTrace { volume } => Report::Traced(Box::new(self.take_trace(volume).await?)),
            Order::StopTrace { volume } => Report::Trace(self.stop_trace(volume).await?),
            Order::SetReadCache { bytes } => {
                let of_shard = self.seat.limits.read_cache_bytes_of(*bytes);
                for home in 0..self.seat.limits.shards {
                    self.seat.call(home, move |seat| async move { seat.cache.reads.set_bytes_max(of_shard) }).await;
                }
                Report::Done
            }
            Order::Portals => Report::Portals(self.portal_reports()),
            Order::RefusedLogins => Report::Refused(self.seat.registry.refused()),
            Order::NextEvents => Report::Events(self.seat.events.next().await),
            _ => unreachable!("{order:?} is no question; `is_question` decides"),
        })
    }

    fn engine_report(&self) -> EngineReport {
        let limits = &self.seat.limits;
        let totals = self.seat.registry.totals();
        EngineReport {
            shards: u32::try_from(limits.shards).unwrap_or(u32::MAX),
            io: self.io.clone(),
            uptime_seconds: self.seat.world.now().since(self.started).as_secs(),
            sessions: u32::try_from(self.seat.registry.count()).unwrap_or(u32::MAX),
            commands: totals.commands,
            read_bytes: totals.read_bytes,
            written_bytes: totals.written_bytes,
            buffer_bytes: block::pool::taken_bytes(),
            buffer_bytes_max: limits.buffer_bytes_max,
        }
    }

    async fn session_reports(&self) -> Vec<SessionReport> {
        let roles = self.reservation_roles().await;
        let view = self.seat.access.borrow().clone();
        let now = self.seat.world.now();
        self.seat.registry.sessions().iter().map(|(_, entry)| session_report(entry, &view, &roles, now)).collect()
    }

    /// What each session is to the reservations of volumes.
    pub(super) async fn reservation_roles(&self) -> ReservationRoles {
        let mut roles = ReservationRoles::new();
        for home in 0..self.seat.limits.shards {
            let here = self.seat.call(home, move |seat| async move { unit::roles(&seat) }).await;
            for (nexus, role) in here.unwrap_or_default() {
                roles.entry(nexus).or_default().push(role);
            }
        }
        roles
    }

    async fn activity(&self) -> Activity {
        let mut volumes = Vec::new();
        for home in 0..self.seat.limits.shards {
            let mut after = None;
            loop {
                let next = self.seat.call(home, move |seat| async move { unit::activities(&seat, after) });
                let next = next.await.unwrap_or_default();
                after = next.last().map(|volume| volume.id);
                let is_last = next.len() < unit::ACTIVITIES_MAX;
                volumes.extend(next);
                if is_last {
                    break;
                }
            }
        }
        let sessions = self.seat.registry.sessions();
        Activity {
            volumes,
            disks: self.disk_counters().await.into_iter().collect(),
            sessions: sessions.iter().map(|(_, entry)| session_activity(entry)).collect(),
        }
    }

    fn portal_reports(&self) -> Vec<PortalReport> {
        let (sessions, view) = (self.seat.registry.sessions(), self.seat.access.borrow().clone());
        let count = |address| sessions.iter().filter(|(_, entry)| entry.came_through(address)).count();
        self.portals
            .borrow()
            .iter()
            .map(|(&address, portal)| PortalReport {
                address,
                also_ipv4: portal.also_ipv4,
                policy: view.policy_at(address),
                state: match self.links.borrow().missing_at(address.ip()) {
                    Some(why) => PortalState::NoLink { why: why.to_string() },
                    None => PortalState::Open,
                },
                sessions: u32::try_from(count(address)).unwrap_or(u32::MAX),
            })
            .collect()
    }
}

/// What sessions are to the reservations of volumes.
pub(super) type ReservationRoles = BTreeMap<NexusName, Vec<SessionReservation>>;

fn session_activity(entry: &Entry) -> SessionActivity {
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
