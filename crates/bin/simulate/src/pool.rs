//! Pools on simulated disks: made, found again after the power came back, mended with new disks.

mod log;

use crate::stage::{DISK_PATIENCE, Judged, Stage};
use model::{
    DiskName, GroupSpec, Level, MemberReport, MemberSize, MemberState, Name, Order, PoolId, PoolReport, PoolState,
    Report, Size, code,
};
use shard::World;
use sim::{DiskFaults, DiskHandle, DiskShape};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What the smallest disks hold: room for two volumes, each with a slab for its map.
const DISK_MIB: u64 = 112;
/// How long the operator waits before a disk is tried again that still does what it was asked before.
const PUT_BACK_PAUSE: Duration = Duration::from_millis(500);

/// A pool to be made of new disks.
pub(crate) struct PoolPlan {
    pub level: Level,
    pub chunk: Size,
    pub members: usize,
    pub integrity: bool,
    pub volatile_cache: bool,
    /// Bytes that the disks never tear.
    pub sector_bytes: u32,
    /// What the smallest disks hold; the largest hold 2 MiB more.
    pub disk_mib: u64,
}

/// A pool of one group, and all disks of its machine.
pub(crate) struct Pool {
    pub name: Name,
    pub id: PoolId,
    pub plan: PoolPlan,
    /// Where each disk is that the data plane knows.
    disks: RefCell<BTreeMap<DiskName, String>>,
    /// What every member must hold: what is used of the smallest of the first.
    member_mib: Cell<u64>,
    next_path: Cell<u32>,
    /// True while disks lie.
    pub lies: Cell<bool>,
    next_name: Cell<u32>,
}

impl PoolPlan {
    /// One of `levels`, few members, small chunks.
    pub(crate) fn of_chance(stage: &Stage, levels: &[Level]) -> Self {
        let chance = &stage.chance;
        let level = chance.pick(levels);
        let members = match level {
            Level::Raid0 => chance.count(1..=3),
            Level::Raid1 => chance.count(2..=3),
            Level::Raid5 => chance.count(3..=4),
            Level::Raid6 => chance.count(4..=5),
            Level::Raid10 => 4,
        };
        let chunk = Size::new(chance.pick(&[4 << 10, 16 << 10, 64 << 10]));
        let volatile_cache = chance.percent(75) || stage.plant.bends_disks();
        // What is planted below an array with sums is found and put right by it.
        let integrity = chance.percent(75) && !stage.plant.bends_disks();
        let sector_bytes = chance.pick(&[512, 4096]);
        Self { level, chunk, members, integrity, volatile_cache, sector_bytes, disk_mib: DISK_MIB }
    }

    /// How large the disks are.
    fn sizes_mib(&self) -> RangeInclusive<u64> {
        self.disk_mib..=self.disk_mib + 2
    }

    /// A pool that has its disks, and must yet be created.
    pub(crate) async fn prepare(self, stage: &Stage) -> Judged<Pool> {
        let name: Name = "tank".parse().expect("this is a name");
        let id = PoolId::from_random(stage.chance.identity());
        let sizes: Vec<u64> = (0..self.members).map(|_| stage.chance.within(self.sizes_mib())).collect();
        let member_mib = Cell::new(sizes.iter().copied().min().map_or(0, used_mib));
        stage.plant.know_size(member_mib.get());
        let (disks, next_path, next_name, lies) = Default::default();
        let pool = Pool { name, id, plan: self, disks, member_mib, next_path, next_name, lies };
        for mib in sizes {
            pool.add_disk(stage, mib).await?;
        }
        Ok(pool)
    }

    /// The pool is made, of disks that were not there before.
    pub(crate) async fn make(self, stage: &Stage) -> Judged<Pool> {
        let pool = self.prepare(stage).await?;
        stage.order(pool.creation()).await?;
        Ok(pool)
    }
}

/// What a group uses of each member when its smallest disk holds so much.
fn used_mib(smallest: u64) -> u64 {
    MemberSize::default().of(Size::mib(smallest)).map_or(smallest, |used| used.bytes() >> 20)
}

impl Pool {
    /// The order that creates the pool of all disks that are known.
    pub(crate) fn creation(&self) -> Order {
        let disks = self.disks.borrow().keys().take(self.plan.members).cloned().collect();
        let groups = vec![GroupSpec {
            level: self.plan.level,
            chunk: self.plan.chunk,
            integrity: self.plan.integrity,
            member_size: MemberSize::default(),
            disks,
        }];
        Order::CreatePool { pool: self.name.clone(), id: self.id, groups, force: false }
    }

