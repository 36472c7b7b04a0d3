//! Thin volumes, snapshots and clones: what an operator can ask for.

use super::Pool;
use crate::error::PoolError;
use crate::family::plan::{Cleaning, ClonePlan, Lock, SnapshotPlan, SpaceEvent, Tended, ThinPlan, Thresholds};
use crate::thin::ThinVolume;
use block::BlockDevice;
use std::rc::Rc;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The pool has the volume, all of it holes, and it is open.
    ///
    /// *Durability*: when it returns. *Errors*: as [`Pool::create_volume`], and `Granule`.
    pub async fn create_thin_volume(&self, plan: ThinPlan) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        Err(PoolError::VolumeUnknown(plan.id))
    }

    /// The volume, open. All who open it share one.
    ///
    /// *Errors*: `VolumeUnknown` (also for one that lies in segments: see [`Pool::open_volume`]), `MapDamaged`,
    /// `GroupFails`, `CatalogLost`.
    pub async fn open_thin_volume(&self, id: Uuid) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        Err(PoolError::VolumeUnknown(id))
    }

    /// The snapshot as a device that cannot be written.
    ///
    /// *Errors*: `SnapshotUnknown`, and as [`Pool::open_thin_volume`].
    pub async fn open_snapshot(&self, id: Uuid) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        Err(PoolError::SnapshotUnknown(id))
    }

    /// The snapshots are there, each the state of its volume at one instant between call and return, the same
    /// for all of them; with everything that was written before, flushed or not.
    ///
    /// *Durability*: when it returns; all of them or none. *Errors*: `VolumeUnknown`, `NameInvalid`, `NameTaken`,
    /// `IdTaken`, `TooManySnapshots`, `Full` (a thick volume needs space for what it may change, and every
    /// map for its holes), `GroupFails`, `CatalogFull`, `CatalogLost`.
    pub async fn create_snapshots(&self, plans: &[SnapshotPlan]) -> Result<(), PoolError> {
        match plans.first() {
            Some(plan) => Err(PoolError::VolumeUnknown(plan.volume)),
            None => Ok(()),
        }
    }

    /// The clone is there, shows what the snapshot shows, and is open.
    ///
    /// *Durability*: when it returns. *Errors*: `SnapshotUnknown`, `NameInvalid`, `NameTaken`, `IdTaken`,
    /// `TooManyVolumes`, `TooDeep`, `Full`, `CatalogFull`, `CatalogLost`.
    pub async fn create_clone(&self, plan: ClonePlan) -> Result<Rc<ThinVolume<D, G>>, PoolError> {
        Err(PoolError::SnapshotUnknown(plan.snapshot))
    }

    /// The volume shows what the snapshot shows, at its present size; newer snapshots stay as they are.
    ///
    /// *Durability*: when it returns. *Errors*: `SnapshotUnknown`, `TooManyRollBacks`, `Full`, `GroupFails`,
    /// `CatalogFull`, `CatalogLost`.
    pub async fn roll_back(&self, snapshot: Uuid) -> Result<(), PoolError> {
        Err(PoolError::SnapshotUnknown(snapshot))
    }

    /// The snapshot is no more. What only it held is given back by [`Pool::tend`].
    ///
    /// *Shape*: `now` is the time, in seconds since 1970. *Durability*: when it returns. *Errors*: `SnapshotUnknown`,
    /// `SnapshotLocked`, `SnapshotCloned`, `CatalogLost`.
    pub async fn delete_snapshot(&self, id: Uuid, now: u64) -> Result<(), PoolError> {
        let _ = now;
        Err(PoolError::SnapshotUnknown(id))
    }

    /// The snapshot cannot be deleted before `lock` ends. Locks only become longer.
    ///
    /// *Durability*: when it returns. *Errors*: `SnapshotUnknown`, `SnapshotLocked` for a shorter one, `CatalogLost`.
    pub async fn lock_snapshot(&self, id: Uuid, lock: Lock) -> Result<(), PoolError> {
        let _ = lock;
        Err(PoolError::SnapshotUnknown(id))
    }

    /// One step of the background work: what nobody sees any more is given back, slabs that became free return
    /// to the pool, maps are written down before their logs are full. To be called again at once while it
    /// says that there is more, and every few seconds else.
    ///
    /// *Errors*: `GroupFails`, `MapDamaged`, `CatalogLost`; the pool goes on, and the next call tries again.
    pub async fn tend(&self) -> Result<Tended, PoolError> {
        Ok(Tended::default())
    }

    /// How far the cleaning of each volume is that is being cleaned.
    #[must_use]
    pub fn cleanings(&self) -> Vec<Cleaning> {
        Vec::new()
    }

    /// `hear` hears of what happens to the space of the pool.
    pub fn on_space(&self, thresholds: Thresholds, hear: impl Fn(SpaceEvent) + 'static) {
        let _ = (thresholds, Box::new(hear));
    }
}
