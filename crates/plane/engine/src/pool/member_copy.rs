//! Proactive copy of a failing or slow member that still serves: it is copied to another disk, which then takes its
//! slot.
//!
//! Nothing of the copy is recorded before its end. A crash, or an error of the new disk, leaves the pool as it was
//! (`docs/adr/0026-errors-of-members.md`).

use super::losses::LostList;
use super::maintenance::{Maintenance, Pace};
use super::membership::keep_membership;
use super::rebuild::GroupRepair;
use super::refusals::refusal;
use super::rejoin::MemberSlot;
use super::silence_guard::SilenceGuard;
use super::work::{Work, WorkKind};
use super::{CREATED_BY, Candidate, OpenPool, Slot, disk_id, find, new_uuid, open, uuid};
use crate::array::Disk;
use crate::shard_context::ShardContext;
use block::{Extent, IoError, IoErrorKind, Stable};
use model::{DiskId, MemberCopy, Name, PoolReport, Refusal, Subject, SubjectKind, code, event};
use raid::{MemberState, RebuildOwner, Rebuilt};
use shard::{Signal, World};
use std::cell::Cell;
use std::rc::Rc;
use volume::{LabelParams, NewDisk, Uuid};

/// A copy that is queued or runs.
pub(super) struct MemberCopyTask<W: World> {
    member: u16,
    /// Disk that is the member now.
    old: DiskId,
    /// Identity that the new disk gets as the member.
    id: Uuid,
    candidate: Candidate,
    disk: Disk<W>,
    force: bool,
    work: Cell<Option<Work>>,
    begun: Cell<bool>,
    /// True from the start of the commit that gives the new disk the place until the array has it there.
    is_exchanging: Cell<bool>,
    exchanged: Signal,
}

/// Queues the copy of the member to `candidate`, which takes its slot at the end.
///
/// *Errors*: the member is not in service, another member of its group is being copied, or `candidate` does not fit;
/// nothing is written then.
pub(crate) async fn copy_member<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    member: DiskId,
    candidate: Candidate,
    force: bool,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    let (group, number) = pool.place_of(member).ok_or_else(|| {
        let message = format!("pool {} has no disk with the identity {member}", pool.name);
        Refusal::new(code::DISK_NOT_MEMBER, message, "`blockyard pool show` lists its members")
    })?;
    pool.admit_change_of_members(group)?;
    let state = &pool.groups[group];
    if pool.member_state(group, number) != MemberState::InService || state.member_copy.borrow().is_some() {
        let message =
            format!("disk {} of pool {} cannot be copied at present", pool.disk_name(group, number), pool.name);
        return Err(Refusal::new(code::POOL_BUSY, message, "wait until the rebuild or the copy has finished"));
    }
    let disk = MemberSlot { pool: &pool, group, member: number }.open_replacement(&candidate, force).await?;
    let id = new_uuid(&shard.world);
    let newcomer = NewDisk { id, device: disk.clone() };
    let admitted = pool.pool.members().admit_exchange(uuid(member), &newcomer, force).await;
    admitted.map_err(|error| refusal(&error, &pool))?;
    // Behind the fence before the array writes to it.
    pool.ownership_guard.cover(&disk);
    let copying = MemberCopyTask {
        member: number,
        old: member,
        id,
        candidate,
        disk,
        force,
        work: Cell::default(),
        begun: Cell::default(),
        is_exchanging: Cell::default(),
        exchanged: Signal::default(),
    };
    // Checked again: another order may have come while the disk was opened.
    if state.member_copy.borrow().is_some() {
        return Err(Refusal::new(
            code::POOL_BUSY,
            "another member of the group is being copied",
            "wait until it has finished",
        ));
    }
    let before = state.member_copy.replace(Some(Rc::new(copying)));
    assert!(before.is_none(), "one member of a group is copied at a time");
    pool.start_repair(group);
    Ok(pool.report())
}

/// Progress of the copy of this member; `None` if it is not being copied.
pub(super) fn report<W: World>(pool: &OpenPool<W>, group: usize, member: u16) -> Option<MemberCopy> {
    let copying = pool.groups[group].member_copy.borrow().clone().filter(|copying| copying.member == member)?;
    // A copy that still waits for its turn shows all of it as left.
    let work = copying.work.get().unwrap_or_else(|| pool.begin(group, WorkKind::Rebuild));
    Some(MemberCopy { disk: copying.candidate.name.clone(), progress: work.progress(pool.shard.world.now()) })
}

