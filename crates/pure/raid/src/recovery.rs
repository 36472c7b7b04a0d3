//! Opening after a stop at any instant: the log is followed and applied, and nothing is left to be resynced.
//!
//! Every step may itself be interrupted: until the last anchor is written, the log is as it was, and the last record
//! of a block decides.

mod chain;
mod find;
mod judge;
mod spare;

use crate::bounds::BLOCK_BYTES;
use crate::error::{OpenError, Opened};
use crate::geometry::{MemberSet, bytes};
use crate::maintenance::{Repair, Scrubbed, scrub_step};
use crate::members::Patience;
use crate::on_disk::anchor::Reshape;
use crate::on_disk::batch::Kind;
use crate::on_disk::entry::{Entry, guards};
use crate::path::Path;
use crate::protected::Protected;
use crate::recovery::chain::Chain;
use crate::redo::ring::Head;
use crate::sabotage::{self, Bug};
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

/// The recovery of one array.
pub(crate) struct Recovery<'a, D> {
    path: &'a Path<D>,
    array: &'a Rc<Protected<D>>,
    /// The owner accepts that batches of the log cannot be read.
    accept_log_loss: bool,
}

impl<'a, D: BlockDevice + 'static> Recovery<'a, D> {
    /// Of the array that the path leads to.
    pub(crate) fn new(path: &'a Path<D>, accept_log_loss: bool) -> Self {
        let array = path.protected().expect("only protected arrays are recovered");
        Self { path, array, accept_log_loss }
    }

    /// The log is empty, everything that it said is so, and what was not found in it never will be. Those in `behind`
    /// have not got the newest anchor.
    ///
    /// *Errors*: `Hole` where nobody knows what batches of the log have changed, unless the owner accepts that: nothing was
    /// written then.
    pub(crate) async fn replay(&self, behind: MemberSet, opened: &mut Opened) -> Result<(), OpenError> {
        let anchor = self.array.log.state.anchor.borrow().clone();
        // A daemon that was killed has left in the caches of disks what is believed from now on.
        self.array.members.flush_all(self.array.members.in_use()).await?;
        let tail = Head { number: anchor.tail_number, at: anchor.tail_block };
        self.array.checksums.pages.recovering.set(true);
        let chain = self.follow(anchor.epoch, tail).await;
        self.array.members.serving(Extent::default())?;
        if !chain.holes.is_empty() && !self.accept_log_loss {
            return Err(OpenError::LogDamaged(chain.holes));
        }
        opened.holes.clone_from(&chain.holes);
        self.tell_of_log(&chain);
        self.note_moved(&chain);
        // The next anchor takes the place of the one before the newest, which may be all that such a member has.
        self.array.log.put_anchor(&anchor, behind).await?;
        self.restore_spared().await?;
        if chain.holes.last().is_some_and(|hole| hole.contains(&chain.head.number)) {
            self.clear_end(&chain).await;
        }
        self.relog(&chain).await?;
        let mut lasts = lasts(&chain);
        opened.batches = chain.batches.len() as u64;
        let blocks: Vec<(u64, u64)> = lasts.keys().map(|&(_, block)| (block, 1)).collect();
        self.array.members.note_missed(&blocks);
        self.array.log.state.missed.note_recent(&blocks);
        opened.judged = self.judge_unended(&mut lasts).await?;
        opened.images = self.copy_images(&lasts).await?;
        self.array.members.flush_those(self.array.members.in_use()).await?;
        for (&(member, block), last) in &lasts {
            let pins = self.array.checksums.hold_pages(member, Extent::new(block, 1)).await;
            self.array.checksums.pages.cache.borrow_mut().set(member, block, last.new);
            drop(pins);
            let is_full = self.array.checksums.pages.cache.borrow().dirty()
                > self.array.checksums.pages.cache.borrow().dirty_max();
            if is_full {
                self.array.log.write_pages().await?;
            }
        }
        self.array.log.write_pages().await?;
        // Also where nothing was found: the next batch may be there, unread for now, and must not be found later.
        let is_kept = chain.batches.is_empty() && sabotage::is(Bug::EpochKept);
        let epoch = if is_kept { anchor.epoch } else { anchor.epoch + 1 };
        self.array.log.write_anchor(epoch, chain.head).await?;
        self.array.members.serving(Extent::default())?;
        self.array.log.state.ring.restart(epoch, chain.head);
        self.array.log.state.missed.begin_window();
        self.array.log.state.missed.end_window();
        self.array.checksums.pages.recovering.set(false);
        self.restore_missing(&chain).await?;
        Ok(())
    }

    /// Blocks whose images have decayed are right in place, or come from redundancy, or it is told that they are lost.
    async fn restore_missing(&self, chain: &Chain) -> Result<(), IoError> {
        let chunk = self.array.layout.chunk_blocks();
        let mut stripes = BTreeSet::new();
        for batch in chain.batches.iter().filter(|batch| !batch.is_whole()) {
            let images = batch.records.iter().filter_map(|record| Some((record, record.image?)));
            for (record, first) in images {
                let missing = (0..record.count).filter(|n| batch.place_of(first + n).is_none());
                stripes.extend(missing.map(|n| (record.block + n) / chunk));
            }
        }
        for stripe in stripes {
            let _: Scrubbed = scrub_step(self.path, stripe..stripe + 1, Repair::Heal).await?;
        }
        Ok(())
    }

    /// A reshape has come as far as the log says.
    fn note_moved(&self, chain: &Chain) {
        let Some(reshape) = self.array.checksums.pages.position.get().filter(|_| !sabotage::is(Bug::PositionForgotten))
        else {
            return;
        };
        let moved = chain.batches.iter().flat_map(|batch| &batch.records).filter(|record| record.kind == Kind::Moved);
        let rows = moved.map(|record| record.block).fold(reshape.rows, u64::max);
        self.array.checksums.pages.position.set(Some(Reshape { rows, ..reshape }));
    }

    /// The block where the log goes on can be read: the next opening must not take it once more for the batch whose loss was accepted.
    async fn clear_end(&self, chain: &Chain) {
        let end = Extent::new(self.array.log.state.area.ring.start.0 + chain.head.at, 1);
        for member in self.array.members.in_use().iter() {
            let found = self.array.members.read_beside_data(member, end, Patience::Patient).await;
            if found.is_err_and(|error| error.kind == IoErrorKind::Medium) {
                // One that cannot be written is found out by the next batch.
                let _ = self
                    .array
                    .members
                    .place(member)
                    .write_beside_data(end.start, View::zeroed(BLOCK_BYTES as usize))
                    .await;
            }
        }
    }

    /// The last batch may not have been stable; it is, before anything is done that relies on it.
    async fn relog(&self, chain: &Chain) -> Result<(), IoError> {
        let Some(last) = chain.batches.last().filter(|_| !sabotage::is(Bug::NoRelog)) else { return Ok(()) };
        let extent = Extent::new(self.array.log.state.area.ring.start.0 + last.at, last.blocks);
        // One that is damaged had been stable, and a later one is lost behind it.
        let Some(bytes) = chain.last.clone() else { return Ok(()) };
        for member in self.array.members.in_use().iter() {
            // A lane that has it is left alone: written again, it could be torn, and be the only one.
            if self
                .array
                .members
                .read_beside_data(member, extent, Patience::Patient)
                .await
                .is_ok_and(|found| found == *bytes)
            {
                continue;
            }
            match self.array.members.place(member).write_beside_data(extent.start, bytes.clone()).await {
                Err(error) if error.kind != IoErrorKind::Medium || self.array.members.spares(member) => {
                    self.array.members.lose(member, error)
                }
                // What cannot be spared and cannot take the batch has others beside it that can.
                _ => {}
            }
        }
        self.array.members.flush_those(self.array.members.in_use()).await
    }

    /// Writes every image that is the last word on its block; how many blocks these are.
    async fn copy_images(&self, lasts: &Lasts) -> Result<u64, IoError> {
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
        let mut copies = stream::iter(runs).map(|run| self.copy_run(run)).buffer_unordered(RUNS_AT_ONCE);
        while let Some(copied) = copies.next().await {
            copied?;
        }
        self.array.members.failures_recorded(Extent::default()).await?;
        Ok(total)
    }

    async fn copy_run(&self, run: Run) -> Result<(), IoError> {
        if !self.array.members.in_use().contains(run.member) {
            return Ok(());
        }
        let content = self.read_images(&run).await?;
        match self.array.members.place(run.member).write(Lba(run.block), content).await {
            Err(error) if error.kind == IoErrorKind::Medium && !self.array.members.spares(run.member) => Ok(()),
            Err(error) => {
                self.array.members.lose(run.member, error);
                self.array.members.serving(Extent::default())
            }
            Ok(_) => Ok(()),
        }
    }

    /// The images as they were logged: they were found whole, and need not be when they are read again.
    async fn read_images(&self, run: &Run) -> Result<View, IoError> {
        if let Ok(images) = self.read_right(run, run.lane, 0..run.blocks).await {
            return Ok(images);
        }
        let mut images = Buf::zeroed(bytes(run.blocks));
        for (n, place) in (0..).zip(images.chunks_exact_mut(BLOCK_BYTES as usize)) {
            let mut found = Err(IoError::new(IoErrorKind::Medium, Extent::new(run.block + n, 1)));
            for lane in self.array.members.in_use().iter() {
                found = self.read_right(run, lane, n..n + 1).await;
                if found.is_ok() {
                    break;
                }
            }
            place.copy_from_slice(&found?);
        }
        Ok(images.freeze())
    }

    /// Some images of a run from one lane, where they are what was logged.
    async fn read_right(&self, run: &Run, lane: u16, part: Range<u64>) -> Result<View, IoError> {
        let extent = Extent::new(self.array.log.state.area.ring.start.0 + run.at + part.start, part.end - part.start);
        let images = self.array.members.read_beside_data(lane, extent, Patience::Patient).await?.into_view();
        let is_right = |(n, guard)| {
            run.entries[n as usize].matches(self.array.checksums.pages.tie(run.member, run.block + n), guard)
        };
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
