//! Profile `misbehaving`: members hang, respond slowly, return errors and disappear while hosts work; members are
//! copied and rebuilt, snapshots are taken, and the power fails. Never more members are affected than the level
//! tolerates: every command and every order ends within its time limit, and the content is correct.

mod faulty_members;

use crate::families::Families;
use crate::host::traffic::WorkloadProfile;
use crate::pool::PoolPlan;
use crate::profile::disks::PROTECTED;
use crate::stage::{CheckResult, Stage};
use faulty_members::{FaultKind, FaultyMembers};
use model::{Level, WritePolicy};
use shard::World;
use std::time::Duration;

/// Size of the disks in MiB; volumes that are created under load need more space than in other profiles.
const DISK_MIB: u64 = 160;
/// Time limit of an order while members answer promptly or not at all.
const ORDER_TIME_MAX: Duration = Duration::from_secs(60);
/// Time limit of an order while members are slow: an opening goes on without a member that holds it up, and two may.
const SLOW_ORDER_TIME_MAX: Duration = Duration::from_secs(120);

/// Faults of a round, and the time limit of a host command in it.
struct Round {
    /// Upper bound of members with faults at a time.
    ill_max: usize,
    illnesses: &'static [FaultKind],
    /// True when members are also copied and replaced under load.
    with_repairs: bool,
    answers_within: Duration,
}

impl Round {
    fn of_chance(stage: &Stage, tolerated: usize) -> Self {
        let silent = &[FaultKind::Hangs][..];
        match stage.chance.below(4) {
            // These levels keep redundancy while one member hangs, so the bound is tighter.
            0 if tolerated > 1 => {
                let answers_within = Duration::from_secs(2);
                Self { ill_max: 1, illnesses: silent, with_repairs: false, answers_within }
            }
            0 | 1 => {
                let answers_within = Duration::from_secs(10);
                Self { ill_max: 1, illnesses: silent, with_repairs: false, answers_within }
            }
            2 => {
                // Hosts wait at least this long before they give up a command.
                let answers_within = Duration::from_secs(30);
                Self { ill_max: tolerated, illnesses: &FaultKind::PROMPT, with_repairs: true, answers_within }
            }
            _ => {
                // Many unreadable blocks are restored one after the other, and each restoration waits for a slow
                // member.
                let answers_within = Duration::from_secs(120);
                Self { ill_max: tolerated, illnesses: &FaultKind::ALL, with_repairs: true, answers_within }
            }
        }
    }
}

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    stage.bound_orders(ORDER_TIME_MAX);
    let plan = PoolPlan::of_chance(stage, &PROTECTED);
    // If a member is missing during a power failure, parity without a redo log has a write hole.
    let integrity = plan.integrity || matches!(plan.level, Level::Raid5 | Level::Raid6);
    let pool = PoolPlan { integrity, disk_mib: DISK_MIB, ..plan }.make(stage).await?;
    let mut families = Families::new(stage, &pool, WritePolicy::Through);
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    for _ in 0..stage.chance.within(1..=2) {
        families.make_volume(block_bytes).await?;
    }
    stage.open_portals().await?;
    // An operation that a killed daemon sent to a hung disk executes later, so a mark may be older than expected.
    pool.lies.set(true);
    let mut ward = FaultyMembers::new(stage, &pool);
    for _ in 0..stage.chance.within(1..=3) {
        let round = Round::of_chance(stage, pool.tolerated());
        // Slow members delay every operation of an order, so its time limit is higher.
        let is_prompt = round.illnesses.len() <= FaultKind::PROMPT.len();
        stage.bound_orders(if is_prompt { ORDER_TIME_MAX } else { SLOW_ORDER_TIME_MAX });
        for _ in 0..stage.chance.within(1..=3) {
            work(stage, &mut families, &mut ward, &round).await?;
        }
        ward.recover_all().await?;
        stage.bound_orders(ORDER_TIME_MAX);
        families.check_all_blocks().await?;
    }
    families.look_at_snapshots().await?;
    families.expect_consistent().await?;
    // Members that returned, were copied or were rebuilt must hold everything.
    pool.pull_all_that_may_be(stage).await?;
    families.check_all_blocks().await
}

/// Runs hosts while faults are injected into members and the array is operated.
async fn work(
    stage: &Stage,
    families: &mut Families<'_>,
    ward: &mut FaultyMembers<'_>,
    round: &Round,
) -> CheckResult<()> {
    // Task management is left out, since an aborted command has no response time.
    let habits = WorkloadProfile { answers_within: Some(round.answers_within), manages: false, ..stage.habits() };
    let commands = stage.chance.within(50..=400);
    let traffic = stage.start_hosts(stage.chance.count(1..=2), commands, &families.units(), &habits);
    for _ in 0..stage.chance.within(1..=4) {
        stage.world.sleep(stage.chance.moment(Duration::from_millis(300))).await;
        ward.act(round).await?;
    }
    if stage.chance.percent(50) {
        stage.until_over(&traffic, Duration::from_millis(100)).await;
    }
    if stage.chance.percent(20) {
        families.make_volume_if_it_fits().await?;
    }
    let step = families.step(&traffic).await?;
    families.end_round(&traffic, step).await
}

#[cfg(test)]
mod tests {
    use crate::{Profile, run};

    #[test]
    fn commands_end_within_their_bounds_while_members_misbehave() {
        for seed in 1..=12 {
            assert_eq!(run(Profile::Misbehaving, seed, None).wrong, None, "seed {seed}");
        }
    }
}
