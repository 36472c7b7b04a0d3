//! One connection of an initiator: requests, bytes and time go in, events and bytes come out.

use super::full_feature::{FullFeaturePhase, Placement};
use super::login::LoginPhase;
use super::order::Joins;
use super::task::{CommandTask, Task};
use super::{Command, Config, Event, TASKS_MAX};
use crate::pdu::{Bhs, Cid, Lun, TaskFunction};
use crate::receive::{Digests, Fault, Head, Limits, Receive, Step};
use crate::session::TaskId;
use crate::timers::{Due, Pulse, Timers};
use crate::transmit::{Gathered, Transmit};
use crate::{CloseReason, Violation};
use block::Buf;
use shard::Time;
use std::collections::VecDeque;
use std::rc::Rc;

/// An initiator's side of one TCP connection, from its first byte to its last.
///
/// Driven like [`target::Connection`](crate::target::Connection): bytes come in by
/// [`Connection::receive_into`] and [`Connection::handle_received`], leave by [`Connection::gather`], and what
/// they mean comes out of [`Connection::poll_event`]. Many requests may be submitted before one send.
#[derive(Debug)]
pub struct Connection {
    receive: Receive,
    core: Core,
}

/// The way out of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) config: Rc<Config>,
    pub(crate) transmit: Transmit,
    pub(crate) events: VecDeque<Event>,
    /// Set once the connection shall end.
    pub(crate) closing: Option<CloseReason>,
}

/// All but the bytes on their way in, so that a PDU can be read where it lies in the buffer.
#[derive(Debug)]
struct Core {
    link: Link,
    phase: Phase,
    timers: Timers,
    incoming: Incoming,
    receive_limits: Option<Limits>,
}

#[derive(Debug)]
enum Phase {
    Login(Box<LoginPhase>),
    FullFeature(Box<FullFeaturePhase>),
    Closed,
}

/// Whose payload is being received.
#[derive(Debug)]
enum Incoming {
    Nothing,
    Command(TaskId),
    Skipped(TaskId),
    Whole(Bhs),
}

impl Link {
    /// The connection ends for `reason`, unless it ends already.
    pub(crate) fn close(&mut self, reason: CloseReason) {
        self.closing.get_or_insert(reason);
    }
}

impl Connection {
    /// A connection that has its first login request to send.
    ///
    /// *Shape*: `random` are bytes that nobody can predict, other ones for each connection.
    /// *Panics*: when `config` has a bound outside what its field says.
    #[must_use]
    pub fn new(config: Rc<Config>, random: [u8; 32], now: Time) -> Self {
        Self::entering(config, None, random, now)
    }

    /// One more connection to the session of this one, that has its first login request to send. Their commands are numbered
    /// together, whichever carries them; what a command brings comes on the connection that it was submitted to. `None` outside full
    /// feature phase.
    ///
    /// *Shape*: `cid` is a number from 1 on that no living connection of the session has. The target must have agreed to as many
    /// ([`Negotiated::connections_max`](crate::Negotiated::connections_max)).
    /// *Panics*: where the session has no tags for `tasks_max` tasks of each connection up to this one: 65,534 in all.
    /// *Source*: RFC 7143 §4.2.5, §6.
    #[must_use]
    pub fn join(&self, cid: Cid, random: [u8; 32], now: Time) -> Option<Self> {
        let Phase::FullFeature(full_feature) = &self.core.phase else { return None };
        let mut config = (*self.core.link.config).clone();
        let (login, order) = (&mut config.login, full_feature.order.clone());
        (login.tsih, login.cid, login.cmd_sn) = (full_feature.negotiated.identity.tsih, cid, order.cmd_sn.get());
        let tags_from = u32::from(cid.0).saturating_mul(config.tasks_max);
        assert!(tags_from.saturating_add(config.tasks_max) <= TASKS_MAX, "a session has 65,534 task tags");
        Some(Self::entering(Rc::new(config), Some(Joins { order, tags_from }), random, now))
    }

    fn entering(config: Rc<Config>, joins: Option<Joins>, random: [u8; 32], now: Time) -> Self {
        config.check();
        let timers = Timers::new(now, config.patience(), config.login_timeout);
        let mut link = Link { config, transmit: Transmit::default(), events: VecDeque::new(), closing: None };
        let phase = Phase::Login(Box::new(LoginPhase::new(&mut link, joins, random)));
        let receive = Receive::new(Limits::login());
        Self { receive, core: Core { link, phase, timers, incoming: Incoming::Nothing, receive_limits: None } }
    }

