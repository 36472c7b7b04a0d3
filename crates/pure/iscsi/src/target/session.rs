//! Target session: all connections of one iSCSI session as a state machine.

use super::connection::{Connection, Joining, Shared};
use super::event::{Event, Gate, Response, TargetRecord};
#[cfg(test)]
use super::full_feature::FullFeature;
use super::{CloseReason, CommandSnapshot, Config};
use crate::login::{FailedLogin, Grant, LoginStatus, NoSession};
use crate::pdu::{AsyncEvent, Cid, CmdSn, Lun, StatSn, TaskFunctionOutcome, TaskManagementRequest, Tsih};
use crate::receive::PduProgress;
use crate::session::TaskId;
use crate::transmit::SendSlices;
use shard::Time;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

/// Target side of a session, from the first byte of its leading connection to the last byte of its last one.
///
/// Connections have slots, counted from zero, which is the leading connection. For each slot, the driver receives into
/// [`Session::receive_into`] and reports it with [`Session::handle_received`], and sends the output of
/// [`Session::gather`]. It acts on [`Session::poll_event`], and calls [`Session::handle_timeout`] when
/// [`Session::poll_timeout`] is due. A connection that logs in to join an existing session starts as a session of its
/// own, and is transferred as [`Joining`]. Nothing here waits, reads a clock or draws random numbers, and all resources
/// are bounded by [`Config`].
#[derive(Debug)]
pub struct Session {
    config: Rc<Config>,
    connections: Vec<Connection>,
    shared: Shared,
    pending_tmf_responses: Vec<PendingTmfResponse>,
    /// Time of the next check for missing solicited data, above error recovery level 0.
    looks_at: Option<Time>,
    now: Time,
}

/// Properties of one connection of a session, for management views.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// Connection identifier (CID) that the initiator assigned.
    pub cid: Cid,
    /// True when headers carry a CRC32C.
    pub header_digest: bool,
    /// True when data carries a CRC32C.
    pub data_digest: bool,
    /// True when the connection is lost and its tasks await reassignment.
    pub is_lost: bool,
}

/// Maximum number of lost connections whose tasks await reassignment.
const SUSPENDED_MAX: usize = 32;

/// Response to a task management function that waits for acknowledgements on other connections.
///
/// Source: RFC 7143 §4.2.2.3.1, §4.2.3.3.
#[derive(Debug)]
struct PendingTmfResponse {
    task: TaskId,
    outcome: TaskFunctionOutcome,
    /// Slots with the StatSN that must be acknowledged there.
    waits: Vec<(usize, StatSn)>,
}

impl Session {
    /// Creates a session whose leading connection awaits a login.
    ///
    /// *Shape*: `random` are unpredictable bytes, different for each session. *Panics*: when a bound of `config` is out
    /// of range.
    #[must_use]
    pub fn new(config: Rc<Config>, random: [u8; 32], now: Time) -> Self {
        // A wrong configuration is a bug of the caller: no peer can cause it.
        config.check();
        let connections = vec![Connection::new(config.clone(), random, now)];
        Self { config, connections, shared: Shared::default(), pending_tmf_responses: Vec::new(), looks_at: None, now }
    }

    /// Creates a session after its login, for tests of full feature phase.
    #[cfg(test)]
    pub(crate) fn in_full_feature(config: Rc<Config>, negotiated: crate::Negotiated, now: Time) -> Self {
        let mut session = Self::new(config, [0; 32], now);
        let connection = &mut session.connections[0];
        connection.start_full_feature(&negotiated, negotiated.error_recovery_level > 0);
        session.shared.full_feature = Some(Box::new(FullFeature::new(connection.link(), negotiated)));
        session
    }

    /// Number of tasks, and bytes of their data-out.
    #[cfg(test)]
    pub(crate) fn holds(&self) -> (usize, usize) {
        let full_feature = self.shared.full_feature.as_deref();
        full_feature.map_or((0, 0), |full_feature| (full_feature.session.len(), full_feature.held_bytes))
    }

