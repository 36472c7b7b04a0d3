//! Address layout of map blocks in the metadata slabs.
//!
//! Addresses count through all slabs of the map. Where a group keeps two copies ([`MapShape`]), a slab is cut
//! into pairs of units: the first copy of a block is in the first unit of a pair, the second at the same place
//! of the second unit.

use crate::catalog::MapShape;

/// Run of slabs with the address of its first block.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetaSlabs {
    pub(super) address: u64,
    pub(super) group: u16,
    /// First block in the group.
    pub(super) start: u64,
    pub(super) slabs: u64,
    pub(super) shape: MapShape,
}

/// Location of a map block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Located {
    pub(super) group: u16,
    pub(super) first: u64,
    /// Second copy, where there is one.
    pub(super) second: Option<u64>,
    /// Number of contiguous blocks from here on in each copy; zero for an address beyond all slabs.
    pub(super) run: u64,
}

impl Located {
    /// Location of copy 0 or 1.
    pub(super) fn copy(self, copy: usize) -> Option<u64> {
        if copy == 0 { Some(self.first) } else { self.second }
    }
}

impl MetaSlabs {
    /// Number of addresses in the run.
    pub(super) fn addresses(&self) -> u64 {
        self.slabs * self.shape.slab_addresses()
    }

    /// Locates the block at `address`, which is not before the run.
    pub(super) fn locate(&self, address: u64) -> Located {
        let inside = address - self.address;
        let left = self.addresses().saturating_sub(inside);
        let group = self.group;
        // One copy: addresses follow each other as the blocks of the slabs do.
        let Some(unit) = self.shape.unit() else {
            return Located { group, first: self.start + inside, second: None, run: left };
        };
        let of_slab = self.shape.slab_addresses();
        let (slab, inside) = (inside / of_slab, inside % of_slab);
        // See ADR 0016: the copies are one unit apart, on consecutive chunks and thus on different members.
        let (pair, row) = (inside / unit, inside % unit);
        let first = self.start + slab * self.shape.slab_blocks() + 2 * unit * pair + row;
        Located { group, first, second: Some(first + unit), run: left.min(unit - row) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{GroupRecord, GroupRole};
    use block::Blocks;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn group(level: u8, slab_blocks: u64, chunk_blocks: u64) -> GroupRecord {
        GroupRecord {
            id: crate::Uuid::nil(),
            role: GroupRole::Data,
            level,
            clean: true,
            protected: false,
            chunk_bytes: chunk_blocks as u32 * 4096,
            member_blocks: Blocks(1 << 20),
            slab_blocks: slab_blocks as u32,
            slabs: 9,
            members: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn map_blocks_have_two_places_of_their_own_on_different_members(
            slab_blocks in 8u64..300, chunk in 0u32..7, slabs in 1u64..4, members in 2u64..7,
        ) {
            let chunk_blocks = 1u64 << chunk;
            let shape = MapShape::of(&group(0, slab_blocks, chunk_blocks));
            let run = MetaSlabs { address: 100, group: 3, start: 5 * slab_blocks, slabs, shape };
            let mut seen = BTreeSet::new();
            for address in 100..100 + run.addresses() {
                let located = run.locate(address);
                let second = located.second.unwrap();
                prop_assert!(located.run > 0 && seen.insert(located.first) && seen.insert(second));
                if shape.unit() == Some(chunk_blocks) && slab_blocks.is_multiple_of(chunk_blocks) {
                    let member = |block: u64| block / chunk_blocks % members;
                    prop_assert_ne!(member(located.first), member(second));
                }
            }
            prop_assert!(seen.iter().all(|block| (5 * slab_blocks..(5 + slabs) * slab_blocks).contains(block)));
            prop_assert!(seen.len() as u64 + 2 * chunk_blocks * slabs > slabs * slab_blocks);
            prop_assert_eq!(run.locate(100 + run.addresses()).run, 0);
        }
    }

    #[test]
    fn map_blocks_of_one_copy_follow_each_other() {
        let shape = MapShape::of(&GroupRecord { protected: true, ..group(5, 256, 16) });
        let run = MetaSlabs { address: 0, group: 0, start: 512, slabs: 2, shape };
        assert_eq!(run.locate(300), Located { group: 0, first: 812, second: None, run: 212 });
    }
}
