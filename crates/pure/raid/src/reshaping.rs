//! Array during a reshape to one more member: both layouts are served while blocks move to the new one.
//!
//! Rows before the *position* are laid out over all members, and so are the array's blocks in them; the rest is in
//! the old layout. A new stripe lies where the old layout had blocks that were moved earlier, so the position only
//! increases.

mod mover;
mod placed;

use crate::bug_injection::{self, InjectedBug};
use crate::geometry::{Layout, bytes};
use crate::protected::{OldContent, Protected};
use crate::status::Progress;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use shard::{RangeGuard, RangeLocks};
use std::cell::Cell;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// Array that is being reshaped.
pub(crate) struct Reshaping<D> {
    /// The array in its new layout.
    pub(crate) new: Rc<Protected<D>>,
    /// The array in its old layout.
    pub(crate) old: Rc<Protected<D>>,
    /// Locks on blocks of the array: commands hold theirs shared, because the position selects their layout.
    blocks: RangeLocks,
    /// True while [`Array::reshape`](crate::Array::reshape) moves blocks.
    pub(crate) runs: Cell<bool>,
    /// True where moving a stripe failed half way: its blocks cannot be served before the next opening.
    torn: Cell<bool>,
}

impl<D: BlockDevice + 'static> Reshaping<D> {
    /// Serves both layouts while blocks move from `old` to `new`.
    pub(crate) fn new(new: Protected<D>, old: Layout) -> Self {
        assert!(old.members() < new.layout.members(), "a reshape adds a member");
        // Shares pages, log and locks with the new layout, so a block has one entry and one lock in both.
        let old = Rc::new(new.reshaped(old, new.members.places().into()));
        let (runs, torn) = Default::default();
        Self { new: Rc::new(new), old, blocks: RangeLocks::new(), runs, torn }
    }

    /// Progress of the reshape, in stripes of the new layout.
    pub(crate) fn progress(&self) -> Progress {
        let done = self.moved_stripes();
        Progress { done, total: self.new.layout.stripes(), front_stripe: done }
    }

    /// Returns the layout that holds this stripe; `None` where its old content has been moved and no new one has
    /// come.
    pub(crate) fn laid_out(&self, stripe: u64) -> Option<&Rc<Protected<D>>> {
        if stripe < self.moved_stripes() {
            return Some(&self.new);
        }
        // The old stripe with blocks on both sides of the position stays whole, so its parity still serves.
        let is_old = stripe >= self.moved_blocks() / self.old.layout.stripe_blocks();
        is_old.then_some(&self.old)
    }

    /// Prevents blocks from being moved until the guard is dropped.
    pub(crate) async fn pause_moves(&self) -> RangeGuard {
        self.lock_blocks(0..u64::MAX, false).await
    }

    pub(crate) async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let (_still, new, old) = self.split(extent).await?;
        let mut whole = Rope::new();
        for (array, part) in [(&self.new, new), (&self.old, old)] {
            if !part.is_empty() {
                whole.append(array.stripes.read(part).await?);
            }
        }
        Ok(whole)
    }

    pub(crate) async fn write(&self, extent: Extent, data: View, kept: OldContent) -> Result<Written, IoError> {
        let (_still, new, old) = self.split(extent).await?;
        for (array, part) in [(&self.new, new), (&self.old, old)] {
            if !part.is_empty() {
                let at = bytes(part.start.0 - extent.start.0);
                // One part after the other: the command may fail between them, as any write of several stripes.
                let _ = array.write(part, data.slice(at..at + bytes(part.len.0)), kept).await?;
            }
        }
        Ok(Written::attest())
    }

    pub(crate) async fn flush(&self) -> Result<Stable, IoError> {
        // Both layouts share log and members, so the flush of one covers the other.
        self.new.flush().await
    }

    pub(crate) async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let (_still, new, old) = self.split(extent).await?;
        for (array, part) in [(&self.new, new), (&self.old, old)] {
            if !part.is_empty() {
                let _ = array.discard(part).await?;
            }
        }
        Ok(Written::attest())
    }

    /// Stripes of the new layout that are complete.
    fn moved_stripes(&self) -> u64 {
        let reshape = self.new.checksums.pages.position.get();
        // Without a position the reshape has ended, and all stripes are in the new layout.
        reshape.map_or(self.new.layout.stripes(), |reshape| reshape.rows / self.new.layout.chunk_blocks())
    }

    /// Blocks of the array that are in the new layout.
    fn moved_blocks(&self) -> u64 {
        // The new layout has more blocks than hosts see before the end of the reshape.
        (self.moved_stripes() * self.new.layout.stripe_blocks()).min(self.old.layout.blocks().0)
    }

    async fn lock_blocks(&self, blocks: Range<u64>, exclusive: bool) -> RangeGuard {
        let acquire = if exclusive { self.blocks.exclusive(blocks) } else { self.blocks.shared(blocks) };
        let mut acquire = pin!(acquire);
        self.new.background.until(|cx| acquire.as_mut().poll(cx)).await
    }

    /// Splits an extent at the position into a part in the new layout and a part in the old one; both stay valid
    /// until the guard is dropped.
    async fn split(&self, extent: Extent) -> Result<(RangeGuard, Extent, Extent), IoError> {
        let blocks = match bug_injection::is_injected(InjectedBug::NoMovingLock) {
            true => 0..0,
            false => extent.start.0..extent.end().0,
        };
        // Before the position is read: the mover advances it only under the exclusive lock.
        let guard = self.lock_blocks(blocks, false).await;
        let moved = if bug_injection::is_injected(InjectedBug::OldLayoutBelow) { 0 } else { self.moved_blocks() };
        // The rows of this stripe are partly in each layout; the next opening completes it from the log.
        if self.torn.get() && extent.overlaps(Extent::new(moved, self.new.layout.stripe_blocks())) {
            return Err(IoError::new(IoErrorKind::Gone, extent));
        }
        let at = moved.clamp(extent.start.0, extent.end().0);
        assert!(extent.end() <= Lba(self.old.layout.blocks().0), "hosts see the blocks of the old layout");
        Ok((guard, Extent::new(extent.start.0, at - extent.start.0), Extent::new(at, extent.end().0 - at)))
    }
}
