//! Space reservation: places for writes, and reserves of data and map so that no later change can fail for lack
//! of space.

use super::{Allocation, Branch, Family, MapError};
use crate::bug_injection::{self, InjectedBug};
use crate::layout::BLOCK_BYTES;
use crate::tree::{GranuleAddress, Key, pages_max};
use block::BlockDevice;
use std::rc::Rc;

/// Maximum number of commits that a write waits for before it reports a full pool.
const COMMITS_MAX: u32 = 8;

/// Allocated places that are not in the map yet; dropping it frees them.
pub(crate) struct ReservedPlaces<D: BlockDevice + 'static, G: BlockDevice + 'static> {
    family: Rc<Family<D, G>>,
    pub(crate) places: Allocation,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> ReservedPlaces<D, G> {
    /// Returns the places; the caller puts them into the map without an await.
    pub(crate) fn into_places(mut self) -> Allocation {
        std::mem::take(&mut self.places)
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Drop for ReservedPlaces<D, G> {
    fn drop(&mut self) {
        // A dropped write may still reach the disk, so its places are reused only after a flush and after the
        // readers of this era.
        let places = std::mem::take(&mut self.places);
        self.family.log.borrow_mut().freed.extend(places);
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// Allocates `want` places for a write of `branch` from `granule` on, and room in the map for them.
    ///
    /// *Shape*: `new` of the granules were holes. *Errors*: `Full`, with nothing changed.
    pub(crate) async fn allocate_places(
        self: &Rc<Self>,
        branch: &Branch,
        granule: u32,
        want: usize,
        new: usize,
    ) -> Result<ReservedPlaces<D, G>, MapError> {
        let mut taken = ReservedPlaces { family: self.clone(), places: Allocation::new() };
        let mut commits = 0;
        // Thick volumes and copies on write need no check: their room in the map is reserved already.
        if new > 0 && !branch.thick && self.make_room_in_map(new as u64).is_err() {
            // The bound of map entries is coarse until a checkpoint counts them exactly.
            self.checkpoint().await?;
            self.make_room_in_map(new as u64)?;
        }
        loop {
            self.space.release_pending();
            assert!(taken.places.len() < want || want == 0, "a write takes as many places as it needs");
            let rest = (want - taken.places.len()) as u64;
            // A thick volume writes into its own reservation; others must leave it alone.
            let kept = if branch.thick { 0 } else { self.reserved() };
            let short = self.space.missing(self.allocated.get() + kept + rest);
            if short == 0 {
                let at = granule.saturating_add(taken.places.len() as u32);
                // Places already taken shift the start, so that a stream stays contiguous.
                let found = self.space.granules.borrow_mut().take(rest as usize, branch.number, at);
                taken.places.extend(found);
                if taken.places.len() == want {
                    return Ok(taken);
                }
                let unknown = self.space.granules.borrow().unknown();
                // Slabs that were not read yet are searched before another one is leased.
                if let Some(slab) = unknown {
                    self.load(slab).await?;
                    continue;
                }
            }
            // Places that count as free may all be held, so a slab is leased even where none seems to be missing.
            if self.space.allocate_slabs(short.max(1))? {
                continue;
            }
            // Places that were freed, but not committed or still visible to readers, are the last resort.
            let freed = !self.log.borrow().freed.is_empty() || self.space.has_pending_free();
            // Bounded, because other writers may take what each commit frees.
            if !freed || commits == COMMITS_MAX {
                return Err(MapError::Full);
            }
            commits += 1;
            self.commit().await?;
            self.space.wait_for_readers().await;
        }
    }

    /// Reads the free granules of a slab from the map.
    pub(crate) async fn load(&self, slab: u32) -> Result<(), MapError> {
        let mut taken: Vec<(u32, u64)> = Vec::new();
        let (mut from, end) = (Key::taken(slab, 0), Key::taken(slab + 1, 0));
        loop {
            let before = self.log.borrow().serial;
            let (entries, next) = self.entries(from, end).await?;
            taken.extend(entries.into_iter().map(|(key, bits)| (key.low() as u32, bits)));
            match next {
                Some(next) => from = next,
                None if before == self.log.borrow().serial => break,
                None => {
                    // Places of the slab were allocated or freed during the read; it starts over.
                    taken.clear();
                    from = Key::taken(slab, 0);
                }
            }
        }
        self.space.granules.borrow_mut().load(slab, &taken);
        Ok(())
    }

    /// Number of places that thick volumes may still need.
    pub(crate) fn reserved(&self) -> u64 {
        self.branches.sum(|branch| branch.reserved(self.granule_blocks))
    }

    /// Number of places in use or reserved for thick volumes.
    fn needed_places(&self) -> u64 {
        self.allocated.get() + self.reserved()
    }

    /// Bytes that a volume can still allocate: in the family's slabs and in free slabs of the pool.
    pub(crate) fn free_bytes(&self, branch: &Branch) -> u64 {
        let granule = u64::from(self.granule_blocks) * u64::from(crate::layout::BLOCK_BYTES);
        // The volume may use its own reservation, but not those of others.
        let kept = self.reserved() - branch.reserved(self.granule_blocks);
        let own = self.space.left(self.allocated.get() + kept);
        own * granule + self.shared.free_bytes()
    }

    /// Reserves places for `places` granules of thick volumes and map room for `entries`, beside existing
    /// reservations.
    ///
    /// *Errors*: `Full`; data slabs leased for it are returned to the pool.
    pub(crate) fn make_room(self: &Rc<Self>, entries: u64, places: u64) -> Result<(), MapError> {
        self.shared.without_space_events(|| {
            // Data first: the map never returns slabs, so it must not grow for a request that fails anyway.
            let made = self.reserve_data(places).and_then(|()| self.make_room_in_map(entries));
            // Leasing for the map may have reclaimed empty data slabs.
            let made = made.and_then(|()| self.reserve_data(places));
            if made.is_err() {
                self.return_empty_slabs()?;
            }
            made
        })
    }

    /// Bytes that the pool must provide for [`Family::make_room`], data and map together, in whole slabs; more
    /// data needs a larger map. All slabs are assumed to be like those of the map.
    pub(crate) fn missing_bytes(&self, entries: u64, places: u64) -> u64 {
        let Some((group, shape)) = self.meta.last_slab() else { return 0 };
        // At least one, so that the division below is possible.
        let granules = u64::from(self.space.granules.borrow().granules(GranuleAddress::slab_number(group, 0)).max(1));
        let data = self.space.missing(self.needed_places() + places).div_ceil(granules);
        let (total, slabs) = (self.space.granules.borrow().total(), self.space.granules.borrow().slab_count() as u64);
        let pages = self.map_pages_of(entries, total + data * granules, slabs + data);
        let map = self.meta.space.borrow().missing_parts(pages, shape.slab_addresses());
        (data + map) * self.map_slab_bytes()
    }

    /// Size in bytes of a slab like those of the map.
    pub(crate) fn map_slab_bytes(&self) -> u64 {
        self.meta.last_slab().map_or(0, |(_, shape)| shape.slab_blocks() * u64::from(BLOCK_BYTES))
    }

    /// Reserves places for `more` granules of thick volumes, beside existing reservations.
    ///
    /// *Errors*: `Full`.
    pub(crate) fn reserve_data(self: &Rc<Self>, more: u64) -> Result<(), MapError> {
        loop {
            let short = self.space.missing(self.needed_places() + more);
            if short == 0 {
                return Ok(());
            }
            if !self.space.allocate_slabs(short)? {
                return Err(MapError::Full);
            }
        }
    }

    /// Reserves map room for `more` entries, beside all that the volumes may add without asking.
    ///
    /// *Errors*: `Full`.
    pub(crate) fn make_room_in_map(self: &Rc<Self>, more: u64) -> Result<(), MapError> {
        while !self.map_fits(more) {
            if !self.space.allocate_meta_slab(&self.meta)? {
                // Empty data slabs of every family can hold map pages, those of this one too.
                let given = self.families.upgrade().is_some_and(|families| families.return_all_empty_slabs(None) > 0);
                if !given || !self.space.allocate_meta_slab(&self.meta)? {
                    return Err(MapError::Full);
                }
            }
        }
        Ok(())
    }

    /// Returns empty slabs to the pool, except one and those that thick volumes may need; returns their number.
    pub(crate) fn return_empty_slabs(&self) -> Result<u64, MapError> {
        self.space.release_pending();
        self.space.return_empty_slabs(self.needed_places())
    }

    /// True when the tree, and all pages that the next checkpoint may write beside it, fit on the metadata
    /// slabs, whatever is deleted, unmapped or copied until then.
    fn map_fits(&self, more: u64) -> bool {
        bug_injection::is_injected(InjectedBug::SkipMapReserve)
            || self.map_pages(more) <= self.meta.space.borrow().usable()
    }

    /// Number of pages of the tree with `more` entries and of the pages that the next checkpoint may write
    /// beside it.
    fn map_pages(&self, more: u64) -> u64 {
        let own = self.space.granules.borrow();
        self.map_pages_of(more, own.total(), own.slab_count() as u64)
    }

    /// The same for a family with `places` places on `slabs` slabs.
    fn map_pages_of(&self, more: u64, places: u64, slabs: u64) -> u64 {
        let fanout = self.tuning.fanout;
        let wanting = self.branches.sum(|branch| branch.needed_entries(self.granule_blocks));
        // One bitmap entry for each 64 granules, and a partial one per slab.
        let words = places / 64 + slabs;
        // Progress, two counters and a spare entry for each branch, and one counter for each snapshot.
        let records = self.branches.sum(|branch| 4 + branch.snapshots.borrow().len() as u64);
        let (grown, before) = self.grown.get();
        let entries = self.head.borrow().entries + grown + before + wanting + words + records + more;
        // Worst case of the tree: every node only a third full.
        let tree = pages_max(entries, fanout);
        // The root may get one level more, and the count of levels is one above the highest level.
        let levels = self.root.get().map_or(1, |root| u64::from(root.level) + 2);
        // A second checkpoint may start before the pages of the previous tree are free.
        let rewritten = tree.min(4 * self.tuning.changes_due as u64 * levels);
        tree + rewritten
    }
}
