//! Who uses a volume now, so that its slabs are given away only when nobody does.

use shard::Signal;
use std::cell::Cell;

/// The operations under way on one volume.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    operations: Cell<u32>,
    closed: Cell<bool>,
    ended: Signal,
}

/// One operation under way.
#[derive(Debug)]
pub(crate) struct Operation<'a>(&'a Usage);

impl Usage {
    /// One more operation is under way as long as the answer lives; none when nobody may begin any more.
    pub(crate) fn enter(&self) -> Option<Operation<'_>> {
        if self.closed.get() {
            return None;
        }
        self.operations.set(self.operations.get() + 1);
        Some(Operation(self))
    }

    /// No operation is under way, and none will be.
    pub(crate) async fn close(&self) {
        self.closed.set(true);
        self.ended.until(|| self.operations.get() == 0).await;
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        assert!(self.0.operations.get() > 0, "every operation ends once");
        self.0.operations.set(self.0.operations.get() - 1);
        if self.0.operations.get() == 0 {
            self.0.ended.raise();
        }
    }
}
