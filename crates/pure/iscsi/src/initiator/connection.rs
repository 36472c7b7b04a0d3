//! Initiator connection as a state machine: requests, bytes and time in, events and bytes out.

use super::config::TAGS_MAX;
use super::full_feature::{FullFeaturePhase, Placement};
use super::login::LoginPhase;
use super::numbering::JoinState;
use super::task::{CommandTask, Task};
use super::{Command, Config, Event};
use crate::pdu::{Bhs, Cid, Lun, TaskFunction};
use crate::receive::{Digests, Fault, Head, Limits, Receive, Step};
use crate::session::TaskId;
use crate::timers::{Due, TimerInput, Timers};
use crate::transmit::{SendSlices, Transmit};
use crate::{CloseReason, Violation};
use block::Buf;
use shard::Time;
use std::collections::VecDeque;
use std::rc::Rc;

/// Initiator side of one TCP connection, from its first byte to its last.
///
/// Driven like [`target::Session`](crate::target::Session): bytes enter through [`Connection::receive_into`] and
/// [`Connection::handle_received`], leave through [`Connection::gather`], and events are taken from
/// [`Connection::poll_event`]. Many requests may be submitted before one send.
#[derive(Debug)]
pub struct Connection {
    receive: Receive,
    core: Core,
}

/// Send side of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: Rc<Config>,
    pub(crate) transmit: Transmit,
    pub(crate) events: VecDeque<Event>,
    /// Reason for closing, set once the connection shall end.
    pub(crate) closing: Option<CloseReason>,
}

/// Everything except the receive path, so that a PDU can be handled while it is borrowed from the receive buffer.
#[derive(Debug)]
struct Core {
    link: Link,
    phase: Phase,
    timers: Timers,
    destination: PayloadDestination,
    receive_limits: Option<Limits>,
}

#[derive(Debug)]
enum Phase {
    Login(Box<LoginPhase>),
    FullFeature(Box<FullFeaturePhase>),
    Closed,
}

/// Destination of the payload that is being received.
#[derive(Debug)]
enum PayloadDestination {
    Nothing,
    Command(TaskId),
    Skipped(TaskId),
    Whole(Bhs),
}

impl Link {
    /// Requests the end of the connection for `reason`, unless it is ending already.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        // The first reason counts: later ones are consequences of it.
        self.closing.get_or_insert(reason);
    }
}

impl Connection {
    /// Creates a connection with its first Login Request queued.
    ///
    /// *Shape*: `random` are unpredictable bytes, different for each connection. *Panics*: when a bound of `config` is
    /// out of range.
    #[must_use]
    pub fn new(config: Rc<Config>, random: [u8; 32], now: Time) -> Self {
        Self::entering(config, None, random, now)
    }

    /// Creates a further connection of the same session, with its first Login Request queued. Commands of the session
    /// are numbered together, regardless of the connection; the data of a command uses the connection that it was
    /// submitted to. `None` outside full feature phase.
    ///
    /// *Shape*: `cid` is a number from 1 that no live connection of the session has. The target must have negotiated
    /// enough connections ([`Negotiated::connections_max`](crate::Negotiated::connections_max)). *Panics*: when the
    /// session has no tags for `tasks_max` commands and 64 other requests of each connection up to this one, of 65,534
    /// in all. *Source*: RFC 7143 §4.2.5, §6.
    #[must_use]
    pub fn join(&self, cid: Cid, random: [u8; 32], now: Time) -> Option<Self> {
        // Further connections can only join a session that has been established.
        let Phase::FullFeature(full_feature) = &self.core.phase else { return None };
        let mut config = (*self.core.link.config).clone();
        let (login, order) = (&mut config.login, full_feature.numbering.clone());
        // All connections of a session share one CmdSN sequence.
        (login.tsih, login.cid, login.cmd_sn) = (full_feature.negotiated.identity.tsih, cid, order.cmd_sn.get());
        // Each connection has a range of task tags of its own, because tags are unique within the session.
        // Saturating, so that the assertion below refuses a CID that is too high.
        let tags_from = u32::from(cid.0).saturating_mul(config.tags());
        assert!(tags_from.saturating_add(config.tags()) <= TAGS_MAX, "a session has 65,534 task tags");
        Some(Self::entering(Rc::new(config), Some(JoinState { numbering: order, tags_from }), random, now))
    }

