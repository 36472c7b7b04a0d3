//! What a host does with its sessions: it logs in, keeps several commands under way, and when the session
//! breaks it logs in again. Only then it knows that the commands which nobody answered are over.

use super::command::{self, Verdict};
use super::session::{Answer, NoSession, Session};
use super::worker::{Orphan, Worker};
use crate::chance::Chance;
use crate::judge::Judge;
use crate::oracle::{Ending, Oracle};
use futures_util::future::{Either, LocalBoxFuture, join_all, select};
use iscsi::initiator::Config;
use iscsi::pdu::{Isid, Lun};
use shard::World;
use sim::Sim;
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// How long an answer may take on a session that lives. Stalls and slow disks are shorter.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(300);

/// When a host loses its patience with a command, which another host may have cleared away.
pub(super) const PATIENCE: Duration = Duration::from_secs(100);

/// A volume as a host sees it, and its judge.
#[derive(Clone)]
pub(crate) struct Unit {
    pub lun: Lun,
    pub block_bytes: usize,
    /// True when UNMAP is offered.
    pub thin: bool,
    /// True when its pool may be full, and refuse what needs space.
    pub scarce: bool,
    pub oracle: Rc<RefCell<Oracle>>,
    /// The blocks that commands go to; few, so that commands meet.
    pub hot: Rc<Vec<Range<u64>>>,
    /// How often somebody has aborted commands of others.
    pub clearings: Rc<Cell<u64>>,
}

/// What a host does.
#[derive(Clone)]
pub(crate) struct Habits {
    /// Commands under way at once.
    pub depth: usize,
    /// The most blocks of a usual command.
    pub blocks: u64,
    /// The most bytes of a rare large one.
    pub large_bytes: u64,
    /// True when it also aborts and resets.
    pub manages: bool,
    /// True when it drops connections by itself now and then.
    pub fickle: bool,
    /// True when media may fail, so that errors are no wonder.
    pub media_fail: bool,
    /// How long a command may take, where that is judged.
    pub answers_within: Option<Duration>,
}

/// What hosts were told of space.
#[derive(Default)]
pub(crate) struct Told {
    /// How often that a threshold is crossed.
    pub warned: Cell<u64>,
    /// How often that there is none for a write.
    pub refused: Cell<u64>,
}

/// What all hosts of a run share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub world: Sim,
    pub portals: Rc<Vec<SocketAddr>>,
    pub chance: Chance,
    pub judge: Judge,
    /// Commands that are left to do, over all hosts.
    pub left: Rc<Cell<u64>>,
    /// Commands that were answered with GOOD.
    pub done: Rc<Cell<u64>>,
    pub told: Rc<Told>,
    /// How often the data plane has died or was started: it owes nothing of what it was asked before.
    pub lives: Rc<Cell<u64>>,
    /// True from its death until it is started.
    pub is_dead: Rc<Cell<bool>>,
    /// Old sessions of which nobody has said yet that they are gone.
    pub lingering: Rc<Cell<u64>>,
}

/// Says when the target has forgotten the session of this handle.
pub(crate) type Gone = Rc<dyn Fn(u16) -> LocalBoxFuture<'static, ()>>;

/// One host with one session at a time.
pub(crate) struct Host {
    pub shared: Shared,
    pub config: Config,
    pub units: Vec<Unit>,
    pub habits: Habits,
    /// Asked when a session of another name follows an old one, which then does not end by that.
    pub gone: Gone,
}

impl Shared {
    pub(super) fn is_over(&self) -> bool {
        self.left.get() == 0 || self.judge.has_failed()
    }

    pub(super) fn take_turn(&self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0 && !self.judge.has_failed()
    }
}

impl Host {
    /// Sends commands until none are left to send; then everything that was submitted is over.
    pub(crate) async fn run(mut self) {
        let mut orphans: Vec<Orphan> = Vec::new();
        loop {
            let Some(session) = self.log_in().await else { return };
            // Commands of this session are answered only when those of the one before are over.
            settle(std::mem::take(&mut orphans));
            let left = RefCell::default();
            self.use_session(&session, &left).await;
            if let Some(why) = session.wrong() {
                self.shared.judge.fail(why);
            }
            orphans = left.into_inner();
            if self.shared.is_over() && orphans.is_empty() {
                return;
            }
            if self.shared.chance.percent(20) {
                self.change_name(session.tsih(), std::mem::take(&mut orphans));
            }
        }
    }

