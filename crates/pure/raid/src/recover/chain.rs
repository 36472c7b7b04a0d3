//! Following the log: from the tail on, as long as some lane has the next batch whole.

use crate::array::Core;
use crate::geometry::BLOCK_BYTES;
use crate::protect::Protected;
use crate::redo::batch::{Header, Kind, Record, parse, parse_header};
use crate::redo::ring::Head;
use crate::sabotage::{self, Bug};
use block::{BlockDevice, Extent, View};
use futures_util::future::join_all;
use simd::crc32c::crc32c;
use std::rc::Rc;

/// A batch that was found whole.
pub(super) struct Batch {
    pub(super) number: u64,
    /// Block of the ring.
    pub(super) at: u64,
    pub(super) blocks: u64,
    /// Who has it.
    pub(super) lane: u16,
    pub(super) records: Vec<Record>,
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
}

impl<D: BlockDevice + 'static> Core<D> {
    pub(super) async fn follow(self: &Rc<Self>, protected: &Protected, epoch: u64, tail: Head) -> Chain {
        let mut chain = Chain { batches: Vec::new(), settled: 0, head: tail, last: None };
        loop {
            let Head { number, at } = chain.head;
            let mut found = self.find(protected, epoch, number, at).await;
            if found.is_none() && at != 0 {
                // It did not fit before the end of the ring.
                found = self.find(protected, epoch, number, 0).await;
            }
            let Some((header, batch, bytes)) = found else { return chain };
            chain.last = Some(bytes);
            chain.settled = chain.settled.max(header.settled);
            chain.head = Head { number: number + 1, at: batch.end() % protected.ring.blocks };
            chain.batches.push(batch);
        }
    }

    async fn find(
        self: &Rc<Self>,
        protected: &Protected,
        epoch: u64,
        number: u64,
        at: u64,
    ) -> Option<(Header, Batch, View)> {
        let first = Extent::new(protected.area.ring.start.0 + at, 1);
        let members = self.in_use(protected);
        let read = |member| async move { (member, self.read_beside_data(member, first).await) };
        for (lane, block) in join_all(members.iter().map(read)).await {
            let Some(header) = block.ok().and_then(|rope| parse_header(&rope.into_view())) else { continue };
            let is_next = header.id == protected.id
                && header.number == number
                && (header.epoch == epoch || sabotage::is(Bug::AnyEpoch))
                && at + u64::from(header.blocks) <= protected.ring.blocks;
            if !is_next {
                continue;
            }
            let whole = Extent { start: first.start, len: block::Blocks(u64::from(header.blocks)) };
            let Ok(rope) = self.read_beside_data(lane, whole).await else { continue };
            let bytes = rope.into_view();
            if let Some(records) = self.whole(protected, &bytes, &header) {
                let batch = Batch { number, at, blocks: u64::from(header.blocks), lane, records };
                return Some((header, batch, bytes));
            }
        }
        None
    }

    /// The records of a batch whose table and images are all there.
    fn whole(&self, protected: &Protected, bytes: &[u8], header: &Header) -> Option<Vec<Record>> {
        let records = parse(bytes, header)?;
        for record in &records {
            let end = record.block.checked_add(record.count)?;
            if record.kind == Kind::Moved {
                self.moving.as_ref()?;
                continue;
            }
            if record.member >= self.width() || end > self.layout.member_blocks().0 {
                return None;
            }
            if !matches!(record.kind, Kind::Images | Kind::SameImages) || sabotage::is(Bug::TornBatch) {
                continue;
            }
            let first = usize::try_from(record.image?).ok()? * BLOCK_BYTES as usize;
            let images = bytes.get(first..)?.chunks(BLOCK_BYTES as usize);
            let are_right = (record.block..)
                .zip(&record.new)
                .zip(images)
                .all(|((block, entry), image)| entry.matches(protected.tie(record.member, block), crc32c(image)));
            if !are_right {
                return None;
            }
        }
        Some(records)
    }
}
