//! Snapshots of the volumes of a pool, consistent in time and immutable, with clones and rollbacks.

use super::{Families, Snapshot, Step, VOLUMES_MAX};
use crate::host::traffic::Unit;
use crate::oracle::{OpId, Oracle};
use crate::power::OrderOutcome;
use crate::stage::{CheckResult, PresentedVolume};
use model::{
    Name, Order, Provision, Report, SnapshotId, SnapshotLock, SnapshotName, SnapshotState, VolumeId, VolumeName, code,
};

impl Families<'_> {
    /// Takes snapshots of several volumes at one instant.
    pub(crate) async fn take_snapshots(&mut self) -> CheckResult<Step> {
        let stage = self.stage;
        let has_map = |&at: &usize| self.volumes[at].1 != Provision::Segments;
        let mut at: Vec<usize> = (0..self.volumes.len()).filter(has_map).collect();
        if at.is_empty() {
            return Ok(Step::Done);
        }
        let count = stage.chance.count(1..=at.len());
        stage.chance.shuffle(&mut at);
        at.truncate(count);
        let number = self.next_number;
        self.next_number += 1;
        let mut made = Vec::new();
        for &at in &at {
            let own: Name = format!("s{number}").parse().expect("this is a name");
            let name = SnapshotName::of(self.volumes[at].0.name.clone(), own);
            // Also if the order is refused later: a volume that counts as related only escapes the refill.
            self.relatives.insert(self.volumes[at].0.id);
            made.push((at, name, SnapshotId::from_random(stage.chance.identity())));
        }
        // The snapshots show a point in time between this one and the answer.
        let ops: Vec<OpId> = at.iter().map(|&at| self.oracle(at, Oracle::begin)).collect();
        let snapshots = made.iter().map(|(_, name, id)| (name.clone(), *id)).collect();
        let came = stage.until_power_failure(Order::CreateSnapshots { snapshots, lock: SnapshotLock::Unlocked }).await;
        let is_cut = matches!(came, OrderOutcome::PowerFailed);
        let instants = made.into_iter().zip(ops).map(|((at, name, id), op)| {
            let (volume, provision) = &self.volumes[at];
            let instant = volume.unit.oracle.borrow_mut().instant(op, is_cut);
            Snapshot { name, id, origin: volume.unit.clone(), provision: *provision, instant, clones: Vec::new() }
        });
        let mut new: Vec<Snapshot> = instants.collect();
        match came {
            OrderOutcome::Answered(Ok(())) => self.snapshots.append(&mut new),
            OrderOutcome::Answered(Err(refusal)) if refusal.code == code::POOL_FULL => {}
            OrderOutcome::Answered(Err(refusal)) => return Err(format!("no snapshots: {refusal}")),
            OrderOutcome::PowerFailed => {
                let torn = self.crash_or_kill();
                self.recover(None).await?;
                let there = self.snapshots_there().await?;
                // Snapshots of one order are atomic: all of them exist after the crash, or none.
                let (mut there, gone): (Vec<_>, Vec<_>) = new.into_iter().partition(|new| there.contains(&new.id));
                if !there.is_empty() && !gone.is_empty() {
                    return Err(format!(
                        "of snapshots of one instant {} is there, and {} not",
                        there[0].name, gone[0].name
                    ));
                }
                there.iter_mut().for_each(|snapshot| snapshot.instant.crash(torn));
                self.snapshots.append(&mut there);
                return Ok(Step::PowerFailed);
            }
        }
        Ok(Step::Done)
    }

    /// Creates a volume from a snapshot, which hosts write from then on.
    pub(crate) async fn make_clone(&mut self) -> CheckResult<Step> {
        if self.snapshots.is_empty() || self.volumes.len() >= VOLUMES_MAX {
            return Ok(Step::Done);
        }
        let at = self.stage.chance.index(self.snapshots.len());
        let (order, id, new) = self.clone_of(at);
        let came = self.stage.until_power_failure(order).await;
        let step = match came {
            OrderOutcome::Answered(Ok(())) => Step::Done,
            OrderOutcome::Answered(Err(refusal)) if refusal.code == code::POOL_FULL => return Ok(Step::Done),
            OrderOutcome::Answered(Err(refusal)) => return Err(format!("no clone: {refusal}")),
            OrderOutcome::PowerFailed => {
                self.crash_or_kill();
                let found = self.recover(Some(id)).await?;
                if !found {
                    return Ok(Step::PowerFailed);
                }
                Step::PowerFailed
            }
        };
        let provision = self.snapshots[at].provision;
        self.snapshots[at].clones.push(id);
        self.relatives.insert(id);
        self.add_volume(new, provision).await?;
        Ok(step)
    }

    /// Returns the order that clones a snapshot, and the resulting volume.
    fn clone_of(&mut self, at: usize) -> (Order, VolumeId, PresentedVolume) {
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
        let new = PresentedVolume { name: volume.clone(), id, unit };
        let zero_detection = *provision == Provision::Thin && stage.chance.percent(40);
        let (snapshot, provision) = (snapshot.clone(), *provision);
        (Order::CloneSnapshot { snapshot, volume, id, provision, zero_detection }, id, new)
    }

    /// Checks the content of all snapshots.
    pub(crate) async fn look_at_snapshots(&mut self) -> CheckResult<()> {
        for at in 0..self.snapshots.len() {
            self.look_at_snapshot(at).await?;
        }
        Ok(())
    }

    /// Checks the content of a snapshot through a temporary clone: consistent in time, and unchanged since earlier
    /// checks.
    async fn look_at_snapshot(&mut self, at: usize) -> CheckResult<()> {
        let (order, _, new) = self.clone_of(at);
        match self.stage.ask(order).await {
            // The clone needs space; in a full pool the check is omitted.
            Err(refusal) if refusal.code == code::POOL_FULL => return Ok(()),
            made => drop(made.map_err(|refusal| format!("no clone to look at: {refusal}"))?),
        }
        let mut shown = self.presented();
        shown.push(new.clone());
        self.stage.present(&shown).await?;
        self.stage.check_all_blocks(std::slice::from_ref(&new.unit)).await?;
        let name = self.snapshots[at].name.clone();
        let settled = self.snapshots[at].instant.settle(&new.unit.oracle.borrow());
        settled.map_err(|why| format!("snapshot {name} is of no instant: {why}"))?;
        self.show().await?;
        // Deleted at once: a clone keeps its snapshot from being deleted.
        self.stage.order(Order::DeleteVolume { volume: new.name }).await.map(drop)
    }

    /// Rolls a volume back to a snapshot while no host works.
    pub(crate) async fn roll_back(&mut self) -> CheckResult<Step> {
        if self.snapshots.is_empty() {
            return Ok(Step::Done);
        }
        let at = self.stage.chance.index(self.snapshots.len());
        let Snapshot { name, origin, .. } = &self.snapshots[at];
        let order = Order::RollBack { snapshot: name.clone(), in_use: true };
        let oracle = origin.oracle.clone();
        match self.stage.until_power_failure(order).await {
            OrderOutcome::Answered(Ok(())) => oracle.borrow_mut().roll_back(&self.snapshots[at].instant, false),
            OrderOutcome::Answered(Err(refusal)) if refusal.code == code::POOL_FULL => {}
            OrderOutcome::Answered(Err(refusal)) => return Err(format!("no way back: {refusal}")),
            OrderOutcome::PowerFailed => {
                self.crash_or_kill();
                // The rollback may have taken effect or not; the oracle accepts both.
                oracle.borrow_mut().roll_back(&self.snapshots[at].instant, true);
                // The oracle learns of the roll-back before any host reads again.
                self.recover(None).await?;
                return Ok(Step::PowerFailed);
            }
        }
        Ok(Step::Done)
    }

    /// Deletes a snapshot without clones.
    pub(crate) async fn delete_snapshot(&mut self) -> CheckResult<Step> {
        let free: Vec<usize> = (0..self.snapshots.len()).filter(|&at| self.snapshots[at].clones.is_empty()).collect();
        if free.is_empty() {
            return Ok(Step::Done);
        }
        let at = free[self.stage.chance.index(free.len())];
        let order = Order::DeleteSnapshot { snapshot: self.snapshots[at].name.clone() };
        match self.stage.until_power_failure(order).await {
            OrderOutcome::Answered(Ok(())) => drop(self.snapshots.remove(at)),
            // A clone of it is still being deleted.
            OrderOutcome::Answered(Err(refusal)) if refusal.code == code::SNAPSHOT_IN_USE => {}
            OrderOutcome::Answered(Err(refusal)) => return Err(format!("the snapshot stays: {refusal}")),
            OrderOutcome::PowerFailed => {
                self.crash_or_kill();
                self.recover(None).await?;
                // A deletion without an answer took effect or not; the pool shows which.
                if !self.snapshots_there().await?.contains(&self.snapshots[at].id) {
                    self.snapshots.remove(at);
                }
                return Ok(Step::PowerFailed);
            }
        }
        Ok(Step::Done)
    }

    async fn snapshots_there(&self) -> CheckResult<Vec<SnapshotId>> {
        match self.stage.order(Order::Snapshots).await? {
            Report::Snapshots(found) => {
                Ok(found.iter().filter(|one| one.state == SnapshotState::Available).map(|one| one.id).collect())
            }
            other => Err(format!("Snapshots was answered with {other:?}")),
        }
    }
}
