//! Row locks of stripes: shared for reads with redundancy, exclusive for writes.

use shard::{Detached, RangeGuard, RangeLocks};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// One lock for each row of each stripe, the same in all layouts of an array: rows are counted over all stripes.
///
/// A waiting command drives the array's background work, because that may hold the lock.
#[derive(Clone)]
pub(crate) struct Locks {
    rows: RangeLocks,
    /// Rows of a stripe.
    chunk_blocks: u64,
    background: Rc<Detached>,
}

impl Locks {
    /// Creates the locks, none of which is held.
    pub(crate) fn new(chunk_blocks: u64, background: Rc<Detached>) -> Self {
        Self { rows: RangeLocks::new(), chunk_blocks, background }
    }

    /// Locks `stripes` against writers.
    pub(crate) async fn shared(&self, stripes: Range<u64>) -> RangeGuard {
        self.rows_shared(self.rows_of(stripes)).await
    }

    /// Locks `stripes` against readers and writers.
    pub(crate) async fn exclusive(&self, stripes: Range<u64>) -> RangeGuard {
        self.rows_exclusive(self.rows_of(stripes)).await
    }

    /// Locks rows as [`Locks::shared`].
    pub(crate) async fn rows_shared(&self, rows: Range<u64>) -> RangeGuard {
        let mut acquire = pin!(self.rows.shared(rows));
        self.background.until(|cx| acquire.as_mut().poll(cx)).await
    }

    /// Locks rows as [`Locks::exclusive`].
    pub(crate) async fn rows_exclusive(&self, rows: Range<u64>) -> RangeGuard {
        let mut acquire = pin!(self.rows.exclusive(rows));
        self.background.until(|cx| acquire.as_mut().poll(cx)).await
    }

    /// Waits until every lock held or awaited now has been released. Locks nothing itself.
    pub(crate) async fn passed(&self) {
        let mut passed = pin!(self.rows.barrier(0..u64::MAX));
        // The barrier is not kept: only locks that were there before it matter.
        drop(self.background.until(|cx| passed.as_mut().poll(cx)).await);
    }

    fn rows_of(&self, stripes: Range<u64>) -> Range<u64> {
        assert!(stripes.start <= stripes.end, "stripes are counted upwards");
        stripes.start * self.chunk_blocks..stripes.end * self.chunk_blocks
    }
}
