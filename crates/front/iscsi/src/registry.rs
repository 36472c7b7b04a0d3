//! Who is logged in, over all shards. Touched at login, logout and when somebody asks; never by a command.

use crate::access::canonical;
use crate::balance::{Balancer, Candidate, Counted, surplus};
use crate::joiner::Joiner;
use crate::logins::{Bounds, Logins};
use crate::nexus::{NexusName, SessionId};
use crate::recording::Tape;
use engine::{Latencies, Limits, front::SessionTotals};
use iscsi::chap::Authentication;
use iscsi::target::Standing;
use model::{Balance, CommandWindow, ConnectionReport, ConnectionState, RefusedLogin};
use shard::Time;
use shard::mailbox::{Receiver, Sender};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use throttle::{Attempt, LoginThrottle, Policy};

/// What a session counts; read by whoever reports, written by its connection alone.
#[derive(Default)]
pub struct Counters {
    /// Commands answered.
    pub commands: AtomicU64,
    /// Data-in bytes sent.
    pub read_bytes: AtomicU64,
    /// Data-out bytes received.
    pub written_bytes: AtomicU64,
    /// How long commands took.
    pub latencies: Latencies,
}

impl Counters {
    /// Counts one answered command.
    pub fn count(&self, read_bytes: u64, written_bytes: u64) {
        // One writer: a load and a store cost less than a locked addition.
        let add = |counter: &AtomicU64, n: u64| counter.store(counter.load(Ordering::Relaxed) + n, Ordering::Relaxed);
        add(&self.commands, 1);
        add(&self.read_bytes, read_bytes);
        add(&self.written_bytes, written_bytes);
    }
}

/// Adds what a session has counted.
fn add(totals: &mut SessionTotals, counters: &Counters) {
    totals.commands += counters.commands.load(Ordering::Relaxed);
    totals.read_bytes += counters.read_bytes.load(Ordering::Relaxed);
    totals.written_bytes += counters.written_bytes.load(Ordering::Relaxed);
}

/// What is known of a session that is logged in.
#[derive(Clone)]
pub struct Entry {
    /// Which nexus it is.
    pub nexus: NexusName,
    /// The host that the access table found behind the initiator's name.
    pub host: String,
    /// Where the initiator is, by the first connection that is open.
    pub peer: SocketAddr,
    /// The portal that this one reached.
    pub portal: SocketAddr,
    /// True when it was sent there, and can be sent elsewhere.
    pub was_sent: bool,
    /// Its connections.
    pub connections: Vec<ConnectionReport>,
    /// The shard that its connection lives on.
    pub shard: usize,
    /// The target's half of the session identifier.
    pub tsih: u16,
    /// What CHAP has proven; nothing where it was not spoken.
    pub authentication: Option<Authentication>,
    /// The negotiated keys, for people.
    pub negotiated: BTreeMap<String, String>,
    /// When it logged in.
    pub since: Time,
    /// What it counts.
    pub counters: Arc<Counters>,
    /// Tells its connection something.
    pub notices: Sender<Notice>,
}

impl Entry {
    /// True when a connection of the session came in through the portal that listens on `portal`, perhaps a wildcard.
    #[must_use]
    pub fn came_through(&self, portal: SocketAddr) -> bool {
        self.connections.iter().any(|connection| is_at(connection.portal, portal))
    }

    /// True while a connection of the session is open, so that the initiator can be told something.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        self.connections.iter().any(|connection| connection.state == ConnectionState::Open)
    }

    /// True for a session that only asks which targets there are.
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

/// True when a connection to `address` came in through the portal that listens on `portal`, perhaps a wildcard.
#[must_use]
pub fn is_at(address: SocketAddr, portal: SocketAddr) -> bool {
    address == portal || (portal.ip().is_unspecified() && portal.port() == address.port())
}

/// What a session is told by others.
pub enum Notice {
    /// End. `gone` is dropped when nothing of the session runs any more. Said when the same nexus logs in
    /// again (RFC 7143 §6.3.5), and when the daemon stops.
    Close {
        /// Dropped at the end.
        gone: Sender<()>,
    },
    /// One connection more has logged in to it.
    Join(Box<Joiner>),
    /// A portal closes: end the connections that came in there. `gone` is dropped when nothing of them runs any more.
    Leave {
        /// The portal's address.
        portal: SocketAddr,
        /// Dropped at the end.
        gone: Sender<()>,
    },
    /// Ask the initiator to log in anew: it belongs to another portal. One that has not logged out in this time is cut off.
    MoveAway {
        /// How long it may take.
        within: Duration,
    },
    /// End the connection with this CID.
    Cut {
        /// Which.
        cid: u16,
        /// Dropped when it has.
        cut: Sender<()>,
    },
    /// Record what comes and goes.
    Record(Tape),
    /// Say where commands are numbered just now.
    TellWindow {
        /// To whom.
        tell: Sender<CommandWindow>,
    },
    /// Say which commands have no answer yet.
    TellTasks {
        /// To whom.
        tell: Sender<Vec<Standing>>,
    },
    /// The access table has changed. `applied` is dropped when the session goes by the new one.
    AccessChanged {
        /// Dropped when the session goes by the new table.
        applied: Sender<()>,
    },
}

