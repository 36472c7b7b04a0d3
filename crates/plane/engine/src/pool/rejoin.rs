//! Members that come back to their places: what they have missed is written to them, and no more where sums say what that is.

use super::{DiskId, OpenPool, Slot, disk_id, open, uuid};
use crate::array::Disk;
use model::{Refusal, Subject, SubjectKind, code, event};
use shard::World;
use std::rc::Rc;
use volume::{Contents, Member, PoolError};

/// One place of a group of an open pool.
pub(super) struct Place<'a, W: World> {
    pub(super) pool: &'a Rc<OpenPool<W>>,
    pub(super) group: usize,
    pub(super) member: u16,
}

impl<W: World> Place<'_, W> {
    /// Which disk belongs there.
    fn id(&self) -> DiskId {
        self.pool.groups[self.group].slots.borrow()[usize::from(self.member)].id
    }

    /// The member was being filled when the pool was last open: that goes on.
    pub(super) async fn resume_rebuild(&self, disk: &Disk<W>) {
        if self.fill(disk).await {
            self.pool.start_repair(self.group);
        }
    }

    /// The disk, which was away, is in its place again and gets what it has missed; unless it is not as it left.
    pub(super) async fn let_return(&self, disk: &Disk<W>) {
        let Self { group, member, .. } = *self;
        match self.readmit(disk).await {
            Ok(()) => self.pool.start_repair(group),
            Err(error) => {
                tracing::warn!(pool = %self.pool.name, group, member, %error, "a disk that was away is not taken back")
            }
        }
    }

    /// The disk, which bears the label of the member that it was, takes part again and waits to be filled.
    pub(super) async fn readmit(&self, disk: &Disk<W>) -> Result<(), PoolError> {
        let Self { group, member, .. } = *self;
        let id = self.id();
        self.pool.guarding.cover(disk);
        self.pool.pool.members().readmit(uuid(id), disk.clone()).await?;
        let room = open::room(&volume::probe(disk).await);
        let take = |slot: &mut Slot<W>| {
            (slot.disk, slot.room) = (Some(disk.clone()), room);
            slot.answering.renew();
        };
        take(&mut self.pool.groups[group].slots.borrow_mut()[usize::from(member)]);
        if self.fill(disk).await {
            let (name, pool) = (self.pool.disk_name(group, member), &self.pool.name);
            let sentence = format!("disk {name} of pool {pool} was away and is back; it gets what it has missed");
            self.pool.shard.raise(event::DISK_RETURNED, Subject::new(SubjectKind::Disk, &name), sentence);
        }
        Ok(())
    }

    /// What the disk bears as the member that belongs there; none where it is another one.
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

    /// Admits that the disk, which bears `member`, gets what the pool has.
    ///
    /// *Errors*: `POOL_SPLIT` where it was written without disks that the pool counts on.
    pub(super) fn admit_return(&self, member: &Member, name: &str) -> Result<(), Refusal> {
        if !self.pool.pool.members().was_written_apart(member) {
            return Ok(());
        }
        let message = format!(
            "disk {name} was written without the other disks of pool {0} since pool {0} went on without it; to take it back would overwrite that",
            self.pool.name
        );
        let sentence = format!(
            "disk {name} is not taken back into pool {}: it was written without its other disks",
            self.pool.name
        );
        self.pool.shard.raise(event::DISK_LEFT_OUT, Subject::new(SubjectKind::Disk, &name), sentence);
        let hint = format!(
            "to keep what is on it, export the pool, detach its other disks and import it; to give that up, run blockyard disk replace {name} {name} --force"
        );
        Err(Refusal::new(code::POOL_SPLIT, message, hint))
    }

    /// The disk is in the place of the member and waits for its rebuild: of what it has missed where it is as it left, else
    /// of everything.
    async fn fill(&self, disk: &Disk<W>) -> bool {
        let Self { group, member, .. } = *self;
        let state = &self.pool.groups[group];
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
        match state.array.replace(member, second) {
            Ok(()) => true,
            Err(error) => {
                tracing::error!(pool = %self.pool.name, group, %error, "a rebuild cannot go on");
                false
            }
        }
    }
}
