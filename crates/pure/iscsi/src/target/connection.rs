//! One TCP connection of a target session: receive path, login phase, timers.

use super::event::{Event, Gate};
use super::fast_path::FastPathResult;
use super::full_feature::{FullFeature, Placement};
use super::link::Link;
use super::login::LoginPhase;
use super::{CloseReason, Config};
use crate::login::{FailedLogin, Grant, LoginStatus, NoSession};
use crate::pdu::{Bhs, Cid, StatSn, Tsih};
use crate::receive::{Digests, Fault, Head, Limits, Receive, Step};
use crate::session::TaskId;
use crate::timers::{Due, TimerInput, Timers};
use crate::{Negotiated, Violation};
use block::Buf;
use shard::Time;
use std::collections::VecDeque;
use std::rc::Rc;

/// Target side of one TCP connection, from its first byte to its last.
#[derive(Debug)]
pub(crate) struct Connection {
    receive: Receive,
    core: Core,
}

/// Everything except the receive path, so that a PDU can be handled while it is borrowed from the receive buffer.
#[derive(Debug)]
struct Core {
    link: Link,
    phase: Phase,
    timers: Timers,
    destination: PayloadDestination,
    /// Receive limits that take effect with the next PDU.
    receive_limits: Option<Limits>,
    /// Time until which the tasks of a lost connection await reassignment.
    retained_until: Option<Time>,
}

#[derive(Debug)]
enum Phase {
    Login(Box<LoginPhase>),
    /// Logged in to an existing session that another driver owns.
    Joining(Box<Negotiated>),
    FullFeature,
    /// Remaining output is sent; input is discarded.
    Closing,
    Closed,
}

/// Destination of the payload that is being received.
#[derive(Debug)]
enum PayloadDestination {
    Nothing,
    Command(TaskId),
    Skipped(Option<TaskId>),
    Whole(Bhs),
}

/// State shared by the connections of a session.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) full_feature: Option<Box<FullFeature>>,
    /// Events of the login and of the end, for the driver.
    pub(crate) events: VecDeque<Event>,
}

impl Shared {
    /// True when handling a PDU may have caused work on another connection. Rarely true.
    #[inline]
    pub(crate) fn concerns_others(&self) -> bool {
        self.full_feature.as_deref().is_some_and(|full_feature| !full_feature.cross_connection.is_empty())
    }
}

/// Connection that has logged in to join a session: everything except its socket, for transfer to the owner of the
/// session.
#[derive(Debug)]
pub struct Joining {
    pub(crate) negotiated: Box<Negotiated>,
    /// Last PDUs of its login, not sent before the session has accepted the connection.
    unsent: Vec<u8>,
    stat_sn: StatSn,
}

#[cfg(test)]
impl Joining {
    /// Creates a login to a session with the given result, for tests of the following phase.
    pub(crate) fn of(negotiated: Negotiated) -> Self {
        Self { negotiated: Box::new(negotiated), unsent: Vec::new(), stat_sn: StatSn(1) }
    }
}

impl Connection {
    /// Creates a connection that awaits a login.
    pub(crate) fn new(config: Rc<Config>, random: [u8; 32], now: Time) -> Self {
        let timers = Timers::new(now, config.timeouts(), config.login_timeout);
        let link = Link::new(config);
        let phase = Phase::Login(Box::new(LoginPhase::new(&link, random)));
        let core = Core {
            link,
            phase,
            timers,
            destination: PayloadDestination::Nothing,
            receive_limits: None,
            retained_until: None,
        };
        Self { receive: Receive::new(Limits::login()), core }
    }

    /// Creates the connection that continues `joining` in the place `slot` of its session.
    pub(crate) fn joined(config: Rc<Config>, joining: &Joining, slot: usize, recovers: bool, now: Time) -> Self {
        // The random bytes are used by a login only, and the login is over.
        let mut connection = Self::new(config, [0; 32], now);
        connection.start_full_feature(&joining.negotiated, recovers);
        let link = &mut connection.core.link;
        // Login PDUs carry no digests, so they are queued as bytes: the link has the negotiated digests already.
        link.transmit.push_bytes(&joining.unsent);
        // StatSN continues behind the last Login Response of this connection.
        (link.slot, link.stat_sn, link.acknowledged) = (slot, joining.stat_sn, joining.stat_sn);
        connection
    }

