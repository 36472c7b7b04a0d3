//! Random commands, sent one after the other, each judged by the oracle of its volume.

use super::command::{self, Verdict};
use super::session::{Answer, Session};
use super::traffic::{ABORT_TIMEOUT, Host, Unit};
use crate::oracle::{OpId, Oracle, WriteEffect};
use crate::pattern::{self, Value};
use crate::seeded_random::SeededRandom;
use block::{Buf, Rope};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use iscsi::TaskId;
use iscsi::initiator::Command;
use iscsi::pdu::{Lun, TaskAttribute, TaskFunction, TaskFunctionOutcome};
use shard::World;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Write without an answer.
pub(super) type UnansweredWrite = (Rc<RefCell<Oracle>>, OpId);

/// Sender of the commands of one session.
pub(super) struct Worker<'a> {
    pub host: &'a Host,
    pub session: &'a Session,
    /// Outstanding commands, as candidates for ABORT TASK.
    pub running: &'a RefCell<Vec<(Lun, TaskId)>>,
    pub orphans: &'a RefCell<Vec<UnansweredWrite>>,
    /// Life of the data plane in which the session began; commands of an earlier life may remain unanswered.
    pub lives: u64,
}

/// Outcome of a command, with the data it read.
struct Ended {
    verdict: Verdict,
    data: Option<Buf>,
}

