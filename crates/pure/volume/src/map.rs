//! Address mapping of a segmented (thick) volume: from a block of the volume to a block of a group.

use crate::catalog::{Segment, SlabSet};
use block::{Extent, Lba};
use smallvec::SmallVec;

/// Address map of one volume.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// Segments in order, without gaps.
    segments: Vec<Mapped>,
}

/// Segment with precomputed sizes for lookups.
#[derive(Debug)]
struct Mapped {
    /// First block of the volume in the segment.
    start: u64,
    blocks: u64,
    row_blocks: u64,
    round_blocks: u64,
    columns: SmallVec<[MappedColumn; 4]>,
    /// Initialized slabs, as far as that is committed.
    initialised: SlabSet,
}

#[derive(Debug)]
struct MappedColumn {
    group: u16,
    first_slab: u32,
    slab_blocks: u64,
    unit_blocks: u64,
    /// Blocks of a round before this column's unit.
    before: u64,
}

/// Slab of a volume: its segment and its index in the segment's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlabId {
    pub(crate) segment: u32,
    pub(crate) slab: u32,
}

/// Run of blocks of a volume that is contiguous in a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) group: u16,
    /// Blocks in the group.
    pub(crate) extent: Extent,
    /// First block in the volume.
    pub(crate) start: Lba,
    pub(crate) slab: SlabId,
    /// False when the blocks read as zeros, whatever the group holds.
    pub(crate) initialised: bool,
}

impl Map {
    /// Creates the map of `segments`, whose groups have slabs of `slab_blocks`.
    pub(crate) fn of(segments: &[Segment], slab_blocks: &[u32]) -> Self {
        let mut start = 0;
        let segments = segments.iter().map(|segment| {
            let mapped = Mapped::of(segment, slab_blocks, start);
            start += mapped.blocks;
            mapped
        });
        Self { segments: segments.collect() }
    }

    /// Extends the map to `segments`. The initialized slabs are unchanged.
    pub(crate) fn grow(&mut self, segments: &[Segment], slab_blocks: &[u32]) {
        let mut grown = Self::of(segments, slab_blocks);
        assert!(grown.segments.len() >= self.segments.len(), "a volume that grows keeps its segments");
        for (at, segment) in grown.segments.iter_mut().enumerate() {
            let slabs = segment.initialised.len();
            // The catalog may mark slabs before that is committed; the map must not.
            segment.initialised = match self.segments.get_mut(at) {
                Some(old) => std::mem::replace(&mut old.initialised, SlabSet::none(0)),
                None => SlabSet::none(0),
            };
            // New slabs start uninitialized and read as zeros.
            segment.initialised.extend_to(slabs);
        }
        *self = grown;
    }

    /// Locates the block `lba` of the volume; the piece is at most `len` blocks long.
    ///
    /// *Panics*: when the volume has no such block.
    pub(crate) fn locate(&self, lba: u64, len: u64) -> Piece {
        let at = self.segments.partition_point(|segment| segment.start <= lba).checked_sub(1);
        let at = at.expect("a volume with blocks has a segment that begins at 0");
        let segment = &self.segments[at];
        let inside = lba - segment.start;
        assert!(inside < segment.blocks, "block {lba} lies behind the volume's slabs");
        // A row is one slab of each column; a round is one unit of each column.
        let (row, in_row) = (inside / segment.row_blocks, inside % segment.row_blocks);
        let (round, in_round) = (in_row / segment.round_blocks, in_row % segment.round_blocks);
        // Columns are ordered by their offset in the round, so the last one that starts at or before the block
        // holds it.
        let turn = segment.columns.partition_point(|column| column.before <= in_round) - 1;
        let column = &segment.columns[turn];
        let in_unit = in_round - column.before;
        let slab_start = (u64::from(column.first_slab) + row) * column.slab_blocks;
        // Each round uses one unit of the slab.
        let in_slab = round * column.unit_blocks + in_unit;
        assert!(in_slab < column.slab_blocks, "a volume's block lies within its slab");
        // The index in the segment's set: rows first, then columns.
        let slab = row * segment.columns.len() as u64 + turn as u64;
        let slab = u32::try_from(slab).expect("a pool has less than 2^32 slabs");
        Piece {
            group: column.group,
            // A piece ends with its unit, because the next unit is on another column.
            extent: Extent::new(slab_start + in_slab, len.min(column.unit_blocks - in_unit)),
            start: Lba(lba),
            slab: SlabId { segment: u32::try_from(at).expect("bounded by SEGMENTS_MAX"), slab },
            initialised: segment.initialised.contains(slab),
        }
    }

