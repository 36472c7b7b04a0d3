//! Profile `refusing`: some or all members refuse writes for a while, as on a full file system. Every command ends,
//! acknowledged data is present, and once there is space the pool serves again, on its own or after it is reopened.

use crate::families::Families;
use crate::host::traffic::{Unit, WorkloadProfile};
use crate::oracle::Torn;
use crate::pool::{Pool, PoolPlan};
use crate::stage::{CheckResult, Stage};
use block::IoErrorKind;
use model::{Level, MemberState, Order, PoolState, Report, WritePolicy};
use shard::World;
use sim::{DiskFaults, DiskHandle};
use std::time::Duration;

/// Upper bound of the response time of a command, whatever the disks refuse: hosts give up after 30 to 60 seconds.
const ANSWER_MAX: Duration = Duration::from_secs(30);

/// Duration of refusals that an array with a log hides completely: see `retry_no_space` in `raid`.
const BORNE_MAX: Duration = Duration::from_millis(2500);

/// Refusal of writes: affected disks, error and duration.
struct Refusal {
    all: bool,
    kind: IoErrorKind,
    lasts: Duration,
}

impl Refusal {
    fn of_chance(stage: &Stage, level: Level) -> Self {
        let chance = &stage.chance;
        let all = chance.percent(60);
        let kind =
            chance.pick(&[IoErrorKind::NoSpace, IoErrorKind::NoSpace, IoErrorKind::Medium, IoErrorKind::ReadOnly]);
        let is_short = chance.percent(50);
        // A permanent write error on the only member with a block loses the block, which another profile covers.
        let may_lose = kind == IoErrorKind::Medium && !all && !matches!(level, Level::Raid5 | Level::Raid6);
        let most = if is_short || may_lose { BORNE_MAX } else { Duration::from_secs(20) };
        Self { all, kind, lasts: chance.moment(most) }
    }

    /// True when hosts may notice only latency.
    fn is_tolerated(&self, pool: &Pool) -> bool {
        // Only lack of space is retried: any other refusal fails the member.
        pool.plan.integrity && self.kind == IoErrorKind::NoSpace && self.lasts <= BORNE_MAX
    }

    fn begin(&self, stage: &Stage, pool: &Pool) {
        for disk in pool.handles(stage) {
            if self.all || stage.chance.percent(40) {
                disk.set_faults(DiskFaults { refuses: Some(self.kind), ..DiskFaults::default() });
            }
        }
    }
}

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let plan = PoolPlan::of_chance(stage, &Level::ALL);
    // Parity without a redo log has a write hole, which a partly refused stripe would expose.
    let integrity = plan.integrity || matches!(plan.level, Level::Raid5 | Level::Raid6);
    let pool = PoolPlan { integrity, ..plan }.make(stage).await?;
    let mut families = Families::new(stage, &pool, WritePolicy::Through);
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    for _ in 0..stage.chance.within(1..=2) {
        families.make_volume(block_bytes).await?;
    }
    stage.open_portals().await?;
    for _ in 0..stage.chance.within(1..=3) {
        if stage.chance.percent(50) {
            families.take_snapshots().await?;
        }
        refuse(stage, &pool, &families).await?;
        families.use_for_a_while().await?;
        families.look_at_snapshots().await?;
    }
    stage.restart(&pool, &families.presented()).await?;
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after members took writes again").await?;
    pool.pull_all_that_may_be(stage).await?;
    families.look_at_snapshots().await?;
    families.check_all_blocks().await
}

