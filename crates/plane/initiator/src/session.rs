//! A session that many callers use at once: a task moves the bytes, each caller waits for its own command.
//!
//! Commands beyond the target's window wait in the protocol machine (RFC 7143 §4.2.2.1), commands beyond the task tags
//! wait here. The machine pings a silent target, and ends the session when it does not answer
//! ([`iscsi::initiator::Config::answer_timeout`]). Called by [`crate::disk`]. It must never forget that a write was
//! under way when the session ended: [`Session::writes_lost`] is what fencing goes by.

use crate::login::Entered;
use crate::wire::{exchange, send};
use iscsi::initiator::{Command, Completion, Connection, Event};
use iscsi::pdu::{Lun, RejectReason, TaskFunction, TaskFunctionOutcome};
use iscsi::{CloseReason, Negotiated, TaskId};
use shard::mailbox::{self, Sender};
use shard::time::Sleep;
use shard::{Signal, Stream as _, Time, World};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long a logout may take before the connection is just closed.
const LOGOUT_LIMIT: Duration = Duration::from_secs(5);

/// A session in full feature phase. A clone is the same session; the last one that is dropped closes the connection.
pub struct Session<W: World> {
    link: Rc<Link>,
    world: W,
    /// Ends the driver when the last handle is dropped.
    _handle: Rc<Handle>,
}

/// A request that got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The session ended first. Whether the command was carried out is unknown.
    #[error("the session ended: {0}")]
    Ended(CloseReason),
    /// The target has rejected the request's PDU.
    #[error("the target rejected a PDU: {0:?}")]
    Rejected(RejectReason),
    /// A task management function has ended the command.
    #[error("a task management function ended the command")]
    Aborted,
    /// No answer within the time limit; the command may still run.
    #[error("no answer within {} s", .0.as_secs())]
    TimeLimit(Duration),
}

enum Answer {
    Completed(Completion),
    Managed(TaskFunctionOutcome),
    Pong(Vec<u8>),
}

struct Waiting {
    caller: Sender<Result<Answer, SessionError>>,
    writes: bool,
}

/// What the callers and the driver share.
struct Link {
    machine: RefCell<Connection>,
    waiting: RefCell<BTreeMap<TaskId, Waiting>>,
    driver: RefCell<Option<Waker>>,
    /// Raised when a task has ended, and when the session has.
    room: Signal,
    ended: Cell<Option<CloseReason>>,
    /// Writes that were under way when the session ended.
    writes_lost: Cell<u64>,
    /// Why the target has first rejected a PDU.
    rejected: Cell<Option<RejectReason>>,
    negotiated: Box<Negotiated>,
    portal: SocketAddr,
}

struct Handle(Rc<Link>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.machine.borrow_mut().close();
        self.0.wake();
    }
}

impl<W: World> Clone for Session<W> {
    fn clone(&self) -> Self {
        Self { link: self.link.clone(), world: self.world.clone(), _handle: self._handle.clone() }
    }
}

impl<W: World> Session<W> {
    /// The session of a login; its driver runs as a task of `world` until it ends.
    pub fn start(world: &W, entered: Entered<W::Stream>) -> Self {
        let Entered { stream, machine, negotiated, portal } = entered;
        let (waiting, driver, room, ended, writes_lost, rejected) = Default::default();
        let machine = RefCell::new(machine);
        let link = Rc::new(Link { machine, waiting, driver, room, ended, writes_lost, rejected, negotiated, portal });
        let mut driving = Driver { link: link.clone(), stream, world: world.clone(), timer: None };
        world.spawn(async move {
            poll_fn(|cx| driving.poll(cx)).await;
            // The peer reads the end; a connection that is broken already cannot be told.
            let _ = driving.stream.close_write();
        });
        Self { _handle: Rc::new(Handle(link.clone())), link, world: world.clone() }
    }

    /// The parameters in force, and the session's identity.
    #[must_use]
    pub fn negotiated(&self) -> &Negotiated {
        &self.link.negotiated
    }

    /// The portal where the session is.
    #[must_use]
    pub fn portal(&self) -> SocketAddr {
        self.link.portal
    }

