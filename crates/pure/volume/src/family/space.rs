//! The slabs of a family: taking them from the pool and giving them back, and which of their places are free.

use super::MapError;
use super::eras::Eras;
use super::granules::{Granules, Shape};
use super::meta::Meta;
use crate::catalog::{Catalog, FamilyRecord, META_RUNS_MAX, MapShape, RUN_BYTES, SlabRun};
use crate::error::PoolError;
use crate::layout::BODY_BYTES_MAX;
use crate::pool::{Families, Shared};
use crate::sabotage::{self, Sabotage};
use crate::space::SpaceMap;
use crate::store::Change;
use crate::tree::Place;
use block::BlockDevice;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use uuid::Uuid;

/// The most slabs that are leased at once from one group.
const LEASE_MAX: u32 = 64;
/// A family asks for one slab for so many that it has.
const LEASE_SHARE: usize = 16;

/// The space of a family: its slabs, what is free in them, and what waits until nobody can see it any more.
pub(crate) struct Space<D, G> {
    shared: Rc<Shared<D, G>>,
    /// All families of the pool: those that may have slabs to give.
    families: Weak<Families<D, G>>,
    /// Which family it is.
    id: Uuid,
    pub(crate) granules: RefCell<Granules>,
    /// Places that are free once an era is past.
    quarantine: RefCell<VecDeque<(u64, Vec<Place>)>>,
    /// Who may still look at what was given up.
    pub(crate) eras: Eras,
    /// The change of the catalog without which nothing newer may be committed.
    needs: Cell<Option<Change>>,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> Space<D, G> {
    /// The space of the family that the catalog has, in slabs of `shapes`. What is free in them is not known.
    pub(super) fn new(
        shared: Rc<Shared<D, G>>,
        families: Weak<Families<D, G>>,
        record: &FamilyRecord,
        shapes: Vec<Shape>,
    ) -> Self {
        let mut granules = Granules::new(shapes);
        for run in &record.data {
            (run.first..run.first + run.slabs)
                .for_each(|slab| granules.add(Place::slab_number(run.group, slab), false));
        }
        Self {
            shared,
            families,
            id: record.id,
            granules: RefCell::new(granules),
            quarantine: RefCell::default(),
            eras: Eras::default(),
            needs: Cell::new(None),
        }
    }

    /// Nothing newer may be committed before `change` of the catalog is.
    pub(super) fn need(&self, change: Change) {
        self.needs.set(self.needs.get().max(Some(change)));
    }

    /// The change of the catalog that must be committed before anything newer.
    pub(super) fn needs(&self) -> Option<Change> {
        self.needs.get()
    }

    /// Places that are short of `places`, which versions have or may need.
    pub(super) fn missing(&self, places: u64) -> u64 {
        let own = self.granules.borrow();
        (places + own.held()).saturating_sub(own.total())
    }

    /// Places that are left beside `places`, which versions have or may need.
    pub(super) fn left(&self, places: u64) -> u64 {
        let own = self.granules.borrow();
        own.total().saturating_sub(places + own.held())
    }

    /// `freed` are free when everybody has gone who looks now: nobody who looks from now on finds them in the map.
    pub(super) fn quarantine(&self, freed: Vec<Place>) {
        let (era, mut quarantine) = (self.eras.turn(), self.quarantine.borrow_mut());
        assert!(quarantine.back().is_none_or(|(last, _)| *last < era), "what is freed later is free later");
        quarantine.push_back((era, freed));
    }

    pub(super) fn has_quarantined(&self) -> bool {
        !self.quarantine.borrow().is_empty()
    }

    /// Places that are free now that nobody looks any more who might have seen them in the map.
    pub(super) fn release_quarantine(&self) {
        let mut quarantine = self.quarantine.borrow_mut();
        while let Some((_, places)) = quarantine.pop_front_if(|(era, _)| self.eras.is_past(*era)) {
            let mut granules = self.granules.borrow_mut();
            places.into_iter().for_each(|place: Place| granules.release(place));
        }
    }

    /// Everybody has gone who could look at what was freed and committed.
    pub(super) async fn quarantine_past(&self) {
        let newest = self.quarantine.borrow().back().map(|(era, _)| *era);
        if let Some(era) = newest {
            self.eras.past(era).await;
        }
    }

    /// The family has more slabs for data, for at least `granules` if the pool has them; false when it has none.
    pub(super) fn lease_data(&self, granules: u64) -> Result<bool, MapError> {
        let share = self.granules.borrow().slab_count() / LEASE_SHARE;
        let share = u32::try_from(share).unwrap_or(LEASE_MAX).clamp(1, LEASE_MAX);
        if self.lease_data_once(granules, share)? {
            return Ok(true);
        }
        // Others may have slabs that they do not need; what this one has just got, it would only get again.
        let given = self.families.upgrade().is_some_and(|families| families.give_back_all(Some(self.id)) > 0);
        Ok(given && self.lease_data_once(granules, 1)?)
    }

    fn lease_data_once(&self, granules: u64, share: u32) -> Result<bool, MapError> {
        let leased = self.shared.store.change(|catalog| {
            let mut space = SpaceMap::of(catalog);
            let slabs: Vec<u32> = space.free_slabs().collect();
            let mut runs: Vec<SlabRun> = Vec::new();
            let mut rest = granules;
            // The emptiest group first. One without slabs may be one that the family does not know.
            let mut groups: Vec<(u16, u32)> = (0_u16..).zip(slabs).filter(|&(_, slabs)| slabs > 0).collect();
            groups.sort_by_key(|&(_, slabs)| std::cmp::Reverse(slabs));
            for (group, slabs) in groups {
                let of_slab = u64::from(self.granules.borrow().granules(Place::slab_number(group, 0)));
                if of_slab == 0 || rest == 0 && !runs.is_empty() && share == 1 {
                    continue;
                }
                let needed = u32::try_from(rest.div_ceil(of_slab)).unwrap_or(u32::MAX);
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
        self.need(change);
        let mut own = self.granules.borrow_mut();
        for run in &runs {
            assert!(!own.has(Place::slab_number(run.group, run.first)), "a slab is leased once");
            (run.first..run.first + run.slabs).for_each(|slab| own.add(Place::slab_number(run.group, slab), true));
        }
        drop(own);
        self.shared.look_at_space();
        Ok(!runs.is_empty())
    }

    fn take_run(&self, space: &mut SpaceMap, catalog: &Catalog, group: u16, slabs: u32) -> Option<SlabRun> {
        let record = catalog.family(self.id)?;
        let last = record.data.iter().rev().find(|run| run.group == group);
        space.take_run(group, slabs, last.map(|run| run.first + run.slabs))
    }

    /// The family has one more slab for its map `meta`; false when the pool has none.
    pub(super) fn lease_meta(&self, meta: &Meta<D, G>) -> Result<bool, MapError> {
        let leased = self.shared.store.change(|catalog| {
            let record = catalog.family(self.id).ok_or(PoolError::VolumeUnknown(self.id))?;
            let mut space = SpaceMap::of(catalog);
            let last = record.meta.last().copied().ok_or(PoolError::VolumeUnknown(self.id))?;
            let groups =
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
                self.need(change);
                meta.extend(run);
                self.shared.look_at_space();
                Ok(true)
            }
            Err(PoolError::CatalogLost) => Err(MapError::CatalogLost),
            Err(_) => Ok(false),
        }
    }

    /// Slabs in which nothing is are the pool's again, but for those with the places that are `needed`, and one; how many.
    pub(super) fn give_back(&self, needed: u64) -> Result<u64, MapError> {
        self.release_quarantine();
        let candidates = self.candidates(needed);
        if candidates.is_empty() {
            return Ok(0);
        }
        let given = self.shared.store.change(|catalog| {
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
                self.need(change);
                let mut own = self.granules.borrow_mut();
                candidates.iter().for_each(|&slab| own.remove(slab));
                drop(own);
                self.shared.look_at_space();
                Ok(candidates.len() as u64)
            }
            Err(PoolError::CatalogLost) => Err(MapError::CatalogLost),
            Err(_) => Ok(0),
        }
    }

    fn candidates(&self, needed: u64) -> Vec<u32> {
        let own = self.granules.borrow();
        let mut free = if sabotage::is(Sabotage::GiveBackTaken) { own.slabs().collect() } else { own.wholly_free() };
        let needed = needed + own.held();
        let mut left = own.total();
        free.retain(|&slab| {
            let granules = u64::from(own.granules(slab));
            let gives = left.saturating_sub(granules) >= needed;
            left -= if gives { granules } else { 0 };
            gives
        });
        free
    }
}

/// Admits so many more runs of slabs in the catalog.
fn admit_runs(catalog: &Catalog, runs: usize) -> Result<(), PoolError> {
    let fits = catalog.emitted_bytes_max() + runs * RUN_BYTES <= BODY_BYTES_MAX;
    if fits && runs > 0 { Ok(()) } else { Err(PoolError::CatalogFull) }
}

/// Adds a run to others, which are in order and stay so; one with its neighbours where they touch.
pub(crate) fn add_run(runs: &mut Vec<SlabRun>, run: SlabRun) {
    let at = runs.partition_point(|other| *other < run);
    let is_behind = at == 0 || runs[at - 1].group != run.group || runs[at - 1].first + runs[at - 1].slabs <= run.first;
    let is_before = runs.get(at).is_none_or(|next| next.group != run.group || run.first + run.slabs <= next.first);
    assert!(is_behind && is_before, "no slab is in two runs of a family");
    runs.insert(at, run);
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

/// Takes a slab out of the runs.
pub(crate) fn remove_slab(runs: &mut Vec<SlabRun>, slab: u32) {
    let (group, slab) = ((slab >> 24) as u16, slab & 0x00ff_ffff);
    let holds = |run: &SlabRun| run.group == group && (run.first..run.first + run.slabs).contains(&slab);
    let Some(at) = runs.iter().position(holds) else { return };
    let run = runs.remove(at);
    let behind = SlabRun { group, first: slab + 1, slabs: run.first + run.slabs - slab - 1 };
    let before = SlabRun { slabs: slab - run.first, ..run };
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
                    remove_slab(&mut runs, Place::slab_number(group, slab));
                }
                let listed: Vec<(u16, u32)> =
                    runs.iter().flat_map(|run| (run.first..run.first + run.slabs).map(|slab| (run.group, slab))).collect();
                prop_assert_eq!(&listed, &plain.iter().copied().collect::<Vec<_>>());
                prop_assert!(runs.windows(2).all(|pair| pair[0].group != pair[1].group || pair[0].first + pair[0].slabs < pair[1].first));
            }
        }
    }
}