/// Disk that the catalog names for a slot. At the end of a copy that is the new disk already, while the slot still has
/// the old one.
pub(super) fn recorded_disk<W: World>(pool: &OpenPool<W>, group: usize, member: u16) -> Uuid {
    let groups = pool.pool.status().groups;
    let recorded = groups.get(group).and_then(|group| group.record.members.get(usize::from(member)));
    let slot = || uuid(pool.groups[group].slots.borrow()[usize::from(member)].id);
    recorded.map_or_else(slot, |member| member.disk)
}

/// Admits a change of the group's shape: refused while a member is copied.
pub(super) fn admit_change_of_shape<W: World>(pool: &OpenPool<W>, group: usize) -> Result<(), Refusal> {
    if pool.groups[group].member_copy.borrow().is_none() {
        return pool.admit_change_of_members(group);
    }
    let message = format!("a member of group {group} of pool {} is being copied to another disk", pool.name);
    Err(Refusal::new(code::POOL_BUSY, message, "wait until it has finished; blockyard pool show shows the time left"))
}

/// Waits until no member of the group is being exchanged.
///
/// A copy interrupted in between would leave the old disk in the array and the new one in the catalog, and closing the
/// pool still writes to the array.
pub(super) async fn until_exchanged<W: World>(pool: &OpenPool<W>, group: usize) {
    let Some(copying) = pool.groups[group].member_copy.borrow().clone() else { return };
    copying.exchanged.until(|| !copying.is_exchanging.get()).await;
}

/// Exchange of a member under way: catalog and array may have different disks in the place.
struct Exchanging<'a, W: World>(&'a MemberCopyTask<W>);

impl<'a, W: World> Exchanging<'a, W> {
    fn begin(copying: &'a MemberCopyTask<W>) -> Self {
        assert!(!copying.is_exchanging.replace(true), "a copy is exchanged for its member once");
        Self(copying)
    }
}

impl<W: World> Drop for Exchanging<'_, W> {
    fn drop(&mut self) {
        self.0.is_exchanging.set(false);
        self.0.exchanged.raise();
    }
}

impl<W: World> GroupRepair<W> {
    /// Runs the queued copy of the group; false if there is none.
    pub(super) async fn copy(&self) -> bool {
        let state = &self.pool.groups[self.group];
        // Taken once: the loop of the repair task must not start the copy twice.
        let Some(copying) = state.member_copy.borrow().clone().filter(|copying| !copying.begun.replace(true)) else {
            return false;
        };
        // Clears the copy at every way out, also when the task is dropped because the pool is closed.
        let _wanted = Wanted { pool: &self.pool, group: self.group };
        // The member may have failed since the order was given.
        if self.pool.member_state(self.group, copying.member) == MemberState::InService {
            self.run_copy(&copying).await;
        }
        true
    }

    async fn run_copy(&self, copying: &Rc<MemberCopyTask<W>>) {
        let (pool, group, member) = (&self.pool, self.group, copying.member);
        let (old, new, name) = (pool.disk_name(group, member), &copying.candidate.name, &pool.name);
        let raise = |code, sentence: String| pool.shard.raise(code, Subject::new(SubjectKind::Disk, &old), sentence);
        pool.maintenance.until_resumed().await;
        let state = &pool.groups[group];
        let Some(window) = open::window::<W>(&copying.disk, state.array.member_blocks()) else { return };
        // Checksums cover every block of a protected group; elsewhere blocks that no volume uses need no copy.
        let stripes = match state.array.is_protected() {
            true => std::iter::once(0..state.array.layout().stripes()).collect(),
            false => pool.stripes_in_use(group),
        };
        let work = pool.begin_over(group, WorkKind::Rebuild, &stripes);
        copying.work.set(Some(work));
        raise(event::MEMBER_COPY_BEGAN, format!("disk {old} of pool {name} is being copied to disk {new}"));
        // The new disk is not a member yet, so the watchdog does not cover it.
        let _guard = SilenceGuard::over(&pool.shard, std::iter::once(&copying.disk));
        let mut owner =
            Owner { pool: pool.clone(), group, copying: copying.clone(), work, gait: pool.maintenance.start_pace() };
        match state.array.copy_member(member, window, &stripes, &mut owner).await {
            Ok(_) => {
                let sentence = format!(
                    "disk {old} of pool {name} was copied to disk {new}, which replaces it; disk {old} is no \
                     longer used, remove it"
                );
                raise(event::MEMBER_COPIED, sentence);
            }
            Err(error) => {
                tracing::warn!(pool = %name, group, disk = old, %error, "a member was not copied");
                if recorded_disk(pool, group, member) == copying.id {
                    // The commit was made but the array did not take the new disk: the slot has no usable disk.
                    self.give_up_place(member).await;
                }
                let sentence = format!("copy of disk {old} of pool {name} to disk {new} failed: {error}");
                raise(event::MEMBER_COPY_FAILED, sentence);
            }
        }
    }

