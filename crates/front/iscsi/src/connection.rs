//! Session with its TCP connections: the event loop between the sockets, the RFC 7143 state machine and the units.
//!
//! A round receives once from each connection, passes the bytes to the state machine, executes the commands, and sends
//! the responses with one vectored write per connection. Rounds repeat until no work is left or the quantum is used up
//! (`scheduling`). The loop starts with a single connection that logs in; a connection that joins an existing session
//! is transferred to it at the end of its login.

mod admission;
mod commands;
mod gate;
mod management;
mod mtu;
mod paths;
mod refusal;

use crate::iscsi_shard::IscsiShard;
use crate::nexus::SessionId;
use crate::registry::{Admission, LoginSlot, Notice};
use crate::scsi_unit::{self, Completed, PendingCommand};
use crate::session::{Endpoints, Session};
use iscsi::target::{self, Event, TargetRecord};
use iscsi::{CloseReason, LoginIdentity};
use management::Managed;
use model::{CommandWindow, RefusedWhy};
use paths::Path;
use shard::mailbox::{self, Receiver, Sender};
use shard::time::Sleep;
use shard::{Slots, Time, World};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use throttle::Attempt;

/// Serves `stream` until the session ends, then detaches it from all units.
pub(crate) async fn serve<W: World>(shard: Rc<IscsiShard<W>>, stream: W::Stream, place: LoginSlot) {
    let mut connection = Connection::new(shard, stream, place, scsi_unit::run);
    poll_fn(|cx| connection.poll(cx)).await;
    if let Some(session) = connection.session.take() {
        connection.shard.recordings.end_of(session.id);
        session.leave().await;
    }
}

/// Connection task: the state machine, its TCP connections and its commands in execution.
struct Connection<W: World, S, F: Future> {
    shard: Rc<IscsiShard<W>>,
    /// TCP connections, indexed by the slots of the state machine.
    paths: Vec<Option<Path<W>>>,
    /// Endpoints of each slot, kept after the connection is lost, for reports.
    path_ends: Vec<Endpoints>,
    /// Endpoints of the leading connection.
    ends: Endpoints,
    /// RFC 7143 state machine of the session.
    machine: target::Session,
    /// Session, from full feature phase on.
    session: Option<Session<W>>,
    /// Slot of the login, held until the login ends.
    login_slot: Option<LoginSlot>,
    /// Commands in execution on units of this shard.
    running: Slots<F>,
    /// Starts a command on a unit of this shard.
    run: S,
    /// Number of commands in execution on units of other shards, and the channel of their results.
    remote_commands: usize,
    back: Sender<Completed>,
    returns: Receiver<Completed>,
    /// Number of task management functions in execution, and the channel of their results.
    managing: usize,
    manage_back: Sender<Managed>,
    managed: Receiver<Managed>,
    /// Reinstated sessions of the same nexus that must end before this one executes anything.
    predecessors: Vec<Receiver<()>>,
    /// Channel of notices from the registry and from other shards.
    tell: Sender<Notice>,
    notices: Receiver<Notice>,
    /// Dropped when nothing of this session runs any longer, to signal this to the waiting side.
    gone: Vec<Sender<()>>,
    /// Login parameters of the initiator, once it has sent them.
    login_identity: Option<LoginIdentity>,
    /// Reason for a denied login, once it is known.
    why: Option<RefusedWhy>,
    /// Held while a CHAP response is verified or a negative answer is delayed, so that the number of concurrent
    /// attempts stays bounded.
    attempt: Option<Attempt<String>>,
    /// Delay of the answer to a wrong CHAP response.
    answer_delay: Option<Pin<Box<Sleep>>>,
    /// Session identifier assigned to the login in progress, or the session that it joins.
    admitted: Option<SessionId>,
    /// Admission of a login to a new session, held until the session is registered.
    admission: Option<Admission>,
    /// Armed timer with its deadline.
    timer: Option<(Time, Pin<Box<Sleep>>)>,
    /// End time of the previous command of a batch, reused as the start time of the next one: reading the clock for
    /// each command is measurable.
    moment: Option<Time>,
}

