//! Free-page bitmaps of a map's metadata slabs.
//!
//! Blocks are numbered from the first slab on. A region is the number of blocks that one bitmap page covers;
//! that page is in the region itself, in two places that alternate. The first region also contains the two
//! heads and the log.

use super::head::Region;
use crate::maplog::LogIdentity;
use crate::tree::Damage;
use block::frame::Format;
use block::{Buf, View};
use std::collections::BTreeSet;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: Format = Format::plain(*b"BLKYDPMP");
const PAGE_BYTES: usize = 4096;
const WORDS: usize = (PAGE_BYTES - size_of::<Header>()) / 8;
/// Number of pages in a region.
pub(crate) const REGION_PAGES: u64 = WORDS as u64 * 64;
/// Start of the log in the first region, behind two heads and two copies of its bitmap.
pub(crate) const LOG_START: u64 = 4;

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    frame: [u8; 12],
    reserved: U32,
    family: [u8; 16],
    birth: U64,
    region: U64,
    generation: U64,
    reserved_too: U64,
}

/// Allocation state of a map's pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct PageSpace {
    /// Bitmap of allocated pages.
    words: Vec<u64>,
    pages: u64,
    free: u64,
    cursor: u64,
    /// Number of pages at the start with a fixed use.
    fixed: u64,
    changed: BTreeSet<usize>,
}

/// Address of a copy of a region's bitmap.
pub(crate) fn bits_place(region: usize, copy: u8) -> u64 {
    let first = if region == 0 { 2 } else { region as u64 * REGION_PAGES };
    first + u64::from(copy)
}

/// True for bitmap addresses of every region except the first, whose first blocks are all allocated.
fn is_for_bits(page: u64) -> bool {
    page >= REGION_PAGES && page % REGION_PAGES < 2
}

impl PageSpace {
    /// Creates the state with all pages free except those with a fixed use.
    pub(crate) fn new(log_blocks: u32) -> Self {
        let mut space = Self { fixed: LOG_START + u64::from(log_blocks), ..Self::default() };
        space.extend(LOG_START + u64::from(log_blocks));
        // Heads, bitmaps and log of region 0 are marked as allocated; `extend` frees what follows.
        space.words.iter_mut().for_each(|word| *word = u64::MAX);
        space.free = 0;
        space
    }