    /// Returns the state for the session to take over, when the login names an existing session and no further bytes
    /// arrived.
    pub(crate) fn take_joining(&mut self) -> Option<Joining> {
        if !matches!(self.core.phase, Phase::Joining(_)) {
            return None;
        }
        let Phase::Joining(negotiated) = std::mem::replace(&mut self.core.phase, Phase::Closed) else { return None };
        let link = &mut self.core.link;
        // The Login Response is sent only after the session has accepted the connection.
        let (unsent, stat_sn) = (link.transmit.take_bytes(), link.stat_sn);
        // Bytes behind the login would be lost in the transfer; RFC 7143 §6.3 permits none before the final Login
        // Response.
        self.receive.is_empty().then_some(Joining { negotiated, unsent, stat_sn })
    }

    pub(crate) fn link(&mut self) -> &mut Link {
        &mut self.core.link
    }

    /// Returns the facts about a failed login.
    pub(crate) fn failed_login(&self) -> Option<&FailedLogin> {
        self.core.link.failed_login.as_deref()
    }

    /// Returns the connection identifier (CID).
    pub(crate) fn cid(&self) -> Cid {
        self.core.link.cid
    }

    pub(crate) fn input(&self) -> &Receive {
        &self.receive
    }

    pub(crate) fn output(&self) -> &crate::transmit::Transmit {
        &self.core.link.transmit
    }

    /// Allocated size of the receive and transmit buffers in bytes.
    #[cfg(test)]
    pub(crate) fn buffer_bytes(&self) -> usize {
        self.receive.buffer_bytes() + self.core.link.transmit.buffer_bytes()
    }

    pub(crate) fn receive_into(&mut self) -> &mut [u8] {
        if self.core.is_listening() { self.receive.space() } else { &mut [] }
    }

    /// Accepts `len` received bytes; [`Connection::step`] acts on the PDUs that they complete.
    pub(crate) fn handle_filled(&mut self, len: usize, now: Time) {
        self.receive.handle_filled(len);
        // Any received byte proves that the peer is alive, also part of a PDU.
        self.core.timers.handle_heard(now, self.core.timer_input());
    }

    /// Handles the next received PDU, or part of one. False when there is none.
    pub(crate) fn step(&mut self, shared: &mut Shared, gate: &mut impl Gate) -> bool {
        let core = &mut self.core;
        // Nothing is parsed behind a PDU that ends the connection, or behind the login of a connection that is to be
        // transferred.
        // Bytes that remain unparsed make `take_joining` refuse the transfer.
        if core.link.closing.is_some() || matches!(core.phase, Phase::Joining(_)) {
            return false;
        }
        match self.receive.poll() {
            Ok(Step::Wait) => return false,
            Ok(Step::Pdu { head, data }) => core.handle_pdu(shared, head, data, gate),
            Ok(Step::Head { head, data_bytes }) => match core.begin(shared, head, data_bytes, gate) {
                Some((buf, offset)) => self.receive.place(buf, offset),
                None => self.receive.skip(),
            },
            Ok(Step::Payload(buf)) => core.handle_payload(shared, buf),
            Ok(Step::Damaged { header }) => core.handle_damaged(shared, &header),
            Ok(Step::DamagedPayload { header, buf }) => core.handle_damaged_payload(shared, &header, buf),
            Ok(Step::Lost) => {}
            Err(fault) => core.handle_fault(shared, &fault),
        }
        // New limits take effect between two PDUs, so the PDU that ends the login is the last with the old ones.
        self.apply_receive_limits();
        true
    }