    fn entering(config: Rc<Config>, joins: Option<JoinState>, random: [u8; 32], now: Time) -> Self {
        config.check();
        let timers = Timers::new(now, config.timeouts(), config.login_timeout);
        let mut link = Link { config, transmit: Transmit::default(), events: VecDeque::new(), closing: None };
        let phase = Phase::Login(Box::new(LoginPhase::new(&mut link, joins, random)));
        let receive = Receive::new(Limits::login());
        Self {
            receive,
            core: Core { link, phase, timers, destination: PayloadDestination::Nothing, receive_limits: None },
        }
    }

    /// Creates a connection after its login, for tests of full feature phase.
    #[cfg(test)]
    pub(crate) fn in_full_feature(
        config: Rc<Config>,
        negotiated: crate::Negotiated,
        max_cmd_sn: crate::pdu::CmdSn,
        exp_stat_sn: crate::pdu::StatSn,
        now: Time,
    ) -> Self {
        let mut connection = Self::new(config, [0; 32], now);
        connection.core.link.transmit.clear();
        let full_feature = FullFeaturePhase::new(negotiated, max_cmd_sn, exp_stat_sn);
        connection.core.start_full_feature(full_feature);
        connection.apply_receive_limits();
        connection
    }

    /// Creates a further connection after its login, for tests of full feature phase.
    #[cfg(test)]
    pub(crate) fn joined(&self, cid: Cid, negotiated: crate::Negotiated, now: Time) -> Self {
        let mut connection = self.join(cid, [0; 32], now).expect("the first is in full feature phase");
        connection.core.link.transmit.clear();
        let Phase::Login(login) = &mut connection.core.phase else { unreachable!("it has just begun") };
        let joins = login.joins.take().expect("it joins");
        let full_feature = FullFeaturePhase::joining(joins, negotiated, crate::pdu::StatSn(1));
        connection.core.start_full_feature(full_feature);
        connection.apply_receive_limits();
        connection
    }

    /// Queues a command, which is sent once the window of the target and its turn permit.
    ///
    /// *Errors*: the command itself, when the connection is not in full feature phase or has the maximum number of
    /// requests.
    pub fn submit(&mut self, command: Command) -> Result<TaskId, Command> {
        let tasks_max = self.core.link.config.tasks_max as usize;
        match &mut self.core.phase {
            // Below the number of tags, so that commands leave some for other requests.
            Phase::FullFeature(full_feature) if full_feature.tasks.len() < tasks_max => {
                Ok(full_feature.submit(&mut self.core.link, Task::Command(CommandTask::new(command))))
            }
            _ => Err(command),
        }
    }

