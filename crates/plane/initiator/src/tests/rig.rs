//! Simulated target with a few SCSI commands that holds writes and answers late on demand.
//!
//! It carries out a held write even when its connection is gone, unless a reservation, a reset or a login with the same
//! ISID has ended it: the worst behavior that SAM-5 allows.

use iscsi::chap::Auth;
use iscsi::pdu::{TaskFunctionOutcome, Tsih};
use iscsi::target::{Command, Config, Event, OpenGate, Response, Session};
use iscsi::{Grant, Identity, SendSlices, TaskId};
use shard::{Listener as _, Signal, Stream as _, StreamOptions, World};
use sim::{Sim, SimStream};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

pub(super) const BLOCK: usize = 512;
const CHECK: u8 = 2;
const CONFLICT: u8 = 0x18;
pub(super) const TARGET: &str = "iqn.2026-01.test:target";

/// Initiator port: name and ISID.
type Nexus = (String, [u8; 6]);

/// Session: its nexus, its portal, and the flag that ends it.
type OpenSession = (Nexus, IpAddr, Rc<Cell<bool>>);

/// Answers of commands; `None` is the answer to a reset.
type Answers = Rc<RefCell<Vec<(TaskId, Option<Response>)>>>;

/// One logical unit with injectable faults.
pub(super) struct Unit {
    world: Sim,
    pub blocks: RefCell<Vec<u8>>,
    pub keys: RefCell<BTreeMap<Nexus, u64>>,
    pub holder: Cell<Option<u8>>,
    /// Duration for which writes are held.
    pub hold: Cell<Duration>,
    held: RefCell<Vec<Rc<Held>>>,
    pub held_changed: Signal,
    /// True when persistent reservations are supported.
    pub reserves: Cell<bool>,
    /// Address at which another identity is reported.
    pub other_identity: Cell<Option<IpAddr>>,
    /// Statuses of the next media commands.
    pub statuses: RefCell<Vec<u8>>,
    /// Unit attention of the next media command.
    pub attention: Cell<Option<[u8; 2]>>,
    /// True when the LUN is not mapped: every command ends with LOGICAL UNIT NOT SUPPORTED.
    pub is_unmapped: Cell<bool>,
    /// True when a registration is made, but answered with LOGICAL UNIT COMMUNICATION FAILURE, as LIO does when it
    /// cannot store it.
    pub cannot_store: Cell<bool>,
    pub transfer_blocks_max: Cell<u32>,
    pub longest: Cell<u32>,
    pub write_cache: Cell<bool>,
    pub flushes: Cell<u32>,
    pub preempts: Cell<u32>,
    pub resets: Cell<u32>,
    pub logins: Cell<u16>,
    /// True when PREEMPT AND ABORT and resets wait until held writes were carried out, instead of ending them.
    pub waits: Cell<bool>,
    sessions: RefCell<Vec<OpenSession>>,
    ended: Signal,
}

struct Held {
    nexus: Nexus,
    is_over: Cell<bool>,
}

impl Unit {
    pub(super) fn new(world: &Sim, blocks: usize) -> Rc<Self> {
        Rc::new(Self {
            world: world.clone(),
            blocks: RefCell::new(vec![0; blocks * BLOCK]),
            keys: RefCell::default(),
            holder: Cell::default(),
            hold: Cell::default(),
            held: RefCell::default(),
            held_changed: Signal::default(),
            reserves: Cell::new(true),
            other_identity: Cell::default(),
            statuses: RefCell::default(),
            attention: Cell::default(),
            is_unmapped: Cell::default(),
            cannot_store: Cell::default(),
            transfer_blocks_max: Cell::default(),
            longest: Cell::default(),
            write_cache: Cell::default(),
            flushes: Cell::default(),
            preempts: Cell::default(),
            resets: Cell::default(),
            logins: Cell::default(),
            waits: Cell::default(),
            sessions: RefCell::default(),
            ended: Signal::default(),
        })
    }

    /// Serves the unit at all addresses of its machine.
    pub(super) fn serve(self: &Rc<Self>) {
        let listener = self.world.listen("0.0.0.0:3260".parse().unwrap()).unwrap();
        let unit = self.clone();
        self.world.spawn(async move {
            while let Ok(stream) = listener.accept(&StreamOptions::default()).await {
                unit.world.spawn(Served::run(unit.clone(), stream));
            }
        });
    }

