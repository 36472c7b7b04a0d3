//! Orders that change a pool, and their refusal for a pool that is open read-only.

use super::Conductor;
use model::{Name, Order, Refusal, code};
use shard::World;

impl<W: World> Conductor<W> {
    /// Admits an order if it does not write to a read-only pool.
    pub(super) fn admit_change(&self, order: &Order) -> Result<(), Refusal> {
        // Orders about members name a disk; they would change the pool that has it.
        let pool = match order {
            Order::FailDisk { disk }
            | Order::ReturnDisk { disk, .. }
            | Order::ReplaceDisk { failed: disk, .. }
            | Order::CopyMember { disk, .. } => self.disks.pool_of(disk),
            order => changed_by(order).cloned(),
        };
        let Some(pool) = pool else { return Ok(()) };
        if !self.pools.borrow().get(&pool).is_some_and(|home| home.read_only) {
            return Ok(());
        }
        let hint = format!("to write to it, import it for writing with blockyard pool import {pool}");
        Err(Refusal::new(code::POOL_READ_ONLY, format!("pool {pool} is open read-only"), hint))
    }
}

/// Pool to whose disks an order writes. Settings of caches, limits and repairs are in the node's state, not on the
/// disks.
fn changed_by(order: &Order) -> Option<&Name> {
    match order {
        Order::AddGroup { pool, .. }
        | Order::AddMember { pool, .. }
        | Order::GrowPool { pool, .. }
        | Order::AddLog { pool, .. }
        | Order::RemoveLog { pool, .. }
        | Order::DestroyPool { pool }
        | Order::StartScrub { pool, .. } => Some(pool),
        Order::CreateVolume(spec) => spec.name.pool(),
        Order::ResizeVolume { volume, .. }
        | Order::ClearReservations { volume }
        | Order::DeleteVolume { volume }
        | Order::CloneSnapshot { volume, .. }
        | Order::CopyVolume { target: volume, .. } => volume.pool(),
        Order::CreateSnapshots { snapshots, .. } => snapshots.first()?.0.volume.pool(),
        Order::DeleteSnapshot { snapshot }
        | Order::LockSnapshot { snapshot, .. }
        | Order::RollBack { snapshot, .. } => snapshot.volume.pool(),
        _ => None,
    }
}
