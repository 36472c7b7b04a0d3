//! Persistent reservations of volumes, stored in the catalog so that they move with the pool.

use super::Pool;
use crate::catalog::{Catalog, RESERVATIONS_BYTES_MAX};
use crate::error::PoolError;
use crate::layout::BODY_BYTES_MAX;
use block::BlockDevice;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Stored reservations of the volume; empty when there are none.
    #[must_use]
    pub fn reservations(&self, volume: Uuid) -> Vec<u8> {
        self.shared.store.with_catalog(|catalog| catalog.reservations.get(&volume).cloned().unwrap_or_default())
    }

    /// Stores the volume's reservations; empty bytes remove them.
    ///
    /// *Durability*: when it returns. *Errors*: `VolumeUnknown`, `CatalogFull`, `CatalogLost`.
    pub async fn store_reservations(&self, volume: Uuid, kept: Vec<u8>) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            if !catalog.has_volume(volume) {
                return Err(PoolError::VolumeUnknown(volume));
            }
            let before = put(catalog, volume, kept);
            // A shorter record always fits, so that hosts can release reservations of a full catalog.
            if grows(catalog, volume, &before) && !fits(catalog) {
                // Restored, because a failed change must leave the catalog as it was.
                put(catalog, volume, before);
                return Err(PoolError::CatalogFull);
            }
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }
}

/// Replaces the stored bytes and returns the previous ones.
fn put(catalog: &mut Catalog, volume: Uuid, kept: Vec<u8>) -> Vec<u8> {
    let before =
        if kept.is_empty() { catalog.reservations.remove(&volume) } else { catalog.reservations.insert(volume, kept) };
    // Empty bytes stand for no record, as in the argument.
    before.unwrap_or_default()
}

fn grows(catalog: &Catalog, volume: Uuid, before: &[u8]) -> bool {
    catalog.reservations.get(&volume).is_some_and(|kept| kept.len() > before.len())
}

fn fits(catalog: &Catalog) -> bool {
    // Entries of deleted volumes are not committed, so they do not count.
    let bytes: usize = catalog.reserved().map(|(_, kept)| kept.len()).sum();
    bytes <= RESERVATIONS_BYTES_MAX && catalog.emitted_bytes_max() <= BODY_BYTES_MAX
}
