//! What a front end keeps for the hosts of a unit: reservations, and orders that must go on after a restart. The engine keeps the
//! bytes in the catalog of the pool, with the volume, and does not look into them.

use crate::array::{Disk, Group};
use model::VolumeId;
use shard::World;
use volume::{PoolError, Uuid};

/// The pool of a volume, as what keeps something with it.
pub(super) type PoolCatalog<W> = volume::Pool<Disk<W>, Group<W>>;

/// The bytes, and the place where they are kept.
pub struct HostState<W: World> {
    pool: Option<PoolCatalog<W>>,
    found: Vec<u8>,
}

/// Why something could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The catalog of the pool is full.
    Full,
    /// The pool takes no change, or the volume has no pool.
    Gone,
}

impl<W: World> HostState<W> {
    /// Nothing is kept: the volume has no pool.
    pub fn none() -> Self {
        Self { pool: None, found: Vec::new() }
    }

    /// `found` is what `pool` has kept for the volume.
    pub fn in_pool(pool: PoolCatalog<W>, found: Vec<u8>) -> Self {
        Self { pool: Some(pool), found }
    }

    pub(super) fn found(&self) -> Vec<u8> {
        self.found.clone()
    }

    pub(super) fn is_kept(&self) -> bool {
        self.pool.is_some()
    }

    pub(super) async fn keep(&self, volume: VolumeId, bytes: Vec<u8>) -> Result<(), NotKept> {
        let pool = self.pool.as_ref().ok_or(NotKept::Gone)?;
        let committed = pool.keep_reservations(Uuid::from_bytes(volume.to_bytes()), bytes).await;
        committed.map_err(|error| if error == PoolError::CatalogFull { NotKept::Full } else { NotKept::Gone })
    }
}