    /// A connection whose login is over, for tests of what comes after.
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

    /// One more connection whose login is over, for tests of what comes after.
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

    /// The command is sent once the target's window and its turn allow it.
    ///
    /// *Errors*: the command itself, when the connection is not in full feature phase or has as many
    /// requests as its configuration allows.
    pub fn submit(&mut self, command: Command) -> Result<TaskId, Command> {
        let tasks_max = self.core.link.config.tasks_max as usize;
        match &mut self.core.phase {
            Phase::FullFeature(full_feature) if full_feature.tasks.len() < tasks_max => {
                Ok(full_feature.submit(&mut self.core.link, Task::Command(CommandTask::new(command))))
            }
            _ => Err(command),
        }
    }

    /// True while a command that was submitted waits for a place in the target's window.
    ///
    /// *Source*: RFC 7143 §4.2.2.1.
    #[must_use]
    pub fn is_held(&self) -> bool {
        matches!(&self.core.phase, Phase::FullFeature(full_feature) if full_feature.is_held())
    }

    /// Another connection of the session has perhaps heard of a wider window: what waits is sent as far as that goes.
    pub fn handle_window_moved(&mut self) {
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.pump(&mut self.core.link);
        }
    }

    /// A task management function is sent at once. `None` outside full feature phase.
    pub fn manage(&mut self, function: TaskFunction, lun: Lun, referenced: Option<TaskId>) -> Option<TaskId> {
        let Phase::FullFeature(full_feature) = &mut self.core.phase else { return None };
        Some(full_feature.manage(&mut self.core.link, function, lun, referenced))
    }

    /// A ping with `data` is sent in turn. `None` outside full feature phase.
    pub fn ping(&mut self, data: &[u8]) -> Option<TaskId> {
        self.submit_other(Task::Ping { data: data.to_vec() })
    }

    /// The target is asked for targets: `All`, one by its name, or its own where `which` is empty. `None`
    /// outside full feature phase.
    pub fn send_targets(&mut self, which: &str) -> Option<TaskId> {
        let mut request = b"SendTargets=".to_vec();
        request.extend_from_slice(which.as_bytes());
        request.push(0);
        self.submit_other(Task::Text { request, answer: Vec::new() })
    }

    /// A logout is sent in turn; [`Event::Closed`] follows its answer. `None` outside full feature phase.
    pub fn logout(&mut self) -> Option<TaskId> {
        self.submit_other(Task::Logout)
    }

    /// True while `task` has not ended. What a task management function has ended is told by no event of its own.
    #[must_use]
    pub fn is_waiting_for(&self, task: TaskId) -> bool {
        matches!(&self.core.phase, Phase::FullFeature(full_feature) if full_feature.tasks.find(task).is_some())
    }

    /// Where the next received bytes belong. Empty once the connection is over.
    pub fn receive_into(&mut self) -> &mut [u8] {
        if self.is_closed() { &mut [] } else { self.receive.space() }
    }

    /// `len` bytes were received into [`Connection::receive_into`]. Every PDU that they complete was acted on.
    ///
    /// *Panics*: when there was less space.
    pub fn handle_received(&mut self, len: usize, now: Time) {
        if self.is_closed() || len == 0 {
            return;
        }
        self.receive.handle_filled(len);
        self.core.timers.handle_heard(now, self.core.pulse());
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
                    unreachable!("an initiator asks for no recovery")
                }
                Err(Fault { violation, .. }) => self.core.link.close(CloseReason::Violation(violation)),
            }
            if let Some(reason) = self.core.link.closing {
                return self.end(reason);
            }
            self.apply_receive_limits();
        }
    }

    /// The next event, when there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.link.events.pop_front()
    }

    /// Adds slices of what waits to be sent, for one vectored send.
    pub fn gather<'a>(&'a self, into: &mut Gathered<'a>) {
        self.core.link.transmit.gather(into);
    }

    /// The first `len` bytes of what was gathered have been sent.
    pub fn handle_transmitted(&mut self, len: usize) {
        self.core.link.transmit.handle_transmitted(len);
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.pump(&mut self.core.link);
        }
    }

    /// True while something waits to be sent.
    #[must_use]
    pub fn wants_to_send(&self) -> bool {
        self.core.link.transmit.queued_bytes() > 0
    }

    /// When [`Connection::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        (!self.is_closed()).then(|| self.core.timers.next())
    }

    /// What is due at `now` has happened.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.is_closed() {
            return;
        }
        let pulse = self.core.pulse();
        match self.core.timers.handle_timeout(now, pulse) {
            Due::Nothing => {}
            Due::Close(reason) => self.end(reason),
            Due::Ping => {
                self.receive.shrink();
                self.core.link.transmit.shrink();
                self.core.send_ping();
            }
        }
    }

    /// The peer has closed its side: nothing more will come.
    pub fn handle_peer_closed(&mut self) {
        self.end(CloseReason::PeerClosed);
    }

    /// The connection is over at once; what was not sent is forgotten.
    pub fn close(&mut self) {
        self.end(CloseReason::Dropped);
    }

    /// True when nothing is left to do but to close the socket.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.core.phase, Phase::Closed)
    }

    fn submit_other(&mut self, task: Task) -> Option<TaskId> {
        let Phase::FullFeature(full_feature) = &mut self.core.phase else { return None };
        Some(full_feature.submit(&mut self.core.link, task))
    }

    fn apply_receive_limits(&mut self) {
        if let Some(limits) = self.core.receive_limits.take() {
            self.receive.set_limits(limits);
        }
    }

    fn end(&mut self, reason: CloseReason) {
        if self.is_closed() {
            return;
        }
        self.core.phase = Phase::Closed;
        self.core.incoming = Incoming::Nothing;
        self.core.link.transmit.clear();
        self.receive.clear();
        self.core.link.events.push_back(Event::Closed(reason));
    }
}

