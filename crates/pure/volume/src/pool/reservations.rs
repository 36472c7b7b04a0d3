//! What hosts have reserved: kept with the volume, wherever its pool goes.

use super::Pool;
use crate::catalog::{Catalog, RESERVATIONS_BYTES_MAX};
use crate::error::PoolError;
use crate::layout::BODY_BYTES_MAX;
use block::BlockDevice;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// What is kept of the volume's reservations; empty when nothing is.
    #[must_use]
    pub fn reservations(&self, volume: Uuid) -> Vec<u8> {
        self.shared.store.look(|catalog| catalog.reservations.get(&volume).cloned().unwrap_or_default())
    }

    /// `kept` is what the volume's reservations are from now on; nothing is kept when it is empty.
    ///
    /// *Durability*: when it returns. *Errors*: `VolumeUnknown`, `CatalogFull`, `CatalogLost`.
    pub async fn keep_reservations(&self, volume: Uuid, kept: Vec<u8>) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            if !catalog.has_volume(volume) {
                return Err(PoolError::VolumeUnknown(volume));
            }
            let before = put(catalog, volume, kept);
            // Less than before always fits.
            if grows(catalog, volume, &before) && !fits(catalog) {
                put(catalog, volume, before);
                return Err(PoolError::CatalogFull);
            }
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }
}

/// Puts `kept` in the place of what was kept, and gives that.
fn put(catalog: &mut Catalog, volume: Uuid, kept: Vec<u8>) -> Vec<u8> {
    let before =
        if kept.is_empty() { catalog.reservations.remove(&volume) } else { catalog.reservations.insert(volume, kept) };
    before.unwrap_or_default()
}

fn grows(catalog: &Catalog, volume: Uuid, before: &[u8]) -> bool {
    catalog.reservations.get(&volume).is_some_and(|kept| kept.len() > before.len())
}

fn fits(catalog: &Catalog) -> bool {
    let bytes: usize = catalog.reserved().map(|(_, kept)| kept.len()).sum();
    bytes <= RESERVATIONS_BYTES_MAX && catalog.emitted_bytes_max() <= BODY_BYTES_MAX
}
