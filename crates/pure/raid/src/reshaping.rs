//! An array that gets one member more: while blocks are moved to where the new layout has them, both layouts are served.
//!
//! Rows before the *position* are laid out over all members, the array's blocks with them; the others as they were. A
//! new stripe lies where the old layout had blocks that were moved before it, so the position only goes up.

mod mover;
mod placed;

use crate::geometry::{Layout, bytes};
use crate::protected::{Old, Protected};
use crate::sabotage::{self, Bug};
use crate::status::Progress;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use shard::{RangeGuard, RangeLocks};
use std::cell::Cell;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// An array that is being reshaped.
pub(crate) struct Reshaping<D> {
    /// As it will be laid out.
    pub(crate) new: Rc<Protected<D>>,
    /// As it was laid out.
    pub(crate) old: Rc<Protected<D>>,
    /// Locks on blocks of the array: commands hold theirs shared, for they choose the layout by the position.
    blocks: RangeLocks,
    /// True while somebody moves blocks.
    pub(crate) runs: Cell<bool>,
    /// A stripe was moved in part when the array stopped.
    torn: Cell<bool>,
}

impl<D: BlockDevice + 'static> Reshaping<D> {
    /// `new`, while blocks are moved to it from where they are in the layout `old`.
    pub(crate) fn new(new: Protected<D>, old: Layout) -> Self {
        assert!(old.members() < new.layout.members(), "a reshape adds a member");
        let old = Rc::new(new.reshaped(old, new.members.places().into()));
        let (runs, torn) = Default::default();
        Self { new: Rc::new(new), old, blocks: RangeLocks::new(), runs, torn }
    }

    /// How far the array is reshaped.
    pub(crate) fn progress(&self) -> Progress {
        let done = self.moved_stripes();
        Progress { done, total: self.new.layout.stripes(), front_stripe: done }
    }

    /// The layout that has this stripe; none where what was there has been moved and nothing has come yet.
    pub(crate) fn laid_out(&self, stripe: u64) -> Option<&Rc<Protected<D>>> {
        if stripe < self.moved_stripes() {
            return Some(&self.new);
        }
        let is_old = stripe >= self.moved_blocks() / self.old.layout.stripe_blocks();
        is_old.then_some(&self.old)
    }

    /// Nothing is moved as long as the result lives.
    pub(crate) async fn hold_still(&self) -> RangeGuard {
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

    pub(crate) async fn write(&self, extent: Extent, data: View, kept: Old) -> Result<Written, IoError> {
        let (_still, new, old) = self.split(extent).await?;
        for (array, part) in [(&self.new, new), (&self.old, old)] {
            if !part.is_empty() {
                let at = bytes(part.start.0 - extent.start.0);
                let _ = array.write(part, data.slice(at..at + bytes(part.len.0)), kept).await?;
            }
        }
        Ok(Written::attest())
    }

    pub(crate) async fn flush(&self) -> Result<Stable, IoError> {
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

    /// The stripes of this layout that hold what they should.
    fn moved_stripes(&self) -> u64 {
        let reshape = self.new.checksums.pages.position.get();
        reshape.map_or(self.new.layout.stripes(), |reshape| reshape.rows / self.new.layout.chunk_blocks())
    }

    /// The blocks of the array that this layout has.
    fn moved_blocks(&self) -> u64 {
        (self.moved_stripes() * self.new.layout.stripe_blocks()).min(self.old.layout.blocks().0)
    }

    async fn lock_blocks(&self, blocks: Range<u64>, exclusive: bool) -> RangeGuard {
        let acquire = if exclusive { self.blocks.exclusive(blocks) } else { self.blocks.shared(blocks) };
        let mut acquire = pin!(acquire);
        self.new.background.until(|cx| acquire.as_mut().poll(cx)).await
    }

    /// The blocks stay in the layouts that the result says, as long as its guard lives: some in this one, the others
    /// in the old one.
    async fn split(&self, extent: Extent) -> Result<(RangeGuard, Extent, Extent), IoError> {
        let blocks = match sabotage::is(Bug::NoMovingLock) {
            true => 0..0,
            false => extent.start.0..extent.end().0,
        };
        let guard = self.lock_blocks(blocks, false).await;
        let moved = if sabotage::is(Bug::OldLayoutBelow) { 0 } else { self.moved_blocks() };
        if self.torn.get() && extent.overlaps(Extent::new(moved, self.new.layout.stripe_blocks())) {
            return Err(IoError::new(IoErrorKind::Gone, extent));
        }
        let at = moved.clamp(extent.start.0, extent.end().0);
        assert!(extent.end() <= Lba(self.old.layout.blocks().0), "hosts see the blocks of the old layout");
        Ok((guard, Extent::new(extent.start.0, at - extent.start.0), Extent::new(at, extent.end().0 - at)))
    }
}
