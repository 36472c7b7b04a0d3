//! The members that cannot be counted on: what ails them, what is done about it, and how all are well again.

use super::Round;
use crate::pool::Pool;
use crate::profile::disks::scrub;
use crate::stage::{Judged, Stage};
use model::{DiskName, DiskReport, Label, MemberReport, MemberState, Order, PoolReport, PoolState, Report, code};
use shard::{Time, World};
use sim::{DiskFaults, DiskHandle};
use std::collections::BTreeMap;
use std::time::Duration;

/// After this every disk was used by its pool, which then knows that it has lost one: see `owners`.
const NOTICED_AFTER: Duration = Duration::from_secs(5);
/// How often and how many times is looked whether the pool is healthy; one that was behind may stay out for ten minutes.
const LOOK_EVERY: Duration = Duration::from_secs(10);
const LOOKS_MAX: usize = 240;

/// What ails a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Illness {
    /// Nothing is answered.
    Hangs,
    /// Every operation takes long.
    IsSlow,
    /// Some operations take very long.
    Dawdles,
    /// A part of it cannot be read.
    HasBadBlocks,
    /// Some or all reads fail.
    FailsReads,
    /// Some writes fail.
    FailsWrites,
    /// It is pulled out.
    IsGone,
}

impl Illness {
    pub(super) const ALL: [Self; 7] = [
        Self::Hangs,
        Self::IsSlow,
        Self::Dawdles,
        Self::HasBadBlocks,
        Self::FailsReads,
        Self::FailsWrites,
        Self::IsGone,
    ];

    /// Those with which a disk answers at once, or not at all.
    pub(super) const PROMPT: [Self; 5] =
        [Self::Hangs, Self::HasBadBlocks, Self::FailsReads, Self::FailsWrites, Self::IsGone];

    fn befall(self, stage: &Stage, disk: &DiskHandle, bytes: u64) {
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

/// Where a disk stands that cannot be counted on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Ill,
    /// Nothing ails it since then. Its pool may not know yet what it has missed.
    Cured(Time),
}

/// The members that cannot be counted on: never more than the round allows.
pub(super) struct Ward<'a> {
    stage: &'a Stage,
    pool: &'a Pool,
    /// By the number of the disk, whatever it is called.
    cases: BTreeMap<u64, Case>,
}

impl<'a> Ward<'a> {
    pub(super) fn new(stage: &'a Stage, pool: &'a Pool) -> Self {
        Self { stage, pool, cases: BTreeMap::new() }
    }

    /// One thing happens to the members.
    pub(super) async fn happen(&mut self, round: &Round) -> Judged<()> {
        match self.stage.chance.below(10) {
            0..=5 => self.fall_ill(round).await,
            6..=7 => self.cure_one(),
            8 if round.with_repairs => self.copy_one(round).await,
            9 if round.with_repairs => self.repair_one().await,
            _ => Ok(()),
        }
    }

    /// One more member is ill, if the round allows it.
    async fn fall_ill(&mut self, round: &Round) -> Judged<()> {
        let report = self.stage.pool().await?;
        self.discharge(&report)?;
        let well = self.well(&report)?;
        if self.cases.len() >= round.ill_max || well.is_empty() {
            return Ok(());
        }
        let disk = self.pool.handle(self.stage, &well[self.stage.chance.index(well.len())])?;
        let illness = self.stage.chance.pick(round.illnesses);
        tracing::info!(at = self.stage.world.now().0, ?disk, ?illness, "a disk falls ill");
        illness.befall(self.stage, &disk, self.pool.plan.disk_mib << 20);
        self.cases.insert(disk.id(), Case::Ill);
        Ok(())
    }

    /// Forgets cases that are over: disks in step, and those that are no members any more.
    fn discharge(&mut self, report: &PoolReport) -> Judged<()> {
        let mut in_step = BTreeMap::new();
        for member in report.members() {
            let is_in_step = member.state == MemberState::InSync && member.copy.is_none();
            if let Some(disk) = &member.disk {
                in_step.insert(self.pool.handle(self.stage, disk)?.id(), is_in_step);
            }
        }
        // A member that was not found is lost, whatever it is called.
        let is_complete = report.members().all(|member| member.disk.is_some());
        let is_copied = report.members().any(|member| member.copy.is_some());
        let now = self.stage.world.now();
        self.cases.retain(|disk, case| match (in_step.get(disk), case) {
            (Some(true), Case::Cured(since)) => now.since(*since) < NOTICED_AFTER,
            (Some(_), _) => true,
            (None, _) => !is_complete || is_copied,
        });
        Ok(())
    }

    /// The members in step that nothing ails.
    fn well(&self, report: &PoolReport) -> Judged<Vec<DiskName>> {
        let mut well = Vec::new();
        for member in report.members().filter(|member| member.state == MemberState::InSync) {
            let Some(disk) = &member.disk else { continue };
            if !self.cases.contains_key(&self.pool.handle(self.stage, disk)?.id()) {
                well.push(disk.clone());
            }
        }
        // Whoever is being filled protects nothing, be it that nothing ails it any more.
        let unknown = report.members().filter(|member| member.state != MemberState::InSync).count();
        Ok(if unknown > self.cases.len() { Vec::new() } else { well })
    }

