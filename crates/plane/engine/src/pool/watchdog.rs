//! Watchdog for members that do not answer: reads are served from others, and the member is given up after its
//! deadline.
//!
//! Several times a second the pool evaluates how long each member has owed an answer, by the table in
//! `raid::deadlines`. A member that is given up is *behind*: the catalog records it as missing before any command that
//! it missed is answered, and it returns like a disk that was absent ([`super::unresponsive`]). See
//! `docs/adr/0024-disks-that-do-not-answer.md`.

use super::member_errors::ErrorCounters;
use super::{OpenPool, unresponsive};
use crate::array::{self, Disk, interruptible};
use crate::remote::MemberDisk;
use block::{BlockDevice, Extent};
use model::{Subject, SubjectKind, event};
use raid::deadlines::{Deadlines, Decision, judge};
use raid::{MemberState, Status};
use shard::{CLOCK_STEP, ResponseAge, World};
use std::rc::Rc;
use std::time::Duration;

/// Deadline for a member without which no redundancy is left; the default of `disk.deadline`.
pub(super) const MEMBER_DEADLINE: Duration = Duration::from_millis(model::DISK_DEADLINE.millis());
/// Clock steps between two evaluations of latencies and errors.
const LATENCY_STEPS: u64 = 50;

/// Starts the watchdog of the pool; it runs while the pool is open.
pub(super) fn watch_members<W: World>(pool: &Rc<OpenPool<W>>) {
    let (weak, world) = (Rc::downgrade(pool), pool.shard.world.clone());
    pool.spawn(async move {
        for step in 0_u64.. {
            world.sleep(CLOCK_STEP).await;
            // Held for one round only: the watchdog must not keep the pool open.
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
        // All silences are taken first: the verdict on a member depends on the others.
        let silences: Vec<Option<ResponseAge>> =
            disks.iter().enumerate().map(|(at, disk)| silence_of(&status, at, disk.as_ref())).collect();
        assert_eq!(silences.len(), disks.len(), "each place has a silence");
        for (member, disk) in (0..).zip(&disks) {
            let at = usize::from(member);
            let (Some(disk), Some(silence)) = (disk, silences[at]) else { continue };
            let answering = state.slots.borrow()[at].responsiveness.clone();
            let spare = state.array.redundancy_without(member);
            let deadlines = self.deadlines(disk, answering.p999());
            // A slow member is read only where the others cannot answer.
            let read = if answering.is_slow() { Duration::ZERO } else { deadlines.read };
            // Without redundancy there is nowhere else to read from, so such reads are not hedged.
            interruptible(disk).hedge(spare.map(|_| read));
            let is_filled = matches!(status.members[at].state, MemberState::Rebuilding { .. });
            // A rebuild loads its member to the limit, so only one that makes no progress at all is given up.
            let (silence, deadlines) = match is_filled {
                true => (ResponseAge { progress: silence.progress, ..ResponseAge::default() }, deadlines.for_rebuild()),
                false => (silence, deadlines),
            };
            // If all members are silent the cause is common, and giving one up would not help.
            let others = silences.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<ResponseAge> = others.filter_map(|(_, silence)| *silence).collect();
            if judge(silence, &others, spare, &deadlines) == Decision::Fail && !self.pool.is_read_only() {
                self.give_up(member, silence);
            }
        }
    }

    fn deadlines(&self, disk: &Disk<W>, p999: Duration) -> Deadlines {
        let set = self.pool.maintenance.repair_policy().deadline.map(|span| Duration::from_millis(span.millis()));
        // A remote disk may change paths before it answers, which its deadlines allow for.
        let deadlines = Deadlines::new(p999, set.unwrap_or(MEMBER_DEADLINE));
        match array::overlay(disk).device() {
            MemberDisk::Remote(_) => deadlines.with_paths(),
            MemberDisk::Local(_) => deadlines,
        }
    }

    /// Compares the latencies of the members and reports one that is much slower than the others.
    fn learn_speeds(&self) {
        let slots = self.pool.groups[self.group].slots.borrow().clone();
        for slot in &slots {
            let Some(disk) = &slot.disk else { continue };
            slot.responsiveness.learn(disk);
            if slot.responsiveness.is_slow() {
                // A slow member gets no reads of hosts; this probe shows when it has recovered.
                let disk = disk.clone();
                self.pool.spawn(async move { drop(disk.read(Extent::new(0, 1)).await) });
            }
        }
        for (at, slot) in slots.iter().enumerate() {
            let others = slots.iter().enumerate().filter(|(other, _)| *other != at);
            let others: Vec<Duration> = others.filter_map(|(_, other)| other.responsiveness.recent()).collect();
            let Some(is_slow) = slot.responsiveness.judge_speed(&others) else { continue };
            let (disk, pool) = (slot.called(), &self.pool.name);
            let own = slot.responsiveness.recent().unwrap_or_default().as_millis();
            let (code, sentence) = match is_slow {
                true => {
                    let text = "many times longer than the other members; reads use the other members";
                    (event::DISK_SLOW, format!("disk {disk} of pool {pool} is slow: {own} ms an operation, {text}"))
                }
                false => (event::DISK_FAST_AGAIN, format!("disk {disk} of pool {pool} is no longer slow")),
            };
            self.pool.shard.raise(code, Subject::new(SubjectKind::Disk, &disk), sentence);
        }
    }

    /// Updates the error counts of the members and reports one that exceeds the error policy.
    fn learn_errors(&self) {
        let state = &self.pool.groups[self.group];
        let (status, now) = (state.array.status(), self.pool.shard.world.now());
        let policy = self.pool.maintenance.repair_policy().errors;
        let slots = state.slots.borrow().clone();
        for (slot, member) in slots.iter().zip(&status.members) {
            let wrong = self.pool.findings.wrong_blocks(slot.id);
            let done = ErrorCounters { reads: member.reads, errors: member.errors, wrong };
            slot.errors.learn(now, done, slot.responsiveness.is_slow());
            // One event for each time that the policy is exceeded.
            if !slot.errors.is_news(slot.errors.judge(now, &policy)) {
                continue;
            }
            let (disk, pool) = (slot.called(), &self.pool.name);
            let (errors, percent) = (slot.errors.of_day(), slot.errors.percent());
            let rate =
                if percent > 0 { format!(", {percent} % of the reads of the last minute") } else { String::new() };
            let sentence = format!(
                "disk {disk} of pool {pool} has failed {errors} reads within 24 hours{rate}, more than the pool's policy allows; \
                 replace it"
            );
            self.pool.shard.raise(event::DISK_ERRS, Subject::new(SubjectKind::Disk, &disk), sentence);
        }
    }

    /// Gives the member up: nothing waits for it any longer.
    fn give_up(&self, member: u16, silence: ResponseAge) {
        let (pool, group, disk) = (&self.pool.name, self.group, self.pool.disk_name(self.group, member));
        tracing::warn!(%pool, group, disk, ?silence, "a member does not respond and is dropped");
        unresponsive::give_up(self.pool, group, member);
    }
}

/// Silence of the disk of a member that takes part in the group; `None` for any other.
fn silence_of<W: World>(status: &Status, at: usize, disk: Option<&Disk<W>>) -> Option<ResponseAge> {
    match status.members.get(at)?.state {
        MemberState::Failed | MemberState::Missing => None,
        MemberState::InService | MemberState::Rebuilding { .. } => Some(interruptible(disk?).response_age()),
    }
}
