//! Volumes of a pool with their snapshots and clones, used by hosts and operators while the power fails.

mod copies;
mod snapshots;
mod space;

use crate::host::traffic::Unit;
use crate::oracle::{Instant, Oracle, Torn};
use crate::pool::Pool;
use crate::power::OrderOutcome;
use crate::stage::{CheckResult, PresentedVolume, Stage, Traffic};
use model::{
    Backend, Order, Provision, ReadAhead, Report, Size, SnapshotId, SnapshotName, VolumeId, VolumePolicy, VolumeSpec,
    WritePolicy, code,
};
use shard::World;
use std::collections::BTreeSet;
use std::time::Duration;

/// Upper bound of volumes at a time.
const VOLUMES_MAX: usize = 5;

/// Snapshot and its expected content.
pub(crate) struct Snapshot {
    name: SnapshotName,
    id: SnapshotId,
    /// Volume of which it was taken; its oracle judges the content.
    origin: Unit,
    provision: Provision,
    instant: Instant,
    /// Existing clones of the snapshot.
    clones: Vec<VolumeId>,
}

/// Pool with its volumes and their snapshots.
pub(crate) struct Families<'a> {
    stage: &'a Stage,
    pool: &'a Pool,
    volumes: Vec<(PresentedVolume, Provision)>,
    snapshots: Vec<Snapshot>,
    /// Volumes that have, or had, a snapshot or an origin.
    relatives: BTreeSet<VolumeId>,
    next_number: u16,
    /// True when the pool may be full and refuse requests that need space.
    scarce: bool,
    /// Write policy of the volumes.
    write: WritePolicy,
}

/// Effect of a step on the hosts: `PowerFailed` when the power failed and their sessions are gone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    PowerFailed,
}

impl<'a> Families<'a> {
    /// Starts without volumes; new ones get the policy `write`.
    pub(crate) fn new(stage: &'a Stage, pool: &'a Pool, write: WritePolicy) -> Self {
        let (volumes, snapshots, relatives) = Default::default();
        Self { stage, pool, volumes, snapshots, relatives, next_number: 0, scarce: false, write }
    }

    /// Runs hosts and operators with power failures, then checks the content of everything, also with as many members
    /// pulled as the pool tolerates.
    pub(crate) async fn run_rounds(&mut self) -> CheckResult<()> {
        let stage = self.stage;
        let habits = stage.habits();
        for _ in 0..stage.chance.within(2..=7) {
            let units = self.units();
            let traffic = stage.start_hosts(stage.chance.count(1..=2), stage.chance.within(20..=150), &units, &habits);
            stage.world.sleep(stage.chance.moment(Duration::from_millis(200))).await;
            let step = self.step(&traffic).await?;
            self.end_round(&traffic, step).await?;
        }
        self.look_at_snapshots().await?;
        self.expect_consistent().await?;
        // A clean restart must not change anything either.
        stage.restart(self.pool, &self.presented()).await?;
        stage.idle_disks().await?;
        self.pool.expect_healthy(stage, "after everything was recovered").await?;
        // Without them, recovered data must come from the redundancy that the recovery restored.
        self.pool.pull_all_that_may_be(stage).await?;
        self.look_at_snapshots().await?;
        self.check_all_blocks().await
    }

    /// Starts hosts with `commands` commands in all.
    pub(crate) fn start(&self, commands: u64) -> Traffic {
        self.stage.start_hosts(self.stage.chance.count(1..=2), commands, &self.units(), &self.stage.habits())
    }

    /// Runs hosts for a while without interference.
    pub(crate) async fn use_for_a_while(&self) -> CheckResult<()> {
        let traffic = self.start(self.stage.chance.within(20..=80));
        self.stage.until_over(&traffic, Duration::from_millis(10)).await;
        self.end_round(&traffic, Step::Done).await
    }

    /// Waits until no host works, and checks every block.
    pub(crate) async fn end_round(&self, traffic: &Traffic, step: Step) -> CheckResult<()> {
        // Checked twice: at once after the recovery, and again when the interrupted writes have ended.
        if step == Step::PowerFailed {
            traffic.stop();
            self.check_all_blocks().await?;
        }
        self.stage.until_quiet(traffic).await?;
        self.check_all_blocks().await
    }

