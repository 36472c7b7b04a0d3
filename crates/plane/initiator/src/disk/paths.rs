//! Paths of a remote disk: logins and reconnects, the choice of the active path, and the fence between a lost path and
//! the next write.
//!
//! Called by [`super::io`] for every command, and by one task for each path. It must never let a write pass while a
//! lost path may still carry out an earlier one.

mod logins;
mod upkeep;

use super::config::{DiskConfig, DiskEvent, OpenError, OpenMode, PathReport, PathState};
use super::unit::{UnitFacts, access_of};
use crate::fence::{Fence as _, FenceError, FenceMethod, LostPath, UnitFence};
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

/// Back-off between two login attempts: first and longest pause.
const RECONNECT_PAUSE_MIN: Duration = Duration::from_millis(100);
const RECONNECT_PAUSE_MAX: Duration = Duration::from_secs(10);
/// Pause before fencing is retried.
const FENCE_PAUSE: Duration = Duration::from_millis(500);
/// Interval at which the access state of a path that is not active/optimized is read.
const ACCESS_INTERVAL: Duration = Duration::from_secs(10);
/// Time that an open waits for the other paths once one is up.
const OPEN_GRACE: Duration = Duration::from_secs(3);
/// Login timeout.
const LOGIN_LIMIT: Duration = Duration::from_secs(10);

/// Paths of one disk.
pub(super) struct Paths<W: World> {
    pub(super) world: W,
    pub(super) config: DiskConfig,
    pub(super) lun: Lun,
    /// The unit that was opened. Set by the first path that logs in.
    pub(super) unit: OnceCell<UnitFacts>,
    /// Fencing method for lost paths. Set with `unit`.
    fence: OnceCell<UnitFence>,
    entries: RefCell<Vec<Path<W>>>,
    active: Cell<Option<usize>>,
    /// Paths that were lost with writes in flight and are not fenced yet.
    lost: RefCell<Vec<LostPath>>,
    is_fencing: Cell<bool>,
    /// Raised when a path is gained or lost, is fenced, or the disk fails or closes.
    pub(super) changed: Signal,
    is_closed: Cell<bool>,
    /// Registration of another initiator that was seen by an inspection.
    pub(super) foreign: Cell<Option<u64>>,
    path_tasks: Cell<usize>,
    /// Reason of the failure, once the disk has failed.
    failed: RefCell<Option<String>>,
    /// Number of acknowledged writes, and of those that a flush has covered.
    written: Cell<u64>,
    flushed: Cell<u64>,
    /// True when unflushed writes may be lost: all paths were lost at once, or the target was restarted.
    is_cache_lost: Cell<bool>,
}

struct Path<W: World> {
    portal: SocketAddr,
    /// Key that the last login has registered; zero without reservations.
    key: u64,
    session: Option<Session<W>>,
    /// Portal of the last session, after redirects.
    reached: Option<SocketAddr>,
    reason: String,
    /// Reason why this side dropped the session.
    dropped_because: Option<String>,
    /// True while the unit is being identified again.
    is_validating: bool,
    access: AccessState,
    losses: u64,
    commands: u64,
    bytes: u64,
}

