//! Pools on simulated disks: creation, reopening after a power failure, and replacement of disks.

mod log;

use crate::stage::{CheckResult, DISK_PATIENCE, Stage};
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

/// Size of the smallest disks in MiB: room for two volumes, each with a slab for its map.
const DISK_MIB: u64 = 112;
/// Pause before the next attempt to return a disk that still executes old operations.
const PUT_BACK_PAUSE: Duration = Duration::from_millis(500);

/// Configuration of a pool to be created from new disks.
pub(crate) struct PoolPlan {
    pub level: Level,
    pub chunk: Size,
    pub members: usize,
    pub integrity: bool,
    pub volatile_cache: bool,
    /// Physical sector size in bytes: the unit that the disks write atomically.
    pub sector_bytes: u32,
    /// Size of the smallest disks in MiB; the largest are 2 MiB larger.
    pub disk_mib: u64,
}

/// Pool with one group, and all disks of its machine.
pub(crate) struct Pool {
    pub name: Name,
    pub id: PoolId,
    pub plan: PoolPlan,
    /// Path of each disk that the data plane has opened.
    disks: RefCell<BTreeMap<DiskName, String>>,
    /// Size that every member needs, in MiB: the used part of the smallest original member.
    member_mib: Cell<u64>,
    next_path: Cell<u32>,
    /// True while disks return false data.
    pub lies: Cell<bool>,
    next_name: Cell<u32>,
}

impl PoolPlan {
    /// Draws one of `levels`, few members and a small chunk.
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
        // Always with a bug in the disks: without a volatile cache a flush that is left out has no effect.
        let volatile_cache = chance.percent(75) || stage.plant.alters_disks();
        // Checksums would detect and repair the effect of a bug that is planted below the array.
        let integrity = chance.percent(75) && !stage.plant.alters_disks();
        let sector_bytes = chance.pick(&[512, 4096]);
        Self { level, chunk, members, integrity, volatile_cache, sector_bytes, disk_mib: DISK_MIB }
    }

    /// Returns the range of disk sizes.
    fn sizes_mib(&self) -> RangeInclusive<u64> {
        self.disk_mib..=self.disk_mib + 2
    }

    /// Adds the disks of the pool without creating it.
    pub(crate) async fn prepare(self, stage: &Stage) -> CheckResult<Pool> {
        let name: Name = "tank".parse().expect("this is a name");
        let id = PoolId::from_random(stage.chance.identity());
        // Unequal sizes: the group uses as much of each disk as the smallest one has.
        let sizes: Vec<u64> = (0..self.members).map(|_| stage.chance.within(self.sizes_mib())).collect();
        let member_mib = Cell::new(sizes.iter().copied().min().map_or(0, used_mib));
        stage.plant.record_size(member_mib.get());
        let (disks, next_path, next_name, lies) = Default::default();
        let pool = Pool { name, id, plan: self, disks, member_mib, next_path, next_name, lies };
        for mib in sizes {
            pool.add_disk(stage, mib).await?;
        }
        Ok(pool)
    }

    /// Creates the pool on new disks.
    pub(crate) async fn make(self, stage: &Stage) -> CheckResult<Pool> {
        let pool = self.prepare(stage).await?;
        stage.order(pool.creation()).await?;
        Ok(pool)
    }
}

/// Returns the size that a group uses of each member when its smallest disk has `smallest` MiB.
fn used_mib(smallest: u64) -> u64 {
    MemberSize::default().of(Size::mib(smallest)).map_or(smallest, |used| used.bytes() >> 20)
}

