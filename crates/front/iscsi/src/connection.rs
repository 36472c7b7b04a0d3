//! One session and its TCP connections: the only loop that knows both sides, the machine of RFC 7143 and the units.
//!
//! A round receives once from each connection, lets the machine parse what came, runs the commands, and sends the answers
//! with one gathered write for each; a turn is rounds, until nothing is left to do or others shall have theirs (`turns`).
//! It begins with one connection, which logs in; one that joins a session that is there is handed over to it when its
//! login is done.

mod admission;
mod commands;
mod gate;
mod management;
mod mtu;
mod paths;
mod refusal;

use crate::iscsi_shard::IscsiShard;
use crate::nexus::SessionId;
use crate::registry::{LoginPlace, Notice};
use crate::scsi_unit::{self, Done, Ran};
use crate::session::{Ends, Session};
use iscsi::target::{self, Event, TargetRecord};
use iscsi::{CloseReason, LoginQuestion};
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

/// Serves `stream` until it ends, and leaves nothing of it behind.
pub(crate) async fn serve<W: World>(shard: Rc<IscsiShard<W>>, stream: W::Stream, place: LoginPlace) {
    let mut connection = Connection::new(shard, stream, place, scsi_unit::run);
    poll_fn(|cx| connection.poll(cx)).await;
    if let Some(session) = connection.session.take() {
        connection.shard.recordings.end_of(session.id);
        session.leave().await;
    }
}

struct Connection<W: World, S, F: Future> {
    shard: Rc<IscsiShard<W>>,
    /// The connections, in the places that the machine gives them.
    paths: Vec<Option<Path<W>>>,
    /// Whose they are, or were.
    path_ends: Vec<Ends>,
    /// Of the leading connection.
    ends: Ends,
    machine: target::Session,
    session: Option<Session<W>>,
    /// Held until the login is over.
    place: Option<LoginPlace>,
    /// Commands of units that have their home here.
    running: Slots<F>,
    run: S,
    /// Commands whose units have their home elsewhere, and their way back.
    errands: usize,
    back: Sender<Done>,
    returns: Receiver<Done>,
    /// Task management under way, and its way back.
    managing: usize,
    manage_back: Sender<Managed>,
    managed: Receiver<Managed>,
    /// Sessions of the same nexus that must be gone before this one does anything.
    predecessors: Vec<Receiver<()>>,
    tell: Sender<Notice>,
    notices: Receiver<Notice>,
    /// Dropped when nothing of us runs any more, for others to see.
    gone: Vec<Sender<()>>,
    /// Who asks to be let in, to what, as far as it was said.
    asker: Option<LoginQuestion>,
    /// Why the asker may not come in, once that is judged.
    why: Option<RefusedWhy>,
    /// Held while a secret is judged, or the answer to a wrong one is held back.
    attempt: Option<Attempt<String>>,
    /// Until when the answer to a wrong proof is held back.
    penalty: Option<Pin<Box<Sleep>>>,
    /// What the registry gave to the login that is under way, or the session that it joins.
    admitted: Option<SessionId>,
    timer: Option<(Time, Pin<Box<Sleep>>)>,
    /// A moment ago: when the command before this one ended, in a row of them.
    moment: Option<Time>,
}