    /// True while a submitted command awaits a place in the window of the target.
    ///
    /// *Source*: RFC 7143 §4.2.2.1.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(&self.core.phase, Phase::FullFeature(full_feature) if full_feature.is_held())
    }

    /// Sends waiting commands after another connection of the session may have received a wider window.
    pub fn handle_window_moved(&mut self) {
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.pump(&mut self.core.link);
        }
    }

    /// Sends a task management function at once. `None` outside full feature phase, or when all tags are in use.
    pub fn manage(&mut self, function: TaskFunction, lun: Lun, referenced: Option<TaskId>) -> Option<TaskId> {
        let (full_feature, link) = self.core.with_free_tag()?;
        Some(full_feature.manage(link, function, lun, referenced))
    }

    /// Sends a ping with `data` in order. `None` as for [`Connection::manage`].
    pub fn ping(&mut self, data: &[u8]) -> Option<TaskId> {
        self.submit_other(Task::Ping { data: data.to_vec() })
    }

    /// Sends SendTargets: `All`, the name of a target, or the target of the session where `which` is empty. `None` as
    /// for [`Connection::manage`].
    pub fn send_targets(&mut self, which: &str) -> Option<TaskId> {
        let mut request = b"SendTargets=".to_vec();
        request.extend_from_slice(which.as_bytes());
        // Every pair ends with a NUL byte (RFC 7143 §6.1).
        request.push(0);
        self.submit_other(Task::Text { request, answer: Vec::new() })
    }

    /// Sends a logout in order; [`Event::Closed`] follows its response. `None` as for [`Connection::manage`].
    pub fn logout(&mut self) -> Option<TaskId> {
        self.submit_other(Task::Logout)
    }

    /// True while `task` has not ended. A task that a task management function has ended is not reported by an event of
    /// its own.
    #[must_use]
    pub fn is_waiting_for(&self, task: TaskId) -> bool {
        matches!(&self.core.phase, Phase::FullFeature(full_feature) if full_feature.tasks.find(task).is_some())
    }

    /// Returns the memory for the next received bytes. Empty once the connection has ended.
    pub fn receive_into(&mut self) -> &mut [u8] {
        if self.is_closed() { &mut [] } else { self.receive.space() }
    }

    /// Accepts `len` bytes received into [`Connection::receive_into`] and handles every PDU that they complete.
    ///
    /// *Panics*: when there was less space.
    pub fn handle_received(&mut self, len: usize, now: Time) {
        if self.is_closed() || len == 0 {
            return;
        }
        self.receive.handle_filled(len);
        // Any received byte proves that the target is alive.
        self.core.timers.handle_heard(now, self.core.timer_input());
        loop {
            match self.receive.poll() {
                Ok(Step::Wait) => break,
                Ok(Step::Pdu { head, data }) => self.core.handle_pdu(head, data),
                Ok(Step::Head { head, data_bytes }) => match self.core.begin(head, data_bytes) {
                    Some((buf, offset)) => self.receive.place(buf, offset),
                    None => self.receive.skip(),
                },
                Ok(Step::Payload(buf)) => self.core.handle_payload(buf),
                Ok(Step::Damaged { .. } | Step::DamagedPayload { .. } | Step::Lost) => {
                    // No limits of an initiator set `recovers`, without which the receive path never takes these steps.
                    unreachable!("an initiator asks for no recovery")
                }
                Err(Fault { violation, .. }) => self.core.link.close(CloseReason::Violation(violation)),
            }
            // Nothing is parsed behind a violation or a logout.
            if let Some(reason) = self.core.link.closing {
                return self.end(reason);
            }
            // New limits take effect between two PDUs, after the one that ended the login.
            self.apply_receive_limits();
        }
    }

    /// Returns the next event, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.link.events.pop_front()
    }

    /// Appends slices of the queued output, for one vectored send.
    pub fn gather<'a>(&'a self, into: &mut SendSlices<'a>) {
        self.core.link.transmit.gather(into);
    }

    /// Removes the first `len` bytes of the gathered output, which have been sent.
    pub fn handle_transmitted(&mut self, len: usize) {
        self.core.link.transmit.handle_transmitted(len);
        // Sent bytes make room for waiting requests.
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.pump(&mut self.core.link);
        }
    }

    /// True while output is queued.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        self.core.link.transmit.queued_bytes() > 0
    }

    /// Returns the time at which [`Connection::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.is_closed()).then(|| self.core.timers.next())
    }

    /// Handles all timers that are due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_closed() {
            return;
        }
        // Taken before the timers run: they compare the progress of the output.
        let pulse = self.core.timer_input();
        match self.core.timers.handle_timeout(now, pulse) {
            Due::Nothing => {}
            Due::Close(reason) => self.end(reason),
            Due::Ping => {
                // An idle connection keeps no buffers.
                self.receive.shrink();
                self.core.link.transmit.shrink();
                self.core.send_ping();
            }
        }
    }

    /// Handles the end of the peer's byte stream.
    pub fn handle_peer_closed(&mut self) {
        self.end(CloseReason::PeerClosed);
    }

    /// Ends the connection at once and discards unsent output.
    pub fn close(&mut self) {
        self.end(CloseReason::Dropped);
    }

    /// True when only closing the socket is left to do.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.core.phase, Phase::Closed)
    }

    fn submit_other(&mut self, task: Task) -> Option<TaskId> {
        let (full_feature, link) = self.core.with_free_tag()?;
        Some(full_feature.submit(link, task))
    }

    fn apply_receive_limits(&mut self) {
        if let Some(limits) = self.core.receive_limits.take() {
            self.receive.set_limits(limits);
        }
    }

    fn end(&mut self, reason: CloseReason) {
        // The first reason for the end is the one that is reported.
        if self.is_closed() {
            return;
        }
        self.core.phase = Phase::Closed;
        self.core.destination = PayloadDestination::Nothing;
        self.core.link.transmit.clear();
        self.receive.clear();
        self.core.link.events.push_back(Event::Closed(reason));
    }
}

impl Core {
    fn timer_input(&self) -> TimerInput {
        TimerInput {
            queued_bytes: self.link.transmit.queued_bytes(),
            transmitted_bytes: self.link.transmit.transmitted_bytes(),
            // An initiator never pauses reception.
            listening: true,
        }
    }