/// The table of sessions and of logins under way. Cheap to clone, the same table everywhere.
#[derive(Clone)]
pub struct Registry {
    table: Arc<Mutex<Table>>,
    throttle: LoginThrottle<String>,
}

struct Table {
    /// Shared with whoever asked: ten thousand of them are not copied for a question.
    sessions: BTreeMap<SessionId, Arc<Entry>>,
    logins: Logins,
    next_session: u64,
    next_tsih: u16,
    ended: SessionTotals,
    balancer: Balancer,
    /// Who was not let in and has not come in since, oldest first.
    refused: Vec<RefusedLogin>,
    limits: Limits,
}

/// Initiators of which it is remembered that they were not let in.
const REFUSED_MAX: usize = 256;

/// The place of one login under way; given back when dropped.
pub struct LoginPlace {
    registry: Registry,
    id: u64,
    /// Ends when the login has to make room for others.
    pub ends: Receiver<()>,
}

/// What wrong CHAP secrets cost.
const GUESSES: Policy = Policy {
    free: 3,
    first: Duration::from_millis(250),
    most: Duration::from_secs(10),
    of_name_max: 1,
    of_address_max: 4,
    // A host logs in with all of its paths at the same time.
    known_max: usize::MAX,
    memory: Duration::from_secs(15 * 60),
    remembered_max: 4096,
};