    pub(super) async fn until_held(&self, count: usize) {
        let held = || self.held.borrow().iter().filter(|held| !held.is_over.get()).count();
        self.held_changed.until(|| held() >= count).await;
    }

    /// Waits until no write is held, if task management functions wait for that.
    async fn until_carried_out(&self) {
        let is_empty = || self.held.borrow().iter().all(|held| held.is_over.get());
        self.held_changed.until(|| !self.waits.get() || is_empty()).await;
    }

    /// Ends the held tasks for which `of` is true without carrying them out.
    fn end_held(&self, of: impl Fn(&Nexus) -> bool) {
        if self.waits.get() {
            return;
        }
        self.held.borrow().iter().filter(|held| of(&held.nexus)).for_each(|held| held.is_over.set(true));
        self.held.borrow_mut().retain(|held| !held.is_over.get());
    }

    /// Registers and reserves for another host.
    pub(super) fn reserve_for_another(&self, key: u64) {
        self.keys.borrow_mut().insert(("iqn.2026-01.test:another".to_owned(), [0; 6]), key);
        self.holder.set(Some(7));
    }

    pub(super) fn byte(&self, block: usize) -> u8 {
        self.blocks.borrow()[block * BLOCK]
    }

    async fn execute(self: Rc<Self>, nexus: Nexus, at: SocketAddr, command: &Command) -> Response {
        let cdb = &command.cdb;
        if self.is_unmapped.get() {
            return check(0x5, [0x25, 0]);
        }
        match cdb[0] {
            0x00 => Response::default(),
            0x12 => self.inquiry(cdb, at),
            0x9e => self.capacity(),
            0x5a => self.mode_sense(),
            0x5e => self.reserve_in(cdb),
            0x5f => {
                let response = self.reserve_out(nexus, cdb, &command.data_out);
                self.until_carried_out().await;
                response
            }
            0x88 | 0x8a => self.transfer(nexus, command).await,
            0x91 => {
                self.flushes.set(self.flushes.get() + 1);
                Response::default()
            }
            _ => illegal(),
        }
    }

    fn inquiry(&self, cdb: &[u8], at: SocketAddr) -> Response {
        let mut page = match (cdb[1] & 1, cdb[2]) {
            (0, _) => {
                let mut page = vec![0; 96];
                page[8..32].copy_from_slice(b"TEST    UNIT            ");
                page
            }
            (_, 0x83) => {
                let other = self.other_identity.get() == Some(at.ip());
                vec![0, 0x83, 0, 12, 1, 3, 0, 8, 0x60, 0, 0, 0, 0, 0, 0, u8::from(other)]
            }
            (_, 0xb0) => {
                let mut page = vec![0; 64];
                (page[1], page[3]) = (0xb0, 60);
                page[8..12].copy_from_slice(&self.transfer_blocks_max.get().to_be_bytes());
                page
            }
            _ => return illegal(),
        };
        page.truncate(usize::from(u16::from_be_bytes([cdb[3], cdb[4]])));
        good(page)
    }

    fn capacity(&self) -> Response {
        let mut page = vec![0; 32];
        let blocks = self.blocks.borrow().len() / BLOCK;
        page[..8].copy_from_slice(&(blocks as u64 - 1).to_be_bytes());
        page[8..12].copy_from_slice(&(BLOCK as u32).to_be_bytes());
        page[13] = 3;
        good(page)
    }

    fn mode_sense(&self) -> Response {
        let mut page = vec![0; 28];
        (page[1], page[8], page[9], page[10]) = (26, 8, 18, if self.write_cache.get() { 4 } else { 0 });
        good(page)
    }

    fn reserve_in(&self, cdb: &[u8]) -> Response {
        if !self.reserves.get() {
            return illegal();
        }
        let keys = self.keys.borrow();
        good(match cdb[1] & 0x1f {
            0 => {
                let mut page = vec![0; 8];
                page[4..8].copy_from_slice(&(keys.len() as u32 * 8).to_be_bytes());
                keys.values().for_each(|key| page.extend_from_slice(&key.to_be_bytes()));
                page
            }
            1 => match self.holder.get() {
                None => vec![0; 8],
                Some(kind) => {
                    let mut page = vec![0; 24];
                    (page[7], page[21]) = (16, kind);
                    page
                }
            },
            _ => vec![0, 8, 1, 0x80, 0x80, 0, 0, 0],
        })
    }