impl Worker<'_> {
    /// Sends commands until the session ends or no commands are left.
    pub(super) async fn work(&self) {
        while self.session.ended().is_none() && self.host.shared.take_turn() {
            // Any unit for each command, so that commands to several units interleave in one session.
            let unit = &self.host.units[self.chance().index(self.host.units.len())];
            match self.chance().below(100) {
                0..=39 => self.read(unit).await,
                40..=74 => self.write(unit).await,
                75..=82 => self.compare_and_write(unit).await,
                83..=87 => self.write_same(unit).await,
                88..=91 if unit.thin => self.unmap(unit).await,
                92..=94 => self.flush(unit).await,
                95..=96 => self.ping().await,
                97..=98 if self.host.habits.manages => self.manage(unit).await,
                _ => self.pause().await,
            }
        }
    }

    fn chance(&self) -> &SeededRandom {
        &self.host.shared.chance
    }

    fn fail(&self, why: String) {
        self.host.shared.judge.fail(why);
    }

    async fn read(&self, unit: &Unit) {
        let range = self.range(unit);
        // Begun before the command is sent: a value is allowed from the submission on.
        let op = unit.oracle.borrow_mut().begin();
        let ended = self.send(unit, command::read(unit.lun, &range, unit.block_bytes)).await;
        let mut oracle = unit.oracle.borrow_mut();
        match ended {
            Some(Ended { verdict: Verdict::Good, data }) => {
                let data = data.unwrap_or_else(|| Buf::zeroed(0));
                self.host.shared.judge.check(oracle.end_read(op, range, &data));
            }
            _ => oracle.give_up(op),
        }
    }

    async fn write(&self, unit: &Unit) {
        let range = self.range(unit);
        let value = unit.oracle.borrow_mut().fresh();
        let data = filled(value, &range, unit.block_bytes);
        let verify = self.chance().percent(10);
        let op = unit.oracle.borrow_mut().begin_write(std::slice::from_ref(&range), value);
        self.finish_write(unit, op, command::write(unit.lun, &range, data, verify)).await;
    }

    async fn write_same(&self, unit: &Unit) {
        let range = self.range(unit);
        let zeros = self.chance().percent(40);
        let value = if zeros { Value::ZERO } else { unit.oracle.borrow_mut().fresh_same() };
        let mut block = Buf::zeroed(unit.block_bytes);
        pattern::fill(value, range.start, &mut block);
        // Without a data block (NDOB) the target writes zeros, so no other value can be sent in this form.
        let no_data = zeros && self.chance().percent(50);
        let unmap = zeros && unit.thin && self.chance().percent(50);
        let data = (!no_data).then(|| block.into());
        let op = unit.oracle.borrow_mut().begin_write(std::slice::from_ref(&range), value);
        self.finish_write(unit, op, command::write_same(unit.lun, &range, data, unmap)).await;
    }

    async fn unmap(&self, unit: &Unit) {
        let mut extents: Vec<Range<u64>> = Vec::new();
        for _ in 0..self.chance().count(1..=3) {
            let range = self.range(unit);
            // Overlapping extents are skipped: the oracle records one value per block and write.
            if extents.iter().all(|other| other.end <= range.start || range.end <= other.start) {
                extents.push(range);
            }
        }
        let op = unit.oracle.borrow_mut().begin_write(&extents, Value::ZERO);
        // UNMAP is advisory: an unmap that would itself need space in a full pool may leave the block as it is.
        let good = if unit.scarce || self.host.habits.media_fail { WriteEffect::Maybe } else { WriteEffect::Good };
        self.finish(unit, op, command::unmap(unit.lun, &extents), good).await;
    }

    async fn compare_and_write(&self, unit: &Unit) {
        let range = self.range(unit);
        // Two blocks at most: all of them must hold one value, and longer ranges rarely do.
        let range = range.start..range.end.min(range.start + 2);
        let guess = unit.oracle.borrow().guess(range.start);
        // A comparison that certainly fails is sent as well.
        let compared = if guess.is_mixture() || self.chance().percent(10) { Value::ZERO } else { guess };
        let value = unit.oracle.borrow_mut().fresh();
        let mut data = filled(compared, &range, unit.block_bytes);
        data.append(filled(value, &range, unit.block_bytes));
        let op = unit.oracle.borrow_mut().begin_write(std::slice::from_ref(&range), value);
        // Recorded before it is sent: if the session ends first, the write may still take effect.
        self.orphans.borrow_mut().push((unit.oracle.clone(), op));
        let ended = self.send(unit, command::compare_and_write(unit.lun, &range, data.into_view().into())).await;
        let mut oracle = unit.oracle.borrow_mut();
        let judged = match ended {
            // Without an answer the write stays an orphan, until the next login settles it.
            None => return,
            Some(Ended { verdict: Verdict::Good, .. }) => oracle.end_compare_good(op, compared),
            Some(Ended { verdict: Verdict::Miscompare, .. }) => oracle.end_compare_missed(op, compared),
            Some(Ended { verdict, .. }) => {
                oracle.end_write(op, ending_of(verdict));
                Ok(())
            }
        };
        drop(oracle);
        self.host.shared.judge.check(judged);
        self.is_no_orphan(unit, op);
    }

    async fn finish_write(&self, unit: &Unit, op: OpId, command: Command) {
        self.finish(unit, op, command, WriteEffect::Good).await;
    }

    /// Sends a write and records its end; `good` is the effect of the status GOOD.
    async fn finish(&self, unit: &Unit, op: OpId, command: Command, good: WriteEffect) {
        self.orphans.borrow_mut().push((unit.oracle.clone(), op));
        let Some(Ended { verdict, .. }) = self.send(unit, command).await else { return };
        if verdict == Verdict::Miscompare {
            self.fail("a write was answered with MISCOMPARE".to_owned());
        }
        let ending = if verdict == Verdict::Good { good } else { ending_of(verdict) };
        // Also after an error: the write is over, whatever its effect was.
        unit.oracle.borrow_mut().end_write(op, ending);
        self.is_no_orphan(unit, op);
    }

    fn is_no_orphan(&self, unit: &Unit, op: OpId) {
        self.orphans.borrow_mut().retain(|(oracle, other)| *other != op || !Rc::ptr_eq(oracle, &unit.oracle));
    }

    async fn flush(&self, unit: &Unit) {
        let op = unit.oracle.borrow_mut().begin();
        let ended = self.send(unit, command::synchronize_cache(unit.lun)).await;
        let mut oracle = unit.oracle.borrow_mut();
        match ended {
            Some(Ended { verdict: Verdict::Good, .. }) => oracle.end_flush(op),
            // Without GOOD the flush covers nothing.
            _ => oracle.give_up(op),
        }
    }

    async fn ping(&self) {
        // Up to more than the smallest data segment (512 bytes), so that some answers are cut.
        let data: Vec<u8> = (0..self.chance().within(1..=600)).map(|n| n as u8).collect();
        match self.host.until_answer_limit(self.session.ping(&data)).await {
            // The target may truncate the data to the initiator's MaxRecvDataSegmentLength, which is at least 512
            // bytes.
            Some(Answer::Pong(back)) if !data.starts_with(&back) || back.len() < data.len().min(512) => {
                self.fail("a ping came back with other data".to_owned());
            }
            // A session that ended first is no fault of the ping.
            _ => {}
        }
    }

    async fn manage(&self, unit: &Unit) {
        let running = self.running.borrow().clone();
        let (function, lun, referenced) = match self.chance().below(10) {
            0..=5 if !running.is_empty() => {
                let (lun, task) = running[self.chance().index(running.len())];
                (TaskFunction::AbortTask, lun, Some(task))
            }
            0..=6 => (TaskFunction::AbortTaskSet, unit.lun, None),
            7 => (TaskFunction::ClearTaskSet, unit.lun, None),
            8 => (TaskFunction::LogicalUnitReset, unit.lun, None),
            // A reset of the target concerns all units, so it names none.
            _ => (TaskFunction::TargetWarmReset, Lun(0), None),
        };
        let clears = referenced.is_none() && function != TaskFunction::AbortTaskSet;
        // Counted before the function is sent, because commands may be aborted from then on.
        self.count_clearing(clears);
        let answer = self.host.until_answer_limit(self.session.manage(function, lun, referenced)).await;
        // Counted again: commands of other hosts that were sent meanwhile may have arrived before the function.
        self.count_clearing(clears);
        match answer {
            None | Some(Answer::Lost | Answer::Managed(TaskFunctionOutcome::Complete)) => {}
            // The task may have ended before the function arrived.
            Some(Answer::Managed(TaskFunctionOutcome::TaskDoesNotExist)) if referenced.is_some() => {}
            Some(answer) => self.fail(format!("{function:?} was answered with {answer:?}")),
        }
    }

    /// Records that commands of any host may be gone without an answer, if the function aborts them.
    fn count_clearing(&self, clears: bool) {
        for unit in self.host.units.iter().filter(|_| clears) {
            unit.clearings.set(unit.clearings.get() + 1);
        }
    }

    async fn pause(&self) {
        let pause = self.chance().moment(Duration::from_millis(200));
        self.host.shared.world.sleep(pause).await;
    }

    /// Sends a command and returns its outcome; `None` when the session ended first.
    async fn send(&self, unit: &Unit, mut command: Command) -> Option<Ended> {
        // Mostly SIMPLE, as hosts send; the other attributes test the order of the task set (SAM-5).
        command.attribute = match self.chance().below(20) {
            0 => TaskAttribute::Ordered,
            1 => TaskAttribute::HeadOfQueue,
            2 => TaskAttribute::Untagged,
            _ => TaskAttribute::Simple,
        };
        let task = Cell::new(None);
        // Read before the command is sent: a function that is sent later may abort it.
        let clearings = unit.clearings.get();
        let mut answer = pin!(self.session.command(command, |name| {
            task.set(Some(name));
            self.running.borrow_mut().push((unit.lun, name));
        }));
        if let Some(most) = self.host.habits.answers_within {
            let is_late = select(answer.as_mut(), self.host.shared.world.sleep(most));
            match is_late.await {
                Either::Left((answer, _)) => return self.take(unit, task.get(), Some(answer)),
                Either::Right(_) if self.lives == self.host.shared.lives.get() && !self.host.shared.is_dead.get() => {
                    self.fail(format!("a command has no answer after {most:?}"));
                    return None;
                }
                // The data plane was restarted meanwhile, so only the usual timeouts apply.
                Either::Right(_) => {}
            }
        }
        let answer = match select(answer.as_mut(), self.host.shared.world.sleep(ABORT_TIMEOUT)).await {
            Either::Left((answer, _)) => Some(answer),
            // A host cannot know whether another one aborted the command: ABORT TASK shows whether the task exists.
            Either::Right(_) => match self.abort(unit, task.get()).await {
                Aborted::Ended => self.host.until_answer_limit(answer).await,
                // The answer may have arrived just before.
                Aborted::Gone => answer.now_or_never().or_else(|| {
                    if clearings == unit.clearings.get() {
                        self.fail("a command that nobody aborted is gone without an answer".to_owned());
                    }
                    Some(Answer::Aborted)
                }),
            },
        };
        self.take(unit, task.get(), answer)
    }

    /// Converts an answer into the outcome of the command.
    fn take(&self, unit: &Unit, task: Option<TaskId>, answer: Option<Answer>) -> Option<Ended> {
        self.running.borrow_mut().retain(|(_, other)| Some(*other) != task);
        match answer? {
            Answer::Completed(mut done) => {
                let verdict = command::verdict(&done);
                self.judge_verdict(unit, verdict);
                Some(Ended { verdict, data: done.data_in.take() })
            }
            // Whether the command took effect is settled by the next login.
            Answer::Lost => None,
            Answer::Aborted => Some(Ended { verdict: Verdict::Aborted, data: None }),
            answer => {
                self.fail(format!("a command was answered with {answer:?}"));
                None
            }
        }
    }

    /// Aborts a command without an answer; another host may have aborted it, which is not reported.
    async fn abort(&self, unit: &Unit, task: Option<TaskId>) -> Aborted {
        let aborted = self.session.manage(TaskFunction::AbortTask, unit.lun, task);
        match self.host.until_answer_limit(aborted).await {
            Some(Answer::Managed(TaskFunctionOutcome::TaskDoesNotExist)) => Aborted::Gone,
            _ => Aborted::Ended,
        }
    }

    /// Fails the run on an error that no injected fault explains.
    fn judge_verdict(&self, unit: &Unit, verdict: Verdict) {
        let shared = &self.host.shared;
        match verdict {
            Verdict::Good => shared.done.set(shared.done.get() + 1),
            Verdict::Failed(..) | Verdict::Refused(0x27, 0) | Verdict::NoSpace if self.host.habits.media_fail => {
                shared.told.refused.set(shared.told.refused.get() + 1);
            }
            Verdict::NoSpace if unit.scarce => shared.told.refused.set(shared.told.refused.get() + 1),
            // THIN PROVISIONING SOFT THRESHOLD REACHED.
            Verdict::Attention(0x38, 0x07) => shared.told.warned.set(shared.told.warned.get() + 1),
            Verdict::Failed(..) | Verdict::Refused(..) | Verdict::NoSpace => {
                self.fail(format!("a command was answered with {verdict:?}"));
            }
            Verdict::NotNow | Verdict::Attention(..) | Verdict::Miscompare | Verdict::Aborted => {}
        }
    }

    /// Draws a range within the hot ranges; sometimes a long one.
    fn range(&self, unit: &Unit) -> Range<u64> {
        let hot = &unit.hot[self.chance().index(unit.hot.len())];
        let start = self.chance().within(hot.start..=hot.end - 1);
        // Zero where the profile has no large commands; a command has at least one block all the same.
        let large = self.host.habits.large_bytes / unit.block_bytes as u64;
        let most = if self.chance().percent(4) { large.max(1) } else { self.host.habits.blocks };
        start..hot.end.min(start + self.chance().within(1..=most))
    }
}

/// Outcome of ABORT TASK on a command without an answer.
enum Aborted {
    /// The target does not know the task.
    Gone,
    /// The task ended, by the abort or by itself.
    Ended,
}

/// Returns the effect on the write that an answer implies.
fn ending_of(verdict: Verdict) -> WriteEffect {
    match verdict {
        Verdict::Good => WriteEffect::Good,
        // WRITE PROTECTED: a unit that lost its disks during the write refuses writes, and this one may be partly done.
        Verdict::Aborted | Verdict::NoSpace | Verdict::Refused(0x27, _) => WriteEffect::Maybe,
        // All of these are reported before the command changes a block.
        Verdict::NotNow | Verdict::Attention(..) | Verdict::Refused(..) | Verdict::Miscompare => WriteEffect::Never,
        Verdict::Failed(..) => WriteEffect::Partly,
    }
}

/// Fills a buffer for `range` with the pattern of `value`.
fn filled(value: Value, range: &Range<u64>, block_bytes: usize) -> Rope {
    let mut data = Buf::recycled((range.end - range.start) as usize * block_bytes);
    for (lba, block) in range.clone().zip(data.chunks_exact_mut(block_bytes)) {
        pattern::fill(value, lba, block);
    }
    data.into()
}
