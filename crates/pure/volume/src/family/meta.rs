//! Storage of a family's map: its metadata slabs with heads, log and tree pages.
//!
//! Called by commits, checkpoints and lookups. It must never overwrite a page that the newest stable head
//! refers to.

mod copies;
mod heads;
mod log;
mod slabs;

use super::error::MapError;
use super::head::{Head, REGIONS_MAX};
use super::page_cache::PageCache;
use super::page_space::{PageSpace, REGION_PAGES, bits_place};
use crate::bug_injection::{self, InjectedBug};
use crate::catalog::{MapShape, SlabRun};
use crate::layout::BLOCK_BYTES;
use crate::maplog::LogIdentity;
use crate::pool::Shared;
use crate::tree::{Damage, Key, Page, PageIdentity, Pages, parse_page};
use block::{BlockDevice, Buf, Stable, Written};
use futures_util::future::join_all;
use slabs::{Located, MetaSlabs};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Number of new pages collected before they are written together.
const WAITING_MAX: usize = 128;
const BLOCK: usize = BLOCK_BYTES as usize;

/// Metadata slabs of a family and the pages of the checkpoint in progress.
pub(crate) struct Meta<D, G> {
    shared: Rc<Shared<D, G>>,
    pub(crate) identity: LogIdentity,
    log_blocks: u32,
    /// Prefix that distinguishes the family's pages in the shared cache.
    cache_prefix: u64,
    cache: Rc<PageCache>,
    slabs: RefCell<Vec<MetaSlabs>>,
    pub(crate) space: RefCell<PageSpace>,
    checkpoint: RefCell<CheckpointPages>,
    generation: Cell<u64>,
    /// Log blocks before this index were written or zeroed by this family.
    prepared: Cell<u64>,
}

/// Page changes of the checkpoint in progress.
#[derive(Default)]
struct CheckpointPages {
    /// Pages not written yet.
    waiting: BTreeMap<u64, Page>,
    /// Pages created by this checkpoint.
    created: BTreeSet<u64>,
    /// Pages that the new tree no longer contains.
    released: Vec<u64>,
}

