//! Profile `growth`: pools grow while hosts use them, by members, by larger disks and by groups; volumes are copied;
//! the power fails at any time, also during the background work: no block changes, and the size is the old or the new
//! one.

use crate::families::{Families, Step};
use crate::pool::{Pool, PoolPlan};
use crate::power::OrderOutcome;
use crate::stage::{CheckResult, Stage};
use model::{
    Backend, GroupReport, GroupSpec, Level, MemberSize, MemberState, Order, Provision, RepairMode, RepairPolicy, Size,
    WritePolicy,
};
use shard::World;
use std::time::Duration;

/// Upper bound of members in a group.
const MEMBERS_MAX: usize = 7;

/// Upper bound of the time before the power fails during background work; mostly it is much shorter.
const WORK_TIME_MAX: Duration = Duration::from_secs(3);

/// Time limit for a rebuild or a reshape at the slowest pace.
const GROWTH_TIME_MAX: Duration = Duration::from_secs(3600);

/// Growing pool with its volumes.
struct Growth<'a> {
    stage: &'a Stage,
    pool: &'a Pool,
    families: Families<'a>,
    /// Size of the disks of the newest groups, in MiB.
    disk_mib: u64,
    block_bytes: u32,
}

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    let plan = PoolPlan { integrity: true, disk_mib: 160, ..PoolPlan::of_chance(stage, &Level::ALL) };
    let pool = plan.make(stage).await?;
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    let families = Families::new(stage, &pool, WritePolicy::Through);
    // The largest size of the disks above, so that a new member is never too small.
    let mut growth = Growth { stage, pool: &pool, families, disk_mib: 162, block_bytes };
    for _ in 0..stage.chance.within(1..=2) {
        growth.families.make_volume(block_bytes).await?;
    }
    stage.open_portals().await?;
    for _ in 0..stage.chance.within(1..=4) {
        let before = stage.pool().await?.size;
        let traffic = growth.families.start(stage.chance.within(20..=150));
        stage.world.sleep(stage.chance.moment(Duration::from_millis(200))).await;
        let step = growth.step().await?;
        growth.families.end_round(&traffic, step).await?;
        growth.finish().await?;
        let after = stage.pool().await?.size;
        // The size never shrinks, whether the growth took effect or not.
        if after < before {
            return Err(format!("the pool had {before}, and has {after}"));
        }
        if stage.chance.percent(if after > before { 75 } else { 15 }) {
            growth.use_room().await?;
        }
    }
    growth.families.use_for_a_while().await?;
    growth.families.look_at_snapshots().await?;
    growth.families.expect_consistent().await?;
    stage.restart(&pool, &growth.families.presented()).await?;
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after the pool has grown").await?;
    pool.pull_all_that_may_be(stage).await?;
    growth.families.check_all_blocks().await
}