    /// A new disk takes the place of `failed`, and is being filled. One that is too small does not.
    pub(crate) async fn replace(&self, stage: &Stage, failed: &DiskName) -> Judged<DiskName> {
        let order = |replacement: &DiskName| {
            let (failed, replacement) = (failed.clone(), replacement.clone());
            Order::ReplaceDisk { failed, member: None, replacement, force: false }
        };
        let member_mib = self.member_mib.get();
        if stage.chance.percent(30) {
            let small = self.add_disk(stage, stage.chance.within(member_mib - 2..=member_mib - 1)).await?;
            match stage.ask(order(&small)).await {
                Err(refusal) if refusal.code == code::DISK_TOO_SMALL => {}
                answer => return Err(format!("a replacement that is too small was answered with {answer:?}")),
            }
        }
        let replacement = self.add_disk(stage, stage.chance.within(member_mib..=*self.plan.sizes_mib().end())).await?;
        stage.plant.know_replacement(&self.disks.borrow()[&replacement]);
        stage.order(order(&replacement)).await?;
        Ok(replacement)
    }

    /// The disk, which has failed, is well again and in its own place, and is being filled.
    pub(crate) async fn put_back(&self, stage: &Stage, failed: &DiskName) -> Judged<DiskName> {
        let handle = self.handle(stage, failed)?;
        handle.set_faults(DiskFaults::default());
        handle.revive();
        handle.make_readable();
        let replacement = failed.clone();
        let order = Order::ReplaceDisk { failed: failed.clone(), member: None, replacement, force: false };
        let until = stage.world.now() + 2 * DISK_PATIENCE;
        loop {
            match stage.ask(order.clone()).await {
                // Operations that were late when it was given up have to land first: the operator tries again.
                Err(refusal) if refusal.code == code::DISK_UNREADABLE && stage.world.now() < until => {
                    stage.world.sleep(PUT_BACK_PAUSE).await;
                }
                Err(refusal) => return Err(format!("refused: {refusal} ({}): {order:?}", refusal.code)),
                Ok(_) => break,
            }
        }
        Ok(failed.clone())
    }

    /// The member, which is failed or missing, is replaced by a new disk.
    pub(crate) async fn replace_member(&self, stage: &Stage, lost: &MemberReport) -> Judged<()> {
        let replacement = self.add_replacement(stage).await?;
        let failed = lost.disk.clone().unwrap_or_else(|| self.new_name());
        stage.order(Order::ReplaceDisk { failed, member: Some(lost.id), replacement, force: false }).await.map(drop)
    }

    /// A new disk that can take the place of any member.
    pub(crate) async fn add_replacement(&self, stage: &Stage) -> Judged<DiskName> {
        self.add_disk(stage, self.member_mib.get().max(*self.plan.sizes_mib().end())).await
    }

    /// A new disk is in the machine, and the data plane knows it.
    pub(crate) async fn add_disk(&self, stage: &Stage, mib: u64) -> Judged<DiskName> {
        let path = format!("/dev/disk{:03}", self.next_path.get());
        self.next_path.set(self.next_path.get() + 1);
        let PoolPlan { volatile_cache, sector_bytes: physical_block_bytes, .. } = self.plan;
        let shape = DiskShape { volatile_cache, physical_block_bytes, ..DiskShape::of(mib << 20) };
        stage.array.add_disk(&path, shape);
        let disk = self.new_name();
        stage.order(Order::OpenDisk { disk: disk.clone(), path: path.clone(), remote: None }).await?;
        self.disks.borrow_mut().insert(disk.clone(), path);
        Ok(disk)
    }

    /// The simulated disk behind a name.
    pub(crate) fn handle(&self, stage: &Stage, disk: &DiskName) -> Judged<DiskHandle> {
        let path = self.path(disk)?;
        stage.array.disk(&path).ok_or_else(|| format!("there is no disk at {path}"))
    }

    /// Where a disk is.
    pub(crate) fn path(&self, disk: &DiskName) -> Judged<String> {
        self.disks.borrow().get(disk).cloned().ok_or_else(|| format!("nobody knows a disk {disk}"))
    }