impl<D: BlockDevice + 'static, G: BlockDevice> Meta<D, G> {
    pub(crate) fn new(
        shared: Rc<Shared<D, G>>,
        identity: LogIdentity,
        log_blocks: u32,
        cache: Rc<PageCache>,
        cache_number: u32,
    ) -> Self {
        Self {
            shared,
            identity,
            log_blocks,
            // Page numbers stay far below 2^40, so keys of different families never collide.
            cache_prefix: u64::from(cache_number) << 40,
            cache,
            slabs: RefCell::default(),
            space: RefCell::new(PageSpace::new(log_blocks)),
            checkpoint: RefCell::default(),
            generation: Cell::new(0),
            prepared: Cell::new(0),
        }
    }

    /// Appends slabs to the map.
    pub(crate) fn extend(&self, run: SlabRun) {
        let shape = self.shared.map_shape(run.group);
        let mut slabs = self.slabs.borrow_mut();
        // Addresses are numbered through in catalog order, which never changes.
        let address = slabs.last().map_or(0, |last| last.address + last.addresses());
        let start = u64::from(run.first) * shape.slab_blocks();
        let run = MetaSlabs { address, group: run.group, start, slabs: u64::from(run.slabs), shape };
        slabs.push(run);
        let mut space = self.space.borrow_mut();
        let pages = space.pages().max(address + run.addresses());
        space.extend(pages);
    }

    /// True when the head has room to describe `pages` more pages.
    pub(crate) fn has_room_for(&self, pages: u64) -> bool {
        (self.space.borrow().pages() + pages).div_ceil(REGION_PAGES) <= REGIONS_MAX as u64
    }

    /// Group of the map's last slab and its map layout.
    pub(crate) fn last_slab(&self) -> Option<(u16, MapShape)> {
        self.slabs.borrow().last().map(|slabs| (slabs.group, slabs.shape))
    }

    pub(crate) fn log_blocks(&self) -> u32 {
        self.log_blocks
    }

    fn locate(&self, address: u64) -> Located {
        let slabs = self.slabs.borrow();
        // Runs are in the order of their addresses: the last one that starts at or before the block holds it.
        let at = slabs.partition_point(|slabs| slabs.address <= address).saturating_sub(1);
        slabs[at].locate(address)
    }

    /// Flushes the groups that the map is on.
    pub(crate) async fn flush(&self) -> Result<Stable, MapError> {
        // Only the groups of the map: data on other groups has flushes of its own.
        let mut groups: SmallVec<[u16; 4]> = self.slabs.borrow().iter().map(|slabs| slabs.group).collect();
        groups.sort_unstable();
        groups.dedup();
        flush(&self.shared, &groups).await
    }

    /// Reads the free-page bitmaps that `head` refers to.
    pub(crate) async fn read_space(&self, head: &Head) -> Result<(), MapError> {
        for (at, region) in head.regions.iter().enumerate() {
            // In a region that was never written, all pages are free except those with a fixed use.
            if region.generation > 0 {
                let whole = |page: block::View| {
                    PageSpace::admit(&page, self.identity, at, *region)?;
                    Ok((page, region.generation))
                };
                let page = self.verify(bits_place(at, region.copy), whole).await?;
                self.space.borrow_mut().read(&page, self.identity, at, *region)?;
            }
        }
        // What was read counts as unchanged; the list of changed regions is dropped.
        self.space.borrow_mut().changed();
        Ok(())
    }

    /// Sets the generation of the checkpoint that wrote the current tree.
    pub(crate) fn set_generation(&self, generation: u64) {
        self.generation.set(generation);
    }

    /// Begins the checkpoint `generation`; returns the free-page state for [`Meta::undo`].
    pub(crate) fn begin(&self, generation: u64) -> PageSpace {
        assert!(generation >= self.generation.get(), "checkpoints are numbered upwards");
        self.generation.set(generation);
        *self.checkpoint.borrow_mut() = CheckpointPages::default();
        self.space.borrow().clone()
    }

    /// Undoes a failed checkpoint: no head refers to its pages, and the old tree keeps all of its own.
    pub(crate) fn undo(&self, before: PageSpace) {
        let writing = std::mem::take(&mut *self.checkpoint.borrow_mut());
        // Later checkpoints reuse these numbers for other pages.
        writing.created.iter().for_each(|page| self.cache.forget(self.cache_prefix | page));
        let mut space = self.space.borrow_mut();
        // Slabs may have been added meanwhile.
        let pages = space.pages();
        assert!(pages >= before.pages(), "a map keeps the slabs that it has");
        *space = before;
        space.extend(pages);
    }

    /// Writes all pages of the checkpoint and the changed free-page bitmaps; sets their locations in `head`.
    pub(crate) async fn finish(&self, head: &mut Head) -> Result<(), MapError> {
        self.write_out().await?;
        // Pages of the old tree become free only in the bitmaps of the new head.
        let given_up = std::mem::take(&mut self.checkpoint.borrow_mut().released);
        let changed = {
            let mut space = self.space.borrow_mut();
            for page in given_up {
                space.release(page);
                self.cache.forget(self.cache_prefix | page);
            }
            space.changed()
        };
        for region in changed {
            if head.regions.len() <= region {
                head.regions.resize_with(region + 1, Default::default);
            }
            let told = &mut head.regions[region];
            // The other copy is written: the one that the stable head refers to stays intact.
            told.generation = head.generation;
            told.copy ^= 1;
            let copy = told.copy;
            let page = self.space.borrow().emit(self.identity, region, head.generation);
            // Made stable by the flush that precedes the head.
            let _: Written = self.write(bits_place(region, copy), page).await?;
        }
        Ok(())
    }

    /// Parses the page `number`; also returns the checkpoint that wrote it.
    fn page_of(&self, number: u64, bytes: block::View) -> Result<(Page, u64), Damage> {
        // The page is copied because it stays in the cache; the read buffer must return to its pool.
        let mut kept = Buf::resident(BLOCK);
        kept.copy_from_slice(&bytes);
        let found = parse_page(kept.freeze(), *self.identity.family.as_bytes(), self.identity.birth, number)?;
        // A later checkpoint that failed, or whose head was lost, may have reused the page.
        if found.1 > self.generation.get() { Err(Damage("a page is newer than its tree")) } else { Ok(found) }
    }

    /// Reads a page from disk as [`Pages::load`], comparing all copies; also returns the checkpoint that wrote
    /// it.
    pub(crate) async fn verify_page(&self, number: u64) -> Result<(Page, u64), MapError> {
        let whole = |bytes| self.page_of(number, bytes).map(|(page, generation)| ((page, generation), generation));
        self.verify(number, whole).await
    }

    /// Writes the collected pages, adjacent ones in one request.
    async fn write_out(&self) -> Result<(), MapError> {
        let waiting = std::mem::take(&mut self.checkpoint.borrow_mut().waiting);
        let mut runs: Vec<(u64, Vec<Page>)> = Vec::new();
        for (number, page) in waiting {
            match runs.last_mut() {
                // Consecutive numbers may lie in different slabs or units; a write covers a contiguous part.
                Some((first, pages))
                    if *first + pages.len() as u64 == number && self.locate(*first).run > pages.len() as u64 =>
                {
                    pages.push(page);
                }
                _ => runs.push((number, vec![page])),
            }
        }
        let writes = runs.into_iter().map(|(first, pages)| {
            let mut data = Buf::recycled(pages.len() * BLOCK);
            data.chunks_exact_mut(BLOCK).zip(&pages).for_each(|(place, page)| place.copy_from_slice(page.bytes()));
            self.write(first, data.freeze())
        });
        join_all(writes).await.into_iter().try_for_each(|written| written.map(drop))
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice> Pages for Meta<D, G> {
    type Error = MapError;

    async fn load(&self, number: u64) -> Result<Page, MapError> {
        if let Some(page) = self.cache.find(self.cache_prefix | number) {
            return Ok(page);
        }
        // A page of this checkpoint that the cache has already evicted.
        if let Some(page) = self.checkpoint.borrow().waiting.get(&number) {
            return Ok(page.clone());
        }
        let page = self.read_whole(number, |bytes| self.page_of(number, bytes)).await?;
        self.cache.insert(self.cache_prefix | number, page.clone());
        Ok(page)
    }

    async fn store(&self, level: u8, entries: &[(Key, u64)]) -> Result<u64, MapError> {
        // Never an old page's number, even one that this checkpoint has released: the old tree still counts.
        let number = self.space.borrow_mut().allocate().ok_or(MapError::Full)?;
        let (family, birth) = (*self.identity.family.as_bytes(), self.identity.birth);
        let page =
            Page::emit(PageIdentity { family, birth, number, generation: self.generation.get() }, level, entries);
        self.cache.insert(self.cache_prefix | number, page.clone());
        // Pages are written in portions, so that a large checkpoint needs little memory.
        let full = {
            let mut checkpoint = self.checkpoint.borrow_mut();
            assert!(checkpoint.created.insert(number), "a checkpoint makes a page once");
            checkpoint.waiting.insert(number, page);
            checkpoint.waiting.len() >= WAITING_MAX
        };
        if full {
            self.write_out().await?;
        }
        Ok(number)
    }

    fn release(&self, number: u64) {
        let mut checkpoint = self.checkpoint.borrow_mut();
        // A page of this checkpoint is in no stable tree and is free at once; other pages belong to the tree
        // that still counts.
        if checkpoint.created.remove(&number) || bug_injection::is_injected(InjectedBug::ReusePagesEarly) {
            checkpoint.waiting.remove(&number);
            self.cache.forget(self.cache_prefix | number);
            self.space.borrow_mut().release(number);
        } else {
            checkpoint.released.push(number);
        }
    }
}

/// Flushes `groups`.
pub(crate) async fn flush<D: BlockDevice + 'static, G: BlockDevice>(
    shared: &Shared<D, G>,
    groups: &[u16],
) -> Result<Stable, MapError> {
    let flushes = groups.iter().map(async |&group| {
        let flushed = shared.gate(group).device().flush(Written::attest()).await;
        flushed.map_err(|error| MapError::Group { group, error })
    });
    let parts = join_all(flushes).await.into_iter();
    parts.reduce(|all, part| Ok(all?.and(part?))).expect("a map lies on a group")
}
