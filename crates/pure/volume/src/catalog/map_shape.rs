//! Redundancy and layout of map blocks in the slabs of a group (ADR 0016).
//!
//! The map keeps two copies where the array cannot tell a wrong block from a right one, or has no other copy.
//! They are one chunk apart, so that they are on different members, however many members the array has now or
//! later.

use super::GroupRecord;
use crate::layout::BLOCK_BYTES;

/// Layout of map blocks in the slabs of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapShape {
    slab_blocks: u64,
    /// Number of adjacent blocks of one copy; none where one copy is kept.
    unit: Option<u64>,
}

impl MapShape {
    /// Slab size in blocks.
    pub(crate) fn slab_blocks(self) -> u64 {
        self.slab_blocks
    }

    /// Number of adjacent blocks of one copy; none where one copy is kept.
    pub(crate) fn unit(self) -> Option<u64> {
        self.unit
    }

    pub(crate) fn of(group: &GroupRecord) -> Self {
        let slab_blocks = u64::from(group.slab_blocks);
        // A protected array of a redundant level finds the right copy by its checksums.
        let is_redundant = group.protected && group.level != 0;
        Self {
            slab_blocks,
            unit: (!is_redundant).then(|| unit(slab_blocks, u64::from(group.chunk_bytes / BLOCK_BYTES))),
        }
    }

    /// Number of map blocks that a slab holds.
    pub(crate) fn slab_addresses(self) -> u64 {
        self.unit.map_or(self.slab_blocks, |unit| self.slab_blocks / (2 * unit) * unit)
    }
}

/// Largest power-of-two unit, at most a chunk, of which a slab holds a whole number of pairs.
fn unit(slab_blocks: u64, chunk_blocks: u64) -> u64 {
    let mut unit = chunk_blocks.max(1).next_power_of_two();
    // Pairs must fill the slab, or the blocks of the rest would have no second copy.
    while unit > 1 && !slab_blocks.is_multiple_of(2 * unit) {
        unit /= 2;
    }
    unit
}
