//! Profile `write-back`: writes are acknowledged from the log device of the pool, and the power fails at any time.
//! Acknowledged data is present, also when the log lost a disk or was missing for a while; without the log no old data
//! is served.

use super::power_cut::volumes;
use crate::families::Families;
use crate::pool::{Pool, PoolPlan};
use crate::stage::{CheckResult, PresentedVolume, Stage};
use model::{Level, LogState, MemberState, Order, PoolReport, WritePolicy};
use shard::World;
use sim::DiskHandle;
use std::time::Duration;

/// Upper bound of the time before an event; mostly it is much shorter.
const WORK_TIME_MAX: Duration = Duration::from_millis(400);

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    match stage.chance.below(10) {
        0..=6 => lose_power(stage).await,
        _ => live(stage).await,
    }
}

/// Runs snapshots, clones, rollbacks and deletions on volumes with write-back.
async fn live(stage: &Stage) -> CheckResult<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    pool.add_log(stage).await?;
    let mut families = Families::new(stage, &pool, WritePolicy::Back);
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    for _ in 0..stage.chance.within(1..=2) {
        families.make_volume(block_bytes).await?;
    }
    stage.open_portals().await?;
    families.run_rounds().await
}

/// Runs power failures, failures of log disks, and starts without the log.
async fn lose_power(stage: &Stage) -> CheckResult<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    let mut log = pool.add_log(stage).await?;
    let volumes = volumes(stage, &pool).await?;
    let units: Vec<_> = volumes.iter().map(|volume| volume.unit.clone()).collect();
    stage.write_as(&volumes, WritePolicy::Back).await?;
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    let habits = stage.habits();
    let mut traffics = Vec::new();
    for _ in 0..stage.chance.within(1..=4) {
        let traffic = stage.start_hosts(stage.chance.count(1..=2), stage.chance.within(20..=200), &units, &habits);
        stage.world.sleep(stage.chance.moment(WORK_TIME_MAX)).await;
        match stage.chance.below(8) {
            0 => {
                lose_log(stage, &log, &volumes).await?;
                log = pool.add_log(stage).await?;
                // `lose_log` has set all volumes to write-through.
                stage.write_as(&volumes, WritePolicy::Back).await?;
            }
            1 => {
                stage.write_as(&volumes, WritePolicy::Through).await?;
                stage.world.sleep(stage.chance.moment(WORK_TIME_MAX)).await;
                stage.write_as(&volumes, WritePolicy::Back).await?;
            }
            // One disk of a mirrored log fails, which the other one covers.
            2 | 3 if log.len() > 1 => {
                stage.chance.pick(&[&log[0], &log[1]]).fail();
                stage.world.sleep(stage.chance.moment(WORK_TIME_MAX)).await;
            }
            _ => {}
        }
        stage.crash_or_kill(&volumes);
        traffic.stop();
        if stage.chance.percent(20) {
            miss_log(stage, &pool, &log, &volumes).await?;
        }
        stage.power_on(&pool).await;
        let report = stage.reopen(&pool, &volumes).await?;
        expect_ready(&report)?;
        pool.mend_log(stage).await?;
        // The data plane does not keep write policies, so the rest of the rounds write through.
        if stage.chance.percent(80) {
            stage.write_as(&volumes, WritePolicy::Back).await?;
        }
        if stage.chance.percent(70) {
            stage.check_all_blocks(&units).await?;
        }
        if stage.chance.percent(70) {
            stage.until_quiet(&traffic).await?;
        }
        // The names of the disks have changed with the restart.
        log = log_disks(stage, &pool).await?;
        traffics.push(traffic);
    }
    for traffic in &traffics {
        stage.until_quiet(traffic).await?;
    }
    stage.check_all_blocks(&units).await?;
    stage.restart(&pool, &volumes).await?;
    stage.check_all_blocks(&units).await?;
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after everything was recovered").await
}

/// Fails all disks of the log device in use: nothing is lost, and the log device can be removed.
async fn lose_log(stage: &Stage, log: &[DiskHandle], volumes: &[PresentedVolume]) -> CheckResult<()> {
    log.iter().for_each(DiskHandle::fail);
    stage.world.sleep(stage.chance.moment(WORK_TIME_MAX)).await;
    // No volume may depend on the log device when it is removed.
    stage.write_as(volumes, WritePolicy::Through).await?;
    let pool = stage.pool().await?.name;
    stage.order(Order::RemoveLog { pool, lost: false }).await.map(drop)
}

/// Opens the pool once without the disks of its log.
async fn miss_log(stage: &Stage, pool: &Pool, log: &[DiskHandle], volumes: &[PresentedVolume]) -> CheckResult<()> {
    log.iter().for_each(DiskHandle::fail);
    stage.power_on(pool).await;
    pool.open(stage).await?;
    stage.expect_held(volumes).await?;
    // Killed without a stop, as a daemon that never found its log.
    stage.array.kill();
    log.iter().for_each(DiskHandle::revive);
    Ok(())
}

fn expect_ready(report: &PoolReport) -> CheckResult<()> {
    let of_data = || report.groups.iter().flat_map(|group| &group.members);
    if of_data().any(|member| member.state != MemberState::InSync) {
        return Err(format!("a power cut has cost members: {report:?}"));
    }
    match &report.log {
        Some(log) if log.state == LogState::Ready => Ok(()),
        log => Err(format!("the log has not come back: {log:?}")),
    }
}

/// Returns the current disks of the log device.
async fn log_disks(stage: &Stage, pool: &Pool) -> CheckResult<Vec<DiskHandle>> {
    let members = stage.log().await?.group.members;
    members.iter().filter_map(|member| member.disk.as_ref()).map(|disk| pool.handle(stage, disk)).collect()
}
