//! Session shared by many callers: a driver task moves the bytes, each caller waits for its own command.
//!
//! Commands beyond the target's command window wait in the protocol machine (RFC 7143 §4.2.2.1), commands beyond the
//! task tags wait here. The machine pings a silent target, and ends the session when it does not answer
//! ([`iscsi::initiator::Config::answer_timeout`]). Called by [`crate::disk`]. It must never forget that a write was in
//! flight when the session ended: fencing depends on [`Session::writes_lost`].

use crate::login::LoggedIn;
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

/// Logout timeout, after which the connection is closed.
const LOGOUT_LIMIT: Duration = Duration::from_secs(5);

/// Session in full feature phase. A clone is the same session; dropping the last one closes the connection.
pub struct Session<W: World> {
    link: Rc<Link>,
    world: W,
    /// Ends the driver when the last clone is dropped.
    _handle: Rc<Handle>,
}

/// Reason why a request got no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The session ended first. Whether the command was carried out is unknown.
    #[error("the session ended: {0}")]
    Ended(CloseReason),
    /// The target rejected the PDU of the request.
    #[error("the target rejected a PDU: {0:?}")]
    Rejected(RejectReason),
    /// A task management function ended the command.
    #[error("a task management function ended the command")]
    Aborted,
    /// No answer within the time limit; the command may still be running.
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

/// State shared by the callers and the driver.
struct Link {
    machine: RefCell<Connection>,
    waiting: RefCell<BTreeMap<TaskId, Waiting>>,
    driver: RefCell<Option<Waker>>,
    /// Raised when a task has ended, and when the session has.
    room: Signal,
    ended: Cell<Option<CloseReason>>,
    /// Number of writes that were in flight when the session ended.
    writes_lost: Cell<u64>,
    /// Reason of the first PDU that the target rejected.
    rejected: Cell<Option<RejectReason>>,
    negotiated: Box<Negotiated>,
    portal: SocketAddr,
}

struct Handle(Rc<Link>);

