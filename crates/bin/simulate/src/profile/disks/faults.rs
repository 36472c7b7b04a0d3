//! Part of profile `disks`: as many disks as the level tolerates fail in every way, under load: the hosts notice only
//! latency.

use crate::host::traffic::{Unit, WorkloadProfile};
use crate::pool::{Pool, PoolPlan};
use crate::stage::{CheckResult, DISK_PATIENCE, PresentedVolume, Stage, Traffic};
use model::{DiskName, Level, MemberReport, MemberState, Order, code};
use raid::deadlines::FIRST_DEADLINE;
use shard::World;
use sim::DiskFaults;
use std::collections::BTreeMap;
use std::time::Duration;

pub(in crate::profile) const PROTECTED: [Level; 4] = [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];

/// Reason for which a member is not reliable.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FaultState {
    /// Has an injected fault.
    Faulty,
    /// Replaces another member and is being rebuilt.
    Filling,
}

/// Unreliable members of a pool; never more than the level tolerates.
struct FaultInjector<'a> {
    stage: &'a Stage,
    pool: &'a Pool,
    ill: BTreeMap<DiskName, FaultState>,
}

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let pool = PoolPlan::of_chance(stage, &PROTECTED).make(stage).await?;
    let block_bytes = stage.chance.pick(&[512, 4096]);
    let volume = stage.make_volume(Some(&pool.name), 0, stage.chance.within(1..=20) << 20, block_bytes).await?;
    let volumes: [PresentedVolume; 1] = [volume];
    let units = [volumes[0].unit.clone()];
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    let mut infirmary = FaultInjector { stage, pool: &pool, ill: BTreeMap::new() };
    for _ in 0..stage.chance.within(1..=3) {
        let traffic = start(stage, &units);
        infirmary.inject_faults(&traffic).await?;
        stage.until_over(&traffic, Duration::from_secs(1)).await;
        stage.until_quiet(&traffic).await?;
        stage.check_all_blocks(&units).await?;
        infirmary.replace_all().await?;
        stage.check_all_blocks(&units).await?;
    }
    // Rebuilt members must hold everything that the replaced ones held.
    pool.pull_all_that_may_be(stage).await?;
    stage.check_all_blocks(&units).await
}

/// Starts hosts with all kinds of behavior that do not depend on disks.
pub(super) fn start(stage: &Stage, units: &[Unit]) -> Traffic {
    let habits = WorkloadProfile {
        depth: 8,
        blocks: stage.chance.within(1..=24),
        large_bytes: 256 << 10,
        manages: stage.chance.percent(30),
        drops_connections: stage.chance.percent(20),
        media_fail: false,
        answers_within: None,
    };
    stage.start_hosts(stage.chance.count(1..=2), stage.chance.within(50..=300), units, &habits)
}

