//! Use count of a volume: its slabs are freed only after the last operation has ended.

use shard::Signal;
use std::cell::Cell;

/// Operations in flight on one volume.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    operations: Cell<u32>,
    closed: Cell<bool>,
    ended: Signal,
}

/// Guard of one operation in flight.
#[derive(Debug)]
pub(crate) struct Operation<'a>(&'a Usage);

impl Usage {
    /// Starts an operation that ends when the guard is dropped; none after the volume was closed.
    pub(crate) fn enter(&self) -> Option<Operation<'_>> {
        if self.closed.get() {
            return None;
        }
        self.operations.set(self.operations.get() + 1);
        Some(Operation(self))
    }

    /// Rejects new operations and waits until none is in flight.
    pub(crate) async fn close(&self) {
        // Set before the wait, so that no operation starts while it lasts.
        self.closed.set(true);
        self.ended.until(|| self.operations.get() == 0).await;
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        assert!(self.0.operations.get() > 0, "every operation ends once");
        self.0.operations.set(self.0.operations.get() - 1);
        // Only `close` waits, and it waits for zero.
        if self.0.operations.get() == 0 {
            self.0.ended.raise();
        }
    }
}
