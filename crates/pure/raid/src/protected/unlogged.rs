//! Fresh writes: whole stripes whose old content is dead are written once, directly to the members, without logging
//! it.
//!
//! Their entries stay in memory until a flush, which flushes the members and then logs the entries. A crash before
//! leaves the stripes unwritten, so nothing that was in flight is ever read.

use crate::bug_injection::{self, InjectedBug};
use crate::checksums::cache::Pins;
use crate::geometry::Span;
use crate::members::{Change, Ops};
use crate::on_disk::batch::{Records, blocks_of, record_bytes};
use crate::on_disk::entry::{Entry, guards};
use crate::protected::Protected;
use block::{BlockDevice, Extent, IoError, View};
use shard::RangeGuard;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;

/// Stripes of one array whose entries are not in the log.
#[derive(Default)]
pub(crate) struct Unlogged {
    /// By stripe, the number of members that it is laid out over.
    stripes: RefCell<BTreeMap<u64, u16>>,
    settling: Cell<bool>,
    /// Rounds of logging that have started, and the last round that succeeded.
    begun: Cell<u64>,
    settled: Cell<u64>,
}

impl Unlogged {
    /// True when one of these stripes is fresh.
    pub(crate) fn holds(&self, stripes: &Range<u64>) -> bool {
        self.stripes.borrow().range(stripes.clone()).next().is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.stripes.borrow().len()
    }
}