    /// Why the session has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<CloseReason> {
        self.link.ended.get()
    }

    /// How many writes were under way when the session ended: the target may carry them out at any later time.
    #[must_use]
    pub fn writes_lost(&self) -> u64 {
        self.link.writes_lost.get()
    }

    /// Why the target has first rejected a PDU, if it ever has.
    #[must_use]
    pub fn rejected(&self) -> Option<RejectReason> {
        self.link.rejected.get()
    }

    /// Is ready when the session has ended, and returns why.
    pub async fn until_ended(&self) -> CloseReason {
        self.link.room.wait(|| self.link.ended.get()).await
    }

    /// Runs a command from its submission to its completion. Waits while all task tags are taken.
    ///
    /// A dropped future leaves the command running; a write is still counted by [`Session::writes_lost`].
    /// *Errors*: [`SessionError`]; with `Ended`, whether it was carried out is unknown.
    pub async fn execute(&self, command: Command) -> Result<Completion, SessionError> {
        self.execute_named(command, |_| ()).await
    }

    /// As [`Session::execute`]; `named` receives the task's name when it is submitted.
    ///
    /// *Errors*: [`SessionError`].
    pub async fn execute_named(
        &self,
        command: Command,
        named: impl FnOnce(TaskId),
    ) -> Result<Completion, SessionError> {
        let writes = command.data_out.is_some();
        let mut command = Some(command);
        let submit = || {
            if let Some(reason) = self.link.ended.get() {
                return Some(Err(SessionError::Ended(reason)));
            }
            let submitted = self.link.machine.borrow_mut().submit(command.take()?);
            submitted.map_err(|back| command = Some(back)).ok().map(Ok)
        };
        let task = self.link.room.wait(submit).await?;
        named(task);
        match self.answer(task, writes).await? {
            Answer::Completed(completion) => Ok(completion),
            Answer::Managed(_) | Answer::Pong(_) => unreachable!("a command is answered by its completion"),
        }
    }

    /// As [`Session::execute`], within `limit`.
    ///
    /// *Errors*: [`SessionError`].
    pub async fn execute_within(&self, command: Command, limit: Duration) -> Result<Completion, SessionError> {
        within(&self.world, limit, self.execute(command)).await
    }

    /// Asks for a task management function, and returns the target's answer.
    ///
    /// *Errors*: [`SessionError`]. *Source*: RFC 7143 §11.5.
    pub async fn manage(
        &self,
        function: TaskFunction,
        lun: Lun,
        limit: Duration,
    ) -> Result<TaskFunctionOutcome, SessionError> {
        within(&self.world, limit, self.manage_task(function, lun, None)).await
    }

    /// As [`Session::manage`], of the task `referenced` where the function is of one, without a limit.
    ///
    /// *Errors*: [`SessionError`]. *Source*: RFC 7143 §11.5.
    pub async fn manage_task(
        &self,
        function: TaskFunction,
        lun: Lun,
        referenced: Option<TaskId>,
    ) -> Result<TaskFunctionOutcome, SessionError> {
        let task = self.link.machine.borrow_mut().manage(function, lun, referenced);
        match self.answer_of(task).await? {
            Answer::Managed(outcome) => Ok(outcome),
            Answer::Completed(_) | Answer::Pong(_) => unreachable!("a function is answered by its outcome"),
        }
    }

    /// Is ready after `duration`.
    pub async fn pause(&self, duration: Duration) {
        self.world.sleep(duration).await;
    }

    /// Pings the target.
    ///
    /// *Errors*: [`SessionError`].
    pub async fn ping(&self, limit: Duration) -> Result<(), SessionError> {
        within(&self.world, limit, self.echo(&[])).await.map(drop)
    }

    /// Pings the target with `data`, and returns what came back: all of it, or as much as it may send at once.
    ///
    /// *Errors*: [`SessionError`].
    pub async fn echo(&self, data: &[u8]) -> Result<Vec<u8>, SessionError> {
        let task = self.link.machine.borrow_mut().ping(data);
        match self.answer_of(task).await? {
            Answer::Pong(data) => Ok(data),
            Answer::Completed(_) | Answer::Managed(_) => unreachable!("a ping is answered by its echo"),
        }
    }

    /// Logs out, and returns when the session has ended, however long that takes.
    pub async fn log_out(&self) {
        let asked = self.link.machine.borrow_mut().logout().is_some();
        self.link.wake();
        if asked {
            self.until_ended().await;
        }
    }

    /// Logs out, and returns when the session has ended; after a few seconds without an answer it is closed as it is.
    pub async fn close(&self) {
        let asked = self.link.machine.borrow_mut().logout().is_some();
        self.link.wake();
        if asked {
            let limit = LOGOUT_LIMIT;
            let _ = within(&self.world, limit, async { Ok(self.until_ended().await) }).await;
        }
        self.drop_connection();
    }

    /// Closes the connection at once, without a logout.
    pub fn drop_connection(&self) {
        self.link.machine.borrow_mut().close();
        self.link.handle_events();
        self.link.wake();
    }

    async fn answer_of(&self, task: Option<TaskId>) -> Result<Answer, SessionError> {
        let ended = self.link.ended.get().unwrap_or(CloseReason::Dropped);
        self.answer(task.ok_or(SessionError::Ended(ended))?, false).await
    }

    async fn answer(&self, task: TaskId, writes: bool) -> Result<Answer, SessionError> {
        let (caller, answered) = mailbox::channel();
        let before = self.link.waiting.borrow_mut().insert(task, Waiting { caller, writes });
        assert!(before.is_none(), "a task is waited for once");
        self.link.wake();
        let ended = || SessionError::Ended(self.link.ended.get().unwrap_or(CloseReason::Dropped));
        answered.receive().await.unwrap_or_else(|| Err(ended()))
    }
}

