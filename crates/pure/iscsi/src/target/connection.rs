//! One connection of a target: bytes and time go in, events and bytes come out.

use super::Config;
use super::event::{Event, Gate, Response, TargetRecord};
use super::full_feature::{FullFeature, Placement};
use super::link::Link;
use super::login::LoginPhase;
use crate::login::{Grant, LoginStatus};
use crate::pdu::{AsyncEvent, Bhs, Lun, TaskFunctionOutcome};
use crate::receive::{Digests, Fault, Head, Limits, Receive, Step};
use crate::session::TaskId;
use crate::timers::{Due, Pulse, Timers};
use crate::transmit::Gathered;
use crate::{CloseReason, Negotiated};
use block::Buf;
use shard::Time;
use std::rc::Rc;
use std::time::Duration;

/// A target's side of one TCP connection, from its first byte to its last.
///
/// The driver receives into [`Connection::receive_into`] and says so with [`Connection::handle_received`], acts
/// on [`Connection::poll_event`], sends what [`Connection::gather`] gives, and calls
/// [`Connection::handle_timeout`] when [`Connection::poll_timeout`] is due. Nothing here waits, reads a clock or
/// draws a random number, and everything is bounded by [`Config`].
#[derive(Debug)]
pub struct Connection {
    receive: Receive,
    core: Core,
}

/// All but the bytes on their way in, so that a PDU can be read where it lies in the buffer.
#[derive(Debug)]
struct Core {
    link: Link,
    phase: Phase,
    timers: Timers,
    incoming: Incoming,
    /// Limits that hold from the next PDU on.
    receive_limits: Option<Limits>,
}

#[derive(Debug)]
enum Phase {
    Login(Box<LoginPhase>),
    FullFeature(Box<FullFeature>),
    /// Output that is left is sent; what comes is thrown away.
    Closing,
    Closed,
}

/// Whose payload is being received.
#[derive(Debug)]
enum Incoming {
    Nothing,
    Command(TaskId),
    Skipped(Option<TaskId>),
    Whole(Bhs),
}

impl Connection {
    /// A connection that waits for a login.
    ///
    /// *Shape*: `random` are bytes that nobody can predict, other ones for each connection.
    /// *Panics*: when `config` has a bound outside what its field says.
    #[must_use]
    pub fn new(config: Rc<Config>, random: [u8; 32], now: Time) -> Self {
        config.check();
        let timers = Timers::new(now, config.patience(), config.login_timeout);
        let link = Link::new(config);
        let phase = Phase::Login(Box::new(LoginPhase::new(&link, random)));
        let core = Core { link, phase, timers, incoming: Incoming::Nothing, receive_limits: None };
        Self { receive: Receive::new(Limits::login()), core }
    }

    /// A connection whose login is over, for tests of what comes after.
    #[cfg(test)]
    pub(crate) fn in_full_feature(config: Rc<Config>, negotiated: Negotiated, now: Time) -> Self {
        let mut connection = Self::new(config, [0; 32], now);
        connection.core.start_full_feature(negotiated);
        connection.apply_receive_limits();
        connection
    }

    /// Tasks, and bytes of their data-out.
    #[cfg(test)]
    pub(crate) fn holds(&self) -> (usize, usize) {
        match &self.core.phase {
            Phase::FullFeature(full_feature) => (full_feature.session.len(), full_feature.held_bytes),
            _ => (0, 0),
        }
    }

    /// Bytes that are copied for the wire.
    #[cfg(test)]
    pub(crate) fn queued_bytes(&self) -> usize {
        self.core.link.transmit.queued_bytes()
    }

