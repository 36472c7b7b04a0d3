//! Snapshots: orders and reports, forwarded to the homes of their pools.

use super::{Conductor, VolumeHome};
use crate::pool;
use model::{Name, Refusal, SnapshotId, SnapshotLock, SnapshotName, SnapshotReport, VolumeReport, code};
use shard::World;

impl<W: World> Conductor<W> {
    pub(super) async fn create_snapshots(
        &self,
        snapshots: &[(SnapshotName, SnapshotId)],
        lock: SnapshotLock,
    ) -> Result<Vec<SnapshotReport>, Refusal> {
        let pools: Vec<&Name> = snapshots.iter().filter_map(|(name, _)| name.volume.pool()).collect();
        let Some(&first) = pools.first() else {
            return Err(Refusal::new(code::VALUE_MISSING, "no volume was given", "give at least one"));
        };
        // Pools may have different homes, so nothing orders a snapshot in one with a snapshot in another.
        if let Some(other) = pools.iter().find(|&&pool| pool != first) {
            let message = format!("a snapshot cannot include volumes of two pools, {first} and {other}");
            return Err(Refusal::new(code::POOLS_DIFFER, message, "create one snapshot for each pool"));
        }
        let (pool, snapshots) = (first.clone(), snapshots.to_vec());
        self.at(self.pool_home(&pool)?.home, move |shard| pool::create_snapshots(shard, pool, snapshots, lock)).await
    }

    pub(super) async fn delete_snapshot(&self, name: &SnapshotName) -> Result<(), Refusal> {
        self.copies.admit_not_copied(name)?;
        let name = name.clone();
        self.at(self.home_of(&name)?, move |shard| pool::delete_snapshot(shard, name)).await
    }

    pub(super) async fn lock_snapshot(
        &self,
        name: &SnapshotName,
        lock: SnapshotLock,
    ) -> Result<Vec<SnapshotReport>, Refusal> {
        let name = name.clone();
        self.at(self.home_of(&name)?, move |shard| pool::lock_snapshot(shard, name, lock)).await
    }

    pub(super) async fn clone_snapshot(&self, new: pool::NewClone) -> Result<VolumeReport, Refusal> {
        if new.name.pool() != new.snapshot.volume.pool() {
            let message =
                format!("a clone must be in the pool of its snapshot {}, and {} is not", new.snapshot, new.name);
            return Err(Refusal::new(
                code::POOLS_DIFFER,
                message,
                "choose a name in that pool, or copy the volume instead",
            ));
        }
        self.admit_name(&new.name)?;
        // A clone shares the map of its origin, and a map has one home.
        let home = self.home_of(&new.snapshot)?;
        let report = self.at(home, move |shard| pool::clone_snapshot(shard, new)).await?;
        self.volumes.borrow_mut().insert(report.name.clone(), VolumeHome { id: report.id, home, serves: true });
        // Published before the answer: a mapping that follows must find the clone.
        self.publish_volumes().await;
        Ok(report)
    }

    pub(super) async fn roll_back(&self, name: &SnapshotName, in_use: bool) -> Result<VolumeReport, Refusal> {
        let name = name.clone();
        self.at(self.home_of(&name)?, move |shard| pool::roll_back(shard, name, in_use)).await
    }

    pub(super) async fn snapshot_reports(&self) -> Vec<SnapshotReport> {
        let mut reports = Vec::new();
        for home in 0..self.shard.limits.shards {
            let here = self.shard.call(home, |shard| async move { pool::snapshots(&shard) }).await;
            reports.extend(here.unwrap_or_default());
        }
        // A stable sort: the snapshots of a volume stay in their order, the oldest first.
        reports.sort_by(|a, b| a.name.volume.cmp(&b.name.volume));
        reports
    }

    fn home_of(&self, name: &SnapshotName) -> Result<usize, Refusal> {
        let pool = name.volume.pool().expect("a snapshot is of a volume of a pool");
        Ok(self.pool_home(pool)?.home)
    }
}