impl Registry {
    /// An empty table with the bounds of `limits`.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let bounds = Bounds { all: limits.logins_max, per_address: limits.logins_per_address_max };
        let table = Table {
            sessions: BTreeMap::new(),
            logins: Logins::new(bounds),
            next_session: 1,
            next_tsih: 1,
            ended: SessionTotals::default(),
            balancer: Balancer::default(),
            refused: Vec::new(),
            limits,
        };
        Self { table: Arc::new(Mutex::new(table)), throttle: LoginThrottle::new(GUESSES) }
    }

    /// Takes a place for a login from `address`, or `None` when there are too many and none makes room.
    #[must_use]
    pub fn begin_login(&self, address: IpAddr, now: Time) -> Option<LoginPlace> {
        let (id, ends) = self.lock().logins.begin(address.to_canonical(), now)?;
        Some(LoginPlace { registry: self.clone(), id, ends })
    }

    /// Begins to authenticate `initiator` at `address`, or `None` when too many have failed and another is judged.
    #[must_use]
    pub fn begin_authentication(&self, initiator: &str, address: IpAddr, now: Time) -> Option<Attempt<String>> {
        self.throttle.begin(address, &initiator.to_owned(), now.since(Time::default()))
    }

    /// A session identifier and a TSIH that no live session of the same initiator has, or `None` when the daemon is full.
    #[must_use]
    pub fn admit(&self) -> Option<(SessionId, u16)> {
        let mut table = self.lock();
        if table.sessions.len() >= table.limits.sessions_max {
            return None;
        }
        let id = SessionId(table.next_session);
        table.next_session += 1;
        loop {
            let tsih = table.next_tsih;
            table.next_tsih = table.next_tsih.checked_add(1).unwrap_or(1);
            if !table.sessions.values().any(|session| session.tsih == tsih) {
                return Some((id, tsih));
            }
        }
    }

    /// Enters a session, and returns those of the same nexus that it takes the place of.
    #[must_use]
    pub fn enter(&self, id: SessionId, mut session: Entry) -> Vec<(SessionId, Arc<Entry>)> {
        let mut table = self.lock();
        let is_it = |refused: &RefusedLogin| {
            let target = refused.target.as_deref().unwrap_or_default();
            refused.initiator.as_ref() == Some(&session.nexus.initiator) && target == session.nexus.target
        };
        table.refused.retain(|refused| !is_it(refused));
        session.was_sent = table.balancer.arrived(&session.nexus, canonical(session.portal));
        let same = |(_, other): &(&SessionId, &Arc<Entry>)| other.nexus == session.nexus;
        let replaced = table.sessions.iter().filter(same).map(|(&id, other)| (id, other.clone())).collect();
        table.sessions.insert(id, Arc::new(session));
        replaced
    }

    /// Forgets a session whose commands have all ended; what it counted stays in the totals.
    pub fn leave(&self, id: SessionId) {
        let mut table = self.lock();
        if let Some(entry) = table.sessions.remove(&id) {
            add(&mut table.ended, &entry.counters);
        }
    }

    /// The portal among `candidates` that a session of `nexus` is sent to.
    #[must_use]
    pub fn choose(&self, nexus: &NexusName, candidates: &[Candidate], by: Balance, now: Time) -> Option<SocketAddr> {
        let mut table = self.lock();
        let Table { sessions, balancer, .. } = &mut *table;
        let sessions = counted(sessions);
        balancer.look(candidates, &sessions, now);
        balancer.choose(nexus, candidates, by, &sessions, now)
    }

    /// Sessions that were sent to one of `candidates` and should be at another, for now.
    #[must_use]
    pub fn surplus(&self, candidates: &[Candidate]) -> Vec<NexusName> {
        let table = self.lock();
        let sent = table.sessions.values().filter(|entry| entry.was_sent);
        surplus(candidates, &counted(&table.sessions), &sent.map(|entry| &entry.nexus).collect())
    }

    /// Somebody was not let in.
    pub fn refuse(&self, login: RefusedLogin) {
        let mut table = self.lock();
        let is_it = |known: &RefusedLogin| {
            (&known.initiator, known.address, &known.target, &known.why)
                == (&login.initiator, login.address, &login.target, &login.why)
        };
        let known = table.refused.iter().position(is_it).map(|at| table.refused.remove(at));
        if table.refused.len() >= REFUSED_MAX {
            table.refused.remove(0);
        }
        let times = known.map_or(1, |known| known.times.saturating_add(1));
        table.refused.push(RefusedLogin { times, ..login });
    }

    /// These were not let in before, the last one first.
    pub fn remember_refused(&self, logins: &[RefusedLogin]) {
        let mut table = self.lock();
        let known = std::mem::take(&mut table.refused);
        table.refused =
            logins.iter().take(REFUSED_MAX.saturating_sub(known.len())).rev().cloned().chain(known).collect();
    }

    /// Who was not let in and has not come in since, the last one first.
    #[must_use]
    pub fn refused(&self) -> Vec<RefusedLogin> {
        self.lock().refused.iter().rev().cloned().collect()
    }

    /// The session that `nexus` has under the handle `tsih`.
    #[must_use]
    pub fn find(&self, nexus: &NexusName, tsih: u16) -> Option<(SessionId, Arc<Entry>)> {
        let table = self.lock();
        let found = table.sessions.iter().find(|(_, entry)| entry.tsih == tsih && entry.nexus == *nexus);
        found.map(|(&id, entry)| (id, entry.clone()))
    }

    /// The session is told, if it is still there.
    pub fn tell(&self, id: SessionId, notice: Notice) {
        if let Some(entry) = self.lock().sessions.get(&id) {
            // One that is just ending hears nothing any more.
            let _ = entry.notices.send(notice);
        }
    }

    /// The session has these connections now.
    pub fn note_connections(&self, id: SessionId, connections: Vec<ConnectionReport>) {
        if let Some(entry) = self.lock().sessions.get_mut(&id).map(Arc::make_mut) {
            if let Some(first) = connections.iter().find(|connection| connection.state == ConnectionState::Open) {
                (entry.peer, entry.portal) = (first.address, first.portal);
            }
            entry.connections = connections;
        }
    }

    /// The host that is logged in as `id`; empty where none is known.
    #[must_use]
    pub fn host_of(&self, id: SessionId) -> Option<String> {
        self.lock().sessions.get(&id).map(|session| session.host.clone())
    }

    /// True while `id` has not left.
    #[must_use]
    pub fn is_here(&self, id: SessionId) -> bool {
        self.lock().sessions.contains_key(&id)
    }

    /// What all sessions have counted since the start, ended ones included.
    #[must_use]
    pub fn totals(&self) -> SessionTotals {
        let table = self.lock();
        let mut totals = table.ended;
        table.sessions.values().for_each(|entry| add(&mut totals, &entry.counters));
        totals
    }

    /// How many sessions there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lock().sessions.len()
    }

    /// All sessions, oldest first.
    #[must_use]
    pub fn sessions(&self) -> Vec<(SessionId, Arc<Entry>)> {
        self.lock().sessions.iter().map(|(&id, session)| (id, session.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn counted(sessions: &BTreeMap<SessionId, Arc<Entry>>) -> Vec<Counted<'_>> {
    sessions.values().filter(|entry| !entry.is_discovery()).map(|entry| entry.counted()).collect()
}

impl LoginPlace {
    /// The login has said who it is.
    pub fn asked(&self) {
        self.registry.lock().logins.asked(self.id);
    }

    /// The place is kept until it is dropped, whoever needs one.
    pub fn hold(&self) {
        self.registry.lock().logins.hold(self.id);
    }
}

impl Drop for LoginPlace {
    fn drop(&mut self) {
        self.registry.lock().logins.end(self.id);
    }
}
