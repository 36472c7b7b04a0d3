//! Part of profile `disks`: creation, growth and deletion of pools and volumes across power failures: an order takes
//! effect completely or not at all, a new volume holds zeros, and every other volume keeps its content.

use crate::host::traffic::WorkloadProfile;
use crate::pool::{Pool, PoolPlan};
use crate::power::OrderOutcome;
use crate::stage::{CheckResult, PresentedVolume, Stage};
use model::{Label, Level, Order, Refusal, Report, Size, VolumeSpec, code};
use shard::World;
use std::time::Duration;

/// Pool, and the volumes that it should have.
struct Catalog<'a> {
    stage: &'a Stage,
    pool: &'a Pool,
    volumes: Vec<PresentedVolume>,
    next_number: u16,
}

pub(super) async fn play(stage: &Stage) -> CheckResult<()> {
    // Only the disks: the creation itself is interrupted below.
    let pool = PoolPlan::of_chance(stage, &Level::ALL).prepare(stage).await?;
    make_pool(stage, &pool).await?;
    stage.present(&[]).await?;
    stage.open_portals().await?;
    let mut catalog = Catalog { stage, pool: &pool, volumes: Vec::new(), next_number: 0 };
    for _ in 0..stage.chance.within(3..=8) {
        match stage.chance.below(10) {
            0..=3 => catalog.create().await?,
            4..=5 => catalog.grow().await?,
            6..=7 => catalog.delete().await?,
            _ => catalog.use_volumes().await?,
        }
    }
    catalog.use_volumes().await?;
    while !catalog.volumes.is_empty() {
        catalog.delete().await?;
    }
    destroy_pool(stage, &pool).await
}

/// Creates the pool, possibly across a power failure: afterwards it exists, or its disks can be erased.
async fn make_pool(stage: &Stage, pool: &Pool) -> CheckResult<()> {
    loop {
        match order_or_power_failure(stage, pool.creation(), &[]).await {
            OrderOutcome::Answered(answer) => return answer.map_err(|refusal| format!("no pool: {refusal}")),
            // The power may fail again during the next attempt.
            OrderOutcome::PowerFailed => stage.power_on(pool).await,
        }
        pool.find_disks(stage).await;
        match stage.ask(pool.opening()).await {
            Ok(_) => return Ok(()),
            Err(refusal) if is_no_pool(&refusal) => wipe(stage, pool).await?,
            Err(refusal) => return Err(format!("a pool that was being made: {refusal}")),
        }
    }
}

/// True when no disk belongs to the pool, or its creation or destruction was interrupted.
fn is_no_pool(refusal: &Refusal) -> bool {
    refusal.code == code::POOL_INCOMPLETE || refusal.code == code::POOL_UNKNOWN
}

/// Erases the remains of the pool, as the control plane does after an interrupted creation or destruction.
async fn wipe(stage: &Stage, pool: &Pool) -> CheckResult<()> {
    let Report::Disks(disks) = stage.order(Order::Disks).await? else {
        return Err("Disks was not answered with disks".to_owned());
    };
    for report in disks {
        // Disks of other pools do not exist in this run, so a damaged label is one of this pool.
        // A label that was being written when the power failed may be damaged.
        let is_its = matches!(&report.label, Label::PoolMember { pool: id, .. } if *id == pool.id);
        if let Some(disk) = report.name.filter(|_| is_its || report.label == Label::Damaged) {
            stage.order(Order::EraseDisk { disk, pool: pool.id }).await?;
        }
    }
    Ok(())
}

/// Destroys the pool, possibly across a power failure.
async fn destroy_pool(stage: &Stage, pool: &Pool) -> CheckResult<()> {
    let order = Order::DestroyPool { pool: pool.name.clone() };
    match order_or_power_failure(stage, order, &[]).await {
        OrderOutcome::Answered(answer) => answer.map_err(|refusal| format!("the pool stays: {refusal}"))?,
        OrderOutcome::PowerFailed => {
            stage.power_on(pool).await;
            pool.find_disks(stage).await;
            match stage.ask(pool.opening()).await {
                Ok(_) => drop(stage.order(Order::DestroyPool { pool: pool.name.clone() }).await?),
                Err(refusal) if is_no_pool(&refusal) => wipe(stage, pool).await?,
                Err(refusal) => return Err(format!("a pool that was being destroyed: {refusal}")),
            }
        }
    }
    // The disks of a destroyed pool can be used again without force.
    stage.order(pool.creation()).await.map(drop)
}

/// Sends an order and returns its outcome, unless the power fails before.
async fn order_or_power_failure(stage: &Stage, order: Order, volumes: &[PresentedVolume]) -> OrderOutcome {
    let came = stage.until_power_failure(order).await;
    if matches!(came, OrderOutcome::PowerFailed) {
        stage.crash_or_kill(volumes);
    }
    came
}

