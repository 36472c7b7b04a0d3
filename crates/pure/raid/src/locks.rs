//! Locks on rows of stripes: who reads with redundancy, and who writes.

use shard::{Detached, RangeGuard, RangeLocks};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// One lock for each row of each stripe, the same in all layouts of an array: rows are counted over all stripes.
///
/// Whoever waits drives the array's background work meanwhile: it may be what holds the lock.
#[derive(Clone)]
pub(crate) struct Locks {
    rows: RangeLocks,
    /// Rows of a stripe.
    chunk_blocks: u64,
    background: Rc<Detached>,
}

impl Locks {
    /// Nothing is locked.
    pub(crate) fn new(chunk_blocks: u64, background: Rc<Detached>) -> Self {
        Self { rows: RangeLocks::new(), chunk_blocks, background }
    }

    /// Keeps writers out of `stripes`.
    pub(crate) async fn shared(&self, stripes: Range<u64>) -> RangeGuard {
        self.rows_shared(self.rows_of(stripes)).await
    }

    /// Keeps everybody else out of `stripes`.
    pub(crate) async fn exclusive(&self, stripes: Range<u64>) -> RangeGuard {
        self.rows_exclusive(self.rows_of(stripes)).await
    }

    /// As [`Locks::shared`], for rows.
    pub(crate) async fn rows_shared(&self, rows: Range<u64>) -> RangeGuard {
        let mut acquire = pin!(self.rows.shared(rows));
        self.background.until(|cx| acquire.as_mut().poll(cx)).await
    }

    /// As [`Locks::exclusive`], for rows.
    pub(crate) async fn rows_exclusive(&self, rows: Range<u64>) -> RangeGuard {
        let mut acquire = pin!(self.rows.exclusive(rows));
        self.background.until(|cx| acquire.as_mut().poll(cx)).await
    }

    /// Everybody who holds a lock now, or waits for one, has let go of it. Keeps nobody out.
    pub(crate) async fn passed(&self) {
        let mut passed = pin!(self.rows.passed(0..u64::MAX));
        drop(self.background.until(|cx| passed.as_mut().poll(cx)).await);
    }

    fn rows_of(&self, stripes: Range<u64>) -> Range<u64> {
        assert!(stripes.start <= stripes.end, "stripes are counted upwards");
        stripes.start * self.chunk_blocks..stripes.end * self.chunk_blocks
    }
}
