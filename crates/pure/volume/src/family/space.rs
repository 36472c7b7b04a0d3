//! Space of a family: leases slabs from the pool and returns them, and delays the reuse of freed places.

use super::MapError;
use super::epoch_reclaim::EpochReclaim;
use super::granules::{Granules, Shape};
use super::meta::Meta;
use crate::bug_injection::{self, InjectedBug};
use crate::catalog::{Catalog, FamilyRecord, META_RUNS_MAX, MapShape, RUN_BYTES, SlabRun};
use crate::error::PoolError;
use crate::layout::BODY_BYTES_MAX;
use crate::pool::{Families, Shared};
use crate::space::SpaceMap;
use crate::store::Change;
use crate::tree::GranuleAddress;
use block::BlockDevice;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// Maximum number of slabs leased at once from one group.
const LEASE_MAX: u32 = 64;
/// Lease size: one slab for each such number of slabs that the family has.
const LEASE_SHARE: usize = 16;

/// Slabs of a family, their free places, and places pending reuse.
pub(crate) struct Space<D, G> {
    shared: Rc<Shared<D, G>>,
    /// All open families of the pool, from which slabs can be reclaimed.
    families: Weak<Families<D, G>>,
    /// UUID of the family.
    id: Uuid,
    pub(crate) granules: RefCell<Granules>,
    /// Freed places by era, reused once the era is past.
    pending_free: RefCell<VecDeque<(u64, Vec<GranuleAddress>)>>,
    /// Eras of active readers.
    pub(crate) eras: EpochReclaim,
    /// Catalog change that must be committed before any newer change of the map.
    required_commit: Cell<Option<Change>>,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Space<D, G> {
    /// Creates the space of the family in the catalog, in slabs of `shapes`, with unknown free places.
    pub(super) fn new(
        shared: Rc<Shared<D, G>>,
        families: Weak<Families<D, G>>,
        record: &FamilyRecord,
        shapes: Vec<Shape>,
    ) -> Self {
        let mut granules = Granules::new(shapes);
        for run in &record.data {
            (run.first..run.first + run.slabs)
                .for_each(|slab| granules.add(GranuleAddress::slab_number(run.group, slab), false));
        }
        Self {
            shared,
            families,
            id: record.id,
            granules: RefCell::new(granules),
            pending_free: RefCell::default(),
            eras: EpochReclaim::default(),
            required_commit: Cell::new(None),
        }
    }

    /// Records that `change` of the catalog must be committed before any newer change of the map.
    pub(super) fn require_commit(&self, change: Change) {
        self.required_commit.set(self.required_commit.get().max(Some(change)));
    }

    /// Catalog change that must be committed before any newer change of the map.
    pub(super) fn required_commit(&self) -> Option<Change> {
        self.required_commit.get()
    }

    /// Number of places missing for `places` that versions use or may need.
    pub(super) fn missing(&self, places: u64) -> u64 {
        let own = self.granules.borrow();
        (places + own.held()).saturating_sub(own.total())
    }

    /// Number of places left beside `places` that versions use or may need.
    pub(super) fn left(&self, places: u64) -> u64 {
        let own = self.granules.borrow();
        own.total().saturating_sub(places + own.held())
    }

    /// Delays the reuse of `freed` until all active readers have finished; later readers do not find the places
    /// in the map.
    pub(super) fn defer_free(&self, freed: Vec<GranuleAddress>) {
        // The era ends here: readers that start from now on find the new places in the map.
        let (era, mut quarantine) = (self.eras.advance_era(), self.pending_free.borrow_mut());
        assert!(quarantine.back().is_none_or(|(last, _)| *last < era), "what is freed later is free later");
        quarantine.push_back((era, freed));
    }

    pub(super) fn has_pending_free(&self) -> bool {
        !self.pending_free.borrow().is_empty()
    }

    /// Releases places whose era is past.
    pub(super) fn release_pending(&self) {
        let mut quarantine = self.pending_free.borrow_mut();
        while let Some((_, places)) = quarantine.pop_front_if(|(era, _)| self.eras.is_drained(*era)) {
            let mut granules = self.granules.borrow_mut();
            places.into_iter().for_each(|place: GranuleAddress| granules.release(place));
        }
    }

    /// Waits until all readers that could see freed and committed places have finished.
    pub(super) async fn wait_for_readers(&self) {
        let newest = self.pending_free.borrow().back().map(|(era, _)| *era);
        if let Some(era) = newest {
            self.eras.drained(era).await;
        }
    }

    /// Leases data slabs for at least `granules`, as far as the pool has them; false when it has none.
    pub(super) fn allocate_slabs(&self, granules: u64) -> Result<bool, MapError> {
        // A growing family leases more at a time, so that commits of the catalog stay rare.
        let share = self.granules.borrow().slab_count() / LEASE_SHARE;
        let share = u32::try_from(share).unwrap_or(LEASE_MAX).clamp(1, LEASE_MAX);
        if self.allocate_slabs_once(granules, share)? {
            return Ok(true);
        }
        // Other families may return unused slabs. This family is left out: it would only lease its own again.
        let given = self.families.upgrade().is_some_and(|families| families.return_all_empty_slabs(Some(self.id)) > 0);
        Ok(given && self.allocate_slabs_once(granules, 1)?)
    }

    fn allocate_slabs_once(&self, granules: u64, share: u32) -> Result<bool, MapError> {
        let leased = self.shared.store.change(|catalog| {
            let mut space = SpaceMap::of(catalog);
            let slabs: Vec<u32> = space.free_slabs().collect();
            let mut runs: Vec<SlabRun> = Vec::new();
            let mut rest = granules;
            // Groups with the most free slabs come first. A group without slabs may be one that the family does
            // not know yet.
            let mut groups: Vec<(u16, u32)> = (0_u16..).zip(slabs).filter(|&(_, slabs)| slabs > 0).collect();
            groups.sort_by_key(|&(_, slabs)| std::cmp::Reverse(slabs));
            for (group, slabs) in groups {
                let of_slab = u64::from(self.granules.borrow().granules(GranuleAddress::slab_number(group, 0)));
                // Once the need is met, only a family large enough to lease ahead takes slabs of further groups.
                if of_slab == 0 || rest == 0 && !runs.is_empty() && share == 1 {
                    continue;
                }
                let needed = u32::try_from(rest.div_ceil(of_slab)).unwrap_or(u32::MAX);
                // At most a sixteenth of a group's free slabs beyond the need, so that one family does not take
                // the rest of a nearly full pool.
                let mut want = share.min((slabs / 16).max(1)).max(needed).min(slabs);
                while want > 0
                    && let Some(run) = self.take_run(&mut space, catalog, group, want)
                {
                    want -= run.slabs;
                    rest = rest.saturating_sub(u64::from(run.slabs) * of_slab);
                    runs.push(run);
                }
            }
            admit_runs(catalog, runs.len())?;
            let record = catalog.family_mut(self.id).ok_or(PoolError::VolumeUnknown(self.id))?;
            runs.iter().for_each(|&run| add_run(&mut record.data, run));
            Ok(runs)
        });
        let (runs, change) = match leased {
            Ok(leased) => leased,
            Err(PoolError::CatalogLost) => return Err(MapError::CatalogLost),
            Err(_) => return Ok(false),
        };
        // The lease is used at once in memory; the map log waits for this commit of the catalog.
        self.require_commit(change);
        let mut own = self.granules.borrow_mut();
        for run in &runs {
            assert!(!own.has(GranuleAddress::slab_number(run.group, run.first)), "a slab is leased once");
            (run.first..run.first + run.slabs)
                .for_each(|slab| own.add(GranuleAddress::slab_number(run.group, slab), true));
        }
        drop(own);
        self.shared.check_space_thresholds();
        Ok(!runs.is_empty())
    }

    fn take_run(&self, space: &mut SpaceMap, catalog: &Catalog, group: u16, slabs: u32) -> Option<SlabRun> {
        let record = catalog.family(self.id)?;
        // Continuing the last run of the group keeps runs long and the catalog small.
        let last = record.data.iter().rev().find(|run| run.group == group);
        space.take_run(group, slabs, last.map(|run| run.first + run.slabs))
    }

    /// Leases one more metadata slab for the map `meta`; false when the pool has none.
    pub(super) fn allocate_meta_slab(&self, meta: &Meta<D, G>) -> Result<bool, MapError> {
        let leased = self.shared.store.change(|catalog| {
            let record = catalog.family(self.id).ok_or(PoolError::VolumeUnknown(self.id))?;
            let mut space = SpaceMap::of(catalog);
            let last = record.meta.last().copied().ok_or(PoolError::VolumeUnknown(self.id))?;
            let groups =
                // The group of the last slab comes first, so that runs stay long and the catalog small.
                [last.group].into_iter().chain((0..catalog.groups.len() as u16).filter(|&at| at != last.group));
            let after = |group| (group == last.group).then_some(last.first + last.slabs);
            let run = groups.filter_map(|group| space.take_run(group, 1, after(group))).next();
            let run = run.ok_or(PoolError::CatalogFull)?;
            let pages = u64::from(run.slabs) * MapShape::of(&catalog.groups[usize::from(run.group)]).slab_addresses();
            if record.meta.len() >= META_RUNS_MAX || !meta.has_room_for(pages) {
                return Err(PoolError::CatalogFull);
            }
            admit_runs(catalog, 1)?;
            let record = catalog.family_mut(self.id).expect("it was found above");
            match record.meta.last_mut() {
                Some(last) if last.group == run.group && last.first + last.slabs == run.first => last.slabs += 1,
                _ => record.meta.push(run),
            }
            Ok(run)
        });
        match leased {
            Ok((run, change)) => {
                self.require_commit(change);
                meta.extend(run);
                self.shared.check_space_thresholds();
                Ok(true)
            }
            Err(PoolError::CatalogLost) => Err(MapError::CatalogLost),
            Err(_) => Ok(false),
        }
    }

    /// Returns empty slabs to the pool, except one and those for the `needed` places; returns their number.
    pub(super) fn return_empty_slabs(&self, needed: u64) -> Result<u64, MapError> {
        self.release_pending();
        let candidates = self.candidates(needed);
        if candidates.is_empty() {
            return Ok(0);
        }
        let given = self.shared.store.change(|catalog| {
            // Removing a slab from the middle of a run splits it, which makes the catalog longer.
            let bytes = catalog.emitted_bytes_max() + candidates.len() * RUN_BYTES;
            if bytes > BODY_BYTES_MAX {
                return Err(PoolError::CatalogFull);
            }
            let record = catalog.family_mut(self.id).ok_or(PoolError::VolumeUnknown(self.id))?;
            candidates.iter().for_each(|&slab| remove_slab(&mut record.data, slab));
            Ok(())
        });
        match given {
            Ok(((), change)) => {
                // Later commits of the map wait for this change of the catalog.
                self.require_commit(change);
                let mut own = self.granules.borrow_mut();
                // Removed at once, so that no writer gets a place on a slab that the pool may give to others.
                candidates.iter().for_each(|&slab| own.remove(slab));
                drop(own);
                self.shared.check_space_thresholds();
                Ok(candidates.len() as u64)
            }
            Err(PoolError::CatalogLost) => Err(MapError::CatalogLost),
            Err(_) => Ok(0),
        }
    }

    fn candidates(&self, needed: u64) -> Vec<u32> {
        let own = self.granules.borrow();
        let mut free = if bug_injection::is_injected(InjectedBug::ReturnUsedSlabs) {
            own.slabs().collect()
        } else {
            own.empty_slabs()
        };
        // Held places are in use, although no version has them.
        let needed = needed + own.held();
        let mut left = own.total();
        // Slabs are returned only as far as the reservation of thick volumes still fits in the rest.
        free.retain(|&slab| {
            let granules = u64::from(own.granules(slab));
            let gives = left.saturating_sub(granules) >= needed;
            left -= if gives { granules } else { 0 };
            gives
        });
        free
    }
}

/// Admits `runs` more slab runs in the catalog.
fn admit_runs(catalog: &Catalog, runs: usize) -> Result<(), PoolError> {
    // Each run is counted as a new one, although it may extend another.
    let fits = catalog.emitted_bytes_max() + runs * RUN_BYTES <= BODY_BYTES_MAX;
    if fits && runs > 0 { Ok(()) } else { Err(PoolError::CatalogFull) }
}

/// Inserts a run into the sorted list and merges it with adjacent ones.
pub(crate) fn add_run(runs: &mut Vec<SlabRun>, run: SlabRun) {
    let at = runs.partition_point(|other| *other < run);
    let is_behind = at == 0 || runs[at - 1].group != run.group || runs[at - 1].first + runs[at - 1].slabs <= run.first;
    let is_before = runs.get(at).is_none_or(|next| next.group != run.group || run.first + run.slabs <= next.first);
    assert!(is_behind && is_before, "no slab is in two runs of a family");
    runs.insert(at, run);
    // The run behind is merged first: that leaves the index of the run before as it is.
    for at in [at, at.saturating_sub(1)] {
        if let [one, next] = runs.get(at..at + 2).unwrap_or_default()
            && one.group == next.group
            && one.first + one.slabs == next.first
        {
            runs[at].slabs += next.slabs;
            runs.remove(at + 1);
        }
    }
}

/// Removes a slab from the list of runs.
pub(crate) fn remove_slab(runs: &mut Vec<SlabRun>, slab: u32) {
    let (group, slab) = ((slab >> 24) as u16, slab & 0x00ff_ffff);
    let holds = |run: &SlabRun| run.group == group && (run.first..run.first + run.slabs).contains(&slab);
    let Some(at) = runs.iter().position(holds) else { return };
    let run = runs.remove(at);
    let behind = SlabRun { group, first: slab + 1, slabs: run.first + run.slabs - slab - 1 };
    let before = SlabRun { slabs: slab - run.first, ..run };
    // Both go to the index of the old run, so the later one is inserted first.
    for part in [behind, before].into_iter().filter(|part| part.slabs > 0) {
        runs.insert(at, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn runs_hold_the_slabs_that_were_added(steps in prop::collection::vec((0u16..2, 0u32..40, any::<bool>()), 1..80)) {
            let (mut runs, mut plain) = (Vec::new(), BTreeSet::new());
            for (group, slab, add) in steps {
                if add && plain.insert((group, slab)) {
                    add_run(&mut runs, SlabRun { group, first: slab, slabs: 1 });
                } else if !add && plain.remove(&(group, slab)) {
                    remove_slab(&mut runs, GranuleAddress::slab_number(group, slab));
                }
                let listed: Vec<(u16, u32)> =
                    runs.iter().flat_map(|run| (run.first..run.first + run.slabs).map(|slab| (run.group, slab))).collect();
                prop_assert_eq!(&listed, &plain.iter().copied().collect::<Vec<_>>());
                prop_assert!(runs.windows(2).all(|pair| pair[0].group != pair[1].group || pair[0].first + pair[0].slabs < pair[1].first));
            }
        }
    }
}
