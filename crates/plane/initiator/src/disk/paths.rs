//! The paths of a remote disk: logins and their repetition, the choice of the active one, and the fence between a lost
//! path and the next write.
//!
//! Called by [`super::io`] for every command, and by one task for each path. It must never let a write pass while a lost
//! path may still carry out an earlier one.

mod logins;

use super::config::{DiskConfig, DiskEvent, OpenError, PathReport, PathState, Use};
use super::unit::{UnitFacts, access_of};
use crate::fence::{Ended, Fence as _, FenceError, LostPath, UnitFence};
use crate::page::AccessState;
use crate::session::Session;
use futures_util::StreamExt as _;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesUnordered;
use iscsi::pdu::Lun;
use shard::{Signal, Time, World};
use std::cell::{Cell, OnceCell, RefCell};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// The pauses between two attempts to log in: the first, and the longest.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(100);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(10);
/// The pause before fencing is tried again.
const FENCE_PAUSE: Duration = Duration::from_millis(500);
/// How often the access state of a path is read that is not active/optimized.
const ACCESS_INTERVAL: Duration = Duration::from_secs(10);
/// How long an open waits for the other paths once one is up.
const OPEN_GRACE: Duration = Duration::from_secs(3);
/// How long a login may take.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// The paths of one disk.
pub(super) struct Paths<W: World> {
    pub(super) world: W,
    pub(super) config: DiskConfig,
    pub(super) lun: Lun,
    /// The unit that was opened. Set by the first path that logs in.
    pub(super) unit: OnceCell<UnitFacts>,
    /// How lost paths are fenced. Set with `unit`.
    fence: OnceCell<UnitFence>,
    entries: RefCell<Vec<Path<W>>>,
    active: Cell<Option<usize>>,
    /// Paths that were lost with writes under way, and are not fenced yet.
    lost: RefCell<Vec<LostPath>>,
    is_fencing: Cell<bool>,
    /// Raised when a path comes or goes, is fenced, or the disk fails or closes.
    pub(super) changed: Signal,
    is_closed: Cell<bool>,
    /// A registration of another initiator, as one that only looks has seen it.
    pub(super) foreign: Cell<Option<u64>>,
    keepers: Cell<usize>,
    /// Why the disk has failed, once it has.
    failed: RefCell<Option<String>>,
    /// Writes that the unit has acknowledged, and those of them that a flush has covered.
    written: Cell<u64>,
    flushed: Cell<u64>,
    /// All paths were lost at once, or the target was restarted, while acknowledged writes were not flushed.
    is_cache_lost: Cell<bool>,
}

struct Path<W: World> {
    portal: SocketAddr,
    /// What the last login has registered; zero without reservations.
    key: u64,
    session: Option<Session<W>>,
    /// Where the last session was, after redirects.
    reached: Option<SocketAddr>,
    reason: String,
    /// Why we have dropped its session ourselves.
    dropped_because: Option<String>,
    /// The unit is being looked at again.
    is_looking: bool,
    access: AccessState,
    losses: u64,
    commands: u64,
    bytes: u64,
}

/// A path that has logged in.
struct Connected<W: World> {
    session: Session<W>,
    key: u64,
    access: AccessState,
}

impl<W: World> Paths<W> {
    pub(super) fn new(world: &W, config: DiskConfig) -> Rc<Self> {
        assert!(!config.portals.is_empty(), "a remote disk has a portal");
        assert!(config.portals.len() <= 255, "a key has 8 bits for the path");
        let path = |&portal| Path {
            portal,
            key: 0,
            session: None,
            reached: None,
            reason: "not connected yet".to_owned(),
            dropped_because: None,
            is_looking: false,
            access: AccessState::default(),
            losses: 0,
            commands: 0,
            bytes: 0,
        };
        Rc::new(Self {
            world: world.clone(),
            lun: Lun(scsi::Lun::of(config.lun).0),
            entries: RefCell::new(config.portals.iter().map(path).collect()),
            config,
            unit: OnceCell::new(),
            fence: OnceCell::new(),
            active: Cell::new(None),
            lost: RefCell::default(),
            is_fencing: Cell::new(false),
            changed: Signal::default(),
            is_closed: Cell::new(false),
            foreign: Cell::new(None),
            keepers: Cell::new(0),
            failed: RefCell::default(),
            written: Cell::new(0),
            flushed: Cell::new(0),
            is_cache_lost: Cell::new(false),
        })
    }

