//! Crash recovery of a protected array: reads the redo log from the tail, applies it, and leaves nothing to resync.
//!
//! Called by `open` before hosts are served. Every step may itself be interrupted: until the last anchor is written,
//! the log is unchanged, and the last record of a block decides. Nothing is written before it is known that the whole
//! log can be read or that the owner accepts the loss.

mod chain;
mod checksum_only;
mod doublewrite;
mod find;

use crate::bounds::BLOCK_BYTES;
use crate::bug_injection::{self, InjectedBug};
use crate::error::{OpenError, Opened};
use crate::geometry::{MemberSet, bytes};
use crate::maintenance::{Repair, Scrubbed, scrub_step};
use crate::members::ReadWait;
use crate::on_disk::anchor::Reshape;
use crate::on_disk::batch::Kind;
use crate::on_disk::entry::{Entry, guards};
use crate::path::Path;
use crate::protected::Protected;
use crate::recovery::chain::Chain;
use crate::redo::ring::Head;
use block::{BlockDevice, Buf, Extent, IoError, IoErrorKind, Lba, View};
use futures_util::stream::{self, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;

/// Upper bound of adjacent blocks that are copied from the log in one operation.
const RUN_BLOCKS: u64 = 64;
/// Runs that are copied concurrently.
const RUNS_AT_ONCE: usize = 16;

/// Final state of a block according to the log.
#[derive(Clone, Copy, Debug)]
struct FinalState {
    new: Entry,
    /// The previous entry of a checksum-only write that may not have finished.
    old: Option<Entry>,
    /// Location of the content: the member, and the block of the ring.
    image: Option<(u16, u64)>,
}

/// Final states by member and block.
type FinalStates = BTreeMap<(u16, u64), FinalState>;

/// Run of images that are adjacent both in the log and on their member.
struct Run {
    member: u16,
    block: u64,
    source: u16,
    at: u64,
    blocks: u64,
    /// Checksum entries that the blocks must match.
    entries: Vec<Entry>,
}

/// Crash recovery of one array.
pub(crate) struct Recovery<'a, D> {
    path: &'a Path<D>,
    array: &'a Rc<Protected<D>>,
    /// Option [`accept_log_loss`](crate::Options::accept_log_loss): continue without batches that cannot be read.
    accept_log_loss: bool,
}

