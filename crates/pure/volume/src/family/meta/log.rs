//! Map log on the metadata slabs: a ring of blocks, each with as many copies as the map keeps.
//!
//! In the first lap the ring ahead of the log holds foreign content. Blocks are therefore zeroed before the log
//! reaches them: a place that holds neither a log block nor zeros is then known to be damaged.

use super::super::error::MapError;
use super::super::page_space::LOG_START;
use super::Meta;
use crate::bug_injection::{self, InjectedBug};
use crate::layout::BLOCK_BYTES;
use crate::maplog::{LogSlot, parse};
use block::{BlockDevice, Stable, View};
use std::ops::Range;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Number of blocks read in one request.
const READ_MAX: u64 = 256;
/// Number of blocks zeroed in one request.
const PREPARE_STEP: u64 = 64;

/// Ring as read at opening.
pub(crate) struct LogImage {
    /// Content of each place of the ring, from its best copy.
    pub(crate) slots: Vec<LogSlot>,
    /// Copies that differ from the best one.
    stale_copies: Vec<StaleCopy>,
}

struct StaleCopy {
    place: u64,
    copy: usize,
    is_damaged: bool,
    content: View,
}

/// Content of one copy of a place.
struct Copy {
    slot: LogSlot,
    content: View,
}

impl Copy {
    fn rank(&self) -> Option<(u64, u32)> {
        match &self.slot {
            LogSlot::Whole(block) => Some((block.sequence, block.life)),
            // A blank copy is older than any block: in the first lap it is the state before the write.
            LogSlot::Blank => Some((0, 0)),
            LogSlot::Damaged => None,
        }
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Meta<D, G> {
    /// Reads all blocks of the log, by place.
    ///
    /// *Errors*: none; an unreadable block counts as damaged.
    pub(crate) async fn read_log(&self) -> LogImage {
        let mut image = LogImage { slots: Vec::with_capacity(self.log_blocks as usize), stale_copies: Vec::new() };
        let (identity, ring) = (self.identity, u64::from(self.log_blocks));
        // The whole ring is read: blocks beyond the end may prove that a block before them is lost.
        while image.slots.len() < self.log_blocks as usize {
            let at = image.slots.len() as u64;
            // Read in portions: the ring of a large map has some MiB, twice where it has two copies.
            let count = (u64::from(self.log_blocks) - at).min(READ_MAX);
            let address = LOG_START + at;
            let rank = |bytes: &[u8]| {
                let block =
                    parse(identity, bytes).filter(|block| (at..at + count).contains(&(block.sequence % ring)))?;
                // The array ranks mirror copies by one number: sequence first, then life.
                Some(block.sequence << 16 | u64::from(block.life & 0xffff))
            };
            let mut first = self.read_copy(address, count, 0, &rank).await.into_iter();
            let second = match self.copies(address) {
                1 => Vec::new(),
                _ => self.read_copy(address, count, 1, &rank).await,
            };
            let mut second = second.into_iter();
            for place in at..at + count {
                let first = first.next().expect("as many were asked for");
                image.add_copies(
                    place,
                    self.copy_of(place, first),
                    second.next().map(|read| self.copy_of(place, read)),
                );
            }
        }
        image
    }

    fn copy_of(&self, place: u64, read: Result<View, MapError>) -> Copy {
        let ring = u64::from(self.log_blocks);
        match read {
            Err(_) => Copy { slot: LogSlot::Damaged, content: View::zeroed(BLOCK) },
            Ok(content) => Copy { slot: LogSlot::of(self.identity, &content, place, ring), content },
        }
    }

    /// Rewrites copies that a power loss or a fault left behind the best one. `live` are the sequence numbers
    /// of the log.
    pub(crate) async fn repair_log(&self, image: &LogImage, live: Range<u64>) {
        let ring = u64::from(self.log_blocks);
        let is_live = |place: u64| (live.start..live.end).any(|sequence| sequence % ring == place);
        for uneven in &image.stale_copies {
            let address = LOG_START + uneven.place;
            let mended = self.write_copy(address, uneven.copy, uneven.content.clone()).await;
            // A copy that a power loss interrupted is no disk fault and is not reported.
            if mended.is_ok() && uneven.is_damaged && is_live(uneven.place) {
                self.report_repaired(address, 1);
            }
        }
        if !image.stale_copies.is_empty() {
            // The result does not matter: each block is intact in the other copy.
            let _ = self.flush().await;
        }
        // After the first lap every place of the ring holds a block of this log.
        let blank = if live.end >= ring { ring } else { prepared_end(live.end) };
        self.prepared.set(blank.min(ring));
    }

    /// Zeroes the log ahead, so that the place of block `sequence` holds a log block or zeros.
    pub(crate) async fn prepare_log(&self, sequence: u64) -> Result<(), MapError> {
        let ring = u64::from(self.log_blocks);
        // One lap at most: after it every place of the ring holds a block of this log.
        let (blank, needed) = (self.prepared.get(), prepared_end(sequence).min(ring));
        if blank < needed {
            let zeros = View::zeroed((needed - blank) as usize * BLOCK);
            let _: Stable = self.write_in_turn(&[(LOG_START + blank, zeros)]).await?;
            self.prepared.set(needed);
        }
        Ok(())
    }

    /// Zeroes the whole ring, durably; its content no longer counts.
    pub(crate) async fn clear_log(&self) -> Result<(), MapError> {
        let zeros = View::zeroed(self.log_blocks as usize * BLOCK);
        let _: Stable = self.write_in_turn(&[(LOG_START, zeros)]).await?;
        self.prepared.set(u64::from(self.log_blocks));
        Ok(())
    }

    /// Writes log blocks from `sequence` on.
    ///
    /// *Shape*: whole blocks, at most the length of the log; their places and the next are prepared.
    /// *Durability*: when it returns.
    pub(crate) async fn write_log(&self, sequence: u64, data: View) -> Result<(), MapError> {
        let (ring, blocks) = (u64::from(self.log_blocks), (data.len() / BLOCK) as u64);
        assert!(data.len().is_multiple_of(BLOCK) && blocks <= ring, "a commit is of whole blocks, within the ring");
        assert!(self.prepared.get() >= (sequence + blocks).min(ring), "blocks of the log go to places that are known");
        let at = sequence % ring;
        let here = ((ring - at) as usize * BLOCK).min(data.len());
        // A commit that reaches the end of the ring continues at its start.
        let mut parts = vec![(LOG_START + at, data.slice(..here))];
        if here < data.len() {
            parts.push((LOG_START, data.slice(here..)));
        }
        if bug_injection::is_injected(InjectedBug::SkipLogFlush) {
            for (address, data) in parts {
                let _: block::Written = self.write(address, data).await?;
            }
            return Ok(());
        }
        self.write_in_turn(&parts).await.map(drop)
    }
}

/// Number of places that are zeroed or written before the log continues with `sequence`.
fn prepared_end(sequence: u64) -> u64 {
    (sequence + 1).next_multiple_of(PREPARE_STEP)
}

impl LogImage {
    fn add_copies(&mut self, place: u64, first: Copy, second: Option<Copy>) {
        let Some(second) = second else { return self.slots.push(first.slot) };
        let (one, other) = (first.rank(), second.rank());
        // With equal ranks the first copy is used and no repair is due.
        let is_second = other > one;
        let (best, behind) = if is_second { (second, first) } else { (first, second) };
        if one != other {
            let is_damaged = behind.rank().is_none();
            self.stale_copies.push(StaleCopy {
                place,
                copy: usize::from(!is_second),
                is_damaged,
                content: best.content,
            });
        }
        self.slots.push(best.slot);
    }
}
