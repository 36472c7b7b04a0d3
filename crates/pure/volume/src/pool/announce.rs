//! Announcement of the first write since a member was given up at an opening: the catalog records it before the
//! write.
//!
//! It distinguishes a part of a split pool that was written from one that was only opened.

use super::Pool;
use crate::error::PoolError;
use block::BlockDevice;
use futures_util::future::LocalBoxFuture;
use std::rc::Rc;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// True when the next write must be announced, because nothing was written since a member was given up at
    /// the opening.
    #[must_use]
    pub fn must_announce_write(&self) -> bool {
        self.shared.store.with_catalog(|catalog| catalog.must_announce())
    }

    /// Ends the opening phase of a pool whose opener announces writes: it may be written from now on.
    pub fn finish_opening(&self) {
        self.shared.store.finish_opening();
    }

    /// Sets the callback that runs after the commit that announces writes, before the waiters of that commit
    /// continue.
    pub fn on_written(&self, on_written: impl Fn() -> LocalBoxFuture<'static, ()> + 'static) {
        self.shared.store.on_written(Rc::new(on_written));
    }

    /// Records in the catalog that the pool is written.
    ///
    /// *Durability*: when it returns; the write may start only then. *Errors*: `CatalogLost`.
    pub async fn announce_write(&self) -> Result<(), PoolError> {
        let store = &self.shared.store;
        if store.with_catalog(|catalog| catalog.must_announce()) {
            let ((), change) = store.change(|_| Ok(()))?;
            // Sets the announcement in the catalog; without an await before it, the commit below has it.
            store.note_member_failed();
            return store.committed(change).await;
        }
        // Another caller may have announced it without the commit having finished.
        store.committed(store.latest()).await
    }
}