    /// Extends the map to `pages` pages.
    pub(crate) fn extend(&mut self, pages: u64) {
        assert!(pages >= self.pages, "a map keeps the slabs that it has");
        self.words.resize(pages.div_ceil(64) as usize, 0);
        for page in self.pages..pages {
            // Both places of a bitmap are allocated from the start, so that no tree gets them.
            self.put(page, is_for_bits(page));
            self.free += u64::from(!is_for_bits(page));
            // The next checkpoint writes the bitmap of every region that has got pages.
            self.changed.insert((page / REGION_PAGES) as usize);
        }
        self.pages = pages;
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Number of pages that a tree can use.
    pub(crate) fn usable(&self) -> u64 {
        self.usable_of(self.pages)
    }

    fn usable_of(&self, pages: u64) -> u64 {
        let regions = pages.div_ceil(REGION_PAGES);
        // The bitmaps of region 0 are part of `fixed` and counted twice, which is a safe bound.
        pages.saturating_sub(self.fixed + 2 * regions)
    }

    /// Number of extensions by `part` pages until a tree can use `needed` pages.
    pub(crate) fn missing_parts(&self, needed: u64, part: u64) -> u64 {
        let part = part.max(1);
        // A first estimate without bitmaps, corrected below.
        let mut parts = needed.saturating_sub(self.usable()).div_ceil(part);
        // The bitmaps of the new regions use some of the new pages.
        while self.usable_of(self.pages + parts * part) < needed {
            parts += 1;
        }
        parts
    }

    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    /// True for bitmap addresses, which a tree cannot use.
    pub(crate) fn is_for_bits(&self, page: u64) -> bool {
        is_for_bits(page)
    }

    pub(crate) fn is_taken(&self, page: u64) -> bool {
        self.words.get((page / 64) as usize).is_none_or(|word| word >> (page % 64) & 1 == 1)
    }

    /// Allocates a free page.
    pub(crate) fn allocate(&mut self) -> Option<u64> {
        if self.free == 0 {
            return None;
        }
        let words = self.words.len();
        // The search continues behind the last page allocated, so that pages of one checkpoint are adjacent.
        let first = (self.cursor / 64) as usize % words.max(1);
        for step in 0..=words {
            let at = (first + step) % words;
            let mut candidates = !self.words[at];
            // Pages before the cursor in the first word come last, when the search has gone round.
            if step == 0 {
                candidates &= u64::MAX << (self.cursor % 64);
            }
            let page = at as u64 * 64 + u64::from(candidates.trailing_zeros());
            // Bits behind the last page are clear as well, so the number is compared.
            if candidates != 0 && page < self.pages {
                let is_for_pages = page >= self.fixed && !is_for_bits(page) && !self.is_taken(page);
                assert!(is_for_pages, "heads, log, bits and pages of a tree are not given away");
                self.take(page);
                self.cursor = (page + 1) % self.pages;
                return Some(page);
            }
        }
        None
    }

    pub(crate) fn take(&mut self, page: u64) {
        debug_assert!(!self.is_taken(page), "page {page} is taken twice");
        self.put(page, true);
        self.free -= 1;
        self.changed.insert((page / REGION_PAGES) as usize);
    }

    pub(crate) fn release(&mut self, page: u64) {
        debug_assert!(self.is_taken(page), "page {page} is free already");
        self.put(page, false);
        self.free += 1;
        self.changed.insert((page / REGION_PAGES) as usize);
    }

    fn put(&mut self, page: u64, taken: bool) {
        let (word, bit) = (&mut self.words[(page / 64) as usize], 1 << (page % 64));
        if taken { *word |= bit } else { *word &= !bit }
    }

    /// Returns the regions whose bitmap changed since the last call.
    pub(crate) fn changed(&mut self) -> BTreeSet<usize> {
        std::mem::take(&mut self.changed)
    }

    /// Encodes the bitmap page of a region.
    pub(crate) fn emit(&self, identity: LogIdentity, region: usize, generation: u64) -> View {
        let mut page = Buf::zeroed(PAGE_BYTES);
        let header = Header {
            frame: [0; 12],
            reserved: 0.into(),
            family: *identity.family.as_bytes(),
            birth: identity.birth.into(),
            region: (region as u64).into(),
            generation: generation.into(),
            reserved_too: 0.into(),
        };
        header.write_to_prefix(&mut page).expect("a header is smaller than a page");
        let words = self.words.iter().skip(region * WORDS).take(WORDS);
        for (place, word) in page[size_of::<Header>()..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        FORMAT.seal(&mut page);
        page.freeze()
    }

    /// Verifies the bitmap page of a region that the head describes; returns its bits.
    pub(crate) fn admit(page: &[u8], identity: LogIdentity, at: usize, told: Region) -> Result<&[u8], Damage> {
        let damaged = Damage("the bits of free pages are damaged");
        let header: &Header = FORMAT.parse(page).map_err(|_| damaged)?;
        // A bitmap of another family or of an older checkpoint may be intact, but it is not the one referred
        // to.
        let ours = header.family == *identity.family.as_bytes()
            && header.birth.get() == identity.birth
            && header.region.get() == at as u64
            && header.generation.get() == told.generation;
        page.get(size_of::<Header>()..).filter(|_| ours).ok_or(damaged)
    }

    /// Reads the bitmap of a region from its page.
    pub(crate) fn read(&mut self, page: &[u8], identity: LogIdentity, at: usize, told: Region) -> Result<(), Damage> {
        let rest = Self::admit(page, identity, at, told)?;
        let first = at as u64 * REGION_PAGES;
        let last = self.pages.min(first + REGION_PAGES);
        let is_taken = |page: u64| {
            let bit = (page - first) as usize;
            rest.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1)
        };
        // Heads and log must never be allocated, whatever a damaged bitmap says.
        if !(first..last.min(self.fixed)).all(is_taken) {
            return Err(Damage("the bits of free pages give away a head or the log"));
        }
        for page in first..last {
            let taken = is_taken(page);
            // Bitmap addresses stay allocated, whatever the bitmap says about itself.
            if taken != self.is_taken(page) && !is_for_bits(page) {
                self.put(page, taken);
                self.free = if taken { self.free - 1 } else { self.free + 1 };
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uuid;
    use proptest::prelude::*;

    const IDENTITY: LogIdentity = LogIdentity { family: Uuid::from_u128(4), birth: 7 };

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn page_space_gives_every_free_page_once_and_reads_back(
            pages in 60u64..400, drops in prop::collection::vec(any::<prop::sample::Index>(), 0..100),
        ) {
            let mut space = PageSpace::new(20);
            space.extend(pages);
            let mut taken: Vec<u64> = std::iter::from_fn(|| space.allocate()).collect();
            let mut sorted = taken.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (LOG_START + 20..pages).collect::<Vec<_>>());
            for drop in drops {
                if !taken.is_empty() {
                    space.release(taken.swap_remove(drop.index(taken.len())));
                }
            }
            prop_assert_eq!(space.free(), pages - LOG_START - 20 - taken.len() as u64);
            let mut again = PageSpace::new(20);
            again.extend(pages);
            again.read(&space.emit(IDENTITY, 0, 5), IDENTITY, 0, Region { generation: 5, copy: 1 }).unwrap();
            prop_assert_eq!(again.free(), space.free());
            prop_assert!((0..pages + 70).all(|page| again.is_taken(page) == space.is_taken(page)));
            let older = again.read(&space.emit(IDENTITY, 0, 4), IDENTITY, 0, Region { generation: 5, copy: 1 });
            prop_assert!(older.is_err());
        }
    }

    /// A head or the log would be overwritten.
    #[test]
    fn bits_that_give_away_what_has_another_use_are_damaged() {
        let told = Region { generation: 5, copy: 1 };
        let mut space = PageSpace::new(20);
        space.extend(100);
        for page in [0, 1, 3, LOG_START, LOG_START + 19] {
            let mut wrong = space.clone();
            wrong.release(page);
            let mut again = space.clone();
            assert!(again.read(&wrong.emit(IDENTITY, 0, 5), IDENTITY, 0, told).is_err(), "page {page}");
            assert_eq!(again.free(), space.free());
        }
        let page = space.emit(IDENTITY, 0, 5);
        assert_eq!(page[..16], *b"BLKYDPMP\xa6\xf2\x1d\xfa\0\0\0\0");
        assert!(space.clone().read(&page, IDENTITY, 0, told).is_ok());
    }

    #[test]
    fn page_space_of_many_regions_keeps_the_places_of_their_bits() {
        let mut space = PageSpace::new(100);
        space.extend(REGION_PAGES + 1);
        space.extend(3 * REGION_PAGES);
        assert!([1, 2].iter().all(|&region| (0..2).all(|copy| space.is_taken(bits_place(region, copy)))));
        assert_eq!(space.free(), 3 * REGION_PAGES - LOG_START - 100 - 4);
        assert_eq!(space.changed().len(), 3);
        assert!(!space.is_taken(3 * REGION_PAGES - 1) && space.is_taken(3 * REGION_PAGES));
    }
}
