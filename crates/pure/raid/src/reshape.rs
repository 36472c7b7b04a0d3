//! One member more: while blocks are moved to where the new layout has them, both layouts are served.
//!
//! Rows before the *position* are laid out over all members, the array's blocks with them; the others as they were. A
//! new stripe lies where the old layout had blocks that were moved before it, so the position only goes up.

mod mover;
mod placed;

use crate::array::{Array, Core};
use crate::error::GrowError;
use crate::geometry::{Layout, bytes};
use crate::logged::Old;
use crate::sabotage::{self, Bug};
use crate::verify::Progress;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Rope, View, Written};
use shard::{RangeGuard, RangeLocks};
use std::cell::Cell;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;

/// What the two layouts of an array share while it is reshaped.
pub(crate) struct Moving<D> {
    /// The array as it was laid out.
    pub(crate) old: Rc<Core<D>>,
    /// Locks on blocks of the array: commands hold theirs shared, for they choose the layout by the position.
    locks: RangeLocks,
    runs: Cell<bool>,
    /// A stripe was moved in part when the array stopped.
    torn: Cell<bool>,
}

/// Lets the next call go on, however this one ends.
struct Running<'a>(&'a Cell<bool>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<D: BlockDevice + 'static> Array<D> {
    /// The array is laid out over all of its members, and has the blocks that it gains by that. At once where no
    /// reshape is under way.
    ///
    /// Hosts are served meanwhile. `pace` is called after every few stripes; the reshape goes on when it is ready. When
    /// it is dropped, or after a crash, the reshape goes on where it was with the next call. Members that fail
    /// meanwhile are replaced after it. *Errors*: see [`GrowError`]. *Durability*: all of it, when it returns.
    pub async fn reshape(&self, mut pace: impl AsyncFnMut(Progress)) -> Result<(), GrowError> {
        let core = self.core();
        let (Some(moving), Some(protected)) = (core.moving.clone(), core.protected.clone()) else { return Ok(()) };
        if protected.growing.get() || moving.runs.replace(true) {
            return Err(GrowError::Busy);
        }
        let _running = Running(&moving.runs);
        if protected.reshape.get().is_some_and(|reshape| reshape.rows == 0) {
            core.settle_joined(&protected).await?;
        }
        while core.move_step(&moving).await? {
            if let Some(progress) = core.reshape_progress() {
                pace(progress).await;
            }
        }
        let (core, background, current) = (core.clone(), core.background.clone(), self.0.clone());
        let work = async move {
            core.begin_checkpoint(&protected).await;
            // All is where the new layout has it, so nobody misses the old one.
            protected.reshape.set(None);
            let ended = core.run_checkpoint(&protected).await;
            protected.end_checkpoint();
            if ended.is_ok() {
                current.replace(Rc::new(core.reshaped(core.layout, core.members.places().into(), None)));
            }
            ended
        };
        Ok(background.finish(work).await?)
    }
}

