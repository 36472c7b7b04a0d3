//! Registry of sessions, for all shards. Accessed at login, at logout and by queries, never by a command.

use crate::access::canonical;
use crate::balance::{Balancer, Candidate, Counted, surplus};
use crate::joining_connection::JoiningConnection;
use crate::logins::{Bounds, Logins};
use crate::nexus::{NexusName, SessionId};
use crate::recording::CaptureBuffer;
use engine::{Latencies, Limits, front::SessionTotals};
use iscsi::chap::Authentication;
use iscsi::target::CommandSnapshot;
use model::{Balance, CommandWindow, ConnectionReport, ConnectionState, RefusedLogin};
use shard::Time;
use shard::mailbox::{Receiver, Sender};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use throttle::{Attempt, LoginThrottle, Policy};

/// Statistics of a session: written by its connection task alone, read by reports.
#[derive(Default)]
pub struct Counters {
    /// Commands answered.
    pub commands: AtomicU64,
    /// Data-in bytes sent.
    pub read_bytes: AtomicU64,
    /// Data-out bytes received.
    pub written_bytes: AtomicU64,
    /// Latency histograms of commands.
    pub latencies: Latencies,
}

impl Counters {
    /// Counts a completed command.
    pub fn count(&self, read_bytes: u64, written_bytes: u64) {
        // Single writer: a load and a store are cheaper than an atomic addition.
        let add = |counter: &AtomicU64, n: u64| counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        add(&self.commands, 1);
        add(&self.read_bytes, read_bytes);
        add(&self.written_bytes, written_bytes);
    }
}

/// Adds the counters of a session to `totals`.
fn add(totals: &mut SessionTotals, counters: &Counters) {
    totals.commands += counters.commands.load(Ordering::Relaxed);
    totals.read_bytes += counters.read_bytes.load(Ordering::Relaxed);
    totals.written_bytes += counters.written_bytes.load(Ordering::Relaxed);
}

/// Registry entry of a session.
#[derive(Clone)]
pub struct Entry {
    /// Nexus of the session.
    pub nexus: NexusName,
    /// Name of the host that the access table assigns to the initiator; empty if none.
    pub host: String,
    /// Address of the initiator on the first open connection.
    pub peer: SocketAddr,
    /// Portal of that connection.
    pub portal: SocketAddr,
    /// True when the session was redirected there and may be redirected again.
    pub was_redirected: bool,
    /// Connections of the session.
    pub connections: Vec<ConnectionReport>,
    /// Shard on which the session runs.
    pub shard: usize,
    /// TSIH, the target's part of the session identifier.
    pub tsih: u16,
    /// Result of CHAP; `None` without authentication.
    pub authentication: Option<Authentication>,
    /// Negotiated keys, formatted for reports.
    pub negotiated: BTreeMap<String, String>,
    /// Time of the login.
    pub since: Time,
    /// Statistics of the session.
    pub counters: Arc<Counters>,
    /// Channel of notices to the connection task.
    pub notices: Sender<Notice>,
}

impl Entry {
    /// True when a connection of the session was accepted by the portal that listens on `portal`, which may be a
    /// wildcard address.
    #[must_use]
    pub fn came_through(&self, portal: SocketAddr) -> bool {
        self.connections.iter().any(|connection| is_at(connection.portal, portal))
    }

    /// True while a connection of the session is open, so that notices can reach the initiator.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.connections.iter().any(|connection| connection.state == ConnectionState::Open)
    }

    /// True for a discovery session.
    #[must_use]
    pub fn is_discovery(&self) -> bool {
        self.nexus.target.is_empty()
    }

    fn counted(&self) -> Counted<'_> {
        let moved = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bytes = moved(&self.counters.read_bytes) + moved(&self.counters.written_bytes);
        Counted { nexus: &self.nexus, portal: canonical(self.portal), bytes }
    }
}

/// True when a connection with the local address `address` was accepted by the portal that listens on `portal`, which
/// may be a wildcard address.
#[must_use]
pub fn is_at(address: SocketAddr, portal: SocketAddr) -> bool {
    address == portal || (portal.ip().is_unspecified() && portal.port() == address.port())
}