    /// A session whose units answer; nothing once the run has failed.
    pub(crate) async fn log_in(&self) -> Option<Session> {
        let Shared { world, chance, judge, portals, .. } = &self.shared;
        while !judge.has_failed() {
            match Session::login(world, chance.pick(portals), Rc::new(self.config.clone())).await {
                Ok(session) => {
                    if self.is_ready(&session).await {
                        return Some(session);
                    }
                    if let Some(why) = session.wrong() {
                        judge.fail(why);
                    }
                }
                Err(NoSession::Unreachable) => world.sleep(chance.moment(Duration::from_secs(2))).await,
                Err(NoSession::Wrong(why)) => judge.fail(format!("the login failed: {why}")),
            }
        }
        None
    }

    /// A session whose units may not answer; nothing where the target cannot be reached.
    pub(crate) async fn log_in_to_whatever_serves(&self) -> Option<Session> {
        let Shared { world, chance, portals, .. } = &self.shared;
        Session::login(world, chance.pick(portals), Rc::new(self.config.clone())).await.ok()
    }

    /// True when every unit takes commands from now on.
    async fn is_ready(&self, session: &Session) -> bool {
        for unit in &self.units {
            loop {
                let clearings = unit.clearings.get();
                let mut answer = pin!(session.command(command::test_unit_ready(unit.lun), |_| ()));
                let answered = select(answer.as_mut(), self.shared.world.sleep(PATIENCE)).await;
                let answer = match answered {
                    Either::Left((answer, _)) => Some(answer),
                    Either::Right(_) if clearings == unit.clearings.get() => self.within_reason(answer).await,
                    // Another host has cleared it away, and the next session asks again.
                    Either::Right(_) => {
                        session.drop_connection();
                        return false;
                    }
                };
                let Some(Answer::Completed(done)) = answer else { return false };
                match command::verdict(&done) {
                    Verdict::Good => break,
                    Verdict::NotNow => self.shared.world.sleep(Duration::from_millis(10)).await,
                    // A host that resets the unit ends the commands of all others, with TASK ABORTED (SAM-5 §5.6).
                    Verdict::Attention(..) | Verdict::Aborted => {}
                    verdict => {
                        self.shared.judge.fail(format!("TEST UNIT READY was answered with {verdict:?}"));
                        return false;
                    }
                }
            }
        }
        true
    }

    async fn use_session(&self, session: &Session, orphans: &RefCell<Vec<Orphan>>) {
        let running = RefCell::default();
        let worker = Worker { host: self, session, running: &running, orphans, lives: self.shared.lives.get() };
        let work = pin!(join_all((0..self.habits.depth).map(|_| worker.work())));
        let chance = &self.shared.chance;
        let stays = !(self.habits.fickle && chance.percent(50));
        let patience = if stays { Duration::from_secs(1 << 30) } else { chance.moment(Duration::from_secs(5)) };
        match select(work, self.shared.world.sleep(patience)).await {
            Either::Left(_) if session.ended().is_none() => session.logout().await,
            Either::Left(_) => {}
            Either::Right((_, work)) => {
                match chance.below(3) {
                    0 => session.logout().await,
                    _ => session.drop_connection(),
                }
                work.await;
            }
        }
    }

    /// The next session has another name, so it does not end this one, whose commands are over when the
    /// target says so.
    fn change_name(&mut self, tsih: u16, orphans: Vec<Orphan>) {
        let Isid(mut isid) = self.config.login.isid;
        isid[5] = isid[5].wrapping_add(1);
        self.config.login.isid = Isid(isid);
        let (gone, lingering) = ((self.gone)(tsih), self.shared.lingering.clone());
        lingering.set(lingering.get() + 1);
        self.shared.world.spawn(async move {
            gone.await;
            settle(orphans);
            lingering.set(lingering.get() - 1);
        });
    }

    /// What `answer` comes to; nothing where a host loses its patience, for another may have cleared the command away.
    pub(crate) async fn within_patience(&self, answer: impl Future<Output = Answer>) -> Option<Answer> {
        match select(pin!(answer), self.shared.world.sleep(PATIENCE)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    /// What `answer` comes to; that nothing comes of it for ever is wrong.
    pub(crate) async fn within_reason(&self, answer: impl Future<Output = Answer>) -> Option<Answer> {
        let limit = self.shared.world.sleep(ANSWER_TIME_MAX);
        match select(pin!(answer), limit).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => {
                self.shared.judge.fail(format!("a request was not answered for {ANSWER_TIME_MAX:?}"));
                None
            }
        }
    }
}

/// Commands that were not answered are over.
fn settle(orphans: Vec<Orphan>) {
    for (oracle, op) in orphans {
        oracle.borrow_mut().end_write(op, Ending::Maybe);
    }
}
