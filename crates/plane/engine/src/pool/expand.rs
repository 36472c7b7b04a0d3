//! Expansion of a group by one member: the disk joins, and the group is reshaped over all members while it is in use.
//!
//! The catalog gets the new member first, so that every opening of the pool hands the disk to the array; then the array
//! counts on it; then stripes are moved. An expansion that a crash interrupts continues when the pool is opened. A disk
//! that cannot join is removed from the catalog again.

use super::grow::{Growth, number};
use super::maintenance::{Maintenance, Pace};
use super::member_copy;
use super::overwrite::Overwriting;
use super::rebuild::GroupRepair;
use super::refusals::{grow_refusal, refusal};
use super::rejoin::MemberSlot;
use super::work::{Work, WorkKind};
use super::{CREATED_BY, Candidate, OpenPool, Slot, find, new_uuid, open, uuid};
use crate::array;
use crate::shard_context::ShardContext;
use block::Blocks;
use model::{Level, Name, PoolReport, Refusal, Size, Subject, SubjectKind, code, event};
use raid::{GrowError, MemberState};
use shard::World;
use std::rc::Rc;
use volume::{LabelParams, NewDisk};

/// Adds the disk to the group as one more member and starts the reshape. Without `group`, the pool must have one group
/// only.
///
/// *Errors*: `GROUP_UNKNOWN`, `GROUP_FIXED`, `POOL_BUSY`, `TOO_MANY_MEMBERS` and those of the disk, with nothing
/// changed. *Durability*: when it returns, the expansion will be completed after any crash, unless the disk fails.
pub(crate) async fn add_member<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    group: Option<u16>,
    candidate: Candidate,
    force: bool,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    let group = pool.admit_wider(group)?;
    let disk = array::open_disk(&shard, &candidate.path).await?;
    if force {
        let disks = [(candidate.name.clone(), disk.clone())];
        Overwriting { disks: &disks, pool: Some(pool.pool.id()), node: None }.admit(&shard).await?;
    }
    // A new identity, also for a former member: nothing that it holds may count.
    let id = new_uuid(&shard.world);
    let state = match pool.groups[group].level {
        // A new half of a mirror is rebuilt like a replacement. With parity nothing is on the disk until stripes are
        // moved to it.
        Level::Raid1 => volume::MemberState::Rebuilding { front: Blocks(0) },
        _ => volume::MemberState::InService,
    };
    let labelling = LabelParams { now: shard.world.unix_seconds(), created_by: CREATED_BY.to_owned(), force };
    let new = NewDisk { id, device: disk.clone() };
    let added = pool.pool.members().add(number(group), new, state, labelling).await;
    added.map_err(|error| {
        let refusal = refusal(&error, &pool);
        Refusal { message: format!("disk {}: {}", candidate.name, refusal.message), ..refusal }
    })?;
    // The disk must be behind the fence before the array writes to it.
    pool.ownership_guard.cover(&disk);
    let state = &pool.groups[group];
    state.slots.borrow_mut().push(Slot::of(id, &candidate, &disk));
    assert!(!state.joining.replace(true), "one member of a group joins at a time");
    tracing::info!(pool = %pool.name, group, disk = %candidate.name, "a group gets one member more");
    // The repair task lets the disk join and moves the stripes, also after a restart.
    pool.start_repair(group);
    Ok(pool.report())
}

impl<W: World> OpenPool<W> {
    /// Admits a change of the group's members: refused while it is being expanded.
    pub(super) fn admit_change_of_members(&self, group: usize) -> Result<(), Refusal> {
        if !self.groups[group].is_expanding() {
            return Ok(());
        }
        let message = format!("group {group} of pool {} is being reshaped", self.name);
        Err(Refusal::new(
            code::POOL_BUSY,
            message,
            "wait until it has finished; blockyard pool show shows the time left",
        ))
    }

