//! Segments: addresses of a member's data and pages. The first is as formatted, and each growth appends one.

use crate::bounds::GROWTHS_MAX;
use crate::error::ArrayError;
use crate::on_disk::area::{Area, PAGE_ENTRIES};
use crate::on_disk::regions::REGIONS;
use block::{Blocks, Extent, Lba};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Run of data blocks that is contiguous on the members, and the pages that lie before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Blocks of the data area, across all segments.
    pub(crate) blocks: Extent,
    /// Address of the first of them on the member.
    at: Lba,
    /// Pages in this segment: those for which the segments before have no room.
    pub(crate) pages: Range<u64>,
    /// Addresses of the member's own pages, and of those of the member before.
    page_starts: [Lba; 2],
}

/// Segments of an array, the same on every member.
pub(crate) struct Segments {
    /// The segment of the format; most arrays have no other.
    first: Segment,
    more: RefCell<Vec<Segment>>,
    /// Member sizes to which the array grew, in order, then zeros.
    sizes: Cell<[u64; GROWTHS_MAX]>,
    member_blocks: Cell<Blocks>,
    region_pages: Cell<u64>,
}

impl Segments {
    /// Segments of a plain array: the whole member is data.
    pub(crate) fn plain() -> Self {
        // `u64::MAX` blocks, so that every address of a member lies in this segment.
        let first = Segment { blocks: Extent::new(0, u64::MAX), at: Lba(0), pages: 0..0, page_starts: [Lba(0); 2] };
        Self::of(first, Blocks(u64::MAX))
    }

    /// Segments of a freshly formatted array.
    pub(crate) fn new(area: &Area, member_blocks: Blocks) -> Self {
        let first = Segment {
            blocks: Extent { start: Lba(0), len: area.data.len },
            at: area.data.start,
            pages: 0..area.pages(),
            page_starts: [area.pages_a.start, area.pages_b.start],
        };
        Self::of(first, member_blocks)
    }

    fn of(first: Segment, member_blocks: Blocks) -> Self {
        let region_pages = Cell::new(region_pages(first.pages.end));
        let (more, sizes, member_blocks) = (RefCell::default(), Cell::default(), Cell::new(member_blocks));
        Self { first, more, sizes, member_blocks, region_pages }
    }

    /// Member sizes to which the array grew, in order, then zeros.
    pub(crate) fn sizes(&self) -> [u64; GROWTHS_MAX] {
        self.sizes.get()
    }

    /// True when the array cannot grow again.
    pub(crate) fn is_full(&self) -> bool {
        self.sizes.get().iter().all(|&size| size != 0)
    }

    /// Blocks that the array uses of each member.
    pub(crate) fn member_blocks(&self) -> Blocks {
        self.member_blocks.get()
    }

    /// Blocks of data on each member.
    pub(crate) fn data_blocks(&self) -> Blocks {
        Blocks(self.last().blocks.end().0)
    }

    pub(crate) fn pages(&self) -> u64 {
        self.last().pages.end
    }

    /// Pages of a region: the granularity at which unwritten pages are tracked.
    pub(crate) fn region_pages(&self) -> u64 {
        self.region_pages.get()
    }

    fn last(&self) -> Segment {
        self.more.borrow().last().unwrap_or(&self.first).clone()
    }

    /// Lays out the segment that members of `member_blocks` blocks have room for behind the existing ones.
    ///
    /// *Errors*: `TooSmall` when not one chunk fits.
    pub(crate) fn next(&self, member_blocks: Blocks, chunk_blocks: u64) -> Result<Segment, ArrayError> {
        let last = self.last();
        let begin = last.at.0 + last.blocks.len.0;
        let too_small = ArrayError::TooSmall { blocks: member_blocks.0.saturating_sub(begin), chunk_blocks };
        let rest = member_blocks.0.checked_sub(begin).ok_or(too_small)?;
        // Each page takes two blocks, one for each copy, but the rest of the last page exists already.
        let bound = u128::from(rest) * u128::from(PAGE_ENTRIES) / u128::from(PAGE_ENTRIES + 2);
        let bound = u64::try_from(bound).expect("a part of the whole") + PAGE_ENTRIES;
        let mut blocks = bound.min(rest) / chunk_blocks * chunk_blocks;
        while blocks > 0 {
            // Pages of earlier segments stay where they are, so only those behind the last one are new.
            let pages = (last.blocks.end().0 + blocks).div_ceil(PAGE_ENTRIES) - last.pages.end;
            // Aligned on the device, as the first segment is.
            let at = (begin + 2 * pages).next_multiple_of(chunk_blocks);
            if at + blocks <= member_blocks.0 {
                return Ok(Segment {
                    blocks: Extent { start: last.blocks.end(), len: Blocks(blocks) },
                    at: Lba(at),
                    pages: last.pages.end..last.pages.end + pages,
                    page_starts: [Lba(begin), Lba(begin + pages)],
                });
            }
            blocks -= chunk_blocks;
        }
        Err(too_small)
    }

    /// Pages of a region once this segment is added.
    pub(crate) fn region_pages_with(&self, segment: &Segment) -> u64 {
        // Regions never become finer: bitmaps are only coarsened.
        region_pages(segment.pages.end).max(self.region_pages())
    }

