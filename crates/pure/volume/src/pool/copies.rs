//! Copies to volumes of the pool that have not finished: they continue after a restart, and on another node.

use super::Pool;
use crate::catalog::CopyRecord;
use crate::error::PoolError;
use block::{BlockDevice, Blocks};
use std::collections::BTreeMap;
use uuid::Uuid;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The copies that have not finished, by their targets.
    #[must_use]
    pub fn unfinished_copies(&self) -> BTreeMap<Uuid, CopyRecord> {
        self.shared
            .store
            .look(|catalog| catalog.unfinished_copies().map(|(volume, copy)| (volume, copy.clone())).collect())
    }

    /// The copy to `volume`, which may have begun anew, has got as far as block `next`, which is after `copied_bytes` bytes of data.
    ///
    /// *Shape*: what was copied is flushed. *Durability*: when it returns. *Errors*: `VolumeUnknown` where nothing is being
    /// copied to it; `CatalogLost`.
    pub async fn keep_copied(&self, volume: Uuid, next: Blocks, copied_bytes: u64) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            let copy = catalog.copies.get_mut(&volume).ok_or(PoolError::VolumeUnknown(volume))?;
            (copy.next, copy.copied_bytes) = (next, copied_bytes);
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }
}