    /// Continues the login as `grant` permits.
    pub(crate) fn grant(&mut self, shared: &mut Shared, grant: Grant) {
        // The driver may answer late; the login can have failed in the meantime.
        if let Phase::Login(login) = &mut self.core.phase {
            let negotiated = login.grant(&mut self.core.link, &mut shared.events, grant);
            self.core.finish_login(shared, negotiated);
            self.apply_receive_limits();
        }
    }

    /// Assigns the session of an authenticated login, or refuses one.
    pub(crate) fn assign_session(&mut self, shared: &mut Shared, session: Result<Tsih, NoSession>) {
        if let Phase::Login(login) = &mut self.core.phase {
            let negotiated = login.assign_session(&mut self.core.link, &mut shared.events, session);
            self.core.finish_login(shared, negotiated);
            self.apply_receive_limits();
        }
    }

    /// Ends the login with `status`.
    pub(crate) fn refuse(&mut self, shared: &mut Shared, status: LoginStatus) {
        if let Phase::Login(login) = &mut self.core.phase {
            login.refuse(&mut self.core.link, &mut shared.events, status);
        }
    }

    /// Removes the next `len` bytes of output, which have been sent.
    pub(crate) fn handle_transmitted(&mut self, full_feature: Option<&mut FullFeature>, len: usize) {
        self.core.link.transmit.handle_transmitted(len);
        // Sent bytes make room in the output for responses that wait in their tasks.
        if let Some(full_feature) = full_feature.filter(|_| self.is_live()) {
            full_feature.pump(&mut self.core.link);
        }
        // The connection ends gracefully: its last output, such as a Logout Response, was sent.
        if matches!(self.core.phase, Phase::Closing) && self.output().queued_bytes() == 0 {
            self.finish();
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        match self.core.phase {
            // Time2Retain is the only timer of a lost connection.
            Phase::Closed => self.core.retained_until,
            _ => Some(self.core.timers.next()),
        }
    }

    /// Handles due timers. Returns the reason when the connection must end.
    pub(crate) fn handle_timeout(&mut self, full_feature: Option<&mut FullFeature>, now: Time) -> Option<CloseReason> {
        // A closed connection has a timer only while its tasks await reassignment, and their time has expired now.
        if self.is_closed() {
            return Some(CloseReason::Dropped);
        }
        match self.core.timers.handle_timeout(now, self.core.timer_input()) {
            Due::Nothing => {}
            Due::Close(reason) => return Some(reason),
            Due::Ping => {
                // The connection has been idle for the interval, so its buffers are freed.
                self.receive.shrink();
                self.core.link.transmit.shrink();
                // A discovery session is not pinged: it is closed when it stays silent.
                if let Some(full_feature) = full_feature.filter(|full_feature| !full_feature.is_discovery()) {
                    full_feature.send_ping(&mut self.core.link);
                }
            }
        }
        None
    }

    /// Sets a deadline: the connection ends for `reason` unless it has ended by `at`.
    pub(crate) fn set_deadline(&mut self, at: Time, reason: CloseReason) {
        self.core.timers.set_deadline(Some((at, reason)));
    }

    /// True in full feature phase.
    pub(crate) fn is_live(&self) -> bool {
        matches!(self.core.phase, Phase::FullFeature)
    }

    /// True until the connection starts to close.
    pub(crate) fn is_open(&self) -> bool {
        self.core.is_open()
    }

    /// True while the tasks of a lost connection await reassignment.
    pub(crate) fn awaits_reassignment(&self) -> bool {
        self.core.retained_until.is_some()
    }

    /// True when only closing the socket is left to do.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.core.phase, Phase::Closed)
    }

    /// Stops reception for `reason`; queued output may still be sent.
    pub(crate) fn end(&mut self, reason: CloseReason) {
        self.core.link.close(reason);
        // Nothing will be sent again, so retained responses are freed.
        self.core.link.responding.clear();
        self.core.link.sent = Default::default();
        self.core.retained_until = None;
        self.stop();
    }

