//! Reports of the pools of a shard.

use super::grow::Growth;
use super::losses::LostList;
use super::member_copy;
use super::work::{Work, WorkKind};
use super::{GroupState, OpenPool, Slot};
use crate::array;
use crate::shard_context::ShardContext;
use block::Blocks;
use model::{
    DiskCounters, DiskName, GroupReport, LogState, MemberReport, MemberSize, MemberState, PoolPolicy, PoolReport,
    PoolState, Size, TaskStage,
};
use raid::MemberState as InArray;
use shard::World;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// Reports of all pools at home here.
pub(crate) fn reports<W: World>(shard: &ShardContext<W>) -> Vec<PoolReport> {
    shard.pools.borrow().values().map(|pool| pool.report()).collect()
}

/// Counters of the member disks of all pools at home here.
pub(crate) fn disk_counters<W: World>(shard: &ShardContext<W>) -> BTreeMap<DiskName, DiskCounters> {
    let mut counters = BTreeMap::new();
    for pool in shard.pools.borrow().values() {
        for slot in pool.slots() {
            if let (Some(name), Some(disk)) = (slot.name, slot.disk) {
                counters.insert(name, array::counted(&disk).counters());
            }
        }
    }
    counters
}

/// Smallest disk whose data area has `member_blocks`.
pub(super) fn disk_size_for(member_blocks: Blocks) -> Size {
    let block = u64::from(volume::BLOCK_BYTES);
    let holds = |bytes: u64| volume::data_area(Blocks(bytes / block)).is_some_and(|area| area.len >= member_blocks);
    let mib = 1 << 20;
    let mut bytes = (member_blocks.bytes(volume::BLOCK_BYTES).next_multiple_of(mib)).max(volume::DISK_BYTES_MIN);
    // Labels and catalogs take a few MiB beside the data area, whatever the size of the disk.
    while !holds(bytes) {
        bytes += mib;
    }
    Size::new(bytes)
}

/// True for a pool that is reported as failed: a group has stopped, or it is fenced.
pub(super) fn is_reported_failed<W: World>(pool: &OpenPool<W>) -> bool {
    pool.report().state == PoolState::Failed
}

impl<W: World> OpenPool<W> {
    /// Report of the pool.
    pub fn report(&self) -> PoolReport {
        let space = self.pool.space();
        let log_group = self.pool.write_log().group().map(usize::from);
        // The group of the log device is reported with the log.
        let data = self.groups.iter().map(|(number, _)| number).filter(|number| Some(*number) != log_group);
        let groups: Vec<GroupReport> = data.map(|number| self.group_report(number)).collect();
        let log = self.log_report();
        // Volumes serve whatever the state of the log, but with less protection: at most degraded.
        let of_log = log.as_ref().filter(|log| log.state == LogState::Ready);
        let of_log = of_log.map(|log| log.group.state.min(PoolState::Degraded));
        PoolReport {
            name: self.name.clone(),
            id: self.id,
            state: groups
                .iter()
                .map(|group| group.state)
                .chain(of_log)
                .max()
                .filter(|_| !self.is_fenced())
                .unwrap_or(PoolState::Failed),
            size: Size::new(space.bytes),
            used: Size::new(space.bytes - space.free_bytes),
            space: self.space_state(space),
            volumes: u32::try_from(space.volumes).unwrap_or(u32::MAX),
            groups,
            log,
            spares: Vec::new(),
            policy: PoolPolicy { repair: self.maintenance.repair_policy(), ..PoolPolicy::default() },
            weak_enclosures: Vec::new(),
            next_scrub: None,
            lost: LostList(self).report(),
            fenced: self.loss(),
            read_only: self.read_only.get().cloned(),
            imported_read_only: false,
            scrub: self.maintenance.scrub.report(self.shard.world.now()),
            waiting: None,
        }
    }

    /// Stage at which commands in the pool wait, and the disk with the most operations in flight.
    pub fn where_commands_wait(&self) -> (TaskStage, Option<DiskName>) {
        let is_filled = |group: &GroupState<W>| group.work.get().is_some_and(|work| work.kind() == WorkKind::Rebuild);
        if self.groups.iter().any(|(_, group)| is_filled(group)) {
            return (TaskStage::Rebuild, None);
        }
        let under_way = |slot: Slot<W>| Some((array::counted(&slot.disk?).under_way(), slot.name));
        let busiest = self
            .slots()
            .into_iter()
            .filter_map(under_way)
            .filter(|(count, _)| *count > 0)
            .max_by_key(|(count, _)| *count);
        busiest.map_or((TaskStage::Running, None), |(_, disk)| (TaskStage::Disk, disk))
    }

