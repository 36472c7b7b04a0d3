//! What hosts have reserved of a volume: kept in the catalog of its pool, and shown to the operator.

use crate::array::{Disk, Group};
use crate::seat::Seat;
use model::VolumeId;
use scsi::{Keeper, Keeping, NotKept, TargetPort};
use shard::World;
use std::rc::{Rc, Weak};
use volume::{PoolError, Uuid};

/// The pool of a volume, as what keeps its reservations.
pub type PoolCatalog<W> = volume::Pool<Disk<W>, Group<W>>;

/// Keeps the reservations of one unit with its volume; of one without a pool nothing is kept.
pub struct ReservationKeeper<W: World> {
    seat: Weak<Seat<W>>,
    id: VolumeId,
    pool: Option<PoolCatalog<W>>,
}

impl<W: World> ReservationKeeper<W> {
    /// Keeps for the volume `id`, which lies in `pool`.
    pub fn new(seat: &Rc<Seat<W>>, id: VolumeId, pool: Option<PoolCatalog<W>>) -> Self {
        Self { seat: Rc::downgrade(seat), id, pool }
    }
}

impl<W: World> Keeper for ReservationKeeper<W> {
    fn is_able(&self) -> bool {
        self.pool.is_some()
    }

    fn keep(&self, kept: Vec<u8>) -> Keeping<'_> {
        Box::pin(async move {
            let pool = self.pool.as_ref().ok_or(NotKept::Gone)?;
            let committed = pool.keep_reservations(Uuid::from_bytes(self.id.to_bytes()), kept).await;
            committed.map_err(|error| if error == PoolError::CatalogFull { NotKept::Full } else { NotKept::Gone })
        })
    }

    fn target_ports(&self) -> Vec<TargetPort> {
        let seat = self.seat.upgrade();
        seat.map_or_else(Vec::new, |seat| seat.access.borrow().ports_of(self.id))
    }
}