/// Notice to a session from other tasks.
pub enum Notice {
    /// End the session. Sent at session reinstatement (RFC 7143 §6.3.5), at shutdown, and by an operator.
    Close {
        /// Dropped when nothing of the session is running any longer.
        gone: Sender<()>,
    },
    /// Add a connection that has logged in to the session.
    Join(Box<JoiningConnection>),
    /// Close the connections that were accepted by a portal.
    PortalClosed {
        /// Address of the portal.
        portal: SocketAddr,
        /// Dropped when nothing of these connections is running any longer.
        gone: Sender<()>,
    },
    /// Ask the initiator to log out and log in again, because the session belongs to another portal. The session is
    /// closed if the initiator does not log out in time.
    RequestLogout {
        /// Time for the logout.
        within: Duration,
    },
    /// Close one connection.
    CloseConnection {
        /// CID of the connection.
        cid: u16,
        /// Dropped when the connection is closed.
        cut: Sender<()>,
    },
    /// Record the connections of the session into a packet capture.
    Record(CaptureBuffer),
    /// Report the command window: ExpCmdSN and MaxCmdSN.
    TellWindow {
        /// Channel for the report.
        tell: Sender<CommandWindow>,
    },
    /// Report the commands in flight.
    TellTasks {
        /// Channel for the report.
        tell: Sender<Vec<CommandSnapshot>>,
    },
    /// Apply the new access table.
    AccessChanged {
        /// Dropped when the session has applied it.
        applied: Sender<()>,
    },
}

/// Table of sessions and of logins in progress. Cheap to clone; clones share the table.
#[derive(Clone)]
pub struct Registry {
    table: Arc<Mutex<Table>>,
    /// Back-off and concurrency limit after failed CHAP logins.
    throttle: LoginThrottle<String>,
}

struct Table {
    /// Reference-counted, so that a query over ten thousand sessions copies no entries.
    sessions: BTreeMap<SessionId, Arc<Entry>>,
    /// TSIHs of logins whose session is not registered yet.
    admitted: BTreeSet<u16>,
    /// Listening addresses of the open portals.
    portals: BTreeSet<SocketAddr>,
    logins: Logins,
    next_session: u64,
    next_tsih: u16,
    /// Counters of ended sessions.
    ended: SessionTotals,
    balancer: Balancer,
    /// Denied logins without a successful login since, oldest first.
    refused: Vec<RefusedLogin>,
    limits: Limits,
}

/// Upper bound of denied logins that are remembered.
const REFUSED_MAX: usize = 256;

/// Slot of a login in progress. Dropping it frees the slot.
pub struct LoginSlot {
    registry: Registry,
    id: u64,
    /// Closes when the login is evicted in favor of others.
    pub ends: Receiver<()>,
}

/// Session number and TSIH of a login. Dropping it frees the TSIH, unless a session has registered with it.
pub struct Admission {
    registry: Registry,
    /// Number of the session.
    pub id: SessionId,
    /// TSIH of the session.
    pub tsih: u16,
}

/// Back-off policy after failed CHAP logins.
const CHAP_BACKOFF: Policy = Policy {
    free_failures: 3,
    first_delay: Duration::from_millis(250),
    max_delay: Duration::from_secs(10),
    of_name_max: 1,
    of_address_max: 4,
    // A host logs in with all of its paths at the same time, so a known one has no concurrency limit.
    known_max: usize::MAX,
    expiry: Duration::from_secs(15 * 60),
    remembered_max: 4096,
};

