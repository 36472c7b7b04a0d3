//! All connections of one session: bytes and time go in, events and bytes come out.

use super::connection::{Connection, Joining, Shared};
use super::event::{Event, Gate, Response, TargetRecord};
#[cfg(test)]
use super::full_feature::FullFeature;
use super::{CloseReason, Config, Standing};
use crate::login::{FailedLogin, Grant, LoginStatus, NoSession};
use crate::pdu::{AsyncEvent, Cid, CmdSn, Lun, StatSn, TaskFunctionOutcome, TaskManagementRequest, Tsih};
use crate::receive::UnderWay;
use crate::session::TaskId;
use crate::transmit::Gathered;
use shard::Time;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// A target's side of a session, from the first byte of its leading connection to the last of its last one.
///
/// Connections have places, counted from zero, which is the leading one's. For each, the driver receives into
/// [`Session::receive_into`] and says so with [`Session::handle_received`], and sends what [`Session::gather`] gives.
/// It acts on [`Session::poll_event`], and calls [`Session::handle_timeout`] when [`Session::poll_timeout`] is due.
/// A connection that logs in to join a session elsewhere begins as a session of its own, and is carried over as
/// [`Joining`]. Nothing here waits, reads a clock or draws a random number, and everything is bounded by [`Config`].
#[derive(Debug)]
pub struct Session {
    config: Rc<Config>,
    connections: Vec<Connection>,
    shared: Shared,
    fences: Vec<Fence>,
    /// When it is looked for data that was asked for and has not come, above error recovery level 0.
    looks_at: Option<Time>,
    now: Time,
}

/// One connection of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// What the initiator calls it.
    pub cid: Cid,
    /// True when headers carry a CRC32C.
    pub header_digest: bool,
    /// True when data carries a CRC32C.
    pub data_digest: bool,
    /// True when it is gone, and its tasks wait for another one to take them over.
    pub is_lost: bool,
}

/// Connections that may wait at once for others to take over their tasks.
const STRANDED_MAX: usize = 32;

/// An answer to a task management function that comes behind what was said before on other connections.
///
/// Source: RFC 7143 §4.2.2.3.1, §4.2.3.3.
#[derive(Debug)]
struct Fence {
    task: TaskId,
    outcome: TaskFunctionOutcome,
    /// Connections, and what must be acknowledged there.
    waits: Vec<(usize, StatSn)>,
}

impl Session {
    /// A session whose leading connection waits for a login.
    ///
    /// *Shape*: `random` are bytes that nobody can predict, other ones for each session.
    /// *Panics*: when `config` has a bound outside what its field says.
    #[must_use]
    pub fn new(config: Rc<Config>, random: [u8; 32], now: Time) -> Self {
        config.check();
        let connections = vec![Connection::new(config.clone(), random, now)];
        Self { config, connections, shared: Shared::default(), fences: Vec::new(), looks_at: None, now }
    }

    /// A session whose login is over, for tests of what comes after.
    #[cfg(test)]
    pub(crate) fn in_full_feature(config: Rc<Config>, negotiated: crate::Negotiated, now: Time) -> Self {
        let mut session = Self::new(config, [0; 32], now);
        let connection = &mut session.connections[0];
        connection.start_full_feature(&negotiated, negotiated.error_recovery_level > 0);
        session.shared.full_feature = Some(Box::new(FullFeature::new(connection.link(), negotiated)));
        session
    }

    /// Tasks, and bytes of their data-out.
    #[cfg(test)]
    pub(crate) fn holds(&self) -> (usize, usize) {
        let full_feature = self.shared.full_feature.as_deref();
        full_feature.map_or((0, 0), |full_feature| (full_feature.session.len(), full_feature.held_bytes))
    }

    /// Bytes that wait to be sent.
    #[cfg(test)]
    pub(crate) fn queued_bytes(&self) -> usize {
        (0..self.connections.len()).map(|slot| self.unsent_bytes(slot)).sum()
    }