    /// Number of queued bytes.
    #[cfg(test)]
    pub(crate) fn queued_bytes(&self) -> usize {
        (0..self.connections.len()).map(|slot| self.unsent_bytes(slot)).sum()
    }

    /// Allocated size of the receive and transmit buffers in bytes.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.connections.iter().map(Connection::buffer_bytes).sum()
    }

    /// Takes the state of a completed login that joins an existing session; `None` for any other. This session has
    /// ended then.
    #[must_use]
    pub fn take_joining(&mut self) -> Option<Joining> {
        self.connections[0].take_joining()
    }

    /// Adds a connection to the session and returns its slot, or `None` when the session cannot accept it.
    ///
    /// A connection with the same CID is reinstated (RFC 7143 §6.3.4).
    pub fn join(&mut self, joining: &Joining, now: Time) -> Option<usize> {
        let full_feature = self.shared.full_feature.as_deref()?;
        let cid = joining.negotiated.identity.cid;
        let reinstated = full_feature.connections.slot_of(cid);
        let live = self.connections.iter().filter(|connection| connection.is_live()).count();
        // A reinstated connection is replaced, so it does not count against MaxConnections.
        if reinstated.is_none() && live >= usize::from(full_feature.negotiated.connections_max) {
            return None;
        }
        // While an old connection is being reinstated its slot stays in use, so the new one is appended.
        let free =
            self.connections.iter().position(|connection| connection.is_closed() && !connection.awaits_reassignment());
        let slot = free.filter(|_| reinstated.is_none()).unwrap_or(self.connections.len());
        let recovers = full_feature.negotiated.error_recovery_level > 0;
        let connection = Connection::joined(self.config.clone(), joining, slot, recovers, now);
        self.now = now;
        if slot < self.connections.len() {
            // The slot is reused, so that the number of slots stays bounded however often connections are replaced.
            self.connections[slot] = connection
        } else {
            self.connections.push(connection)
        }
        // RFC 7143 §6.3.4: the old connection ends before the new one executes anything.
        if let Some(old) = reinstated.filter(|&old| self.connections[old].is_open()) {
            self.drop_connection(old, CloseReason::Reinstated);
        }
        self.shared.full_feature.as_deref_mut()?.connections.register(slot, cid);
        Some(slot)
    }

    /// Returns the memory for the next received bytes of the connection in `slot`.
    ///
    /// Empty while reception is paused: too many responses are queued, or the connection has ended. The driver then
    /// sends before it asks again.
    pub fn receive_into(&mut self, slot: usize) -> &mut [u8] {
        self.connections[slot].receive_into()
    }

    /// Accepts `len` bytes received into [`Session::receive_into`] and handles every PDU that they complete.
    ///
    /// *Panics*: when there was less space.
    pub fn handle_received(&mut self, slot: usize, len: usize, now: Time, gate: &mut impl Gate) {
        self.handle_some(slot, len, usize::MAX, now, gate);
    }

    /// As [`Session::handle_received`], for at most `pdus_max` PDUs, so that a driver can share its thread fairly.
    /// Returns true when more may be pending: call it again, with a `len` of zero if nothing was received in between.
    pub fn handle_some(&mut self, slot: usize, len: usize, pdus_max: usize, now: Time, gate: &mut impl Gate) -> bool {
        let connection = &mut self.connections[slot];
        // Bytes can still arrive between the end of the connection and the close of its socket.
        if !connection.is_open() {
            return false;
        }
        self.now = now;
        if len > 0 {
            connection.handle_filled(len, now);
        }
        // Bounded, so that the driver can share its thread between sessions.
        let mut left = pdus_max;
        while left > 0 && self.connections[slot].step(&mut self.shared, gate) {
            // Work for other connections follows the PDU that caused it, before the next one is read.
            if self.shared.concerns_others() {
                self.run_cross_connection();
            }
            left -= 1;
        }
        // The PDUs may have acknowledged statuses for which a task management response waits.
        self.send_due_tmf_responses();
        self.settle(now);
        // The recovery timer starts with the first traffic; an idle connection has no outstanding data.
        if self.looks_at.is_none() && self.connections[slot].link().recovers {
            self.looks_at = Some(now + self.config.recovery_interval);
        }
        // Pending work is a limit that was reached, or an incomplete PDU whose rest may already be in the buffer.
        left == 0 && !matches!(self.pdu_progress(slot), PduProgress::Buffered([]))
    }

    /// Returns the next event, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        let shared = &mut self.shared;
        // Events of the login precede those of full feature phase.
        shared.events.pop_front().or_else(|| shared.full_feature.as_deref_mut()?.events.pop_front())
    }

    /// Continues the login as `grant` permits.
    pub fn grant(&mut self, grant: Grant, now: Time) {
        self.connections[0].grant(&mut self.shared, grant);
        self.settle(now);
    }

    /// Assigns the session of an authenticated login, or refuses one.
    ///
    /// *Panics*: when the session has handle zero, which denotes none.
    pub fn assign_session(&mut self, session: Result<Tsih, NoSession>, now: Time) {
        self.connections[0].assign_session(&mut self.shared, session);
        self.settle(now);
    }

    /// Returns the facts about a failed login, as far as they are known.
    #[must_use]
    pub fn failed_login(&self) -> Option<&FailedLogin> {
        self.connections.first()?.failed_login()
    }

    /// Ends the login with `status`.
    pub fn refuse(&mut self, status: LoginStatus, now: Time) {
        self.connections[0].refuse(&mut self.shared, status);
        self.settle(now);
    }

    /// Sends the response to a command. Without effect when the command was aborted meanwhile.
    ///
    /// Residuals are computed here, and data beyond the expected length is not sent.
    pub fn respond(&mut self, task: TaskId, response: Response) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        // The response uses the connection of the command (RFC 7143 §4.2.2, connection allegiance).
        match full_feature.slot_of(task) {
            Some(slot) => full_feature.respond(self.connections[slot].link(), task, response),
            // The connection is lost, so there is no receiver; the end of the orphan may permit new commands.
            None => full_feature.forget(task),
        }
    }

    /// Sends the response to a task management function. When it is complete, nothing more is sent for the affected
    /// commands.
    pub fn respond_task_management(&mut self, task: TaskId, outcome: TaskFunctionOutcome) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        // The affected tasks end first, so that none of their responses is queued behind this point.
        // They end also where the connection of the function is lost: tasks of other connections may be among them.
        full_feature.finish_affected(task, outcome);
        let Some(own) = full_feature.slot_of(task) else { return };
        // RFC 7143 §4.2.3.3: responses sent on other connections must be acknowledged before the response to the
        // function. A ping makes the initiator acknowledge.
        let mut waits = Vec::new();
        for (slot, connection) in self.connections.iter_mut().enumerate().filter(|(slot, _)| *slot != own) {
            if connection.is_live() && connection.link().is_unacknowledged() {
                waits.push((slot, connection.link().stat_sn));
                full_feature.send_ping(connection.link());
            }
        }
        self.pending_tmf_responses.push(PendingTmfResponse { task, outcome, waits });
        // With a single connection nothing is awaited, and the response is sent here.
        self.send_due_tmf_responses();
        self.settle(self.now);
    }

    /// Sends the response to SendTargets.
    pub fn respond_targets(&mut self, task: TaskId, targets: &[TargetRecord]) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        if let Some(slot) = full_feature.slot_of(task) {
            full_feature.respond_targets(self.connections[slot].link(), task, targets);
        }
    }

    /// Removes the task without a response.
    pub fn abort(&mut self, task: TaskId) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        match full_feature.slot_of(task) {
            Some(slot) => full_feature.abort(self.connections[slot].link(), task),
            None => full_feature.forget(task),
        }
    }

    /// Queues an asynchronous message, with sense data where the event carries it.
    pub fn send_async(&mut self, lun: Lun, event: AsyncEvent, sense: &[u8]) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        // Any live connection will do: the message concerns the session (RFC 7143 §11.9).
        if let Some(connection) = self.connections.iter_mut().find(|connection| connection.is_live()) {
            connection.link().send_async(full_feature.cmd_sns(), lun, event, sense);
        }
    }

    /// Requests a logout on each connection; one that is not logged out within `within` is closed.
    pub fn request_logout(&mut self, within: Duration, now: Time) {
        // The time of the message, Parameter3, has 16 bits (RFC 7143 §11.9.1).
        let within_s = u16::try_from(within.as_secs()).unwrap_or(u16::MAX);
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        // The logout that follows this request is answered with a message that the initiator need not wait.
        full_feature.asked_to_leave = true;
        // On every connection, because the message concerns the connection on which it arrives (RFC 7143 §11.9.1).
        for connection in self.connections.iter_mut().filter(|connection| connection.is_live()) {
            let asked = AsyncEvent::LogoutRequested { within_s };
            connection.link().send_async(full_feature.cmd_sns(), Lun(0), asked, &[]);
            connection.set_deadline(now + within, CloseReason::LogoutOverdue);
        }
    }

    /// Announces to the initiator that the connection in `slot` is about to end and that it may reconnect at once, if
    /// that can still be sent before [`Session::handle_peer_closed`].
    pub fn announce_end(&mut self, slot: usize) {
        // With the last connection the whole session is dropped, which is a different event code (RFC 7143 §11.9.1).
        let is_last = !self.connections.iter().enumerate().any(|(other, it)| other != slot && it.is_live());
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        let connection = &mut self.connections[slot];
        if connection.is_live() {
            let cid = connection.cid();
            full_feature.announce_end(connection.link(), if is_last { None } else { Some(cid) });
        }
    }

    /// Returns ExpCmdSN and MaxCmdSN; `None` before full feature phase.
    #[must_use]
    pub fn window(&self) -> Option<(CmdSn, CmdSn)> {
        let window = &self.shared.full_feature.as_deref()?.session.window;
        Some((window.expected(), window.maximum()))
    }

    /// Lists the unanswered commands, in no particular order.
    #[must_use]
    pub fn command_snapshots(&self) -> Vec<CommandSnapshot> {
        let tasks = self.shared.full_feature.as_deref().map(|full_feature| full_feature.session.tasks());
        let all = tasks.into_iter().flat_map(|tasks| tasks.iter());
        all.filter_map(|(task, one)| one.snapshot(task)).collect()
    }

    /// Ends the session at once and discards unsent output.
    pub fn close(&mut self) {
        for slot in 0..self.connections.len() {
            // A close by the driver also releases tasks that await reassignment.
            self.drop_connection(slot, CloseReason::Dropped);
        }
    }

    /// Appends slices of the output queued on the connection in `slot`, for one vectored send.
    pub fn gather<'a>(&'a self, slot: usize, into: &mut SendSlices<'a>) {
        self.connections[slot].output().gather(into);
    }

    /// Removes the first `len` bytes of the gathered output, which have been sent.
    pub fn handle_transmitted(&mut self, slot: usize, len: usize) {
        // Sending makes room in the output, so waiting responses of the tasks are queued next.
        self.connections[slot].handle_transmitted(self.shared.full_feature.as_deref_mut(), len);
    }

    /// True while output is queued on the connection in `slot`.
    #[must_use]
    pub fn wants_to_send(&self, slot: usize) -> bool {
        self.unsent_bytes(slot) > 0
    }

    /// Number of bytes queued on the connection in `slot`; they end at a PDU boundary.
    #[must_use]
    pub fn unsent_bytes(&self, slot: usize) -> usize {
        self.connections[slot].output().queued_bytes()
    }

    /// Iterates over the connections in full feature phase, and the lost ones whose tasks await reassignment, with
    /// their slots.
    pub fn connections(&self) -> impl Iterator<Item = (usize, ConnectionFacts)> {
        let facts = |(slot, connection): (usize, &Connection)| {
            let (cid, digests) = (connection.cid(), connection.output().digests);
            let (header_digest, data_digest) = (digests.header, digests.data);
            let is_lost = connection.awaits_reassignment();
            let counts = is_lost || connection.is_live();
            counts.then_some((slot, ConnectionFacts { cid, header_digest, data_digest, is_lost }))
        };
        self.connections.iter().enumerate().filter_map(facts)
    }

    /// Returns the progress of the PDU that is being received on the connection in `slot`.
    #[must_use]
    pub fn pdu_progress(&self, slot: usize) -> PduProgress<'_> {
        self.connections[slot].input().pdu_progress()
    }

    /// Returns the time at which [`Session::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        // Before full feature phase there is no data to request again.
        let looks_at = self.looks_at.filter(|_| self.shared.full_feature.is_some());
        self.connections.iter().filter_map(Connection::poll_timeout).chain(looks_at).min()
    }

    /// Handles all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        if self.looks_at.is_some_and(|at| at <= now) {
            // Rearmed in any case: further data may become overdue in the next interval.
            self.looks_at = Some(now + self.config.recovery_interval);
            self.request_missing_data();
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

    /// Handles the end of the peer's byte stream on the connection in `slot`.
    pub fn handle_peer_closed(&mut self, slot: usize) {
        self.drop_connection(slot, CloseReason::PeerClosed);
        self.settle(self.now);
    }

    /// True when only closing the socket is left to do for the connection in `slot`.
    #[must_use]
    pub fn is_closed(&self, slot: usize) -> bool {
        self.connections[slot].is_closed()
    }

    /// True when all connections are closed, and no task awaits reassignment.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.connections.iter().all(|connection| connection.is_closed() && !connection.awaits_reassignment())
    }

    /// Runs the work that PDUs caused on other connections.
    fn run_cross_connection(&mut self) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        // Only one action can be next in CmdSN order at a time, and each one may make another one ripe.
        while let Some((slot, turn)) = full_feature.take_next_action() {
            let connection = &mut self.connections[slot];
            // The request of a connection that no longer exists is skipped, and must not block those behind it.
            if connection.is_live() {
                full_feature.run(connection.link(), turn);
            }
            full_feature.run_held(connection.link());
        }
        // Reassignments come last, because they borrow the links of two connections.
        for (id, request) in std::mem::take(&mut full_feature.cross_connection.moves) {
            self.reassign(id, &request);
        }
    }

    /// Reassigns a task to the requesting connection, if its own is lost.
    fn reassign(&mut self, id: TaskId, request: &TaskManagementRequest) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        let Some(own) = full_feature.slot_of(id) else { return };
        let tag = request.referenced_task_tag;
        let answered = |connection: &mut Connection| {
            connection.awaits_reassignment() && connection.link().sent.stat_sn_of(tag).is_some()
        };
        // A task of a live connection cannot be moved: the initiator has to log out of that connection first (RFC 7143
        // §7.2.2).
        let holder = full_feature.slot_of_tag(tag).filter(|&slot| self.connections[slot].awaits_reassignment());
        let lost = holder.or_else(|| self.connections.iter_mut().position(answered));
        // Both links are borrowed at once: the response moves from the lost connection to the requesting one.
        let [link, lost] = match lost.map(|lost| self.connections.get_disjoint_mut([own, lost])) {
            Some(Ok(both)) => both.map(Connection::link),
            _ => {
                let outcome = full_feature.not_reassigned(tag);
                return full_feature.respond_task_management(self.connections[own].link(), id, outcome);
            }
        };
        // The function response precedes the PDUs of the moved task.
        full_feature.respond_task_management(link, id, TaskFunctionOutcome::Complete);
        full_feature.reassign(link, lost, request);
    }

    /// Requests solicited data again that has not arrived in time.
    fn request_missing_data(&mut self) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        for (id, slot) in full_feature.take_overdue() {
            if self.connections[slot].is_live() {
                full_feature.request_missing_data(self.connections[slot].link(), id);
            }
        }
    }

    /// Sends the task management responses whose acknowledgements have arrived.
    fn send_due_tmf_responses(&mut self) {
        let Some(full_feature) = self.shared.full_feature.as_deref_mut() else { return };
        let connections = &mut self.connections;
        // Taken out: those that still wait are put back.
        for mut fence in std::mem::take(&mut self.pending_tmf_responses) {
            fence.waits.retain(|&(slot, stat_sn)| {
                // A connection that has ended acknowledges nothing any more, so it is not waited for.
                let connection = &mut connections[slot];
                connection.is_live() && connection.link().acknowledged.precedes(stat_sn)
            });
            match full_feature.slot_of(fence.task) {
                Some(slot) if fence.waits.is_empty() => {
                    full_feature.respond_task_management(connections[slot].link(), fence.task, fence.outcome);
                }
                Some(_) => self.pending_tmf_responses.push(fence),
                // The task management task ended with its connection, so its response has no receiver.
                None => {}
            }
        }
    }

    /// Ends the connections that requested it.
    fn settle(&mut self, now: Time) {
        for slot in 0..self.connections.len() {
            let connection = &mut self.connections[slot];
            let Some(reason) = connection.link().closing.filter(|_| connection.is_open()) else { continue };
            // The peer gets a limited time to read the remaining output, for example a Logout Response.
            connection.set_deadline(now + self.config.answer_timeout, CloseReason::OutputStuck);
            // Tasks end now; only the output that is already queued is still sent.
            self.end(slot, reason);
            if !self.wants_to_send(slot) {
                // Without output there is nothing to wait for, and the driver can close the socket at once.
                self.connections[slot].finish();
            }
        }
        // Taken after the loop above, because ending a connection may request the end of others.
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

    /// Releases all tasks of the connection, or retains them for reassignment. Queued output may still be sent.
    fn end(&mut self, slot: usize, reason: CloseReason) {
        let stranded = self.connections.iter().filter(|connection| connection.awaits_reassignment()).count();
        let connection = &mut self.connections[slot];
        // Called for every cause of an end; only the first one counts.
        if !connection.is_open() && !connection.awaits_reassignment() {
            return;
        }
        if let Some(full_feature) = self.shared.full_feature.as_deref_mut() {
            let mut bereaved = BTreeSet::new();
            // A deliberate end retains nothing. The limit on stranded connections protects memory against an initiator
            // that loses one after the other.
            let for_good = matches!(reason, CloseReason::LoggedOut | CloseReason::ColdReset | CloseReason::Dropped)
                || stranded >= SUSPENDED_MAX;
            if connection.is_live() && full_feature.keeps_tasks() && !for_good {
                let retained = Duration::from_secs(full_feature.negotiated.time2retain_s.into());
                connection.suspend(full_feature, reason, self.now + retained);
            } else if connection.is_open() || for_good {
                // A stranded connection is released only by a deliberate end, or by `Dropped` when its time expires.
                connection.end(reason);
                bereaved = full_feature.lose_connection(slot);
            }
            // As long as one connection is alive or stranded, the session and its tasks continue.
            if self.connections.iter().any(|connection| connection.is_live() || connection.awaits_reassignment()) {
                full_feature.resume_delivery(bereaved);
                // A response that waited for this connection need not wait any longer.
                return self.send_due_tmf_responses();
            }
            // Events that were not polled yet precede the final one.
            self.shared.events.append(&mut full_feature.events);
            self.shared.full_feature = None;
        } else {
            // During the login there is no task to release, and no other connection.
            connection.end(reason);
        }
        self.shared.events.push_back(Event::Closed(reason));
    }
}
