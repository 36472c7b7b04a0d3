//! Areas of a member of a protected array: anchors, ring, doublewrite area, pages, data.

use crate::error::ArrayError;
use block::{Blocks, Extent, Lba};

/// Blocks of an anchor slot; there are two slots, at the start of a member.
pub(crate) const ANCHOR_BLOCKS: u64 = 4;
/// Entries of a page: a header of 64 bytes and 504 entries of 8 bytes fill one block.
pub(crate) const PAGE_ENTRIES: u64 = 504;
/// Bounds of the default ring size: 2 MiB and 256 MiB.
const RING_BLOCKS: std::ops::RangeInclusive<u64> = 512..=65_536;
/// Divisor: the doublewrite area has an eighth of the ring's blocks.
const DOUBLEWRITE_PART: u64 = 8;
/// Upper bound of the doublewrite area; all of it is read at every opening.
const DOUBLEWRITE_BLOCKS_MAX: u64 = 256;
/// Smallest ring: it holds the largest record of the smallest write four times.
pub(crate) const RING_BLOCKS_MIN: u64 = 32;

/// The areas of each member of a protected array, in its blocks; the same on all of them.
///
/// *Source*: docs/raid.md, "Protected arrays".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// Ring of the redo log.
    pub ring: Extent,
    /// Doublewrite area: pages are written here before their homes are overwritten.
    pub doublewrite: Extent,
    /// Checksum pages of the member itself (copy A).
    pub pages_a: Extent,
    /// Second copy of the pages of the member before (copy B).
    pub pages_b: Extent,
    /// Data area: the member's chunks of the stripes.
    pub data: Extent,
}

/// Default size of the ring, in blocks, for members of this size.
#[must_use]
pub fn ring_blocks(member_blocks: Blocks) -> u64 {
    (member_blocks.0 / 256).clamp(*RING_BLOCKS.start(), *RING_BLOCKS.end())
}

impl Area {
    /// Lays out members of `member_blocks` blocks with a ring of `ring_blocks` blocks.
    ///
    /// *Errors*: `TooSmall` when not one chunk fits.
    pub fn new(member_blocks: Blocks, chunk_blocks: u64, ring_blocks: u64) -> Result<Self, ArrayError> {
        let too_small = ArrayError::TooSmall { blocks: member_blocks.0, chunk_blocks };
        let ring = Extent::new(2 * ANCHOR_BLOCKS, ring_blocks);
        let doublewrite = Extent::new(ring.end().0, (ring_blocks / DOUBLEWRITE_PART).min(DOUBLEWRITE_BLOCKS_MAX));
        let rest = member_blocks.0.checked_sub(doublewrite.end().0).ok_or(too_small)?;
        // Each page takes two blocks, one for each copy. The bound is at most a few chunks too high.
        // In 128 bits, because the blocks of a member times the entries of a page can exceed 64.
        let bound = u64::try_from(u128::from(rest) * u128::from(PAGE_ENTRIES) / u128::from(PAGE_ENTRIES + 2))
            .expect("a part of the whole");
        let mut data_blocks = bound / chunk_blocks * chunk_blocks;
        // Steps down by chunks: whole pages and the alignment of the data can cost more than the bound assumes.
        while data_blocks > 0 && ring_blocks >= RING_BLOCKS_MIN {
            let pages = data_blocks.div_ceil(PAGE_ENTRIES);
            let pages_a = Extent::new(doublewrite.end().0, pages);
            let pages_b = Extent::new(pages_a.end().0, pages);
            // Chunks are aligned on the device, not only within the data area.
            let start = pages_b.end().0.next_multiple_of(chunk_blocks);
            if start + data_blocks <= member_blocks.0 {
                return Ok(Self { ring, doublewrite, pages_a, pages_b, data: Extent::new(start, data_blocks) });
            }
            data_blocks -= chunk_blocks;
        }
        Err(too_small)
    }

    /// Number of pages that hold the entries of a member's data.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages_a.len.0
    }

    /// First block of anchor slot `slot`.
    pub(crate) fn anchor(slot: u64) -> Lba {
        Lba(slot * ANCHOR_BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn areas_are_adjacent_and_waste_little(
            member_blocks in 100u64..1 << 40, chunk in 0u32..9, ring in 32u64..70_000,
        ) {
            let chunk_blocks = 1u64 << chunk;
            let Ok(area) = Area::new(Blocks(member_blocks), chunk_blocks, ring) else {
                prop_assert!(member_blocks < 8 + ring + ring / 8 + 3 + 2 * chunk_blocks);
                return Ok(());
            };
            prop_assert_eq!(area.ring, Extent::new(8, ring));
            prop_assert_eq!(area.doublewrite, Extent::new(8 + ring, (ring / 8).min(256)));
            prop_assert_eq!(area.pages_a.start, area.doublewrite.end());
            prop_assert_eq!(area.pages_b.start, area.pages_a.end());
            prop_assert!(area.pages_b.end() <= area.data.start && area.data.end().0 <= member_blocks);
            prop_assert_eq!(area.pages_a.len, area.pages_b.len);
            prop_assert!(area.pages() * PAGE_ENTRIES >= area.data.len.0);
            prop_assert!(area.data.start.0.is_multiple_of(chunk_blocks) && area.data.len.0.is_multiple_of(chunk_blocks));
            let lost = member_blocks - ring - area.doublewrite.len.0 - area.data.len.0;
            prop_assert!(lost <= 8 + member_blocks / 250 + 4 + 3 * chunk_blocks, "{} blocks are lost", lost);
        }
    }

    #[test]
    fn ring_grows_with_its_member_within_bounds() {
        let of = |mib: u64| (ring_blocks(Blocks(mib << 8)) * 4096) >> 20;
        assert_eq!([of(64), of(1 << 10), of(16 << 10), of(1 << 20)], [2, 4, 64, 256]);
    }
}