    fn send_ping(&mut self) {
        // Without a free tag the target owes many answers, and any of them shows that it is alive.
        if let Some((full_feature, link)) = self.with_free_tag() {
            // The ping is immediate, so it passes a closed window and takes no CmdSN.
            let id = full_feature.tasks.insert(Task::Ping { data: Vec::new() });
            let cmd_sn = full_feature.numbering.cmd_sn.get();
            full_feature.send(link, id, cmd_sn, true);
        }
    }

    /// Returns what a request other than a command needs. `None` outside full feature phase, or when all tags are in
    /// use: a further task would have a tag of the next connection of the session.
    fn with_free_tag(&mut self) -> Option<(&mut FullFeaturePhase, &mut Link)> {
        let Phase::FullFeature(full_feature) = &mut self.phase else { return None };
        let is_free = full_feature.tasks.len() < self.link.config.tags() as usize;
        is_free.then_some((&mut **full_feature, &mut self.link))
    }

    fn start_full_feature(&mut self, full_feature: FullFeaturePhase) {
        let negotiated = &full_feature.negotiated;
        let digests = Digests { header: negotiated.header_digest, data: negotiated.data_digest };
        self.receive_limits = Some(Limits {
            digests,
            data_segment_bytes_max: full_feature.negotiated.own_data_segment_bytes_max,
            buffer_bytes_max: self.link.config.receive_buffer_bytes_max,
            places: true,
            // Error recovery level 0: every digest error ends the connection.
            recovers: false,
        });
        self.link.transmit.digests = digests;
        // The login deadline no longer applies.
        self.timers.set_deadline(None);
        self.phase = Phase::FullFeature(Box::new(full_feature));
    }

    fn handle_pdu(&mut self, head: Head<'_>, data: &[u8]) {
        match &mut self.phase {
            Phase::Login(login) => {
                if let Some(full_feature) = login.handle_pdu(&mut self.link, head, data) {
                    self.start_full_feature(full_feature);
                }
            }
            Phase::FullFeature(full_feature) => {
                let link = &mut self.link;
                let handled = full_feature.begin(head, data.len()).and_then(|placement| match placement {
                    Placement::Whole => full_feature.handle_whole(link, head.basic, data),
                    Placement::Command { task, offset } => {
                        full_feature.put_data(link, task, offset, data);
                        Ok(())
                    }
                    Placement::Skip(task) => {
                        full_feature.finish_data(link, task, None);
                        Ok(())
                    }
                });
                self.judge(handled);
            }
            Phase::Closed => {}
        }
    }

    /// Determines the destination of a large payload; `None` discards it.
    fn begin(&mut self, head: Head<'_>, data_bytes: usize) -> Option<(Buf, usize)> {
        let Phase::FullFeature(full_feature) = &mut self.phase else { return None };
        match full_feature.begin(head, data_bytes) {
            Ok(Placement::Command { task, offset }) => {
                self.destination = PayloadDestination::Command(task);
                full_feature.take_buf(task).map(|buf| (buf, offset))
            }
            Ok(Placement::Skip(task)) => {
                self.destination = PayloadDestination::Skipped(task);
                None
            }
            Ok(Placement::Whole) => {
                self.destination = PayloadDestination::Whole(*head.basic);
                // Bounded by the MaxRecvDataSegmentLength that this side declared.
                Some((Buf::recycled(data_bytes), 0))
            }
            // The payload of a refused PDU must be consumed all the same.
            Err(violation) => {
                self.judge(Err(violation));
                None
            }
        }
    }

    fn handle_payload(&mut self, buf: Option<Buf>) {
        let Phase::FullFeature(full_feature) = &mut self.phase else { return };
        let handled = match std::mem::replace(&mut self.destination, PayloadDestination::Nothing) {
            PayloadDestination::Nothing => Ok(()),
            PayloadDestination::Command(task) => {
                full_feature.finish_data(&mut self.link, task, buf);
                Ok(())
            }
            PayloadDestination::Skipped(task) => {
                full_feature.finish_data(&mut self.link, task, None);
                Ok(())
            }
            PayloadDestination::Whole(header) => {
                full_feature.handle_whole(&mut self.link, &header, buf.as_deref().unwrap_or_default())
            }
        };
        self.judge(handled);
    }

    /// Ends the connection on a violation of the target: error recovery level 0 has no other remedy.
    fn judge(&mut self, handled: Result<(), Violation>) {
        if let Err(violation) = handled {
            self.link.close(CloseReason::Violation(violation));
        }
    }
}
