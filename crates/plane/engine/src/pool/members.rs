//! Orders of an operator about one member: fail it, replace it, blink its LED.

use super::log_reattach::LogReattach;
use super::membership::note_membership;
use super::overwrite::Overwriting;
use super::refusals::{array_refusal, refusal};
use super::rejoin::MemberSlot;
use super::report::disk_size_for;
use super::{CREATED_BY, Candidate, OpenPool, Slot, find, new_uuid, open, uuid};
use crate::array::{self, Disk};
use crate::locate;
use crate::shard_context::ShardContext;
use block::{BlockDevice, IoError, IoErrorKind};
use futures_util::future::select;
use model::{DiskId, Name, PoolReport, Refusal, Size, Subject, SubjectKind, VolumeReport, code, event};
use raid::{FailError, MemberState, ReplaceError};
use shard::World;
use std::pin::pin;
use std::rc::Rc;
use volume::{NewDisk, data_area};

/// Fails the member, as if the disk had died.
///
/// *Errors*: it has failed already, or its group cannot serve without it. *Durability*: when it returns.
pub(crate) async fn fail_disk<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    disk: DiskId,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    let (group, member) = pool.place(disk)?;
    MemberSlot { pool: &pool, group, member }.fail().await?;
    Ok(pool.report())
}

/// Puts `candidate` into the slot of the member `lost` and starts its rebuild. For a disk of a log device without which
/// the pool was opened, takes the log up again instead; volumes that waited for it serve then, and their reports are
/// returned.
///
/// *Durability*: when it returns.
pub(crate) async fn replace_disk<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    lost: DiskId,
    candidate: Candidate,
    force: bool,
) -> Result<(PoolReport, Vec<VolumeReport>), Refusal> {
    let pool = find(&shard, &pool)?;
    if pool.awaits(lost) {
        let shown = LogReattach { pool: &pool, candidate }.reattach().await?;
        return Ok((pool.report(), shown));
    }
    let (group, member) = pool.place(lost)?;
    let (state, place) = (&pool.groups[group], MemberSlot { pool: &pool, group, member });
    pool.admit_change_of_members(group)?;
    let takes_part = !matches!(pool.member_state(group, member), MemberState::Failed | MemberState::Missing);
    if takes_part && !force {
        let message = format!("disk {} of pool {} is healthy", pool.disk_name(group, member), pool.name);
        let hint = "fail it first with `blockyard disk fail`, or repeat with --force";
        return Err(Refusal::new(code::DISK_HEALTHY, message, hint));
    }
    // A healthy member is not given up for a disk that cannot take its slot.
    let opened = if takes_part { Some(place.open_replacement(&candidate, force).await?) } else { None };
    if takes_part {
        place.fail().await?;
    }
    // A failed disk may be its own replacement: it must be closed before it is opened again.
    state.array.drop_device(member);
    state.slots.borrow_mut()[usize::from(member)].disk = None;
    pool.pool.members().release(uuid(lost));
    let disk = match opened {
        Some(disk) => disk,
        None => place.open_replacement(&candidate, force).await?,
    };
    let found = place.member_on(&disk).await;
    // With `force` the disk is taken as it is: overwriting data of another part of the pool was accepted.
    if let Some(found) = found.as_ref().filter(|_| !force) {
        place.admit_return(found, candidate.name.as_str())?;
    }
    // The former member itself: a protected array knows what it has missed and rebuilds only that.
    if state.array.is_protected() && found.is_some() {
        state.slots.borrow_mut()[usize::from(member)].name = Some(candidate.name.clone());
        place.readmit(&disk).await.map_err(|error| refusal(&error, &pool))?;
        pool.start_repair(group);
        return Ok((pool.report(), Vec::new()));
    }
    assert!(state.slots.borrow()[usize::from(member)].id == lost, "a disk has its place until another one gets it");
    let id = new_uuid(&shard.world);
    let replacement = NewDisk { id, device: disk.clone() };
    let members = pool.pool.members();
    let replaced = members.replace(uuid(lost), replacement, shard.world.unix_seconds(), CREATED_BY, force);
    replaced.await.map_err(|error| refusal(&error, &pool))?;
    // The new disk must be behind the fence before the array writes to it.
    pool.ownership_guard.cover(&disk);
    state.slots.borrow_mut()[usize::from(member)] = Slot::of(id, &candidate, &disk);
    let window = open::window::<W>(&disk, state.array.member_blocks()).expect("the pool has admitted the disk");
    // A new disk has missed everything, whatever was recorded for its predecessor.
    state.to_fill.borrow_mut().remove(&member);
    state.array.replace(member, window).map_err(|error| replace_refusal(&error))?;
    state.array.reset_error_counters(member);
    tracing::info!(pool = %pool.name, disk = %candidate.name, "a member is being rebuilt");
    pool.start_repair(group);
    Ok((pool.report(), Vec::new()))
}