impl Growth<'_> {
    async fn step(&mut self) -> CheckResult<Step> {
        self.set_pace().await?;
        match self.stage.chance.below(10) {
            0..=2 => self.add_member().await,
            3..=4 => self.enlarge().await,
            5 => self.add_group().await,
            6..=8 => self.families.copy().await,
            _ => self.families.take_snapshots().await,
        }
    }

    /// Draws the pace of background work, which is valid until the data plane restarts.
    async fn set_pace(&self) -> CheckResult<()> {
        let chance = &self.stage.chance;
        let max = chance.pick(&[None, Some(4 << 20), Some(64 << 20)]).map(Size::new);
        let mode = chance.pick(&[RepairMode::Idle, RepairMode::Balanced, RepairMode::Fast]);
        let policy = RepairPolicy { mode, max, ..RepairPolicy::default() };
        self.stage.order(Order::SetRepair { pool: self.pool.name.clone(), policy }).await.map(drop)
    }

    /// Returns a random group for which `fits` is true.
    async fn a_group(&self, fits: impl Fn(&GroupReport) -> bool) -> CheckResult<Option<GroupReport>> {
        let mut groups = self.stage.pool().await?.groups;
        groups.retain(fits);
        let count = groups.len();
        Ok((count > 0).then(|| groups.swap_remove(self.stage.chance.index(count))))
    }

    /// Adds a member; the group is reshaped in the background.
    async fn add_member(&mut self) -> CheckResult<Step> {
        let can = |group: &GroupReport| {
            matches!(group.level, Level::Raid1 | Level::Raid5 | Level::Raid6) && group.members.len() < MEMBERS_MAX
        };
        let Some(group) = self.a_group(can).await? else { return Ok(Step::Done) };
        let disk = self.pool.add_disk(self.stage, self.disk_mib).await?;
        let (pool, group) = (self.pool.name.clone(), Some(group.number));
        self.carry_out(Order::AddMember { pool, group, disk, force: false }).await
    }

    /// Replaces every disk of a group by a larger one and lets the group use the added space.
    async fn enlarge(&mut self) -> CheckResult<Step> {
        // Without redundancy, a replaced member cannot be rebuilt.
        let bears = |group: &GroupReport| group.level.tolerated(group.members.len()) > 0;
        let Some(GroupReport { number, members, .. }) = self.a_group(bears).await? else { return Ok(Step::Done) };
        self.disk_mib += self.stage.chance.within(24..=48);
        let mut step = Step::Done;
        // One disk at a time, since each replacement takes the redundancy of the group.
        for slot in 0..members.len() {
            let replacement = self.pool.add_disk(self.stage, self.disk_mib).await?;
            let group = self.group(number).await?;
            let failed = group.members[slot].disk.clone().ok_or("a member of a healthy group has no disk")?;
            // The member is healthy, which needs `force`.
            self.stage.order(Order::ReplaceDisk { failed, member: None, replacement, force: true }).await?;
            // A power failure during the rebuild, which must be completed after the restart.
            if self.stage.chance.percent(10) {
                self.stage.world.sleep(self.stage.chance.moment(Duration::from_millis(400))).await;
                step = self.families.cut_power_and_restart().await?;
            }
            self.until_done().await?;
            self.pool.expect_healthy(self.stage, "after a larger disk was filled").await?;
        }
        let before = self.stage.pool().await?.size.bytes();
        // The pool reports its gain in advance, and the report must be exact.
        let foretold = self.group(number).await?.growth.ok_or("larger disks bring no room")?.bytes();
        let order =
            Order::GrowPool { pool: self.pool.name.clone(), group: Some(number), member_size: MemberSize::default() };
        if self.carry_out(order.clone()).await? == Step::PowerFailed {
            step = Step::PowerFailed;
            // The power failed before the order took effect, so it is given again.
            if self.stage.pool().await?.size.bytes() == before {
                self.stage.order(order).await?;
            }
        }
        // From now on a replacement must have the new size.
        self.pool.need(self.disk_mib);
        let gained = self.stage.pool().await?.size.bytes() - before;
        if gained == foretold { Ok(step) } else { Err(format!("{foretold} bytes were foretold, and {gained} came")) }
    }

    /// Adds a group, which afterwards exists completely or not at all.
    async fn add_group(&mut self) -> CheckResult<Step> {
        let chance = &self.stage.chance;
        let level = chance.pick(&[Level::Raid0, Level::Raid1, Level::Raid5]);
        let members = if level == Level::Raid5 { 3 } else { 2 };
        let mut disks = Vec::new();
        for _ in 0..members {
            disks.push(self.pool.add_disk(self.stage, self.disk_mib).await?);
        }
        let group = GroupSpec {
            level,
            chunk: self.pool.plan.chunk,
            integrity: true,
            member_size: MemberSize::default(),
            disks,
        };
        self.carry_out(Order::AddGroup { pool: self.pool.name.clone(), group, force: false }).await
    }

    /// Creates a volume that takes most or all of the free space, with I/O at both of its ends.
    async fn use_room(&mut self) -> CheckResult<()> {
        let free = self.stage.pool().await?.free().bytes();
        let left = self.stage.chance.pick(&[0, 48 << 20, 96 << 20]);
        let bytes = free.saturating_sub(left) >> 20 << 20;
        if bytes > 0 {
            let mut spec = self.families.new_spec(bytes, self.block_bytes);
            if let Backend::Pool { provision, granule, zero_detection, .. } = &mut spec.backend {
                (*provision, *granule, *zero_detection) = (Provision::Segments, None, false);
            }
            // The free space may be distributed unequally over the groups, so the volume may not fit.
            if self.families.create_if_it_fits(spec).await? {
                self.families.spread(self.stage.chance.within(2..=32));
            }
            // A volume of this size leaves no space for thin ones.
            self.families.expect_refusals();
        }
        Ok(())
    }

    async fn carry_out(&mut self, order: Order) -> CheckResult<Step> {
        match self.stage.until_power_failure(order).await {
            OrderOutcome::Answered(answer) => {
                answer.map(|()| Step::Done).map_err(|refusal| format!("no growth: {refusal}"))
            }
            OrderOutcome::PowerFailed => self.families.cut_power_and_restart().await,
        }
    }

    async fn group(&self, number: u16) -> CheckResult<GroupReport> {
        let groups = self.stage.pool().await?.groups;
        groups.into_iter().find(|group| group.number == number).ok_or_else(|| format!("group {number} is gone"))
    }

    /// Waits for the background work, possibly with writes, a disk failure and power failures.
    async fn finish(&mut self) -> CheckResult<()> {
        let mut has_lost = false;
        for _ in 0..self.stage.chance.below(3) {
            let report = self.stage.pool().await?;
            // Without background work there is nothing that a failure could interrupt.
            if report.reshape().is_none() && report.rebuild().is_none() {
                break;
            }
            let traffic = self.families.start(self.stage.chance.within(20..=150));
            self.stage.world.sleep(self.stage.chance.moment(WORK_TIME_MAX)).await;
            let step = match self.stage.chance.below(4) {
                0..=1 => self.families.cut_power_and_restart().await?,
                2 if !has_lost => {
                    has_lost = self.lose_one().await?;
                    Step::Done
                }
                _ => Step::Done,
            };
            self.families.end_round(&traffic, step).await?;
        }
        self.until_done().await?;
        for lost in self.stage.pool().await?.members() {
            if lost.state.is_lost() {
                self.pool.replace_member(self.stage, lost).await?;
            }
        }
        self.until_done().await?;
        self.pool.expect_healthy(self.stage, "after the pool has grown").await
    }

    /// Waits until no rebuild and no reshape is running.
    async fn until_done(&self) -> CheckResult<()> {
        let until = self.stage.world.now() + GROWTH_TIME_MAX;
        loop {
            let report = self.stage.pool().await?;
            let is_busy = |state| matches!(state, MemberState::Rebuilding | MemberState::Joining);
            if report.reshape().is_none() && !report.members().any(|member| is_busy(member.state)) {
                return self.stage.idle_disks().await;
            }
            if self.stage.world.now() > until {
                return Err(format!("a pool does not come to rest in {GROWTH_TIME_MAX:?}: {report:?}"));
            }
            self.stage.world.sleep(Duration::from_secs(1)).await;
        }
    }

    /// Fails a member of a group that is being reshaped, if there is one. Only one failure is tolerated, because the
    /// pool may not have noticed it yet.
    async fn lose_one(&mut self) -> CheckResult<bool> {
        // A group that lost a member already may not lose another.
        let is_whole = |group: &GroupReport| group.members.iter().all(|member| member.state == MemberState::InSync);
        let moves = |group: &GroupReport| group.reshape.is_some() && is_whole(group);
        if let Some(group) = self.a_group(moves).await? {
            let member = &group.members[self.stage.chance.index(group.members.len())];
            let disk = member.disk.clone().ok_or("a member in step has no disk")?;
            self.pool.handle(self.stage, &disk)?.fail();
            return Ok(true);
        }
        Ok(false)
    }
}