    pub(super) fn group_report(&self, number: usize) -> GroupReport {
        let group = &self.groups[number];
        let status = group.array.status();
        let slots = group.slots.borrow();
        let number_of_group = number;
        let joining = group.joining.get().then(|| slots.len() - 1);
        let members = slots.iter().enumerate().zip(0..).map(|((at, slot), number)| MemberReport {
            slot: number,
            id: slot.id,
            disk: slot.name.clone(),
            state: match status.members.get(at).map(|member| member.state) {
                // The last slot of a group that is being expanded is not a member of the array yet.
                _ if joining == Some(at) => MemberState::Joining,
                Some(InArray::InService) => MemberState::InSync,
                Some(InArray::Rebuilding { .. }) => MemberState::Rebuilding,
                Some(InArray::Failed | InArray::Missing) if slot.responsiveness.is_behind() => {
                    MemberState::NotResponding
                }
                Some(InArray::Failed) => MemberState::Failed,
                // A disk without a name was never found; one with a name was there and has failed.
                Some(InArray::Missing) | None if slot.name.is_some() => MemberState::Failed,
                Some(InArray::Missing) | None => MemberState::Missing,
            },
            errors: status.members.get(at).map_or(0, |member| member.errors),
            checksum_errors: self.findings.wrong_blocks(slot.id),
            replaces: slot.stands_for.clone(),
            errors_24h: slot.errors.of_day(),
            health: slot.errors.judge(self.shard.world.now(), &self.maintenance.repair_policy().errors),
            copy: member_copy::report(self, number_of_group, number),
            next_spare: None,
            latency: slot.disk.as_ref().map(|disk| slot.responsiveness.report(disk)),
        });
        let members: Vec<MemberReport> = members.collect();
        let has = |state: MemberState| members.iter().any(|member| member.state == state);
        // The worst condition decides.
        let state = if status.stopped.is_some() {
            PoolState::Failed
        } else if members.iter().any(|member| member.state.is_lost()) {
            PoolState::Degraded
        } else if has(MemberState::Rebuilding) {
            PoolState::Rebuilding
        } else {
            PoolState::Healthy
        };
        let now = self.shard.world.now();
        let progress_of =
            |kind| group.work.get().filter(|work| work.kind() == kind).map(|work: Work| work.progress(now));
        let (rebuild, resync) = (progress_of(WorkKind::Rebuild), progress_of(WorkKind::Resync));
        // A rebuild that is queued is reported as well, so that a client that waits for its end does not take it for
        // finished.
        let waits = group.repairing.get() && has(MemberState::Rebuilding);
        let rebuild = rebuild.or_else(|| waits.then(|| self.begin(number, WorkKind::Rebuild).progress(now)));
        let member_size = disk_size_for(group.array.member_blocks());
        GroupReport {
            number: u16::try_from(number).expect("a pool has at most 64 groups"),
            level: group.level,
            chunk: group.chunk,
            integrity: group.array.is_protected(),
            member_size,
            state,
            members,
            rebuild,
            resync,
            reshape: self.groups[number].is_expanding().then(|| self.reshape_work(number).progress(now)),
            growth: Growth { pool: self, group: number }.room(MemberSize::default()).ok().map(|(_, gain)| gain),
        }
    }

    /// Subscribes to failed commits: a disk that missed a commit of the catalog is failed in its array, too.
    pub(super) fn subscribe_to_failures(self: &Rc<Self>) {
        let weak: Weak<Self> = Rc::downgrade(self);
        self.pool.members().on_failed(move |disk, error| {
            let Some(pool) = weak.upgrade() else { return };
            let Some((group, member)) = pool.place_of(super::disk_id(disk)) else { return };
            let disk = pool.disk_name(group, member);
            tracing::warn!(pool = %pool.name, group, disk, %error, "a disk missed a commit of the catalog");
            let inner = pool.clone();
            pool.shard.world.spawn(async move {
                // The array may have failed it first; then it is not in service and the call returns an error.
                if let Err(error) = inner.groups[group].array.fail(member).await {
                    tracing::debug!(pool = %inner.name, %error, "a disk that missed a commit");
                }
            });
        });
    }
}
