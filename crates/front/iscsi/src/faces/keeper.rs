//! Persistence of the SCSI state of a unit, and the target ports of the unit.

use crate::iscsi_shard::IscsiShard;
use engine::unit::{self, Unit};
use scsi::{Keeper, Keeping, NotKept, TargetPort};
use shard::World;
use std::rc::{Rc, Weak};

/// Stores the reservations of a unit in the metadata of its pool. Without a pool nothing is stored.
pub(super) struct ReservationKeeper<W: World> {
    shard: Weak<IscsiShard<W>>,
    unit: Rc<Unit<W>>,
}

impl<W: World> ReservationKeeper<W> {
    /// Creates the store for the volume of `unit`.
    pub(super) fn new(shard: &Rc<IscsiShard<W>>, unit: &Rc<Unit<W>>) -> Self {
        Self { shard: Rc::downgrade(shard), unit: unit.clone() }
    }
}

impl<W: World> Keeper for ReservationKeeper<W> {
    fn is_able(&self) -> bool {
        self.unit.keeps_host_state()
    }

    fn keep(&self, kept: Vec<u8>) -> Keeping<'_> {
        Box::pin(async move {
            self.unit.keep_host_state(kept).await.map_err(|why| match why {
                unit::NotKept::Full => NotKept::Full,
                unit::NotKept::Gone => NotKept::Gone,
            })
        })
    }

    fn target_ports(&self) -> Vec<TargetPort> {
        let shard = self.shard.upgrade();
        shard.map_or_else(Vec::new, |shard| shard.access.borrow().ports_of(self.unit.id))
    }
}
