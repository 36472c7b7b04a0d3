//! Steps of a reshape: a few stripes of the new layout at a time, each step in one log batch or not at all.
//!
//! The first stripes lie over blocks that are not moved yet, so their content is logged. Later ones lie where
//! everything has been moved: they are written in place first, and only their entries are logged.

use super::placed::Placed;
use crate::bounds::BLOCK_BYTES;
use crate::bug_injection::{self, InjectedBug};
use crate::geometry::Rows;
use crate::members::{Op, Ops};
use crate::on_disk::anchor::Reshape;
use crate::on_disk::batch::{HEADER_BYTES, Records, blocks_of, record_bytes};
use crate::on_disk::entry::Entry;
use crate::on_disk::page;
use crate::reshaping::Reshaping;
use block::{BlockDevice, Extent, IoError};
use futures_util::future::join_all;
use shard::RangeGuard;
use std::ops::Range;
use std::rc::Rc;

/// Blocks of each member that are skipped in one step where nothing was ever written.
const SKIP_BLOCKS: u64 = 4096;

impl<D: BlockDevice + 'static> Reshaping<D> {
    /// Moves the next stripes to the new layout; false when none are left.
    pub(crate) async fn move_step(self: &Rc<Self>) -> Result<bool, IoError> {
        self.new.members.serving(Extent::default())?;
        let (first, all) = (self.moved_stripes(), self.new.layout.stripes());
        if first == all {
            return Ok(false);
        }
        // Chosen before the locks; `move_stripes` checks again under them.
        let stripes = first..first + self.stripes_at_once(first).min(all - first);
        let guards = self.lock_step(&stripes).await;
        let own = self.clone();
        let work = async move {
            let moved = own.move_stripes(stripes).await;
            drop(guards);
            moved
        };
        self.new.background.finish(work).await?;
        // The step is reported as done only when failures during it are durable.
        self.new.members.failures_recorded(Extent::default()).await?;
        Ok(true)
    }

    /// Completes the stripe that was being moved when the array stopped. Called before hosts are served.
    pub(crate) async fn end_begun_stripe(self: &Rc<Self>) -> Result<(), IoError> {
        let rows = self.new.checksums.pages.position.get().map_or(0, |reshape| reshape.rows);
        if rows.is_multiple_of(self.new.layout.chunk_blocks())
            || bug_injection::is_injected(InjectedBug::BegunStripeLeft)
        {
            return Ok(());
        }
        self.move_step().await?;
        // The position is on a stripe boundary again; the anchor makes that durable.
        self.new.log.checkpoint().await
    }

    /// Number of stripes to move in one step: as many as lie in vacated space, within bounds; at least one.
    fn stripes_at_once(&self, first: u64) -> u64 {
        let (chunk, old) = (self.new.layout.chunk_blocks(), &self.old.layout);
        // Every old block before the position has left, so these stripes are vacant.
        // An old stripe that has moved in part still holds blocks, so the division rounds down.
        let vacant = (self.moved_blocks() / old.stripe_blocks()).saturating_sub(first);
        let empty = (SKIP_BLOCKS / chunk).max(1).min(vacant);
        // Unwritten stripes cost one small batch for 16 MiB of each member.
        if empty > 0 && self.has_no_content(&(first..first + empty)) {
            return empty;
        }
        vacant.min(self.stripes_of_entries()).max(1)
    }

    /// Number of stripes whose entries fit into one batch, and whose content is within the step size.
    fn stripes_of_entries(&self) -> u64 {
        let chunk = self.new.layout.chunk_blocks();
        // Less one record, which is the position itself.
        let table_bytes = (self.new.log.state.ring.batch_blocks_max() - 1) * u64::from(BLOCK_BYTES) - record_bytes(0);
        let most = table_bytes / (u64::from(self.new.layout.members()) * record_bytes(chunk));
        let step = self.new.layout.steps(0..u64::MAX).next().map_or(1, |step| step.end);
        most.min(step).max(1)
    }

    /// True when neither the source blocks of these stripes nor their destination was ever written.
    fn has_no_content(&self, stripes: &Range<u64>) -> bool {
        let chunk = self.new.layout.chunk_blocks();
        let pages = |stripes: &Range<u64>| {
            page::pages_of(Extent::new(stripes.start * chunk, (stripes.end - stripes.start) * chunk))
        };
        let is_unwritten = |page: u64| {
            let mut none = !self.new.checksums.pages.is_used(page);
            let mut pages = self.new.checksums.pages.cache.borrow_mut();
            for member in 0..self.new.members.counted_len() {
                // A page that is neither on disk nor in memory is unwritten.
                let see = |_, entries: &[Entry]| none &= entries.iter().all(|entry| entry.is_unwritten());
                let _ = pages.visit(member, page::blocks_of(page), see);
            }
            none
        };
        let sources = self.sources(stripes);
        [stripes, &sources].into_iter().filter(|range| !range.is_empty()).flat_map(pages).all(is_unwritten)
    }

    /// Stripes of the old layout that hold the blocks of these new stripes.
    fn sources(&self, stripes: &Range<u64>) -> Range<u64> {
        let (new, old) = (self.new.layout.stripe_blocks(), &self.old.layout);
        let blocks = (stripes.start * new).min(old.blocks().0)..(stripes.end * new).min(old.blocks().0);
        blocks.start / old.stripe_blocks()..blocks.end.div_ceil(old.stripe_blocks())
    }

    /// Locks the blocks to be moved, and their rows in both layouts.
    async fn lock_step(&self, stripes: &Range<u64>) -> Vec<RangeGuard> {
        let blocks = self.new.layout.stripe_blocks();
        let blocks = self.lock_blocks(stripes.start * blocks..stripes.end * blocks, true).await;
        let sources = self.sources(stripes);
        // Overlapping ranges are one lock: two would wait for each other.
        if sources.start < stripes.end {
            let rows = self.new.locks.exclusive(stripes.start.min(sources.start)..stripes.end.max(sources.end)).await;
            return vec![blocks, rows];
        }
        let target = self.new.locks.exclusive(stripes.clone()).await;
        vec![blocks, target, self.new.locks.exclusive(sources).await]
    }

    async fn move_stripes(self: &Rc<Self>, mut stripes: Range<u64>) -> Result<(), IoError> {
        self.new.members.serving(Extent::default())?;
        let sources = self.sources(&stripes);
        // Fresh entries of the old layout are logged before its stripes are moved.
        self.old.settle_stripes(&sources).await?;
        if self.has_no_content(&stripes) {
            return self.skip(stripes).await;
        }
        // A block may have been written since the step was sized as unwritten.
        stripes.end = stripes.end.min(stripes.start + self.stripes_of_entries());
        let sources = self.sources(&stripes);
        let _pins = self.new.checksums.hold_stripes(&stripes).await;
        if sources.start >= stripes.end || sources.is_empty() {
            return self.move_to_vacant(stripes).await;
        }
        assert_eq!(stripes.end - stripes.start, 1, "stripes over blocks that are still there are moved one by one");
        let moved = self.move_in_place(stripes.start).await;
        let rows = self.new.checksums.pages.position.get().map_or(0, |reshape| reshape.rows);
        // After a failure half way the stripe is in neither layout as a whole.
        self.torn.set(moved.is_err() && !rows.is_multiple_of(self.new.layout.chunk_blocks()));
        moved
    }

    /// Advances the position over stripes without content.
    async fn skip(self: &Rc<Self>, stripes: Range<u64>) -> Result<(), IoError> {
        let row = stripes.end * self.new.layout.chunk_blocks();
        let mut records = Records::default();
        records.moved(row);
        let reservation = self.new.log.commit(records).await?;
        self.advance(row);
        drop(reservation);
        Ok(())
    }

    /// Writes the stripes into vacated space, then logs their entries and the position.
    async fn move_to_vacant(self: &Rc<Self>, stripes: Range<u64>) -> Result<(), IoError> {
        let vacant = self.moved_blocks() / self.old.layout.stripe_blocks();
        let is_vacant = stripes.end <= vacant || self.sources(&stripes).is_empty();
        assert!(is_vacant, "blocks that have not been moved are not overwritten");
        let rows = self.new.layout.all_rows();
        let place = |stripe| self.place(stripe, rows);
        let mut placed = Vec::new();
        for stripe in join_all(stripes.clone().map(place)).await {
            placed.extend(stripe?);
        }
        let row = stripes.end * self.new.layout.chunk_blocks();
        let mut records = Records::default();
        if !bug_injection::is_injected(InjectedBug::MovedWithoutEntries) {
            let is_tail = bug_injection::is_injected(InjectedBug::TailNotCleared);
            let all = placed.iter().filter(|placed| !is_tail || placed.has_content());
            all.for_each(|placed| placed.log_entries(&mut records));
        }
        records.moved(row);
        if bug_injection::is_injected(InjectedBug::MovedBeforeFlush) {
            let reservation = self.new.log.commit(records).await?;
            self.write_placed(&placed).await?;
            self.apply_logged(&placed, row);
            drop(reservation);
            return Ok(());
        }
        self.write_placed(&placed).await?;
        // Content is stable before the entries and the position say that it is there.
        self.new.members.flush_those(self.new.members.written()).await?;
        let reservation = self.new.log.commit(records).await?;
        // Before the reservation is dropped, so that no checkpoint frees the batch without these entries.
        self.apply_logged(&placed, row);
        drop(reservation);
        Ok(())
    }

    /// Logs the stripe with its content, as many rows as fit into a batch at a time, and writes it in place.
    async fn move_in_place(self: &Rc<Self>, stripe: u64) -> Result<(), IoError> {
        let (chunk, most) = (self.new.layout.chunk_blocks(), self.rows_of_images());
        let mut at = self.new.checksums.pages.position.get().map_or(0, |reshape| reshape.rows) - stripe * chunk;
        while at < chunk {
            let rows = Rows::new(at, chunk.min(at + most));
            let placed = self.place(stripe, rows).await?;
            let row = stripe * chunk + rows.end;
            let mut records = Records::default();
            for placed in &placed {
                let (_, is_written) = self.new.members.place(placed.member).usable(stripe);
                match bug_injection::is_injected(InjectedBug::MovedWithoutImages) {
                    true => placed.log_entries(&mut records),
                    false => placed.log_images(&mut records, is_written),
                }
            }
            records.moved(row);
            let reservation = self.new.log.commit(records).await?;
            // The content is in the log, so an interrupted write is completed by replay.
            let written = self.write_placed(&placed).await;
            // Adopted even if a write failed: the log has the rows, and replay completes them.
            self.apply_logged(&placed, row);
            drop(reservation);
            written?;
            at = rows.end;
        }
        Ok(())
    }

    /// Number of rows whose images of all members fit into one batch.
    fn rows_of_images(&self) -> u64 {
        let (members, most) = (u64::from(self.new.layout.members()), self.new.log.state.ring.batch_blocks_max());
        let fits = |rows: u64| {
            let table = HEADER_BYTES as u64 + record_bytes(0) + members * rows * record_bytes(1);
            blocks_of(usize::try_from(table).unwrap_or(usize::MAX), members * rows) <= most
        };
        (1..=self.new.layout.chunk_blocks()).take_while(|&rows| fits(rows)).last().unwrap_or(1)
    }

    async fn write_placed(self: &Rc<Self>, placed: &[Placed]) -> Result<(), IoError> {
        let chunk = self.new.layout.chunk_blocks();
        let is_written = |placed: &&Placed| {
            placed.has_content() && self.new.members.place(placed.member).usable(placed.block / chunk).1
        };
        let op = |placed: &Placed| Op::write(placed.member, placed.extent(), placed.content.clone());
        let ops: Ops = placed.iter().filter(is_written).map(op).collect();
        let ended = self.new.members.perform(ops).await;
        self.new.members.judge(&ended, Extent::default())
    }

    /// Stores the logged entries in the pages and advances the position.
    fn apply_logged(&self, placed: &[Placed], row: u64) {
        let mut cache = self.new.checksums.pages.cache.borrow_mut();
        for placed in placed {
            for (block, &entry) in (placed.block..).zip(&placed.entries) {
                cache.set(placed.member, block, entry);
            }
        }
        drop(cache);
        self.advance(row);
    }

    /// Advances the position to this row.
    ///
    /// *Panics*: when the position would go back.
    fn advance(&self, rows: u64) {
        let position = &self.new.checksums.pages.position;
        let reshape = position.get().expect("a reshape is under way");
        assert!(reshape.rows <= rows, "what has been moved stays so");
        assert!(rows <= self.new.layout.member_blocks().0, "a reshape ends with the last stripe");
        position.set(Some(Reshape { rows, ..reshape }));
    }
}