    /// Memory of the buffers for input and output.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.receive.buffer_bytes() + self.core.link.transmit.buffer_bytes()
    }

    /// Where the next received bytes belong.
    ///
    /// Empty while nothing shall be received: more answers wait than may, or the connection is over. Then the
    /// driver sends, and asks again.
    pub fn receive_into(&mut self) -> &mut [u8] {
        if self.core.is_listening() { self.receive.space() } else { &mut [] }
    }

    /// `len` bytes were received into [`Connection::receive_into`]. Every PDU that they complete was acted on.
    ///
    /// *Panics*: when there was less space.
    pub fn handle_received(&mut self, len: usize, now: Time, gate: &mut impl Gate) {
        if !self.core.is_open() || len == 0 {
            return;
        }
        self.receive.handle_filled(len);
        self.core.timers.handle_heard(now, self.core.pulse());
        loop {
            match self.receive.poll() {
                Ok(Step::Wait) => break,
                Ok(Step::Pdu { head, data }) => self.core.handle_pdu(head, data, gate),
                Ok(Step::Head { head, data_bytes }) => match self.core.begin(head, data_bytes, gate) {
                    Some((buf, offset)) => self.receive.place(buf, offset),
                    None => self.receive.skip(),
                },
                Ok(Step::Payload(buf)) => self.core.handle_payload(buf),
                Err(fault) => self.core.handle_fault(&fault),
            }
            if self.core.link.closing.is_some() {
                break;
            }
            self.apply_receive_limits();
        }
        self.settle(now);
    }

    /// The next event, when there is one.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.core.link.events.pop_front()
    }

    /// The login goes on as `grant` says.
    pub fn grant(&mut self, grant: Grant, now: Time) {
        if let Phase::Login(login) = &mut self.core.phase {
            let negotiated = login.grant(&mut self.core.link, grant);
            self.core.finish_login(negotiated);
            self.apply_receive_limits();
            self.settle(now);
        }
    }

    /// The login ends with `status`.
    pub fn refuse(&mut self, status: LoginStatus, now: Time) {
        if let Phase::Login(login) = &mut self.core.phase {
            let negotiated = login.refuse(&mut self.core.link, status);
            self.core.finish_login(negotiated);
            self.settle(now);
        }
    }

    /// The command is answered. Without effect when it was aborted meanwhile.
    ///
    /// Residuals are counted here, and what passes the expected length is not sent.
    pub fn respond(&mut self, task: TaskId, response: Response) {
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.respond(&mut self.core.link, task, response);
        }
    }

    /// The task management function is answered; when it is complete, nothing is sent any more for the
    /// commands that it affected.
    pub fn respond_task_management(&mut self, task: TaskId, outcome: TaskFunctionOutcome) {
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.respond_task_management(&mut self.core.link, task, outcome);
        }
    }

    /// SendTargets is answered with these targets.
    pub fn respond_targets(&mut self, task: TaskId, targets: &[TargetRecord]) {
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.respond_targets(&mut self.core.link, task, targets);
        }
    }

    /// The task is forgotten without an answer.
    pub fn abort(&mut self, task: TaskId) {
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.abort(&mut self.core.link, task);
        }
    }

    /// An asynchronous message is queued, with sense data where the event carries it.
    pub fn send_async(&mut self, lun: Lun, event: AsyncEvent, sense: &[u8]) {
        if let Phase::FullFeature(full_feature) = &mut self.core.phase {
            full_feature.send_async(&mut self.core.link, lun, event, sense);
        }
    }

    /// The initiator is asked to log out; if it has not within `within`, the connection ends.
    pub fn request_logout(&mut self, within: Duration, now: Time) {
        let within_s = u16::try_from(within.as_secs()).unwrap_or(u16::MAX);
        self.send_async(Lun(0), AsyncEvent::LogoutRequested { within_s }, &[]);
        if matches!(self.core.phase, Phase::FullFeature(_)) {
            self.core.timers.set_deadline(Some((now + within, CloseReason::LogoutOverdue)));
        }
    }

    /// The connection is over at once; what was not sent is forgotten.
    pub fn close(&mut self) {
        self.end(CloseReason::Dropped);
        self.finish();
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
        if matches!(self.core.phase, Phase::Closing) && !self.wants_to_send() {
            self.finish();
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
            Due::Close(reason) => {
                self.end(reason);
                self.finish();
            }
            Due::Ping => {
                self.receive.shrink();
                self.core.link.transmit.shrink();
                if let Phase::FullFeature(full_feature) = &mut self.core.phase
                    && !full_feature.is_discovery()
                {
                    full_feature.send_ping(&mut self.core.link);
                }
            }
        }
    }

    /// The peer has closed its side: nothing more will come.
    pub fn handle_peer_closed(&mut self) {
        self.end(CloseReason::PeerClosed);
        self.finish();
    }

    /// True when nothing is left to do but to close the socket.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.core.phase, Phase::Closed)
    }

    fn apply_receive_limits(&mut self) {
        if let Some(limits) = self.core.receive_limits.take() {
            self.receive.set_limits(limits);
        }
    }

    /// Ends the connection if something asked for it.
    fn settle(&mut self, now: Time) {
        if let Some(reason) = self.core.link.closing {
            self.end(reason);
            let deadline = now + self.core.link.config.answer_timeout;
            self.core.timers.set_deadline(Some((deadline, CloseReason::OutputStuck)));
            if !self.wants_to_send() {
                self.finish();
            }
        }
    }

    /// All tasks and their memory are given back; output that is queued may still leave.
    fn end(&mut self, reason: CloseReason) {
        if !self.core.is_open() {
            return;
        }
        self.core.link.close(reason);
        self.core.phase = Phase::Closing;
        self.core.incoming = Incoming::Nothing;
        self.receive.clear();
        self.core.link.events.push_back(Event::Closed(reason));
    }

    fn finish(&mut self) {
        self.core.link.transmit.clear();
        self.core.phase = Phase::Closed;
    }
}

