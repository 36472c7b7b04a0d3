//! The steps of a reshape: a few stripes of the new layout at a time, each step in one batch of the log or not at all.
//!
//! Where the new stripes lie on blocks that are not moved yet (the first stripes), their content is in the batch.
//! Further on they lie where everything has been moved, are written there first, and only their entries are in it.

use super::Moving;
use super::placed::Placed;
use crate::array::Core;
use crate::bounds::BLOCK_BYTES;
use crate::geometry::Rows;
use crate::members::{Op, Ops};
use crate::on_disk::anchor::Reshape;
use crate::on_disk::batch::{HEADER_BYTES, Records, blocks_of, record_bytes};
use crate::on_disk::entry::Entry;
use crate::on_disk::page;
use crate::protect::Protected;
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Extent, IoError};
use futures_util::future::join_all;
use shard::RangeGuard;
use std::ops::Range;
use std::rc::Rc;

/// Blocks of each member that are passed over at a time where nothing was ever written.
const QUIET_BLOCKS: u64 = 4096;

impl<D: BlockDevice + 'static> Core<D> {
    /// The next stripes are laid out anew; false when there were none left.
    pub(super) async fn move_step(self: &Rc<Self>, moving: &Rc<Moving<D>>) -> Result<bool, IoError> {
        self.members.serving(Extent::default())?;
        let (first, all) = (self.moved_stripes(), self.layout.stripes());
        if first == all {
            return Ok(false);
        }
        let stripes = first..first + self.stripes_at_once(moving, first).min(all - first);
        let guards = self.lock_step(moving, &stripes).await;
        let (core, moving) = (self.clone(), moving.clone());
        let work = async move {
            let moved = core.move_stripes(&moving, stripes).await;
            drop(guards);
            moved
        };
        self.background.finish(work).await?;
        self.members.failures_recorded(Extent::default()).await?;
        Ok(true)
    }

    /// The stripe that had begun to be moved when the array stopped is moved whole. Nobody is served yet.
    pub(crate) async fn end_begun_stripe(self: &Rc<Self>) -> Result<(), IoError> {
        let (Some(moving), Some(protected)) = (&self.moving, &self.protected) else { return Ok(()) };
        let rows = protected.reshape.get().map_or(0, |reshape| reshape.rows);
        if rows.is_multiple_of(self.layout.chunk_blocks()) || sabotage::is(Bug::BegunStripeLeft) {
            return Ok(());
        }
        self.move_step(moving).await?;
        self.checkpoint().await
    }

    /// How many stripes are moved in one step: as many as lie where everything has been moved, within bounds.
    fn stripes_at_once(&self, moving: &Moving<D>, first: u64) -> u64 {
        let protected = self.protected.as_ref().expect("only protected arrays are reshaped");
        let (chunk, old) = (self.layout.chunk_blocks(), &moving.old.layout);
        // All of the old layout's blocks before the position's own have left, so these stripes are vacant.
        let vacant = (self.moved_blocks(moving) / old.stripe_blocks()).saturating_sub(first);
        let quiet = (QUIET_BLOCKS / chunk).max(1).min(vacant);
        if quiet > 0 && self.is_quiet(moving, &(first..first + quiet)) {
            return quiet;
        }
        vacant.min(self.stripes_of_entries(protected)).max(1)
    }

    /// Stripes whose entries fit into one batch, and whose content into memory.
    fn stripes_of_entries(&self, protected: &Protected) -> u64 {
        let chunk = self.layout.chunk_blocks();
        let table_bytes = (protected.ring.batch_blocks_max() - 1) * u64::from(BLOCK_BYTES) - record_bytes(0);
        let most = table_bytes / (u64::from(self.layout.members()) * record_bytes(chunk));
        let step = self.steps(0..u64::MAX).next().map_or(1, |step| step.end);
        most.min(step).max(1)
    }

    /// True when none of the blocks that these stripes get was ever written, and none where they lie.
    fn is_quiet(&self, moving: &Moving<D>, stripes: &Range<u64>) -> bool {
        let protected = self.protected.as_ref().expect("only protected arrays are reshaped");
        let chunk = self.layout.chunk_blocks();
        let pages = |stripes: &Range<u64>| {
            page::pages_of(Extent::new(stripes.start * chunk, (stripes.end - stripes.start) * chunk))
        };
        let is_unwritten = |page: u64| {
            let mut none = !protected.is_used(page);
            let mut pages = protected.cache.borrow_mut();
            for member in 0..self.members.width() {
                // A page that is neither on disk nor in memory has nothing.
                let see = |_, entries: &[Entry]| none &= entries.iter().all(|entry| entry.is_unwritten());
                let _ = pages.visit(member, page::blocks_of(page), see);
            }
            none
        };
        let sources = self.sources(moving, stripes);
        [stripes, &sources].into_iter().filter(|range| !range.is_empty()).flat_map(pages).all(is_unwritten)
    }

    /// The stripes of the old layout that have the blocks of these.
    fn sources(&self, moving: &Moving<D>, stripes: &Range<u64>) -> Range<u64> {
        let (new, old) = (self.layout.stripe_blocks(), &moving.old.layout);
        let blocks = (stripes.start * new).min(old.blocks().0)..(stripes.end * new).min(old.blocks().0);
        blocks.start / old.stripe_blocks()..blocks.end.div_ceil(old.stripe_blocks())
    }

    /// Nobody else uses the blocks that are moved, nor the rows of either layout.
    async fn lock_step(&self, moving: &Moving<D>, stripes: &Range<u64>) -> Vec<RangeGuard> {
        let blocks = self.layout.stripe_blocks();
        let blocks = self.lock_blocks(moving, stripes.start * blocks..stripes.end * blocks, true).await;
        let sources = self.sources(moving, stripes);
        if sources.start < stripes.end {
            let rows = self.locks.exclusive(stripes.start.min(sources.start)..stripes.end.max(sources.end)).await;
            return vec![blocks, rows];
        }
        let target = self.locks.exclusive(stripes.clone()).await;
        vec![blocks, target, self.locks.exclusive(sources).await]
    }

    async fn move_stripes(self: &Rc<Self>, moving: &Moving<D>, mut stripes: Range<u64>) -> Result<(), IoError> {
        let protected = self.protected.as_ref().expect("only protected arrays are reshaped");
        self.members.serving(Extent::default())?;
        let sources = self.sources(moving, &stripes);
        moving.old.settle_stripes(protected, &sources).await?;
        if self.is_quiet(moving, &stripes) {
            return self.pass_over(protected, stripes).await;
        }
        // Something may have been written since it was seen that nothing was.
        stripes.end = stripes.end.min(stripes.start + self.stripes_of_entries(protected));
        let sources = self.sources(moving, &stripes);
        let _pins = self.hold_stripes(protected, &stripes).await;
        if sources.start >= stripes.end || sources.is_empty() {
            return self.move_to_vacant(protected, moving, stripes).await;
        }
        assert_eq!(stripes.end - stripes.start, 1, "stripes over blocks that are still there are moved one by one");
        let moved = self.move_in_place(protected, moving, stripes.start).await;
        let rows = protected.reshape.get().map_or(0, |reshape| reshape.rows);
        moving.torn.set(moved.is_err() && !rows.is_multiple_of(self.layout.chunk_blocks()));
        moved
    }

    /// Nothing is there, and nothing comes.
    async fn pass_over(self: &Rc<Self>, protected: &Protected, stripes: Range<u64>) -> Result<(), IoError> {
        let row = stripes.end * self.layout.chunk_blocks();
        let mut records = Records::default();
        records.moved(row);
        let ticket = self.commit(protected, records).await?;
        advance(protected, row);
        drop(ticket);
        Ok(())
    }

    /// The stripes are written where nothing is any more, then in the log.
    async fn move_to_vacant(
        self: &Rc<Self>,
        protected: &Protected,
        moving: &Moving<D>,
        stripes: Range<u64>,
    ) -> Result<(), IoError> {
        let rows = self.layout.all_rows();
        let place = |stripe| self.place(protected, moving, stripe, rows);
        let mut placed = Vec::new();
        for stripe in join_all(stripes.clone().map(place)).await {
            placed.extend(stripe?);
        }
        let row = stripes.end * self.layout.chunk_blocks();
        let mut records = Records::default();
        if !sabotage::is(Bug::MovedWithoutEntries) {
            let is_tail = sabotage::is(Bug::TailNotCleared);
            let all = placed.iter().filter(|placed| !is_tail || placed.has_content());
            all.for_each(|placed| placed.log_entries(&mut records));
        }
        records.moved(row);
        if sabotage::is(Bug::MovedBeforeFlush) {
            let ticket = self.commit(protected, records).await?;
            self.write_placed(&placed).await?;
            self.adopt(protected, &placed, row);
            drop(ticket);
            return Ok(());
        }
        self.write_placed(&placed).await?;
        self.members.flush_those(self.members.written()).await?;
        let ticket = self.commit(protected, records).await?;
        self.adopt(protected, &placed, row);
        drop(ticket);
        Ok(())
    }

    /// The stripe is in the log, as many rows at a time as fit into a batch, then in place.
    async fn move_in_place(
        self: &Rc<Self>,
        protected: &Protected,
        moving: &Moving<D>,
        stripe: u64,
    ) -> Result<(), IoError> {
        let (chunk, most) = (self.layout.chunk_blocks(), self.rows_of_images(protected));
        let mut at = protected.reshape.get().map_or(0, |reshape| reshape.rows) - stripe * chunk;
        while at < chunk {
            let rows = Rows::new(at, chunk.min(at + most));
            let placed = self.place(protected, moving, stripe, rows).await?;
            let row = stripe * chunk + rows.end;
            let mut records = Records::default();
            for placed in &placed {
                let (_, is_written) = self.members.place(placed.member).usable(stripe);
                match sabotage::is(Bug::MovedWithoutImages) {
                    true => placed.log_entries(&mut records),
                    false => placed.log_images(&mut records, is_written),
                }
            }
            records.moved(row);
            let ticket = self.commit(protected, records).await?;
            let written = self.write_placed(&placed).await;
            self.adopt(protected, &placed, row);
            drop(ticket);
            written?;
            at = rows.end;
        }
        Ok(())
    }

    /// Rows of which all members' images fit into one batch.
    fn rows_of_images(&self, protected: &Protected) -> u64 {
        let (members, most) = (u64::from(self.layout.members()), protected.ring.batch_blocks_max());
        let fits = |rows: u64| {
            let table = HEADER_BYTES as u64 + record_bytes(0) + members * rows * record_bytes(1);
            blocks_of(usize::try_from(table).unwrap_or(usize::MAX), members * rows) <= most
        };
        (1..=self.layout.chunk_blocks()).take_while(|&rows| fits(rows)).last().unwrap_or(1)
    }

    async fn write_placed(self: &Rc<Self>, placed: &[Placed]) -> Result<(), IoError> {
        let chunk = self.layout.chunk_blocks();
        let is_written =
            |placed: &&Placed| placed.has_content() && self.members.place(placed.member).usable(placed.block / chunk).1;
        let op = |placed: &Placed| Op::write(placed.member, placed.extent(), placed.content.clone());
        let ops: Ops = placed.iter().filter(is_written).map(op).collect();
        let ended = self.members.perform(ops).await;
        self.members.judge(&ended, Extent::default())
    }

    /// What was logged is so: the entries, and the position with them.
    fn adopt(&self, protected: &Protected, placed: &[Placed], row: u64) {
        let mut cache = protected.cache.borrow_mut();
        for placed in placed {
            for (block, &entry) in (placed.block..).zip(&placed.entries) {
                cache.set(placed.member, block, entry);
            }
        }
        drop(cache);
        advance(protected, row);
    }
}

fn advance(protected: &Protected, rows: u64) {
    let reshape = protected.reshape.get().expect("a reshape is under way");
    protected.reshape.set(Some(Reshape { rows, ..reshape }));
}
