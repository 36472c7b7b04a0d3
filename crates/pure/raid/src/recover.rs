//! Opening after a stop at any instant: the log is followed and applied, and nothing is left to be resynced.
//!
//! Every step may itself be interrupted: until the last anchor is written, the log is as it was, and the last record
//! of a block decides.

mod chain;
mod find;
mod judge;
mod spare;

use crate::array::Core;
use crate::bounds::BLOCK_BYTES;
use crate::geometry::{MemberSet, bytes};
use crate::on_disk::anchor::Reshape;
use crate::on_disk::batch::Kind;
use crate::on_disk::entry::{Entry, guards};
use crate::open::{OpenError, Opened};
use crate::protect::Protected;
use crate::recover::chain::Chain;
use crate::redo::ring::Head;
use crate::sabotage::{self, Bug};
use crate::scrub::{Repair, Scrubbed};
use block::{BlockDevice, Buf, Extent, IoError, IoErrorKind, Lba, View};
use futures_util::stream::{self, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// Blocks that are copied from the log in one go where they follow each other.
const RUN_BLOCKS: u64 = 64;
/// Runs that are copied at once.
const RUNS_AT_ONCE: usize = 16;

/// The last that the log says of a block.
#[derive(Clone, Copy, Debug)]
struct Last {
    new: Entry,
    /// The entry before, where the write was by sum and may not have ended.
    old: Option<Entry>,
    /// Where the content lies: on which lane, at which block of the ring.
    image: Option<(u16, u64)>,
}

/// By member and block.
type Lasts = BTreeMap<(u16, u64), Last>;

/// A run of images.
struct Run {
    member: u16,
    block: u64,
    lane: u16,
    at: u64,
    blocks: u64,
    /// What the blocks must match.
    entries: Vec<Entry>,
}

impl<D: BlockDevice + 'static> Core<D> {
    /// The log is empty, everything that it said is so, and what was not found in it never will be. Those in `behind`
    /// have not got the newest anchor.
    ///
    /// *Errors*: `Hole` where nobody knows what batches of the log have changed, unless the owner accepts that: nothing was
    /// written then.
    pub(crate) async fn replay(self: &Rc<Self>, behind: MemberSet, opened: &mut Opened) -> Result<(), OpenError> {
        let protected = self.protected.as_ref().expect("only protected arrays are recovered");
        let anchor = protected.anchor.borrow().clone();
        // A daemon that was killed has left in the caches of disks what is believed from now on.
        self.members.flush_all(self.members.in_use()).await?;
        let tail = Head { number: anchor.tail_number, at: anchor.tail_block };
        protected.recovering.set(true);
        let chain = self.follow(protected, anchor.epoch, tail).await;
        self.members.serving(Extent::default())?;
        if !chain.holes.is_empty() && !protected.options.accept_log_loss {
            return Err(OpenError::LogDamaged(chain.holes));
        }
        opened.holes.clone_from(&chain.holes);
        self.tell_of_log(protected, &chain);
        self.note_moved(protected, &chain);
        // The next anchor takes the place of the one before the newest, which may be all that such a member has.
        self.put_anchor(&anchor, behind).await?;
        self.restore_spared(protected).await?;
        if chain.holes.last().is_some_and(|hole| hole.contains(&chain.head.number)) {
            self.clear_end(protected, &chain).await;
        }
        self.relog(protected, &chain).await?;
        let mut lasts = lasts(&chain);
        opened.batches = chain.batches.len() as u64;
        let blocks: Vec<(u64, u64)> = lasts.keys().map(|&(_, block)| (block, 1)).collect();
        self.members.note_missed(&blocks);
        protected.missed.note_recent(&blocks);
        opened.judged = self.judge_unended(protected, &mut lasts).await?;
        opened.images = self.copy_images(protected, &lasts).await?;
        self.members.flush_those(self.members.in_use()).await?;
        for (&(member, block), last) in &lasts {
            let pins = self.hold_pages(protected, member, Extent::new(block, 1)).await;
            protected.cache.borrow_mut().set(member, block, last.new);
            drop(pins);
            let is_full = protected.cache.borrow().dirty() > protected.cache.borrow().dirty_max();
            if is_full {
                self.write_pages(protected).await?;
            }
        }
        self.write_pages(protected).await?;
        // Also where nothing was found: the next batch may be there, unread for now, and must not be found later.
        let is_kept = chain.batches.is_empty() && sabotage::is(Bug::EpochKept);
        let epoch = if is_kept { anchor.epoch } else { anchor.epoch + 1 };
        self.write_anchor(protected, epoch, chain.head).await?;
        self.members.serving(Extent::default())?;
        protected.ring.restart(epoch, chain.head);
        protected.missed.begin_window();
        protected.missed.end_window();
        protected.recovering.set(false);
        self.restore_missing(&chain).await?;
        Ok(())
    }

    /// Blocks whose images have decayed are right in place, or come from redundancy, or it is told that they are lost.
    async fn restore_missing(self: &Rc<Self>, chain: &Chain) -> Result<(), IoError> {
        let chunk = self.layout.chunk_blocks();
        let mut stripes = BTreeSet::new();
        for batch in chain.batches.iter().filter(|batch| !batch.is_whole()) {
            let images = batch.records.iter().filter_map(|record| Some((record, record.image?)));
            for (record, first) in images {
                let missing = (0..record.count).filter(|n| batch.place_of(first + n).is_none());
                stripes.extend(missing.map(|n| (record.block + n) / chunk));
            }
        }
        for stripe in stripes {
            let _: Scrubbed = self.scrub_step(stripe..stripe + 1, Repair::Heal).await?;
        }
        Ok(())
    }

    /// A reshape has come as far as the log says.
    fn note_moved(&self, protected: &Protected, chain: &Chain) {
        let Some(reshape) = protected.reshape.get().filter(|_| !sabotage::is(Bug::PositionForgotten)) else { return };
        let moved = chain.batches.iter().flat_map(|batch| &batch.records).filter(|record| record.kind == Kind::Moved);
        let rows = moved.map(|record| record.block).fold(reshape.rows, u64::max);
        protected.reshape.set(Some(Reshape { rows, ..reshape }));
    }

    /// The block where the log goes on can be read: the next opening must not take it once more for the batch whose loss was accepted.
    async fn clear_end(self: &Rc<Self>, protected: &Protected, chain: &Chain) {
        let end = Extent::new(protected.area.ring.start.0 + chain.head.at, 1);
        for member in self.members.in_use().iter() {
            let found = self.members.read_beside_data(member, end).await;
            if found.is_err_and(|error| error.kind == IoErrorKind::Medium) {
                // One that cannot be written is found out by the next batch.
                let _ =
                    self.members.place(member).write_beside_data(end.start, View::zeroed(BLOCK_BYTES as usize)).await;
            }
        }
    }

    /// The last batch may not have been stable; it is, before anything is done that relies on it.
    async fn relog(self: &Rc<Self>, protected: &Protected, chain: &Chain) -> Result<(), IoError> {
        let Some(last) = chain.batches.last().filter(|_| !sabotage::is(Bug::NoRelog)) else { return Ok(()) };
        let extent = Extent::new(protected.area.ring.start.0 + last.at, last.blocks);
        // One that is damaged had been stable, and a later one is lost behind it.
        let Some(bytes) = chain.last.clone() else { return Ok(()) };
        for member in self.members.in_use().iter() {
            // A lane that has it is left alone: written again, it could be torn, and be the only one.
            if self.members.read_beside_data(member, extent).await.is_ok_and(|found| found == *bytes) {
                continue;
            }
            match self.members.place(member).write_beside_data(extent.start, bytes.clone()).await {
                Err(error) if error.kind != IoErrorKind::Medium || self.members.spares(member) => {
                    self.members.lose(member, error)
                }
                // What cannot be spared and cannot take the batch has others beside it that can.
                _ => {}
            }
        }
        self.members.flush_those(self.members.in_use()).await
    }

    /// Writes every image that is the last word on its block; how many blocks these are.
    async fn copy_images(self: &Rc<Self>, protected: &Protected, lasts: &Lasts) -> Result<u64, IoError> {
        let mut runs: Vec<Run> = Vec::new();
        for (&(member, block), last) in lasts {
            let Some((lane, at)) = last.image else { continue };
            match runs.last_mut() {
                Some(run)
                    if (run.member, run.lane) == (member, lane)
                        && (run.block + run.blocks, run.at + run.blocks) == (block, at)
                        && run.blocks < RUN_BLOCKS =>
                {
                    run.blocks += 1;
                    run.entries.push(last.new);
                }
                _ => runs.push(Run { member, block, lane, at, blocks: 1, entries: vec![last.new] }),
            }
        }
        let total = runs.iter().map(|run| run.blocks).sum();
        let mut copies = stream::iter(runs).map(|run| self.copy_run(protected, run)).buffer_unordered(RUNS_AT_ONCE);
        while let Some(copied) = copies.next().await {
            copied?;
        }
        self.members.failures_recorded(Extent::default()).await?;
        Ok(total)
    }

    async fn copy_run(self: &Rc<Self>, protected: &Protected, run: Run) -> Result<(), IoError> {
        if !self.members.in_use().contains(run.member) {
            return Ok(());
        }
        let content = self.read_images(protected, &run).await?;
        match self.members.place(run.member).write(Lba(run.block), content).await {
            Err(error) if error.kind == IoErrorKind::Medium && !self.members.spares(run.member) => Ok(()),
            Err(error) => {
                self.members.lose(run.member, error);
                self.members.serving(Extent::default())
            }
            Ok(_) => Ok(()),
        }
    }

    /// The images as they were logged: they were found whole, and need not be when they are read again.
    async fn read_images(self: &Rc<Self>, protected: &Protected, run: &Run) -> Result<View, IoError> {
        if let Ok(images) = self.read_right(protected, run, run.lane, 0..run.blocks).await {
            return Ok(images);
        }
        let mut images = Buf::zeroed(bytes(run.blocks));
        for (n, place) in (0..).zip(images.chunks_exact_mut(BLOCK_BYTES as usize)) {
            let mut found = Err(IoError::new(IoErrorKind::Medium, Extent::new(run.block + n, 1)));
            for lane in self.members.in_use().iter() {
                found = self.read_right(protected, run, lane, n..n + 1).await;
                if found.is_ok() {
                    break;
                }
            }
            place.copy_from_slice(&found?);
        }
        Ok(images.freeze())
    }

    /// Some images of a run from one lane, where they are what was logged.
    async fn read_right(
        self: &Rc<Self>,
        protected: &Protected,
        run: &Run,
        lane: u16,
        part: Range<u64>,
    ) -> Result<View, IoError> {
        let extent = Extent::new(protected.area.ring.start.0 + run.at + part.start, part.end - part.start);
        let images = self.members.read_beside_data(lane, extent).await?.into_view();
        let is_right = |(n, guard)| run.entries[n as usize].matches(protected.tie(run.member, run.block + n), guard);
        if part.zip(guards(&images)).all(is_right) || sabotage::is(Bug::ReplayUnseen) {
            Ok(images)
        } else {
            Err(IoError::new(IoErrorKind::Medium, extent))
        }
    }
}

/// The last word of the log on every block that it speaks of.
fn lasts(chain: &Chain) -> Lasts {
    let mut lasts = Lasts::new();
    for batch in &chain.batches {
        for record in &batch.records {
            let is_open = record.kind == Kind::Sums && batch.number >= chain.settled;
            for n in 0..record.count {
                let at = n as usize;
                let last = Last {
                    new: record.new.get(at).copied().unwrap_or(Entry::UNWRITTEN),
                    old: record.old.get(at).copied().filter(|_| is_open),
                    image: record.image.and_then(|image| batch.place_of(image + n)),
                };
                let key = (record.member, record.block + n);
                if sabotage::is(Bug::ReplayFirstWins) {
                    lasts.entry(key).or_insert(last);
                } else {
                    lasts.insert(key, last);
                }
            }
        }
    }
    lasts
}