impl Registry {
    /// Creates an empty registry with the bounds of `limits`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let bounds = Bounds { all: limits.logins_max, per_address: limits.logins_per_address_max };
        let table = Table {
            sessions: BTreeMap::new(),
            admitted: BTreeSet::new(),
            portals: BTreeSet::new(),
            logins: Logins::new(bounds),
            next_session: 1,
            next_tsih: 1,
            ended: SessionTotals::default(),
            balancer: Balancer::default(),
            refused: Vec::new(),
            limits,
        };
        Self { table: Arc::new(Mutex::new(table)), throttle: LoginThrottle::new(CHAP_BACKOFF) }
    }

    /// Reserves a slot for a login from `address`. `None` when the bounds are reached and no other login may be
    /// evicted.
    #[must_use]
    pub fn begin_login(&self, address: IpAddr, now: Time) -> Option<LoginSlot> {
        let (id, ends) = self.lock().logins.begin(address.to_canonical(), now)?;
        Some(LoginSlot { registry: self.clone(), id, ends })
    }

    /// Starts an authentication attempt of `initiator` at `address`. `None` when too many attempts have failed and
    /// another one is in progress.
    #[must_use]
    pub fn begin_authentication(&self, initiator: &str, address: IpAddr, now: Time) -> Option<Attempt<String>> {
        self.throttle.begin(address, &initiator.to_owned(), now.since(Time::default()))
    }

    /// Assigns a session number, and a TSIH that neither a session nor another login uses. `None` when the limit of
    /// sessions is reached.
    #[must_use]
    pub fn admit(&self) -> Option<Admission> {
        let mut table = self.lock();
        // Checked at admission; the session itself is registered at the end of the login.
        if table.sessions.len() >= table.limits.sessions_max {
            return None;
        }
        let id = SessionId(table.next_session);
        table.next_session += 1;
        // The loop ends, because `sessions_max` and `logins_max` together are below the number of handles.
        loop {
            let tsih = table.next_tsih;
            // TSIH 0 is reserved for the login of a new session (RFC 7143 §11.12.6).
            table.next_tsih = table.next_tsih.checked_add(1).unwrap_or(1);
            if !table.sessions.values().any(|session| session.tsih == tsih) && table.admitted.insert(tsih) {
                return Some(Admission { registry: self.clone(), id, tsih });
            }
        }
    }

    /// Marks the portal that listens on `portal` as open or closed.
    pub fn set_open(&self, portal: SocketAddr, is_open: bool) {
        let mut table = self.lock();
        if is_open {
            table.portals.insert(portal)
        } else {
            table.portals.remove(&portal)
        };
    }

    /// True while the portal is open that accepted a connection with the local address `address`.
    #[must_use]
    pub fn is_open(&self, address: SocketAddr) -> bool {
        self.lock().portals.iter().any(|&portal| is_at(address, portal))
    }

    /// Registers a session, and returns the sessions of the same nexus that it replaces (RFC 7143 §6.3.5).
    #[must_use]
    pub fn enter(&self, id: SessionId, mut session: Entry) -> Vec<(SessionId, Arc<Entry>)> {
        let mut table = self.lock();
        let is_it = |refused: &RefusedLogin| {
            let target = refused.target.as_deref().unwrap_or_default();
            refused.initiator.as_ref() == Some(&session.nexus.initiator) && target == session.nexus.target
        };
        // A successful login proves that the earlier cause was corrected.
        table.refused.retain(|refused| !is_it(refused));
        session.was_redirected = table.balancer.arrived(&session.nexus, canonical(session.portal));
        let same = |(_, other): &(&SessionId, &Arc<Entry>)| other.nexus == session.nexus;
        // Replaced sessions stay registered until they have ended and leave by themselves.
        let replaced = table.sessions.iter().filter(same).map(|(&id, other)| (id, other.clone())).collect();
        table.sessions.insert(id, Arc::new(session));
        replaced
    }

    /// Removes a session whose commands have all ended. Its counters stay in the totals.
    pub fn leave(&self, id: SessionId) {
        let mut table = self.lock();
        if let Some(entry) = table.sessions.remove(&id) {
            add(&mut table.ended, &entry.counters);
        }
    }

    /// Selects the portal among `candidates` for a session of `nexus`.
    #[must_use]
    pub fn choose(&self, nexus: &NexusName, candidates: &[Candidate], by: Balance, now: Time) -> Option<SocketAddr> {
        let mut table = self.lock();
        // Split, because the sessions are read while the balancer changes.
        let Table { sessions, balancer, .. } = &mut *table;
        let sessions = counted(sessions);
        balancer.look(candidates, &sessions, now);
        balancer.choose(nexus, candidates, by, &sessions, now)
    }

    /// Returns redirected sessions that should move away from their portal among `candidates`, for an even
    /// distribution.
    #[must_use]
    pub fn surplus(&self, candidates: &[Candidate]) -> Vec<NexusName> {
        let table = self.lock();
        let sent = table.sessions.values().filter(|entry| entry.was_redirected);
        surplus(candidates, &counted(&table.sessions), &sent.map(|entry| &entry.nexus).collect())
    }

    /// Records a denied login. Repetitions with the same cause are counted in one entry.
    pub fn refuse(&self, login: RefusedLogin) {
        let mut table = self.lock();
        let is_it = |known: &RefusedLogin| {
            (&known.initiator, known.address, &known.target, &known.reason)
                == (&login.initiator, login.address, &login.target, &login.reason)
        };
        // A repeated cause moves to the end of the list with its count.
        let known = table.refused.iter().position(is_it).map(|at| table.refused.remove(at));
        // The list is bounded, because anyone can cause denied logins.
        if table.refused.len() >= REFUSED_MAX {
            table.refused.remove(0);
        }
        let times = known.map_or(1, |known| known.count.saturating_add(1));
        table.refused.push(RefusedLogin { count: times, ..login });
    }

    /// Restores denied logins of an earlier run, the latest one first.
    pub fn remember_refused(&self, logins: &[RefusedLogin]) {
        let mut table = self.lock();
        let known = std::mem::take(&mut table.refused);
        // Entries of this run are newer than the restored ones, so they stay at the end.
        table.refused =
            logins.iter().take(REFUSED_MAX.saturating_sub(known.len())).rev().cloned().chain(known).collect();
    }

    /// Returns denied logins without a successful login since, the latest one first.
    #[must_use]
    pub fn refused(&self) -> Vec<RefusedLogin> {
        self.lock().refused.iter().rev().cloned().collect()
    }

    /// Returns the session of `nexus` with the handle `tsih`.
    #[must_use]
    pub fn find(&self, nexus: &NexusName, tsih: u16) -> Option<(SessionId, Arc<Entry>)> {
        let table = self.lock();
        let found = table.sessions.iter().find(|(_, entry)| entry.tsih == tsih && entry.nexus == *nexus);
        found.map(|(&id, entry)| (id, entry.clone()))
    }

    /// Sends a notice to a session, if it still exists.
    pub fn tell(&self, id: SessionId, notice: Notice) {
        if let Some(entry) = self.lock().sessions.get(&id) {
            // A session that is ending does not need the notice.
            let _ = entry.notices.send(notice);
        }
    }

    /// Updates the connections of a session.
    pub fn note_connections(&self, id: SessionId, connections: Vec<ConnectionReport>) {
        // Copies the entry only while a query holds a reference to it.
        if let Some(entry) = self.lock().sessions.get_mut(&id).map(Arc::make_mut) {
            if let Some(first) = connections.iter().find(|connection| connection.state == ConnectionState::Open) {
                (entry.peer, entry.portal) = (first.address, first.portal);
            }
            entry.connections = connections;
        }
    }

    /// Returns the name of the host that is logged in as `id`; empty if the access table assigns none.
    #[must_use]
    pub fn host_of(&self, id: SessionId) -> Option<String> {
        self.lock().sessions.get(&id).map(|session| session.host.clone())
    }

    /// True while the session `id` is registered.
    #[must_use]
    pub fn is_here(&self, id: SessionId) -> bool {
        self.lock().sessions.contains_key(&id)
    }

    /// Returns the counters of all sessions since the start, including ended ones.
    #[must_use]
    pub fn totals(&self) -> SessionTotals {
        let table = self.lock();
        let mut totals = table.ended;
        table.sessions.values().for_each(|entry| add(&mut totals, &entry.counters));
        totals
    }

    /// Number of sessions.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().sessions.len()
    }

    /// Returns all sessions, oldest first.
    #[must_use]
    pub fn sessions(&self) -> Vec<(SessionId, Arc<Entry>)> {
        self.lock().sessions.iter().map(|(&id, session)| (id, session.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No operation leaves the table inconsistent, so a panic of another thread does not invalidate it.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn counted(sessions: &BTreeMap<SessionId, Arc<Entry>>) -> Vec<Counted<'_>> {
    sessions.values().filter(|entry| !entry.is_discovery()).map(|entry| entry.counted()).collect()
}

impl LoginSlot {
    /// Marks the login as having sent a request.
    pub fn asked(&self) {
        self.registry.lock().logins.asked(self.id);
    }

    /// Holds the slot until it is dropped, as a penalty.
    pub fn hold(&self) {
        self.registry.lock().logins.hold(self.id);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.registry.lock().admitted.remove(&self.tsih);
    }
}

impl Drop for LoginSlot {
    fn drop(&mut self) {
        self.registry.lock().logins.end(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Budget;

    fn registry() -> Registry {
        Registry::new(Limits::of(Budget { shards: 1, buffer_bytes: 64 << 20, cache_bytes: 64 << 20 }))
    }

    #[test]
    fn tsih_of_a_login_under_way_is_not_assigned_again() {
        let registry = registry();
        let admit = || registry.admit().expect("there are no sessions");
        let first = admit();
        // The other handles are assigned and freed, up to the one before the first.
        (0..u16::MAX - 1).for_each(|_| drop(admit()));
        let next = admit();
        assert_eq!((first.tsih, next.tsih), (1, 2));
        drop(first);
        (0..u16::MAX - 2).for_each(|_| drop(admit()));
        assert_eq!(admit().tsih, 1, "its login has ended");
    }

    #[test]
    fn portal_is_open_for_the_connections_that_it_accepted_until_it_is_closed() {
        let registry = registry();
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        registry.set_open(address("10.0.0.1:3260"), true);
        registry.set_open(address("0.0.0.0:3261"), true);
        let is_open = |text: &str| registry.is_open(address(text));
        assert!(is_open("10.0.0.1:3260") && is_open("10.0.0.1:3261") && !is_open("10.0.0.2:3260"));
        registry.set_open(address("10.0.0.1:3260"), false);
        assert!(!is_open("10.0.0.1:3260") && is_open("10.0.0.1:3261"));
    }
}