impl<D: BlockDevice + 'static> Core<D> {
    /// This shape, while blocks are moved to it from where `old` has them.
    pub(crate) fn moved_from(self, old: Layout) -> Self {
        let old = Rc::new(self.reshaped(old, self.members.places().into(), None));
        let moving = Moving { old, locks: RangeLocks::new(), runs: Cell::default(), torn: Cell::default() };
        self.reshaped(self.layout, self.members.places().into(), Some(Rc::new(moving)))
    }

    /// How far the array is reshaped, while it is.
    pub(crate) fn reshape_progress(&self) -> Option<Progress> {
        let _ = self.moving.as_ref()?;
        let done = self.moved_stripes();
        Some(Progress { done, total: self.layout.stripes(), front_stripe: done })
    }

    /// The stripes of this layout that hold what they should.
    fn moved_stripes(&self) -> u64 {
        let reshape = self.protected.as_ref().and_then(|protected| protected.reshape.get());
        reshape.map_or(self.layout.stripes(), |reshape| reshape.rows / self.layout.chunk_blocks())
    }

    /// The blocks of the array that this layout has.
    fn moved_blocks(&self, moving: &Moving<D>) -> u64 {
        (self.moved_stripes() * self.layout.stripe_blocks()).min(moving.old.layout.blocks().0)
    }

    /// The shape that has this stripe; none where what was there has been moved and nothing has come yet.
    pub(crate) fn laid_out(self: &Rc<Self>, stripe: u64) -> Option<Rc<Self>> {
        let Some(moving) = &self.moving else { return Some(self.clone()) };
        if stripe < self.moved_stripes() {
            return Some(self.clone());
        }
        let is_old = stripe >= self.moved_blocks(moving) / moving.old.layout.stripe_blocks();
        is_old.then(|| moving.old.clone())
    }

    /// Nothing is moved as long as the result lives.
    pub(crate) async fn hold_still(&self) -> Option<RangeGuard> {
        match &self.moving {
            Some(moving) => Some(self.lock_blocks(moving, 0..u64::MAX, false).await),
            None => None,
        }
    }

    async fn lock_blocks(&self, moving: &Moving<D>, blocks: Range<u64>, exclusive: bool) -> RangeGuard {
        let acquire = if exclusive { moving.locks.exclusive(blocks) } else { moving.locks.shared(blocks) };
        let mut acquire = pin!(acquire);
        self.background.until(|cx| acquire.as_mut().poll(cx)).await
    }

    /// The blocks stay in the layouts that the result says, as long as its guard lives: some in this one, the others
    /// in the old one.
    async fn split(&self, moving: &Moving<D>, extent: Extent) -> Result<(RangeGuard, Extent, Extent), IoError> {
        let blocks = match sabotage::is(Bug::NoMovingLock) {
            true => 0..0,
            false => extent.start.0..extent.end().0,
        };
        let guard = self.lock_blocks(moving, blocks, false).await;
        let moved = if sabotage::is(Bug::OldLayoutBelow) { 0 } else { self.moved_blocks(moving) };
        if moving.torn.get() && extent.overlaps(Extent::new(moved, self.layout.stripe_blocks())) {
            return Err(IoError::new(IoErrorKind::Gone, extent));
        }
        let at = moved.clamp(extent.start.0, extent.end().0);
        Ok((guard, Extent::new(extent.start.0, at - extent.start.0), Extent::new(at, extent.end().0 - at)))
    }

    pub(crate) async fn read_moving(self: &Rc<Self>, moving: &Moving<D>, extent: Extent) -> Result<Rope, IoError> {
        let (_still, new, old) = self.split(moving, extent).await?;
        let mut whole = Rope::new();
        for (core, part) in [(self, new), (&moving.old, old)] {
            if !part.is_empty() {
                whole.append(core.read(part).await?);
            }
        }
        Ok(whole)
    }

    pub(crate) async fn write_moving(
        self: &Rc<Self>,
        moving: &Moving<D>,
        extent: Extent,
        data: View,
        kept: Old,
    ) -> Result<Written, IoError> {
        let (_still, new, old) = self.split(moving, extent).await?;
        for (core, part) in [(self, new), (&moving.old, old)] {
            if !part.is_empty() {
                let at = bytes(part.start.0 - extent.start.0);
                let _ = core.write_logged(part, data.slice(at..at + bytes(part.len.0)), kept).await?;
            }
        }
        Ok(Written::attest())
    }

    pub(crate) async fn discard_moving(
        self: &Rc<Self>,
        moving: &Moving<D>,
        extent: Extent,
    ) -> Result<Written, IoError> {
        let (_still, new, old) = self.split(moving, extent).await?;
        for (core, part) in [(self, new), (&moving.old, old)] {
            if !part.is_empty() {
                let _ = core.discard_logged(part).await?;
            }
        }
        Ok(Written::attest())
    }
}