impl Pool {
    /// Returns the order that creates the pool on all known disks.
    pub(crate) fn creation(&self) -> Order {
        // Disks that were added later, for example those of the log device, are no members.
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

    /// Replaces `failed` by a new disk, which is being rebuilt on return. Sometimes checks first that a disk that is
    /// too small is refused.
    pub(crate) async fn replace(&self, stage: &Stage, failed: &DiskName) -> CheckResult<DiskName> {
        let order = |replacement: &DiskName| {
            let (failed, replacement) = (failed.clone(), replacement.clone());
            Order::ReplaceDisk { failed, member: None, replacement, force: false }
        };
        let member_mib = self.member_mib.get();
        if stage.chance.percent(30) {
            // Just below the needed size, where a wrong comparison would show.
            let small = self.add_disk(stage, stage.chance.within(member_mib - 2..=member_mib - 1)).await?;
            match stage.ask(order(&small)).await {
                Err(refusal) if refusal.code == code::DISK_TOO_SMALL => {}
                answer => return Err(format!("a replacement that is too small was answered with {answer:?}")),
            }
        }
        // Within the sizes of the pool, so that the largest may exceed what the group uses.
        let replacement = self.add_disk(stage, stage.chance.within(member_mib..=*self.plan.sizes_mib().end())).await?;
        // Before the order, because the rebuild starts with it.
        stage.plant.record_replacement(&self.disks.borrow()[&replacement]);
        stage.order(order(&replacement)).await?;
        Ok(replacement)
    }

    /// Repairs the failed disk and returns it to its own slot, where it is being rebuilt.
    pub(crate) async fn put_back(&self, stage: &Stage, failed: &DiskName) -> CheckResult<DiskName> {
        // The fault must be gone before the order, which reads the label of the disk.
        let handle = self.handle(stage, failed)?;
        handle.set_faults(DiskFaults::default());
        handle.revive();
        handle.make_readable();
        let replacement = failed.clone();
        let order = Order::ReplaceDisk { failed: failed.clone(), member: None, replacement, force: false };
        let until = stage.world.now() + 2 * DISK_PATIENCE;
        loop {
            match stage.ask(order.clone()).await {
                // Operations that were outstanding when the member was given up must finish first; the operator
                // retries.
                Err(refusal) if refusal.code == code::DISK_UNREADABLE && stage.world.now() < until => {
                    stage.world.sleep(PUT_BACK_PAUSE).await;
                }
                Err(refusal) => return Err(format!("refused: {refusal} ({}): {order:?}", refusal.code)),
                Ok(_) => break,
            }
        }
        Ok(failed.clone())
    }

    /// Replaces a failed or missing member by a new disk.
    pub(crate) async fn replace_member(&self, stage: &Stage, lost: &MemberReport) -> CheckResult<()> {
        let replacement = self.add_replacement(stage).await?;
        // A missing member has no disk, and the order identifies it by `member`. The name is only a placeholder.
        let failed = lost.disk.clone().unwrap_or_else(|| self.new_name());
        stage.order(Order::ReplaceDisk { failed, member: Some(lost.id), replacement, force: false }).await.map(drop)
    }

    /// Adds a new disk that is large enough to replace any member.
    pub(crate) async fn add_replacement(&self, stage: &Stage) -> CheckResult<DiskName> {
        self.add_disk(stage, self.member_mib.get().max(*self.plan.sizes_mib().end())).await
    }

    /// Adds a new disk to the machine and opens it in the data plane.
    pub(crate) async fn add_disk(&self, stage: &Stage, mib: u64) -> CheckResult<DiskName> {
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

    /// Returns the simulated disk of a name.
    pub(crate) fn handle(&self, stage: &Stage, disk: &DiskName) -> CheckResult<DiskHandle> {
        let path = self.path(disk)?;
        stage.array.disk(&path).ok_or_else(|| format!("there is no disk at {path}"))
    }

    /// Returns the path of a disk.
    pub(crate) fn path(&self, disk: &DiskName) -> CheckResult<String> {
        self.disks.borrow().get(disk).cloned().ok_or_else(|| format!("nobody knows a disk {disk}"))
    }

    /// Returns the simulated disks of all members and of all other disks.
    pub(crate) fn handles(&self, stage: &Stage) -> Vec<DiskHandle> {
        self.disks.borrow().values().filter_map(|path| stage.array.disk(path)).collect()
    }

    /// Exchanges the paths of some disks.
    pub(crate) fn shuffle_places(&self, stage: &Stage) {
        let paths: Vec<String> = self.disks.borrow().values().cloned().collect();
        for _ in 0..stage.chance.below(4) {
            // The same disk twice is no exchange.
            let [one, other] = [0, 1].map(|_| stage.chance.index(paths.len()));
            if one != other {
                stage.array.swap_disks(&paths[one], &paths[other]);
            }
        }
    }

    /// Opens the disks in a restarted data plane, in another order and with other names.
    pub(crate) async fn find_disks(&self, stage: &Stage) {
        let mut paths: Vec<String> = self.disks.take().into_values().collect();
        stage.chance.shuffle(&mut paths);
        for path in paths {
            // Names are given by the administrator, so the pool must be found without them.
            let disk = self.new_name();
            // A missing disk cannot be opened, and the pool runs without it.
            let _ = stage.ask(Order::OpenDisk { disk: disk.clone(), path: path.clone(), remote: None }).await;
            self.disks.borrow_mut().insert(disk, path);
        }
    }

    /// Opens the disks that could not be opened at the start of the data plane.
    pub(crate) async fn find_late_disks(&self, stage: &Stage) {
        let all = self.disks.borrow().clone();
        for (disk, path) in all {
            // The data plane refuses disks that are already open.
            let _ = stage.ask(Order::OpenDisk { disk, path, remote: None }).await;
        }
    }

    /// Returns the order that opens the pool.
    pub(crate) fn opening(&self) -> Order {
        self.opening_as(false)
    }

    /// Returns the order that opens the pool, optionally read-only.
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

    /// Opens the pool in a restarted data plane.
    pub(crate) async fn open(&self, stage: &Stage) -> CheckResult<PoolReport> {
        self.find_disks(stage).await;
        // A lying disk may confirm an ownership mark and then return an older one, which makes the pool look owned.
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

    /// Checks that no member is missing or being rebuilt.
    pub(crate) async fn expect_healthy(&self, stage: &Stage, when: &str) -> CheckResult<()> {
        let report = stage.pool().await?;
        if report.state == PoolState::Healthy {
            Ok(())
        } else {
            Err(format!("{when} the pool is not healthy: {report:?}"))
        }
    }

    /// Returns the number of members that may fail, whichever they are.
    pub(crate) fn tolerated(&self) -> usize {
        self.plan.level.tolerated(self.plan.members)
    }

    /// Sets the size of the smallest member in MiB.
    pub(crate) fn need(&self, mib: u64) {
        self.member_mib.set(used_mib(mib));
    }

    /// Removes as many in-sync members of each group as its level tolerates.
    pub(crate) async fn pull_all_that_may_be(&self, stage: &Stage) -> CheckResult<()> {
        for group in stage.pool().await?.all_groups() {
            let in_step = |member: &&MemberReport| member.state == MemberState::InSync;
            let lost = group.members.iter().filter(|member| !in_step(member)).count();
            let mut left: Vec<DiskName> =
                group.members.iter().filter(in_step).filter_map(|member| member.disk.clone()).collect();
            stage.chance.shuffle(&mut left);
            let tolerated = group.level.tolerated(group.members.len());
            // Members that are out already count, since the level tolerates only the sum.
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
