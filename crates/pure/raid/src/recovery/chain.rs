//! Following the log: from the tail on, as long as there is a next batch, and behind batches that have decayed.
//!
//! One batch is written at a time, and the next one begins when it is stable. So a batch that is not whole was torn by a power
//! cut and never acknowledged, unless a later batch of the epoch is there: then it had been stable, and has decayed since. What
//! its table names is applied as far as it can be had. If no copy of its table can be read, nobody knows what it changed:
//! that is a hole, and the array is not served before its owner says so. A power cut leaves no block that the medium does not give
//! back, so the last batch counts as well where no member that it went to gives back what is missing. One that does, and has
//! something else there, never had it: the batch was not stable.

use crate::finding::{Finding, FindingKind, Outcome};
use crate::geometry::MemberSet;
use crate::on_disk::batch::Record;
use crate::recovery::Recovery;
use crate::redo::ring::Head;
use block::{BlockDevice, Extent, View};
use std::ops::Range;

/// A batch whose table was found.
pub(super) struct Batch {
    pub(super) number: u64,
    /// Block of the ring.
    pub(super) at: u64,
    pub(super) blocks: u64,
    /// Blocks before the first image.
    pub(super) table_blocks: u64,
    pub(super) records: Vec<Record>,
    /// Who has each image as it was logged.
    pub(super) images: Vec<Option<u16>>,
    /// Whose copy was damaged.
    pub(super) damaged: MemberSet,
    /// True when no member that the batch went to gives back the block of an image that cannot be had.
    pub(super) is_unreadable: bool,
}

impl Batch {
    pub(super) fn end(&self) -> u64 {
        self.at + self.blocks
    }

    /// True when every image can be had.
    pub(super) fn is_whole(&self) -> bool {
        self.images.iter().all(Option::is_some)
    }

    /// Where an image, counted in blocks of the batch, can be had: on which member, at which block of the ring.
    pub(super) fn place_of(&self, image: u64) -> Option<(u16, u64)> {
        let at = usize::try_from(image.checked_sub(self.table_blocks)?).ok()?;
        Some(((*self.images.get(at)?)?, self.at + image))
    }
}

/// A batch, and its bytes put together from all members.
pub(super) struct Found {
    pub(super) batch: Batch,
    pub(super) settled: u64,
    pub(super) bytes: View,
}

/// The batches from the tail on.
pub(super) struct Chain {
    pub(super) batches: Vec<Batch>,
    /// The writes of batches before this one had ended.
    pub(super) settled: u64,
    /// Where the log goes on.
    pub(super) head: Head,
    /// The last batch as it was found whole: read again, it might not be.
    pub(super) last: Option<View>,
    /// Batches that had been stable and of which no table can be read, by their numbers.
    pub(super) holes: Vec<Range<u64>>,
}

impl Chain {
    fn take(&mut self, found: Found, ring_blocks: u64) {
        let Found { batch, settled, bytes } = found;
        self.last = batch.is_whole().then_some(bytes);
        self.settled = self.settled.max(settled);
        self.head = Head { number: batch.number + 1, at: batch.end() % ring_blocks };
        self.batches.push(batch);
    }
}

impl<D: BlockDevice + 'static> Recovery<'_, D> {
    pub(super) async fn follow(&self, epoch: u64, tail: Head) -> Chain {
        let mut chain = Chain { batches: Vec::new(), settled: 0, head: tail, last: None, holes: Vec::new() };
        loop {
            let Head { number, at } = chain.head;
            let mut found = self.find(epoch, number, at).await;
            if found.is_none() && at != 0 {
                // It did not fit before the end of the ring.
                found = self.find(epoch, number, 0).await;
            }
            if let Some(found) = found.take_if(|found| found.batch.is_whole()) {
                chain.take(found, self.array.log.state.ring.blocks);
                continue;
            }
            let mut behind = self.look_behind(epoch, chain.head).await;
            if found.is_none()
                && let Some(seen) = behind.remove(&number)
            {
                // Its second table is left.
                found = Some(self.gather(seen, MemberSet::NONE).await);
            }
            let Some((&next, seen)) = behind.range(number + 1..).next() else {
                // Torn, unless all of it is there or cannot be read: it was the last.
                match found {
                    Some(found) if found.batch.is_whole() || found.batch.is_unreadable => {
                        chain.take(found, self.array.log.state.ring.blocks);
                        continue;
                    }
                    None if self.is_table_unreadable(number, at).await => {
                        chain.holes.push(number..number + 1);
                    }
                    _ => {}
                }
                return chain;
            };
            match found {
                Some(found) => chain.take(found, self.array.log.state.ring.blocks),
                None => {
                    chain.holes.push(number..next);
                    chain.head = Head { number: next, at: seen.header.at };
                }
            }
        }
    }

    /// Tells of copies of batches that have decayed; of the last one it is not known whether a power cut tore it.
    pub(super) fn tell_of_log(&self, chain: &Chain) {
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
