//! Snapshots and clones are made, gone back to and deleted while hosts write, and the power goes over it: a snapshot
//! shows one instant, for ever, and nobody's writes are ever seen anywhere else.

use crate::host::traffic::Unit;
use crate::oracle::{Instant, OpId, Oracle, Torn};
use crate::pool::{Pool, PoolPlan};
use crate::power::Came;
use crate::stage::{Judged, Presented, Stage};
use model::{
    Level, Name, Order, Provision, ReadAhead, Report, Size, SnapshotId, SnapshotLock, SnapshotName, SnapshotState,
    VolumeId, VolumeName, VolumePolicy, code,
};
use shard::World;
use std::time::Duration;

/// Volumes that there are at once, at most.
const VOLUMES_MAX: usize = 5;

/// A snapshot, and what it may show.
struct Snapshot {
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
struct Families<'a> {
    stage: &'a Stage,
    pool: &'a Pool,
    volumes: Vec<(Presented, Provision)>,
    snapshots: Vec<Snapshot>,
    next_number: u16,
}

pub(super) async fn play(stage: &Stage) -> Judged<()> {
    let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
    let mut families = Families { stage, pool: &pool, volumes: Vec::new(), snapshots: Vec::new(), next_number: 0 };
    let block_bytes = stage.chance.pick(&[512, 4096, 4096]);
    for _ in 0..stage.chance.within(1..=2) {
        families.make_volume(block_bytes).await?;
    }
    stage.present(&families.presented()).await?;
    stage.open_portals().await?;
    let habits = stage.habits();
    for _ in 0..stage.chance.within(2..=7) {
        let units = families.units();
        let traffic = stage.start_hosts(stage.chance.count(1..=2), stage.chance.within(20..=150), &units, &habits);
        stage.world.sleep(stage.chance.moment(Duration::from_millis(200))).await;
        let step = families.step(&traffic).await?;
        if step == Step::Dark {
            traffic.stop();
            families.look_at_all().await?;
        }
        stage.quiet(&traffic).await?;
        families.look_at_all().await?;
    }
    for at in 0..families.snapshots.len() {
        families.look_at_snapshot(at).await?;
    }
    families.expect_whole().await?;
    stage.restart(&pool, &families.presented()).await?;
    stage.idle_disks().await?;
    pool.expect_healthy(stage, "after everything was recovered").await?;
    pool.pull_all_that_may_be(stage).await?;
    for at in 0..families.snapshots.len() {
        families.look_at_snapshot(at).await?;
    }
    families.look_at_all().await
}

/// Whether the hosts may still be at work after a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Done,
    Dark,
}