impl<D: BlockDevice + 'static> Protected<D> {
    /// Writes whole stripes in place. Their pages are pinned, and the caller holds their lock.
    pub(crate) async fn write_unlogged_stripes(
        self: &Rc<Self>,
        part: Span,
        data: View,
        pins: Pins,
        guard: RangeGuard,
    ) -> Result<(), IoError> {
        let blocks = (part.stripes.end - part.stripes.start) * self.layout.stripe_blocks();
        assert_eq!(part.extent.len.0, blocks, "only whole stripes are written fresh");
        let own = self.clone();
        let ops = self.whole_ops(&part, &data);
        let work = async move {
            let done = own.write_stripes_in_place(&part, ops).await;
            drop((pins, guard));
            done
        };
        self.background.finish(work).await?;
        // Fresh entries cannot leave memory, so they are settled before they fill the page budget.
        let held = self.checksums.pages.cache.borrow().dirty_max() / 2 / usize::from(self.layout.members());
        if self.commands.unlogged.len() > held.max(16) { self.log_unlogged().await } else { Ok(()) }
    }

    async fn write_stripes_in_place(self: &Rc<Self>, part: &Span, mut ops: Ops) -> Result<(), IoError> {
        let chunk = self.layout.chunk_blocks();
        if !self.checksums.is_unwritten(&part.stripes) && !bug_injection::is_injected(InjectedBug::FreshOverContent) {
            // Logged first: a stripe torn by a crash must not match the old entries.
            let blocks = Extent::new(part.stripes.start * chunk, (part.stripes.end - part.stripes.start) * chunk);
            let runs: Vec<_> = (0..self.layout.members()).map(|member| (member, blocks)).collect();
            self.clear(&runs).await?;
        }
        let mut entries: Vec<(u16, u64, Entry)> = Vec::new();
        for op in &ops {
            let Change::Write(content) = &op.change else { continue };
            for (block, guard) in (op.start.0..).zip(guards(content)) {
                entries.push((
                    op.member,
                    block,
                    Entry::UNWRITTEN.next(self.checksums.pages.binding(op.member, block), guard),
                ));
            }
        }
        // Entries cover absent members, too: what is rebuilt for them is verified against these.
        ops.retain(|op| self.members.place(op.member).usable(op.start.0 / chunk).1);
        let ended = self.members.perform(ops).await;
        // Not in the cache before the write has succeeded: an entry must not promise content that is not there.
        self.members.judge(&ended, part.extent)?;
        let mut cache = self.checksums.pages.cache.borrow_mut();
        entries.into_iter().for_each(|(member, block, entry)| cache.set_unlogged(member, block, entry));
        let members = self.layout.members();
        self.commands.unlogged.stripes.borrow_mut().extend(part.stripes.clone().map(|stripe| (stripe, members)));
        Ok(())
    }

    /// Makes fresh writes durable that ended before this call, and logs their entries.
    pub(crate) async fn log_unlogged(self: &Rc<Self>) -> Result<(), IoError> {
        if self.commands.unlogged.len() == 0 && !self.commands.unlogged.settling.get() {
            return Ok(());
        }
        // The round in progress may have begun before the caller's write, so all callers share the next one.
        let needed = self.commands.unlogged.begun.get() + 1;
        let own = self.clone();
        let work = async move {
            let unlogged = &own.commands.unlogged;
            let leads = own.background.until(|cx| {
                let is_done = unlogged.settled.get() >= needed;
                if is_done || !unlogged.settling.get() {
                    return Poll::Ready(!is_done);
                }
                own.log.state.ring.watch(cx);
                Poll::Pending
            });
            if !leads.await {
                return Ok(());
            }
            let this = unlogged.begun.get() + 1;
            assert!(unlogged.settled.get() < this, "times are counted upwards");
            unlogged.begun.set(this);
            unlogged.settling.set(true);
            let settled = own.log_unlogged_stripes().await;
            unlogged.settling.set(false);
            if settled.is_ok() {
                unlogged.settled.set(this);
            }
            // Waiters of this round use the signal of the ring.
            own.log.state.ring.wake();
            settled
        };
        self.background.finish(work).await
    }

    async fn log_unlogged_stripes(self: &Rc<Self>) -> Result<(), IoError> {
        let stripes: Vec<(u64, u16)> =
            self.commands.unlogged.stripes.borrow().iter().map(|(&stripe, &of)| (stripe, of)).collect();
        if stripes.is_empty() {
            return Ok(());
        }
        if !bug_injection::is_injected(InjectedBug::FreshBeforeFlush) {
            // Members first: a logged entry promises that its content is stable.
            self.members.flush_those(self.members.written()).await?;
        }
        // Bounded by the table: marks have no images.
        let each = u64::from(self.members.counted_len()) * record_bytes(self.layout.chunk_blocks());
        let table_bytes = (self.log.state.ring.batch_blocks_max() - 1) * u64::from(crate::BLOCK_BYTES);
        let most = usize::try_from((table_bytes / each).max(1)).unwrap_or(usize::MAX);
        assert!(blocks_of(each as usize, 0) <= self.log.state.ring.batch_blocks_max(), "a stripe fits into a batch");
        for some in stripes.chunks(most) {
            self.log_stripes(some).await?;
        }
        Ok(())
    }

    async fn log_stripes(self: &Rc<Self>, stripes: &[(u64, u16)]) -> Result<(), IoError> {
        let chunk = self.layout.chunk_blocks();
        let mut records = Records::default();
        let mut runs: Vec<(u16, u64, Vec<Entry>)> = Vec::new();
        for &(stripe, members) in stripes {
            for member in 0..members {
                let blocks = stripe * chunk..(stripe + 1) * chunk;
                // Pinned by their fresh state until they are logged.
                let entries: Vec<Entry> = blocks.map(|block| self.checksums.entry(member, block)).collect();
                assert_ne!(
                    entries[0],
                    Entry::UNKNOWN,
                    "the pages of fresh stripes stay in memory until they are logged"
                );
                records.entries(member, stripe * chunk, &entries);
                runs.push((member, stripe * chunk, entries));
            }
        }
        let reservation = self.log.commit(records).await?;
        for (member, first, entries) in runs {
            let mut cache = self.checksums.pages.cache.borrow_mut();
            (first..).zip(entries).for_each(|(block, entry)| cache.set(member, block, entry));
        }
        let mut unlogged = self.commands.unlogged.stripes.borrow_mut();
        // Stripes that became fresh during the commit stay for the next round.
        unlogged.retain(|&stripe, &mut of| stripes.binary_search(&(stripe, of)).is_err());
        drop(reservation);
        Ok(())
    }
}