/// True when a part of a round did any work.
type Progress = bool;

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<scsi_unit::ScsiUnit<W>>, PendingCommand) -> F,
    F: Future<Output = Completed>,
{
    fn new(shard: Rc<IscsiShard<W>>, stream: W::Stream, place: LoginSlot, run: S) -> Self {
        let (back, returns) = mailbox::channel();
        let (manage_back, managed) = mailbox::channel();
        let (tell, notices) = mailbox::channel();
        // Source of CHAP challenges and identifiers, so it must be unpredictable.
        let mut seed = [0; 32];
        shard.world.random(&mut seed);
        let machine = target::Session::new(shard.target_config.clone(), seed, shard.world.now());
        let path = Path::new(stream, &shard);
        Self {
            ends: path.ends,
            path_ends: vec![path.ends],
            paths: vec![Some(path)],
            machine,
            session: None,
            login_slot: Some(place),
            running: Slots::new(),
            run,
            remote_commands: 0,
            back,
            returns,
            managing: 0,
            manage_back,
            managed,
            predecessors: Vec::new(),
            tell,
            notices,
            gone: Vec::new(),
            login_identity: None,
            why: None,
            attempt: None,
            answer_delay: None,
            admitted: None,
            admission: None,
            timer: None,
            moment: None,
            shard,
        }
    }

    /// Runs rounds. Ready when all connections are closed and nothing that they started is still running.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let session = self.session.as_ref().map(|session| session.id);
        let mut turn = self.shard.scheduler.begin(session, self.shard.world.now(), self.shard.world.idle_count());
        loop {
            // Notices and completions first: they free resources, and a Close must take effect before new commands
            // start.
            let mut progress = self.take_notices(cx);
            progress |= self.wait_for_delay(cx);
            progress |= self.finish_commands(cx);
            // Session reinstatement: no input is processed while a predecessor may still execute commands (RFC 7143
            // §6.3.5).
            if self.poll_predecessors(cx) {
                progress |= self.handle_events();
                progress |= self.receive(&mut turn, cx);
                // Receiving may produce further events; handling them now puts their responses into the send of this
                // round.
                progress |= self.handle_events();
            }
            progress |= self.send(turn, cx);
            if self.poll_timer(cx) {
                // Timeouts also produce events.
                self.handle_events();
                progress = true;
            }
            if self.is_over() {
                return Poll::Ready(());
            }
            if !progress {
                return Poll::Pending;
            }
            if turn.is_over(self.shard.world.now()) {
                // Quantum used up with work left: the task is woken again at once and continues after the other
                // sessions.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// True when all connections are closed and everything that was started has completed: a write is never abandoned
    /// halfway.
    fn is_over(&self) -> bool {
        // A delayed negative answer is still to be sent.
        let is_closed = self.machine.is_over() && self.answer_delay.is_none();
        is_closed && self.running.is_empty() && self.remote_commands == 0 && self.managing == 0
    }

    fn handle_events(&mut self) -> Progress {
        let mut progress = false;
        // A batch of commands starts here, so the clock is read again.
        self.moment = None;
        while self.predecessors.is_empty()
            && let Some(event) = self.machine.poll_event()
        {
            progress = true;
            match event {
                Event::Command(command) => self.start(command),
                Event::TaskManagement(request) => self.manage(request),
                Event::CommandsLost(lun) => {
                    if let Some(session) = self.session.as_mut() {
                        session.commands_lost(lun.0);
                    }
                }
                Event::Login(question) => self.answer_login(question),
                Event::Authenticated => self.answer_authenticated(),
                Event::FullFeature(facts) => self.enter_full_feature(&facts),
                Event::SendTargets { task, which } => {
                    let records = self.targets(&which);
                    self.machine.respond_targets(task, &records);
                }
                Event::Closed(reason) => {
                    self.log_end(reason);
                    self.report_denied_login(reason);
                    // A delayed negative answer keeps its slot until the delay is over; see `wait_for_delay`.
                    if self.answer_delay.is_none() {
                        (self.login_slot, self.attempt) = (None, None);
                    }
                }
            }
        }
        progress
    }

    /// Logs the end of a connection, and raises an event if the host caused it: an operator who searches for the cause
    /// of a "connection error" finds it there.
    fn log_end(&self, reason: CloseReason) {
        // An orderly logout or a closed TCP connection is no fault of the host.
        let is_cut_off = matches!(
            reason,
            CloseReason::Violation(_) | CloseReason::PeerSilent | CloseReason::OutputStuck | CloseReason::LogoutOverdue
        );
        match &self.session {
            Some(session) if is_cut_off => {
                tracing::warn!(peer = %self.ends.peer, initiator = session.initiator(), %reason, "session closed");
                session.was_cut_off(reason);
            }
            _ => tracing::debug!(peer = %self.ends.peer, %reason, "connection closed"),
        }
    }

    /// True when all reinstated sessions of this nexus have ended.
    fn poll_predecessors(&mut self, cx: &mut Context<'_>) -> bool {
        // A receiver is ready once the predecessor has dropped its sender.
        self.predecessors.retain(|gone| gone.poll_receive(cx).is_pending());
        self.predecessors.is_empty()
    }

    /// Ends the delay after a wrong CHAP response. The slots of the login and of the attempt stay occupied during the
    /// delay, even if the initiator disconnects.
    fn wait_for_delay(&mut self, cx: &mut Context<'_>) -> Progress {
        let over = self.answer_delay.as_mut().is_some_and(|penalty| penalty.as_mut().poll(cx).is_ready());
        if over {
            (self.answer_delay, self.login_slot, self.attempt) = (None, None, None);
        }
        over
    }

    fn take_notices(&mut self, cx: &mut Context<'_>) -> Progress {
        let mut progress = false;
        // The login was evicted in favor of others.
        if self.login_slot.as_ref().is_some_and(|place| place.ends.poll_receive(cx).is_ready()) {
            tracing::info!(peer = %self.ends.peer, "a stalled login was closed in favor of another one");
            self.login_slot = None;
            self.close_session();
            progress = true;
        }
        while let Poll::Ready(Some(notice)) = self.notices.poll_receive(cx) {
            progress = true;
            match notice {
                Notice::Close { gone } => {
                    self.gone.push(gone);
                    self.close_session();
                }
                Notice::Join(joiner) => self.add_connection(*joiner),
                Notice::PortalClosed { portal, gone } => {
                    self.leave_portal(portal, cx);
                    // A session that survives on another portal drops the sender at once: the portal waits only for
                    // sessions that end with it.
                    if self.machine.is_over() {
                        self.gone.push(gone);
                    }
                }
                // The sender in the notice is dropped after this arm, when the connection is closed.
                Notice::CloseConnection { cid, .. } => self.close_connection(cid),
                // The filter of the capture is evaluated for each connection.
                Notice::Record(tape) => self.record(&tape),
                Notice::TellWindow { tell } => {
                    // The requester may have timed out.
                    let _ = self.machine.window().map(|(expected, maximum)| {
                        tell.send(CommandWindow { exp_cmd_sn: expected.0, max_cmd_sn: maximum.0 })
                    });
                }
                Notice::TellTasks { tell } => {
                    // The requester may have timed out.
                    let _ = tell.send(self.machine.command_snapshots());
                }
                Notice::RequestLogout { within } => self.machine.request_logout(within, self.shard.world.now()),
                Notice::AccessChanged { applied } => {
                    if self.session.as_mut().is_some_and(|session| !session.see_access()) {
                        tracing::info!(peer = %self.ends.peer, "the address of the host is no longer allowed; \
                             connection closed");
                        // The sender is kept until the session has ended, so that the publisher of the table waits for
                        // it.
                        self.gone.push(applied);
                        self.close_session();
                    }
                }
            }
        }
        progress
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Progress {
        let Some(at) = self.machine.poll_timeout() else {
            self.timer = None;
            return false;
        };
        // A deadline that moves back is checked when the old timer fires: this happens less often than the deadline
        // moves.
        if self.timer.as_ref().is_none_or(|(due, _)| *due > at) {
            self.timer = Some((at, Box::pin(self.shard.world.sleep_until(at))));
        }
        let (_, sleep) = self.timer.as_mut().expect("it was set above");
        if sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer = None;
        // The time is read again: the timer may fire late.
        self.machine.handle_timeout(self.shard.world.now());
        // A timeout may have dropped a connection, and the interval is also used to check the path MTU.
        self.note_connections();
        self.check_path_mtu();
        true
    }
}
