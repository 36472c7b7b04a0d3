//! From a block of a volume to a block of a group.

use crate::catalog::{Segment, SlabSet};
use block::{Extent, Lba};
use smallvec::SmallVec;

/// Where the blocks of one volume lie.
#[derive(Debug, Default)]
pub(crate) struct Map {
    /// In order, without gaps.
    segments: Vec<Mapped>,
}

/// A segment, with what locating a block in it needs.
#[derive(Debug)]
struct Mapped {
    /// The volume's block that is its first.
    start: u64,
    blocks: u64,
    row_blocks: u64,
    round_blocks: u64,
    columns: SmallVec<[MappedColumn; 4]>,
    /// Which slabs are initialised, as far as that is committed.
    initialised: SlabSet,
}

#[derive(Debug)]
struct MappedColumn {
    group: u16,
    first_slab: u32,
    slab_blocks: u64,
    unit_blocks: u64,
    /// Blocks of a round before this column's turn.
    before: u64,
}

/// A slab of a volume: its segment and its number in the segment's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlabId {
    pub(crate) segment: u32,
    pub(crate) slab: u32,
}

/// A run of a volume's blocks that is one run of a group's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) group: u16,
    /// In blocks of the group.
    pub(crate) extent: Extent,
    /// The volume's block that is its first.
    pub(crate) start: Lba,
    pub(crate) slab: SlabId,
    /// False when its blocks read as zeros, whatever the group holds.
    pub(crate) initialised: bool,
}

impl Map {
    /// The map of `segments`, whose groups have slabs of `slab_blocks`.
    pub(crate) fn of(segments: &[Segment], slab_blocks: &[u32]) -> Self {
        let mut start = 0;
        let segments = segments.iter().map(|segment| {
            let mapped = Mapped::of(segment, slab_blocks, start);
            start += mapped.blocks;
            mapped
        });
        Self { segments: segments.collect() }
    }

    /// The map is that of `segments`, which go on where it ended. What is initialised stays as it was.
    pub(crate) fn grow(&mut self, segments: &[Segment], slab_blocks: &[u32]) {
        let mut grown = Self::of(segments, slab_blocks);
        assert!(grown.segments.len() >= self.segments.len(), "a volume that grows keeps its segments");
        for (at, segment) in grown.segments.iter_mut().enumerate() {
            let slabs = segment.initialised.len();
            // The catalog may be ahead of what is committed; the map may not.
            segment.initialised = match self.segments.get_mut(at) {
                Some(old) => std::mem::replace(&mut old.initialised, SlabSet::none(0)),
                None => SlabSet::none(0),
            };
            segment.initialised.extend_to(slabs);
        }
        *self = grown;
    }

    /// The piece that begins at block `lba` of the volume, at most `len` blocks long.
    ///
    /// *Panics*: when the volume has no such block.
    pub(crate) fn locate(&self, lba: u64, len: u64) -> Piece {
        let at = self.segments.partition_point(|segment| segment.start <= lba).checked_sub(1);
        let at = at.expect("a volume with blocks has a segment that begins at 0");
        let segment = &self.segments[at];
        let inside = lba - segment.start;
        assert!(inside < segment.blocks, "block {lba} lies behind the volume's slabs");
        let (row, in_row) = (inside / segment.row_blocks, inside % segment.row_blocks);
        let (round, in_round) = (in_row / segment.round_blocks, in_row % segment.round_blocks);
        let turn = segment.columns.partition_point(|column| column.before <= in_round) - 1;
        let column = &segment.columns[turn];
        let in_unit = in_round - column.before;
        let slab_start = (u64::from(column.first_slab) + row) * column.slab_blocks;
        let in_slab = round * column.unit_blocks + in_unit;
        assert!(in_slab < column.slab_blocks, "a volume's block lies within its slab");
        let slab = row * segment.columns.len() as u64 + turn as u64;
        let slab = u32::try_from(slab).expect("a pool has less than 2^32 slabs");
        Piece {
            group: column.group,
            extent: Extent::new(slab_start + in_slab, len.min(column.unit_blocks - in_unit)),
            start: Lba(lba),
            slab: SlabId { segment: u32::try_from(at).expect("bounded by SEGMENTS_MAX"), slab },
            initialised: segment.initialised.contains(slab),
        }
    }

    /// The pieces of `extent`, in order.
    pub(crate) fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> {
        let (mut at, end) = (extent.start.0, extent.end().0);
        std::iter::from_fn(move || {
            let piece = (at < end).then(|| self.locate(at, end - at))?;
            at += piece.extent.len.0;
            Some(piece)
        })
    }

    /// Where a slab lies: its group, and its blocks there.
    pub(crate) fn slab(&self, id: SlabId) -> (u16, Extent) {
        let segment = &self.segments[id.segment as usize];
        assert!(id.slab < segment.initialised.len(), "a slab is one of its segment");
        let columns = u32::try_from(segment.columns.len()).expect("bounded by GROUPS_MAX");
        let column = &segment.columns[(id.slab % columns) as usize];
        let start = u64::from(column.first_slab + id.slab / columns) * column.slab_blocks;
        (column.group, Extent::new(start, column.slab_blocks))
    }

    /// True when the slab holds what the volume wrote.
    pub(crate) fn is_initialised(&self, id: SlabId) -> bool {
        self.segments[id.segment as usize].initialised.contains(id.slab)
    }

    /// From now on the slab holds what the volume writes.
    pub(crate) fn set_initialised(&mut self, id: SlabId) {
        self.segments[id.segment as usize].initialised.insert(id.slab);
    }

    /// How many slabs are initialised, and how many there are.
    pub(crate) fn initialised(&self) -> (u64, u64) {
        let sets = || self.segments.iter().map(|segment| &segment.initialised);
        (sets().map(|set| u64::from(set.count())).sum(), sets().map(|set| u64::from(set.len())).sum())
    }

    /// How many slabs the segment of `id` has.
    pub(crate) fn slabs_beside(&self, id: SlabId) -> u32 {
        self.segments[id.segment as usize].initialised.len()
    }

    /// Blocks of one time round the columns, at the beginning of the volume.
    pub(crate) fn round_blocks(&self) -> Option<u64> {
        self.segments.first().map(|segment| segment.round_blocks)
    }

    /// The groups that hold a part of the volume, each once, in order.
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
