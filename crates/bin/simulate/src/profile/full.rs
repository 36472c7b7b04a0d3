//! Profile `full`: hosts write to thin volumes that exceed their pool until it is full, across power failures: a
//! refused write leaves old or new data, operators can always free space, and space that was given back can be written
//! again.

use crate::families::Families;
use crate::host::traffic::WorkloadProfile;
use crate::pool::{Pool, PoolPlan};
use crate::stage::{CheckResult, Stage};
use model::{Backend, Level, Order, Provision, Size, SpacePolicy, VolumeSpec, WritePolicy};
use shard::World;
use std::time::Duration;

/// Space that a volume with a map allocates at least: one slab for its map, in bytes.
const SLAB_BYTES: u64 = 17 << 20;

/// Time limit for the release of deleted space.
const CLEANING_TIME_MAX: Duration = Duration::from_secs(3600);

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    // Including the space that the pool itself needs, which a pool without volumes must return to.
    let empty = stage.pool().await?.used;
    let mut families = Families::new(stage, &pool, WritePolicy::Through);
    over_commit(stage, &mut families).await?;
    stage.open_portals().await?;
    for _ in 0..stage.chance.within(3..=7) {
        tell_of_space(stage, &pool).await?;
        let habits = habits(stage, families.block_bytes());
        let (hosts, commands) = (stage.chance.count(1..=2), stage.chance.within(40..=160));
        let traffic = stage.start_hosts(hosts, commands, &families.units(), &habits);
        let step = match stage.chance.below(8) {
            0..=4 => {
                stage.world.sleep(stage.chance.moment(Duration::from_millis(200))).await;
                families.step(&traffic).await?
            }
            _ => {
                stage.until_over(&traffic, Duration::from_millis(10)).await;
                crate::families::Step::Done
            }
        };
        families.end_round(&traffic, step).await?;
        if stage.chance.percent(40) {
            families.refill(&habits).await?;
        }
    }
    families.look_at_snapshots().await?;
    families.expect_consistent().await?;
    stage.restart(&pool, &families.presented()).await?;
    families.check_all_blocks().await?;
    families.take_apart().await?;
    expect_used(stage, empty).await?;
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after everything was deleted").await
}

/// Creates one or two thin volumes that exceed the remaining space; a volume of segments takes most of the pool.
async fn over_commit(stage: &Stage, families: &mut Families<'_>) -> CheckResult<()> {
    let chance = &stage.chance;
    let (volumes, block_bytes) = (chance.within(1..=2), chance.pick(&[512, 4096, 4096]));
    // Space for the maps and some data of the thin volumes: less than their size, so that the pool fills up.
    let kept = (2 * volumes + chance.below(2)) * SLAB_BYTES;
    // Rounded down to MiB, the unit of segments.
    let ballast = stage.pool().await?.free().bytes().saturating_sub(kept) >> 20 << 20;
    if ballast > 0 {
        let mut spec = families.new_spec(ballast, block_bytes);
        spec.backend = Backend::Pool {
            stripe_unit: None,
            provision: Provision::Segments,
            granule: None,
            zero_detection: false,
            encrypted: false,
        };
        families.create(spec).await?;
    }
    for _ in 0..volumes {
        let spec = families.new_spec(chance.within(24..=64) << 20, block_bytes);
        families.create(thin(stage, spec)).await?;
        families.spread(chance.within(16..=64));
    }
    families.expect_refusals();
    Ok(())
}

fn thin(stage: &Stage, mut spec: VolumeSpec) -> VolumeSpec {
    if let Backend::Pool { provision, granule, .. } = &mut spec.backend {
        *provision = Provision::Thin;
        *granule = stage.chance.pick(&[None, Some(16 << 10), Some(1 << 20), Some(1 << 20)]).map(Size::new);
    }
    spec
}

/// Returns large commands, so that the pool fills quickly.
fn habits(stage: &Stage, block_bytes: u64) -> WorkloadProfile {
    let most = stage.chance.within(16..=512) << 10;
    WorkloadProfile { blocks: most / block_bytes, large_bytes: 512 << 10, ..stage.habits() }
}

/// Sets the thresholds of the pool just above its current usage, so that hosts receive warnings.
async fn tell_of_space(stage: &Stage, pool: &Pool) -> CheckResult<()> {
    let report = stage.pool().await?;
    // Leaves room for both thresholds below 100 percent.
    let used = (report.used.bytes() * 100 / report.size.bytes().max(1)).min(96);
    let soft = u8::try_from(used + stage.chance.within(1..=2)).expect("at most 98");
    let policy = SpacePolicy { soft, hard: soft + 1 };
    stage.order(Order::SetSpace { pool: pool.name.clone(), policy }).await.map(drop)
}

/// Waits until the pool has released all deleted space and uses exactly `expected`.
async fn expect_used(stage: &Stage, expected: Size) -> CheckResult<()> {
    let until = stage.world.now() + CLEANING_TIME_MAX;
    loop {
        let used = stage.pool().await?.used;
        if used == expected {
            return Ok(());
        }
        if stage.world.now() > until {
            return Err(format!("nothing is left in the pool, and {used} are used, not {expected}"));
        }
        stage.world.sleep(Duration::from_secs(1)).await;
    }
}

#[cfg(test)]
mod tests {
    use crate::Profile;
    use crate::run::play;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn hosts_of_full_pools_hear_of_thresholds_and_are_refused() {
        let told = Rc::new(Cell::new((0, 0)));
        for seed in 1..=10 {
            let sum = told.clone();
            let outcome = play(seed, None, async move |stage| {
                Profile::Full.play(stage).await?;
                let (warned, refused) = sum.get();
                sum.set((warned + stage.told.warned.get(), refused + stage.told.refused.get()));
                Ok(())
            });
            assert_eq!(outcome.wrong, None, "seed {seed}");
        }
        let (warned, refused) = told.get();
        assert!(warned > 0 && refused > 0, "{warned} warnings, {refused} refusals");
    }
}
