//! Cache of checksum pages: lookup without a search, eviction by a clock within a budget, dirty pages kept.

use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::entry::Entry;
use crate::on_disk::page::{Entries, PageId, blocks_of, pages_of};
use block::Extent;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::rc::Rc;

/// One bit for each entry of a page.
type Bits = [u64; (PAGE_ENTRIES as usize).div_ceil(64)];

/// Pages per leaf of the directory.
const LEAF_PAGES: usize = 1024;
/// Marker for a page without a slot.
const NONE: u32 = u32::MAX;

/// Slots of a run of pages; allocated once one of them is in memory.
type Leaf = Option<Box<[u32; LEAF_PAGES]>>;

pub(crate) struct Cache {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// For each member, leaves of slot numbers.
    directory: Vec<Vec<Leaf>>,
    /// Pages that may be held, beside those that cannot be evicted.
    budget: usize,
    /// Position of the clock hand, where the search for an eviction continues.
    hand: usize,
    dirty: usize,
}

struct Slot {
    id: PageId,
    entries: Box<Entries>,
    /// Incremented by each change, so that a page that changed while it was written stays dirty.
    changes: u64,
    dirty: bool,
    /// Used since the clock hand last passed.
    used: bool,
    pins: u32,
    /// Entries of fresh writes that are not logged; on disk they are unwritten.
    unlogged: Option<Box<Bits>>,
}

impl Cache {
    pub(crate) fn new(members: u16, pages: u64, budget: usize) -> Self {
        let directory = Vec::new();
        let mut cache = Self { slots: Vec::new(), free: Vec::new(), directory, budget, hand: 0, dirty: 0 };
        cache.widen(members, pages);
        cache
    }

    /// Makes room for this number of members and pages of each; never shrinks.
    pub(crate) fn widen(&mut self, members: u16, pages: u64) {
        let leaves = usize::try_from(pages).expect("pages are addressable").div_ceil(LEAF_PAGES);
        self.directory.resize_with(self.directory.len().max(usize::from(members)), Vec::new);
        // Leaves are allocated on first use, so a large array costs a pointer for 1024 pages.
        self.directory.iter_mut().for_each(|of| of.resize_with(leaves, || None));
    }

    fn slot_of(&self, id: PageId) -> Option<usize> {
        let page = usize::try_from(id.page).ok()?;
        let leaf = self.directory[usize::from(id.member)].get(page / LEAF_PAGES)?.as_ref()?;
        let slot = leaf[page % LEAF_PAGES];
        (slot != NONE).then_some(slot as usize)
    }

    pub(crate) fn has(&self, id: PageId) -> bool {
        self.slot_of(id).is_some()
    }

    /// True when the entries of all of these blocks are in memory.
    pub(crate) fn covers(&self, member: u16, extent: Extent) -> bool {
        pages_of(extent).all(|page| self.has(PageId { member, page }))
    }

    /// The entry of a block whose page is in memory.
    pub(crate) fn entry(&self, member: u16, block: u64) -> Option<Entry> {
        let slot = self.slot_of(PageId { member, page: block / PAGE_ENTRIES })?;
        Some(self.slots[slot].entries[(block % PAGE_ENTRIES) as usize])
    }

    /// Passes the entries of these blocks to `see`, one run per page; `None` when a page is not in memory.
    pub(crate) fn visit(&mut self, member: u16, extent: Extent, mut see: impl FnMut(u64, &[Entry])) -> Option<()> {
        for page in pages_of(extent) {
            let part = blocks_of(page).intersection(extent);
            // Earlier pages may have been passed to `see` already; callers then start over or ignore the result.
            let slot = self.slot_of(PageId { member, page })?;
            let slot = &mut self.slots[slot];
            slot.used = true;
            let first = (part.start.0 % PAGE_ENTRIES) as usize;
            see(part.start.0, &slot.entries[first..first + part.len.0 as usize]);
        }
        Some(())
    }

    /// Sets a logged entry.
    ///
    /// *Panics*: when its page is not in memory: callers pin the page.
    pub(crate) fn set(&mut self, member: u16, block: u64, entry: Entry) {
        let at = (block % PAGE_ENTRIES) as usize;
        let slot = self.change(PageId { member, page: block / PAGE_ENTRIES });
        slot.entries[at] = entry;
        // The entry is in the log, so the next checkpoint may write it.
        slot.clear_unlogged(at);
    }