    /// At least one path is up, and no write of an earlier life of this array can come any more.
    ///
    /// *Errors*: no path could log in, the unit cannot be used, or another initiator has reserved it.
    pub(super) async fn open(self: &Rc<Self>) -> Result<(), OpenError> {
        let count = self.config.portals.len();
        let trouble = self.connect_all().await?;
        let Some(session) = self.usable(false) else {
            return Err(trouble.unwrap_or(OpenError::NoUnit(self.config.lun)));
        };
        if let Use::Own { force } = self.config.usage {
            self.end_earlier_life(&session.1, session.0, force).await?;
        }
        for path in 0..count {
            self.keepers.set(self.keepers.get() + 1);
            self.world.spawn(self.clone().keep(path));
        }
        Ok(())
    }

    /// Every path has logged in or failed to; those that take longer than the first one and a grace are left to their tasks.
    ///
    /// *Errors*: a path leads to another unit, or the unit is somebody else's. Returned: why a path is only down.
    async fn connect_all(self: &Rc<Self>) -> Result<Option<OpenError>, OpenError> {
        let numbered = |path| async move { (path, self.connect(path).await) };
        let mut connecting: FuturesUnordered<_> = (0..self.config.portals.len()).map(numbered).collect();
        let (mut trouble, mut grace) = (None, None);
        loop {
            let next = match &mut grace {
                None => connecting.next().await,
                Some(grace) => match select(connecting.next(), grace).await {
                    Either::Left((next, _)) => next,
                    Either::Right(_) => None,
                },
            };
            match next {
                None => return Ok(trouble),
                Some((path, Ok(connected))) => {
                    self.take_up(path, connected);
                    grace.get_or_insert_with(|| self.world.sleep(OPEN_GRACE));
                }
                // A path that is only down is tried again; one that leads elsewhere is a mistake.
                Some((path, Err(error @ (OpenError::NoPath(_) | OpenError::Fence(FenceError::Session(_)))))) => {
                    self.note_reason(path, &error.to_string());
                    trouble = Some(error);
                }
                Some((_, Err(error))) => return Err(error),
            }
        }
    }

    /// Registrations of an earlier life of this array are preempted, and its tasks have ended.
    async fn end_earlier_life(&self, session: &Session<W>, path: usize, force: bool) -> Result<(), OpenError> {
        let current: Vec<u64> = self.entries.borrow().iter().map(|entry| entry.key).collect();
        let is_stale = |key: u64| !current.contains(&key) && (force || self.is_own_key(key));
        match self.fence() {
            UnitFence::Reset { .. } => {
                let lost = LostPath { path, key: 0 };
                self.fence().end_writes(session, 0, lost).await?;
                self.drop_others(path);
            }
            fence @ UnitFence::Reservation { .. } => fence.preempt(session, current[path], is_stale).await?,
        }
        Ok(())
    }

    /// No path is used any more, every key is unregistered, and every session has logged out.
    pub(super) async fn close(&self) {
        self.abandon();
        self.until_left().await;
    }

    /// Every path has left.
    pub(super) async fn until_left(&self) {
        self.changed.until(|| self.is_closed.get() && self.keepers.get() == 0).await;
    }

    /// True when every path has left.
    pub(super) fn has_left(&self) -> bool {
        self.is_closed.get() && self.keepers.get() == 0
    }

    /// An open that has failed leaves nothing behind.
    pub(super) async fn give_up(&self) {
        self.is_closed.set(true);
        for path in 0..self.config.portals.len() {
            self.leave(path).await;
        }
    }

    /// The disk is closed; the tasks of its paths unregister and log out.
    pub(super) fn abandon(&self) {
        self.is_closed.set(true);
        self.changed.raise();
    }

    /// The path that a command goes over, when there is one; for a write only when every lost path is fenced.
    pub(super) fn usable(self: &Rc<Self>, writes: bool) -> Option<(usize, Session<W>)> {
        self.reap();
        if writes && !self.lost.borrow().is_empty() {
            return None;
        }
        let path = self.active.get()?;
        let session = self.entries.borrow()[path].session.clone()?;
        Some((path, session))
    }