impl Catalog<'_> {
    async fn create(&mut self) -> CheckResult<()> {
        let (number, block_bytes) = (self.next_number, self.stage.chance.pick(&[512, 4096]));
        self.next_number += 1;
        let bytes = self.stage.chance.within(1..=3 << 12) << 12;
        let spec: VolumeSpec = self.stage.volume_spec(Some(&self.pool.name), number, bytes, block_bytes);
        let id = spec.id;
        let mut new = self.stage.presented(&spec, number);
        // The volumes of this profile may exceed the size of the pool.
        new.unit.scarce = new.unit.thin;
        match order_or_power_failure(self.stage, Order::CreateVolume(spec), &self.volumes).await {
            OrderOutcome::Answered(Ok(())) => self.volumes.push(new),
            OrderOutcome::Answered(Err(refusal)) if refusal.code == code::POOL_FULL => {}
            OrderOutcome::Answered(Err(refusal)) => return Err(format!("no volume: {refusal}")),
            OrderOutcome::PowerFailed => {
                let found = self.find_again().await?;
                if found.iter().any(|(found, _)| *found == id) {
                    self.volumes.push(new);
                }
                return self.show(found).await;
            }
        }
        self.stage.present(&self.volumes).await
    }

    async fn grow(&mut self) -> CheckResult<()> {
        if self.volumes.is_empty() {
            return Ok(());
        }
        let at = self.stage.chance.index(self.volumes.len());
        let volume = self.volumes[at].clone();
        let block_bytes = volume.unit.block_bytes as u64;
        let old = volume.unit.oracle.borrow().blocks() * block_bytes;
        let new = old + (self.stage.chance.within(0..=2 << 12) << 12);
        // Recorded only after an answer or a look at the size, so that either size is valid until then.
        let grown = || volume.unit.oracle.borrow_mut().grow(new / block_bytes);
        let order = Order::ResizeVolume { volume: volume.name.clone(), size: Size::new(new) };
        match order_or_power_failure(self.stage, order, &self.volumes).await {
            OrderOutcome::Answered(Ok(())) => grown(),
            OrderOutcome::Answered(Err(refusal)) if refusal.code == code::POOL_FULL => {}
            OrderOutcome::Answered(Err(refusal)) => return Err(format!("the volume does not grow: {refusal}")),
            OrderOutcome::PowerFailed => {
                let found = self.find_again().await?;
                if found.contains(&(volume.id, new)) {
                    grown();
                }
                return self.show(found).await;
            }
        }
        Ok(())
    }

    async fn delete(&mut self) -> CheckResult<()> {
        if self.volumes.is_empty() {
            return Ok(());
        }
        let volume = self.volumes.remove(self.stage.chance.index(self.volumes.len()));
        // Unmapped before it is deleted, since a volume in use is not deleted.
        self.stage.present(&self.volumes).await?;
        let order = Order::DeleteVolume { volume: volume.name.clone() };
        match order_or_power_failure(self.stage, order, &self.volumes).await {
            OrderOutcome::Answered(answer) => answer.map_err(|refusal| format!("the volume stays: {refusal}")),
            OrderOutcome::PowerFailed => {
                // The volume may be in any state of deletion, so its blocks may hold anything until they are read.
                volume.unit.oracle.borrow_mut().crash(crate::oracle::Torn::Garbage);
                let found = self.find_again().await?;
                if found.iter().any(|(found, _)| *found == volume.id) {
                    self.volumes.push(volume);
                }
                self.show(found).await
            }
        }
    }

    /// Runs hosts on the volumes for a while, possibly until a power failure.
    async fn use_volumes(&mut self) -> CheckResult<()> {
        if self.volumes.is_empty() {
            return Ok(());
        }
        let units: Vec<_> = self.volumes.iter().map(|volume| volume.unit.clone()).collect();
        let habits = WorkloadProfile {
            depth: 4,
            blocks: 16,
            large_bytes: 64 << 10,
            manages: false,
            drops_connections: false,
            media_fail: false,
            answers_within: None,
        };
        let traffic = self.stage.start_hosts(1, self.stage.chance.within(10..=80), &units, &habits);
        if self.stage.chance.percent(40) {
            self.stage.world.sleep(self.stage.chance.moment(Duration::from_millis(100))).await;
            self.stage.crash_or_kill(&self.volumes);
            traffic.stop();
            let found = self.find_again().await?;
            self.show(found).await?;
        } else {
            self.stage.until_over(&traffic, Duration::from_millis(10)).await;
        }
        self.stage.until_quiet(&traffic).await?;
        self.stage.check_all_blocks(&units).await
    }

    /// Opens the pool after a power failure; returns its volumes and their sizes.
    async fn find_again(&self) -> CheckResult<Vec<(model::VolumeId, u64)>> {
        self.stage.power_on(self.pool).await;
        self.pool.open(self.stage).await?;
        Ok(self.stage.volumes().await?.into_iter().map(|volume| (volume.id, volume.size.bytes())).collect())
    }

    /// Checks that exactly the expected volumes exist, and maps them to the hosts.
    async fn show(&self, found: Vec<(model::VolumeId, u64)>) -> CheckResult<()> {
        let bytes = |volume: &PresentedVolume| volume.unit.oracle.borrow().blocks() * volume.unit.block_bytes as u64;
        let expected: Vec<_> = self.volumes.iter().map(|volume| (volume.id, bytes(volume))).collect();
        if found.len() != expected.len() || !expected.iter().all(|volume| found.contains(volume)) {
            return Err(format!("the pool should have the volumes {expected:?}, and has {found:?}"));
        }
        self.stage.present(&self.volumes).await?;
        self.stage.open_portals().await?;
        let units: Vec<_> = self.volumes.iter().map(|volume| volume.unit.clone()).collect();
        if units.is_empty() { Ok(()) } else { self.stage.check_all_blocks(&units).await }
    }
}