/// Whether a part of a round did something.
type Progress = bool;

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<scsi_unit::ScsiUnit<W>>, Ran) -> F,
    F: Future<Output = Done>,
{
    fn new(shard: Rc<IscsiShard<W>>, stream: W::Stream, place: LoginPlace, run: S) -> Self {
        let (back, returns) = mailbox::channel();
        let (manage_back, managed) = mailbox::channel();
        let (tell, notices) = mailbox::channel();
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
            place: Some(place),
            running: Slots::new(),
            run,
            errands: 0,
            back,
            returns,
            managing: 0,
            manage_back,
            managed,
            predecessors: Vec::new(),
            tell,
            notices,
            gone: Vec::new(),
            asker: None,
            why: None,
            attempt: None,
            penalty: None,
            admitted: None,
            timer: None,
            moment: None,
            shard,
        }
    }

    /// Ready when the connection is over and nothing that it started runs any more.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let session = self.session.as_ref().map(|session| session.id);
        let mut turn = self.shard.turns.begin(session, self.shard.world.now(), self.shard.world.rests());
        loop {
            let mut progress = self.take_notices(cx);
            progress |= self.sit_out_penalty(cx);
            progress |= self.finish_commands(cx);
            if self.poll_predecessors(cx) {
                progress |= self.handle_events();
                progress |= self.receive(&mut turn, cx);
                progress |= self.handle_events();
            }
            progress |= self.send(turn, cx);
            if self.poll_timer(cx) {
                // What the clock ended is told as well.
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
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// Nothing more comes or goes, and whatever was started has ended: a write is never left half-way.
    fn is_over(&self) -> bool {
        let is_closed = self.machine.is_over() && self.penalty.is_none();
        is_closed && self.running.is_empty() && self.errands == 0 && self.managing == 0
    }

    fn handle_events(&mut self) -> Progress {
        let mut progress = false;
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
                Event::Proven => self.answer_proven(),
                Event::FullFeature(facts) => self.enter_full_feature(&facts),
                Event::SendTargets { task, which } => {
                    let records = self.targets(&which);
                    self.machine.respond_targets(task, &records);
                }
                Event::Closed(reason) => {
                    self.tell_end(reason);
                    self.tell_of_refusal(reason);
                    if self.penalty.is_none() {
                        (self.place, self.attempt) = (None, None);
                    }
                }
            }
        }
        progress
    }

    /// Whoever looks for the cause of a host's "connection error" finds it in the log and among the events.
    fn tell_end(&self, reason: CloseReason) {
        let is_cut_off = matches!(
            reason,
            CloseReason::Violation(_) | CloseReason::PeerSilent | CloseReason::OutputStuck | CloseReason::LogoutOverdue
        );
        match &self.session {
            Some(session) if is_cut_off => {
                tracing::warn!(peer = %self.ends.peer, initiator = session.initiator(), %reason, "a host was cut off");
                session.was_cut_off(reason);
            }
            _ => tracing::debug!(peer = %self.ends.peer, %reason, "the connection is over"),
        }
    }

    /// True when no earlier session of this nexus still runs anything.
    fn poll_predecessors(&mut self, cx: &mut Context<'_>) -> bool {
        self.predecessors.retain(|gone| gone.poll_receive(cx).is_pending());
        self.predecessors.is_empty()
    }

    /// Whoever guesses waits, and has its place so long, also when it does not want the answer any more.
    fn sit_out_penalty(&mut self, cx: &mut Context<'_>) -> Progress {
        let over = self.penalty.as_mut().is_some_and(|penalty| penalty.as_mut().poll(cx).is_ready());
        if over {
            (self.penalty, self.place, self.attempt) = (None, None, None);
        }
        over
    }

    fn take_notices(&mut self, cx: &mut Context<'_>) -> Progress {
        let mut progress = false;
        if self.place.as_ref().is_some_and(|place| place.ends.poll_receive(cx).is_ready()) {
            tracing::info!(peer = %self.ends.peer, "a login that was not going on made room for another");
            self.place = None;
            self.break_off();
            progress = true;
        }
        while let Poll::Ready(Some(notice)) = self.notices.poll_receive(cx) {
            progress = true;
            match notice {
                Notice::Close { gone } => {
                    self.gone.push(gone);
                    self.break_off();
                }
                Notice::Join(joiner) => self.take_in(*joiner),
                Notice::Leave { portal, gone } => {
                    self.leave_portal(portal, cx);
                    if self.machine.is_over() {
                        self.gone.push(gone);
                    }
                }
                Notice::Cut { cid, .. } => self.cut(cid),
                Notice::Record(tape) => self.record(&tape),
                Notice::TellWindow { tell } => {
                    // Whoever asked may have stopped to wait.
                    let _ = self.machine.window().map(|(expected, maximum)| {
                        tell.send(CommandWindow { exp_cmd_sn: expected.0, max_cmd_sn: maximum.0 })
                    });
                }
                Notice::TellTasks { tell } => {
                    // Whoever asked may have stopped to wait.
                    let _ = tell.send(self.machine.standing());
                }
                Notice::MoveAway { within } => self.machine.request_logout(within, self.shard.world.now()),
                Notice::AccessChanged { applied } => {
                    if self.session.as_mut().is_some_and(|session| !session.see_access()) {
                        tracing::info!(peer = %self.ends.peer, "the host may not be here any more; connection closed");
                        self.gone.push(applied);
                        self.break_off();
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
        // A deadline that moves away is looked at when the old one passes: that is rarer than moving it.
        if self.timer.as_ref().is_none_or(|(due, _)| *due > at) {
            self.timer = Some((at, Box::pin(self.shard.world.sleep_until(at))));
        }
        let (_, sleep) = self.timer.as_mut().expect("it was set above");
        if sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer = None;
        self.machine.handle_timeout(self.shard.world.now());
        self.note_connections();
        self.look_at_ways();
        true
    }
}
