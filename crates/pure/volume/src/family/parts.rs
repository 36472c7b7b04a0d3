//! A request cut into what it does to each granule.

use super::{Family, MapError};
use crate::layout::BLOCK_BYTES;
use crate::tree::{Damage, Place};
use block::{BlockDevice, Extent, Rope, View, Written};
use futures_util::future::join_all;
use smallvec::SmallVec;

/// Stands for the group of a place that is lost.
const GROUP_LOST: u16 = u16::MAX;

/// What a request covers of one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) granule: u32,
    /// Blocks of the granule before it.
    pub(crate) from: u64,
    pub(crate) blocks: u64,
    /// Blocks of the request before it.
    pub(crate) at: u64,
}

pub(crate) type Parts = SmallVec<[Part; 4]>;

/// The parts of `extent`, in blocks of 4096 bytes.
pub(crate) fn parts(extent: Extent, granule_blocks: u32) -> Parts {
    let of_granule = u64::from(granule_blocks);
    let mut parts = Parts::new();
    let mut block = extent.start.0;
    while block < extent.end().0 {
        let (granule, from) = (block / of_granule, block % of_granule);
        let blocks = (of_granule - from).min(extent.end().0 - block);
        let granule = u32::try_from(granule).expect("a volume has at most 2^32 granules");
        parts.push(Part { granule, from, blocks, at: block - extent.start.0 });
        block += blocks;
    }
    parts
}

impl Part {
    pub(crate) fn is_whole(&self, granule_blocks: u32) -> bool {
        self.blocks == u64::from(granule_blocks)
    }

    /// Its bytes of the request's.
    pub(crate) fn of(&self, data: &View) -> View {
        let from = bytes(self.at);
        data.slice(from..from + bytes(self.blocks))
    }
}

/// How many bytes blocks have.
pub(crate) fn bytes(blocks: u64) -> usize {
    usize::try_from(blocks * u64::from(BLOCK_BYTES)).expect("a request fits in memory")
}

/// Blocks of a group that follow each other, and the blocks of the request that they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// None where nothing is mapped.
    pub(crate) place: Option<(u16, u64)>,
    pub(crate) at: u64,
    pub(crate) blocks: u64,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// The group of a place, and the first of its blocks there.
    pub(crate) fn locate(&self, place: Place) -> (u16, u64) {
        if place == Place::LOST {
            return (GROUP_LOST, 0);
        }
        let group = place.group();
        let slab = u64::from(place.slab() & 0x00ff_ffff) * u64::from(self.slab_blocks.borrow()[usize::from(group)]);
        (group, slab + u64::from(place.index()) * u64::from(self.granule_blocks))
    }

    /// The runs of parts that lie where `places` say.
    pub(crate) fn runs(&self, parts: impl Iterator<Item = (Part, Option<Place>)>) -> SmallVec<[Run; 4]> {
        let mut runs: SmallVec<[Run; 4]> = SmallVec::new();
        for (part, place) in parts {
            let place = place.map(|place| self.locate(place)).map(|(group, start)| (group, start + part.from));
            let run = Run { place, at: part.at, blocks: part.blocks };
            match runs.last_mut() {
                Some(last) if last.goes_on_with(&run) => last.blocks += run.blocks,
                _ => runs.push(run),
            }
        }
        runs
    }

    pub(crate) async fn read_run(&self, run: Run) -> Result<Rope, MapError> {
        let Some((group, start)) = run.place else { return Ok(View::zeroed(bytes(run.blocks)).into()) };
        self.read_place(group, start, run.blocks).await
    }

    /// What was written to blocks of a group.
    pub(crate) async fn read_place(&self, group: u16, start: u64, blocks: u64) -> Result<Rope, MapError> {
        if group == GROUP_LOST {
            return Err(Damage("what the blocks held is lost").into());
        }
        // As it is now: whoever has the key replaced has nothing read meanwhile that matters.
        let cover = self.cover();
        let read = self.shared.gate(group).device().read(Extent::new(start, blocks)).await;
        Ok(cover.lift(group, start, read.map_err(|error| MapError::Group { group, error })?)?)
    }

    /// Writes to blocks of a group; `is_fresh` when nobody needs what they hold.
    pub(crate) async fn write_run(
        &self,
        (group, start): (u16, u64),
        data: View,
        is_fresh: bool,
    ) -> Result<(), MapError> {
        let _writing = self.shared.begin_write(group).await.map_err(|_| MapError::CatalogLost)?;
        let data = self.cover().lay(group, start, data)?;
        let device = self.shared.gate(group).device();
        let blocks = data.len() as u64 / u64::from(BLOCK_BYTES);
        let stripe = u64::from(device.geometry().optimal_bytes / BLOCK_BYTES).max(1);
        let (first, end) = (start.next_multiple_of(stripe), (start + blocks) / stripe * stripe);
        let lba = block::Lba;
        self.soil(group);
        let written = if !is_fresh || first >= end {
            device.write(lba(start), data).await.map(drop)
        } else {
            // Whole stripes are written without reading; what is before and behind them is not.
            let cut = |from: u64, to: u64| data.slice(bytes(from - start)..bytes(to - start));
            let edges = [(start, first), (end, start + blocks)].into_iter().filter(|(from, to)| from < to);
            let edges = join_all(edges.map(|(from, to)| device.write(lba(from), cut(from, to))));
            let (whole, edges) =
                futures_util::future::join(device.write_fresh(lba(first), cut(first, end)), edges).await;
            edges.into_iter().chain([whole]).try_for_each(|part| part.map(|written: Written| drop(written)))
        };
        // Again, for a flush may have passed while the write was under way.
        self.soil(group);
        written.map_err(|error| MapError::Group { group, error })
    }
}

impl Run {
    fn goes_on_with(&self, next: &Self) -> bool {
        let beside = match (self.place, next.place) {
            (Some((group, start)), Some(next)) => (group, start + self.blocks) == next,
            (None, None) => true,
            _ => false,
        };
        beside && self.at + self.blocks == next.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_request_in_order() {
        let parts = parts(Extent::new(14, 20), 16);
        let shapes: Vec<_> = parts.iter().map(|part| (part.granule, part.from, part.blocks, part.at)).collect();
        assert_eq!(shapes, [(0, 14, 2, 0), (1, 0, 16, 2), (2, 0, 2, 18)]);
        assert!(parts[1].is_whole(16) && !parts[0].is_whole(16));
    }
}
