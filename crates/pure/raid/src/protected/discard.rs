//! Discard: the entries of blocks are reset to those of blocks that were never written.

use crate::checksums::cache::Pins;
use crate::geometry::{Piece, Role, Span, bytes};
use crate::members::{Op, Ops};
use crate::on_disk::batch::Records;
use crate::on_disk::entry::Entry;
use crate::protected::{OldContent, Protected};
use block::{BlockDevice, Extent, IoError, Written};
use smallvec::SmallVec;
use std::ops::Range;
use std::rc::Rc;

/// Blocks of each member that are discarded in one step.
const STEP_BLOCKS: u64 = 4096;

impl<D: BlockDevice + 'static> Protected<D> {
    /// Makes the blocks read as zeros. Whole stripes become unwritten; other blocks become unwritten, or are
    /// overwritten with zeros where parity covers them.
    pub(crate) async fn discard(self: &Rc<Self>, extent: Extent) -> Result<Written, IoError> {
        self.members.serving(extent)?;
        let stripe = self.layout.stripe_blocks();
        let inner = extent.start.0.div_ceil(stripe)..extent.end().0 / stripe;
        // Also where the extent lies within one stripe, and the range ends before its start.
        if inner.is_empty() {
            self.forget_part(extent).await?;
        } else {
            let (head, tail) = (inner.start * stripe, inner.end * stripe);
            self.forget_part(Extent::new(extent.start.0, head - extent.start.0)).await?;
            // In steps: a discard of the whole array must not lock and pin everything at once.
            let step = (STEP_BLOCKS / self.layout.chunk_blocks()).max(1);
            let mut at = inner.start;
            while at < inner.end {
                let stripes = at..inner.end.min(at + step);
                at = stripes.end;
                self.forget_stripes(stripes).await?;
            }
            self.forget_part(Extent::new(tail, extent.end().0 - tail)).await?;
        }
        self.members.failures_recorded(extent).await?;
        Ok(Written::attest())
    }

    /// Discards less than one stripe, or the partial stripes at the ends.
    async fn forget_part(self: &Rc<Self>, extent: Extent) -> Result<(), IoError> {
        for span in self.layout.spans(extent) {
            // Nothing to log for blocks that were never written.
            if self.reads_as_zeros(&span).await {
                continue;
            }
            // Parity covers the rest of the rows, so a partial discard must be a write.
            if self.layout.has_parity() {
                let zeros = self.checksums.pages.zeros(bytes(span.extent.len.0));
                let _written = self.write(span.extent, zeros, OldContent::Preserve).await?;
            } else {
                self.forget_pieces(span).await?;
            }
        }
        Ok(())
    }

    /// True when none of these blocks was ever written.
    async fn reads_as_zeros(self: &Rc<Self>, span: &Span) -> bool {
        for piece in self.layout.pieces(span.extent) {
            for copy in 0..self.layout.copies() {
                let (member, extent) = self.extent_of_copy(&piece, copy);
                // Pinned only for the look: nothing is changed here.
                let pins = self.checksums.hold_pages(member, extent).await;
                let mut none = true;
                let mut cache = self.checksums.pages.cache.borrow_mut();
                let seen = cache.visit(member, extent, |_, entries| none &= entries.iter().all(|e| e.is_unwritten()));
                assert!(seen.is_some(), "the pages are held");
                drop(cache);
                drop(pins);
                if !none {
                    return false;
                }
            }
        }
        true
    }

    fn extent_of_copy(&self, piece: &Piece, copy: u16) -> (u16, Extent) {
        let role = Role::Data { column: piece.position.column, copy };
        (self.layout.member_of(piece.position.stripe, role), self.stripes.member_extent(piece))
    }

    async fn forget_stripes(self: &Rc<Self>, stripes: Range<u64>) -> Result<(), IoError> {
        let chunk = self.layout.chunk_blocks();
        let blocks = Extent::new(stripes.start * chunk, (stripes.end - stripes.start) * chunk);
        let runs = (0..self.layout.members()).map(|member| (member, blocks)).collect();
        self.forget(stripes, runs).await
    }

    async fn forget_pieces(self: &Rc<Self>, span: Span) -> Result<(), IoError> {
        let pieces = self.layout.pieces(span.extent);
        let runs = pieces.flat_map(|piece| (0..self.layout.copies()).map(move |copy| (piece, copy)));
        let runs = runs.map(|(piece, copy)| self.extent_of_copy(&piece, copy)).collect();
        self.forget(span.stripes, runs).await
    }

    /// Marks these runs of members' blocks, all in the same stripes, as unwritten, and logs that.
    async fn forget(self: &Rc<Self>, stripes: Range<u64>, runs: SmallVec<[(u16, Extent); 8]>) -> Result<(), IoError> {
        assert!(stripes.end <= self.layout.stripes(), "what is forgotten is within the array");
        let guard = self.locks.exclusive(stripes.clone()).await;
        self.members.serving(Extent::default())?;
        self.settle_stripes(&stripes).await?;
        let mut pins = Pins::new(&self.checksums.pages.cache);
        let mut known: SmallVec<[(u16, Extent); 8]> = SmallVec::new();
        for &(member, extent) in &runs {
            // Regions without pages are unwritten already and get no record.
            if self.checksums.was_ever_written(extent) {
                self.checksums.hold_more(&mut pins, member, extent).await;
                known.push((member, extent));
            }
        }
        let own = self.clone();
        let work = async move {
            // Logged before the members discard: after a crash the entries decide, whatever a trimmed block returns.
            let done = own.clear(&known).await;
            if done.is_ok() {
                // A hint for thin or flash members, after the log has it; correctness does not depend on what they
                // hold then.
                let ops: Ops = known
                    .iter()
                    .filter(|(member, extent)| own.takes_discard(*member, *extent))
                    .map(|&(member, extent)| Op::discard(member, extent))
                    .collect();
                // Results are ignored, because nothing relies on a discard below.
                own.members.perform(ops).await;
            }
            drop((pins, guard));
            done
        };
        self.background.finish(work).await
    }

    fn takes_discard(&self, member: u16, extent: Extent) -> bool {
        let chunk = self.layout.chunk_blocks();
        (extent.start.0 / chunk..extent.end().0.div_ceil(chunk))
            .all(|stripe| self.members.place(member).usable(stripe).1)
    }

    /// Logs the runs as unwritten, then updates their pages, which are pinned.
    pub(crate) async fn clear(self: &Rc<Self>, runs: &[(u16, Extent)]) -> Result<(), IoError> {
        let mut records = Records::default();
        runs.iter().for_each(|&(member, extent)| records.unwritten(member, extent.start.0, extent.len.0));
        // Nothing was ever written here.
        if records.count == 0 {
            return Ok(());
        }
        let reservation = self.log.commit(records).await?;
        let mut cache = self.checksums.pages.cache.borrow_mut();
        for &(member, extent) in runs {
            (extent.start.0..extent.end().0).for_each(|block| cache.set(member, block, Entry::UNWRITTEN));
        }
        drop(cache);
        drop(reservation);
        Ok(())
    }
}
