//! Members hang, dawdle, err and vanish while hosts work, members are copied and rebuilt, volumes get snapshots, and the power
//! goes. Never more than the level bears at once: every command and every order ends within its bound, and content is right.

mod ward;

use crate::families::Families;
use crate::host::traffic::Habits;
use crate::pool::PoolPlan;
use crate::profile::disks::PROTECTED;
use crate::stage::{Judged, Stage};
use model::{Level, WritePolicy};
use shard::World;
use std::time::Duration;
use ward::{Illness, Ward};

/// Volumes that are made under load want more room than those of other profiles.
const DISK_MIB: u64 = 160;
/// How long an order may take while members answer at once or not at all.
const ORDER_TIME_MAX: Duration = Duration::from_secs(60);
/// The same beside members that are slow: to open a pool takes thousands of operations one after the other.
const SLOW_ORDER_TIME_MAX: Duration = Duration::from_secs(3600);

/// What may happen in a round, and how long a command of a host may take meanwhile.
struct Round {
    /// Members that may be ill at once.
    ill_max: usize,
    illnesses: &'static [Illness],
    /// True when members are copied and replaced under load, too.
    with_repairs: bool,
    answers_within: Duration,
}

impl Round {
    fn of_chance(stage: &Stage, tolerated: usize) -> Self {
        let silent = &[Illness::Hangs][..];
        match stage.chance.below(4) {
            0 if tolerated > 1 => {
                let answers_within = Duration::from_secs(2);
                Self { ill_max: 1, illnesses: silent, with_repairs: false, answers_within }
            }
            0 | 1 => {
                let answers_within = Duration::from_secs(10);
                Self { ill_max: 1, illnesses: silent, with_repairs: false, answers_within }
            }
            2 => {
                // What hosts wait at least.
                let answers_within = Duration::from_secs(30);
                Self { ill_max: tolerated, illnesses: &Illness::PROMPT, with_repairs: true, answers_within }
            }
            _ => {
                // Many unreadable blocks are restored one after the other, and each waits for a member that is slow.
                let answers_within = Duration::from_secs(120);
                Self { ill_max: tolerated, illnesses: &Illness::ALL, with_repairs: true, answers_within }
            }
        }
    }
}

pub(super) async fn play(stage: &Stage) -> Judged<()> {
    stage.bound_orders(ORDER_TIME_MAX);
    let plan = PoolPlan::of_chance(stage, &PROTECTED);
    // A member that is away when the power goes leaves parity without a redo log its write hole.
    let integrity = plan.integrity || matches!(plan.level, Level::Raid5 | Level::Raid6);
    let pool = PoolPlan { integrity, disk_mib: DISK_MIB, ..plan }.make(stage).await?;
    let mut families = Families::new(stage, &pool, WritePolicy::Through);
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    for _ in 0..stage.chance.within(1..=2) {
        families.make_volume(block_bytes).await?;
    }
    stage.open_portals().await?;
    // What a daemon that was killed had asked of a disk that hung lands later: a mark may be older than it was.
    pool.lies.set(true);
    let mut ward = Ward::new(stage, &pool);
    for _ in 0..stage.chance.within(1..=3) {
        let round = Round::of_chance(stage, pool.tolerated());
        let is_prompt = round.illnesses.len() <= Illness::PROMPT.len();
        stage.bound_orders(if is_prompt { ORDER_TIME_MAX } else { SLOW_ORDER_TIME_MAX });
        for _ in 0..stage.chance.within(1..=3) {
            work(stage, &mut families, &mut ward, &round).await?;
        }
        ward.mend().await?;
        stage.bound_orders(ORDER_TIME_MAX);
        families.look_at_all().await?;
    }
    families.look_at_snapshots().await?;
    families.expect_whole().await?;
    // What came back, was copied or was filled is as good as what it was before.
    pool.pull_all_that_may_be(stage).await?;
    families.look_at_all().await
}

/// Hosts are at work while things happen to members, and to the array.
async fn work(stage: &Stage, families: &mut Families<'_>, ward: &mut Ward<'_>, round: &Round) -> Judged<()> {
    let habits = Habits { answers_within: Some(round.answers_within), manages: false, ..stage.habits() };
    let commands = stage.chance.within(50..=400);
    let traffic = stage.start_hosts(stage.chance.count(1..=2), commands, &families.units(), &habits);
    for _ in 0..stage.chance.within(1..=4) {
        stage.world.sleep(stage.chance.moment(Duration::from_millis(300))).await;
        ward.happen(round).await?;
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
