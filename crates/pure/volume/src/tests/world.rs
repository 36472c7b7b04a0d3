//! Test bed: a pool of mirrors on recording disks, created, interrupted, and found again by the code under
//! test.

use super::disk::{Event, Image, Journal, SimDisk, block_on};
use super::mirror::Mirror;
use crate::{
    AssembledPool, Assembly, CreatePool, DiskState, GroupPlan, GroupRecord, GroupRole, LabelParams, MemberState,
    NewDisk, Pool, PoolError, PoolKey, PoolRefusal, Probe, Window, assemble, probe,
};
use block::{Blocks, Extent};
use std::rc::Rc;
use uuid::Uuid;

pub(crate) type Disk = Rc<SimDisk>;
pub(crate) type Group = Rc<Mirror<Disk>>;
pub(crate) type TestPool = Pool<Disk, Group>;

/// Size of a disk in blocks: 64 MiB.
pub(crate) const DISK_BLOCKS: u64 = 16384;
/// Size of a slab in blocks: 1 MiB.
pub(crate) const SLAB_BLOCKS: u64 = 256;
pub(crate) const STRIPE_BYTES: u32 = 64 << 10;

pub(crate) fn pool_id() -> Uuid {
    Uuid::from_u128(1)
}

/// Pool key of this node.
pub(crate) fn pool_key() -> PoolKey {
    PoolKey::of_pool(&[7; 32], pool_id())
}

pub(crate) fn disk_id(number: usize) -> Uuid {
    Uuid::from_u128(100 + number as u128)
}

pub(crate) fn volume_id(number: u64) -> Uuid {
    Uuid::from_u128(1000 + u128::from(number))
}

/// Disks of a machine.
pub(crate) struct World {
    pub(crate) disks: Vec<Disk>,
    pub(crate) journal: Journal,
}

/// Pool that was found and opened.
pub(crate) struct Opened {
    pub(crate) pool: TestPool,
    pub(crate) groups: Vec<Group>,
}

impl World {
    /// Disks whose operations take one executor turn each, so that concurrent operations are in flight on all
    /// of them.
    pub(crate) fn of(images: Vec<Image>) -> Self {
        let journal = Journal::default();
        let disk = |(number, image)| Rc::new(SimDisk::new(number, DISK_BLOCKS, image, journal.clone()).delayed());
        Self { disks: images.into_iter().enumerate().map(disk).collect(), journal }
    }

    pub(crate) fn blank(disks: usize) -> Self {
        Self::of(vec![Image::default(); disks])
    }

    pub(crate) fn images(&self) -> Vec<Image> {
        self.disks.iter().map(|disk| disk.image()).collect()
    }

    /// Plan of a pool of mirrors on the disks that `groups` lists, and their devices.
    pub(crate) fn plan(&self, groups: &[&[usize]]) -> (CreatePool<Disk>, Vec<Group>) {
        let (plans, devices): (Vec<_>, Vec<_>) =
            groups.iter().zip(0_u128..).map(|(members, number)| self.group(number, members)).unzip();
        let plan = CreatePool {
            id: pool_id(),
            name: "tank".into(),
            slab_bytes: 1 << 20,
            groups: plans,
            now: 1_700_000_000,
            created_by: "blockyard 0.1.0".into(),
            force: false,
        };
        (plan, devices)
    }

    pub(crate) fn create(&self, groups: &[&[usize]]) -> Result<Opened, PoolError> {
        let (plan, groups) = self.plan(groups);
        Self::make(plan, groups)
    }

    /// Creates, as [`World::create`], a pool of one striped group of all disks.
    pub(crate) fn create_striped(&self) -> Result<Opened, PoolError> {
        let (mut plan, _) = self.plan(&[&(0..self.disks.len()).collect::<Vec<_>>()]);
        plan.groups[0].level = 0;
        let data = crate::data_area(Blocks(DISK_BLOCKS)).unwrap();
        let members = self.disks.iter().cloned().map(Some).collect();
        Self::make(plan, vec![group_of(0, members, data)])
    }

