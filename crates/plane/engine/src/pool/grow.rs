//! Groups whose disks were replaced by larger ones: they use the new room, while hosts use the pool.
//!
//! The array grows first and keeps that in its own record; then the catalog of the pool says so, and gives the new
//! slabs out. Opening a pool does what a crash between the two has left.

use super::create::member_blocks;
use super::refusals::{grow_refusal, refusal};
use super::report::disk_size_for;
use super::{OpenPool, find};
use crate::shard_context::ShardContext;
use block::Blocks;
use model::{MemberSize, Name, PoolReport, Refusal, Size, Subject, code, event};
use shard::World;
use std::rc::Rc;
use volume::GroupRole;

/// The group uses all of its disks, and volumes may lie there; every group that can when none is named.
///
/// *Errors*: `GROUP_UNKNOWN`, `GROUP_FULL_SIZE`, `GROUP_FIXED`, `POOL_BUSY`, with nothing changed. *Durability*: when it
/// returns; a crash before leaves each group as it was or as it is to be.
pub async fn grow<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    group: Option<u16>,
    how: MemberSize,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.admit_own("grow it there")?;
    let groups: Vec<usize> = match group {
        Some(group) => vec![usize::from(group)],
        None => pool.groups.iter().map(|(group, _)| group).filter(|&group| pool.growth(group, how).is_ok()).collect(),
    };
    if groups.is_empty() {
        // The first one tells why; there may be several reasons where there are several groups.
        return Err(pool.growth(0, how).err().unwrap_or_else(|| pool.no_room(0)));
    }
    for group in groups {
        pool.grow_group(group, how).await?;
    }
    Ok(pool.report())
}

impl<W: World> OpenPool<W> {
    /// How much of each disk the group would use if it grew now, and what the pool would gain.
    ///
    /// *Errors*: why it cannot.
    pub(super) fn growth(&self, group: usize, how: MemberSize) -> Result<(Blocks, Size), Refusal> {
        let state = self.groups.get(group).ok_or_else(|| {
            let message = format!("pool {} has no group {group}", self.name);
            Refusal::new(code::GROUP_UNKNOWN, message, "`blockyard pool show` numbers its groups")
        })?;
        if self.pool.group(number(group)).is_none() {
            let message = format!("no volume can lie on group {group} of pool {}", self.name);
            return Err(Refusal::new(code::GROUP_FIXED, message, "name a group of volumes"));
        }
        if !state.array.is_protected() {
            let message = format!("group {group} of pool {} keeps no checksums and no log", self.name);
            return Err(Refusal::new(
                code::GROUP_FIXED,
                message,
                "give the pool one more group with blockyard pool add-group",
            ));
        }
        self.admit_change_of_members(group)?;
        let least = state.slots.borrow().iter().map(|slot| slot.room).min().unwrap_or_default();
        let room = member_blocks(how, disk_size_for(least))?;
        if room <= state.array.member_blocks() {
            return Err(self.no_room(group));
        }
        let would_have = state.array.blocks_with(room).map_err(|error| grow_refusal(&error, self, group))?;
        let slabs = self.pool.admit_growth(number(group), room, would_have).map_err(|error| refusal(&error, self))?;
        let record = &self.pool.status().groups[group].record;
        let gained = u64::from(slabs - record.slabs) * u64::from(record.slab_blocks);
        if gained == 0 {
            return Err(self.no_room(group));
        }
        Ok((room, Size::new(Blocks(gained).bytes(volume::BLOCK_BYTES))))
    }

    /// The refusal of a growth for want of room, which names the disk that has least.
    fn no_room(&self, group: usize) -> Refusal {
        let slots = self.groups[group].slots.borrow();
        let least = slots.iter().min_by_key(|slot| slot.room);
        let disk = least.map_or_else(String::new, |slot| format!(": disk {} has no more room", slot.called()));
        let message = format!("group {group} of pool {} uses all that each of its disks has{disk}", self.name);
        let hint = "replace every disk of the group by a larger one with blockyard disk replace, wait for each rebuild, then grow";
        Refusal::new(code::GROUP_FULL_SIZE, message, hint)
    }

    async fn grow_group(&self, group: usize, how: MemberSize) -> Result<(), Refusal> {
        let (room, _) = self.growth(group, how)?;
        let before = self.pool.status().bytes;
        self.groups[group].array.grow(room).await.map_err(|error| grow_refusal(&error, self, group))?;
        self.take_room(group).await?;
        let gained = Size::new(self.pool.status().bytes - before);
        let sentence =
            format!("group {group} of pool {} uses all of its larger disks, {} more", self.name, gained.iec());
        tracing::info!("{sentence}");
        self.shard.raise(event::POOL_GREW, Subject::pool(&self.name), sentence);
        Ok(())
    }

    /// The pool gives out all that the group's array has.
    pub(super) async fn take_room(&self, group: usize) -> Result<(), Refusal> {
        let member_blocks = self.groups[group].array.member_blocks();
        let taken = self.pool.grow_group(number(group), member_blocks).await;
        taken.map(drop).map_err(|error| refusal(&error, self))
    }

    /// What arrays have grown by while the pool was used last is the pool's, where a crash came between.
    pub(super) async fn finish_growth(&self) {
        for (group, status) in self.pool.status().groups.iter().enumerate() {
            let Some(array) = self.groups.get(group).map(|group| &group.array) else { continue };
            let (member_blocks, blocks) = (array.member_blocks(), array.layout().blocks());
            let slabs = self.pool.admit_growth(number(group), member_blocks, blocks);
            let is_all = member_blocks == status.record.member_blocks && slabs == Ok(status.record.slabs);
            if is_all || !array.is_protected() || status.record.role != GroupRole::Data {
                continue;
            }
            match self.take_room(group).await {
                Ok(()) => tracing::info!(pool = %self.name, group, "a growth that was cut short is finished"),
                Err(refusal) => tracing::error!(pool = %self.name, group, %refusal, "a growth cannot be finished"),
            }
        }
    }
}

/// The place of a group in the catalog.
pub(super) fn number(group: usize) -> u16 {
    u16::try_from(group).expect("a pool has at most 64 groups")
}
