//! Members that do not answer: served around, and given up.
//!
//! A few times a second the pool looks at how long each member has owed an answer, and asks the table of `raid::deadlines` what
//! that means. A member that is given up is *behind*: the catalog says that it is away before any command that it missed is
//! answered, and it comes back as a disk that was away does ([`Behind`]).

use super::OpenPool;
use super::behind::Behind;
use super::erring::Done;
use crate::array::{self, Disk, interruptible};
use crate::remote::MemberDisk;
use crate::shard_context::ShardContext;
use block::{BlockDevice, Extent};
use model::{Subject, SubjectKind, event};
use raid::deadlines::{Deadlines, Verdict, judge};
use raid::{MemberState, Status};
use shard::{CLOCK_STEP, Silence, World};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How long a member is waited for without which no redundancy would be left, unless something else is set.
const MEMBER_DEADLINE: Duration = Duration::from_millis(model::DISK_DEADLINE.millis());
/// How often the latency of members is looked at, in steps of the clock.
const LATENCY_STEPS: u64 = 50;

/// While it lives, disks that are not those of an open pool yet are interrupted when they do not answer for [`MEMBER_DEADLINE`].
pub(super) struct SilenceGuard(Rc<()>);

impl SilenceGuard {
    /// Guards these disks.
    pub(super) fn over<'a, W: World>(shard: &ShardContext<W>, disks: impl Iterator<Item = &'a Disk<W>>) -> Self {
        let disks: Vec<Weak<_>> = disks.map(Rc::downgrade).collect();
        let guard = Self(Rc::default());
        let (world, living) = (shard.world.clone(), Rc::downgrade(&guard.0));
        shard.world.spawn(async move {
            while living.strong_count() > 0 {
                for disk in disks.iter().filter_map(Weak::upgrade) {
                    if interruptible(&disk).silence().progress >= MEMBER_DEADLINE {
                        interruptible(&disk).interrupt();
                    }
                }
                world.sleep(CLOCK_STEP).await;
            }
        });
        guard
    }
}

/// Looks at the members as long as the pool is open.
pub(super) fn watch_members<W: World>(pool: &Rc<OpenPool<W>>) {
    let (weak, world) = (Rc::downgrade(pool), pool.shard.world.clone());
    pool.spawn(async move {
        for step in 0_u64.. {
            world.sleep(CLOCK_STEP).await;
            let Some(pool) = weak.upgrade() else { return };
            for (group, _) in pool.groups.iter() {
                let members = Members { pool: &pool, group };
                if step.is_multiple_of(LATENCY_STEPS) {
                    members.learn_speeds();
                    members.learn_errors();
                }
                members.look();
            }
        }
    });
}

/// The members of one group of an open pool.
struct Members<'a, W: World> {
    pool: &'a Rc<OpenPool<W>>,
    group: usize,
}

