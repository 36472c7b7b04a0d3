//! Splitting of a request into parts, one for each granule.

use crate::layout::BLOCK_BYTES;
use block::{Extent, View};
use smallvec::SmallVec;

/// Part of a request within one granule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) granule: u32,
    /// Offset in the granule, in blocks.
    pub(crate) from: u64,
    pub(crate) blocks: u64,
    /// Offset in the request, in blocks.
    pub(crate) at: u64,
}

pub(crate) type Parts = SmallVec<[Part; 4]>;

/// Splits `extent`, in blocks of 4096 bytes, at granule boundaries.
pub(crate) fn parts(extent: Extent, granule_blocks: u32) -> Parts {
    let of_granule = u64::from(granule_blocks);
    let mut parts = Parts::new();
    let mut block = extent.start.0;
    while block < extent.end().0 {
        let (granule, from) = (block / of_granule, block % of_granule);
        let blocks = (of_granule - from).min(extent.end().0 - block);
        // A volume has at most 64 TiB, and the smallest granule 16 KiB.
        let granule = u32::try_from(granule).expect("a volume has at most 2^32 granules");
        parts.push(Part { granule, from, blocks, at: block - extent.start.0 });
        block += blocks;
    }
    assert_eq!(block, extent.end().0, "the parts of a request end where it does");
    parts
}

impl Part {
    pub(crate) fn is_whole(&self, granule_blocks: u32) -> bool {
        self.blocks == u64::from(granule_blocks)
    }

    /// Bytes of the part in the data of the request.
    pub(crate) fn of(&self, data: &View) -> View {
        let from = bytes(self.at);
        data.slice(from..from + bytes(self.blocks))
    }
}

/// Number of bytes in `blocks` blocks.
pub(crate) fn bytes(blocks: u64) -> usize {
    usize::try_from(blocks * u64::from(BLOCK_BYTES)).expect("a request fits in memory")
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