    /// Admits an expansion of the group `asked`, or of the only group. Returns its number.
    fn admit_wider(&self, asked: Option<u16>) -> Result<usize, Refusal> {
        let name = &self.name;
        self.admit_own("do it there")?;
        // Only groups on which volumes lie can be expanded.
        let of_volumes: Vec<usize> = self
            .groups
            .iter()
            .map(|(group, _)| group)
            .filter(|&group| self.pool.group(number(group)).is_some())
            .collect();
        let group = match (asked, &of_volumes[..]) {
            (Some(group), all) if all.contains(&usize::from(group)) => usize::from(group),
            (Some(group), _) => {
                let message = format!("pool {name} has no group {group} that holds volumes");
                return Err(Refusal::new(code::GROUP_UNKNOWN, message, "`blockyard pool show` lists its groups"));
            }
            (None, [only]) => *only,
            (None, all) => {
                let message = format!("pool {name} has {} groups", all.len());
                return Err(Refusal::new(code::GROUP_UNKNOWN, message, "choose one with --group"));
            }
        };
        member_copy::admit_change_of_shape(self, group)?;
        let state = &self.groups[group];
        let refuse = |code, why: &str, hint: &str| {
            Err(Refusal::new(code, format!("group {group} of pool {name} cannot be expanded: {why}"), hint))
        };
        let add_group = "add a group with blockyard pool add-group";
        // A reshape needs full redundancy from start to end.
        let members = state.array.status().members;
        let out = members.iter().zip(0..).find(|(member, _)| member.state != MemberState::InService);
        match (state.level, out) {
            (Level::Raid0, _) => refuse(code::GROUP_FIXED, "raid0 cannot be reshaped", add_group),
            (Level::Raid10, _) => refuse(code::GROUP_FIXED, "raid10 cannot be reshaped", add_group),
            _ if !state.array.is_protected() => {
                let why = "it has no checksums and no redo log, so a crash during the reshape would lose data";
                refuse(code::GROUP_FIXED, why, add_group)
            }
            _ if members.len() >= usize::from(raid::MEMBERS_MAX) => {
                refuse(code::TOO_MANY_MEMBERS, "it has the maximum number of members", add_group)
            }
            (_, Some((_, member))) => {
                let why = format!("disk {} is not in sync", self.disk_name(group, member));
                refuse(code::POOL_BUSY, &why, "replace it and wait for the rebuild")
            }
            _ => Ok(group),
        }
    }

    /// Work record of the running or queued reshape.
    pub(super) fn reshape_work(&self, group: usize) -> Work {
        let state = &self.groups[group];
        let runs = state.work.get().filter(|work| work.kind() == WorkKind::Reshape);
        runs.unwrap_or_else(|| {
            let (stripes, stripe_bytes) = (state.array.layout().stripes(), self.groups[group].moved_stripe_bytes());
            // After a restart the array knows how far the reshape is.
            let done = state.array.status().reshape.map_or(0, |progress| progress.done);
            Work::resumed(WorkKind::Reshape, self.shard.world.now(), done * stripe_bytes, stripes * stripe_bytes)
        })
    }
}

impl<W: World> GroupRepair<W> {
    /// Completes a started expansion. False if continuing with other repairs makes no sense.
    pub(super) async fn expand(&self) -> bool {
        let group = self.group;
        let state = &self.pool.groups[group];
        if !self.pool.groups[group].is_expanding() {
            return true;
        }
        self.pool.maintenance.until_resumed().await;
        // Joining and reshaping are separate steps, and a crash may interrupt either.
        if state.joining.get() {
            match self.join().await {
                Ok(()) => state.joining.set(false),
                Err(GrowError::Stopped(error)) => {
                    tracing::error!(pool = %self.pool.name, group, %error, "a group has stopped while a member joined");
                    return false;
                }
                Err(error) => return self.refuse_member(&error).await,
            }
        }
        if state.array.status().reshape.is_some() && !self.reshape().await {
            return false;
        }
        for (member, disk) in state.returning.take() {
            // Another disk may have taken the slot in the meantime.
            if self.pool.member_state(group, member) == MemberState::Missing {
                MemberSlot { pool: &self.pool, group, member }.let_return(&disk).await;
            }
        }
        true
    }

    /// Adds the disk of the last slot to the array.
    async fn join(&self) -> Result<(), GrowError> {
        let group = self.group;
        let state = &self.pool.groups[group];
        // Members join at the end, so the last slot is that of the disk.
        let place = state.slots.borrow().last().cloned().expect("a group has members");
        let record = self.pool.pool.status().groups[group].record.members.last().copied();
        // The catalog may have failed the disk before it joined.
        let disk = place.disk.filter(|_| record.is_some_and(|record| record.state.takes_part()));
        let window = disk.and_then(|disk| open::window::<W>(&disk, state.array.member_blocks()));
        let joined = state.array.add_member(window.ok_or(GrowError::NewMemberFailed)?).await?;
        assert_eq!(
            usize::from(joined) + 1,
            state.slots.borrow().len(),
            "the member that joined is the last of its group"
        );
        Ok(())
    }