    fn make(plan: CreatePool<Disk>, groups: Vec<Group>) -> Result<Opened, PoolError> {
        let pool = block_on(Pool::create(plan, groups.clone()))?;
        pool.set_key(pool_key());
        Ok(Opened { pool, groups })
    }

    /// Plan of one more mirror of the disks `members`, and its device.
    pub(crate) fn group(&self, number: u128, members: &[usize]) -> (GroupPlan<Disk>, Group) {
        let data = crate::data_area(Blocks(DISK_BLOCKS)).unwrap();
        let plan = GroupPlan {
            id: Uuid::from_u128(50 + number),
            level: 1,
            protected: false,
            chunk_bytes: STRIPE_BYTES,
            member_blocks: data.len,
            members: members.iter().map(|&n| NewDisk { id: disk_id(n), device: self.disks[n].clone() }).collect(),
        };
        (plan, group_of(1, members.iter().map(|&member| Some(self.disks[member].clone())).collect(), data))
    }

    /// True when something was written since the disks were created.
    pub(crate) fn has_written(&self) -> bool {
        self.journal.borrow().iter().any(|event| matches!(event, Event::Write { .. }))
    }

    pub(crate) fn survey(&self) -> Assembly {
        self.survey_of(&(0..self.disks.len()).collect::<Vec<_>>())
    }

    /// Survey of the disks in `order`, which indexes them by their places in `order`.
    pub(crate) fn survey_of(&self, order: &[usize]) -> Assembly {
        let probes: Vec<Probe> = order.iter().map(|&disk| block_on(probe(&self.disks[disk]))).collect();
        assemble(&probes)
    }

    pub(crate) fn open(&self) -> Result<Opened, PoolRefusal> {
        self.open_with(&(0..self.disks.len()).collect::<Vec<_>>())
    }

    /// Finds and opens the one pool on the disks in `order`, as the engine does.
    ///
    /// Without any disk of the pool there is nothing to refuse: the survey is empty then.
    pub(crate) fn open_with(&self, order: &[usize]) -> Result<Opened, PoolRefusal> {
        let survey = self.survey_of(order);
        let Some(found) = survey.pools.first() else { return Err(PoolRefusal::Unfinished("nothing".into())) };
        found.admit(one_is_enough)?;
        let groups = self.mirrors(found, order);
        let disk = |probe: usize| self.disks[order[probe]].clone();
        let pool = block_on(Pool::open(found, disk, groups.clone(), one_is_enough));
        let pool = pool.expect("an admitted pool opens");
        pool.set_key(pool_key());
        Ok(Opened { pool, groups })
    }

    pub(crate) fn mirrors(&self, found: &AssembledPool, order: &[usize]) -> Vec<Group> {
        let pairs = found.catalog.groups.iter().zip(&found.groups);
        pairs
            .filter(|(record, _)| record.role == GroupRole::Data)
            .map(|(record, group)| {
                let members = group.positions.iter().map(|position| {
                    let current = position.state == DiskState::Current;
                    position.probe.filter(|_| current).map(|probe| self.disks[order[probe]].clone())
                });
                group_of(record.level, members.collect(), crate::member_area(record.member_blocks))
            })
            .collect()
    }
}

fn group_of(level: u8, members: Vec<Option<Disk>>, data: Extent) -> Group {
    let members = members.into_iter().map(|member| member.map(|disk| Window::new(disk, data))).collect();
    Rc::new(if level == 0 { Mirror::striped(members, STRIPE_BYTES) } else { Mirror::new(members, STRIPE_BYTES) })
}

pub(crate) fn one_is_enough(_: &GroupRecord, present: &[bool]) -> bool {
    present.contains(&true)
}

pub(crate) fn labelling() -> LabelParams {
    LabelParams { now: 1_700_000_000, created_by: "blockyard 0.1.0".into(), force: false }
}

/// Members of a pool and their states.
pub(crate) fn members(pool: &TestPool) -> Vec<(Uuid, MemberState)> {
    let groups = pool.status().groups;
    groups.iter().flat_map(|group| group.record.members.iter().map(|member| (member.disk, member.state))).collect()
}
