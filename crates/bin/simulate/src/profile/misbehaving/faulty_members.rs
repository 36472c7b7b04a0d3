//! Members with faults: injection, treatment, and recovery of all members.

use super::Round;
use crate::pool::Pool;
use crate::profile::disks::scrub;
use crate::stage::{CheckResult, Stage};
use model::{DiskName, DiskReport, Label, MemberReport, MemberState, Order, PoolReport, PoolState, Report, code};
use shard::{Time, World};
use sim::{DiskFaults, DiskHandle};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after which the pool has used every disk, and so knows which ones it lost: see `pool::ownership` of the engine.
const NOTICED_AFTER: Duration = Duration::from_secs(5);
/// Interval and number of the checks whether the pool is healthy; a member that was behind may stay out for ten
/// minutes.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOKS_MAX: usize = 240;

/// Fault of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultKind {
    /// No operation is answered.
    Hangs,
    /// Every operation takes long.
    IsSlow,
    /// Some operations take very long.
    Dawdles,
    /// Part of the disk is unreadable.
    HasBadBlocks,
    /// Some or all reads fail.
    FailsReads,
    /// Some writes fail.
    FailsWrites,
    /// The disk is removed.
    IsGone,
}

impl FaultKind {
    pub(super) const ALL: [Self; 7] = [
        Self::Hangs,
        Self::IsSlow,
        Self::Dawdles,
        Self::HasBadBlocks,
        Self::FailsReads,
        Self::FailsWrites,
        Self::IsGone,
    ];

    /// Faults with which a disk answers promptly, or not at all.
    pub(super) const PROMPT: [Self; 5] =
        [Self::Hangs, Self::HasBadBlocks, Self::FailsReads, Self::FailsWrites, Self::IsGone];

    fn inject(self, stage: &Stage, disk: &DiskHandle, bytes: u64) {
        let chance = &stage.chance;
        let often = u32::try_from(chance.within(1_000..=1_000_000)).expect("at most a million");
        let faults = DiskFaults::default();
        let millis = |range| Duration::from_millis(chance.within(range));
        match self {
            Self::Hangs => disk.hang(),
            Self::IsSlow => {
                let least = millis(5..=200);
                disk.set_faults(DiskFaults { latency: least..=2 * least, ..faults });
            }
            Self::Dawdles => {
                let slow = millis(200..=500)..=millis(500..=4_000);
                disk.set_faults(DiskFaults { slow_per_million: often / 4, slow, ..faults });
            }
            Self::HasBadBlocks => {
                let start = chance.below(bytes);
                disk.make_unreadable(start..bytes.min(start + chance.within(512..=4 << 20)));
            }
            Self::FailsReads => disk.set_faults(DiskFaults { read_error_per_million: often, ..faults }),
            Self::FailsWrites => disk.set_faults(DiskFaults { write_error_per_million: often / 4, ..faults }),
            Self::IsGone => disk.fail(),
        }
    }
}

/// State of an unreliable disk.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FaultState {
    Faulty,
    /// Free of faults since this time; the pool may not know yet what the disk missed.
    Recovered(Time),
}

/// Unreliable members; never more than the round allows.
pub(super) struct FaultyMembers<'a> {
    stage: &'a Stage,
    pool: &'a Pool,
    /// Cases by the number of the disk, which does not depend on its name.
    cases: BTreeMap<u64, FaultState>,
}

impl<'a> FaultyMembers<'a> {
    pub(super) fn new(stage: &'a Stage, pool: &'a Pool) -> Self {
        Self { stage, pool, cases: BTreeMap::new() }
    }

    /// Injects or removes one fault, or copies or replaces a member.
    pub(super) async fn act(&mut self, round: &Round) -> CheckResult<()> {
        match self.stage.chance.below(10) {
            0..=5 => self.start_faults(round).await,
            6..=7 => self.clear_one_fault(),
            8 if round.with_repairs => self.copy_one(round).await,
            9 if round.with_repairs => self.repair_one().await,
            _ => Ok(()),
        }
    }