impl Families<'_> {
    async fn step(&mut self, traffic: &crate::stage::Traffic) -> Judged<Step> {
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

    async fn make_volume(&mut self, block_bytes: u32) -> Judged<()> {
        let (stage, number) = (self.stage, self.next_number);
        self.next_number += 1;
        let bytes = stage.chance.within(1..=8) << 20;
        let mut spec = stage.volume_spec(Some(&self.pool.name), number, bytes, block_bytes);
        let provision = stage.chance.pick(&[Provision::Thick, Provision::Thin]);
        if let model::Backend::Pool { provision: of_backend, zero_detection, .. } = &mut spec.backend {
            *of_backend = provision;
            *zero_detection &= provision == Provision::Thin;
        }
        stage.order(Order::CreateVolume(spec.clone())).await?;
        self.volumes.push((stage.presented(&spec, number), provision));
        Ok(())
    }

    /// Snapshots of some of the volumes, all of one instant.
    async fn take_snapshots(&mut self) -> Judged<Step> {
        let stage = self.stage;
        let count = stage.chance.count(1..=self.volumes.len());
        let mut at: Vec<usize> = (0..self.volumes.len()).collect();
        stage.chance.shuffle(&mut at);
        at.truncate(count);
        let number = self.next_number;
        self.next_number += 1;
        let mut made = Vec::new();
        for &at in &at {
            let own: Name = format!("s{number}").parse().expect("this is a name");
            let name = SnapshotName::of(self.volumes[at].0.name.clone(), own);
            made.push((at, name, SnapshotId::from_random(stage.chance.identity())));
        }
        let ops: Vec<OpId> = at.iter().map(|&at| self.oracle(at, Oracle::begin)).collect();
        let snapshots = made.iter().map(|(_, name, id)| (name.clone(), *id)).collect();
        let came = stage.until_dark(Order::CreateSnapshots { snapshots, lock: SnapshotLock::Open }).await;
        let is_cut = matches!(came, Came::Dark);
        let instants = made.into_iter().zip(ops).map(|((at, name, id), op)| {
            let (volume, provision) = &self.volumes[at];
            let instant = volume.unit.oracle.borrow_mut().instant(op, is_cut);
            Snapshot { name, id, origin: volume.unit.clone(), provision: *provision, instant, clones: Vec::new() }
        });
        let mut new: Vec<Snapshot> = instants.collect();
        match came {
            Came::Answered(Ok(())) => self.snapshots.append(&mut new),
            Came::Answered(Err(refusal)) if refusal.code == code::POOL_FULL => {}
            Came::Answered(Err(refusal)) => return Err(format!("no snapshots: {refusal}")),
            Came::Dark => {
                let torn = self.pull_the_plug();
                self.come_back(None).await?;
                let there = self.snapshots_there().await?;
                let (mut there, gone): (Vec<_>, Vec<_>) = new.into_iter().partition(|new| there.contains(&new.id));
                if !there.is_empty() && !gone.is_empty() {
                    return Err(format!(
                        "of snapshots of one instant {} is there, and {} not",
                        there[0].name, gone[0].name
                    ));
                }
                there.iter_mut().for_each(|snapshot| snapshot.instant.crash(torn));
                self.snapshots.append(&mut there);
                return Ok(Step::Dark);
            }
        }
        Ok(Step::Done)
    }

    /// A volume of a snapshot, which hosts write from now on, too.
    async fn make_clone(&mut self) -> Judged<Step> {
        if self.snapshots.is_empty() || self.volumes.len() >= VOLUMES_MAX {
            return Ok(Step::Done);
        }
        let at = self.stage.chance.index(self.snapshots.len());
        let (order, id, new) = self.clone_of(at);
        let came = self.stage.until_dark(order).await;
        let step = match came {
            Came::Answered(Ok(())) => Step::Done,
            Came::Answered(Err(refusal)) if refusal.code == code::POOL_FULL => return Ok(Step::Done),
            Came::Answered(Err(refusal)) => return Err(format!("no clone: {refusal}")),
            Came::Dark => {
                self.pull_the_plug();
                let found = self.come_back(Some(id)).await?;
                if !found {
                    return Ok(Step::Dark);
                }
                Step::Dark
            }
        };
        let provision = self.snapshots[at].provision;
        self.snapshots[at].clones.push(id);
        self.volumes.push((new, provision));
        self.stage.present(&self.presented()).await?;
        Ok(step)
    }

    /// The order that clones a snapshot, and the volume that comes of it.
    fn clone_of(&mut self, at: usize) -> (Order, VolumeId, Presented) {
        let (stage, number) = (self.stage, self.next_number);
        self.next_number += 1;
        let Snapshot { name: snapshot, origin, provision, instant, .. } = &self.snapshots[at];
        let own: Name = format!("v{number}").parse().expect("this is a name");
        let volume = VolumeName::in_pool(self.pool.name.clone(), own);
        let id = VolumeId::from_random(stage.chance.identity());
        let oracle = origin.oracle.borrow().of_instant(&volume.to_string(), number, instant);
        let hot = stage.hot(oracle.blocks());
        let block_bytes = u32::try_from(origin.block_bytes).expect("a block is small");
        let mut unit = Unit::new(number, block_bytes, oracle, hot);
        unit.thin = *provision == Provision::Thin;
        let new = Presented { name: volume.clone(), id, unit };
        let zero_detection = *provision == Provision::Thin && stage.chance.percent(40);
        let (snapshot, provision) = (snapshot.clone(), *provision);
        (Order::CloneSnapshot { snapshot, volume, id, provision, zero_detection }, id, new)
    }

    /// What a snapshot shows, by a clone of it: of one instant, and the same as at every look before.
    async fn look_at_snapshot(&mut self, at: usize) -> Judged<()> {
        let (order, _, new) = self.clone_of(at);
        match self.stage.ask(order).await {
            Err(refusal) if refusal.code == code::POOL_FULL => return Ok(()),
            made => drop(made.map_err(|refusal| format!("no clone to look at: {refusal}"))?),
        }
        let mut shown = self.presented();
        shown.push(new.clone());
        self.stage.present(&shown).await?;
        self.stage.look_at_all(std::slice::from_ref(&new.unit)).await?;
        let name = self.snapshots[at].name.clone();
        let settled = self.snapshots[at].instant.settle(&new.unit.oracle.borrow());
        settled.map_err(|why| format!("snapshot {name} is of no instant: {why}"))?;
        self.stage.present(&self.presented()).await?;
        self.stage.order(Order::DeleteVolume { volume: new.name }).await.map(drop)
    }

    /// A volume shows what one of its snapshots does. No host is at work.
    async fn roll_back(&mut self) -> Judged<Step> {
        if self.snapshots.is_empty() {
            return Ok(Step::Done);
        }
        let at = self.stage.chance.index(self.snapshots.len());
        let Snapshot { name, origin, .. } = &self.snapshots[at];
        let order = Order::RollBack { snapshot: name.clone(), in_use: true };
        let oracle = origin.oracle.clone();
        match self.stage.until_dark(order).await {
            Came::Answered(Ok(())) => oracle.borrow_mut().roll_back(&self.snapshots[at].instant, false),
            Came::Answered(Err(refusal)) if refusal.code == code::POOL_FULL => {}
            Came::Answered(Err(refusal)) => return Err(format!("no way back: {refusal}")),
            Came::Dark => {
                self.pull_the_plug();
                oracle.borrow_mut().roll_back(&self.snapshots[at].instant, true);
                self.come_back(None).await?;
                return Ok(Step::Dark);
            }
        }
        Ok(Step::Done)
    }

    /// A snapshot without clones is no more.
    async fn delete_snapshot(&mut self) -> Judged<Step> {
        let free: Vec<usize> = (0..self.snapshots.len()).filter(|&at| self.snapshots[at].clones.is_empty()).collect();
        if free.is_empty() {
            return Ok(Step::Done);
        }
        let at = free[self.stage.chance.index(free.len())];
        let order = Order::DeleteSnapshot { snapshot: self.snapshots[at].name.clone() };
        match self.stage.until_dark(order).await {
            Came::Answered(Ok(())) => drop(self.snapshots.remove(at)),
            // A clone of it is still being taken apart.
            Came::Answered(Err(refusal)) if refusal.code == code::SNAPSHOT_IN_USE => {}
            Came::Answered(Err(refusal)) => return Err(format!("the snapshot stays: {refusal}")),
            Came::Dark => {
                self.pull_the_plug();
                self.come_back(None).await?;
                if !self.snapshots_there().await?.contains(&self.snapshots[at].id) {
                    self.snapshots.remove(at);
                }
                return Ok(Step::Dark);
            }
        }
        Ok(Step::Done)
    }

    /// A volume that has no snapshots is no more. No host is at work.
    async fn delete_volume(&mut self) -> Judged<Step> {
        let is_free = |volume: &Presented| self.snapshots.iter().all(|snapshot| snapshot.name.volume != volume.name);
        let free: Vec<usize> = (0..self.volumes.len()).filter(|&at| is_free(&self.volumes[at].0)).collect();
        if free.is_empty() || self.volumes.len() == 1 {
            return Ok(Step::Done);
        }
        let (gone, provision) = self.volumes.remove(free[self.stage.chance.index(free.len())]);
        self.stage.present(&self.presented()).await?;
        match self.stage.until_dark(Order::DeleteVolume { volume: gone.name.clone() }).await {
            Came::Answered(answer) => answer.map_err(|refusal| format!("the volume stays: {refusal}"))?,
            Came::Dark => {
                let mut all = self.presented();
                all.push(gone.clone());
                self.stage.pull_the_plug(&all);
                if self.come_back(Some(gone.id)).await? {
                    self.volumes.push((gone, provision));
                    self.stage.present(&self.presented()).await?;
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
        let policy = VolumePolicy { cache_share: chance.pick(&[0, 1, 100]), read_ahead, ..VolumePolicy::default() };
        self.stage.order(Order::SetVolumePolicy { volume, policy }).await.map(|_| Step::Done)
    }

    async fn go_dark(&self) -> Judged<Step> {
        self.pull_the_plug();
        self.come_back(None).await?;
        Ok(Step::Dark)
    }

    /// Nothing is wrong with what the pool says of its volumes.
    async fn expect_whole(&self) -> Judged<()> {
        match self.stage.order(Order::CheckPool { pool: self.pool.name.clone(), repair: false }).await? {
            Report::Check(check) if check.findings.is_empty() => Ok(()),
            other => Err(format!("the maps of the pool are not whole: {other:?}")),
        }
    }

    fn pull_the_plug(&self) -> Torn {
        self.stage.pull_the_plug(&self.presented())
    }

    /// The pool is open again with its volumes and snapshots, but perhaps not `doubtful`; whether that is there.
    async fn come_back(&self, doubtful: Option<VolumeId>) -> Judged<bool> {
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
        self.stage.present(&self.presented()).await?;
        self.stage.open_portals().await?;
        Ok(doubtful.as_ref().is_some_and(is_there))
    }

    async fn snapshots_there(&self) -> Judged<Vec<SnapshotId>> {
        match self.stage.order(Order::Snapshots).await? {
            Report::Snapshots(found) => {
                Ok(found.iter().filter(|one| one.state == SnapshotState::Whole).map(|one| one.id).collect())
            }
            other => Err(format!("Snapshots was answered with {other:?}")),
        }
    }

    async fn look_at_all(&self) -> Judged<()> {
        self.stage.look_at_all(&self.units()).await
    }

    fn oracle<T>(&self, at: usize, work: impl FnOnce(&mut Oracle) -> T) -> T {
        work(&mut self.volumes[at].0.unit.oracle.borrow_mut())
    }

    fn presented(&self) -> Vec<Presented> {
        self.volumes.iter().map(|(volume, _)| volume.clone()).collect()
    }

    fn units(&self) -> Vec<Unit> {
        self.volumes.iter().map(|(volume, _)| volume.unit.clone()).collect()
    }
}