    /// As [`Paths::usable`], waiting for it until the clock has reached `until`.
    ///
    /// *Errors*: the disk has failed, is closed, or fails now.
    pub(super) async fn usable_until(self: &Rc<Self>, writes: bool, until: Time) -> Result<(usize, Session<W>), ()> {
        let look = || match self.usable(writes) {
            _ if self.has_failed() || self.is_closed.get() => Some(Err(())),
            usable => usable.map(Ok),
        };
        if let Some(usable) = look() {
            return usable;
        }
        let waiting = pin!(self.changed.wait(look));
        match select(waiting, self.world.sleep_until(until)).await {
            Either::Left((usable, _)) => usable,
            Either::Right(_) => {
                self.fail(&self.last_reason());
                Err(())
            }
        }
    }

    /// The disk fails every command from now on.
    pub(super) fn fail(&self, reason: &str) {
        if self.has_failed() || self.is_closed.get() {
            return;
        }
        *self.failed.borrow_mut() = Some(reason.to_owned());
        (self.config.events)(DiskEvent::Unreachable { reason: reason.to_owned() });
        self.changed.raise();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// The path has carried a command.
    pub(super) fn count(&self, path: usize, bytes: u64) {
        let entry = &mut self.entries.borrow_mut()[path];
        (entry.commands, entry.bytes) = (entry.commands + 1, entry.bytes + bytes);
    }

    /// The unit has acknowledged a write of this session.
    pub(super) fn note_written(&self, session: &Session<W>) {
        self.written.set(self.written.get() + 1);
        // It was acknowledged before the session ended, and by what has ended it the cache may be gone.
        if session.ended().is_some() {
            self.lose_cache();
        }
    }

    /// What a volatile cache held may be lost.
    pub(super) fn lose_cache(&self) {
        if self.written.get() > self.flushed.get() {
            self.is_cache_lost.set(true);
        }
    }

    /// Writes that are acknowledged by now.
    pub(super) fn written(&self) -> u64 {
        self.written.get()
    }

    /// The first `count` acknowledged writes are durable.
    ///
    /// *Errors*: they may be lost; the disk has failed.
    pub(super) fn note_flushed(&self, count: u64) -> Result<(), ()> {
        assert!(count <= self.written.get(), "a flush covers what was written");
        if self.is_cache_lost.get() {
            self.fail("the target was restarted, or all paths were lost, before its write cache was flushed");
            return Err(());
        }
        self.flushed.set(count.max(self.flushed.get()));
        Ok(())
    }

    /// The path takes no media commands now.
    pub(super) fn set_unusable(self: &Rc<Self>, path: usize) {
        self.entries.borrow_mut()[path].access = AccessState::Standby;
        self.choose();
    }

    /// The session of the path is ended, and its commands are sent again.
    pub(super) fn drop_session(self: &Rc<Self>, path: usize, session: &Session<W>, reason: &str) {
        // One that has ended may have a successor already.
        if session.ended().is_none() {
            self.entries.borrow_mut()[path].dropped_because = Some(reason.to_owned());
            session.drop_connection();
        }
        self.reap();
    }

    /// The access state of the path is read again.
    pub(super) async fn refresh_access(self: &Rc<Self>, path: usize, session: &Session<W>) {
        let group = self.unit.get().and_then(|unit| unit.port_group);
        if let Some(group) = group
            && let Ok(access) = access_of(session, self.lun, group).await
        {
            self.entries.borrow_mut()[path].access = access;
            self.choose();
        }
    }

    pub(super) fn reports(&self) -> Vec<PathReport> {
        let active = self.active.get();
        let report = |(number, path): (usize, &Path<W>)| PathReport {
            portal: path.portal,
            state: match &path.session {
                Some(session) if session.ended().is_none() => PathState::Up,
                _ => PathState::Down(path.reason.clone()),
            },
            access: path.access,
            is_active: active == Some(number),
            losses: path.losses,
            commands: path.commands,
            bytes: path.bytes,
        };
        self.entries.borrow().iter().enumerate().map(report).collect()
    }

    fn fence(&self) -> UnitFence {
        *self.fence.get().expect("a path that is up has set it")
    }

    fn last_reason(&self) -> String {
        let entries = self.entries.borrow();
        let reasons: Vec<String> = entries
            .iter()
            .filter(|path| path.session.is_none())
            .map(|path| format!("{}: {}", path.portal, path.reason))
            .collect();
        if reasons.is_empty() { "writes of a lost path could not be ended".to_owned() } else { reasons.join("; ") }
    }

    fn note_reason(&self, path: usize, reason: &str) {
        reason.clone_into(&mut self.entries.borrow_mut()[path].reason);
    }
}

/// Paths that come and go.
impl<W: World> Paths<W> {
    fn take_up(self: &Rc<Self>, path: usize, connected: Connected<W>) {
        let Connected { session, key, access } = connected;
        {
            let entry = &mut self.entries.borrow_mut()[path];
            assert!(entry.session.is_none(), "a path has one session at a time");
            // The same ISID at the same portal: the target has ended the tasks of the session before (RFC 7143 §6.3.5).
            if entry.reached == Some(session.portal()) {
                self.lost.borrow_mut().retain(|lost| lost.path != path);
            }
            entry.reached = Some(session.portal());
            entry.dropped_because = None;
            (entry.key, entry.access, entry.session) = (key, access, Some(session));
        }
        self.choose();
        self.fence_lost();
    }