/// Reads the member in a blinking pattern for `seconds`, or until the pool is closed.
///
/// *Errors*: `DISK_MISSING` if it is not attached.
pub(crate) async fn blink<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    disk: DiskId,
    seconds: u64,
) -> Result<(), Refusal> {
    let pool = find(&shard, &pool)?;
    let (group, member) = pool.place(disk)?;
    let device = pool.groups[group].slots.borrow()[usize::from(member)].disk.clone();
    let device = device.ok_or_else(|| {
        let message = format!("disk {} is not attached", pool.disk_name(group, member));
        Refusal::new(code::DISK_MISSING, message, "look for the slot with no activity light")
    })?;
    // Not awaited: the order returns at once and the blinking goes on.
    shard.world.clone().spawn(async move {
        let blinking = pin!(locate::blink(&shard.world, &device, seconds));
        select(blinking, pin!(pool.halt.raised())).await;
    });
    Ok(())
}

impl<W: World> OpenPool<W> {
    /// Reports a member that failed or that an operator takes out.
    pub(super) fn tell_of_failure(&self, group: usize, member: u16, error: IoError) {
        let (disk, pool) = (self.disk_name(group, member), &self.name);
        let subject = Subject::new(SubjectKind::Disk, &disk);
        // A silent disk gets an event of its own: it may return by itself.
        if error.kind == IoErrorKind::TimedOut {
            let sentence = format!(
                "disk {disk} of pool {pool} does not respond; the pool continues without it until it responds again"
            );
            self.shard.raise(event::DISK_BEHIND, subject, sentence);
        } else if self.taking_out.get() == Some(self.groups[group].slots.borrow()[usize::from(member)].id) {
            self.shard.raise(event::DISK_OUT, subject, format!("disk {disk} removed from pool {pool}"));
        } else {
            let sentence = format!("disk {disk} of pool {pool} has failed and is no longer used: {error}");
            self.shard.raise(event::DISK_FAILED, subject, sentence);
        }
    }

    pub(super) fn place(&self, disk: DiskId) -> Result<(usize, u16), Refusal> {
        self.place_of(disk).ok_or_else(|| {
            let groups = self.pool.status().groups;
            // The log device is in the catalog, but its group was not assembled.
            if groups.iter().flat_map(|group| &group.record.members).any(|member| member.disk == uuid(disk)) {
                let message =
                    format!("pool {} was opened without its log device, and this disk belongs to it", self.name);
                return Refusal::new(code::LOG_AWAY, message, "rejoin the disk with blockyard disk replace DISK DISK");
            }
            let message = format!("no disk of pool {} has the identity {disk}", self.name);
            Refusal::new(code::DISK_NOT_MEMBER, message, "`blockyard pool show` lists its members")
        })
    }

    /// Name of the disk in a slot.
    pub(super) fn disk_name(&self, group: usize, member: u16) -> String {
        self.groups[group].slots.borrow()[usize::from(member)].called()
    }

