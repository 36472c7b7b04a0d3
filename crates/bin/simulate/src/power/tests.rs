//! Tests of the state that a killed daemon leaves in the caches of its disks.

use crate::host::traffic::{Unit, WorkloadProfile};
use crate::pool::{Pool, PoolPlan};
use crate::run::play;
use crate::stage::{CheckResult, PresentedVolume, Stage};
use model::{Level, MemberState, PoolState};
use shard::World;
use sim::{Crash, DiskFaults};
use std::time::Duration;

/// Creates a pool with a volume to which hosts wrote until the daemon was killed.
async fn killed(stage: &Stage, level: Level) -> CheckResult<(Pool, [PresentedVolume; 1], [Unit; 1])> {
    let plan = PoolPlan { volatile_cache: true, ..PoolPlan::of_chance(stage, &[level]) };
    let pool = plan.make(stage).await?;
    let volumes = [stage.make_volume(Some(&pool.name), 0, 4 << 20, 4096).await?];
    let units = [volumes[0].unit.clone()];
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    let habits = WorkloadProfile {
        depth: 8,
        blocks: 16,
        large_bytes: 64 << 10,
        manages: false,
        drops_connections: false,
        media_fail: false,
        answers_within: None,
    };
    let traffic = stage.start_hosts(1, 100, &units, &habits);
    stage.world.sleep(Duration::from_millis(1) + stage.chance.moment(Duration::from_millis(10))).await;
    stage.kill(&volumes);
    traffic.stop();
    stage.power_on(&pool).await;
    Ok((pool, volumes, units))
}

#[test]
fn what_is_read_after_a_kill_survives_a_power_cut() {
    for seed in 1..=20 {
        let outcome = play(seed, None, async |stage| {
            let (pool, volumes, units) = killed(stage, Level::Raid5).await?;
            stage.reopen(&pool, &volumes).await?;
            stage.check_all_blocks(&units).await?;
            stage.cut_power(&volumes, Crash::NoneLanded);
            stage.power_on(&pool).await;
            stage.reopen(&pool, &volumes).await?;
            stage.check_all_blocks(&units).await
        });
        assert_eq!(outcome.wrong, None, "seed {seed}");
    }
}

#[test]
fn disk_that_cannot_flush_when_its_pool_is_opened_is_not_used() {
    let outcome = play(1, None, async |stage| {
        let (pool, volumes, units) = killed(stage, Level::Raid1).await?;
        let bad = &pool.handles(stage)[0];
        bad.set_faults(DiskFaults { flush_error_per_million: 1_000_000, ..DiskFaults::default() });
        let report = stage.reopen(&pool, &volumes).await?;
        let failed = report.members().filter(|member| member.state == MemberState::Failed).count();
        assert_eq!((report.state, failed), (PoolState::Degraded, 1));
        stage.check_all_blocks(&units).await
    });
    assert_eq!(outcome.wrong, None);
}
