//! Full copies of volumes during writes: consistent in time, and complete or absent.

use super::{Families, Step};
use crate::host::traffic::Unit;
use crate::oracle::{Instant, Oracle};
use crate::power::OrderOutcome;
use crate::stage::{CheckResult, PresentedVolume};
use model::{CopySource, Name, Order, Provision, VolumeId, VolumeName, VolumeState, code};
use shard::World;
use std::time::Duration;

/// Free space that a copy needs at most: map and data of a volume, two slabs, twice.
const COPY_BYTES: u64 = 4 * (17 << 20);

/// Upper bound of the time before a copy is interrupted; mostly it is much shorter.
const COPY_TIME_MAX: Duration = Duration::from_secs(2);

impl Families<'_> {
    /// Copies a volume within its pool, possibly with a cancellation or a power failure.
    pub(crate) async fn copy(&mut self) -> CheckResult<Step> {
        let stage = self.stage;
        // A copy is made of a snapshot, and volumes of segments have none.
        let with_map = self.volumes.iter().position(|(_, provision)| *provision != Provision::Segments);
        let Some(at) = with_map.filter(|_| self.volumes.len() < super::VOLUMES_MAX) else { return Ok(Step::Done) };
        // A copy that runs out of space fails, and the checks below take that for a loss.
        if stage.pool().await?.free().bytes() < COPY_BYTES {
            return Ok(Step::Done);
        }
        let provision = self.volumes[at].1;
        let (number, id) = (self.next_number, VolumeId::from_random(stage.chance.identity()));
        self.next_number += 1;
        let own: Name = format!("v{number}").parse().expect("this is a name");
        let target = VolumeName::in_pool(self.pool.name.clone(), own);
        let source = CopySource::Volume(self.volumes[at].0.name.clone());
        // The copy shows a point in time between this one and the answer.
        let op = self.oracle(at, Oracle::begin);
        let came = stage.until_power_failure(Order::CopyVolume { source, target: target.clone(), id }).await;
        let is_cut = matches!(came, OrderOutcome::PowerFailed);
        let mut instant = self.oracle(at, |oracle| oracle.instant(op, is_cut));
        let ended = match came {
            OrderOutcome::Answered(answer) => {
                answer.map_err(|refusal| format!("no copy: {refusal}"))?;
                self.end_copy(&target, id).await?
            }
            OrderOutcome::PowerFailed => {
                let torn = self.crash_or_kill();
                // A value of the source that was not stable may be missing from the copy, too.
                instant.crash(torn);
                (self.continue_copy(id).await?, Step::PowerFailed)
            }
        };
        if ended.0 {
            let new = self.copy_of(at, &target, id, number, &instant);
            self.add_volume(new.clone(), provision).await?;
            stage.check_all_blocks(std::slice::from_ref(&new.unit)).await?;
            // The reads have decided every block; now all of them must fit one instant.
            let settled = instant.settle(&new.unit.oracle.borrow());
            settled.map_err(|why| format!("{target} is a copy of no instant: {why}"))?;
        }
        Ok(ended.1)
    }

    /// Waits for the acknowledged copy, cancels it or cuts the power; returns whether the copy exists, and the effect
    /// on the hosts.
    async fn end_copy(&mut self, target: &VolumeName, id: VolumeId) -> CheckResult<(bool, Step)> {
        let stage = self.stage;
        let how = stage.chance.below(10);
        if how < 6 {
            stage.world.sleep(stage.chance.moment(COPY_TIME_MAX)).await;
        }
        if how < 3 {
            self.crash_or_kill();
            // The order was answered, so the catalog holds the target: no crash may lose it.
            if !self.continue_copy(id).await? {
                return Err(format!("copy {target} was acknowledged, and is gone after a crash"));
            }
            return Ok((true, Step::PowerFailed));
        }
        if how < 6 {
            match stage.ask(Order::CancelCopy { target: target.clone() }).await {
                Ok(_) => return Ok((false, Step::Done)),
                // The copy had already finished.
                Err(refusal) if refusal.code == code::COPY_UNKNOWN => {}
                Err(refusal) => return Err(format!("the copy goes on: {refusal}")),
            }
        }
        self.until_whole(id).await.map(|()| (true, Step::Done))
    }

    /// Restarts after a power failure; a copy that had begun continues to its end. Returns whether the copy exists.
    async fn continue_copy(&mut self, id: VolumeId) -> CheckResult<bool> {
        let had_begun = self.recover(Some(id)).await?;
        if had_begun {
            self.until_whole(id).await?;
        }
        Ok(had_begun)
    }

    async fn until_whole(&self, id: VolumeId) -> CheckResult<()> {
        loop {
            let found = self.stage.volumes().await?.into_iter().find(|volume| volume.id == id);
            match found.map(|volume| volume.state) {
                Some(VolumeState::Copying) => self.stage.world.sleep(Duration::from_millis(10)).await,
                Some(VolumeState::Online) => return Ok(()),
                other => return Err(format!("a copy that nobody has ended is {other:?}")),
            }
        }
    }

    /// Returns the copy as the hosts will access it.
    fn copy_of(&self, at: usize, name: &VolumeName, id: VolumeId, number: u16, instant: &Instant) -> PresentedVolume {
        let origin = &self.volumes[at].0.unit;
        let oracle = origin.oracle.borrow().of_instant(&name.to_string(), number, instant);
        let hot = self.stage.hot(oracle.blocks());
        let block_bytes = u32::try_from(origin.block_bytes).expect("a block is small");
        let mut unit = Unit::new(number, block_bytes, oracle, hot);
        unit.thin = origin.thin;
        PresentedVolume { name: name.clone(), id, unit }
    }
}

#[cfg(test)]
mod tests {
    use crate::families::Families;
    use crate::pool::PoolPlan;
    use crate::run::play;
    use model::{Level, VolumeId, VolumeName, WritePolicy};

    #[test]
    fn acknowledged_copy_that_is_missing_is_a_violation() {
        // The seeds cover every way to end a copy: waiting, canceling and crashing.
        for seed in 1..=20 {
            let outcome = play(seed, None, async |stage| {
                let pool = PoolPlan::of_chance(stage, &Level::ALL).make(stage).await?;
                let mut families = Families::new(stage, &pool, WritePolicy::Through);
                families.make_volume(4096).await?;
                stage.open_portals().await?;
                // No order creates this copy: the pool is in the state of one that has lost it.
                let target = VolumeName::in_pool(pool.name.clone(), "lost".parse().expect("this is a name"));
                families.end_copy(&target, VolumeId::from_random(stage.chance.identity())).await.map(drop)
            });
            let why = outcome.wrong.unwrap_or_default();
            assert!(why.contains("gone after a crash") || why.contains("nobody has ended"), "seed {seed}: {why:?}");
        }
    }
}