    /// Sets the entry of a fresh write, which is not logged yet.
    pub(crate) fn set_unlogged(&mut self, member: u16, block: u64, entry: Entry) {
        let at = (block % PAGE_ENTRIES) as usize;
        let slot = self.slot_of(PageId { member, page: block / PAGE_ENTRIES }).expect("the page is held");
        let slot = &mut self.slots[slot];
        slot.entries[at] = entry;
        // The page does not become dirty: on disk the block stays unwritten until the entry is logged.
        slot.unlogged.get_or_insert_default()[at / 64] |= 1 << (at % 64);
    }

    /// Marks the page dirty, so that it is written whether it changed or not.
    pub(crate) fn mark_dirty(&mut self, id: PageId) {
        self.change(id);
    }

    fn change(&mut self, id: PageId) -> &mut Slot {
        let slot = self.slot_of(id).expect("whoever changes a page holds it");
        let slot = &mut self.slots[slot];
        self.dirty += usize::from(!slot.dirty);
        slot.dirty = true;
        // Also for a dirty page: one that changes while it is written must stay dirty.
        slot.changes += 1;
        slot
    }

    /// Inserts a page; one that is there already stays, because it may be newer than what was read.
    pub(crate) fn insert(&mut self, id: PageId, entries: Box<Entries>) {
        if self.has(id) {
            return;
        }
        // Over budget: pages that cannot be evicted may exceed it.
        if self.slots.len() - self.free.len() >= self.budget {
            self.evict_one();
        }
        let slot = Slot { id, entries, changes: 0, dirty: false, used: true, pins: 0, unlogged: None };
        // Freed slots first, so that the table grows only to the most pages held at one time.
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                u32::try_from(self.slots.len() - 1).expect("memory holds fewer pages")
            }
        };
        self.point(id, at);
    }

    fn point(&mut self, id: PageId, slot: u32) {
        let page = usize::try_from(id.page).expect("pages are addressable");
        let leaf = &mut self.directory[usize::from(id.member)][page / LEAF_PAGES];
        leaf.get_or_insert_with(|| Box::new([NONE; LEAF_PAGES]))[page % LEAF_PAGES] = slot;
    }

    /// Evicts a page that was not used since the hand passed, if one can be evicted.
    fn evict_one(&mut self) {
        // Two rounds: the first may only clear the marks of use.
        for _ in 0..2 * self.slots.len() {
            // The loop runs only where there are slots, so the remainder is defined.
            self.hand = (self.hand + 1) % self.slots.len();
            let slot = &mut self.slots[self.hand];
            let is_free = slot.entries_are_gone();
            // The mark of use comes last, so that it is cleared only on pages that could be evicted.
            if is_free || slot.dirty || slot.pins > 0 || slot.unlogged.is_some() || std::mem::take(&mut slot.used) {
                continue;
            }
            // Marks the slot as empty; see `entries_are_gone`.
            slot.pins = u32::MAX;
            // The slot keeps its entries until another page takes it; only the directory forgets the page.
            let id = slot.id;
            self.point(id, NONE);
            self.free.push(u32::try_from(self.hand).expect("slots are counted in 32 bits"));
            return;
        }
    }

    /// Number of dirty pages.
    pub(crate) fn dirty(&self) -> usize {
        self.dirty
    }

    /// Number of pages in memory.
    pub(crate) fn held(&self) -> usize {
        assert!(self.free.len() <= self.slots.len(), "a slot is free once");
        self.slots.len() - self.free.len()
    }

    /// Number of dirty pages at which a checkpoint should start.
    pub(crate) fn dirty_max(&self) -> usize {
        self.budget / 2
    }

    /// Lists the dirty pages in order, each with its change count.
    pub(crate) fn dirty_pages(&self) -> Vec<(PageId, u64)> {
        let dirty = self.slots.iter().filter(|slot| slot.dirty && !slot.entries_are_gone());
        let mut pages: Vec<_> = dirty.map(|slot| (slot.id, slot.changes)).collect();
        // By member and page, so that adjacent homes are written in one operation.
        pages.sort_unstable();
        pages
    }

    /// Entries of a page as they are to be on disk, if it is in memory.
    pub(crate) fn on_disk_entries(&self, id: PageId) -> Option<Box<Entries>> {
        let slot = &self.slots[self.slot_of(id)?];
        let mut entries = slot.entries.clone();
        if let Some(unlogged) = &slot.unlogged {
            // A crash must find these blocks unwritten, because no flush has covered their content yet.
            let is_unlogged = |at: usize| unlogged[at / 64] & 1 << (at % 64) != 0;
            (0..entries.len()).filter(|&at| is_unlogged(at)).for_each(|at| entries[at] = Entry::UNWRITTEN);
        }
        Some(entries)
    }

    /// Entries of a page that is in memory and not dirty.
    pub(crate) fn clean_entries(&self, id: PageId) -> Option<Box<Entries>> {
        let slot = &self.slots[self.slot_of(id)?];
        if slot.dirty { None } else { self.on_disk_entries(id) }
    }

    /// Marks the page clean, unless it changed since it had `changes` changes.
    pub(crate) fn written(&mut self, id: PageId, changes: u64) {
        let Some(slot) = self.slot_of(id) else { return };
        let slot = &mut self.slots[slot];
        assert!(changes <= slot.changes, "changes are counted upwards");
        if slot.dirty && slot.changes == changes {
            assert!(self.dirty > 0, "every dirty page is counted");
            slot.dirty = false;
            self.dirty -= 1;
        }
    }
}