impl Drop for Handle {
    fn drop(&mut self) {
        // The last clone of the session was dropped: closed without a logout.
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
    /// Starts the session of a login; its driver runs as a task of `world` until the session ends.
    pub fn start(world: &W, entered: LoggedIn<W::Stream>) -> Self {
        let LoggedIn { stream, machine, negotiated, portal } = entered;
        let (waiting, driver, room, ended, writes_lost, rejected) = Default::default();
        let machine = RefCell::new(machine);
        let link = Rc::new(Link { machine, waiting, driver, room, ended, writes_lost, rejected, negotiated, portal });
        let mut driving = Driver { link: link.clone(), stream, world: world.clone(), timer: None };
        world.spawn(async move {
            poll_fn(|cx| driving.poll(cx)).await;
            // The peer sees the end of the stream; on a broken connection the call fails without consequence.
            let _ = driving.stream.close_write();
        });
        Self { _handle: Rc::new(Handle(link.clone())), link, world: world.clone() }
    }

    /// Negotiated parameters and identity of the session.
    #[must_use]
    pub fn negotiated(&self) -> &Negotiated {
        &self.link.negotiated
    }

    /// Portal of the session.
    #[must_use]
    pub fn portal(&self) -> SocketAddr {
        self.link.portal
    }

    /// Reason of the end; `None` while the session is alive.
    #[must_use]
    pub fn ended(&self) -> Option<CloseReason> {
        self.link.ended.get()
    }

    /// Number of writes in flight when the session ended: the target may carry them out at any later time.
    #[must_use]
    pub fn writes_lost(&self) -> u64 {
        self.link.writes_lost.get()
    }

    /// Reason of the first PDU that the target rejected, if any.
    #[must_use]
    pub fn rejected(&self) -> Option<RejectReason> {
        self.link.rejected.get()
    }

    /// Waits for the end of the session and returns its reason.
    pub async fn until_ended(&self) -> CloseReason {
        self.link.room.wait(|| self.link.ended.get()).await
    }

    /// Runs a command from its submission to its completion. Waits while all task tags are in use.
    ///
    /// A dropped future leaves the command running; a write is still counted by [`Session::writes_lost`]. *Errors*:
    /// [`SessionError`]; after `Ended` it is unknown whether the command was carried out.
    pub async fn execute(&self, command: Command) -> Result<Completion, SessionError> {
        self.execute_named(command, |_| ()).await
    }

    /// As [`Session::execute`]; `named` receives the task ID on submission.
    ///
    /// *Errors*: [`SessionError`].
    pub async fn execute_named(
        &self,
        command: Command,
        named: impl FnOnce(TaskId),
    ) -> Result<Completion, SessionError> {
        // UNMAP and PERSISTENT RESERVE OUT have a parameter list, so they count as writes as well.
        let writes = command.data_out.is_some();
        let mut command = Some(command);
        let submit = || {
            if let Some(reason) = self.link.ended.get() {
                return Some(Err(SessionError::Ended(reason)));
            }
            let submitted = self.link.machine.borrow_mut().submit(command.take()?);
            // The machine returns the command when all tags are in use; it is submitted again after the next raise.
            submitted.map_err(|back| command = Some(back)).ok().map(Ok)
        };
        let task = self.link.room.wait(submit).await?;
        // No await until `answer` has registered the task, so its completion cannot come before.
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

    /// Requests a task management function and returns the target's answer.
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

    /// As [`Session::manage`] without a timeout; `referenced` is the task for functions that address one.
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

    /// Waits for `duration`.
    pub async fn pause(&self, duration: Duration) {
        self.world.sleep(duration).await;
    }

    /// Pings the target.
    ///
    /// *Errors*: [`SessionError`].
    pub async fn ping(&self, limit: Duration) -> Result<(), SessionError> {
        within(&self.world, limit, self.echo(&[])).await.map(drop)
    }

    /// Pings the target with `data` and returns the echo: all of it, or as much as the target may send at once.
    ///
    /// *Errors*: [`SessionError`].
    pub async fn echo(&self, data: &[u8]) -> Result<Vec<u8>, SessionError> {
        let task = self.link.machine.borrow_mut().ping(data);
        match self.answer_of(task).await? {
            Answer::Pong(data) => Ok(data),
            Answer::Completed(_) | Answer::Managed(_) => unreachable!("a ping is answered by its echo"),
        }
    }

    /// Logs out and waits for the end of the session, without a timeout.
    pub async fn log_out(&self) {
        let asked = self.link.machine.borrow_mut().logout().is_some();
        self.link.wake();
        if asked {
            self.until_ended().await;
        }
    }

    /// Logs out and waits for the end of the session; closes the connection after five seconds without an answer.
    pub async fn close(&self) {
        let asked = self.link.machine.borrow_mut().logout().is_some();
        self.link.wake();
        if asked {
            let limit = LOGOUT_LIMIT;
            let _ = within(&self.world, limit, async { Ok(self.until_ended().await) }).await;
        }
        // In any case, also after a timeout.
        self.drop_connection();
    }

    /// Closes the connection immediately, without a logout.
    pub fn drop_connection(&self) {
        self.link.machine.borrow_mut().close();
        // Handled here, so that the end is visible to the caller immediately.
        self.link.handle_events();
        self.link.wake();
    }

    async fn answer_of(&self, task: Option<TaskId>) -> Result<Answer, SessionError> {
        let ended = self.link.ended.get().unwrap_or(CloseReason::Dropped);
        self.answer(task.ok_or(SessionError::Ended(ended))?, false).await
    }

    async fn answer(&self, task: TaskId, writes: bool) -> Result<Answer, SessionError> {
        let (caller, answered) = mailbox::channel();
        // The entry stays when the caller is dropped: a write in flight must be counted when the session ends.
        let before = self.link.waiting.borrow_mut().insert(task, Waiting { caller, writes });
        assert!(before.is_none(), "a task is waited for once");
        self.link.wake();
        let ended = || SessionError::Ended(self.link.ended.get().unwrap_or(CloseReason::Dropped));
        answered.receive().await.unwrap_or_else(|| Err(ended()))
    }
}

/// Runs `work` with a time limit.
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
        // The work first: an answer that arrives with the timeout counts.
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

    /// Delivers an answer to the caller, which may have been dropped.
    fn answer(&self, task: TaskId, answer: Result<Answer, SessionError>) {
        let waiting = self.waiting.borrow_mut().remove(&task);
        if let Some(waiting) = waiting {
            let _ = waiting.caller.send(answer);
        }
    }

    /// Handles all events; returns true when there was one.
    fn handle_events(&self) -> bool {
        let mut progress = false;
        loop {
            // The borrow ends before the event is handled: an answer may wake a caller that submits.
            let event = self.machine.borrow_mut().poll_event();
            let Some(event) = event else { break };
            progress = true;
            match event {
                Event::Completed(completion) => self.answer(completion.task, Ok(Answer::Completed(completion))),
                Event::TaskManagement { task, outcome } => self.answer(task, Ok(Answer::Managed(outcome))),
                Event::Pong { task, data } => self.answer(task, Ok(Answer::Pong(data))),
                Event::Rejected { task, reason } => {
                    // The first reason is kept.
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

    /// Answers the tasks that a task management function has ended; they get no completion of their own.
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
        // Before `ended` is set: a reader that sees the end must also see the number of writes to be fenced.
        self.writes_lost.set(waiting.values().filter(|waiting| waiting.writes).count() as u64);
        self.ended.set(Some(reason));
        for waiting in waiting.into_values() {
            let _ = waiting.caller.send(Err(SessionError::Ended(reason)));
        }
        self.room.raise();
    }
}

/// Driver of a session: moves bytes between the machine and the stream until the connection has ended.
struct Driver<W: World> {
    link: Rc<Link>,
    stream: W::Stream,
    world: W,
    timer: Option<(Time, Pin<Box<Sleep>>)>,
}

impl<W: World> Driver<W> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Callers wake the driver through this waker after a submission.
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
            // Received data may have queued an answer, and a closed machine accepts no more.
            Ok(true) if machine.is_closed() => {
                let _ = send(cx, &self.stream, machine);
                true
            }
            Ok(moved) => moved,
            Err(_) => {
                // A broken stream gives no more input, as one that the peer has closed.
                machine.handle_peer_closed();
                true
            }
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        let due = self.link.machine.borrow().poll_timeout();
        let Some(at) = due else { return false };
        // The deadline moves with traffic; the timer is renewed only when it differs.
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
