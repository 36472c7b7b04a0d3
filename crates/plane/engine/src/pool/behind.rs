//! Members that did not answer and were given up: waited for until all that they were asked has landed, and taken back.

use super::answering::RETURNS_MAX;
use super::membership::note_membership;
use super::rejoin::Place;
use super::watchdog::SilenceGuard;
use super::{DiskId, OpenPool};
use crate::array::{self, interruptible};
use block::{IoError, IoErrorKind};
use model::{Subject, SubjectKind, event};
use raid::MemberState;
use raid::deadlines::FIRST_DEADLINE;
use shard::{CLOCK_STEP, Landings, World};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How long a member that answers again stays out at least; twice as long each time that it comes back.
const HOLD_OFF: Duration = Duration::from_secs(5);
const HOLD_OFF_MAX: Duration = Duration::from_secs(600);

/// How the failure of a member is kept in the catalog: one that only did not answer may come back by itself.
pub(super) fn recorded_state(error: IoError) -> volume::MemberState {
    match error.kind {
        IoErrorKind::TimedOut => volume::MemberState::Missing,
        _ => volume::MemberState::Failed,
    }
}

/// A place whose disk is waited for.
pub(super) struct Behind {
    pub(super) group: usize,
    pub(super) member: u16,
    /// The disk that belongs there.
    pub(super) id: DiskId,
}

impl Behind {
    /// Takes the disk back once `landings` are over, however often it has to be tried, until somebody else has its place.
    pub(super) async fn take_back<W: World>(self, pool: Weak<OpenPool<W>>, world: W, landings: Landings) {
        while landings.count() > 0 && pool.strong_count() > 0 {
            world.sleep(CLOCK_STEP).await;
        }
        let Some(now) = pool.upgrade().filter(|pool| self.let_go(pool)) else { return };
        let returns = now.groups[self.group].slots.borrow()[usize::from(self.member)].answering.returns(world.now());
        if returns >= RETURNS_MAX {
            self.fail_for_good(&now).await;
            return;
        }
        drop(now);
        let mut hold_off = HOLD_OFF * 2_u32.pow(returns);
        loop {
            world.sleep(hold_off).await;
            let Some(pool) = pool.upgrade().filter(|pool| self.let_go(pool)) else { return };
            if self.try_return(&pool).await {
                return;
            }
            hold_off = (2 * hold_off).min(HOLD_OFF_MAX);
        }
    }

    /// Lets go of the disk, so that it can be opened again; false where nobody waits for it any more.
    fn let_go<W: World>(&self, pool: &OpenPool<W>) -> bool {
        let Self { group, member, id } = *self;
        let state = &pool.groups[group];
        let is_away = matches!(pool.member_state(group, member), MemberState::Failed | MemberState::Missing);
        let mut slots = state.slots.borrow_mut();
        assert!(usize::from(member) < slots.len(), "a group keeps its places");
        let slot = &mut slots[usize::from(member)];
        let is_over = pool.closing.get().is_some() || pool.is_fenced();
        if slot.id != id || !slot.answering.is_behind() || !is_away || is_over {
            return false;
        }
        state.array.release(member);
        slot.disk = None;
        pool.pool.members().release(super::uuid(id));
        true
    }

    /// The disk, which answers again, is in its place and gets what it has missed. False where that has to be tried again.
    async fn try_return<W: World>(&self, pool: &Rc<OpenPool<W>>) -> bool {
        let Self { group, member, .. } = *self;
        let (shard, place) = (&pool.shard, Place { pool, group, member });
        let path = pool.groups[group].slots.borrow()[usize::from(member)].path.clone();
        let Ok(disk) = array::open_disk(shard, &path).await else { return false };
        let (guard, began) = (SilenceGuard::over(shard, std::iter::once(&disk)), shard.world.now());
        let found = place.member_on(&disk).await;
        let is_the_member =
            found.is_some_and(|found| place.admit_return(&found, &pool.disk_name(group, member)).is_ok());
        if shard.world.now().since(began) >= FIRST_DEADLINE || interruptible(&disk).is_interrupted() {
            return false;
        }
        drop(guard);
        if !is_the_member {
            tracing::warn!(pool = %pool.name, group, path, "a disk answers again, and does not show that it is the member");
            return false;
        }
        if pool.admit_change_of_members(group).is_err() || !self.let_go(pool) {
            return false;
        }
        if let Err(error) = place.readmit(&disk).await {
            tracing::warn!(pool = %pool.name, group, %error, "a disk that answers again is not taken back yet");
            return false;
        }
        let answering = pool.groups[group].slots.borrow()[usize::from(member)].answering.clone();
        answering.note_return(shard.world.now());
        pool.start_repair(group);
        true
    }

    /// The disk has not answered too often: it has failed.
    async fn fail_for_good<W: World>(&self, pool: &OpenPool<W>) {
        let Self { group, member, id } = *self;
        let (disk, name) = (pool.disk_name(group, member), &pool.name);
        pool.groups[group].slots.borrow()[usize::from(member)].answering.give_up_waiting();
        if let Err(error) = pool.pool.members().set_state(super::uuid(id), volume::MemberState::Failed).await {
            tracing::warn!(pool = %name, group, %error, "a disk that stops answering again and again is not recorded as failed");
        }
        note_membership(pool);
        let sentence = format!(
            "disk {disk} of pool {name} stopped answering {} times within an hour and is not used any more; replace it",
            RETURNS_MAX + 1
        );
        pool.shard.raise(event::DISK_FAILED, Subject::new(SubjectKind::Disk, &disk), sentence);
    }
}