impl Slot {
    /// True for a slot without a page; its pin count keeps the hand away.
    fn entries_are_gone(&self) -> bool {
        self.pins == u32::MAX
    }

    fn clear_unlogged(&mut self, at: usize) {
        if let Some(unlogged) = &mut self.unlogged {
            unlogged[at / 64] &= !(1 << (at % 64));
            if unlogged.iter().all(|&bits| bits == 0) {
                self.unlogged = None;
            }
        }
    }
}

/// Pins: pages that stay in memory until this is dropped.
pub(crate) struct Pins {
    cache: Rc<RefCell<Cache>>,
    slots: SmallVec<[u32; 8]>,
}

impl Pins {
    pub(crate) fn new(cache: &Rc<RefCell<Cache>>) -> Self {
        Self { cache: cache.clone(), slots: SmallVec::new() }
    }

    /// Pins the page, too; false when it is not in memory.
    pub(crate) fn hold(&mut self, id: PageId) -> bool {
        let mut cache = self.cache.borrow_mut();
        let Some(at) = cache.slot_of(id) else { return false };
        assert!(cache.slots[at].pins < u32::MAX - 1, "a page that is in memory has a slot of its own");
        cache.slots[at].pins += 1;
        self.slots.push(u32::try_from(at).expect("slots are counted in 32 bits"));
        true
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let mut cache = self.cache.borrow_mut();
        for &at in &self.slots {
            let pins = &mut cache.slots[at as usize].pins;
            assert!((1..u32::MAX).contains(pins), "a page that is held stays in memory");
            *pins -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(page: u64) -> PageId {
        PageId { member: 0, page }
    }

    fn empty() -> Box<Entries> {
        Box::new([Entry::UNWRITTEN; PAGE_ENTRIES as usize])
    }

    const SOME: Entry = Entry { check: 5, generation: 1 };

    #[test]
    fn cache_evicts_unused_pages_but_never_pinned_or_dirty_ones() {
        let mut cache = Cache::new(1, 100, 4);
        (0..4).for_each(|page| cache.insert(id(page), empty()));
        cache.set(0, 0, SOME);
        cache.set_unlogged(0, PAGE_ENTRIES, SOME);
        let cache = Rc::new(RefCell::new(cache));
        let mut pins = Pins::new(&cache);
        assert!(pins.hold(id(2)) && !pins.hold(id(9)));
        (10..20).for_each(|page| cache.borrow_mut().insert(id(page), empty()));
        assert!([0, 1, 2, 19].iter().all(|&page| cache.borrow().has(id(page))));
        assert_eq!(cache.borrow().held(), 4);
        drop(pins);
        (20..30).for_each(|page| cache.borrow_mut().insert(id(page), empty()));
        assert!(!cache.borrow().has(id(2)), "nobody holds it any more");
    }

    #[test]
    fn cache_page_that_changes_while_it_is_written_stays_dirty() {
        let mut cache = Cache::new(1, 100, 4);
        cache.insert(id(3), empty());
        cache.set(0, 3 * PAGE_ENTRIES, SOME);
        let [(page, changes)] = cache.dirty_pages()[..] else { panic!("one page is dirty") };
        cache.set(0, 3 * PAGE_ENTRIES + 1, SOME);
        cache.written(page, changes);
        assert_eq!(cache.dirty(), 1);
        let (page, changes) = cache.dirty_pages()[0];
        cache.written(page, changes);
        assert_eq!(cache.dirty(), 0);
    }

    #[test]
    fn cache_keeps_unlogged_entries_off_the_disk_until_they_are_logged() {
        let mut cache = Cache::new(1, 100, 4);
        cache.insert(id(0), empty());
        cache.set_unlogged(0, 7, SOME);
        assert_eq!(
            (cache.entry(0, 7), cache.on_disk_entries(id(0)).map(|page| page[7])),
            (Some(SOME), Some(Entry::UNWRITTEN))
        );
        cache.set(0, 7, SOME);
        assert_eq!(cache.on_disk_entries(id(0)).map(|page| page[7]), Some(SOME));
    }
}