    /// Injects a fault into one more member, if the round allows it.
    async fn start_faults(&mut self, round: &Round) -> CheckResult<()> {
        let report = self.stage.pool().await?;
        // Closed cases first, so that the limit counts only members that are still unreliable.
        self.forget_recovered(&report)?;
        let well = self.healthy_members(&report)?;
        if self.cases.len() >= round.ill_max || well.is_empty() {
            return Ok(());
        }
        let disk = self.pool.handle(self.stage, &well[self.stage.chance.index(well.len())])?;
        let illness = self.stage.chance.pick(round.illnesses);
        tracing::info!(at = self.stage.world.now().0, ?disk, ?illness, "a disk falls ill");
        illness.inject(self.stage, &disk, self.pool.plan.disk_mib << 20);
        // By the number of the disk, which survives its change of name at a restart.
        self.cases.insert(disk.id(), FaultState::Faulty);
        Ok(())
    }

    /// Removes closed cases: disks in sync, and disks that are no longer members.
    fn forget_recovered(&mut self, report: &PoolReport) -> CheckResult<()> {
        let mut in_step = BTreeMap::new();
        for member in report.members() {
            let is_in_step = member.state == MemberState::InSync && member.copy.is_none();
            if let Some(disk) = &member.disk {
                in_step.insert(self.pool.handle(self.stage, disk)?.id(), is_in_step);
            }
        }
        // A member that was not found may still be one of the cases, under any name.
        let is_complete = report.members().all(|member| member.disk.is_some());
        let is_copied = report.members().any(|member| member.copy.is_some());
        let now = self.stage.world.now();
        self.cases.retain(|disk, case| match (in_step.get(disk), case) {
            (Some(true), FaultState::Recovered(since)) => now.since(*since) < NOTICED_AFTER,
            (Some(_), _) => true,
            (None, _) => !is_complete || is_copied,
        });
        Ok(())
    }

    /// Returns the in-sync members without a case.
    fn healthy_members(&self, report: &PoolReport) -> CheckResult<Vec<DiskName>> {
        let mut well = Vec::new();
        for member in report.members().filter(|member| member.state == MemberState::InSync) {
            let Some(disk) = &member.disk else { continue };
            if !self.cases.contains_key(&self.pool.handle(self.stage, disk)?.id()) {
                well.push(disk.clone());
            }
        }
        // A member that is being rebuilt adds no redundancy, even if it has no fault.
        let unknown = report.members().filter(|member| member.state != MemberState::InSync).count();
        Ok(if unknown > self.cases.len() { Vec::new() } else { well })
    }

    /// Removes the fault of one disk.
    fn clear_one_fault(&mut self) -> CheckResult<()> {
        let ill = |(disk, case): (&u64, &FaultState)| (*case == FaultState::Faulty).then_some(*disk);
        let Some(disk) = self.cases.iter().find_map(ill) else { return Ok(()) };
        for handle in self.pool.handles(self.stage).iter().filter(|handle| handle.id() == disk) {
            self.clear_fault(handle);
        }
        Ok(())
    }

    fn clear_fault(&mut self, disk: &DiskHandle) {
        // Only the disk recovers; the pool learns of it by itself.
        disk.set_faults(DiskFaults::default());
        disk.make_readable();
        if disk.is_gone() {
            disk.revive();
        } else if disk.is_hung() {
            // A hung disk continues, or recovers only by a power cycle.
            if self.stage.chance.percent(70) { disk.resume() } else { disk.revive() }
        }
        if let Some(case) = self.cases.get_mut(&disk.id()) {
            *case = FaultState::Recovered(self.stage.world.now());
        }
    }

    /// Copies an in-sync member to a new disk, which may have a fault as well.
    async fn copy_one(&mut self, round: &Round) -> CheckResult<()> {
        let report = self.stage.pool().await?;
        self.forget_recovered(&report)?;
        let in_service = |member: &&MemberReport| member.state == MemberState::InSync;
        let all: Vec<DiskName> = report.members().filter(in_service).filter_map(|member| member.disk.clone()).collect();
        if all.is_empty() {
            return Ok(());
        }
        let disk = all[self.stage.chance.index(all.len())].clone();
        let replacement = self.pool.add_replacement(self.stage).await?;
        let order = Order::CopyMember { disk, replacement: replacement.clone(), force: false };
        match self.stage.ask(order).await {
            Ok(_) => {}
            // The member failed meanwhile, or did not answer.
            Err(refusal) if [code::POOL_BUSY, code::DISK_UNREADABLE, code::DISK_NOT_MEMBER].contains(&refusal.code) => {
                return Ok(());
            }
            Err(refusal) => return Err(format!("a member is not copied: {refusal} ({})", refusal.code)),
        }
        // The path is what a planted bug sees of the disk.
        self.stage.plant.record_copy(&self.pool.path(&replacement)?);
        if self.cases.len() < round.ill_max && self.stage.chance.percent(30) {
            let handle = self.pool.handle(self.stage, &replacement)?;
            let illness = self.stage.chance.pick(round.illnesses);
            tracing::info!(at = self.stage.world.now().0, disk = ?handle, ?illness, "a disk falls ill");
            illness.inject(self.stage, &handle, self.pool.plan.disk_mib << 20);
            self.cases.insert(handle.id(), FaultState::Faulty);
        }
        Ok(())
    }

