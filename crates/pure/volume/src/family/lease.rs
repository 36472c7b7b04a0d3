//! Space for a family: places for writes, slabs from the pool, and what is kept so that nothing can get stuck.

use super::{Branch, Family, MapError, Places};
use crate::catalog::{Catalog, META_RUNS_MAX, MapShape, RUN_BYTES, SlabRun};
use crate::error::PoolError;
use crate::layout::{BLOCK_BYTES, BODY_BYTES_MAX};
use crate::sabotage::{self, Sabotage};
use crate::space::SpaceMap;
use crate::tree::{Key, Place, pages_max};
use block::BlockDevice;
use std::rc::Rc;

/// The most slabs that are leased at once from one group.
const LEASE_MAX: u32 = 64;
/// Commits that a write waits for until it believes that nothing is left.
const COMMITS_MAX: u32 = 8;
/// A family asks for one slab for so many that it has.
const LEASE_SHARE: usize = 16;

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
            self.release_quarantine();
            let rest = (want - taken.places.len()) as u64;
            let kept = if branch.thick { 0 } else { self.reserved() };
            let granules = self.granules.borrow().total();
            let used = self.allocated.get() + self.granules.borrow().held();
            let short = (used + kept + rest).saturating_sub(granules);
            if short == 0 {
                let at = granule.saturating_add(taken.places.len() as u32);
                let found = self.granules.borrow_mut().take(rest as usize, branch.number, at);
                taken.places.extend(found);
                if taken.places.len() == want {
                    return Ok(taken);
                }
                let unknown = self.granules.borrow().unknown();
                if let Some(slab) = unknown {
                    self.load(slab).await?;
                    continue;
                }
            }
            if self.lease_data(short.max(1))? {
                continue;
            }
            // What was freed, and is not committed or still looked at, is all that can be left.
            let freed = !self.log.borrow().freed.is_empty() || !self.quarantine.borrow().is_empty();
            if !freed || commits == COMMITS_MAX {
                return Err(MapError::Full);
            }
            commits += 1;
            self.commit().await?;
            self.quarantine_past().await;
        }
    }

    /// Everybody has gone who could look at what was freed and committed.
    async fn quarantine_past(&self) {
        let newest = self.quarantine.borrow().back().map(|(era, _)| *era);
        if let Some(era) = newest {
            self.eras.past(era).await;
        }
    }

    /// What is free in a slab is known.
    pub(crate) async fn load(&self, slab: u32) -> Result<(), MapError> {
        let mut taken: Vec<(u32, u64)> = Vec::new();
        let (mut from, end) = (Key::taken(slab, 0), Key::taken(slab + 1, 0));
        loop {
            let before = self.changes_seen();
            let (entries, next) = self.entries(from, end).await?;
            taken.extend(entries.into_iter().map(|(key, bits)| (key.low() as u32, bits)));
            match next {
                Some(next) => from = next,
                None if before == self.changes_seen() => break,
                None => {
                    // Places of the slab may have been put into the map or freed meanwhile.
                    taken.clear();
                    from = Key::taken(slab, 0);
                }
            }
        }
        self.granules.borrow_mut().load(slab, &taken);
        Ok(())
    }

    fn changes_seen(&self) -> u64 {
        self.log.borrow().serial
    }

    /// Places that thick volumes may still need.
    pub(crate) fn reserved(&self) -> u64 {
        self.branches().iter().map(|branch| branch.reserved(self.granule_blocks)).sum()
    }

    /// Bytes that a volume may still take: of the family's slabs, and of those that the pool can give.
    pub(crate) fn free_bytes(&self, branch: &Branch) -> u64 {
        let granule = u64::from(self.granule_blocks) * u64::from(crate::layout::BLOCK_BYTES);
        let kept = self.reserved() - branch.reserved(self.granule_blocks);
        let used = self.allocated.get() + self.granules.borrow().held() + kept;
        let own = self.granules.borrow().total().saturating_sub(used);
        own * granule + self.shared.free_bytes()
    }

    /// The family has more slabs for data, for at least `granules` if the pool has them; false when it has none.
    pub(crate) fn lease_data(self: &Rc<Self>, granules: u64) -> Result<bool, MapError> {
        let share = self.granules.borrow().slab_count() / LEASE_SHARE;
        let share = u32::try_from(share).unwrap_or(LEASE_MAX).clamp(1, LEASE_MAX);
        if self.lease_data_once(granules, share)? {
            return Ok(true);
        }
        // Others may have slabs that they do not need; what this one has just got, it would only get again.
        let given = self.families.upgrade().is_some_and(|families| families.give_back_all(Some(self.id)) > 0);
        Ok(given && self.lease_data_once(granules, 1)?)
    }

    fn lease_data_once(self: &Rc<Self>, granules: u64, share: u32) -> Result<bool, MapError> {
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
        let granules = u64::from(self.granules.borrow().granules(Place::slab_number(group, 0)).max(1));
        let data = self.missing_places(places).div_ceil(granules);
        let (total, slabs) = (self.granules.borrow().total(), self.granules.borrow().slab_count() as u64);
        let pages = self.map_pages_of(entries, total + data * granules, slabs + data);
        let map = self.meta.space.borrow().missing_parts(pages, shape.slab_addresses());
        (data + map) * self.map_slab_bytes()
    }

    /// Bytes of a slab as those that the map lies on.
    pub(crate) fn map_slab_bytes(&self) -> u64 {
        self.meta.last_slab().map_or(0, |(_, shape)| shape.slab_blocks() * u64::from(BLOCK_BYTES))
    }

    fn missing_places(&self, more: u64) -> u64 {
        let own = self.granules.borrow();
        (self.allocated.get() + own.held() + self.reserved() + more).saturating_sub(own.total())
    }

    /// The family has places for `more` granules of thick volumes beside those that it keeps already.
    ///
    /// *Errors*: `Full`.
    pub(crate) fn reserve_data(self: &Rc<Self>, more: u64) -> Result<(), MapError> {
        loop {
            let short = self.missing_places(more);
            if short == 0 {
                return Ok(());
            }
            if !self.lease_data(short)? {
                return Err(MapError::Full);
            }
        }
    }

    /// The map has room for `more` entries beside all that the volumes may need without asking.
    ///
    /// *Errors*: `Full`.
    pub(crate) fn make_room_in_map(self: &Rc<Self>, more: u64) -> Result<(), MapError> {
        while !self.map_fits(more) {
            if !self.lease_meta()? {
                let given = self.families.upgrade().is_some_and(|families| families.give_back_all(None) > 0);
                if !given || !self.lease_meta()? {
                    return Err(MapError::Full);
                }
            }
        }
        Ok(())
    }

    /// True when the tree, and all that the next checkpoint may write beside it, fit on the map's slabs, whatever
    /// is deleted, discarded or copied until then.
    fn map_fits(&self, more: u64) -> bool {
        sabotage::is(Sabotage::KeepNoReserve) || self.map_pages(more) <= self.meta.space.borrow().usable()
    }

    /// Pages of the tree with `more` entries, and of all that the next checkpoint may write beside it.
    fn map_pages(&self, more: u64) -> u64 {
        let own = self.granules.borrow();
        self.map_pages_of(more, own.total(), own.slab_count() as u64)
    }

    /// The same where the family has so many places, on so many slabs.
    fn map_pages_of(&self, more: u64, places: u64, slabs: u64) -> u64 {
        let fanout = self.tuning.fanout;
        let wanting: u64 = self.branches().iter().map(|branch| branch.wanting(self.granule_blocks)).sum();
        let words = places / 64 + slabs;
        let records: u64 = self.branches().iter().map(|branch| 4 + branch.snapshots.borrow().len() as u64).sum();
        let (grown, before) = self.grown.get();
        let entries = self.head.borrow().entries + grown + before + wanting + words + records + more;
        let tree = pages_max(entries, fanout);
        let levels = self.root.get().map_or(1, |root| u64::from(root.level) + 2);
        // One more checkpoint may begin before the pages of the tree before are free.
        let rewritten = tree.min(4 * self.tuning.changes_due as u64 * levels);
        tree + rewritten
    }

    /// The family has one more slab for its map; false when the pool has none.
    fn lease_meta(self: &Rc<Self>) -> Result<bool, MapError> {
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
            if record.meta.len() >= META_RUNS_MAX || !self.meta.has_room_for(pages) {
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
                self.meta.extend(run);
                self.shared.look_at_space();
                Ok(true)
            }
            Err(PoolError::CatalogLost) => Err(MapError::CatalogLost),
            Err(_) => Ok(false),
        }
    }

    /// Slabs in which nothing is are the pool's again, but for those that thick volumes may need and one; how many.
    pub(crate) fn give_back(&self) -> Result<u64, MapError> {
        self.release_quarantine();
        let candidates = self.candidates();
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

    fn candidates(&self) -> Vec<u32> {
        let own = self.granules.borrow();
        let mut free = if sabotage::is(Sabotage::GiveBackTaken) { own.slabs().collect() } else { own.wholly_free() };
        let needed = self.allocated.get() + own.held() + self.reserved();
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
