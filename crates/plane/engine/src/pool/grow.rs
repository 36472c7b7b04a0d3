//! Growth of groups whose disks were replaced by larger ones, while the pool is in use.
//!
//! The array grows first and records that in its own metadata; then the catalog of the pool takes the new size and
//! hands out the slabs. A crash between the two steps is finished when the pool is opened.

use super::create::member_blocks;
use super::member_copy;
use super::refusals::{grow_refusal, refusal};
use super::report::disk_size_for;
use super::{OpenPool, find};
use crate::shard_context::ShardContext;
use block::Blocks;
use model::{MemberSize, Name, PoolReport, Refusal, Size, Subject, code, event};
use shard::World;
use std::rc::Rc;
use volume::GroupRole;

/// Grows the group to the size of its disks, or every group that can grow if none is named.
///
/// *Errors*: `GROUP_UNKNOWN`, `GROUP_FULL_SIZE`, `GROUP_FIXED`, `POOL_BUSY`, with nothing changed. *Durability*: when
/// it returns; a crash before leaves each group at its old or its new size.
pub(crate) async fn grow<W: World>(
    shard: Rc<ShardContext<W>>,
    pool: Name,
    group: Option<u16>,
    how: MemberSize,
) -> Result<PoolReport, Refusal> {
    let pool = find(&shard, &pool)?;
    pool.admit_own("grow it there")?;
    let of = |group| Growth { pool: &pool, group };
    let groups: Vec<usize> = match group {
        Some(group) => vec![usize::from(group)],
        None => pool.groups.iter().map(|(group, _)| group).filter(|&group| of(group).room(how).is_ok()).collect(),
    };
    if groups.is_empty() {
        // The reason of the first group is reported; other groups may have other reasons.
        return Err(of(0).room(how).err().unwrap_or_else(|| of(0).none_left()));
    }
    for group in groups {
        // One after the other: an error leaves the groups before it grown, which is a valid state.
        of(group).grow(how).await?;
    }
    Ok(pool.report())
}

impl<W: World> OpenPool<W> {
    /// Finishes growths that a crash interrupted between the array and the catalog.
    pub(super) async fn finish_growth(&self) {
        for (group, status) in self.pool.status().groups.iter().enumerate() {
            let Some(array) = self.groups.get(group).map(|group| &group.array) else { continue };
            let (member_blocks, blocks) = (array.member_blocks(), array.layout().blocks());
            let slabs = self.pool.admit_growth(number(group), member_blocks, blocks);
            let is_all = member_blocks == status.record.member_blocks && slabs == Ok(status.record.slabs);
            // Only protected data groups can grow, so only these can be left half way.
            if is_all || !array.is_protected() || status.record.role != GroupRole::Data {
                continue;
            }
            match (Growth { pool: self, group }).take_room().await {
                Ok(()) => tracing::info!(pool = %self.name, group, "a growth that was cut short is finished"),
                // Tried again at the next opening; until then the group serves with its former size.
                Err(refusal) => tracing::error!(pool = %self.name, group, %refusal, "a growth cannot be finished"),
            }
        }
    }
}

/// Growth of a group of an open pool.
pub(super) struct Growth<'a, W: World> {
    pub(super) pool: &'a OpenPool<W>,
    pub(super) group: usize,
}

impl<W: World> Growth<'_, W> {
    /// Blocks per member after growth, and the space that the pool would gain.
    ///
    /// *Errors*: the reason why the group cannot grow.
    pub(super) fn room(&self, how: MemberSize) -> Result<(Blocks, Size), Refusal> {
        let group = self.group;
        let state = self.pool.groups.get(group).ok_or_else(|| {
            let message = format!("pool {} has no group {group}", self.pool.name);
            Refusal::new(code::GROUP_UNKNOWN, message, "`blockyard pool show` lists its groups")
        })?;
        if self.pool.pool.group(number(group)).is_none() {
            let message = format!("group {group} of pool {} cannot hold volumes", self.pool.name);
            return Err(Refusal::new(code::GROUP_FIXED, message, "choose a group that holds volumes"));
        }
        if !state.array.is_protected() {
            let message = format!("group {group} of pool {} keeps no checksums and no log", self.pool.name);
            return Err(Refusal::new(code::GROUP_FIXED, message, "add a group with blockyard pool add-group"));
        }
        member_copy::admit_change_of_shape(self.pool, group)?;
        // The smallest disk decides.
        let least = state.slots.borrow().iter().map(|slot| slot.room).min().unwrap_or_default();
        let room = member_blocks(how, disk_size_for(least))?;
        if room <= state.array.member_blocks() {
            return Err(self.none_left());
        }
        let would_have = state.array.blocks_with(room).map_err(|error| grow_refusal(&error, self.pool, group))?;
        let slabs =
            self.pool.pool.admit_growth(number(group), room, would_have).map_err(|error| refusal(&error, self.pool))?;
        let record = &self.pool.pool.status().groups[group].record;
        assert!(slabs >= record.slabs, "a group that grows keeps its slabs");
        // Space is handed out in whole slabs; less than one slab gains nothing.
        let gained = u64::from(slabs - record.slabs) * u64::from(record.slab_blocks);
        if gained == 0 {
            return Err(self.none_left());
        }
        Ok((room, Size::new(Blocks(gained).bytes(volume::BLOCK_BYTES))))
    }

    /// Refusal of a growth for lack of space, naming the smallest disk.
    fn none_left(&self) -> Refusal {
        let group = self.group;
        let slots = self.pool.groups[group].slots.borrow();
        let least = slots.iter().min_by_key(|slot| slot.room);
        let disk = least.map_or_else(String::new, |slot| format!(": disk {} has no more space", slot.called()));
        let message = format!("group {group} of pool {} already uses the full size of its disks{disk}", self.pool.name);
        let hint = "replace every disk of the group with a larger one (blockyard disk replace), wait for each \
             rebuild, then grow";
        Refusal::new(code::GROUP_FULL_SIZE, message, hint)
    }

    async fn grow(&self, how: MemberSize) -> Result<(), Refusal> {
        let group = self.group;
        let (room, _) = self.room(how)?;
        let before = self.pool.pool.status().bytes;
        // Array first: the catalog must never hand out slabs that the array does not have.
        self.pool.groups[group].array.grow(room).await.map_err(|error| grow_refusal(&error, self.pool, group))?;
        // If the daemon ends before this is done, the next opening does it (`finish_growth`).
        self.take_room().await?;
        let after = self.pool.pool.status().bytes;
        assert!(after >= before, "a pool with larger members is not smaller");
        let gained = Size::new(after - before);
        let sentence = format!(
            "group {group} of pool {} expanded to the full size of its disks, {} more",
            self.pool.name,
            gained.iec()
        );
        tracing::info!("{sentence}");
        self.pool.shard.raise(event::POOL_GREW, Subject::pool(&self.pool.name), sentence);
        Ok(())
    }

    /// Lets the catalog hand out all space of the group's array.
    pub(super) async fn take_room(&self) -> Result<(), Refusal> {
        let group = self.group;
        let member_blocks = self.pool.groups[group].array.member_blocks();
        let taken = self.pool.pool.grow_group(number(group), member_blocks).await;
        taken.map(drop).map_err(|error| refusal(&error, self.pool))
    }
}

/// Number of a group in the catalog.
pub(super) fn number(group: usize) -> u16 {
    u16::try_from(group).expect("a pool has at most 64 groups")
}
