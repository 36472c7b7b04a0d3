//! The first write since a member was given up at an opening: the catalog says so before it.

use super::Pool;
use crate::error::PoolError;
use block::BlockDevice;
use futures_util::future::LocalBoxFuture;
use std::rc::Rc;

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Pool<D, G> {
    /// True while nothing was written since a member was given up when the pool was opened: the next write is to be announced first.
    #[must_use]
    pub fn must_announce_write(&self) -> bool {
        self.shared.store.look(|catalog| catalog.must_announce())
    }

    /// The pool was opened by one who announces writes, and may be written from now on.
    pub fn serve(&self) {
        self.shared.store.serve();
    }

    /// `on_written` follows the commit that says that the pool is written, before whoever waits for that commit goes on.
    pub fn on_written(&self, on_written: impl Fn() -> LocalBoxFuture<'static, ()> + 'static) {
        self.shared.store.on_written(Rc::new(on_written));
    }

    /// The catalog says that the pool is written.
    ///
    /// *Durability*: when it returns; only then may the write be begun. *Errors*: `CatalogLost`.
    pub async fn announce_write(&self) -> Result<(), PoolError> {
        let store = &self.shared.store;
        if store.look(|catalog| catalog.must_announce()) {
            let ((), change) = store.change(|_| Ok(()))?;
            store.note_given_up();
            return store.committed(change).await;
        }
        // Somebody else may have announced it, and not ended that.
        store.committed(store.latest()).await
    }
}