impl<'a, D: BlockDevice + 'static> Recovery<'a, D> {
    /// Prepares the recovery of the protected array that the path leads to.
    pub(crate) fn new(path: &'a Path<D>, accept_log_loss: bool) -> Self {
        let array = path.protected().expect("only protected arrays are recovered");
        Self { path, array, accept_log_loss }
    }

    /// Replays the redo log and truncates it; nothing that was not found in it can be found later. Members in
    /// `behind` lack the newest anchor.
    ///
    /// *Errors*: `LogDamaged` where it is not known which blocks unreadable batches had changed, unless the owner
    /// accepts that; nothing was written then.
    pub(crate) async fn replay(&self, behind: MemberSet, opened: &mut Opened) -> Result<(), OpenError> {
        let anchor = self.array.log.state.anchor.borrow().clone();
        // A killed daemon may have left data in the disks' volatile caches; replay relies on all of it from here on.
        self.array.members.flush_all(self.array.members.in_use()).await?;
        let tail = Head { number: anchor.tail_number, at: anchor.tail_block };
        // Differences between the copies of a page are what an interrupted checkpoint leaves; they are not findings.
        self.array.checksums.pages.recovering.set(true);
        let chain = self.follow(anchor.epoch, tail).await;
        self.array.members.serving(Extent::default())?;
        // Without the table of a batch any block may be older than acknowledged, so none may be served.
        if !chain.lost_batches.is_empty() && !self.accept_log_loss {
            return Err(OpenError::LogDamaged(chain.lost_batches));
        }
        opened.lost_batches.clone_from(&chain.lost_batches);
        self.report_log(&chain);
        // Before anything reads pages or stripes: both depend on the position.
        self.note_moved(&chain);
        // The next anchor overwrites the slot of the one before the newest, which may be the only anchor such a
        // member has.
        self.array.log.put_anchor(&anchor, behind).await?;
        self.restore_doublewrite().await?;
        if chain.lost_batches.last().is_some_and(|hole| hole.contains(&chain.head.number)) {
            self.clear_end(&chain).await;
        }
        // From here on the log is applied; the last batch must be stable first.
        self.relog(&chain).await?;
        let mut final_states = final_states(&chain);
        opened.batches = chain.batches.len() as u64;
        let blocks: Vec<(u64, u64)> = final_states.keys().map(|&(_, block)| (block, 1)).collect();
        // Absent members miss these blocks, too, and a member that fails from now on may lose them with its cache.
        self.array.members.note_missed(&blocks);
        self.array.log.state.missed.note_recent(&blocks);
        opened.resolved_blocks = self.resolve_checksum_only(&mut final_states).await?;
        opened.images = self.copy_images(&final_states).await?;
        // Images are in place and stable before any page says so.
        self.array.members.flush_those(self.array.members.in_use()).await?;
        for (&(member, block), last) in &final_states {
            let pins = self.array.checksums.hold_pages(member, Extent::new(block, 1)).await;
            self.array.checksums.pages.cache.borrow_mut().set(member, block, last.new);
            drop(pins);
            // A long log may touch more pages than the budget holds, and dirty pages cannot be evicted.
            let is_full = self.array.checksums.pages.cache.borrow().dirty()
                > self.array.checksums.pages.cache.borrow().dirty_max();
            if is_full {
                self.array.log.write_pages().await?;
            }
        }
        self.array.log.write_pages().await?;
        // A new epoch even where nothing was replayed: a batch that could not be read this time must not be found
        // next time.
        let is_kept = chain.batches.is_empty() && bug_injection::is_injected(InjectedBug::EpochKept);
        let epoch = if is_kept { anchor.epoch } else { anchor.epoch + 1 };
        self.array.log.write_anchor(epoch, chain.head).await?;
        self.array.members.serving(Extent::default())?;
        // The new epoch starts behind the old batches, which a search would otherwise take for its own.
        self.array.log.state.ring.restart(epoch, chain.head);
        // Replayed regions are stable now, so both windows of recent writes start empty.
        self.array.log.state.missed.checkpoint_started();
        self.array.log.state.missed.checkpoint_ended();
        self.array.checksums.pages.recovering.set(false);
        // Needs the array in service: it heals through the log.
        self.restore_missing(&chain).await?;
        Ok(())
    }

    /// Repairs blocks whose images have decayed: from their place, from redundancy, or they are reported as lost.
    async fn restore_missing(&self, chain: &Chain) -> Result<(), IoError> {
        let chunk = self.array.layout.chunk_blocks();
        let mut stripes = BTreeSet::new();
        for batch in chain.batches.iter().filter(|batch| !batch.is_whole()) {
            let images = batch.records.iter().filter_map(|record| Some((record, record.image?)));
            for (record, first) in images {
                // The record names the blocks, so only these stripes have to be scrubbed.
                let missing = (0..record.count).filter(|n| batch.place_of(first + n).is_none());
                stripes.extend(missing.map(|n| (record.block + n) / chunk));
            }
        }
        for stripe in stripes {
            let _: Scrubbed = scrub_step(self.path, stripe..stripe + 1, Repair::Heal).await?;
        }
        Ok(())
    }

    /// Takes over the reshape position from the log.
    fn note_moved(&self, chain: &Chain) {
        let Some(reshape) = self
            .array
            .checksums
            .pages
            .position
            .get()
            .filter(|_| !bug_injection::is_injected(InjectedBug::PositionForgotten))
        else {
            return;
        };
        let moved = chain.batches.iter().flat_map(|batch| &batch.records).filter(|record| record.kind == Kind::Moved);
        // The position only increases, so the highest record counts.
        let rows = moved.map(|record| record.block).fold(reshape.rows, u64::max);
        self.array.checksums.pages.position.set(Some(Reshape { rows, ..reshape }));
    }

    /// Overwrites an unreadable block at the end of the log, so that the next opening does not take it again for the
    /// batch whose loss was accepted.
    async fn clear_end(&self, chain: &Chain) {
        let end = Extent::new(self.array.log.state.area.ring.start.0 + chain.head.at, 1);
        for member in self.array.members.in_use().iter() {
            let found = self.array.members.read_metadata(member, end, ReadWait::Unbounded).await;
            if found.is_err_and(|error| error.kind == IoErrorKind::Medium) {
                // A member that cannot be written fails with the next batch.
                let _ = self
                    .array
                    .members
                    .place(member)
                    .write_metadata(end.start, View::zeroed(BLOCK_BYTES as usize))
                    .await;
            }
        }
    }

    /// Writes the last batch to every member that lacks it: it may not have been stable when the array stopped.
    async fn relog(&self, chain: &Chain) -> Result<(), IoError> {
        let Some(last) = chain.batches.last().filter(|_| !bug_injection::is_injected(InjectedBug::NoRelog)) else {
            return Ok(());
        };
        let extent = Extent::new(self.array.log.state.area.ring.start.0 + last.at, last.blocks);
        // A damaged last batch had been stable; only one that may never have been is written again.
        let Some(bytes) = chain.last.clone() else { return Ok(()) };
        for member in self.array.members.in_use().iter() {
            // A copy that is there is left alone: writing it again could tear the only one.
            if self
                .array
                .members
                .read_metadata(member, extent, ReadWait::Unbounded)
                .await
                .is_ok_and(|found| found == *bytes)
            {
                continue;
            }
            match self.array.members.place(member).write_metadata(extent.start, bytes.clone()).await {
                Err(error) if error.kind != IoErrorKind::Medium || self.array.members.can_lose(member) => {
                    self.array.members.mark_failed(member, error)
                }
                // A needed member that refuses the batch is not given up: others have it.
                _ => {}
            }
        }
        self.array.members.flush_those(self.array.members.in_use()).await
    }

    /// Writes every image that is the latest state of its block; returns the number of blocks.
    async fn copy_images(&self, final_states: &FinalStates) -> Result<u64, IoError> {
        let mut runs: Vec<Run> = Vec::new();
        for (&(member, block), last) in final_states {
            let Some((source, at)) = last.image else { continue };
            match runs.last_mut() {
                Some(run)
                    if (run.member, run.source) == (member, source)
                        // Adjacent on the member and in the log, so one read and one write suffice.
                        && (run.block + run.blocks, run.at + run.blocks) == (block, at)
                        && run.blocks < RUN_BLOCKS =>
                {
                    run.blocks += 1;
                    run.entries.push(last.new);
                }
                _ => runs.push(Run { member, block, source, at, blocks: 1, entries: vec![last.new] }),
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
        // An absent member gets the content by its rebuild; its missed regions are noted already.
        if !self.array.members.in_use().contains(run.member) {
            return Ok(());
        }
        let content = self.read_images(&run).await?;
        match self.array.members.place(run.member).write(Lba(run.block), content).await {
            // The block keeps an entry that it does not match, so reads of it fail instead of returning old data.
            Err(error) if error.kind == IoErrorKind::Medium && !self.array.members.can_lose(run.member) => Ok(()),
            Err(error) => {
                self.array.members.mark_failed(run.member, error);
                self.array.members.serving(Extent::default())
            }
            Ok(_) => Ok(()),
        }
    }

    /// Reads the images of a run and verifies them again: they matched when the log was read, and may not on the
    /// second read.
    async fn read_images(&self, run: &Run) -> Result<View, IoError> {
        if let Ok(images) = self.read_right(run, run.source, 0..run.blocks).await {
            return Ok(images);
        }
        let mut images = Buf::zeroed(bytes(run.blocks));
        // Block by block from any member: each may have a different block damaged.
        for (n, place) in (0..).zip(images.chunks_exact_mut(BLOCK_BYTES as usize)) {
            let mut found = Err(IoError::new(IoErrorKind::Medium, Extent::new(run.block + n, 1)));
            for source in self.array.members.in_use().iter() {
                found = self.read_right(run, source, n..n + 1).await;
                if found.is_ok() {
                    break;
                }
            }
            place.copy_from_slice(&found?);
        }
        Ok(images.freeze())
    }

    /// Reads `part` of a run of images from one member; a medium error where they do not match.
    async fn read_right(&self, run: &Run, source: u16, part: Range<u64>) -> Result<View, IoError> {
        let extent = Extent::new(self.array.log.state.area.ring.start.0 + run.at + part.start, part.end - part.start);
        let images = self.array.members.read_metadata(source, extent, ReadWait::Unbounded).await?.into_view();
        let is_right = |(n, guard)| {
            run.entries[n as usize].matches(self.array.checksums.pages.binding(run.member, run.block + n), guard)
        };
        if part.zip(guards(&images)).all(is_right) || bug_injection::is_injected(InjectedBug::ReplayUnseen) {
            Ok(images)
        } else {
            Err(IoError::new(IoErrorKind::Medium, extent))
        }
    }
}

/// Collects the latest record of every block in the log.
fn final_states(chain: &Chain) -> FinalStates {
    let mut final_states = FinalStates::new();
    for batch in &chain.batches {
        for record in &batch.records {
            // Batches before `settled` had ended in place, so only later ones are in doubt.
            let is_open = record.kind == Kind::ChecksumOnly && batch.number >= chain.settled;
            for n in 0..record.count {
                let at = n as usize;
                let last = FinalState {
                    new: record.new.get(at).copied().unwrap_or(Entry::UNWRITTEN),
                    old: record.old.get(at).copied().filter(|_| is_open),
                    // `None` also where the image has decayed on every member; `restore_missing` handles its block.
                    image: record.image.and_then(|image| batch.place_of(image + n)),
                };
                let key = (record.member, record.block + n);
                if bug_injection::is_injected(InjectedBug::ReplayFirstWins) {
                    final_states.entry(key).or_insert(last);
                } else {
                    final_states.insert(key, last);
                }
            }
        }
    }
    final_states
}