/// Runs hosts while members refuse writes; afterwards an operator reacts to the state of the pool.
async fn refuse(stage: &Stage, pool: &Pool, families: &Families<'_>) -> CheckResult<()> {
    let refusal = Refusal::of_chance(stage, pool.plan.level);
    let habits =
        WorkloadProfile { media_fail: !refusal.is_tolerated(pool), answers_within: Some(ANSWER_MAX), ..stage.habits() };
    // Without task management, since an aborted command has no response time.
    let habits = WorkloadProfile { manages: false, ..habits };
    let units: Vec<Unit> = families.units();
    let commands = stage.chance.within(40..=250);
    let traffic = stage.start_hosts(stage.chance.count(1..=2), commands, &units, &habits);
    stage.world.sleep(stage.chance.moment(Duration::from_millis(100))).await;
    refusal.begin(stage, pool);
    stage.world.sleep(refusal.lasts).await;
    pool.handles(stage).iter().for_each(|disk| disk.set_faults(DiskFaults::default()));
    stage.until_over(&traffic, Duration::from_millis(100)).await;
    stage.until_quiet(&traffic).await?;
    if refusal.is_tolerated(pool) {
        pool.expect_healthy(stage, "after members had no space for a moment").await?;
        return families.check_all_blocks().await;
    }
    // A stopped group cannot be closed: its log may hold data of failed writes that no read has returned so far.
    stage.mark_uncertain(&families.presented(), Torn::Whole);
    if stage.chance.percent(50) {
        look_read_only(stage, pool, families).await?;
    }
    recover(stage, pool, families).await?;
    families.check_all_blocks().await
}

/// Opens the pool after a stop or a kill without writes to its disks, because read-only is requested or because the
/// disks refuse writes. The oracle checks that the pool shows the same data once the disks accept writes again.
async fn look_read_only(stage: &Stage, pool: &Pool, families: &Families<'_>) -> CheckResult<()> {
    let volumes = families.presented();
    if stage.chance.percent(50) {
        stage.kill(&volumes);
    } else {
        stage.order(Order::Stop).await?;
        stage.array.kill();
    }
    stage.power_on(pool).await;
    let is_asked_for = stage.chance.percent(50);
    if !is_asked_for {
        let refuses = Some(stage.chance.pick(&[IoErrorKind::NoSpace, IoErrorKind::ReadOnly, IoErrorKind::Medium]));
        pool.handles(stage).iter().for_each(|disk| disk.set_faults(DiskFaults { refuses, ..DiskFaults::default() }));
    }
    pool.find_disks(stage).await;
    // Refused writes count as writes of the disk, so they are subtracted.
    let errors = |disk: &DiskHandle| disk.counts().write_errors;
    let done = || pool.handles(stage).iter().map(|disk| disk.counts().writes - errors(disk)).sum::<u64>();
    let before = done();
    let opened = stage.order(pool.opening_as(is_asked_for)).await?;
    let Report::Pool(report) = opened else { return Err(format!("OpenPool was answered with {opened:?}")) };
    if report.read_only.is_none() {
        return Err(format!("a pool that may not be written, or cannot, is open for writing: {report:?}"));
    }
    stage.present(&volumes).await?;
    stage.open_portals().await?;
    families.check_all_blocks().await?;
    if done() != before {
        return Err("a pool that is read-only has written to its disks".to_owned());
    }
    pool.handles(stage).iter().for_each(|disk| disk.set_faults(DiskFaults::default()));
    // Closed and opened again, since a pool does not change to writable while it is open.
    stage.order(Order::ClosePool { pool: pool.name.clone() }).await?;
    stage.order(pool.opening()).await?;
    families.check_all_blocks().await
}

/// Reopens the pool and replaces the members that it gave up.
async fn recover(stage: &Stage, pool: &Pool, families: &Families<'_>) -> CheckResult<()> {
    stage.restart(pool, &families.presented()).await?;
    families.check_all_blocks().await?;
    let report = stage.pool().await?;
    if report.state == PoolState::Failed {
        return Err(format!("the pool has room, was opened anew, and does not serve: {report:?}"));
    }
    let is_lost = |state: MemberState| state.is_lost();
    let lost: Vec<_> = report.members().filter(|member| is_lost(member.state)).cloned().collect();
    for member in &lost {
        pool.replace_member(stage, member).await?;
    }
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after every replacement was filled").await
}

#[cfg(test)]
mod tests {
    use crate::Profile;
    use crate::run::play;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn commands_end_and_answers_hold_while_members_refuse_writes() {
        let refused = Rc::new(Cell::new(0));
        for seed in 1..=12 {
            let sum = refused.clone();
            let outcome = play(seed, None, async move |stage| {
                Profile::Refusing.play(stage).await?;
                sum.set(sum.get() + stage.told.refused.get());
                Ok(())
            });
            assert_eq!(outcome.wrong, None, "seed {seed}");
        }
        assert!(refused.get() > 0, "no host has met a refusal");
    }
}