impl Core {
    fn pulse(&self) -> Pulse {
        Pulse {
            queued_bytes: self.link.transmit.queued_bytes(),
            transmitted_bytes: self.link.transmit.transmitted_bytes(),
            listening: true,
        }
    }

    fn send_ping(&mut self) {
        if let Phase::FullFeature(full_feature) = &mut self.phase {
            let id = full_feature.tasks.insert(Task::Ping { data: Vec::new() });
            let cmd_sn = full_feature.order.cmd_sn.get();
            full_feature.send(&mut self.link, id, cmd_sn, true);
        }
    }

    fn start_full_feature(&mut self, full_feature: FullFeaturePhase) {
        let negotiated = &full_feature.negotiated;
        let digests = Digests { header: negotiated.header_digest, data: negotiated.data_digest };
        self.receive_limits = Some(Limits {
            digests,
            data_segment_bytes_max: full_feature.negotiated.own_data_segment_bytes_max,
            buffer_bytes_max: self.link.config.receive_buffer_bytes_max,
            places: true,
            recovers: false,
        });
        self.link.transmit.digests = digests;
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

    /// Says where a large payload goes; nowhere when there is no place.
    fn begin(&mut self, head: Head<'_>, data_bytes: usize) -> Option<(Buf, usize)> {
        let Phase::FullFeature(full_feature) = &mut self.phase else { return None };
        match full_feature.begin(head, data_bytes) {
            Ok(Placement::Command { task, offset }) => {
                self.incoming = Incoming::Command(task);
                full_feature.take_buf(task).map(|buf| (buf, offset))
            }
            Ok(Placement::Skip(task)) => {
                self.incoming = Incoming::Skipped(task);
                None
            }
            Ok(Placement::Whole) => {
                self.incoming = Incoming::Whole(*head.basic);
                // A data segment is at most our own MaxRecvDataSegmentLength, so this is bounded.
                Some((Buf::recycled(data_bytes), 0))
            }
            Err(violation) => {
                self.judge(Err(violation));
                None
            }
        }
    }

    fn handle_payload(&mut self, buf: Option<Buf>) {
        let Phase::FullFeature(full_feature) = &mut self.phase else { return };
        let handled = match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::Nothing => Ok(()),
            Incoming::Command(task) => {
                full_feature.finish_data(&mut self.link, task, buf);
                Ok(())
            }
            Incoming::Skipped(task) => {
                full_feature.finish_data(&mut self.link, task, None);
                Ok(())
            }
            Incoming::Whole(header) => {
                full_feature.handle_whole(&mut self.link, &header, buf.as_deref().unwrap_or_default())
            }
        };
        self.judge(handled);
    }

    /// A target that breaks a rule is left: at error recovery level 0 nothing else helps.
    fn judge(&mut self, handled: Result<(), Violation>) {
        if let Err(violation) = handled {
            self.link.close(CloseReason::Violation(violation));
        }
    }
}
