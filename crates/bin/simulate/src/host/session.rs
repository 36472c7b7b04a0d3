//! One session of our initiator over a simulated TCP connection.

use iscsi::initiator::{Command, Completion, Config, Connection, Event};
use iscsi::pdu::{Lun, TaskFunction, TaskFunctionOutcome};
use iscsi::{CloseReason, Gathered, TaskId};
use shard::mailbox::{self, Sender};
use shard::time::Sleep;
use shard::{Stream, StreamOptions, Time, World};
use sim::{Sim, SimStream};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A session that is logged in. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Session(Rc<Link>);

/// What came of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The command has ended.
    Completed(Completion),
    /// The task management function has.
    Managed(TaskFunctionOutcome),
    /// The ping came back, with this.
    Pong(Vec<u8>),
    /// A task management function has ended the command.
    Aborted,
    /// The session ended first.
    Lost,
}

/// Why there is no session.
pub(crate) enum NoSession {
    /// The network, or nobody there.
    Unreachable,
    /// What the target did wrong, in words: it does not want us, or broke the protocol.
    Wrong(String),
}

struct Link {
    machine: RefCell<Connection>,
    waiting: RefCell<BTreeMap<TaskId, Sender<Answer>>>,
    driver: RefCell<Option<Waker>>,
    logged_in: RefCell<Option<Sender<u16>>>,
    tsih: Cell<u16>,
    ended: Cell<Option<CloseReason>>,
    wrong: RefCell<Option<String>>,
}

impl Session {
    /// Connects to `portal` and logs in.
    pub async fn login(world: &Sim, portal: SocketAddr, config: Rc<Config>) -> Result<Self, NoSession> {
        let connected = world.connect(portal, StreamOptions::default()).await;
        let stream = connected.map_err(|_| NoSession::Unreachable)?;
        let mut seed = [0; 32];
        world.random(&mut seed);
        let (tell, told) = mailbox::channel();
        let link = Rc::new(Link {
            machine: RefCell::new(Connection::new(config, seed, world.now())),
            waiting: RefCell::default(),
            driver: RefCell::default(),
            logged_in: RefCell::new(Some(tell)),
            tsih: Cell::default(),
            ended: Cell::default(),
            wrong: RefCell::default(),
        });
        world.spawn(drive(link.clone(), stream, world.clone()));
        match told.receive().await {
            Some(tsih) => {
                link.tsih.set(tsih);
                Ok(Self(link))
            }
            None => Err(match link.ended.get() {
                Some(CloseReason::LoginRefused(status)) => NoSession::Wrong(format!("refused: {status:?}")),
                Some(CloseReason::Violation(violation)) => NoSession::Wrong(violation.to_string()),
                _ => NoSession::Unreachable,
            }),
        }
    }

    /// The target's handle of the session.
    pub fn tsih(&self) -> u16 {
        self.0.tsih.get()
    }

    /// Sends `command` and waits for its end. Gives the task's name at once to `named`.
    pub async fn command(&self, command: Command, named: impl FnOnce(TaskId)) -> Answer {
        let submitted = self.0.machine.borrow_mut().submit(command);
        match submitted {
            Ok(task) => {
                named(task);
                self.answer(Some(task)).await
            }
            Err(_) => Answer::Lost,
        }
    }

    /// Asks for a task management function and waits for its end.
    pub async fn manage(&self, function: TaskFunction, lun: Lun, referenced: Option<TaskId>) -> Answer {
        let task = self.0.machine.borrow_mut().manage(function, lun, referenced);
        self.answer(task).await
    }

    /// Pings the target.
    pub async fn ping(&self, data: &[u8]) -> Answer {
        let task = self.0.machine.borrow_mut().ping(data);
        self.answer(task).await
    }

    /// Logs out, and waits until the connection is over.
    pub async fn logout(&self) {
        let task = self.0.machine.borrow_mut().logout();
        self.answer(task).await;
    }

    /// Lets go of the connection without a word.
    pub fn drop_connection(&self) {
        self.0.machine.borrow_mut().close();
        self.0.wake();
    }

    /// Why the session is over, if it is.
    pub fn ended(&self) -> Option<CloseReason> {
        self.0.ended.get()
    }

    /// What the target did wrong, if it did.
    pub fn wrong(&self) -> Option<String> {
        self.0.wrong.borrow().clone()
    }

