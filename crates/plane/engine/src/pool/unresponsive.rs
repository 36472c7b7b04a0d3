//! Return of members that were given up because they did not answer.
//!
//! A task for each of them waits until its operations have landed, opens it again and lets it catch up
//! (`docs/adr/0024-disks-that-do-not-answer.md`).

use super::membership::note_membership;
use super::rejoin::MemberSlot;
use super::responsiveness::RETURNS_MAX;
use super::silence_guard::SilenceGuard;
use super::{DiskId, OpenPool};
use crate::array::{self, interruptible};
use model::{Subject, SubjectKind, event};
use raid::MemberState;
use raid::deadlines::FIRST_DEADLINE;
use shard::{CLOCK_STEP, InFlightOperations, World};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// Shortest time that a member stays out after it answers again; doubled with each return.
const HOLD_OFF: Duration = Duration::from_secs(5);
const HOLD_OFF_MAX: Duration = Duration::from_secs(600);

/// Gives up a member that does not answer: the array continues without it, and it is expected back.
pub(super) fn give_up<W: World>(pool: &Rc<OpenPool<W>>, group: usize, member: u16) {
    let state = &pool.groups[group];
    // Marked first: the record of the failure reports the member by this.
    state.slots.borrow()[usize::from(member)].responsiveness.fall_behind();
    state.array.fail_unresponsive(member);
    // A commit of the catalog that waits for the disk ends now; the record of this failure follows it.
    expect_back(pool, group, member);
}

/// Expects the disk of a member back that was given up because it did not answer. Nothing waits for its operations any
/// longer, and it returns by itself.
pub(super) fn expect_back<W: World>(pool: &Rc<OpenPool<W>>, group: usize, member: u16) {
    let slots = pool.groups[group].slots.borrow();
    let slot = &slots[usize::from(member)];
    let Some(disk) = &slot.disk else { return };
    slot.responsiveness.fall_behind();
    interruptible(disk).interrupt();
    let (awaited, world) = (UnresponsiveMember { group, member, id: slot.id }, pool.shard.world.clone());
    // Only weak references: the task may outlive the pool.
    pool.spawn(awaited.take_back(Rc::downgrade(pool), world, interruptible(disk).in_flight()));
}

/// A slot whose disk is expected to return.
struct UnresponsiveMember {
    group: usize,
    member: u16,
    /// Disk that belongs in the slot.
    id: DiskId,
}

impl UnresponsiveMember {
    /// Takes the disk back once `landings` are over, with retries until another disk has its slot.
    async fn take_back<W: World>(self, pool: Weak<OpenPool<W>>, world: W, landings: InFlightOperations) {
        // A late write on the former opening would overwrite newer data: all of it must land first.
        while landings.count() > 0 && pool.strong_count() > 0 {
            world.sleep(CLOCK_STEP).await;
        }
        let Some(now) = pool.upgrade().filter(|pool| self.let_go(pool)) else { return };
        let returns =
            now.groups[self.group].slots.borrow()[usize::from(self.member)].responsiveness.returns(world.now());
        if returns >= RETURNS_MAX {
            self.fail_for_good(&now).await;
            return;
        }
        // The pool must not be kept open by this task while it sleeps.
        drop(now);
        // 5 s, 10 s, 20 s and so on, by the number of returns within the hour.
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

    /// Closes the disk so that it can be opened again. False if it is not expected back any more.
    fn let_go<W: World>(&self, pool: &OpenPool<W>) -> bool {
        let Self { group, member, id } = *self;
        let state = &pool.groups[group];
        let is_away = matches!(pool.member_state(group, member), MemberState::Failed | MemberState::Missing);
        let mut slots = state.slots.borrow_mut();
        assert!(usize::from(member) < slots.len(), "a group keeps its places");
        let slot = &mut slots[usize::from(member)];
        let is_over = pool.closing.get().is_some() || pool.is_fenced();
        // Replaced, taken out or returned in the meantime, or the pool is closing.
        if slot.id != id || !slot.responsiveness.is_behind() || !is_away || is_over {
            return false;
        }
        state.array.drop_device(member);
        slot.disk = None;
        pool.pool.members().release(super::uuid(id));
        true
    }

    /// Opens the disk, checks that it is the member, and lets it catch up. False if it must be tried again later.
    async fn try_return<W: World>(&self, pool: &Rc<OpenPool<W>>) -> bool {
        let Self { group, member, .. } = *self;
        let (shard, place) = (&pool.shard, MemberSlot { pool, group, member });
        let path = pool.groups[group].slots.borrow()[usize::from(member)].path.clone();
        let Ok(disk) = array::open_disk(shard, &path).await else { return false };
        let (guard, began) = (SilenceGuard::over(shard, std::iter::once(&disk)), shard.world.now());
        let found = place.member_on(&disk).await;
        let is_the_member =
            found.is_some_and(|found| place.admit_return(&found, &pool.disk_name(group, member)).is_ok());
        // A disk that is slow to show its label would be given up again at once.
        if shard.world.now().since(began) >= FIRST_DEADLINE || interruptible(&disk).is_interrupted() {
            return false;
        }
        drop(guard);
        if !is_the_member {
            tracing::warn!(pool = %pool.name, group, path, "a disk responds again, but is not identified as the \
                 member");
            return false;
        }
        // Everything may have changed while the label was read, so the slot is checked a second time.
        if pool.admit_change_of_members(group).is_err() || !self.let_go(pool) {
            return false;
        }
        if let Err(error) = place.readmit(&disk).await {
            tracing::warn!(pool = %pool.name, group, %error, "a disk that responds again cannot rejoin yet");
            return false;
        }
        let answering = pool.groups[group].slots.borrow()[usize::from(member)].responsiveness.clone();
        answering.note_return(shard.world.now());
        pool.start_repair(group);
        true
    }

    /// Fails the disk, which did not answer too often within an hour.
    async fn fail_for_good<W: World>(&self, pool: &OpenPool<W>) {
        let Self { group, member, id } = *self;
        let (disk, name) = (pool.disk_name(group, member), &pool.name);
        pool.groups[group].slots.borrow()[usize::from(member)].responsiveness.give_up_waiting();
        if let Err(error) = pool.pool.members().set_state(super::uuid(id), volume::MemberState::Failed).await {
            tracing::warn!(pool = %name, group, %error, "a disk that stops answering again and again is not recorded as failed");
        }
        note_membership(pool);
        let sentence = format!(
            "disk {disk} of pool {name} stopped responding {} times within an hour and is no longer used; replace it",
            RETURNS_MAX + 1
        );
        pool.shard.raise(event::DISK_FAILED, Subject::new(SubjectKind::Disk, &disk), sentence);
    }
}