    /// Sessions that have ended are taken out; writes that they had under way hold back all others until they are fenced.
    fn reap(self: &Rc<Self>) {
        let mut events = Vec::new();
        {
            let mut entries = self.entries.borrow_mut();
            let left = entries.iter().filter(|entry| is_up(entry)).count();
            for (path, entry) in entries.iter_mut().enumerate() {
                let Some(reason) = entry.session.as_ref().and_then(Session::ended) else { continue };
                let Some(session) = entry.session.take() else { continue };
                entry.losses += 1;
                entry.reason = entry.dropped_because.take().unwrap_or_else(|| reason.to_string());
                if session.writes_lost() > 0 && self.config.usage != Use::Look {
                    self.lost.borrow_mut().push(LostPath { path, key: entry.key });
                }
                if left == 0 {
                    self.lose_cache();
                }
                if !self.is_closed.get() {
                    let (portal, reason) = (entry.portal, entry.reason.clone());
                    events.push(DiskEvent::PathLost { portal, reason, left });
                }
            }
        }
        if events.is_empty() {
            return;
        }
        events.into_iter().for_each(|event| (self.config.events)(event));
        self.choose();
        self.fence_lost();
    }

    /// The best path is active; the one that is, where it is as good as the best.
    fn choose(&self) {
        let before = self.active.get();
        let entries = self.entries.borrow();
        let usable = entries.iter().enumerate().filter(|(_, entry)| is_up(entry));
        let usable = usable.filter(|(_, entry)| entry.access <= AccessState::NonOptimized);
        let best = usable.min_by_key(|(path, entry)| (entry.access, before != Some(*path), *path));
        self.active.set(best.map(|(path, _)| path));
        drop(entries);
        self.changed.raise();
    }

    /// Lost paths are fenced by a task of their own, one at a time.
    fn fence_lost(self: &Rc<Self>) {
        if !self.lost.borrow().is_empty() && !self.is_fencing.replace(true) {
            self.world.spawn(self.clone().fence_all());
        }
    }

    async fn fence_all(self: Rc<Self>) {
        loop {
            let lost = self.lost.borrow().first().copied();
            let Some(lost) = lost.filter(|_| !self.is_closed.get()) else { break };
            let Some((living, session)) = self.usable(false) else {
                self.changed.until(|| self.active.get().is_some() || self.is_closed.get()).await;
                continue;
            };
            let key = self.entries.borrow()[living].key;
            match self.end_writes(&session, key, lost).await {
                Ok(how) => self.note_fenced(lost, living, how),
                Err(error) => {
                    tracing::warn!(target = %self.config.address(), %error, "a lost path cannot be fenced yet");
                    self.world.sleep(FENCE_PAUSE).await;
                }
            }
        }
        self.is_fencing.set(false);
    }

    async fn end_writes(&self, living: &Session<W>, key: u64, lost: LostPath) -> Result<Ended, FenceError> {
        self.fence().end_writes(living, key, lost).await
    }

