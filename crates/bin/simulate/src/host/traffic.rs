//! Workload of a host: it logs in, keeps several commands outstanding, and logs in again when the session breaks. Only
//! the next login tells it that the unanswered commands have ended.

use super::command::{self, Verdict};
use super::session::{Answer, NoSession, Session};
use super::worker::{UnansweredWrite, Worker};
use crate::oracle::{Oracle, WriteEffect};
use crate::seeded_random::SeededRandom;
use crate::violation_log::ViolationLog;
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

/// Timeout of a request on a live session; stalls and slow disks are shorter.
pub(super) const ANSWER_TIME_MAX: Duration = Duration::from_secs(300);

/// Time after which a host assumes that another host aborted its command.
pub(super) const ABORT_TIMEOUT: Duration = Duration::from_secs(100);

/// Volume as a host accesses it, with its oracle.
#[derive(Clone)]
pub(crate) struct Unit {
    pub lun: Lun,
    pub block_bytes: usize,
    /// UNMAP is supported.
    pub thin: bool,
    /// True when its pool may be full and refuse requests that need space.
    pub scarce: bool,
    pub oracle: Rc<RefCell<Oracle>>,
    /// Ranges that commands use; few, so that commands overlap.
    pub hot: Rc<Vec<Range<u64>>>,
    /// Number of task management functions that aborted commands of other hosts.
    pub clearings: Rc<Cell<u64>>,
}

/// Behavior of a host.
#[derive(Clone)]
pub(crate) struct WorkloadProfile {
    /// Outstanding commands.
    pub depth: usize,
    /// Upper bound of blocks in a usual command.
    pub blocks: u64,
    /// Upper bound of bytes in a rare large command.
    pub large_bytes: u64,
    /// True when the host also sends task management functions.
    pub manages: bool,
    /// True when the host sometimes drops its connection.
    pub drops_connections: bool,
    /// True when media may fail, so that errors are expected.
    pub media_fail: bool,
    /// Upper bound of the response time, where it is checked.
    pub answers_within: Option<Duration>,
}

/// Reports on space that hosts received.
#[derive(Default)]
pub(crate) struct SpaceReports {
    /// Number of threshold warnings.
    pub warned: Cell<u64>,
    /// Number of writes refused for lack of space.
    pub refused: Cell<u64>,
}

/// State shared by all hosts of a run.
#[derive(Clone)]
pub(crate) struct Shared {
    pub world: Sim,
    pub portals: Rc<Vec<SocketAddr>>,
    pub chance: SeededRandom,
    pub judge: ViolationLog,
    /// Commands left to send, over all hosts.
    pub left: Rc<Cell<u64>>,
    /// Commands that ended GOOD.
    pub done: Rc<Cell<u64>>,
    pub told: Rc<SpaceReports>,
    /// Number of stops and starts of the data plane; a command sent before the last one may remain unanswered.
    pub lives: Rc<Cell<u64>>,
    /// True while the data plane is down.
    pub is_dead: Rc<Cell<bool>>,
    /// Replaced sessions that the target has not reported as ended.
    pub lingering: Rc<Cell<u64>>,
}

/// Waits until the target has removed the session with this TSIH.
pub(crate) type SessionEnd = Rc<dyn Fn(u16) -> LocalBoxFuture<'static, ()>>;

/// Host with one session at a time.
pub(crate) struct Host {
    pub shared: Shared,
    pub config: Config,
    pub units: Vec<Unit>,
    pub habits: WorkloadProfile,
    /// Called when a session with another ISID follows, which does not end the old session.
    pub gone: SessionEnd,
}

impl Shared {
    pub(super) fn is_over(&self) -> bool {
        self.left.get() == 0 || self.judge.has_failed()
    }

    pub(super) fn take_turn(&self) -> bool {
        let left = self.left.get();
        // Several workers share the counter, so it may be zero already.
        self.left.set(left.saturating_sub(1));
        left > 0 && !self.judge.has_failed()
    }
}

impl Host {
    /// Sends commands until none are left; returns when every submitted command has ended.
    pub(crate) async fn run(mut self) {
        let mut orphans: Vec<UnansweredWrite> = Vec::new();
        loop {
            let Some(session) = self.log_in().await else { return };
            // Session reinstatement: the target ended the commands of the old session before it completed this login.
            settle(std::mem::take(&mut orphans));
            let left = RefCell::default();
            self.use_session(&session, &left).await;
            if let Some(why) = session.wrong() {
                self.shared.judge.fail(why);
            }
            orphans = left.into_inner();
            // A write without an answer is settled only by a further login.
            if self.shared.is_over() && orphans.is_empty() {
                return;
            }
            // A new ISID leaves the old session alive at the target, which covers sessions that time out.
            if self.shared.chance.percent(20) {
                self.change_isid(session.tsih(), std::mem::take(&mut orphans));
            }
        }
    }

