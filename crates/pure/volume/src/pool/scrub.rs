//! Persistent state of a scrub: it continues after a restart, and on another node.

use super::Pool;
use crate::catalog::ScrubRecord;
use crate::error::PoolError;
use block::BlockDevice;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// Running or last scrub; none when there was none.
    #[must_use]
    pub fn scrub(&self) -> Option<ScrubRecord> {
        self.shared.store.with_catalog(|catalog| catalog.scrub)
    }

    /// Stores the state of the scrub.
    ///
    /// *Durability*: when it returns. *Errors*: `CatalogLost`.
    pub async fn store_scrub(&self, record: ScrubRecord) -> Result<(), PoolError> {
        let ((), change) = self.shared.store.change(|catalog| {
            catalog.scrub = Some(record);
            Ok(())
        })?;
        self.shared.store.committed(change).await
    }
}