    /// Appends a segment.
    ///
    /// *Panics*: when the list of growths is full.
    pub(crate) fn add(&self, segment: Segment, member_blocks: Blocks) {
        assert_eq!(segment.blocks.start, self.last().blocks.end(), "a segment follows the one before");
        assert_eq!(segment.pages.start, self.pages(), "its pages follow those before");
        assert!(member_blocks > self.member_blocks(), "members only become larger");
        assert!(segment.at.0 + segment.blocks.len.0 <= member_blocks.0, "a segment is within the member");
        let mut sizes = self.sizes.get();
        *sizes.iter_mut().find(|size| **size == 0).expect("whoever grows an array sees that it can") = member_blocks.0;
        self.sizes.set(sizes);
        self.member_blocks.set(member_blocks);
        self.region_pages.set(self.region_pages_with(&segment));
        self.more.borrow_mut().push(segment);
    }

    /// Addresses of both copies of a page on their members.
    pub(crate) fn page_addresses(&self, page: u64) -> [Lba; 2] {
        // The common case: no borrow and no search in an array that never grew.
        if page < self.first.pages.end {
            return self.first.page_starts.map(|start| Lba(start.0 + page));
        }
        let more = self.more.borrow();
        // There are at most `GROWTHS_MAX` segments, so a linear search suffices.
        let segment = more.iter().find(|segment| segment.pages.contains(&page)).expect("only pages that are there");
        segment.page_addresses(page)
    }

    /// As [`Segments::page_addresses`], also for pages of a segment that is not added yet.
    pub(crate) fn page_addresses_with(&self, segment: &Segment, page: u64) -> [Lba; 2] {
        if segment.pages.contains(&page) { segment.page_addresses(page) } else { self.page_addresses(page) }
    }

    /// Address on the member of these data blocks, if they lie in the first segment.
    pub(crate) fn at(&self, extent: Extent) -> Option<Lba> {
        // The first segment begins with data block 0, so the block itself is the offset.
        (extent.end() <= self.first.blocks.end()).then(|| self.first.at + Blocks(extent.start.0))
    }

    /// True when one of these blocks of the member belongs to its data.
    pub(crate) fn hold_data(&self, on_member: Extent) -> bool {
        let overlaps = |segment: &Segment| Extent { start: segment.at, len: segment.blocks.len }.overlaps(on_member);
        overlaps(&self.first) || self.more.borrow().iter().any(overlaps)
    }

    /// Splits data blocks into runs that are contiguous on the member, each with its address there.
    pub(crate) fn runs(&self, extent: Extent) -> SmallVec<[(Extent, Lba); 2]> {
        let more = self.more.borrow();
        // In the order of the segments, which is that of the data blocks.
        let parts = std::iter::once(&self.first).chain(more.iter()).filter_map(|segment| {
            let part = segment.blocks.intersection(extent);
            (!part.is_empty()).then(|| (part, Lba(segment.at.0 + part.start.0 - segment.blocks.start.0)))
        });
        parts.collect()
    }
}

impl Segment {
    fn page_addresses(&self, page: u64) -> [Lba; 2] {
        self.page_starts.map(|start| Lba(start.0 + page - self.pages.start))
    }
}

fn region_pages(pages: u64) -> u64 {
    // A power of two, so that coarser regions are whole multiples of finer ones.
    pages.div_ceil(REGIONS).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn segments_are_adjacent_without_overlap(
            first in 100u64..1 << 30, more in prop::collection::vec(1u64..1 << 30, 0..GROWTHS_MAX), chunk in 0u32..9,
        ) {
            let chunk_blocks = 1u64 << chunk;
            let Ok(area) = Area::new(Blocks(first), chunk_blocks, 32) else { return Ok(()) };
            let segments = Segments::new(&area, Blocks(first));
            let (mut size, mut used) = (first, vec![(area.pages_a.start.0, area.data.end().0)]);
            for more in more {
                size += more;
                let before = segments.data_blocks();
                let Ok(segment) = segments.next(Blocks(size), chunk_blocks) else { continue };
                let pages = segment.pages.end - segment.pages.start;
                prop_assert!(segment.at.0.is_multiple_of(chunk_blocks) && segment.blocks.len.0.is_multiple_of(chunk_blocks));
                prop_assert_eq!(segment.page_starts[1].0 - segment.page_starts[0].0, pages);
                prop_assert!(segment.page_starts[1].0 + pages <= segment.at.0);
                used.push((segment.page_starts[0].0, segment.at.0 + segment.blocks.len.0));
                segments.add(segment, Blocks(size));
                prop_assert!(segments.data_blocks() > before);
                prop_assert!(segments.pages() * PAGE_ENTRIES >= segments.data_blocks().0);
                prop_assert!(segments.region_pages() * REGIONS >= segments.pages());
            }
            prop_assert!(used.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            prop_assert!(used.iter().all(|&(_, end)| end <= size));
            let all = Extent { start: Lba(0), len: segments.data_blocks() };
            let runs = segments.runs(all);
            prop_assert_eq!(runs.iter().map(|(run, _)| run.len.0).sum::<u64>(), all.len.0);
        }
    }

    #[test]
    fn segment_of_a_growth_wastes_little_space() {
        let area = Area::new(Blocks(1 << 20), 16, 4096).expect("large enough");
        let segments = Segments::new(&area, Blocks(1 << 20));
        let segment = segments.next(Blocks(2 << 20), 16).expect("large enough");
        assert!(segment.blocks.len.0 > (1 << 20) * 502 / 506, "{segment:?}");
        assert_eq!(segments.next(Blocks(1 << 20), 16).err().map(|_| ()), Some(()));
    }
}