    /// The simulated disks of all members, and of all others.
    pub(crate) fn handles(&self, stage: &Stage) -> Vec<DiskHandle> {
        self.disks.borrow().values().filter_map(|path| stage.array.disk(path)).collect()
    }

    /// Some disks have other places than before.
    pub(crate) fn shuffle_places(&self, stage: &Stage) {
        let paths: Vec<String> = self.disks.borrow().values().cloned().collect();
        for _ in 0..stage.chance.below(4) {
            let [one, other] = [0, 1].map(|_| stage.chance.index(paths.len()));
            if one != other {
                stage.array.swap_disks(&paths[one], &paths[other]);
            }
        }
    }

    /// The data plane, which was just started, knows the disks, in another order and under other names.
    pub(crate) async fn find_disks(&self, stage: &Stage) {
        let mut paths: Vec<String> = self.disks.take().into_values().collect();
        stage.chance.shuffle(&mut paths);
        for path in paths {
            let disk = self.new_name();
            // A disk that is gone cannot be opened, and the pool does without.
            let _ = stage.ask(Order::OpenDisk { disk: disk.clone(), path: path.clone(), remote: None }).await;
            self.disks.borrow_mut().insert(disk, path);
        }
    }

    /// The data plane knows the disks, too, that could not be opened when it was started.
    pub(crate) async fn find_late_disks(&self, stage: &Stage) {
        let all = self.disks.borrow().clone();
        for (disk, path) in all {
            // It refuses those that it knows.
            let _ = stage.ask(Order::OpenDisk { disk, path, remote: None }).await;
        }
    }

    /// The order that opens the pool.
    pub(crate) fn opening(&self) -> Order {
        self.opening_as(false)
    }

    /// The same, for reading alone where `read_only`.
    pub(crate) fn opening_as(&self, read_only: bool) -> Order {
        Order::OpenPool {
            id: self.id,
            force: false,
            accept_log_loss: false,
            read_only,
            key: None,
            whole: false,
            keep: None,
            confirmed: true,
        }
    }

    /// The data plane, which was just started, has the pool open.
    pub(crate) async fn open(&self, stage: &Stage) -> Judged<PoolReport> {
        self.find_disks(stage).await;
        // Disks that lie may say of a mark that they have it, and show another.
        for _ in 0..if self.lies.get() { 5 } else { 0 } {
            match stage.ask(self.opening()).await {
                Ok(Report::Pool(report)) => return Ok(report),
                Err(refusal) if refusal.code == code::POOL_OWNED => {}
                other => return Err(format!("OpenPool was answered with {other:?}")),
            }
        }
        match stage.order(self.opening()).await? {
            Report::Pool(report) => Ok(report),
            other => Err(format!("OpenPool was answered with {other:?}")),
        }
    }

    /// Nothing is missing and nothing is being repaired.
    pub(crate) async fn expect_healthy(&self, stage: &Stage, when: &str) -> Judged<()> {
        let report = stage.pool().await?;
        if report.state == PoolState::Healthy {
            Ok(())
        } else {
            Err(format!("{when} the pool is not healthy: {report:?}"))
        }
    }

    /// How many members may be lost, whichever they are.
    pub(crate) fn tolerated(&self) -> usize {
        self.plan.level.tolerated(self.plan.members)
    }

    /// From now on the smallest member holds so much.
    pub(crate) fn need(&self, mib: u64) {
        self.member_mib.set(used_mib(mib));
    }

    /// As many members as may be lost are pulled out, of those of each group that are in step.
    pub(crate) async fn pull_all_that_may_be(&self, stage: &Stage) -> Judged<()> {
        for group in stage.pool().await?.all_groups() {
            let in_step = |member: &&MemberReport| member.state == MemberState::InSync;
            let lost = group.members.iter().filter(|member| !in_step(member)).count();
            let mut left: Vec<DiskName> =
                group.members.iter().filter(in_step).filter_map(|member| member.disk.clone()).collect();
            stage.chance.shuffle(&mut left);
            let tolerated = group.level.tolerated(group.members.len());
            for disk in left.iter().take(tolerated.saturating_sub(lost)) {
                self.handle(stage, disk)?.fail();
            }
        }
        Ok(())
    }

    fn new_name(&self) -> DiskName {
        let number = self.next_name.get();
        self.next_name.set(number + 1);
        format!("disk{number:03}").parse().expect("this is a name")
    }
}
