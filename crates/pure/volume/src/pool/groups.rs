//! Addition, growth and removal of groups while the pool is open.

use super::create::draft_group;
use super::thin::admit_emitted;
use super::{GroupPlan, Pool, Shared, WriteGate};
use crate::catalog::{
    Catalog, CatalogError, GROUPS_MAX, GroupRecord, GroupRole, LogRecord, MEMBERS_MAX, MemberRecord, MemberState,
};
use crate::error::PoolError;
use crate::layout::BLOCK_BYTES;
use crate::store::SINCE_NEXT;
use block::{BlockDevice, Blocks};
use uuid::Uuid;

/// Parameters for labeling the disks of a new group.
#[derive(Clone, Debug)]
pub struct LabelParams {
    /// Current time in seconds since 1970.
    pub now: u64,
    /// Program and version, for the labels.
    pub created_by: String,
    /// True when foreign content of the disks may be overwritten.
    pub force: bool,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Adds a group, served by `device`, on which volumes can be allocated; returns its index.
    ///
    /// *Durability*: when it returns; a crash before leaves the pool with or without the group, in the latter
    /// case with disks that the pool does not list and that can be added again. *Errors*: `Plan`, `MembershipChanging`,
    /// `BlockSize`, `DiskTooSmall`, `DiskKnown`, `DiskOfPool`, `DiskForeign`, `CatalogFull` before anything is
    /// written; `DiskFails`, `CatalogLost` after that.
    pub async fn add_group(&self, plan: GroupPlan<D>, device: G, labelling: LabelParams) -> Result<u16, PoolError> {
        let slab_bytes = self.shared.store.with_catalog(|catalog| catalog.slab_bytes);
        let block_bytes = device.geometry().block_bytes;
        if block_bytes != BLOCK_BYTES {
            return Err(PoolError::BlockSize { block_bytes });
        }
        // The pool's minimum slab size applies, rounded up to the stripes of this group.
        let record = draft_group(&plan, &device, slab_bytes)?;
        // Kept apart: the group is committed without slabs first.
        let slabs = record.slabs;
        let members = self.members();
        let _held = members.begin_membership_change()?;
        let place = members.add_group_disks(plan, record, labelling).await?;
        // The gate is set before the group has slabs, so that nothing is allocated on a group without one.
        self.shared.set_gate(place, device);
        self.set_slab_count(place, slabs).await?;
        Ok(place)
    }

    /// Adds all slabs for which the grown device has room, each member now contributing `member_blocks`;
    /// returns the number of new slabs.
    ///
    /// *Shape*: the array has grown already, durably. *Durability*: when it returns; after a crash before that
    /// the group has its old slabs. *Errors*: `GroupUnknown`; `Plan` when it would shrink or exceed a limit;
    /// `CatalogLost`.
    pub async fn grow_group(&self, group: u16, member_blocks: Blocks) -> Result<u32, PoolError> {
        let gate = self.shared.gate_of(group).ok_or(PoolError::GroupUnknown(group))?;
        let blocks = gate.device().geometry().blocks;
        let old = self.shared.store.with_catalog(|catalog| catalog.groups[usize::from(group)].slabs);
        let slabs = self.admit_growth(group, member_blocks, blocks)?;
        let ((), change) = self.shared.store.change(|catalog| {
            catalog.groups[usize::from(group)].member_blocks = member_blocks;
            Ok(())
        })?;
        // The size of the members is committed before slabs that need it.
        self.shared.store.committed(change).await?;
        self.set_slab_count(group, slabs).await?;
        Ok(slabs - old)
    }

    /// Number of slabs of the group if each member contributed `member_blocks` and its device had `blocks`:
    /// what [`Pool::grow_group`] admits once the array has grown. Changes nothing.
    ///
    /// *Errors*: `GroupUnknown`; `Plan` when it would shrink or exceed a limit.
    pub fn admit_growth(&self, group: u16, member_blocks: Blocks, blocks: Blocks) -> Result<u32, PoolError> {
        self.shared.store.with_catalog(|catalog| {
            let data = |group: &&GroupRecord| group.role == GroupRole::Data;
            let record = catalog.groups.get(usize::from(group)).filter(data).ok_or(PoolError::GroupUnknown(group))?;
            let slabs = u32::try_from(blocks.0 / u64::from(record.slab_blocks));
            // More slabs than 32 bits can count are refused by the check below, like any number beyond the limit.
            let grown = GroupRecord { member_blocks, slabs: slabs.unwrap_or(u32::MAX), ..record.clone() };
            // Volumes may occupy any slab, so a group never shrinks.
            if member_blocks < record.member_blocks || grown.slabs < record.slabs {
                return Err(PoolError::Plan("a group does not shrink"));
            }
            admit_group(catalog, group, &grown)?;
            Ok(grown.slabs)
        })
    }