    /// Stops reception for `reason`, and keeps the state that its tasks need until `until`, for reassignment to another
    /// connection.
    pub(crate) fn suspend(&mut self, full_feature: &mut FullFeature, reason: CloseReason, until: Time) {
        self.core.link.close(reason);
        // The receive path owns the data buffer of this command at present.
        if let PayloadDestination::Command(task) = self.core.destination {
            full_feature.give_back(task, self.receive.take_place());
        }
        // The tasks stay until they are reassigned, or until Time2Retain has passed.
        self.core.retained_until = Some(until);
        self.stop();
    }

    fn stop(&mut self) {
        // Queued output may still be sent, so the connection closes gracefully.
        if !self.is_closed() {
            self.core.phase = Phase::Closing;
        }
        self.core.destination = PayloadDestination::Nothing;
        self.receive.clear();
    }

    /// Discards unsent output.
    pub(crate) fn finish(&mut self) {
        self.core.link.transmit.clear();
        self.core.phase = Phase::Closed;
    }

    /// Enters full feature phase with the negotiated parameters.
    pub(crate) fn start_full_feature(&mut self, negotiated: &Negotiated, recovers: bool) {
        self.core.start_full_feature(negotiated, recovers);
        self.apply_receive_limits();
    }

    fn apply_receive_limits(&mut self) {
        if let Some(limits) = self.core.receive_limits.take() {
            self.receive.set_limits(limits);
        }
    }
}

impl Core {
    fn is_open(&self) -> bool {
        !matches!(self.phase, Phase::Closing | Phase::Closed)
    }

    fn is_listening(&self) -> bool {
        // Back-pressure: with too much queued output no further requests are accepted.
        matches!(self.phase, Phase::Login(_) | Phase::FullFeature) && !self.link.transmit.is_flooded()
    }

    fn timer_input(&self) -> TimerInput {
        TimerInput {
            queued_bytes: self.link.transmit.queued_bytes(),
            transmitted_bytes: self.link.transmit.transmitted_bytes(),
            listening: self.is_listening(),
        }
    }

    fn handle_pdu(&mut self, shared: &mut Shared, head: Head<'_>, data: &[u8], gate: &mut impl Gate) {
        if let Phase::Login(login) = &mut self.phase {
            let negotiated = login.handle_pdu(&mut self.link, &mut shared.events, head, data);
            return self.finish_login(shared, negotiated);
        }
        // Input behind the end of the connection is discarded.
        let Some(full_feature) = self.full_feature(shared) else { return };
        let link = &mut self.link;
        // The fast path answers a command that is complete, in order and executes without waiting.
        let short = full_feature.try_fast_path(link, head, data, gate);
        if short == FastPathResult::Answered {
            return;
        }
        let handled = match full_feature.begin(link, head, data.len(), short, gate) {
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

    /// Enters full feature phase after a successful login.
    fn finish_login(&mut self, shared: &mut Shared, negotiated: Option<Box<Negotiated>>) {
        let Some(negotiated) = negotiated else { return };
        // The event precedes all commands: the driver learns the negotiated values before it executes anything.
        shared.events.push_back(Event::FullFeature(negotiated.clone()));
        // The connection belongs to another session, so it does not enter full feature phase here.
        if negotiated.identity.joins {
            self.phase = Phase::Joining(negotiated);
            return;
        }
        self.start_full_feature(&negotiated, negotiated.error_recovery_level > 0);
        // Behind `start_full_feature`, which sets the CID that the new table of connections contains.
        shared.full_feature = Some(Box::new(FullFeature::new(&self.link, *negotiated)));
    }

    fn start_full_feature(&mut self, negotiated: &Negotiated, recovers: bool) {
        let digests = Digests { header: negotiated.header_digest, data: negotiated.data_digest };
        // Take effect between two PDUs; see `step`.
        self.receive_limits = Some(Limits {
            digests,
            data_segment_bytes_max: negotiated.own_data_segment_bytes_max,
            buffer_bytes_max: self.link.config.receive_buffer_bytes_max,
            places: true,
            recovers,
        });
        self.link.transmit.digests = digests;
        self.link.cid = negotiated.identity.cid;
        self.link.recovers = recovers;
        self.link.peer_data_segment_bytes_max = negotiated.peer_data_segment_bytes_max;
        // The login is over: from now on silence and stuck output are the only timeouts.
        self.timers.set_deadline(None);
        self.phase = Phase::FullFeature;
    }

    fn full_feature<'a>(&self, shared: &'a mut Shared) -> Option<&'a mut FullFeature> {
        shared.full_feature.as_deref_mut().filter(|_| matches!(self.phase, Phase::FullFeature))
    }