    async fn answer(&self, task: Option<TaskId>) -> Answer {
        let Some(task) = task else { return Answer::Lost };
        let (tell, told) = mailbox::channel();
        self.0.waiting.borrow_mut().insert(task, tell);
        self.0.wake();
        match told.receive().await {
            Some(answer) => answer,
            None if self.0.ended.get().is_some() => Answer::Lost,
            None => Answer::Aborted,
        }
    }
}

impl Link {
    fn wake(&self) {
        if let Some(waker) = self.driver.borrow_mut().take() {
            waker.wake();
        }
    }

    fn answer(&self, task: TaskId, answer: Answer) {
        if let Some(waiting) = self.waiting.borrow_mut().remove(&task) {
            // Who asked may have given up.
            let _ = waiting.send(answer);
        }
    }

    fn handle_events(&self) -> bool {
        let mut progress = false;
        loop {
            let event = self.machine.borrow_mut().poll_event();
            let Some(event) = event else { break };
            progress = true;
            match event {
                Event::FullFeature(negotiated) => {
                    if let Some(tell) = self.logged_in.borrow_mut().take() {
                        let _ = tell.send(negotiated.identity.tsih.0);
                    }
                }
                Event::Completed(completion) => self.answer(completion.task, Answer::Completed(completion)),
                Event::TaskManagement { task, outcome } => self.answer(task, Answer::Managed(outcome)),
                Event::Pong { task, data } => self.answer(task, Answer::Pong(data)),
                Event::Rejected { reason, .. } => self.accuse(format!("the target rejected a PDU: {reason:?}")),
                Event::Closed(reason) => self.close(reason),
                Event::Targets { .. } | Event::Async { .. } | Event::Moved(_) => {}
            }
        }
        if progress {
            self.forget_aborted();
        }
        progress
    }

    /// Tasks that a function has ended are not answered any more.
    fn forget_aborted(&self) {
        let machine = self.machine.borrow();
        let gone = |task: &TaskId| !machine.is_waiting_for(*task);
        let gone: Vec<TaskId> = self.waiting.borrow().keys().copied().filter(gone).collect();
        for task in gone {
            self.answer(task, Answer::Aborted);
        }
    }

    fn accuse(&self, why: String) {
        self.wrong.borrow_mut().get_or_insert(why);
    }

    fn close(&self, reason: CloseReason) {
        if let CloseReason::Violation(violation) = reason {
            self.accuse(format!("the target broke the protocol: {violation}"));
        }
        self.ended.set(Some(reason));
        self.logged_in.take();
        // Everybody who waits hears that the session is lost.
        let waiting = self.waiting.take();
        for waiting in waiting.into_values() {
            let _ = waiting.send(Answer::Lost);
        }
    }
}

/// Carries bytes between the machine and the stream until the connection is over.
async fn drive(link: Rc<Link>, stream: SimStream, world: Sim) {
    let mut driver = Driver { link, stream, world, timer: None };
    poll_fn(|cx| driver.poll(cx)).await;
}

struct Driver {
    link: Rc<Link>,
    stream: SimStream,
    world: Sim,
    timer: Option<(Time, Pin<Box<Sleep>>)>,
}

impl Driver {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        *self.link.driver.borrow_mut() = Some(cx.waker().clone());
        loop {
            let mut progress = self.send(cx);
            progress |= self.receive(cx);
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

    fn send(&self, cx: &mut Context<'_>) -> bool {
        let machine = &mut *self.link.machine.borrow_mut();
        let mut progress = false;
        while machine.wants_to_send() {
            let mut slices = Gathered::new();
            machine.gather(&mut slices);
            let sent = self.stream.poll_write(cx, &slices);
            drop(slices);
            match sent {
                Poll::Pending => return progress,
                Poll::Ready(Ok(len)) => machine.handle_transmitted(len),
                Poll::Ready(Err(_)) => machine.handle_peer_closed(),
            }
            progress = true;
        }
        progress
    }

    fn receive(&self, cx: &mut Context<'_>) -> bool {
        let machine = &mut *self.link.machine.borrow_mut();
        let space = machine.receive_into();
        if space.is_empty() {
            return false;
        }
        match self.stream.poll_read(cx, space) {
            Poll::Pending => false,
            Poll::Ready(Ok(len)) if len > 0 => {
                machine.handle_received(len, self.world.now());
                true
            }
            Poll::Ready(_) => {
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
        let (_, sleep) = self.timer.as_mut().expect("it was set above");
        if sleep.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.timer = None;
        self.link.machine.borrow_mut().handle_timeout(self.world.now());
        true
    }
}
