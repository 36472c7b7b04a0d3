//! The volumes of a pool with their snapshots and clones, as hosts and operators use them while the power goes.

mod copies;
mod snapshots;
mod space;

use crate::host::traffic::Unit;
use crate::oracle::{Instant, Oracle, Torn};
use crate::pool::Pool;
use crate::power::Came;
use crate::stage::{Judged, Presented, Stage, Traffic};
use model::{
    Backend, Order, Provision, ReadAhead, Report, Size, SnapshotId, SnapshotName, VolumeId, VolumePolicy, VolumeSpec,
    WritePolicy, code,
};
use shard::World;
use std::collections::BTreeSet;
use std::time::Duration;

/// Volumes that there are at once, at most.
const VOLUMES_MAX: usize = 5;

/// A snapshot, and what it may show.
pub(crate) struct Snapshot {
    name: SnapshotName,
    id: SnapshotId,
    /// The volume that it is of, to judge what it shows.
    origin: Unit,
    provision: Provision,
    instant: Instant,
    /// Volumes that were made of it and are there.
    clones: Vec<VolumeId>,
}

/// A pool with its volumes and their snapshots.
pub(crate) struct Families<'a> {
    stage: &'a Stage,
    pool: &'a Pool,
    volumes: Vec<(Presented, Provision)>,
    snapshots: Vec<Snapshot>,
    /// Volumes that have, or had, a snapshot or an origin.
    relatives: BTreeSet<VolumeId>,
    next_number: u16,
    /// True when the pool may be full, and refuse what needs space.
    scarce: bool,
    /// When writes to the volumes are acknowledged.
    write: WritePolicy,
}

/// Whether the hosts may still be at work after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Done,
    Dark,
}

impl<'a> Families<'a> {
    /// The pool has no volumes yet; those that it gets are written as `write` says.
    pub(crate) fn new(stage: &'a Stage, pool: &'a Pool, write: WritePolicy) -> Self {
        let (volumes, snapshots, relatives) = Default::default();
        Self { stage, pool, volumes, snapshots, relatives, next_number: 0, scarce: false, write }
    }

    /// Hosts and operators are at work for a while, and the power goes; then everything is as it should be, also with as
    /// many members pulled out as the pool bears.
    pub(crate) async fn live(&mut self) -> Judged<()> {
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
        self.expect_whole().await?;
        stage.restart(self.pool, &self.presented()).await?;
        stage.idle_disks().await?;
        self.pool.expect_healthy(stage, "after everything was recovered").await?;
        self.pool.pull_all_that_may_be(stage).await?;
        self.look_at_snapshots().await?;
        self.look_at_all().await
    }

    /// Hosts are at work.
    pub(crate) fn start(&self, commands: u64) -> Traffic {
        self.stage.start_hosts(self.stage.chance.count(1..=2), commands, &self.units(), &self.stage.habits())
    }

    /// Hosts are at work for a while, and nobody disturbs them.
    pub(crate) async fn use_for_a_while(&self) -> Judged<()> {
        let traffic = self.start(self.stage.chance.within(20..=80));
        self.stage.until_over(&traffic, Duration::from_millis(10)).await;
        self.end_round(&traffic, Step::Done).await
    }

    /// No host is at work any more, and every block holds what it may.
    pub(crate) async fn end_round(&self, traffic: &Traffic, step: Step) -> Judged<()> {
        if step == Step::Dark {
            traffic.stop();
            self.look_at_all().await?;
        }
        self.stage.quiet(traffic).await?;
        self.look_at_all().await
    }

    /// Something that operators do while hosts work, perhaps until the power goes over it.
    pub(crate) async fn step(&mut self, traffic: &Traffic) -> Judged<Step> {
        match self.stage.chance.below(12) {
            0..=3 => self.take_snapshots().await,
            4..=5 => self.make_clone().await,
            6 => {
                self.stage.quiet(traffic).await?;
                self.roll_back().await
            }
            7 => self.delete_snapshot().await,
            8 => {
                self.stage.quiet(traffic).await?;
                self.delete_volume().await
            }
            9 => self.change_policy().await,
            10 => self.go_dark().await,
            _ => self.expect_whole().await.map(|()| Step::Done),
        }
    }

