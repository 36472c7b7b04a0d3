//! Power failures during a rebuild.
//!
//! Without a redo log, parity levels get no writes meanwhile: a stripe that is being written when the power fails has
//! no reliable parity, and if a member is missing as well, its data cannot be verified (the write hole). With a log
//! they get writes.

use crate::host::traffic::WorkloadProfile;
use crate::pool::PoolPlan;
use crate::stage::{CheckResult, Stage};
use model::{DiskName, Level, Order};
use shard::World;
use std::time::Duration;

const PROTECTED: [Level; 4] = [Level::Raid1, Level::Raid5, Level::Raid6, Level::Raid10];

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let pool = PoolPlan::of_chance(stage, &PROTECTED).make(stage).await?;
    let block_bytes = stage.chance.pick(&[512, 4096]);
    let volumes = [stage.make_volume(Some(&pool.name), 0, stage.chance.within(1..=20) << 20, block_bytes).await?];
    let units = [volumes[0].unit.clone()];
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    let habits = WorkloadProfile {
        depth: 8,
        blocks: 16,
        large_bytes: 256 << 10,
        manages: false,
        drops_connections: false,
        media_fail: false,
        answers_within: None,
    };
    let before = stage.start_hosts(1, stage.chance.within(20..=200), &units, &habits);
    while !before.is_over() {
        stage.world.sleep(Duration::from_millis(10)).await;
    }
    stage.until_quiet(&before).await?;
    let report = stage.pool().await?;
    let members: Vec<DiskName> = report.members().filter_map(|member| member.disk.clone()).collect();
    let failed = members[stage.chance.index(members.len())].clone();
    stage.order(Order::FailDisk { disk: failed.clone() }).await?;
    pool.replace(stage, &failed).await?;
    // A redo log closes the write hole, and mirrors have no parity.
    let bears_writes = pool.plan.integrity || matches!(pool.plan.level, Level::Raid1 | Level::Raid10);
    for _ in 0..stage.chance.within(1..=3) {
        // Without a redo log the rebuild alone runs across the power failure.
        let commands = if bears_writes { stage.chance.within(20..=200) } else { 0 };
        let traffic = stage.start_hosts(1, commands, &units, &habits);
        stage.world.sleep(stage.chance.moment(Duration::from_millis(200))).await;
        stage.crash_or_kill(&volumes);
        traffic.stop();
        stage.power_on(&pool).await;
        stage.reopen(&pool, &volumes).await?;
        // Checked before the hosts are quiet, and again when their last writes have ended.
        stage.check_all_blocks(&units).await?;
        stage.until_quiet(&traffic).await?;
        stage.check_all_blocks(&units).await?;
    }
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after the replacement was filled").await?;
    pool.pull_all_that_may_be(stage).await?;
    stage.check_all_blocks(&units).await
}