    /// Completes additions of groups that a crash interrupted, and drops removed groups at the end of the list.
    pub(super) async fn finish_groups(&self) -> Result<(), PoolError> {
        let place = |at: usize| u16::try_from(at).expect("bounded by GROUPS_MAX");
        let (unfinished, removed) = self.shared.store.with_catalog(|catalog| {
            let groups = catalog.groups.iter().enumerate();
            let unfinished = groups.filter(|(_, group)| group.role == GroupRole::Data && group.slabs == 0);
            let unfinished: Vec<(u16, Blocks)> = unfinished.map(|(at, one)| (place(at), one.member_blocks)).collect();
            (unfinished, catalog.groups.last().is_some_and(|last| last.role == GroupRole::Removed))
        });
        for (group, member_blocks) in unfinished {
            // A group without slabs was committed and not completed: growing it to its own size gives it all of them.
            self.grow_group(group, member_blocks).await?;
        }
        if !removed {
            return Ok(());
        }
        let ((), change) = self.shared.store.change(|catalog| {
            // Only at the end: indices of other groups must not change.
            while catalog.groups.last().is_some_and(|last| last.role == GroupRole::Removed) {
                catalog.groups.pop();
            }
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }

    async fn set_slab_count(&self, group: u16, slabs: u32) -> Result<(), PoolError> {
        // Open families learn of the group before the allocator can give them its slabs.
        self.families.all_open().iter().for_each(|family| family.follow_groups());
        let ((), change) = self.shared.store.change(|catalog| {
            let record = &mut catalog.groups[usize::from(group)];
            // Concurrent growths may end in any order; a group never gives up slabs.
            record.slabs = record.slabs.max(slabs);
            Ok(())
        })?;
        self.shared.check_space_thresholds();
        self.shared.store.committed(change).await
    }
}

impl<D: BlockDevice + 'static, G> Shared<D, G> {
    fn set_gate(&self, place: u16, device: G) {
        let gate = self.store.with_catalog(|catalog| WriteGate::new(device, &catalog.groups[usize::from(place)]));
        let set = self.gates[usize::from(place)].set(gate);
        assert!(set.is_ok(), "numbers of groups are not used twice while a pool is open");
    }
}

impl GroupRecord {
    /// Creates the record of a new group.
    pub(super) fn of<D>(plan: &GroupPlan<D>, slab_blocks: u32, slabs: u32) -> Self {
        let (state, since) = (MemberState::InService, SINCE_NEXT);
        Self {
            id: plan.id,
            role: GroupRole::Data,
            level: plan.level,
            clean: true,
            protected: plan.protected,
            chunk_bytes: plan.chunk_bytes,
            member_blocks: plan.member_blocks,
            slab_blocks,
            slabs,
            members: plan.members.iter().map(|disk| MemberRecord { disk: disk.id, state, since }).collect(),
        }
    }

    /// Marks the group as removed; returns its disks.
    pub(super) fn remove(&mut self) -> Vec<Uuid> {
        // The size of a slab stays: the check of the catalog wants one of every group.
        (self.role, self.slabs) = (GroupRole::Removed, 0);
        std::mem::take(&mut self.members).into_iter().map(|member| member.disk).collect()
    }
}

/// Admits `record` at index `place`: the catalog stays consistent and can be committed whatever follows.
pub(super) fn admit_group(catalog: &Catalog, place: u16, record: &GroupRecord) -> Result<(), PoolError> {
    if usize::from(place) >= GROUPS_MAX || !(1..=MEMBERS_MAX).contains(&record.members.len()) {
        return Err(PoolError::Plan("a pool has at most 64 groups, and a group 1 to 64 disks"));
    }
    // Compared for a new group only: the members of an existing one are in the catalog already.
    if let Some(known) =
        record.members.iter().find(|one| place_is_new(catalog, place) && catalog.member(one.disk).is_some())
    {
        return Err(PoolError::DiskKnown(known.disk));
    }
    // The check runs on a copy of the catalog with the record in it.
    let mut with = catalog.clone();
    with.groups.truncate(usize::from(place));
    with.groups.push(record.clone());
    with.groups.extend(catalog.groups.iter().skip(usize::from(place) + 1).cloned());
    match with.check() {
        Ok(()) => {}
        Err(CatalogError::Damaged(what)) => return Err(PoolError::Plan(what)),
        Err(_) => return Err(PoolError::Plan("it exceeds a limit")),
    }
    // Room for a log record is left, so that a log can still be added.
    admit_emitted(&with, LogRecord::EMITTED_BYTES_MAX)
}

fn place_is_new(catalog: &Catalog, place: u16) -> bool {
    usize::from(place) == catalog.groups.len()
}
