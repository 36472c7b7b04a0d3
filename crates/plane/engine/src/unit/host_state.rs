//! Host state of a unit: bytes that a front end keeps for hosts, such as reservations and operations that continue
//! after a restart.
//!
//! The engine keeps the bytes in the catalog of the pool, with the volume, and does not interpret them.

use crate::array::{Disk, Group};
use model::VolumeId;
use shard::World;
use volume::{PoolError, Uuid};

/// Pool of a volume, whose catalog keeps its host state.
pub(super) type PoolCatalog<W> = volume::Pool<Disk<W>, Group<W>>;

/// Host state of a unit, and the catalog that keeps it.
pub struct HostState<W: World> {
    pool: Option<PoolCatalog<W>>,
    found: Vec<u8>,
}

/// Reason why host state could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotKept {
    /// The catalog of the pool is full.
    Full,
    /// The pool takes no change, or the volume has no pool.
    Gone,
}

impl<W: World> HostState<W> {
    /// No host state is kept: the volume has no pool.
    pub fn none() -> Self {
        Self { pool: None, found: Vec::new() }
    }

    /// Host state kept in `pool`, which holds `found` now.
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
        let committed = pool.store_reservations(Uuid::from_bytes(volume.to_bytes()), bytes).await;
        // Hosts can free space in a full catalog; after any other error the pool takes no change.
        committed.map_err(|error| if error == PoolError::CatalogFull { NotKept::Full } else { NotKept::Gone })
    }
}