    /// One more volume with a map, which hosts see.
    pub(crate) async fn make_volume(&mut self, block_bytes: u32) -> Judged<()> {
        let bytes = self.stage.chance.within(1..=8) << 20;
        let mut spec = self.new_spec(bytes, block_bytes);
        let provision = self.stage.chance.pick(&[Provision::Thick, Provision::Thin]);
        if let Backend::Pool { provision: of_backend, zero_detection, .. } = &mut spec.backend {
            *of_backend = provision;
            *zero_detection &= provision == Provision::Thin;
        }
        self.create(spec).await
    }

    /// One more volume with a map, if there is room for it and not enough of them.
    pub(crate) async fn make_volume_if_it_fits(&mut self) -> Judged<()> {
        // Snapshots and clones want room, too.
        if self.volumes.len() >= VOLUMES_MAX / 2 {
            return Ok(());
        }
        let spec = self.new_spec(self.stage.chance.within(1..=4) << 20, 4096);
        self.create_if_it_fits(spec).await.map(drop)
    }

    /// A volume of `bytes` that is to be made, and is nothing yet.
    pub(crate) fn new_spec(&mut self, bytes: u64, block_bytes: u32) -> VolumeSpec {
        let number = self.next_number;
        self.next_number += 1;
        self.stage.volume_spec(Some(&self.pool.name), number, bytes, block_bytes)
    }

    /// The volume is there, and hosts see it.
    pub(crate) async fn create(&mut self, spec: VolumeSpec) -> Judged<()> {
        match self.create_if_it_fits(spec).await? {
            true => Ok(()),
            false => Err("a pool that has room refuses a volume".to_owned()),
        }
    }

    /// The volume is there, and hosts see it, unless the pool has no room for it.
    pub(crate) async fn create_if_it_fits(&mut self, spec: VolumeSpec) -> Judged<bool> {
        let Backend::Pool { provision, .. } = spec.backend else { return Err("a family lies in a pool".to_owned()) };
        match self.stage.ask(Order::CreateVolume(spec.clone())).await {
            Ok(_) => {}
            Err(refusal) if refusal.code == code::POOL_FULL => return Ok(false),
            Err(refusal) => return Err(format!("no volume: {refusal}")),
        }
        // The newest number is that of the newest volume.
        self.take_in(self.stage.presented(&spec, self.next_number - 1), provision).await?;
        Ok(true)
    }

    /// Hosts see the volume, too.
    async fn take_in(&mut self, new: Presented, provision: Provision) -> Judged<()> {
        self.write_so(std::slice::from_ref(&new)).await?;
        self.volumes.push((new, provision));
        self.show().await
    }

    /// Hosts see the volumes that there are.
    async fn show(&self) -> Judged<()> {
        self.stage.present(&self.presented()).await
    }

    /// The volumes are written as those of the pool should be.
    async fn write_so(&self, volumes: &[Presented]) -> Judged<()> {
        match self.write {
            WritePolicy::Through => Ok(()),
            write => self.stage.write_as(volumes, write).await,
        }
    }

    /// A volume that has no snapshots is no more. No host is at work.
    pub(crate) async fn delete_volume(&mut self) -> Judged<Step> {
        let is_free = |volume: &Presented| self.snapshots.iter().all(|snapshot| snapshot.name.volume != volume.name);
        let free: Vec<usize> = (0..self.volumes.len()).filter(|&at| is_free(&self.volumes[at].0)).collect();
        if free.is_empty() || self.volumes.len() == 1 {
            return Ok(Step::Done);
        }
        let (gone, provision) = self.volumes.remove(free[self.stage.chance.index(free.len())]);
        self.show().await?;
        match self.stage.until_dark(Order::DeleteVolume { volume: gone.name.clone() }).await {
            Came::Answered(answer) => answer.map_err(|refusal| format!("the volume stays: {refusal}"))?,
            Came::Dark => {
                let mut all = self.presented();
                all.push(gone.clone());
                self.stage.pull_the_plug(&all);
                if self.come_back(Some(gone.id)).await? {
                    self.volumes.push((gone, provision));
                    self.show().await?;
                } else {
                    self.forget_clone(gone.id);
                }
                return Ok(Step::Dark);
            }
        }
        self.forget_clone(gone.id);
        Ok(Step::Done)
    }