/// What `work` gives within `limit`.
///
/// *Errors*: [`SessionError::TimeLimit`], or the work's own.
pub(crate) async fn within<W: World, T>(
    world: &W,
    limit: Duration,
    work: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, SessionError> {
    let mut work = std::pin::pin!(work);
    let mut sleep = world.sleep(limit);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(done);
        }
        Pin::new(&mut sleep).poll(cx).map(|()| Err(SessionError::TimeLimit(limit)))
    })
    .await
}

impl Link {
    fn wake(&self) {
        if let Some(waker) = self.driver.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Hands an answer to the caller, who may have given up.
    fn answer(&self, task: TaskId, answer: Result<Answer, SessionError>) {
        let waiting = self.waiting.borrow_mut().remove(&task);
        if let Some(waiting) = waiting {
            let _ = waiting.caller.send(answer);
        }
    }

    /// Acts on all events; true when there was one.
    fn handle_events(&self) -> bool {
        let mut progress = false;
        loop {
            let event = self.machine.borrow_mut().poll_event();
            let Some(event) = event else { break };
            progress = true;
            match event {
                Event::Completed(completion) => self.answer(completion.task, Ok(Answer::Completed(completion))),
                Event::TaskManagement { task, outcome } => self.answer(task, Ok(Answer::Managed(outcome))),
                Event::Pong { task, data } => self.answer(task, Ok(Answer::Pong(data))),
                Event::Rejected { task, reason } => {
                    self.rejected.set(self.rejected.get().or(Some(reason)));
                    if let Some(task) = task {
                        self.answer(task, Err(SessionError::Rejected(reason)));
                    }
                }
                Event::Closed(reason) => self.end(reason),
                Event::FullFeature(_) | Event::Moved(_) | Event::Targets { .. } | Event::Async { .. } => {}
            }
        }
        if progress {
            self.answer_aborted();
            self.room.raise();
        }
        progress
    }

    /// Tasks that a function has ended get no completion.
    fn answer_aborted(&self) {
        let gone: Vec<TaskId> = {
            let machine = self.machine.borrow();
            self.waiting.borrow().keys().copied().filter(|task| !machine.is_waiting_for(*task)).collect()
        };
        for task in gone {
            self.answer(task, Err(SessionError::Aborted));
        }
    }

    fn end(&self, reason: CloseReason) {
        if self.ended.get().is_some() {
            return;
        }
        let waiting = self.waiting.take();
        self.writes_lost.set(waiting.values().filter(|waiting| waiting.writes).count() as u64);
        self.ended.set(Some(reason));
        for waiting in waiting.into_values() {
            let _ = waiting.caller.send(Err(SessionError::Ended(reason)));
        }
        self.room.raise();
    }
}

/// Moves bytes between the machine and the stream until the connection is over.
struct Driver<W: World> {
    link: Rc<Link>,
    stream: W::Stream,
    world: W,
    timer: Option<(Time, Pin<Box<Sleep>>)>,
}

impl<W: World> Driver<W> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        *self.link.driver.borrow_mut() = Some(cx.waker().clone());
        loop {
            let mut progress = self.exchange(cx);
            progress |= self.link.handle_events();
            progress |= self.poll_timer(cx);
            if self.link.ended.get().is_some() {
                return Poll::Ready(());
            }
            if !progress {
                return Poll::Pending;
            }
        }
    }

    fn exchange(&self, cx: &mut Context<'_>) -> bool {
        let machine = &mut *self.link.machine.borrow_mut();
        match exchange(cx, &self.world, &self.stream, machine) {
            // What was received may have put an answer into the output, and a closed machine takes no more.
            Ok(true) if machine.is_closed() => {
                let _ = send(cx, &self.stream, machine);
                true
            }
            Ok(moved) => moved,
            Err(_) => {
                machine.handle_peer_closed();
                true
            }
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let due = self.link.machine.borrow().poll_timeout();
        let Some(at) = due else { return false };
        if self.timer.as_ref().is_none_or(|(due, _)| *due != at) {
            self.timer = Some((at, Box::pin(self.world.sleep_until(at))));
        }
        let Some((_, sleep)) = &mut self.timer else { return false };
        if sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer = None;
        self.link.machine.borrow_mut().handle_timeout(self.world.now());
        true
    }
}