    /// Logs in a session whose units are ready; `None` once the run has failed.
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
                // A random pause, so that hosts do not log in again in step.
                Err(NoSession::Unreachable) => world.sleep(chance.moment(Duration::from_secs(2))).await,
                // Credentials and portals of a run are right, so the target has no reason to refuse.
                Err(NoSession::Wrong(why)) => judge.fail(format!("the login failed: {why}")),
            }
        }
        None
    }

    /// Logs in a session whose units may not be ready; `None` when the target is not reachable.
    pub(crate) async fn log_in_to_whatever_serves(&self) -> Option<Session> {
        let Shared { world, chance, portals, .. } = &self.shared;
        Session::login(world, chance.pick(portals), Rc::new(self.config.clone())).await.ok()
    }

    /// Waits until every unit accepts commands; false when the session is lost.
    async fn is_ready(&self, session: &Session) -> bool {
        for unit in &self.units {
            loop {
                // A command may remain unanswered only if another host aborted commands meanwhile.
                let clearings = unit.clearings.get();
                let mut answer = pin!(session.command(command::test_unit_ready(unit.lun), |_| ()));
                let answered = select(answer.as_mut(), self.shared.world.sleep(ABORT_TIMEOUT)).await;
                let answer = match answered {
                    Either::Left((answer, _)) => Some(answer),
                    Either::Right(_) if clearings == unit.clearings.get() => self.until_answer_limit(answer).await,
                    // Another host aborted the command without an answer; the next session tries again.
                    Either::Right(_) => {
                        session.drop_connection();
                        return false;
                    }
                };
                let Some(Answer::Completed(done)) = answer else { return false };
                match command::verdict(&done) {
                    Verdict::Good => break,
                    Verdict::NotNow => self.shared.world.sleep(Duration::from_millis(10)).await,
                    // A reset by another host ends all commands of the unit, here with TASK ABORTED (SAM-5 §5.6).
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

    async fn use_session(&self, session: &Session, orphans: &RefCell<Vec<UnansweredWrite>>) {
        let running = RefCell::default();
        let worker = Worker { host: self, session, running: &running, orphans, lives: self.shared.lives.get() };
        let work = pin!(join_all((0..self.habits.depth).map(|_| worker.work())));
        let chance = &self.shared.chance;
        // A fickle host leaves half of its sessions at a random time.
        let stays = !(self.habits.drops_connections && chance.percent(50));
        // Practically without a limit: a session that stays ends with its last command.
        let patience = if stays { Duration::from_secs(1 << 30) } else { chance.moment(Duration::from_secs(5)) };
        match select(work, self.shared.world.sleep(patience)).await {
            Either::Left(_) if session.ended().is_none() => session.logout().await,
            Either::Left(_) => {}
            Either::Right((_, work)) => {
                match chance.below(3) {
                    0 => session.logout().await,
                    _ => session.drop_connection(),
                }
                // The workers end by themselves, once the session has ended.
                work.await;
            }
        }
    }

    /// Changes the ISID. The next session does not end this one, whose commands end when the target reports its
    /// removal.
    fn change_isid(&mut self, tsih: u16, orphans: Vec<UnansweredWrite>) {
        let Isid(mut isid) = self.config.login.isid;
        isid[5] = isid[5].wrapping_add(1);
        self.config.login.isid = Isid(isid);
        let (gone, lingering) = ((self.gone)(tsih), self.shared.lingering.clone());
        // The run does not end before the target has removed the old session.
        lingering.set(lingering.get() + 1);
        self.shared.world.spawn(async move {
            gone.await;
            settle(orphans);
            lingering.set(lingering.get() - 1);
        });
    }

    /// Waits for `answer`; `None` after [`ABORT_TIMEOUT`], because another host may have aborted the command.
    pub(crate) async fn until_abort_timeout(&self, answer: impl Future<Output = Answer>) -> Option<Answer> {
        match select(pin!(answer), self.shared.world.sleep(ABORT_TIMEOUT)).await {
            Either::Left((answer, _)) => Some(answer),
            Either::Right(_) => None,
        }
    }

    /// Waits for `answer`; a timeout fails the run.
    pub(crate) async fn until_answer_limit(&self, answer: impl Future<Output = Answer>) -> Option<Answer> {
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

/// Records that unanswered writes have ended; each took effect or not.
fn settle(orphans: Vec<UnansweredWrite>) {
    for (oracle, op) in orphans {
        oracle.borrow_mut().end_write(op, WriteEffect::Maybe);
    }
}