    fn note_fenced(self: &Rc<Self>, lost: LostPath, living: usize, how: Ended) {
        self.lost.borrow_mut().retain(|other| *other != lost);
        if how == Ended::Reset {
            self.drop_others(living);
        }
        let portal = self.entries.borrow()[lost.path].portal;
        let key = if how == Ended::Preempted { lost.key } else { 0 };
        (self.config.events)(DiskEvent::PathFenced { portal, key });
        self.changed.raise();
    }

    /// A reset ends the commands of every session, and answers none of them: the others log in again.
    fn drop_others(&self, living: usize) {
        let entries = self.entries.borrow();
        let others = entries.iter().enumerate().filter(|(path, _)| *path != living);
        others.filter_map(|(_, entry)| entry.session.as_ref()).for_each(Session::drop_connection);
    }

    /// Keeps the path up until the disk is closed; then its key is unregistered and it logs out.
    async fn keep(self: Rc<Self>, path: usize) {
        let mut pause = RECONNECT_PAUSE_MIN;
        while !self.is_closed.get() {
            let session = self.entries.borrow()[path].session.clone();
            match session {
                Some(session) => {
                    pause = RECONNECT_PAUSE_MIN;
                    self.watch(path, &session).await;
                }
                None => {
                    let connecting = pin!(self.connect(path));
                    match select(connecting, pin!(self.changed.until(|| self.is_closed.get()))).await {
                        Either::Left((Ok(connected), _)) => self.restore(path, connected),
                        Either::Left((Err(error), _)) => {
                            self.note_reason(path, &error.to_string());
                            let closed = pin!(self.changed.until(|| self.is_closed.get()));
                            select(closed, self.world.sleep(pause)).await;
                            pause = (pause * 2).min(RECONNECT_PAUSE_MAX);
                        }
                        Either::Right(_) => {}
                    }
                }
            }
        }
        self.leave(path).await;
        assert!(self.keepers.get() > 0, "each path has one keeper");
        self.keepers.set(self.keepers.get() - 1);
        self.changed.raise();
    }

    fn restore(self: &Rc<Self>, path: usize, connected: Connected<W>) {
        let (portal, key) = (self.config.portals[path], connected.key);
        self.take_up(path, connected);
        (self.config.events)(DiskEvent::PathRestored { portal, key });
    }

    /// Returns when the session has ended, the disk is closed, or the access state was read again.
    async fn watch(self: &Rc<Self>, path: usize, session: &Session<W>) {
        let ended = pin!(session.until_ended());
        let closed = pin!(self.changed.until(|| self.is_closed.get()));
        let over = select(ended, closed);
        if let Either::Right(_) = select(over, self.world.sleep(ACCESS_INTERVAL)).await
            && session.ended().is_none()
            && self.entries.borrow()[path].access != AccessState::Optimized
        {
            self.refresh_access(path, session).await;
        }
        self.reap();
    }

    async fn leave(&self, path: usize) {
        let (session, key) = {
            let entry = &mut self.entries.borrow_mut()[path];
            (entry.session.take(), std::mem::take(&mut entry.key))
        };
        let Some(session) = session.filter(|session| session.ended().is_none()) else {
            // A living path removes the key.
            self.entries.borrow_mut()[path].key = key;
            return;
        };
        if let (Use::Own { .. }, Some(fence)) = (self.config.usage, self.fence.get())
            && let Err(error) = self.unregister(&session, *fence, key).await
        {
            tracing::info!(target = %self.config.address(), %error, "a key stays registered");
        }
        session.close().await;
    }

    /// The path's key is not registered any more, nor are those of paths that are down.
    async fn unregister(&self, session: &Session<W>, fence: UnitFence, key: u64) -> Result<(), FenceError> {
        let is_down = |entry: &&Path<W>| entry.session.is_none() && entry.key != 0;
        let down: Vec<u64> = self.entries.borrow().iter().filter(is_down).map(|entry| entry.key).collect();
        if !down.is_empty() {
            fence.preempt(session, key, |other| down.contains(&other)).await?;
        }
        fence.leave(session, key).await
    }
}

fn is_up<W: World>(path: &Path<W>) -> bool {
    path.session.as_ref().is_some_and(|session| session.ended().is_none())
}