    /// Determines the destination of a large payload; `None` discards it.
    fn begin(
        &mut self,
        shared: &mut Shared,
        head: Head<'_>,
        data_bytes: usize,
        gate: &mut impl Gate,
    ) -> Option<(Buf, usize)> {
        let full_feature = self.full_feature(shared)?;
        let placement = full_feature
            // The fast path takes only PDUs that are complete in the buffer, so it has not seen this one.
            .begin(&mut self.link, head, data_bytes, FastPathResult::Unfit, gate)
            .unwrap_or_else(|violation| {
                // The rest of the payload must be consumed in any case, so that the stream stays at PDU boundaries.
                full_feature.handle_violation(&mut self.link, violation, Some(head.basic));
                Placement::Skip(None)
            });
        match placement {
            Placement::Command { task, offset } => {
                self.destination = PayloadDestination::Command(task);
                // A command without a buffer discards its data, and keeps only count of it.
                full_feature.take_buf(task).map(|buf| (buf, offset))
            }
            Placement::Skip(task) => {
                self.destination = PayloadDestination::Skipped(task);
                None
            }
            Placement::Whole => {
                self.destination = PayloadDestination::Whole(*head.basic);
                // Bounded by the MaxRecvDataSegmentLength that this side declared.
                Some((Buf::recycled(data_bytes), 0))
            }
        }
    }

    fn handle_payload(&mut self, shared: &mut Shared, buf: Option<Buf>) {
        let incoming = std::mem::replace(&mut self.destination, PayloadDestination::Nothing);
        let Some(full_feature) = self.full_feature(shared) else { return };
        let link = &mut self.link;
        match incoming {
            PayloadDestination::Nothing => {}
            PayloadDestination::Command(task) => full_feature.finish_data(link, task, buf),
            PayloadDestination::Skipped(task) => full_feature.finish_skipped(link, task),
            PayloadDestination::Whole(header) => {
                let data = buf.as_deref().unwrap_or_default();
                if let Err(violation) = full_feature.handle_whole(link, &header, data) {
                    full_feature.handle_violation(link, violation, Some(&header));
                }
            }
        }
    }

    fn handle_damaged(&mut self, shared: &mut Shared, header: &Bhs) {
        if let Some(full_feature) = self.full_feature(shared) {
            full_feature.handle_damaged(&mut self.link, header);
        }
    }

    fn handle_damaged_payload(&mut self, shared: &mut Shared, header: &Bhs, buf: Option<Buf>) {
        let incoming = std::mem::replace(&mut self.destination, PayloadDestination::Nothing);
        let Some(full_feature) = self.full_feature(shared) else { return };
        match incoming {
            PayloadDestination::Command(task) => full_feature.handle_damaged_payload(&mut self.link, task, buf, header),
            // The payload is discarded in any case.
            PayloadDestination::Skipped(task) => full_feature.finish_skipped(&mut self.link, task),
            // Nothing was executed, so the initiator can repeat the request.
            PayloadDestination::Whole(_) | PayloadDestination::Nothing => {
                self.link.reject(full_feature.cmd_sns(), Violation::DataDigestWrong, header)
            }
        }
    }

    fn handle_fault(&mut self, shared: &mut Shared, fault: &Fault) {
        if let Phase::Login(login) = &mut self.phase {
            // A violation ends the login, so there is no result.
            let _ = login.handle_violation(&mut self.link, &mut shared.events, fault.violation);
        } else if let Some(full_feature) = self.full_feature(shared) {
            full_feature.handle_violation(&mut self.link, fault.violation, fault.header.as_ref());
        }
    }
}