    pub(super) fn member_state(&self, group: usize, member: u16) -> MemberState {
        let members = self.groups[group].array.status().members;
        // A slot beyond the members of the array is one that is just being added.
        members.get(usize::from(member)).map_or(MemberState::Missing, |member| member.state)
    }
}

impl<W: World> MemberSlot<'_, W> {
    /// Opens a replacement, and admits its size and that no other node writes to it.
    pub(super) async fn open_replacement(&self, candidate: &Candidate, force: bool) -> Result<Disk<W>, Refusal> {
        let group = self.group;
        let disk = array::open_disk(&self.pool.shard, &candidate.path).await?;
        // Checked before anything is written to the disk.
        let needed = self.pool.groups[group].array.member_blocks();
        if data_area(disk.geometry().blocks).is_none_or(|area| area.len < needed) {
            let (size, least) = (Size::new(disk.geometry().bytes()), disk_size_for(needed));
            let message = format!(
                "disk {} ({}) is too small for group {group} of pool {}",
                candidate.name,
                size.iec_rounded(false),
                self.pool.name
            );
            return Err(Refusal::new(
                code::DISK_TOO_SMALL,
                message,
                format!("use a disk of at least {}", least.iec_rounded(true)),
            ));
        }
        if force {
            let disks = [(candidate.name.clone(), disk.clone())];
            Overwriting { disks: &disks, pool: Some(self.pool.pool.id()), node: None }.admit(&self.pool.shard).await?;
        }
        Ok(disk)
    }

    async fn fail(&self) -> Result<(), Refusal> {
        let Self { group, member, .. } = *self;
        let disk = self.pool.disk_name(group, member);
        // A member that is being added has no place in the array yet.
        if usize::from(member) >= self.pool.groups[group].array.status().members.len() {
            let message = format!("disk {disk} is still joining pool {}", self.pool.name);
            return Err(Refusal::new(code::POOL_BUSY, message, "wait until the reshape has finished"));
        }
        let (id, answering) = {
            let slots = self.pool.groups[group].slots.borrow();
            let slot = &slots[usize::from(member)];
            (slot.id, slot.responsiveness.clone())
        };
        if answering.is_behind() {
            // The array has given it up already; the watchdog must not take it back from now on.
            let recorded = self.pool.pool.members().set_state(uuid(id), volume::MemberState::Failed).await;
            recorded.map_err(|error| refusal(&error, self.pool))?;
            answering.give_up_waiting();
            note_membership(self.pool);
            return Ok(());
        }
        // Tells `record_failure` that this is no failure of the disk but an order, for the event.
        assert!(self.pool.taking_out.replace(Some(id)).is_none(), "one disk is taken out at a time");
        let failed = self.pool.groups[group].array.fail(member).await;
        self.pool.taking_out.set(None);
        failed.map_err(|error| match error {
            FailError::NotInService(_) => Refusal::new(
                code::DISK_FAILED_ALREADY,
                format!("disk {disk} of pool {} has already failed", self.pool.name),
                "replace it with `blockyard disk replace`",
            ),
            FailError::Needed(_) => Refusal::new(
                code::POOL_WOULD_FAIL,
                format!("pool {} has no redundancy left and needs disk {disk}", self.pool.name),
                "replace the failed disks and wait for the rebuild",
            ),
            FailError::NoSuchMember(_) | FailError::NotRecorded(_) => {
                Refusal::new(code::POOL_FAILED, format!("disk {disk} of pool {}: {error}", self.pool.name), "")
            }
        })
    }
}

fn replace_refusal(error: &ReplaceError) -> Refusal {
    match error {
        ReplaceError::Unfit(error) => array_refusal(error),
        ReplaceError::NoSuchMember(_) | ReplaceError::InUse(_) | ReplaceError::Reshaping => {
            Refusal::new(code::POOL_BUSY, error.to_string(), "wait until the rebuild has finished")
        }
    }
}
