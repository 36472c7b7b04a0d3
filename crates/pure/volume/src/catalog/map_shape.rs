//! How many copies a group keeps of the blocks of maps, and how they lie in its slabs.
//!
//! Where the array cannot tell a wrong block from a right one, or has no other copy of it, the map keeps two. Their distance
//! is a chunk of the array, so that they lie on different members, however many members it has now or later.

use super::GroupRecord;
use crate::layout::BLOCK_BYTES;

/// How the slabs of a group hold blocks of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapShape {
    slab_blocks: u64,
    /// Blocks of one copy that lie beside each other; none where one copy is kept.
    unit: Option<u64>,
}

impl MapShape {
    /// Blocks of a slab.
    pub(crate) fn slab_blocks(self) -> u64 {
        self.slab_blocks
    }

    /// Blocks of one copy that lie beside each other; none where one copy is kept.
    pub(crate) fn unit(self) -> Option<u64> {
        self.unit
    }

    pub(crate) fn of(group: &GroupRecord) -> Self {
        let slab_blocks = u64::from(group.slab_blocks);
        // A protected array finds the right copy by its checksums, where its level has more than one.
        let is_redundant = group.protected && group.level != 0;
        Self {
            slab_blocks,
            unit: (!is_redundant).then(|| unit(slab_blocks, u64::from(group.chunk_bytes / BLOCK_BYTES))),
        }
    }

    /// Blocks of maps that a slab holds.
    pub(crate) fn slab_addresses(self) -> u64 {
        self.unit.map_or(self.slab_blocks, |unit| self.slab_blocks / (2 * unit) * unit)
    }
}

/// The longest unit of at most a chunk that fills a slab in pairs.
fn unit(slab_blocks: u64, chunk_blocks: u64) -> u64 {
    let mut unit = chunk_blocks.max(1).next_power_of_two();
    while unit > 1 && !slab_blocks.is_multiple_of(2 * unit) {
        unit /= 2;
    }
    unit
}
