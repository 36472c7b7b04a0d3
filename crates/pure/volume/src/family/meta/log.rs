//! The map log on its slabs: a ring of blocks, each in as many copies as the map keeps.
//!
//! In the first lap nothing was ever written where the log goes on, and what lies there is another's. So blocks are zeroed
//! before the log comes near them: what is neither a block nor zeros is then known to be damaged.

use super::super::error::MapError;
use super::super::page_space::LOG_START;
use super::Meta;
use crate::layout::BLOCK_BYTES;
use crate::maplog::{LogSlot, parse};
use crate::sabotage::{self, Sabotage};
use block::{BlockDevice, Stable, View};
use std::ops::Range;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Blocks that are read at once.
const READ_MAX: u64 = 256;
/// Blocks that are zeroed at once.
const BLANK_STEP: u64 = 64;

/// The ring as it was found.
pub(crate) struct LogImage {
    /// What each place of the ring holds, as the best copy has it.
    pub(crate) slots: Vec<LogSlot>,
    /// Copies that are not like the best one.
    uneven: Vec<Uneven>,
}

struct Uneven {
    place: u64,
    copy: usize,
    is_damaged: bool,
    right: View,
}

/// What one copy of a place holds.
struct Copy {
    slot: LogSlot,
    content: View,
}

impl Copy {
    fn rank(&self) -> Option<(u64, u32)> {
        match &self.slot {
            LogSlot::Whole(block) => Some((block.sequence, block.life)),
            LogSlot::Blank => Some((0, 0)),
            LogSlot::Damaged => None,
        }
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Meta<D, G> {
    /// All blocks of the log, by their places.
    ///
    /// *Errors*: none of a block that cannot be read, which is damaged.
    pub(crate) async fn read_log(&self) -> LogImage {
        let mut image = LogImage { slots: Vec::with_capacity(self.log_blocks as usize), uneven: Vec::new() };
        let (identity, ring) = (self.identity, u64::from(self.log_blocks));
        while image.slots.len() < self.log_blocks as usize {
            let at = image.slots.len() as u64;
            let count = (u64::from(self.log_blocks) - at).min(READ_MAX);
            let address = LOG_START + at;
            let rank = |bytes: &[u8]| {
                let block =
                    parse(identity, bytes).filter(|block| (at..at + count).contains(&(block.sequence % ring)))?;
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
                image.take_in(place, self.copy_of(place, first), second.next().map(|read| self.copy_of(place, read)));
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

    /// Copies that a power cut or a fault left behind the best one are like it. `live` are the sequence numbers of the log.
    pub(crate) async fn mend_log(&self, image: &LogImage, live: Range<u64>) {
        let ring = u64::from(self.log_blocks);
        let is_live = |place: u64| (live.start..live.end).any(|sequence| sequence % ring == place);
        for uneven in &image.uneven {
            let address = LOG_START + uneven.place;
            let mended = self.write_copy(address, uneven.copy, uneven.right.clone()).await;
            // What a power cut interrupted is no fault of a disk.
            if mended.is_ok() && uneven.is_damaged && is_live(uneven.place) {
                self.tell_repaired(address, 1);
            }
        }
        if !image.uneven.is_empty() {
            // The blocks are whole in one copy in any case.
            let _ = self.flush().await;
        }
        let blank = if live.end >= ring { ring } else { blank_before(live.end) };
        self.blank.set(blank.min(ring));
    }

    /// Where block `sequence` of the log will lie, what is there is known: a block, or zeros.
    pub(crate) async fn prepare_log(&self, sequence: u64) -> Result<(), MapError> {
        let ring = u64::from(self.log_blocks);
        let (blank, needed) = (self.blank.get(), blank_before(sequence).min(ring));
        if blank < needed {
            let zeros = View::zeroed((needed - blank) as usize * BLOCK);
            let _: Stable = self.write_in_turn(&[(LOG_START + blank, zeros)]).await?;
            self.blank.set(needed);
        }
        Ok(())
    }

    /// The whole ring is zeros, durably. Nothing in it counts any more.
    pub(crate) async fn clear_log(&self) -> Result<(), MapError> {
        let zeros = View::zeroed(self.log_blocks as usize * BLOCK);
        let _: Stable = self.write_in_turn(&[(LOG_START, zeros)]).await?;
        self.blank.set(u64::from(self.log_blocks));
        Ok(())
    }

    /// Writes blocks of the log from `sequence` on.
    ///
    /// *Shape*: whole blocks, at most as many as the log has; its places are prepared, and the next. *Durability*: when it
    /// returns.
    pub(crate) async fn write_log(&self, sequence: u64, data: View) -> Result<(), MapError> {
        let (ring, blocks) = (u64::from(self.log_blocks), (data.len() / BLOCK) as u64);
        assert!(data.len().is_multiple_of(BLOCK) && blocks <= ring, "a commit is of whole blocks, within the ring");
        assert!(self.blank.get() >= (sequence + blocks).min(ring), "blocks of the log go to places that are known");
        let at = sequence % ring;
        let here = ((ring - at) as usize * BLOCK).min(data.len());
        let mut parts = vec![(LOG_START + at, data.slice(..here))];
        if here < data.len() {
            parts.push((LOG_START, data.slice(here..)));
        }
        if sabotage::is(Sabotage::SkipLogFlush) {
            for (address, data) in parts {
                let _: block::Written = self.write(address, data).await?;
            }
            return Ok(());
        }
        self.write_in_turn(&parts).await.map(drop)
    }
}

/// Places before this are zeroed or written when the log goes on with `sequence`.
fn blank_before(sequence: u64) -> u64 {
    (sequence + 1).next_multiple_of(BLANK_STEP)
}

impl LogImage {
    fn take_in(&mut self, place: u64, first: Copy, second: Option<Copy>) {
        let Some(second) = second else { return self.slots.push(first.slot) };
        let (one, other) = (first.rank(), second.rank());
        let is_second = other > one;
        let (best, behind) = if is_second { (second, first) } else { (first, second) };
        if one != other {
            let is_damaged = behind.rank().is_none();
            self.uneven.push(Uneven { place, copy: usize::from(!is_second), is_damaged, right: best.content });
        }
        self.slots.push(best.slot);
    }
}