impl Core {
    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Login(_) | Phase::FullFeature(_))
    }

    fn is_listening(&self) -> bool {
        self.is_open() && !self.link.transmit.is_flooded()
    }

    fn pulse(&self) -> Pulse {
        Pulse {
            queued_bytes: self.link.transmit.queued_bytes(),
            transmitted_bytes: self.link.transmit.transmitted_bytes(),
            listening: self.is_listening(),
        }
    }

    fn handle_pdu(&mut self, head: Head<'_>, data: &[u8], gate: &mut impl Gate) {
        match &mut self.phase {
            Phase::Login(login) => {
                let negotiated = login.handle_pdu(&mut self.link, head, data);
                self.finish_login(negotiated);
            }
            Phase::FullFeature(full_feature) => {
                let link = &mut self.link;
                let handled = match full_feature.begin(link, head, data.len(), gate) {
                    Ok(Placement::Whole) => full_feature.handle_whole(link, head.basic, data),
                    Ok(Placement::Command { task, offset }) => {
                        full_feature.put_data(link, task, offset, data);
                        Ok(())
                    }
                    Ok(Placement::Skip(task)) => {
                        full_feature.finish_skipped(link, task);
                        Ok(())
                    }
                    Err(violation) => Err(violation),
                };
                if let Err(violation) = handled {
                    full_feature.handle_violation(link, violation, Some(head.basic));
                }
            }
            Phase::Closing | Phase::Closed => {}
        }
    }

    /// Full feature phase begins, when the login has succeeded.
    fn finish_login(&mut self, negotiated: Option<Box<Negotiated>>) {
        if let Some(negotiated) = negotiated {
            self.link.events.push_back(Event::FullFeature(negotiated.clone()));
            self.start_full_feature(*negotiated);
        }
    }

    fn start_full_feature(&mut self, negotiated: Negotiated) {
        let digests = Digests { header: negotiated.header_digest, data: negotiated.data_digest };
        self.receive_limits = Some(Limits {
            digests,
            data_segment_bytes_max: negotiated.own_data_segment_bytes_max,
            buffer_bytes_max: self.link.config.receive_buffer_bytes_max,
            places: true,
        });
        self.link.transmit.digests = digests;
        self.timers.set_deadline(None);
        self.phase = Phase::FullFeature(Box::new(FullFeature::new(&self.link, negotiated)));
    }

    /// Says where a large payload goes; nowhere when there is no place.
    fn begin(&mut self, head: Head<'_>, data_bytes: usize, gate: &mut impl Gate) -> Option<(Buf, usize)> {
        let Phase::FullFeature(full_feature) = &mut self.phase else { return None };
        let placement = full_feature.begin(&mut self.link, head, data_bytes, gate).unwrap_or_else(|violation| {
            full_feature.handle_violation(&mut self.link, violation, Some(head.basic));
            Placement::Skip(None)
        });
        match placement {
            Placement::Command { task, offset } => {
                self.incoming = Incoming::Command(task);
                full_feature.take_buf(task).map(|buf| (buf, offset))
            }
            Placement::Skip(task) => {
                self.incoming = Incoming::Skipped(task);
                None
            }
            Placement::Whole => {
                self.incoming = Incoming::Whole(*head.basic);
                // A data segment is at most our own MaxRecvDataSegmentLength, so this is bounded.
                Some((Buf::recycled(data_bytes), 0))
            }
        }
    }

    fn handle_payload(&mut self, buf: Option<Buf>) {
        let Phase::FullFeature(full_feature) = &mut self.phase else { return };
        let link = &mut self.link;
        match std::mem::replace(&mut self.incoming, Incoming::Nothing) {
            Incoming::Nothing => {}
            Incoming::Command(task) => full_feature.finish_data(link, task, buf),
            Incoming::Skipped(task) => full_feature.finish_skipped(link, task),
            Incoming::Whole(header) => {
                let data = buf.as_deref().unwrap_or_default();
                if let Err(violation) = full_feature.handle_whole(link, &header, data) {
                    full_feature.handle_violation(link, violation, Some(&header));
                }
            }
        }
    }

    fn handle_fault(&mut self, fault: &Fault) {
        match &mut self.phase {
            Phase::Login(login) => {
                login.handle_violation(&mut self.link, fault.violation);
            }
            Phase::FullFeature(full_feature) => {
                full_feature.handle_violation(&mut self.link, fault.violation, fault.header.as_ref());
            }
            Phase::Closing | Phase::Closed => {}
        }
    }
}
