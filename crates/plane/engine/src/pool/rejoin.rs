//! Members that return to their slots: only what they have missed is written to them, where checksums tell what that
//! is.

use super::{DiskId, OpenPool, Slot, disk_id, open, uuid};
use crate::array::Disk;
use model::{Refusal, Subject, SubjectKind, code, event};
use shard::World;
use std::rc::Rc;
use volume::{Contents, Member, PoolError};

/// One slot of a group of an open pool.
pub(super) struct MemberSlot<'a, W: World> {
    pub(super) pool: &'a Rc<OpenPool<W>>,
    pub(super) group: usize,
    pub(super) member: u16,
}

impl<W: World> MemberSlot<'_, W> {
    /// Identity of the disk that belongs in the slot.
    fn id(&self) -> DiskId {
        self.pool.groups[self.group].slots.borrow()[usize::from(self.member)].id
    }

    /// Continues the rebuild that ran when the pool was last open.
    pub(super) async fn resume_rebuild(&self, disk: &Disk<W>) {
        if self.fill(disk).await {
            self.pool.start_repair(self.group);
        }
    }

    /// Takes the returned disk back into its slot and lets it catch up, unless the catalog refuses it.
    pub(super) async fn let_return(&self, disk: &Disk<W>) {
        let Self { group, member, .. } = *self;
        match self.readmit(disk).await {
            Ok(()) => self.pool.start_repair(group),
            Err(error) => {
                tracing::warn!(pool = %self.pool.name, group, member, %error, "a disk that was away is not taken back")
            }
        }
    }

    /// Readmits the disk, which has the label of the member, and prepares its rebuild.
    pub(super) async fn readmit(&self, disk: &Disk<W>) -> Result<(), PoolError> {
        let Self { group, member, .. } = *self;
        let id = self.id();
        // The disk must be behind the fence before anything is written to it.
        self.pool.ownership_guard.cover(disk);
        self.pool.pool.members().rejoin(uuid(id), disk.clone()).await?;
        // The label says how much of the disk the array may use.
        let room = open::room(&volume::probe(disk).await);
        let take = |slot: &mut Slot<W>| {
            (slot.disk, slot.room) = (Some(disk.clone()), room);
            slot.responsiveness.renew();
        };
        take(&mut self.pool.groups[group].slots.borrow_mut()[usize::from(member)]);
        if self.fill(disk).await {
            let (name, pool) = (self.pool.disk_name(group, member), &self.pool.name);
            let sentence =
                format!("disk {name} of pool {pool} is available again; resync of its missed writes started");
            self.pool.shard.raise(event::DISK_RETURNED, Subject::new(SubjectKind::Disk, &name), sentence);
        }
        Ok(())
    }

    /// Label of the disk, if it is the member that belongs in the slot.
    pub(super) async fn member_on(&self, disk: &Disk<W>) -> Option<Box<Member>> {
        let id = self.id();
        match volume::probe(disk).await.contents {
            Contents::Member(member) => {
                let of_pool = member.label.pool.into_bytes() == self.pool.id.to_bytes();
                let is_the_member = of_pool && member.overwritten.is_none() && disk_id(member.label.disk) == id;
                is_the_member.then_some(member)
            }
            _ => None,
        }
    }

    /// Admits overwriting the disk, whose label is `member`, with the content of the pool.
    ///
    /// *Errors*: `POOL_SPLIT` if it was written without disks that the pool counts on.
    pub(super) fn admit_return(&self, member: &Member, name: &str) -> Result<(), Refusal> {
        if !self.pool.pool.members().is_diverged_and_written(member) {
            return Ok(());
        }
        let message = format!(
            "disk {name} was written separately while pool {0} continued without it; rejoining it would overwrite \
             those writes",
            self.pool.name
        );
        let sentence =
            format!("disk {name} cannot rejoin pool {}: it was written without the other disks", self.pool.name);
        self.pool.shard.raise(event::DISK_LEFT_OUT, Subject::new(SubjectKind::Disk, &name), sentence);
        let hint = format!(
            "to keep its data, export the pool, detach the other disks and import it; to discard its data, run \
             blockyard disk replace {name} {name} --force"
        );
        Err(Refusal::new(code::POOL_SPLIT, message, hint))
    }

    /// Puts the disk into the slot for its rebuild: of the missed stripes if the disk is as it left, otherwise of
    /// everything.
    async fn fill(&self, disk: &Disk<W>) -> bool {
        let Self { group, member, .. } = *self;
        let state = &self.pool.groups[group];
        // Two windows, because the first one is consumed even if the array refuses the disk.
        let window = || open::window::<W>(disk, state.array.member_blocks());
        let (Some(first), Some(second)) = (window(), window()) else { return false };
        match state.array.rejoin(member, first).await {
            Ok(missed) => {
                state.to_fill.borrow_mut().insert(member, missed);
                return true;
            }
            Err(error) => {
                tracing::info!(pool = %self.pool.name, group, member, %error, "a member is filled from the beginning")
            }
        }
        // The array does not recognize its metadata, so the disk is rebuilt like a new one.
        match state.array.replace(member, second) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(pool = %self.pool.name, group, %error, "a rebuild cannot continue");
                false
            }
        }
    }
}