    /// Removes the disk of the last slot, which could not join. False if that could not be recorded.
    async fn refuse_member(&self, error: &GrowError) -> bool {
        let group = self.group;
        let state = &self.pool.groups[group];
        let last = state.slots.borrow().last().cloned().expect("a group has members");
        let why = grow_refusal(error, &self.pool, group);
        // The catalog first: an opening after a crash must not hand the disk to the array again.
        let taken = self.pool.pool.members().remove_last(uuid(last.id)).await;
        if let Err(error) = taken {
            tracing::error!(pool = %self.pool.name, group, %error, "a disk that has not joined could not be taken back");
            return false;
        }
        let refused = state.slots.borrow_mut().pop();
        assert!(
            refused.is_some_and(|slot| slot.id == last.id),
            "the place that goes is that of the disk that did not join"
        );
        state.joining.set(false);
        let disk = last.called();
        let sentence = format!("disk {disk} could not join pool {}: {}", self.pool.name, why.message);
        tracing::error!("{sentence}");
        self.pool.shard.raise(event::MEMBER_REFUSED, Subject::new(SubjectKind::Disk, &disk), sentence);
        true
    }

    async fn reshape(&self) -> bool {
        let group = self.group;
        let (state, name) = (&self.pool.groups[group], &self.pool.name);
        let members = state.slots.borrow().len();
        let mut work = self.pool.reshape_work(group);
        state.work.set(Some(work));
        let done = work.progress(self.pool.shard.world.now()).done_bytes;
        let (mut gait, stripe_bytes, total) =
            (self.pool.maintenance.resume_pace(done), self.pool.groups[group].moved_stripe_bytes(), work.total_bytes());
        let goes_on = if done > 0 { "continues" } else { "started" };
        self.pool.raise(
            event::RESHAPE_BEGAN,
            format!("reshape of group {group} of pool {name} to {members} members {goes_on}"),
        );
        let pace = async |progress: raid::Progress| {
            let done = progress.done * stripe_bytes;
            work.advance(self.pool.shard.world.now(), done);
            state.work.set(Some(work));
            self.keep_reshape_pace(&mut gait, done, total).await;
        };
        // Read before the start: the event at the end reports what was gained and written.
        let (before, written) = (self.pool.pool.status().bytes, self.pool.groups[group].written_bytes(None));
        let reshaped = state.array.reshape(pace).await;
        if let Err(error) = reshaped {
            state.work.set(None);
            tracing::error!(pool = %name, group, %error, "a reshape stopped");
            let sentence = format!("reshape of group {group} of pool {name} to {members} members failed: {error}");
            self.pool.raise(event::RESHAPE_STOPPED, sentence);
            return false;
        }
        // If this fails, the next opening of the pool does it.
        if let Err(refusal) = (Growth { pool: &self.pool, group }).take_room().await {
            tracing::error!(pool = %name, group, %refusal, "what a group has gained cannot be given out");
        }
        state.work.set(None);
        let after = self.pool.pool.status().bytes;
        assert!(after >= before, "a pool with one more member is not smaller");
        let gained = Size::new(after - before).iec();
        let written = self.pool.groups[group].written_bytes(None).saturating_sub(written);
        let taken = work.summary(self.pool.shard.world.now(), written, "its disks");
        let sentence =
            format!("reshape of group {group} of pool {name} to {members} members finished, {gained} more{taken}");
        tracing::info!("{sentence}");
        self.pool.raise(event::RESHAPE_ENDED, sentence);
        true
    }

    async fn keep_reshape_pace(&self, gait: &mut Pace, done: u64, total: u64) {
        let group = self.group;
        if !self.pool.maintenance.keep_pace(gait, done, total, Maintenance::is_resumed).await {
            let sentence = format!("reshape of group {group} of pool {} will miss its deadline", self.pool.name);
            self.pool.raise(event::RESHAPE_LATE, sentence);
        }
    }
}