    fn reserve_out(&self, nexus: Nexus, cdb: &[u8], list: &[u8]) -> Response {
        let key = |at: usize| u64::from_be_bytes(list[at..at + 8].try_into().unwrap());
        let (reservation_key, action_key) = (key(0), key(8));
        let mut keys = self.keys.borrow_mut();
        if cdb[1] == 6 {
            if action_key == 0 {
                keys.remove(&nexus)
            } else {
                keys.insert(nexus, action_key)
            };
            if keys.is_empty() {
                self.holder.set(None);
            }
            return if self.cannot_store.get() { check(0x2, [0x08, 0]) } else { Response::default() };
        }
        if keys.get(&nexus) != Some(&reservation_key) {
            return Response::status(CONFLICT);
        }
        match cdb[1] {
            1 => self.holder.set(Some(cdb[2])),
            5 => {
                let hit: Vec<Nexus> =
                    keys.iter().filter(|(_, key)| **key == action_key).map(|(nexus, _)| nexus.clone()).collect();
                if hit.is_empty() {
                    return Response::status(CONFLICT);
                }
                self.preempts.set(self.preempts.get() + 1);
                keys.retain(|nexus, _| !hit.contains(nexus));
                self.end_held(|nexus| hit.contains(nexus));
            }
            _ => return illegal(),
        }
        Response::default()
    }

    async fn transfer(self: Rc<Self>, nexus: Nexus, command: &Command) -> Response {
        if let Some(status) = self.statuses.borrow_mut().pop() {
            return Response::status(status);
        }
        if let Some(code) = self.attention.take() {
            return check(0x6, code);
        }
        let cdb = &command.cdb;
        let lba = u64::from_be_bytes(cdb[2..10].try_into().unwrap()) as usize;
        let blocks = u32::from_be_bytes(cdb[10..14].try_into().unwrap());
        self.longest.set(self.longest.get().max(blocks));
        let range = lba * BLOCK..(lba + blocks as usize) * BLOCK;
        if cdb[0] == 0x88 {
            return good(self.blocks.borrow()[range].to_vec());
        }
        if self.holder.get().is_some() && !self.keys.borrow().contains_key(&nexus) {
            return Response::status(CONFLICT);
        }
        if !self.hold.get().is_zero() {
            let held = Rc::new(Held { nexus, is_over: Cell::new(false) });
            self.held.borrow_mut().push(held.clone());
            self.held_changed.raise();
            self.world.sleep(self.hold.get()).await;
            if held.is_over.replace(true) {
                return Response::status(0x40);
            }
        }
        self.blocks.borrow_mut()[range].copy_from_slice(&command.data_out);
        self.held_changed.raise();
        Response::default()
    }

    fn reset(&self) {
        self.resets.set(self.resets.get() + 1);
        self.end_held(|_| true);
    }

    /// Handles a login: one with the ISID of a session at the same portal ends that session and its tasks.
    fn welcome(&self, identity: &Identity, at: IpAddr) -> (Nexus, Rc<Cell<bool>>) {
        let nexus = (identity.initiator_name.as_str().to_owned(), identity.isid.0);
        let mut sessions = self.sessions.borrow_mut();
        let is_same = |session: &OpenSession| (&session.0, session.1) == (&nexus, at);
        for (_, _, over) in sessions.iter().filter(|session| is_same(session)) {
            over.set(true);
            self.end_held(|held| *held == nexus);
        }
        sessions.retain(|session| !is_same(session));
        let over = Rc::new(Cell::new(false));
        sessions.push((nexus.clone(), at, over.clone()));
        self.ended.raise();
        (nexus, over)
    }
}

/// One connection.
struct Served {
    unit: Rc<Unit>,
    stream: SimStream,
    machine: Session,
    identity: Option<(Nexus, Rc<Cell<bool>>)>,
    answers: Answers,
    answered: Rc<Signal>,
}