impl FaultInjector<'_> {
    /// Injects faults into disks until the hosts have no commands left.
    async fn inject_faults(&mut self, traffic: &Traffic) -> CheckResult<()> {
        for _ in 0..self.stage.chance.within(1..=6) {
            self.stage.world.sleep(self.stage.chance.moment(Duration::from_millis(300))).await;
            if traffic.is_over() {
                return Ok(());
            }
            match self.stage.chance.below(10) {
                0..=1 => drop(self.replace_one().await?),
                2 => self.slow_all().await?,
                _ => self.start_faults().await?,
            }
        }
        Ok(())
    }

    /// Injects a fault into one more member, if the level tolerates it.
    async fn start_faults(&mut self) -> CheckResult<()> {
        let Some(disk) = self.next_victim().await? else { return Ok(()) };
        let handle = self.pool.handle(self.stage, &disk)?;
        // Recorded before the fault, since it may show at once.
        self.ill.insert(disk.clone(), FaultState::Faulty);
        let chance = &self.stage.chance;
        let often = u32::try_from(chance.within(1_000..=300_000)).expect("at most a million");
        let faults = DiskFaults::default();
        match chance.below(7) {
            0 => handle.fail(),
            1 => {
                handle.hang();
                // The hang ends with a failure, unless the disk was replaced or revived before.
                let (world, patience) = (self.stage.world.clone(), chance.moment(DISK_PATIENCE));
                self.stage.world.spawn(async move {
                    world.sleep(patience).await;
                    if handle.is_hung() {
                        handle.fail();
                    }
                });
            }
            2 => handle.set_faults(DiskFaults { latent_per_million: often, ..faults }),
            3 => handle.set_faults(DiskFaults { write_error_per_million: often, ..faults }),
            4 => handle.set_faults(DiskFaults { flush_error_per_million: often, ..faults }),
            5 => {
                // From half of the first deadline to five times of it: some operations end in time, others do not.
                let slow = FIRST_DEADLINE / 2..=DISK_PATIENCE;
                handle.set_faults(DiskFaults { slow_per_million: often, slow, ..faults });
            }
            _ => self.take_out(&disk).await?,
        }
        Ok(())
    }

    /// Returns a healthy member, if one more may become unreliable.
    async fn next_victim(&mut self) -> CheckResult<Option<DiskName>> {
        let report = self.stage.pool().await?;
        let in_step = |member: &&MemberReport| member.state == MemberState::InSync;
        let well: Vec<DiskName> = report.members().filter(in_step).filter_map(|member| member.disk.clone()).collect();
        // Rebuilt members are reliable again.
        self.ill.retain(|disk, illness| *illness == FaultState::Faulty || !well.contains(disk));
        let candidates: Vec<DiskName> = well.into_iter().filter(|disk| !self.ill.contains_key(disk)).collect();
        // Members that are being filled count as unreliable, since they hold no redundancy yet.
        if self.ill.len() >= self.pool.tolerated() || candidates.is_empty() {
            return Ok(None);
        }
        Ok(Some(candidates[self.stage.chance.index(candidates.len())].clone()))
    }

    /// Fails a member by an order of the operator.
    async fn take_out(&self, disk: &DiskName) -> CheckResult<()> {
        match self.stage.ask(Order::FailDisk { disk: disk.clone() }).await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code == code::DISK_FAILED_ALREADY => Ok(()),
            Err(refusal) => Err(format!("disk {disk} cannot be taken out: {refusal}")),
        }
    }

    /// Makes every healthy disk slow occasionally, but never so slow that the pool may give it up.
    async fn slow_all(&self) -> CheckResult<()> {
        let report = self.stage.pool().await?;
        // About half of the first deadline at most, so that no healthy member is suspected.
        let slow = Duration::from_millis(10)..=self.stage.chance.moment(FIRST_DEADLINE / 2) + Duration::from_millis(10);
        let slow_per_million = u32::try_from(self.stage.chance.below(20_000)).expect("at most a million");
        for disk in report.members().filter_map(|member| member.disk.as_ref()) {
            if !self.ill.contains_key(disk) {
                let faults = DiskFaults { slow_per_million, slow: slow.clone(), ..DiskFaults::default() };
                self.pool.handle(self.stage, disk)?.set_faults(faults);
            }
        }
        Ok(())
    }

    /// Replaces one of the members with faults; false when there is none.
    async fn replace_one(&mut self) -> CheckResult<bool> {
        let afflicted = self.ill.iter().find(|(_, illness)| **illness == FaultState::Faulty);
        let Some(failed) = afflicted.map(|(disk, _)| disk.clone()) else { return Ok(false) };
        // The array may have given the disk up already, which is the same state.
        self.take_out(&failed).await?;
        let replacement = if self.pool.plan.integrity && self.stage.chance.percent(40) {
            // The disk was unplugged and is plugged in again: it receives only what it missed.
            self.pool.put_back(self.stage, &failed).await?
        } else {
            self.pool.replace(self.stage, &failed).await?
        };
        self.ill.remove(&failed);
        self.ill.insert(replacement, FaultState::Filling);
        Ok(true)
    }

    /// Replaces every member with faults, and waits for the rebuilds.
    async fn replace_all(&mut self) -> CheckResult<()> {
        while self.replace_one().await? {}
        // Slow disks are not among the unreliable ones, and are reset as well.
        for disk in self.pool.handles(self.stage) {
            disk.set_faults(DiskFaults::default());
        }
        self.stage.idle_disks().await?;
        self.ill.clear();
        self.pool.expect_healthy(self.stage, "after every replacement was filled").await
    }
}