impl<W: World> Members<'_, W> {
    fn look(&self) {
        let state = &self.pool.groups[self.group];
        let status = state.array.status();
        let disks: Vec<_> = state.slots.borrow().iter().map(|slot| slot.disk.clone()).collect();
        let silences: Vec<Option<Silence>> =
            disks.iter().enumerate().map(|(at, disk)| silence_of(&status, at, disk.as_ref())).collect();
        assert_eq!(silences.len(), disks.len(), "each place has a silence");
        for (member, disk) in (0..).zip(&disks) {
            let at = usize::from(member);
            let (Some(disk), Some(silence)) = (disk, silences[at]) else { continue };
            let answering = state.slots.borrow()[at].answering.clone();
            let spare = state.array.spare_without(member);
            let deadlines = self.deadlines(disk, answering.p999());
            // What a slow member holds is not asked of it while others have it.
            let read = if answering.is_slow() { Duration::ZERO } else { deadlines.read };
            interruptible(disk).hedge(spare.map(|_| read));
            let is_filled = matches!(status.members[at].state, MemberState::Rebuilding { .. });
            // What fills it is as much as it can take, so only one that does nothing at all is not waited for.
            let (silence, deadlines) = match is_filled {
                true => (Silence { progress: silence.progress, ..Silence::default() }, deadlines.while_filled()),
                false => (silence, deadlines),
            };
            let others = silences.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<Silence> = others.filter_map(|(_, silence)| *silence).collect();
            if judge(silence, &others, spare, &deadlines) == Verdict::GiveUp && !self.pool.is_read_only() {
                self.give_up(member, disk, silence);
            }
        }
    }

    fn deadlines(&self, disk: &Disk<W>, p999: Duration) -> Deadlines {
        let set = self.pool.care.repair_policy().deadline.map(|span| Duration::from_millis(span.millis()));
        let deadlines = Deadlines::new(p999, set.unwrap_or(MEMBER_DEADLINE));
        match array::overlay(disk).device() {
            MemberDisk::Remote(_) => deadlines.with_paths(),
            MemberDisk::Local(_) => deadlines,
        }
    }

    /// Compares the latencies of the members, and tells of one that is many times slower than the others.
    fn learn_speeds(&self) {
        let slots = self.pool.groups[self.group].slots.borrow().clone();
        for slot in &slots {
            let Some(disk) = &slot.disk else { continue };
            slot.answering.learn(disk);
            if slot.answering.is_slow() {
                // Reads go to the others: this one tells whether it is as fast again.
                let disk = disk.clone();
                self.pool.spawn(async move { drop(disk.read(Extent::new(0, 1)).await) });
            }
        }
        for (at, slot) in slots.iter().enumerate() {
            let others = slots.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<Duration> = others.filter_map(|(_, other)| other.answering.recent()).collect();
            let Some(is_slow) = slot.answering.judge_speed(&others) else { continue };
            let (disk, pool) = (slot.called(), &self.pool.name);
            let own = slot.answering.recent().unwrap_or_default().as_millis();
            let (code, sentence) = match is_slow {
                true => {
                    let text = "many times longer than the other members; reads are served from these";
                    (event::DISK_SLOW, format!("disk {disk} of pool {pool} is slow: {own} ms an operation, {text}"))
                }
                false => (event::DISK_FAST_AGAIN, format!("disk {disk} of pool {pool} is as fast as the others again")),
            };
            self.pool.shard.raise(code, Subject::new(SubjectKind::Disk, &disk), sentence);
        }
    }

    /// Counts what the members do wrong, and tells of one that errs more than it may.
    fn learn_errors(&self) {
        let state = &self.pool.groups[self.group];
        let (status, now) = (state.array.status(), self.pool.shard.world.now());
        let policy = self.pool.care.repair_policy().errors;
        let slots = state.slots.borrow().clone();
        for (slot, member) in slots.iter().zip(&status.members) {
            let wrong = self.pool.findings.wrong_blocks(slot.id);
            let done = Done { reads: member.reads, errors: member.errors, wrong };
            slot.erring.learn(now, done, slot.answering.is_slow());
            if !slot.erring.is_news(slot.erring.judge(now, &policy)) {
                continue;
            }
            let (disk, pool) = (slot.called(), &self.pool.name);
            let (errors, percent) = (slot.erring.of_day(), slot.erring.percent());
            let rate =
                if percent > 0 { format!(", {percent} % of the reads of the last minute") } else { String::new() };
            let sentence = format!(
                "disk {disk} of pool {pool} has failed {errors} reads within 24 hours{rate}, more than the pool's policy allows; \
                 replace it"
            );
            self.pool.shard.raise(event::DISK_ERRS, Subject::new(SubjectKind::Disk, &disk), sentence);
        }
    }

    /// The member is not waited for any longer.
    fn give_up(&self, member: u16, disk: &Disk<W>, silence: Silence) {
        let state = &self.pool.groups[self.group];
        let slots = state.slots.borrow();
        let slot = &slots[usize::from(member)];
        slot.answering.fall_behind();
        let (pool, group, disk_name) = (&self.pool.name, self.group, slot.called());
        tracing::warn!(%pool, group, disk = disk_name, ?silence, "a member does not answer and is given up");
        state.array.give_up(member);
        // A commit of the catalog that waits for it ends, and the record of this comes after that.
        interruptible(disk).interrupt();
        let behind = Behind { group, member, id: slot.id };
        let world = self.pool.shard.world.clone();
        self.pool.spawn(behind.take_back(Rc::downgrade(self.pool), world, interruptible(disk).landings()));
    }
}

/// For how long the disk of a member that takes part has owed an answer.
fn silence_of<W: World>(status: &Status, at: usize, disk: Option<&Disk<W>>) -> Option<Silence> {
    match status.members.get(at)?.state {
        MemberState::Failed | MemberState::Missing => None,
        MemberState::InService | MemberState::Rebuilding { .. } => Some(interruptible(disk?).silence()),
    }
}