impl Served {
    async fn run(unit: Rc<Unit>, stream: SimStream) {
        let machine = Session::new(Rc::new(Config::default()), [7; 32], unit.world.now());
        let (answers, answered) = Default::default();
        let mut served = Self { unit, stream, machine, identity: None, answers, answered };
        loop {
            let timeout = served.machine.poll_timeout();
            let mut timer = pin!(timeout.map(|at| served.unit.world.sleep_until(at)));
            let is_over = poll_fn(|cx| {
                let moved = served.turn(cx);
                if served.machine.is_over() || served.is_reinstated() {
                    return Poll::Ready(true);
                }
                if timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready()) {
                    served.machine.handle_timeout(served.unit.world.now());
                    return Poll::Ready(false);
                }
                if moved { Poll::Ready(false) } else { Poll::Pending }
            })
            .await;
            if is_over {
                // Held writes continue without their connection.
                return;
            }
        }
    }

    fn is_reinstated(&self) -> bool {
        self.identity.as_ref().is_some_and(|(_, over)| over.get())
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        self.answered.watch(cx);
        self.unit.ended.watch(cx);
        let mut moved = self.act();
        while self.machine.wants_to_send(0) {
            let mut slices = SendSlices::new();
            self.machine.gather(0, &mut slices);
            let sent = self.stream.poll_write(cx, &slices);
            drop(slices);
            match sent {
                Poll::Ready(Ok(len)) => self.machine.handle_transmitted(0, len),
                Poll::Ready(Err(_)) => {
                    self.machine.handle_peer_closed(0);
                    return true;
                }
                Poll::Pending => break,
            }
        }
        let into = self.machine.receive_into(0);
        if into.is_empty() {
            return moved;
        }
        match self.stream.poll_read(cx, into) {
            Poll::Ready(Ok(len)) if len > 0 => {
                self.machine.handle_received(0, len, self.unit.world.now(), &mut OpenGate);
                moved = true;
            }
            Poll::Ready(_) => {
                self.machine.handle_peer_closed(0);
                moved = true;
            }
            Poll::Pending => {}
        }
        moved | self.act()
    }

    fn act(&mut self) -> bool {
        let now = self.unit.world.now();
        let mut moved = false;
        for (task, response) in self.answers.take() {
            match response {
                Some(response) => self.machine.respond(task, response),
                None => self.machine.respond_task_management(task, TaskFunctionOutcome::Complete),
            }
            moved = true;
        }
        while let Some(event) = self.machine.poll_event() {
            moved = true;
            match event {
                Event::Login(_) => {
                    let grant = Grant { auth: Auth::None, portal_group_tag: 1, target_alias: None };
                    self.machine.grant(grant, now);
                }
                Event::Authenticated => {
                    self.unit.logins.set(self.unit.logins.get() + 1);
                    self.machine.assign_session(Ok(Tsih(self.unit.logins.get())), now);
                }
                Event::FullFeature(negotiated) => {
                    let at = self.stream.local_address().ip();
                    self.identity = Some(self.unit.welcome(&negotiated.identity, at));
                }
                Event::Command(command) => self.begin(command),
                Event::TaskManagement(request) => self.begin_reset(request.task),
                Event::SendTargets { .. } | Event::CommandsLost(_) | Event::Closed(_) => {}
            }
        }
        moved
    }

    fn begin_reset(&self, task: TaskId) {
        self.unit.reset();
        let (unit, answers, answered) = (self.unit.clone(), self.answers.clone(), self.answered.clone());
        self.unit.world.spawn(async move {
            unit.until_carried_out().await;
            answers.borrow_mut().push((task, None));
            answered.raise();
        });
    }

    fn begin(&self, command: Command) {
        let (nexus, _) = self.identity.clone().unwrap();
        let (unit, at) = (self.unit.clone(), self.stream.local_address());
        let (answers, answered) = (self.answers.clone(), self.answered.clone());
        self.unit.world.spawn(async move {
            let response = unit.execute(nexus, at, &command).await;
            answers.borrow_mut().push((command.task, Some(response)));
            answered.raise();
        });
    }
}

fn good(page: Vec<u8>) -> Response {
    Response::good(block::Rope::from(block::Buf::copy_of(&page).freeze()))
}

fn illegal() -> Response {
    check(0x5, [0x20, 0])
}

fn check(key: u8, [code, qualifier]: [u8; 2]) -> Response {
    assert_eq!(CHECK, 2);
    let mut sense = [0; 18];
    (sense[0], sense[2], sense[7], sense[12], sense[13]) = (0x70, key, 10, code, qualifier);
    Response::check_condition(&sense)
}