    /// Memory of the buffers for input and output.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.connections.iter().map(Connection::buffer_bytes).sum()
    }

    /// What there is of a login that is over and was one to a session elsewhere; nothing of anything else. This one is over.
    #[must_use]
    pub fn take_joining(&mut self) -> Option<Joining> {
        self.connections[0].take_joining()
    }

    /// The connection belongs to the session from now on; its place, or nothing when the session cannot have it.
    ///
    /// One with the same CID is reinstated by it (RFC 7143 §6.3.4).
    pub fn join(&mut self, joining: &Joining, now: Time) -> Option<usize> {
        let full_feature = self.shared.full_feature.as_deref()?;
        let cid = joining.negotiated.identity.cid;
        let reinstated = full_feature.roster.slot_of(cid);
        let live = self.connections.iter().filter(|connection| connection.is_live()).count();
        if reinstated.is_none() && live >= usize::from(full_feature.negotiated.connections_max) {
            return None;
        }
        let free = self.connections.iter().position(|connection| connection.is_closed() && !connection.is_stranded());
        let slot = free.filter(|_| reinstated.is_none()).unwrap_or(self.connections.len());
        let recovers = full_feature.negotiated.error_recovery_level > 0;
        let connection = Connection::joined(self.config.clone(), joining, slot, recovers, now);
        self.now = now;
        if slot < self.connections.len() {
            self.connections[slot] = connection
        } else {
            self.connections.push(connection)
        }
        if let Some(old) = reinstated.filter(|&old| self.connections[old].is_open()) {
            self.drop_connection(old, CloseReason::Reinstated);
        }
        self.shared.full_feature.as_deref_mut()?.roster.welcome(slot, cid);
        Some(slot)
    }

    /// Where the next received bytes of the connection in `slot` belong.
    ///
    /// Empty while nothing shall be received: more answers wait than may, or the connection is over. Then the
    /// driver sends, and asks again.
    pub fn receive_into(&mut self, slot: usize) -> &mut [u8] {
        self.connections[slot].receive_into()
    }

    /// `len` bytes were received into [`Session::receive_into`]. Every PDU that they complete was acted on.
    ///
    /// *Panics*: when there was less space.
    pub fn handle_received(&mut self, slot: usize, len: usize, now: Time, gate: &mut impl Gate) {
        self.handle_some(slot, len, usize::MAX, now, gate);
    }

    /// As [`Session::handle_received`], for at most `pdus_max` of the PDUs that are there. True when there may be more: they are handled
    /// when it is called again, with a `len` of zero where nothing was received meanwhile.
    pub fn handle_some(&mut self, slot: usize, len: usize, pdus_max: usize, now: Time, gate: &mut impl Gate) -> bool {
        let connection = &mut self.connections[slot];
        if !connection.is_open() {
            return false;
        }
        self.now = now;
        if len > 0 {
            connection.handle_filled(len, now);
        }
        let mut left = pdus_max;
        while left > 0 && self.connections[slot].step(&mut self.shared, gate) {
            if self.shared.concerns_others() {
                self.run_ripe();
            }
            left -= 1;
        }
        self.open_fences();
        self.settle(now);
        if self.looks_at.is_none() && self.connections[slot].link().recovers {
            self.looks_at = Some(now + self.config.recovery_interval);
        }
        left == 0 && !matches!(self.under_way(slot), UnderWay::Begun([]))
    }

    /// The next event, when there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        let shared = &mut self.shared;
        shared.events.pop_front().or_else(|| shared.full_feature.as_deref_mut()?.events.pop_front())
    }

    /// The login goes on as `grant` says.
    pub fn grant(&mut self, grant: Grant, now: Time) {
        self.connections[0].grant(&mut self.shared, grant);
        self.settle(now);
    }

    /// Whoever has proven itself has this session, or none here.
    ///
    /// *Panics*: when the session has the handle zero, which means none.
    pub fn place(&mut self, session: Result<Tsih, NoSession>, now: Time) {
        self.connections[0].place(&mut self.shared, session);
        self.settle(now);
    }

    /// Who failed to log in, and by which rule, as far as that is known.
    #[must_use]
    pub fn failed_login(&self) -> Option<&FailedLogin> {
        self.connections.first()?.failed_login()
    }

    /// The login ends with `status`.
    pub fn refuse(&mut self, status: LoginStatus, now: Time) {
        self.connections[0].refuse(&mut self.shared, status);
        self.settle(now);
    }

    /// The command is answered. Without effect when it was aborted meanwhile.
    ///
    /// Residuals are counted here, and what passes the expected length is not sent.
    pub fn respond(&mut self, task: TaskId, response: Response) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        match full_feature.slot_of(task) {
            Some(slot) => full_feature.respond(self.connections[slot].link(), task, response),
            None => full_feature.forget(task),
        }
    }

    /// The task management function is answered; when it is complete, nothing is sent any more for the
    /// commands that it affected.
    pub fn respond_task_management(&mut self, task: TaskId, outcome: TaskFunctionOutcome) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        let Some(own) = full_feature.slot_of(task) else { return };
        full_feature.finish_doomed(task, outcome);
        let mut waits = Vec::new();
        for (slot, connection) in self.connections.iter_mut().enumerate().filter(|(slot, _)| *slot != own) {
            if connection.is_live() && connection.link().is_unacknowledged() {
                waits.push((slot, connection.link().stat_sn));
                full_feature.send_ping(connection.link());
            }
        }
        self.fences.push(Fence { task, outcome, waits });
        self.open_fences();
        self.settle(self.now);
    }

    /// SendTargets is answered with these targets.
    pub fn respond_targets(&mut self, task: TaskId, targets: &[TargetRecord]) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        if let Some(slot) = full_feature.slot_of(task) {
            full_feature.respond_targets(self.connections[slot].link(), task, targets);
        }
    }

    /// The task is forgotten without an answer.
    pub fn abort(&mut self, task: TaskId) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        match full_feature.slot_of(task) {
            Some(slot) => full_feature.abort(self.connections[slot].link(), task),
            None => full_feature.forget(task),
        }
    }

    /// An asynchronous message is queued, with sense data where the event carries it.
    pub fn send_async(&mut self, lun: Lun, event: AsyncEvent, sense: &[u8]) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.is_live()) {
            connection.link().send_async(full_feature.cmd_sns(), lun, event, sense);
        }
    }

    /// The initiator is asked to log out each connection; one that it has not within `within` ends.
    pub fn request_logout(&mut self, within: Duration, now: Time) {
        let within_s = u16::try_from(within.as_secs()).unwrap_or(u16::MAX);
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        full_feature.asked_to_leave = true;
        for connection in self.connections.iter_mut().filter(|connection| connection.is_live()) {
            let asked = AsyncEvent::LogoutRequested { within_s };
            connection.link().send_async(full_feature.cmd_sns(), Lun(0), asked, &[]);
            connection.set_deadline(now + within, CloseReason::LogoutOverdue);
        }
    }

    /// The initiator hears that the connection in `slot` is about to end, and that it may come back at once, when that can
    /// still be sent before [`Session::handle_peer_closed`].
    pub fn announce_end(&mut self, slot: usize) {
        let is_last = !self.connections.iter().enumerate().any(|(other, it)| other != slot && it.is_live());
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        let connection = &mut self.connections[slot];
        if connection.is_live() {
            let cid = connection.cid();
            full_feature.announce_end(connection.link(), if is_last { None } else { Some(cid) });
        }
    }

    /// The next CmdSN that is awaited and the highest that is taken; none before full feature phase.
    #[must_use]
    pub fn window(&self) -> Option<(CmdSn, CmdSn)> {
        let window = &self.shared.full_feature.as_deref()?.session.window;
        Some((window.expected(), window.maximum()))
    }

    /// The commands that have no answer yet, in no order.
    #[must_use]
    pub fn standing(&self) -> Vec<Standing> {
        let tasks = self.shared.full_feature.as_deref().map(|full_feature| full_feature.session.tasks());
        let all = tasks.into_iter().flat_map(|tasks| tasks.iter());
        all.filter_map(|(task, one)| one.standing(task)).collect()
    }

    /// The session is over at once; what was not sent is forgotten.
    pub fn close(&mut self) {
        for slot in 0..self.connections.len() {
            self.drop_connection(slot, CloseReason::Dropped);
        }
    }

    /// Adds slices of what waits to be sent on the connection in `slot`, for one vectored send.
    pub fn gather<'a>(&'a self, slot: usize, into: &mut Gathered<'a>) {
        self.connections[slot].output().gather(into);
    }

    /// The first `len` bytes of what was gathered have been sent.
    pub fn handle_transmitted(&mut self, slot: usize, len: usize) {
        self.connections[slot].handle_transmitted(self.shared.full_feature.as_deref_mut(), len);
    }

    /// True while something waits to be sent on the connection in `slot`.
    #[must_use]
    pub fn wants_to_send(&self, slot: usize) -> bool {
        self.unsent_bytes(slot) > 0
    }

    /// Bytes that wait to be sent on the connection in `slot`; they end with a PDU.
    #[must_use]
    pub fn unsent_bytes(&self, slot: usize) -> usize {
        self.connections[slot].output().queued_bytes()
    }

    /// The connections in full feature phase, and those whose tasks wait for another one, with their places.
    pub fn connections(&self) -> impl Iterator<Item = (usize, ConnectionFacts)> {
        let facts = |(slot, connection): (usize, &Connection)| {
            let (cid, digests) = (connection.cid(), connection.output().digests);
            let (header_digest, data_digest) = (digests.header, digests.data);
            let is_lost = connection.is_stranded();
            let counts = is_lost || connection.is_live();
            counts.then_some((slot, ConnectionFacts { cid, header_digest, data_digest, is_lost }))
        };
        self.connections.iter().enumerate().filter_map(facts)
    }

    /// How far the PDU has come that is on its way in on the connection in `slot`.
    #[must_use]
    pub fn under_way(&self, slot: usize) -> UnderWay<'_> {
        self.connections[slot].input().under_way()
    }

    /// When [`Session::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let looks_at = self.looks_at.filter(|_| self.shared.full_feature.is_some());
        self.connections.iter().filter_map(Connection::poll_timeout).chain(looks_at).min()
    }

    /// What is due at `now` has happened.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        if self.looks_at.is_some_and(|at| at <= now) {
            self.looks_at = Some(now + self.config.recovery_interval);
            self.ask_again();
        }
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            if connection.poll_timeout().is_some_and(|at| at <= now)
                && let Some(reason) = connection.handle_timeout(self.shared.full_feature.as_deref_mut(), now)
            {
                self.drop_connection(slot, reason);
            }
        }
        self.settle(now);
    }

    /// The peer has closed its side of the connection in `slot`: nothing more will come.
    pub fn handle_peer_closed(&mut self, slot: usize) {
        self.drop_connection(slot, CloseReason::PeerClosed);
        self.settle(self.now);
    }

    /// True when nothing is left to do for the connection in `slot` but to close the socket.
    #[must_use]
    pub fn is_closed(&self, slot: usize) -> bool {
        self.connections[slot].is_closed()
    }

    /// True when all connections are closed, and no task waits for another one.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.connections.iter().all(|connection| connection.is_closed() && !connection.is_stranded())
    }

    /// What is due on other connections than the one that made it so.
    fn run_ripe(&mut self) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        while let Some((slot, turn)) = full_feature.take_ripe() {
            let connection = &mut self.connections[slot];
            // What a connection asked for that is no more is not done, and holds up nobody.
            if connection.is_live() {
                full_feature.run(connection.link(), turn);
            }
            full_feature.run_held(connection.link());
        }
        for (id, request) in std::mem::take(&mut full_feature.elsewhere.moves) {
            self.reassign(id, &request);
        }
    }

    /// A task is moved to the connection that asks for it, if its own is lost.
    fn reassign(&mut self, id: TaskId, request: &TaskManagementRequest) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        let Some(own) = full_feature.slot_of(id) else { return };
        let tag = request.referenced_task_tag;
        let answered =
            |connection: &mut Connection| connection.is_stranded() && connection.link().sent.stat_sn_of(tag).is_some();
        let holder = full_feature.slot_of_tag(tag).filter(|&slot| self.connections[slot].is_stranded());
        let lost = holder.or_else(|| self.connections.iter_mut().position(answered));
        let [link, lost] = match lost.map(|lost| self.connections.get_disjoint_mut([own, lost])) {
            Some(Ok(both)) => both.map(Connection::link),
            _ => {
                let outcome = full_feature.not_reassigned(tag);
                return full_feature.respond_task_management(self.connections[own].link(), id, outcome);
            }
        };
        full_feature.respond_task_management(link, id, TaskFunctionOutcome::Complete);
        full_feature.reassign(link, lost, request);
    }

    /// Asks for data again that has not come in time.
    fn ask_again(&mut self) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        for (id, slot) in full_feature.take_stale() {
            if self.connections[slot].is_live() {
                full_feature.ask_again(self.connections[slot].link(), id);
            }
        }
    }

    /// Answers whose turn has come behind what others had to acknowledge.
    fn open_fences(&mut self) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        let connections = &mut self.connections;
        for mut fence in std::mem::take(&mut self.fences) {
            fence.waits.retain(|&(slot, stat_sn)| {
                let connection = &mut connections[slot];
                connection.is_live() && connection.link().acknowledged.precedes(stat_sn)
            });
            match full_feature.slot_of(fence.task) {
                Some(slot) if fence.waits.is_empty() => {
                    full_feature.respond_task_management(connections[slot].link(), fence.task, fence.outcome);
                }
                Some(_) => self.fences.push(fence),
                None => {}
            }
        }
    }

    /// Ends the connections that shall end.
    fn settle(&mut self, now: Time) {
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            let Some(reason) = connection.link().closing.filter(|_| connection.is_open()) else { continue };
            connection.set_deadline(now + self.config.answer_timeout, CloseReason::OutputStuck);
            self.end(slot, reason);
            if !self.wants_to_send(slot) {
                self.connections[slot].finish();
            }
        }
        let ending =
            self.shared.full_feature.as_deref_mut().map(|full_feature| std::mem::take(&mut full_feature.ending));
        for (slot, reason) in ending.into_iter().flatten() {
            self.drop_connection(slot, reason);
        }
    }

    fn drop_connection(&mut self, slot: usize, reason: CloseReason) {
        self.end(slot, reason);
        self.connections[slot].finish();
    }

    /// All tasks of the connection and their memory are given back, or wait for another connection; output that is queued
    /// may still leave.
    fn end(&mut self, slot: usize, reason: CloseReason) {
        let stranded = self.connections.iter().filter(|connection| connection.is_stranded()).count();
        let connection = &mut self.connections[slot];
        if !connection.is_open() && !connection.is_stranded() {
            return;
        }
        if let Some(full_feature) = self.shared.full_feature.as_deref_mut() {
            let mut bereaved = BTreeSet::new();
            let for_good = matches!(reason, CloseReason::LoggedOut | CloseReason::ColdReset | CloseReason::Dropped)
                || stranded >= STRANDED_MAX;
            if connection.is_live() && full_feature.keeps_tasks() && !for_good {
                let retained = Duration::from_secs(full_feature.negotiated.time2retain_s.into());
                connection.strand(full_feature, reason, self.now + retained);
            } else if connection.is_open() || for_good {
                connection.end(reason);
                bereaved = full_feature.lose(slot);
            }
            if self.connections.iter().any(|connection| connection.is_live() || connection.is_stranded()) {
                full_feature.go_on(bereaved);
                return self.open_fences();
            }
            self.shared.events.append(&mut full_feature.events);
            self.shared.full_feature = None;
        } else {
            connection.end(reason);
        }
        self.shared.events.push_back(Event::Closed(reason));
    }
}
