//! Persistence of the SCSI state of a unit, and the target ports of the unit.

use crate::iscsi_shard::IscsiShard;
use engine::unit::{self, Unit};
use scsi::{StateStore, StoreError, StoreFuture, TargetPort};
use shard::World;
use std::rc::{Rc, Weak};

/// Stores the reservations of a unit in the metadata of its pool. Without a pool nothing is stored.
pub(super) struct ReservationStore<W: World> {
    shard: Weak<IscsiShard<W>>,
    unit: Rc<Unit<W>>,
}

impl<W: World> ReservationStore<W> {
    /// Creates the store for the volume of `unit`.
    pub(super) fn new(shard: &Rc<IscsiShard<W>>, unit: &Rc<Unit<W>>) -> Self {
        Self { shard: Rc::downgrade(shard), unit: unit.clone() }
    }
}

impl<W: World> StateStore for ReservationStore<W> {
    fn is_able(&self) -> bool {
        self.unit.keeps_host_state()
    }

    fn store(&self, kept: Vec<u8>) -> StoreFuture<'_> {
        Box::pin(async move {
            self.unit.keep_host_state(kept).await.map_err(|why| match why {
                unit::NotKept::Full => StoreError::Full,
                unit::NotKept::Gone => StoreError::Gone,
            })
        })
    }

    fn target_ports(&self) -> Vec<TargetPort> {
        let shard = self.shard.upgrade();
        shard.map_or_else(Vec::new, |shard| shard.access.borrow().ports_of(self.unit.id))
    }
}