    /// Nothing ails one of the disks any more.
    fn cure_one(&mut self) -> Judged<()> {
        let ill = |(disk, case): (&u64, &Case)| (*case == Case::Ill).then_some(*disk);
        let Some(disk) = self.cases.iter().find_map(ill) else { return Ok(()) };
        for handle in self.pool.handles(self.stage).iter().filter(|handle| handle.id() == disk) {
            self.cure(handle);
        }
        Ok(())
    }

    fn cure(&mut self, disk: &DiskHandle) {
        disk.set_faults(DiskFaults::default());
        disk.make_readable();
        if disk.is_gone() {
            disk.revive();
        } else if disk.is_hung() {
            // It goes on where it was, or only its power helps.
            if self.stage.chance.percent(70) { disk.resume() } else { disk.revive() }
        }
        if let Some(case) = self.cases.get_mut(&disk.id()) {
            *case = Case::Cured(self.stage.world.now());
        }
    }

    /// A member in service is copied to a new disk, which may be ill as well.
    async fn copy_one(&mut self, round: &Round) -> Judged<()> {
        let report = self.stage.pool().await?;
        self.discharge(&report)?;
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
            // The member has failed by now, or did not answer.
            Err(refusal) if [code::POOL_BUSY, code::DISK_UNREADABLE, code::DISK_NOT_MEMBER].contains(&refusal.code) => {
                return Ok(());
            }
            Err(refusal) => return Err(format!("a member is not copied: {refusal} ({})", refusal.code)),
        }
        self.stage.plant.know_copy(&self.pool.path(&replacement)?);
        if self.cases.len() < round.ill_max && self.stage.chance.percent(30) {
            let handle = self.pool.handle(self.stage, &replacement)?;
            let illness = self.stage.chance.pick(round.illnesses);
            tracing::info!(at = self.stage.world.now().0, disk = ?handle, ?illness, "a disk falls ill");
            illness.befall(self.stage, &handle, self.pool.plan.disk_mib << 20);
            self.cases.insert(handle.id(), Case::Ill);
        }
        Ok(())
    }

    /// A member that has failed is replaced by a new disk, under load.
    async fn repair_one(&mut self) -> Judged<()> {
        let report = self.stage.pool().await?;
        let failed = report.members().find(|member| member.state == MemberState::Failed).cloned();
        let Some(failed) = failed else { return Ok(()) };
        self.replace(&failed).await
    }

    async fn replace(&mut self, lost: &MemberReport) -> Judged<()> {
        let replacement = self.pool.add_replacement(self.stage).await?;
        let handle = self.pool.handle(self.stage, &replacement)?;
        let failed = lost.disk.clone().unwrap_or_else(|| replacement.clone());
        let order = Order::ReplaceDisk { failed, member: Some(lost.id), replacement, force: false };
        match self.stage.ask(order).await {
            Ok(_) => drop(self.cases.insert(handle.id(), Case::Cured(self.stage.world.now()))),
            // Another one is being copied or filled, or it came back by itself.
            Err(refusal) if [code::POOL_BUSY, code::DISK_HEALTHY].contains(&refusal.code) => {}
            Err(refusal) => return Err(format!("a lost member is not replaced: {refusal} ({})", refusal.code)),
        }
        Ok(())
    }

    /// Nothing ails any disk, and the pool is healthy: members come back by themselves, are put back, or are replaced.
    pub(super) async fn mend(&mut self) -> Judged<()> {
        for disk in self.pool.handles(self.stage) {
            self.cure(&disk);
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

    /// What members erred in is restored, where checksums tell what is right: of later faults as many are borne as of these.
    async fn verify(&self) -> Judged<()> {
        if !self.pool.plan.integrity {
            return Ok(());
        }
        let found = scrub(self.stage, self.pool).await?;
        if found.mismatches + found.unreadable > 0 {
            return Err(format!("a scrub could not restore what members have erred in: {found:?}"));
        }
        Ok(())
    }

    /// The disk of a member that was not found when the pool was opened is there by now, and gets what it has missed.
    async fn put_back(&self, lost: &MemberReport) -> Judged<bool> {
        if self.stage.chance.percent(30) {
            return Ok(false);
        }
        self.pool.find_late_disks(self.stage).await;
        let Report::Disks(disks) = self.stage.order(Order::Disks).await? else {
            return Err("Disks was not answered with disks".to_owned());
        };
        let is_it = |disk: &&DiskReport| matches!(disk.label, Label::Ours { disk, .. } if disk == lost.id);
        let Some(name) = disks.iter().find(is_it).and_then(|disk| disk.name.clone()) else { return Ok(false) };
        Ok(self.stage.ask(Order::ReturnDisk { disk: name, member: lost.id }).await.is_ok())
    }
}