    /// Executes a random operator action while hosts work, possibly interrupted by a power failure.
    pub(crate) async fn step(&mut self, traffic: &Traffic) -> CheckResult<Step> {
        match self.stage.chance.below(12) {
            0..=3 => self.take_snapshots().await,
            4..=5 => self.make_clone().await,
            6 => {
                self.stage.until_quiet(traffic).await?;
                self.roll_back().await
            }
            7 => self.delete_snapshot().await,
            8 => {
                self.stage.until_quiet(traffic).await?;
                self.delete_volume().await
            }
            9 => self.change_policy().await,
            10 => self.cut_power_and_restart().await,
            _ => self.expect_consistent().await.map(|()| Step::Done),
        }
    }

    /// Creates a volume with a map and maps it to the hosts.
    pub(crate) async fn make_volume(&mut self, block_bytes: u32) -> CheckResult<()> {
        let bytes = self.stage.chance.within(1..=8) << 20;
        let mut spec = self.new_spec(bytes, block_bytes);
        // Only these have a map, which snapshots and clones need.
        let provision = self.stage.chance.pick(&[Provision::Thick, Provision::Thin]);
        if let Backend::Pool { provision: of_backend, zero_detection, .. } = &mut spec.backend {
            *of_backend = provision;
            // Zero detection exists only for thin volumes.
            *zero_detection &= provision == Provision::Thin;
        }
        self.create(spec).await
    }

    /// Creates a volume with a map if there is room and there are few volumes.
    pub(crate) async fn make_volume_if_it_fits(&mut self) -> CheckResult<()> {
        // Half of the limit is left for clones and copies.
        if self.volumes.len() >= VOLUMES_MAX / 2 {
            return Ok(());
        }
        let spec = self.new_spec(self.stage.chance.within(1..=4) << 20, 4096);
        self.create_if_it_fits(spec).await.map(drop)
    }

    /// Returns the specification of a volume to be created.
    pub(crate) fn new_spec(&mut self, bytes: u64, block_bytes: u32) -> VolumeSpec {
        // No number is used twice: it also distinguishes the values that hosts write to the volume.
        let number = self.next_number;
        self.next_number += 1;
        self.stage.volume_spec(Some(&self.pool.name), number, bytes, block_bytes)
    }

    /// Creates the volume and maps it to the hosts.
    pub(crate) async fn create(&mut self, spec: VolumeSpec) -> CheckResult<()> {
        match self.create_if_it_fits(spec).await? {
            true => Ok(()),
            false => Err("a pool that has room refuses a volume".to_owned()),
        }
    }

    /// Creates the volume and maps it to the hosts, unless the pool is full; returns whether it was created.
    pub(crate) async fn create_if_it_fits(&mut self, spec: VolumeSpec) -> CheckResult<bool> {
        let Backend::Pool { provision, .. } = spec.backend else { return Err("a family lies in a pool".to_owned()) };
        match self.stage.ask(Order::CreateVolume(spec.clone())).await {
            Ok(_) => {}
            Err(refusal) if refusal.code == code::POOL_FULL => return Ok(false),
            Err(refusal) => return Err(format!("no volume: {refusal}")),
        }
        // The last number issued belongs to this volume.
        self.add_volume(self.stage.presented(&spec, self.next_number - 1), provision).await?;
        Ok(true)
    }

    /// Adds a new volume and maps it to the hosts.
    async fn add_volume(&mut self, new: PresentedVolume, provision: Provision) -> CheckResult<()> {
        self.apply_write_policy(std::slice::from_ref(&new)).await?;
        self.volumes.push((new, provision));
        self.show().await
    }

    /// Maps the current volumes to the hosts.
    async fn show(&self) -> CheckResult<()> {
        self.stage.present(&self.presented()).await
    }

    /// Sets the write policy of the volumes.
    async fn apply_write_policy(&self, volumes: &[PresentedVolume]) -> CheckResult<()> {
        match self.write {
            WritePolicy::Through => Ok(()),
            write => self.stage.write_as(volumes, write).await,
        }
    }

    /// Deletes a volume without snapshots while no host works.
    pub(crate) async fn delete_volume(&mut self) -> CheckResult<Step> {
        let is_free =
            |volume: &PresentedVolume| self.snapshots.iter().all(|snapshot| snapshot.name.volume != volume.name);
        let free: Vec<usize> = (0..self.volumes.len()).filter(|&at| is_free(&self.volumes[at].0)).collect();
        // The last volume stays, so that the hosts always have one.
        if free.is_empty() || self.volumes.len() == 1 {
            return Ok(Step::Done);
        }
        let (gone, provision) = self.volumes.remove(free[self.stage.chance.index(free.len())]);
        // Unmapped before it is deleted, since a volume in use is not deleted.
        self.show().await?;
        match self.stage.until_power_failure(Order::DeleteVolume { volume: gone.name.clone() }).await {
            OrderOutcome::Answered(answer) => answer.map_err(|refusal| format!("the volume stays: {refusal}"))?,
            // The deletion may have taken effect or not: the pool decides after the restart.
            OrderOutcome::PowerFailed => {
                // The oracle of the doubtful volume must learn of the crash as well.
                let mut all = self.presented();
                all.push(gone.clone());
                self.stage.crash_or_kill(&all);
                // The volume is still there, so the deletion did not take effect, and no content is lost.
                if self.recover(Some(gone.id)).await? {
                    self.volumes.push((gone, provision));
                    self.show().await?;
                } else {
                    self.forget_clone(gone.id);
                }
                return Ok(Step::PowerFailed);
            }
        }
        self.forget_clone(gone.id);
        Ok(Step::Done)
    }