    /// Replaces a failed member by a new disk under load.
    async fn repair_one(&mut self) -> CheckResult<()> {
        let report = self.stage.pool().await?;
        let failed = report.members().find(|member| member.state == MemberState::Failed).cloned();
        let Some(failed) = failed else { return Ok(()) };
        self.replace(&failed).await
    }

    async fn replace(&mut self, lost: &MemberReport) -> CheckResult<()> {
        let replacement = self.pool.add_replacement(self.stage).await?;
        let handle = self.pool.handle(self.stage, &replacement)?;
        // A missing member has no disk, and the order identifies it by `member`.
        let failed = lost.disk.clone().unwrap_or_else(|| replacement.clone());
        let order = Order::ReplaceDisk { failed, member: Some(lost.id), replacement, force: false };
        match self.stage.ask(order).await {
            // A replacement holds nothing yet, so it counts as unreliable until it is filled.
            Ok(_) => drop(self.cases.insert(handle.id(), FaultState::Recovered(self.stage.world.now()))),
            // Another member is being copied or rebuilt, or the member returned on its own.
            Err(refusal) if [code::POOL_BUSY, code::DISK_HEALTHY].contains(&refusal.code) => {}
            Err(refusal) => return Err(format!("a lost member is not replaced: {refusal} ({})", refusal.code)),
        }
        Ok(())
    }

    /// Removes all faults and waits until the pool is healthy: members return on their own, are returned, or are
    /// replaced.
    pub(super) async fn recover_all(&mut self) -> CheckResult<()> {
        for disk in self.pool.handles(self.stage) {
            self.clear_fault(&disk);
        }
        let mut last = None;
        for _ in 0..LOOKS_MAX {
            self.stage.world.sleep(LOOK_EVERY).await;
            let report = self.stage.pool().await?;
            if report.state == PoolState::Healthy && report.members().all(|member| member.copy.is_none()) {
                self.cases.clear();
                self.stage.idle_disks().await?;
                return self.verify().await;
            }
            for member in report.members() {
                match member.state {
                    MemberState::Missing if self.put_back(member).await? => {}
                    MemberState::Missing | MemberState::Failed => self.replace(member).await?,
                    _ => {}
                }
            }
            last = Some(report);
        }
        Err(format!(
            "all disks are well, and the pool is not healthy after {:?}: {last:?}",
            LOOK_EVERY * LOOKS_MAX as u32
        ))
    }

    /// Checks with a scrub that damage from faulty members is repaired, if the pool has checksums; later faults can
    /// then be tolerated again.
    async fn verify(&self) -> CheckResult<()> {
        if !self.pool.plan.integrity {
            return Ok(());
        }
        let found = scrub(self.stage, self.pool).await?;
        if found.mismatches + found.unreadable > 0 {
            return Err(format!("a scrub could not restore what members have erred in: {found:?}"));
        }
        Ok(())
    }

    /// Returns the disk of a member that was missing when the pool was opened; it receives only what it missed.
    async fn put_back(&self, lost: &MemberReport) -> CheckResult<bool> {
        if self.stage.chance.percent(30) {
            return Ok(false);
        }
        // A disk that was away when the data plane started is not open yet.
        self.pool.find_late_disks(self.stage).await;
        let Report::Disks(disks) = self.stage.order(Order::Disks).await? else {
            return Err("Disks was not answered with disks".to_owned());
        };
        let is_it = |disk: &&DiskReport| matches!(disk.label, Label::PoolMember { disk, .. } if disk == lost.id);
        let Some(name) = disks.iter().find(is_it).and_then(|disk| disk.name.clone()) else { return Ok(false) };
        Ok(self.stage.ask(Order::ReturnDisk { disk: name, member: lost.id }).await.is_ok())
    }
}
