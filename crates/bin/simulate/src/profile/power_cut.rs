//! Profile `power-cut`: power failures at any time, also during the recovery from the last one. Acknowledged writes are
//! present, unacknowledged writes are present or not, and no other data appears.

use crate::pool::{Pool, PoolPlan};
use crate::stage::{CheckResult, PresentedVolume, Stage};
use model::Level;
use shard::World;
use std::time::Duration;

/// Upper bound of the time before the power fails; mostly it is much shorter.
const WORK_TIME_MAX: Duration = Duration::from_millis(400);

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    let volumes = volumes(stage, &pool).await?;
    let units: Vec<_> = volumes.iter().map(|volume| volume.unit.clone()).collect();
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    let habits = stage.habits();
    let mut traffics = Vec::new();
    for _ in 0..stage.chance.within(1..=3) {
        let traffic = stage.start_hosts(stage.chance.count(1..=2), stage.chance.within(20..=200), &units, &habits);
        stage.world.sleep(stage.chance.moment(WORK_TIME_MAX)).await;
        stage.crash_or_kill(&volumes);
        // Hosts send nothing new, but still log in again and settle what was interrupted.
        traffic.stop();
        stage.power_on(&pool).await;
        let report = stage.reopen(&pool, &volumes).await?;
        // No disk failed, so a member that is left out was lost by a mistake of the pool.
        if report.members().any(|member| member.state != model::MemberState::InSync) {
            return Err(format!("a power cut has cost members: {report:?}"));
        }
        // Sometimes nothing is read, so that the next failure meets blocks that no read has decided.
        if stage.chance.percent(70) {
            // Twice: the first check decides what each block holds, and the second must find the same.
            stage.check_all_blocks(&units).await?;
            stage.check_all_blocks(&units).await?;
        }
        // Sometimes hosts of earlier rounds go on, and meet the next power failure.
        if stage.chance.percent(70) {
            stage.until_quiet(&traffic).await?;
        }
        if stage.chance.percent(40) {
            stage.idle_disks().await?;
            stage.check_all_blocks(&units).await?;
        }
        traffics.push(traffic);
    }
    for traffic in &traffics {
        stage.until_quiet(traffic).await?;
    }
    stage.idle_disks().await?;
    stage.check_all_blocks(&units).await?;
    stage.restart(&pool, &volumes).await?;
    stage.check_all_blocks(&units).await?;
    // Recovered data must be redundant again.
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after everything was recovered").await?;
    pool.pull_all_that_may_be(stage).await?;
    stage.check_all_blocks(&units).await
}

pub(crate) async fn volumes(stage: &Stage, pool: &Pool) -> CheckResult<Vec<PresentedVolume>> {
    let mut volumes = Vec::new();
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    let count = stage.chance.count(1..=2);
    for number in (0..2).take(count) {
        // A slab has 16 MiB, and the smallest pool has two of them.
        let bytes = stage.chance.within(1..=if count == 1 { 30 } else { 15 }) << 20;
        volumes.push(stage.make_volume(Some(&pool.name), number, bytes, block_bytes).await?);
    }
    Ok(volumes)
}