    fn forget_clone(&mut self, id: VolumeId) {
        self.snapshots.iter_mut().for_each(|snapshot| snapshot.clones.retain(|clone| *clone != id));
    }

    /// A volume is cached in another way, which changes nothing of what it shows.
    async fn change_policy(&self) -> Judged<Step> {
        let chance = &self.stage.chance;
        let volume = self.volumes[chance.index(self.volumes.len())].0.name.clone();
        let read_ahead = chance.pick(&[ReadAhead::Off, ReadAhead::Adaptive, ReadAhead::Fixed(Size::new(64 << 10))]);
        let (write, cache_share) = (self.write, chance.pick(&[0, 1, 100]));
        let policy = VolumePolicy { write, cache_share, read_ahead, ..VolumePolicy::default() };
        self.stage.order(Order::SetVolumePolicy { volume, policy }).await.map(|_| Step::Done)
    }

    pub(crate) async fn go_dark(&self) -> Judged<Step> {
        self.pull_the_plug();
        self.come_back(None).await?;
        Ok(Step::Dark)
    }

    /// Nothing is wrong with what the pool says of its volumes.
    pub(crate) async fn expect_whole(&self) -> Judged<()> {
        match self
            .stage
            .order(Order::CheckPool { pool: self.pool.name.clone(), repair: false, accept_loss: false })
            .await?
        {
            Report::Check(check) if check.findings.is_empty() => Ok(()),
            other => Err(format!("the maps of the pool are not whole: {other:?}")),
        }
    }

    pub(crate) fn pull_the_plug(&self) -> Torn {
        self.stage.pull_the_plug(&self.presented())
    }

    /// The pool is open again with its volumes and snapshots, but perhaps not `doubtful`; whether that is there.
    pub(crate) async fn come_back(&self, doubtful: Option<VolumeId>) -> Judged<bool> {
        self.stage.come_back(self.pool).await;
        self.pool.open(self.stage).await?;
        let found: Vec<VolumeId> = self.stage.volumes().await?.iter().map(|volume| volume.id).collect();
        let is_there = |id: &VolumeId| found.contains(id);
        if let Some((lost, _)) = self.volumes.iter().find(|(volume, _)| !is_there(&volume.id)) {
            return Err(format!("volume {} is gone", lost.name));
        }
        let is_known = |id: &VolumeId| self.volumes.iter().any(|(volume, _)| volume.id == *id);
        if let Some(id) = found.iter().find(|id| !is_known(id) && Some(**id) != doubtful) {
            return Err(format!("nobody has made the volume {id}"));
        }
        self.write_so(&self.presented()).await?;
        self.show().await?;
        self.stage.open_portals().await?;
        Ok(doubtful.as_ref().is_some_and(is_there))
    }

    pub(crate) async fn look_at_all(&self) -> Judged<()> {
        self.stage.look_at_all(&self.units()).await
    }

    fn oracle<T>(&self, at: usize, work: impl FnOnce(&mut Oracle) -> T) -> T {
        work(&mut self.volumes[at].0.unit.oracle.borrow_mut())
    }

    pub(crate) fn presented(&self) -> Vec<Presented> {
        self.volumes.iter().map(|(volume, _)| volume.clone()).collect()
    }

    pub(crate) fn units(&self) -> Vec<Unit> {
        let scarce = |provision: Provision| self.scarce && provision == Provision::Thin;
        let unit =
            |(volume, provision): &(Presented, Provision)| Unit { scarce: scarce(*provision), ..volume.unit.clone() };
        self.volumes.iter().map(unit).collect()
    }
}
