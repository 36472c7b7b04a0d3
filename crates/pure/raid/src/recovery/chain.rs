//! Chain of log batches from the tail on, also past batches that have decayed.
//!
//! One batch is written at a time, and the next one starts when it is stable. So a batch that is not whole was torn
//! by a power cut and never acknowledged, unless a later batch of the epoch is there: then it had been stable, and
//! has decayed since. As much as can be read of it is applied. If no copy of its table can be read, the blocks it
//! changed are unknown: that is a hole, and the array is not served before its owner accepts it.
//!
//! A power cut leaves no block that the medium cannot read. So the last batch counts as decayed, too, where every
//! member that it went to returns a medium error for what is missing. A member that reads something else there never
//! had the batch: it was not stable.

use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::MemberSet;
use crate::on_disk::batch::Record;
use crate::recovery::Recovery;
use crate::redo::ring::Head;
use block::{BlockDevice, Extent, View};
use std::ops::Range;

/// Batch whose table was found.
pub(super) struct Batch {
    pub(super) number: u64,
    /// First block, counted in the ring.
    pub(super) at: u64,
    pub(super) blocks: u64,
    /// Blocks of header and records, before the first image.
    pub(super) table_blocks: u64,
    pub(super) records: Vec<Record>,
    /// For each image a member that has it as logged; `None` where no member has.
    pub(super) images: Vec<Option<u16>>,
    /// Members whose copy was damaged.
    pub(super) damaged: MemberSet,
    /// True when every missing image is a medium error on all members that the batch went to.
    pub(super) is_unreadable: bool,
}

impl Batch {
    pub(super) fn end(&self) -> u64 {
        self.at + self.blocks
    }

    /// True when every image was found.
    pub(super) fn is_whole(&self) -> bool {
        self.images.iter().all(Option::is_some)
    }

    /// Location of an image, given in blocks of the batch: the member, and the block of the ring.
    pub(super) fn place_of(&self, image: u64) -> Option<(u16, u64)> {
        let at = usize::try_from(image.checked_sub(self.table_blocks)?).ok()?;
        Some(((*self.images.get(at)?)?, self.at + image))
    }
}

/// Batch and its bytes, assembled from all members.
pub(super) struct Found {
    pub(super) batch: Batch,
    pub(super) settled: u64,
    pub(super) bytes: View,
}

/// All batches from the tail on.
pub(super) struct Chain {
    pub(super) batches: Vec<Batch>,
    /// In-place writes of batches before this number had ended.
    pub(super) settled: u64,
    /// Position of the next batch.
    pub(super) head: Head,
    /// Bytes of the last batch as it was read whole; a second read might fail.
    pub(super) last: Option<View>,
    /// Ranges of batch numbers that had been stable and whose tables cannot be read.
    pub(super) lost_batches: Vec<Range<u64>>,
}

impl Chain {
    fn take(&mut self, found: Found, ring_blocks: u64) {
        let Found { batch, settled, bytes } = found;
        // Only a whole batch may be written again by `relog`.
        self.last = batch.is_whole().then_some(bytes);
        self.settled = self.settled.max(settled);
        self.head = Head { number: batch.number + 1, at: batch.end() % ring_blocks };
        self.batches.push(batch);
    }
}

impl<D: BlockDevice + 'static> Recovery<'_, D> {
    /// Follows the chain from `tail` until no later batch of the epoch is found.
    pub(super) async fn follow(&self, epoch: u64, tail: Head) -> Chain {
        let mut chain = Chain { batches: Vec::new(), settled: 0, head: tail, last: None, lost_batches: Vec::new() };
        loop {
            let Head { number, at } = chain.head;
            let mut found = self.find(epoch, number, at).await;
            if found.is_none() && at != 0 {
                // A batch that does not fit before the end of the ring starts at block 0.
                found = self.find(epoch, number, 0).await;
            }
            // Whole batches are the normal case and need no search behind them.
            if let Some(found) = found.take_if(|found| found.batch.is_whole()) {
                chain.take(found, self.array.log.state.ring.blocks);
                continue;
            }
            // Not whole: torn or decayed, which only a later batch can tell.
            let mut behind = self.search_later(epoch, chain.head).await;
            if found.is_none()
                && let Some(found_table) = behind.remove(&number)
            {
                // The second copy of the table survives.
                found = Some(self.assemble(found_table, MemberSet::NONE).await);
            }
            let Some((&next, found_table)) = behind.range(number + 1..).next() else {
                // Torn, unless it is complete or its blocks are unreadable: then it was the last batch.
                match found {
                    Some(found) if found.batch.is_whole() || found.batch.is_unreadable => {
                        chain.take(found, self.array.log.state.ring.blocks);
                        continue;
                    }
                    // No member can read the table, and a power loss leaves no such block.
                    None if self.is_table_unreadable(number, at).await => {
                        chain.lost_batches.push(number..number + 1);
                    }
                    _ => {}
                }
                return chain;
            };
            match found {
                Some(found) => chain.take(found, self.array.log.state.ring.blocks),
                None => {
                    // All up to the next readable one are lost, because nothing names the blocks that they changed.
                    chain.lost_batches.push(number..next);
                    chain.head = Head { number: next, at: found_table.header.at };
                }
            }
        }
    }

    /// Reports damaged copies of batches. The last batch is left out: a power cut may have torn it.
    pub(super) fn report_log(&self, chain: &Chain) {
        let before_last = chain.batches.iter().filter(|batch| batch.number + 1 < chain.head.number);
        for batch in before_last {
            let outcome = if batch.is_whole() { Outcome::Healed } else { Outcome::Served };
            for member in batch.damaged.iter() {
                let extent = Extent::new(batch.at, batch.blocks);
                self.array.checksums.pages.report(Finding::new(member, extent, FindingKind::Log, outcome));
            }
        }
    }
}