    /// Splits `extent` into pieces, in order.
    pub(crate) fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> {
        let (mut at, end) = (extent.start.0, extent.end().0);
        std::iter::from_fn(move || {
            let piece = (at < end).then(|| self.locate(at, end - at))?;
            at += piece.extent.len.0;
            Some(piece)
        })
    }

    /// Group of a slab and its blocks there.
    pub(crate) fn slab(&self, id: SlabId) -> (u16, Extent) {
        let segment = &self.segments[id.segment as usize];
        assert!(id.slab < segment.initialised.len(), "a slab is one of its segment");
        // Slabs are numbered row by row, with the columns of a row in order; see `locate`.
        let columns = u32::try_from(segment.columns.len()).expect("bounded by GROUPS_MAX");
        let column = &segment.columns[(id.slab % columns) as usize];
        let start = u64::from(column.first_slab + id.slab / columns) * column.slab_blocks;
        (column.group, Extent::new(start, column.slab_blocks))
    }

    /// True when the slab holds data of the volume.
    pub(crate) fn is_initialised(&self, id: SlabId) -> bool {
        self.segments[id.segment as usize].initialised.contains(id.slab)
    }

    /// Marks the slab as holding data of the volume.
    pub(crate) fn set_initialised(&mut self, id: SlabId) {
        self.segments[id.segment as usize].initialised.insert(id.slab);
    }

    /// Number of initialized slabs and number of all slabs.
    pub(crate) fn initialised(&self) -> (u64, u64) {
        let sets = || self.segments.iter().map(|segment| &segment.initialised);
        (sets().map(|set| u64::from(set.count())).sum(), sets().map(|set| u64::from(set.len())).sum())
    }

    /// Number of slabs in the segment of `id`.
    pub(crate) fn slabs_in_segment(&self, id: SlabId) -> u32 {
        self.segments[id.segment as usize].initialised.len()
    }

    /// Blocks of one round over all columns at the start of the volume.
    pub(crate) fn round_blocks(&self) -> Option<u64> {
        // Later segments may have other columns. The first one stands for the volume.
        self.segments.first().map(|segment| segment.round_blocks)
    }

    /// Groups that hold parts of the volume, each once, in order.
    pub(crate) fn groups(&self) -> SmallVec<[u16; 8]> {
        let mut groups: SmallVec<[u16; 8]> =
            self.segments.iter().flat_map(|segment| segment.columns.iter().map(|column| column.group)).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

impl Mapped {
    fn of(segment: &Segment, slab_blocks: &[u32], start: u64) -> Self {
        let mut before = 0;
        let columns = segment.columns.iter().map(|column| {
            let mapped = MappedColumn {
                group: column.group,
                first_slab: column.first_slab,
                slab_blocks: u64::from(slab_blocks[usize::from(column.group)]),
                unit_blocks: u64::from(column.unit_blocks),
                before,
            };
            before += mapped.unit_blocks;
            mapped
        });
        Self {
            start,
            blocks: segment.blocks(),
            row_blocks: segment.row_blocks(),
            columns: columns.collect(),
            round_blocks: segment.round_blocks(),
            initialised: segment.initialised.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