/// Path that has logged in.
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
            is_validating: false,
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
            path_tasks: Cell::new(0),
            failed: RefCell::default(),
            written: Cell::new(0),
            flushed: Cell::new(0),
            is_cache_lost: Cell::new(false),
        })
    }

    /// Opens at least one path, and ends all writes of an earlier run of this array.
    ///
    /// *Errors*: no path could log in, the unit cannot be used, or another initiator has reserved it.
    pub(super) async fn open(self: &Rc<Self>) -> Result<(), OpenError> {
        let count = self.config.portals.len();
        let trouble = self.connect_all().await?;
        let Some(session) = self.usable(false) else {
            return Err(trouble.unwrap_or(OpenError::NoUnit(self.config.lun)));
        };
        if let OpenMode::ReadWrite { force } = self.config.usage {
            self.end_earlier_run(&session.1, session.0, force).await?;
        }
        // From here on each path has a task that reconnects it.
        for path in 0..count {
            // Counted before it runs: the disk must not look as if every path had left.
            self.path_tasks.set(self.path_tasks.get() + 1);
            self.world.spawn(self.clone().keep(path));
        }
        Ok(())
    }

    /// Logs in over all paths concurrently. Paths that are not up within [`OPEN_GRACE`] after the first are left to
    /// their tasks.
    ///
    /// *Errors*: a path leads to another unit, or another initiator owns the unit. Returns the last error of a path
    /// that is only down.
    async fn connect_all(self: &Rc<Self>) -> Result<Option<OpenError>, OpenError> {
        let numbered = |path| async move { (path, self.connect(path).await) };
        let mut connecting: FuturesUnordered<_> = (0..self.config.portals.len()).map(numbered).collect();
        let (mut trouble, mut grace) = (None, None);
        loop {
            let next = match &mut grace {
                None => connecting.next().await,
                Some(grace) => match select(connecting.next(), grace).await {
                    Either::Left((next, _)) => next,
                    // Logins that are still in progress are dropped with the set; the tasks of their paths repeat them.
                    Either::Right(_) => None,
                },
            };
            match next {
                None => return Ok(trouble),
                Some((path, Ok(connected))) => {
                    self.install(path, connected);
                    // The first path that is up starts the grace period of the others.
                    grace.get_or_insert_with(|| self.world.sleep(OPEN_GRACE));
                }
                // A path that is down is retried; one that leads elsewhere is a configuration error.
                Some((path, Err(error @ (OpenError::NoPath(_) | OpenError::Fence(FenceError::Session(_)))))) => {
                    self.note_reason(path, &error.to_string());
                    trouble = Some(error);
                }
                Some((_, Err(error))) => return Err(error),
            }
        }
    }

    /// Preempts registrations of an earlier run of this array, and waits for the end of its tasks.
    async fn end_earlier_run(&self, session: &Session<W>, path: usize, force: bool) -> Result<(), OpenError> {
        // With `force` foreign keys go as well: the operator has said that the other host is down.
        let current: Vec<u64> = self.entries.borrow().iter().map(|entry| entry.key).collect();
        // The keys of this opening stay: paths that logged in just now use them.
        let is_stale = |key: u64| !current.contains(&key) && (force || self.is_own_key(key));
        match self.fence() {
            // Without reservations nobody knows which commands are in flight: the reset ends all.
            UnitFence::Reset { .. } => {
                let lost = LostPath { path, key: 0 };
                self.fence().end_writes(session, 0, lost).await?;
                // The reset has ended the commands of the other sessions without a response.
                self.drop_others(path);
            }
            fence @ UnitFence::Reservation { .. } => fence.preempt(session, current[path], is_stale).await?,
        }
        Ok(())
    }

    /// Closes the disk: unregisters every key and logs out every session.
    pub(super) async fn close(&self) {
        self.abandon();
        self.until_left().await;
    }

    /// Waits until every path has left.
    pub(super) async fn until_left(&self) {
        self.changed.until(|| self.is_closed.get() && self.path_tasks.get() == 0).await;
    }

    /// True when every path has left.
    pub(super) fn has_left(&self) -> bool {
        self.is_closed.get() && self.path_tasks.get() == 0
    }

    /// Cleans up after a failed open: every path leaves.
    pub(super) async fn give_up(&self) {
        self.is_closed.set(true);
        // An open that failed has started no path tasks, so the paths leave here.
        for path in 0..self.config.portals.len() {
            self.leave(path).await;
        }
    }

    /// Marks the disk as closed; the tasks of its paths unregister and log out.
    pub(super) fn abandon(&self) {
        self.is_closed.set(true);
        self.changed.raise();
    }

    /// Returns the path that a command takes, if there is one; for a write only when every lost path is fenced.
    pub(super) fn usable(self: &Rc<Self>, writes: bool) -> Option<(usize, Session<W>)> {
        // Evaluated on every call, so that a session that ended just now holds back writes before its task notices.
        self.collect_ended();
        if writes && !self.lost.borrow().is_empty() {
            return None;
        }
        let path = self.active.get()?;
        let session = self.entries.borrow()[path].session.clone()?;
        Some((path, session))
    }

    /// As [`Paths::usable`], waiting until the clock has reached `until`.
    ///
    /// *Errors*: the disk has failed, is closed, or fails now.
    pub(super) async fn usable_until(self: &Rc<Self>, writes: bool, until: Time) -> Result<(usize, Session<W>), ()> {
        let look = || match self.usable(writes) {
            // Failure takes precedence over a usable path.
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

    /// Fails the disk permanently, and every command with it.
    pub(super) fn fail(&self, reason: &str) {
        // The first failure is final and is reported once.
        if self.has_failed() || self.is_closed.get() {
            return;
        }
        // Set before the event and the signal, whose receivers check it.
        *self.failed.borrow_mut() = Some(reason.to_owned());
        (self.config.events)(DiskEvent::Unreachable { reason: reason.to_owned() });
        self.changed.raise();
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.borrow().is_some()
    }

    /// Counts a command that the path has carried.
    pub(super) fn count(&self, path: usize, bytes: u64) {
        let entry = &mut self.entries.borrow_mut()[path];
        (entry.commands, entry.bytes) = (entry.commands + 1, entry.bytes + bytes);
    }

    /// Records that the unit has acknowledged a write of this session.
    pub(super) fn note_written(&self, session: &Session<W>) {
        self.written.set(self.written.get() + 1);
        // The acknowledgment arrived before the session ended, and the cache may be lost by the same cause.
        if session.ended().is_some() {
            self.lose_cache();
        }
    }

    /// Marks unflushed writes as possibly lost, as a volatile cache may have lost its content.
    pub(super) fn lose_cache(&self) {
        // Without unflushed writes nothing can have been lost.
        if self.written.get() > self.flushed.get() {
            self.is_cache_lost.set(true);
        }
    }

    /// Number of acknowledged writes so far.
    pub(super) fn written(&self) -> u64 {
        self.written.get()
    }

    /// Records that the first `count` acknowledged writes are durable.
    ///
    /// *Errors*: they may be lost; the disk has failed.
    pub(super) fn note_flushed(&self, count: u64) -> Result<(), ()> {
        assert!(count <= self.written.get(), "a flush covers what was written");
        if self.is_cache_lost.get() {
            self.fail("the target was restarted, or all paths were lost, before its write cache was flushed");
            return Err(());
        }
        // Concurrent flushes may complete in any order.
        self.flushed.set(count.max(self.flushed.get()));
        Ok(())
    }

    /// Marks the path as unable to take media commands.
    pub(super) fn set_unusable(self: &Rc<Self>, path: usize) {
        // Read again by `watch`, or at the next login.
        self.entries.borrow_mut()[path].access = AccessState::Standby;
        self.choose();
    }

    /// Ends the session of the path; its commands are retried.
    pub(super) fn drop_session(self: &Rc<Self>, path: usize, session: &Session<W>, reason: &str) {
        // A session that has ended may have a successor already.
        if session.ended().is_none() {
            self.entries.borrow_mut()[path].dropped_because = Some(reason.to_owned());
            session.drop_connection();
        }
        self.collect_ended();
    }

    /// Reads the access state of the path again.
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

/// Gaining and losing paths.
impl<W: World> Paths<W> {
    fn install(self: &Rc<Self>, path: usize, connected: Connected<W>) {
        let Connected { session, key, access } = connected;
        {
            let entry = &mut self.entries.borrow_mut()[path];
            assert!(entry.session.is_none(), "a path has one session at a time");
            // Reinstatement, same ISID at the same portal: the target has ended the tasks of the old session (RFC 7143
            // §6.3.5).
            if entry.reached == Some(session.portal()) {
                self.lost.borrow_mut().retain(|lost| lost.path != path);
            }
            entry.reached = Some(session.portal());
            entry.dropped_because = None;
            (entry.key, entry.access, entry.session) = (key, access, Some(session));
        }
        self.choose();
        // The new path may be the one that can fence the lost ones.
        self.fence_lost();
    }

    /// Removes sessions that have ended. Their writes in flight hold back all later writes until they are fenced.
    fn collect_ended(self: &Rc<Self>) {
        let mut events = Vec::new();
        {
            let mut entries = self.entries.borrow_mut();
            // Counted before sessions are removed: those that have ended are not up.
            let left = entries.iter().filter(|entry| is_up(entry)).count();
            for (path, entry) in entries.iter_mut().enumerate() {
                let Some(reason) = entry.session.as_ref().and_then(Session::ended) else { continue };
                let Some(session) = entry.session.take() else { continue };
                entry.losses += 1;
                entry.reason = entry.dropped_because.take().unwrap_or_else(|| reason.to_string());
                if session.writes_lost() > 0 && self.config.usage != OpenMode::Inspect {
                    self.lost.borrow_mut().push(LostPath { path, key: entry.key });
                }
                // With no path left the target itself may have failed, and its volatile cache with it.
                if left == 0 {
                    self.lose_cache();
                }
                if !self.is_closed.get() {
                    let (portal, reason) = (entry.portal, entry.reason.clone());
                    events.push(DiskEvent::PathLost { portal, reason, left });
                }
            }
        }
        // Nothing has ended, or the disk is closed and its path tasks clean up.
        if events.is_empty() {
            return;
        }
        // Events are raised outside of the borrow: the receiver may ask for the state of the paths.
        events.into_iter().for_each(|event| (self.config.events)(event));
        self.choose();
        self.fence_lost();
    }

    /// Chooses the active path: the best access state, and among equals the one that is active already.
    fn choose(&self) {
        let before = self.active.get();
        let entries = self.entries.borrow();
        let usable = entries.iter().enumerate().filter(|(_, entry)| is_up(entry));
        let usable = usable.filter(|(_, entry)| entry.access <= AccessState::NonOptimized);
        // Among equal access states the active path stays.
        let best = usable.min_by_key(|(path, entry)| (entry.access, before != Some(*path), *path));
        self.active.set(best.map(|(path, _)| path));
        drop(entries);
        self.changed.raise();
    }

    /// Starts the task that fences lost paths, one at a time, unless it is running.
    fn fence_lost(self: &Rc<Self>) {
        // One fencing task at a time.
        if !self.lost.borrow().is_empty() && !self.is_fencing.replace(true) {
            self.world.spawn(self.clone().fence_all());
        }
    }

    async fn fence_all(self: Rc<Self>) {
        loop {
            let lost = self.lost.borrow().first().copied();
            // A closed disk sends no further write that a late one could overwrite.
            let Some(lost) = lost.filter(|_| !self.is_closed.get()) else { break };
            let Some((living, session)) = self.usable(false) else {
                // Fencing needs a path that is up.
                self.changed.until(|| self.active.get().is_some() || self.is_closed.get()).await;
                continue;
            };
            // Never the lost path's own key: it logs in again with a new one.
            let key = self.entries.borrow()[living].key;
            match self.end_writes(&session, key, lost).await {
                Ok(how) => self.note_fenced(lost, living, how),
                Err(error) => {
                    // The lost path stays in the list, so writes stay held back until a later attempt succeeds.
                    tracing::warn!(target = %self.config.address(), %error, "a lost path cannot be fenced yet");
                    self.world.sleep(FENCE_PAUSE).await;
                }
            }
        }
        // No await since the check: a path that is lost from now on starts a new task.
        self.is_fencing.set(false);
    }

    async fn end_writes(&self, living: &Session<W>, key: u64, lost: LostPath) -> Result<FenceMethod, FenceError> {
        self.fence().end_writes(living, key, lost).await
    }

    fn note_fenced(self: &Rc<Self>, lost: LostPath, living: usize, how: FenceMethod) {
        self.lost.borrow_mut().retain(|other| *other != lost);
        if how == FenceMethod::Reset {
            self.drop_others(living);
        }
        // A reset preempts no key.
        let portal = self.entries.borrow()[lost.path].portal;
        let key = if how == FenceMethod::Preempted { lost.key } else { 0 };
        (self.config.events)(DiskEvent::PathFenced { portal, key });
        self.changed.raise();
    }

    /// Drops all other sessions: a reset ends their commands without an answer, so they have to log in again.
    fn drop_others(&self, living: usize) {
        // Ended sessions only wake tasks: nothing borrows `entries` again in here.
        let entries = self.entries.borrow();
        let others = entries.iter().enumerate().filter(|(path, _)| *path != living);
        others.filter_map(|(_, entry)| entry.session.as_ref()).for_each(Session::drop_connection);
    }
}

fn is_up<W: World>(path: &Path<W>) -> bool {
    path.session.as_ref().is_some_and(|session| session.ended().is_none())
}
