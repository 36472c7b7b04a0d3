//! The scrub of the pool, remembered where the pool goes: it continues after a restart, and on another node.

use super::Pool;
use crate::catalog::ScrubRecord;
use crate::error::PoolError;
use block::BlockDevice;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// The scrub that runs, or the last one; nothing when there was none.
    #[must_use]
    pub fn scrub(&self) -> Option<ScrubRecord> {
        self.shared.store.look(|catalog| catalog.scrub)
    }

    /// The scrub is as `record` says.
    ///
    /// *Durability*: when it returns. *Errors*: `CatalogLost`.
    pub async fn keep_scrub(&self, record: ScrubRecord) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            catalog.scrub = Some(record);
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }
}
