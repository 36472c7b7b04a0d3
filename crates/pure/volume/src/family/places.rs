//! Places for writes, and what is kept of data and map so that no later change can get stuck.

use super::{Branch, Family, MapError, Places};
use crate::layout::BLOCK_BYTES;
use crate::sabotage::{self, Sabotage};
use crate::tree::{Key, Place, pages_max};
use block::BlockDevice;
use std::rc::Rc;

/// Commits that a write waits for until it believes that nothing is left.
const COMMITS_MAX: u32 = 8;

/// Places that nobody has written the map of yet; they are free again when this is dropped.
pub(crate) struct Taken<D: BlockDevice + 'static, G: BlockDevice + 'static> {
    family: Rc<Family<D, G>>,
    pub(crate) places: Places,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Taken<D, G> {
    /// The places, which the caller puts into the map without waiting for anything.
    pub(crate) fn keep(mut self) -> Places {
        std::mem::take(&mut self.places)
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Drop for Taken<D, G> {
    fn drop(&mut self) {
        // A dropped write may still land where it was going, so its places wait for a flush and for those who look.
        let places = std::mem::take(&mut self.places);
        self.family.log.borrow_mut().freed.extend(places);
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Family<D, G> {
    /// `want` places for a write of `branch` that begins at `granule`, and room in the map for them.
    ///
    /// *Shape*: `new` of the granules were holes before. *Errors*: `Full`, and nothing has changed.
    pub(crate) async fn take_places(
        self: &Rc<Self>,
        branch: &Branch,
        granule: u32,
        want: usize,
        new: usize,
    ) -> Result<Taken<D, G>, MapError> {
        let mut taken = Taken { family: self.clone(), places: Places::new() };
        let mut commits = 0;
        // What a thick volume and what snapshots may cost is kept already.
        if new > 0 && !branch.thick && self.make_room_in_map(new as u64).is_err() {
            // The map counts more than it has until a checkpoint was made.
            self.checkpoint().await?;
            self.make_room_in_map(new as u64)?;
        }
        loop {
            self.space.release_quarantine();
            assert!(taken.places.len() < want || want == 0, "a write takes as many places as it needs");
            let rest = (want - taken.places.len()) as u64;
            let kept = if branch.thick { 0 } else { self.reserved() };
            let short = self.space.missing(self.allocated.get() + kept + rest);
            if short == 0 {
                let at = granule.saturating_add(taken.places.len() as u32);
                let found = self.space.granules.borrow_mut().take(rest as usize, branch.number, at);
                taken.places.extend(found);
                if taken.places.len() == want {
                    return Ok(taken);
                }
                let unknown = self.space.granules.borrow().unknown();
                if let Some(slab) = unknown {
                    self.load(slab).await?;
                    continue;
                }
            }
            if self.space.lease_data(short.max(1))? {
                continue;
            }
            // What was freed, and is not committed or still looked at, is all that can be left.
            let freed = !self.log.borrow().freed.is_empty() || self.space.has_quarantined();
            if !freed || commits == COMMITS_MAX {
                return Err(MapError::Full);
            }
            commits += 1;
            self.commit().await?;
            self.space.quarantine_past().await;
        }
    }

    /// What is free in a slab is known.
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
                    // Places of the slab may have been put into the map or freed meanwhile.
                    taken.clear();
                    from = Key::taken(slab, 0);
                }
            }
        }
        self.space.granules.borrow_mut().load(slab, &taken);
        Ok(())
    }

    /// Places that thick volumes may still need.
    pub(crate) fn reserved(&self) -> u64 {
        self.branches.sum(|branch| branch.reserved(self.granule_blocks))
    }

    /// Places that versions have and thick volumes may still need.
    fn needed_places(&self) -> u64 {
        self.allocated.get() + self.reserved()
    }

    /// Bytes that a volume may still take: of the family's slabs, and of those that the pool can give.
    pub(crate) fn free_bytes(&self, branch: &Branch) -> u64 {
        let granule = u64::from(self.granule_blocks) * u64::from(crate::layout::BLOCK_BYTES);
        let kept = self.reserved() - branch.reserved(self.granule_blocks);
        let own = self.space.left(self.allocated.get() + kept);
        own * granule + self.shared.free_bytes()
    }

    /// The family has places for `places` granules of thick volumes, and room in its map for `entries`, beside all that it
    /// keeps already.
    ///
    /// *Errors*: `Full`, and what was taken for data is the pool's again.
    pub(crate) fn make_room(self: &Rc<Self>, entries: u64, places: u64) -> Result<(), MapError> {
        self.shared.attempt(|| {
            // Where there are no places the map need not grow, which never gives anything back.
            let made = self.reserve_data(places).and_then(|()| self.make_room_in_map(entries));
            // The map may have got what nobody has written to yet.
            let made = made.and_then(|()| self.reserve_data(places));
            if made.is_err() {
                self.give_back()?;
            }
            made
        })
    }

    /// Bytes that the pool has to give for [`Family::make_room`], in data and map together: it gives whole slabs, and those for
    /// data make the map larger. All slabs are taken to be as those that the map lies on.
    pub(crate) fn missing_bytes(&self, entries: u64, places: u64) -> u64 {
        let Some((group, shape)) = self.meta.last_slab() else { return 0 };
        let granules = u64::from(self.space.granules.borrow().granules(Place::slab_number(group, 0)).max(1));
        let data = self.space.missing(self.needed_places() + places).div_ceil(granules);
        let (total, slabs) = (self.space.granules.borrow().total(), self.space.granules.borrow().slab_count() as u64);
        let pages = self.map_pages_of(entries, total + data * granules, slabs + data);
        let map = self.meta.space.borrow().missing_parts(pages, shape.slab_addresses());
        (data + map) * self.map_slab_bytes()
    }

    /// Bytes of a slab as those that the map lies on.
    pub(crate) fn map_slab_bytes(&self) -> u64 {
        self.meta.last_slab().map_or(0, |(_, shape)| shape.slab_blocks() * u64::from(BLOCK_BYTES))
    }

    /// The family has places for `more` granules of thick volumes beside those that it keeps already.
    ///
    /// *Errors*: `Full`.
    pub(crate) fn reserve_data(self: &Rc<Self>, more: u64) -> Result<(), MapError> {
        loop {
            let short = self.space.missing(self.needed_places() + more);
            if short == 0 {
                return Ok(());
            }
            if !self.space.lease_data(short)? {
                return Err(MapError::Full);
            }
        }
    }

    /// The map has room for `more` entries beside all that the volumes may need without asking.
    ///
    /// *Errors*: `Full`.
    pub(crate) fn make_room_in_map(self: &Rc<Self>, more: u64) -> Result<(), MapError> {
        while !self.map_fits(more) {
            if !self.space.lease_meta(&self.meta)? {
                let given = self.families.upgrade().is_some_and(|families| families.give_back_all(None) > 0);
                if !given || !self.space.lease_meta(&self.meta)? {
                    return Err(MapError::Full);
                }
            }
        }
        Ok(())
    }

    /// Slabs in which nothing is are the pool's again, but for those that thick volumes may need and one; how many.
    pub(crate) fn give_back(&self) -> Result<u64, MapError> {
        self.space.release_quarantine();
        self.space.give_back(self.needed_places())
    }

    /// True when the tree, and all that the next checkpoint may write beside it, fit on the map's slabs, whatever
    /// is deleted, discarded or copied until then.
    fn map_fits(&self, more: u64) -> bool {
        sabotage::is(Sabotage::KeepNoReserve) || self.map_pages(more) <= self.meta.space.borrow().usable()
    }

    /// Pages of the tree with `more` entries, and of all that the next checkpoint may write beside it.
    fn map_pages(&self, more: u64) -> u64 {
        let own = self.space.granules.borrow();
        self.map_pages_of(more, own.total(), own.slab_count() as u64)
    }

    /// The same where the family has so many places, on so many slabs.
    fn map_pages_of(&self, more: u64, places: u64, slabs: u64) -> u64 {
        let fanout = self.tuning.fanout;
        let wanting = self.branches.sum(|branch| branch.wanting(self.granule_blocks));
        let words = places / 64 + slabs;
        let records = self.branches.sum(|branch| 4 + branch.snapshots.borrow().len() as u64);
        let (grown, before) = self.grown.get();
        let entries = self.head.borrow().entries + grown + before + wanting + words + records + more;
        let tree = pages_max(entries, fanout);
        let levels = self.root.get().map_or(1, |root| u64::from(root.level) + 2);
        // One more checkpoint may begin before the pages of the tree before are free.
        let rewritten = tree.min(4 * self.tuning.changes_due as u64 * levels);
        tree + rewritten
    }
}
