//! Persistent state of unfinished copies: they continue after a restart, and on another node.

use super::Pool;
use crate::catalog::CopyRecord;
use crate::error::PoolError;
use block::{BlockDevice, Blocks};
use std::collections::BTreeMap;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Unfinished copies, by target volume.
    #[must_use]
    pub fn unfinished_copies(&self) -> BTreeMap<Uuid, CopyRecord> {
        self.shared
            .store
            .with_catalog(|catalog| catalog.unfinished_copies().map(|(volume, copy)| (volume, copy.clone())).collect())
    }

    /// Stores the progress of the copy to `volume`, which may have started over: the next block is `next`,
    /// after `copied_bytes` bytes of data.
    ///
    /// *Shape*: what was copied is flushed. *Durability*: when it returns. *Errors*: `VolumeUnknown` where
    /// nothing is being copied to it; `CatalogLost`.
    pub async fn store_copied(&self, volume: Uuid, next: Blocks, copied_bytes: u64) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            let copy = catalog.copies.get_mut(&volume).ok_or(PoolError::VolumeUnknown(volume))?;
            // Both in one commit: the count is that of the blocks before `next`.
            (copy.next, copy.copied_bytes) = (next, copied_bytes);
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }
}