    fn forget_clone(&mut self, id: VolumeId) {
        self.snapshots.iter_mut().for_each(|snapshot| snapshot.clones.retain(|clone| *clone != id));
    }

    /// Changes the cache policy of a volume, which must not change its content.
    async fn change_policy(&self) -> CheckResult<Step> {
        let chance = &self.stage.chance;
        let volume = self.volumes[chance.index(self.volumes.len())].0.name.clone();
        let read_ahead = chance.pick(&[ReadAhead::Off, ReadAhead::Adaptive, ReadAhead::Fixed(Size::new(64 << 10))]);
        let (write, cache_share) = (self.write, chance.pick(&[0, 1, 100]));
        let policy = VolumePolicy { write, cache_share, read_ahead, ..VolumePolicy::default() };
        self.stage.order(Order::SetVolumePolicy { volume, policy }).await.map(|_| Step::Done)
    }

    pub(crate) async fn cut_power_and_restart(&self) -> CheckResult<Step> {
        self.crash_or_kill();
        self.recover(None).await?;
        Ok(Step::PowerFailed)
    }

    /// Checks that the pool finds no inconsistency in its maps.
    pub(crate) async fn expect_consistent(&self) -> CheckResult<()> {
        match self
            .stage
            .order(Order::CheckPool { pool: self.pool.name.clone(), repair: false, accept_loss: false })
            .await?
        {
            Report::Check(check) if check.findings.is_empty() => Ok(()),
            other => Err(format!("the maps of the pool are not whole: {other:?}")),
        }
    }

    pub(crate) fn crash_or_kill(&self) -> Torn {
        self.stage.crash_or_kill(&self.presented())
    }

    /// Restarts after a power failure and checks that all volumes and snapshots exist, except perhaps `doubtful`;
    /// returns whether that one exists.
    pub(crate) async fn recover(&self, doubtful: Option<VolumeId>) -> CheckResult<bool> {
        self.stage.power_on(self.pool).await;
        self.pool.open(self.stage).await?;
        let found: Vec<VolumeId> = self.stage.volumes().await?.iter().map(|volume| volume.id).collect();
        let is_there = |id: &VolumeId| found.contains(id);
        if let Some((lost, _)) = self.volumes.iter().find(|(volume, _)| !is_there(&volume.id)) {
            return Err(format!("volume {} is gone", lost.name));
        }
        let is_known = |id: &VolumeId| self.volumes.iter().any(|(volume, _)| volume.id == *id);
        // An interrupted creation must not leave a volume behind.
        if let Some(id) = found.iter().find(|id| !is_known(id) && Some(**id) != doubtful) {
            return Err(format!("nobody has made the volume {id}"));
        }
        // The data plane keeps neither write policies nor mappings; after a start control sets them again.
        self.apply_write_policy(&self.presented()).await?;
        self.show().await?;
        self.stage.open_portals().await?;
        Ok(doubtful.as_ref().is_some_and(is_there))
    }

    pub(crate) async fn check_all_blocks(&self) -> CheckResult<()> {
        self.stage.check_all_blocks(&self.units()).await
    }

    fn oracle<T>(&self, at: usize, work: impl FnOnce(&mut Oracle) -> T) -> T {
        work(&mut self.volumes[at].0.unit.oracle.borrow_mut())
    }

    pub(crate) fn presented(&self) -> Vec<PresentedVolume> {
        self.volumes.iter().map(|(volume, _)| volume.clone()).collect()
    }

    pub(crate) fn units(&self) -> Vec<Unit> {
        let scarce = |provision: Provision| self.scarce && provision == Provision::Thin;
        let unit = |(volume, provision): &(PresentedVolume, Provision)| Unit {
            scarce: scarce(*provision),
            ..volume.unit.clone()
        };
        self.volumes.iter().map(unit).collect()
    }
}
