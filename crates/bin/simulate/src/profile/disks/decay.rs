//! Part of profile `disks`: disks lie: they rot, lose writes and flushes, misdirect reads and writes, and return to an
//! old state; never more disks than the level tolerates. With checksums the hosts notice nothing, and a scrub repairs
//! everything.

use super::faults::start;
use crate::pool::{Pool, PoolPlan};
use crate::stage::{CheckResult, PresentedVolume, Stage};
use model::{MemberReport, MemberState, Order, ScrubReport};
use shard::World;
use sim::{DiskFaults, DiskHandle};
use std::time::Duration;

/// Upper bound of the duration of a scrub on disks of this size.
const SCRUB_TIME_MAX: Duration = Duration::from_secs(3_600);

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let plan = PoolPlan { integrity: true, ..PoolPlan::of_chance(stage, &super::faults::PROTECTED) };
    let pool = plan.make(stage).await?;
    let block_bytes = stage.chance.pick(&[512, 4096]);
    let volumes = [stage.make_volume(Some(&pool.name), 0, stage.chance.within(1..=20) << 20, block_bytes).await?];
    let units = [volumes[0].unit.clone()];
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    for _ in 0..stage.chance.within(1..=3) {
        let liars = choose_faulty(stage, &pool).await?;
        // Taken while the disk is healthy, as the old state to which it may return.
        let old: Vec<_> = liars.iter().map(|(disk, _)| disk.image()).collect();
        let traffic = start(stage, &units);
        // Until the faults are removed, opening the pool may take several attempts.
        pool.lies.set(true);
        liars.iter().for_each(|(disk, forgets)| corrupt(stage, disk, *forgets));
        if stage.chance.percent(40) {
            stage.world.sleep(stage.chance.moment(Duration::from_millis(400))).await;
            stage.crash_or_kill(&volumes);
            traffic.stop();
            for ((disk, _), old) in liars.iter().zip(&old).filter(|_| stage.chance.percent(30)) {
                tracing::info!(?disk, "a disk is as it was");
                disk.restore(old);
            }
            stage.power_on(&pool).await;
            stage.reopen(&pool, &volumes).await?;
        } else {
            stage.until_over(&traffic, Duration::from_secs(1)).await;
        }
        stage.until_quiet(&traffic).await?;
        // The faults are still active here: hosts must not notice them.
        stage.check_all_blocks(&units).await?;
        liars.iter().for_each(|(disk, _)| disk.set_faults(DiskFaults::default()));
        pool.lies.set(false);
        rebuild_and_scrub(stage, &pool, &volumes).await?;
        stage.check_all_blocks(&units).await?;
    }
    pool.pull_all_that_may_be(stage).await?;
    stage.check_all_blocks(&units).await
}

/// Selects in-sync members that begin to lie: at least one, at most as many as the level tolerates; returns whether
/// each may lose writes. Both copies of a checksum page are on two neighboring members, so at most one of them loses
/// writes and the other does not lie then.
async fn choose_faulty(stage: &Stage, pool: &Pool) -> CheckResult<Vec<(DiskHandle, bool)>> {
    let report = stage.pool().await?;
    let members = report.members().count();
    let in_step = |member: &(usize, &MemberReport)| member.1.state == MemberState::InSync;
    let named = |(slot, member): (usize, &MemberReport)| Some((slot, member.disk.clone()?));
    let mut well: Vec<_> = report.members().enumerate().filter(in_step).filter_map(named).collect();
    stage.chance.shuffle(&mut well);
    well.truncate(stage.chance.count(1..=pool.tolerated()));
    let are_neighbours = |one: usize, other: usize| (one + 1) % members == other || (other + 1) % members == one;
    let is_alone = |slot: usize| !well.iter().any(|&(other, _)| other != slot && are_neighbours(slot, other));
    well.iter().map(|(slot, disk)| Ok((pool.handle(stage, disk)?, is_alone(*slot)))).collect()
}

/// Makes the disk lie in one or several ways, permanently or once.
fn corrupt(stage: &Stage, disk: &DiskHandle, forgets: bool) {
    let chance = &stage.chance;
    let often = || if chance.percent(40) { u32::try_from(chance.within(100..=100_000)).unwrap_or(0) } else { 0 };
    let if_forgets = || if forgets { often() } else { 0 };
    let faults = DiskFaults {
        bit_rot_per_million: often(),
        lost_write_per_million: if_forgets(),
        misdirected_write_per_million: if_forgets(),
        misdirected_read_per_million: often(),
        lost_flush_per_million: if_forgets(),
        latent_per_million: often(),
        ..DiskFaults::default()
    };
    tracing::info!(?disk, ?faults, "a disk lies");
    disk.set_faults(faults);
    if chance.percent(40) {
        // Within every disk of the pool: the smallest one has 112 MiB.
        let start = chance.within(0..=100 << 20);
        let rotten = start..start + chance.within(512..=2 << 20);
        tracing::info!(?disk, ?rotten, "a disk rots");
        disk.rot(rotten);
    }
}

/// Rebuilds the members that were given up, and checks that a scrub heals the rest and a second scrub finds nothing.
async fn rebuild_and_scrub(stage: &Stage, pool: &Pool, volumes: &[PresentedVolume]) -> CheckResult<()> {
    stage.idle_disks().await?;
    // A lying disk may have been given up meanwhile, which is allowed.
    for member in stage.pool().await?.members() {
        if member.state != MemberState::InSync {
            pool.replace_member(stage, member).await?;
        }
    }
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after every liar was filled again").await?;
    let first = scrub(stage, pool).await?;
    if first.mismatches + first.unreadable > 0 {
        return Err(format!(
            "a scrub could not put right what {} of a level's members did: {first:?}",
            pool.tolerated()
        ));
    }
    let second = scrub(stage, pool).await?;
    if second.mismatches + second.unreadable + second.repaired > 0 {
        return Err(format!("a scrub has found what the one before should have put right: {second:?}"));
    }
    // The state in memory must equal the state on disk.
    if stage.chance.percent(30) {
        stage.restart(pool, volumes).await?;
        pool.expect_healthy(stage, "after a restart").await?;
    }
    Ok(())
}

/// Runs a scrub to its end and returns its report.
pub(in crate::profile) async fn scrub(stage: &Stage, pool: &Pool) -> CheckResult<ScrubReport> {
    // Without an explicit repair: blocks with checksums are repaired in any case.
    stage.order(Order::StartScrub { pool: pool.name.clone(), repairs: false }).await?;
    let until = stage.world.now() + SCRUB_TIME_MAX;
    loop {
        let report = stage.pool().await?.scrub.ok_or("a scrub that was begun is not told of")?;
        if !report.state.runs() {
            return Ok(report);
        }
        if stage.world.now() > until {
            return Err(format!("a scrub takes longer than {SCRUB_TIME_MAX:?}"));
        }
        stage.world.sleep(Duration::from_millis(100)).await;
    }
}
