//! Fresh writes: whole stripes whose old content nobody needs go straight to the members, once.
//!
//! Their entries are in memory only until a flush: the members are flushed, then the entries are logged. A
//! crash before leaves the stripes unwritten, so nothing of what was in flight is ever read.

use crate::array::Core;
use crate::geometry::Span;
use crate::members::{Change, Ops};
use crate::on_disk::batch::{Records, blocks_of, record_bytes};
use crate::on_disk::entry::{Entry, guards};
use crate::protect::Protected;
use crate::sabotage::{self, Bug};
use crate::sums::cache::Pins;
use block::{BlockDevice, Extent, IoError, View};
use shard::RangeGuard;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

/// The stripes of one array whose entries are not in the log.
#[derive(Default)]
pub(crate) struct Fresh {
    /// With the number of members that each is laid out over.
    stripes: RefCell<BTreeMap<u64, u16>>,
    settling: Cell<bool>,
    /// How often it was begun to log them, and which time was the last to end well.
    begun: Cell<u64>,
    settled: Cell<u64>,
}

impl Fresh {
    /// True when one of these stripes is fresh.
    pub(crate) fn holds(&self, stripes: &Range<u64>) -> bool {
        self.stripes.borrow().range(stripes.clone()).next().is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.stripes.borrow().len()
    }
}

impl<D: BlockDevice + 'static> Core<D> {
    /// Writes whole stripes in place. Their pages are held, and nothing of them is in flight.
    pub(crate) async fn write_fresh_stripes(
        self: &Rc<Self>,
        part: Span,
        data: View,
        pins: Pins,
        guard: RangeGuard,
    ) -> Result<(), IoError> {
        let core = self.clone();
        let ops = self.whole_ops(&part, &data);
        let work = async move {
            let done = core.write_stripes_in_place(&part, ops).await;
            drop((pins, guard));
            done
        };
        self.background.finish(work).await?;
        let protected = self.protected.as_ref().expect("only protected arrays log");
        let held = protected.cache.borrow().dirty_max() / 2 / usize::from(self.layout.members());
        if protected.fresh.len() > held.max(16) { self.settle_fresh().await } else { Ok(()) }
    }

    async fn write_stripes_in_place(self: &Rc<Self>, part: &Span, mut ops: Ops) -> Result<(), IoError> {
        let protected = self.protected.as_ref().expect("only protected arrays log");
        let chunk = self.layout.chunk_blocks();
        if !self.is_unwritten(protected, &part.stripes) && !sabotage::is(Bug::FreshOverContent) {
            // What is torn now must not look like the old content.
            let blocks = Extent::new(part.stripes.start * chunk, (part.stripes.end - part.stripes.start) * chunk);
            let runs: Vec<_> = (0..self.layout.members()).map(|member| (member, blocks)).collect();
            self.clear(&runs).await?;
        }
        let mut entries: Vec<(u16, u64, Entry)> = Vec::new();
        for op in &ops {
            let Change::Write(content) = &op.change else { continue };
            for (block, guard) in (op.start.0..).zip(guards(content)) {
                entries.push((op.member, block, Entry::UNWRITTEN.next(protected.tie(op.member, block), guard)));
            }
        }
        ops.retain(|op| self.members.place(op.member).usable(op.start.0 / chunk).1);
        let ended = self.members.perform(ops).await;
        self.members.judge(&ended, part.extent)?;
        let mut cache = protected.cache.borrow_mut();
        entries.into_iter().for_each(|(member, block, entry)| cache.set_fresh(member, block, entry));
        let members = self.layout.members();
        protected.fresh.stripes.borrow_mut().extend(part.stripes.clone().map(|stripe| (stripe, members)));
        Ok(())
    }

    /// Fresh writes that ended before this call are durable, and in the log.
    pub(crate) async fn settle_fresh(self: &Rc<Self>) -> Result<(), IoError> {
        let Some(protected) = &self.protected else { return Ok(()) };
        if protected.fresh.len() == 0 && !protected.fresh.settling.get() {
            return Ok(());
        }
        // All that ask while one is under way share the next.
        let needed = protected.fresh.begun.get() + 1;
        let core = self.clone();
        let work = async move {
            let protected = core.protected.as_ref().expect("only protected arrays log");
            let fresh = &protected.fresh;
            let leads = core.background.until(|cx| {
                let is_done = fresh.settled.get() >= needed;
                if is_done || !fresh.settling.get() {
                    return Poll::Ready(!is_done);
                }
                protected.ring.watch(cx);
                Poll::Pending
            });
            if !leads.await {
                return Ok(());
            }
            let this = fresh.begun.get() + 1;
            fresh.begun.set(this);
            fresh.settling.set(true);
            let settled = core.log_fresh(protected).await;
            fresh.settling.set(false);
            if settled.is_ok() {
                fresh.settled.set(this);
            }
            protected.ring.wake();
            settled
        };
        self.background.finish(work).await
    }

    async fn log_fresh(self: &Rc<Self>, protected: &Protected) -> Result<(), IoError> {
        let stripes: Vec<(u64, u16)> =
            protected.fresh.stripes.borrow().iter().map(|(&stripe, &of)| (stripe, of)).collect();
        if stripes.is_empty() {
            return Ok(());
        }
        if !sabotage::is(Bug::FreshBeforeFlush) {
            self.members.flush_those(self.members.written()).await?;
        }
        let each = u64::from(self.members.width()) * record_bytes(self.layout.chunk_blocks());
        let table_bytes = (protected.ring.batch_blocks_max() - 1) * u64::from(crate::BLOCK_BYTES);
        let most = usize::try_from((table_bytes / each).max(1)).unwrap_or(usize::MAX);
        debug_assert!(blocks_of(each as usize, 0) <= protected.ring.batch_blocks_max(), "a stripe fits into a batch");
        for some in stripes.chunks(most) {
            self.log_stripes(protected, some).await?;
        }
        Ok(())
    }

    async fn log_stripes(self: &Rc<Self>, protected: &Protected, stripes: &[(u64, u16)]) -> Result<(), IoError> {
        let chunk = self.layout.chunk_blocks();
        let mut records = Records::default();
        let mut runs: Vec<(u16, u64, Vec<Entry>)> = Vec::new();
        for &(stripe, members) in stripes {
            for member in 0..members {
                let blocks = stripe * chunk..(stripe + 1) * chunk;
                // Fresh entries are held in memory until they are logged.
                let entries: Vec<Entry> = blocks.map(|block| self.entry(protected, member, block)).collect();
                records.marks(member, stripe * chunk, &entries);
                runs.push((member, stripe * chunk, entries));
            }
        }
        let ticket = self.commit(protected, records).await?;
        for (member, first, entries) in runs {
            let mut cache = protected.cache.borrow_mut();
            (first..).zip(entries).for_each(|(block, entry)| cache.set(member, block, entry));
        }
        let mut fresh = protected.fresh.stripes.borrow_mut();
        fresh.retain(|&stripe, &mut of| stripes.binary_search(&(stripe, of)).is_err());
        drop(ticket);
        Ok(())
    }
}