    async fn give_up_place(&self, member: u16) {
        if let Err(error) = self.pool.groups[self.group].array.fail(member).await {
            tracing::error!(pool = %self.pool.name, group = self.group, %error, "a place without its disk is not given up");
        }
    }
}

/// Guard of a running copy; clears it when dropped.
struct Wanted<'a, W: World> {
    pool: &'a OpenPool<W>,
    group: usize,
}

impl<W: World> Drop for Wanted<'_, W> {
    fn drop(&mut self) {
        let ended = self.pool.groups[self.group].member_copy.take();
        assert!(ended.is_some(), "a copy ends once");
    }
}

/// Callbacks of the array for one copy: pace and commit.
struct Owner<W: World> {
    pool: Rc<OpenPool<W>>,
    group: usize,
    copying: Rc<MemberCopyTask<W>>,
    work: Work,
    gait: Pace,
}

impl<W: World> RebuildOwner for Owner<W> {
    async fn pace(&mut self, progress: raid::Progress) {
        let (pool, done) = (&self.pool, progress.done * self.pool.groups[self.group].stripe_bytes());
        self.work.advance(pool.shard.world.now(), done);
        self.copying.work.set(Some(self.work));
        pool.maintenance.keep_pace(&mut self.gait, done, self.work.total_bytes(), Maintenance::is_resumed).await;
    }

    async fn commit(&mut self, member: u16, _: Stable, copied: &Rebuilt) -> Result<Stable, IoError> {
        let (pool, copying) = (&self.pool, &self.copying);
        let gone = IoError::new(IoErrorKind::Gone, Extent::default());
        // Durable before the new disk counts as complete, because a restart takes it for that.
        if !copied.lost.is_empty() {
            LostList(pool).enter(self.group, &copied.lost).await;
        }
        if !copied.unreadable.is_empty() && !pool.groups[self.group].array.is_protected() {
            // Without checksums nothing would remember which blocks of the new disk have no valid content.
            return Err(gone);
        }
        let labelling = LabelParams {
            now: pool.shard.world.unix_seconds(),
            created_by: CREATED_BY.to_owned(),
            force: copying.force,
        };
        let newcomer = NewDisk { id: copying.id, device: copying.disk.clone() };
        // Dropped when this returns: the array takes the new disk in the same step.
        let _exchanging = Exchanging::begin(copying);
        let exchanged = pool.pool.members().exchange(uuid(copying.old), newcomer, labelling).await;
        exchanged.map_err(|error| {
            tracing::error!(pool = %pool.name, %error, "the copy of a member could not take its place");
            gone
        })?;
        {
            let mut slots = pool.groups[self.group].slots.borrow_mut();
            let old = slots[usize::from(member)].called();
            let slot = Slot::of(copying.id, &copying.candidate, &copying.disk);
            slots[usize::from(member)] = Slot { stands_for: Some(old), ..slot };
            assert!(slots[usize::from(member)].id == disk_id(copying.id), "the place is the new disk's");
        }
        // The old disk misses writes from here on, so the node's row must name the new one first.
        keep_membership(pool).await;
        Ok(Stable::attest())
    }
}
