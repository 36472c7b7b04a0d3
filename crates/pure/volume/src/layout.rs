//! Layout of a member disk: addresses of its areas. `docs/on-disk.md` has the map and the reasons.

use block::{Blocks, Extent, Lba};

/// Block size of everything inside the engine, in bytes.
pub const BLOCK_BYTES: u32 = 4096;
const MIB_BLOCKS: u64 = (1 << 20) / BLOCK_BYTES as u64;

/// Minimum size of a member disk in bytes.
pub const DISK_BYTES_MIN: u64 = 64 << 20;
/// Maximum size of a catalog in bytes: a slot without its header block.
pub const BODY_BYTES_MAX: usize = (4 << 20) - BLOCK_BYTES as usize;

/// Blocks of the two label copies at the head of the disk; a third is in the last block.
pub(crate) const HEAD_LABELS: [u64; 2] = [0, MIB_BLOCKS / 2];
/// Blocks of the owner marks.
pub(crate) const OWNER_PLACES: Extent = Extent { start: Lba(MIB_BLOCKS), len: Blocks(4) };
/// First block of each catalog slot; both hold every commit.
pub(crate) const SLOT_STARTS: [u64; 2] = [2 * MIB_BLOCKS, 6 * MIB_BLOCKS];
/// First block of each copy of the node's state.
pub(crate) const STATE_PLACES: [u64; 2] = [10 * MIB_BLOCKS, 13 * MIB_BLOCKS];
/// Length of the area of one copy, in blocks.
pub(crate) const STATE_PLACE_BLOCKS: u64 = 3 * MIB_BLOCKS;
/// First block of the data area in format version 1.
pub(crate) const DATA_START: u64 = 16 * MIB_BLOCKS;
/// Length in blocks of the area behind the data, reserved for the label copy at the end.
pub(crate) const TAIL_BLOCKS: u64 = MIB_BLOCKS;
/// Everything before the data area: labels, marks, catalogs and state copies.
pub(crate) const HEAD_AREA: Extent = Extent { start: Lba(0), len: Blocks(DATA_START) };
/// Length in blocks of the area of the label copies at the head.
pub(crate) const HEAD_BLOCKS: u64 = MIB_BLOCKS;

/// Data area of a disk with `blocks` blocks, or `None` when the disk is smaller than [`DISK_BYTES_MIN`]. It
/// starts on a whole MiB and has a whole number of MiB.
#[must_use]
pub fn data_area(blocks: Blocks) -> Option<Extent> {
    if blocks.0 < DISK_BYTES_MIN / u64::from(BLOCK_BYTES) {
        return None;
    }
    // No underflow: the smallest disk has 64 MiB, and the areas around the data have 17.
    let whole = blocks.0 / MIB_BLOCKS * MIB_BLOCKS;
    Some(Extent::new(DATA_START, whole - DATA_START - TAIL_BLOCKS))
}

/// Part of a member's data area that its group uses, when each member contributes `member_blocks`; the array is
/// built over it.
#[must_use]
pub fn member_area(member_blocks: Blocks) -> Extent {
    Extent::new(DATA_START, member_blocks.0)
}

/// Block of the label copy at the end of a disk with `blocks` blocks.
pub(crate) fn tail_label(blocks: Blocks) -> u64 {
    blocks.0 - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_areas_do_not_overlap() {
        let slot_blocks = 4 * MIB_BLOCKS;
        assert!(HEAD_LABELS[1] < HEAD_BLOCKS && HEAD_BLOCKS <= OWNER_PLACES.start.0);
        assert!(OWNER_PLACES.end().0 <= SLOT_STARTS[0]);
        assert_eq!(SLOT_STARTS[0] + slot_blocks, SLOT_STARTS[1]);
        assert!(SLOT_STARTS[1] + slot_blocks <= STATE_PLACES[0]);
        assert_eq!(STATE_PLACES[0] + STATE_PLACE_BLOCKS, STATE_PLACES[1]);
        assert!(STATE_PLACES[1] + STATE_PLACE_BLOCKS <= DATA_START);
        assert_eq!(BODY_BYTES_MAX as u64 + u64::from(BLOCK_BYTES), slot_blocks * u64::from(BLOCK_BYTES));
    }

    #[test]
    fn layout_data_area_is_whole_mebibytes_and_leaves_the_tail() {
        for blocks in [16384, 16385, 16639, 16640, 1 << 28] {
            let data = data_area(Blocks(blocks)).unwrap();
            assert_eq!((data.start.0 % 256, data.len.0 % 256), (0, 0));
            assert!(data.end().0 + TAIL_BLOCKS <= blocks && data.end().0 <= tail_label(Blocks(blocks)));
        }
        assert_eq!(data_area(Blocks(16383)), None);
    }
}
