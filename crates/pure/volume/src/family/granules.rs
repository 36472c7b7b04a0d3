//! Which granules of a family's slabs are free, and which a writer gets.
//!
//! A slab is *loaded* (we know its free granules, and there are some), *unknown* (nobody looked yet) or full.
//! A granule is *held* while a write fills it, and again after it was freed until nobody can need it any more:
//! neither the map as it is on disk nor a reader who has begun before.

use crate::tree::Place;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Places for one write.
pub(crate) type Places = SmallVec<[Place; 16]>;
/// Slabs of one group that are looked through for a whole stripe.
const LOOKS_MAX: usize = 8;
/// Sequential writers that are remembered.
const STREAMS: usize = 8;

/// How slabs of a group are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Granules of a slab.
    pub(crate) granules: u32,
    /// Granules that together are whole stripes; 1 where none are.
    pub(crate) unit: u32,
}

impl Shape {
    pub(crate) fn of(slab_blocks: u32, granule_blocks: u32, stripe_blocks: u32) -> Self {
        let granules = slab_blocks / granule_blocks;
        let mut unit = 1;
        while unit < granules && !(unit * granule_blocks).is_multiple_of(stripe_blocks.max(1)) {
            unit += 1;
        }
        let whole = (unit * granule_blocks).is_multiple_of(stripe_blocks.max(1));
        Self { granules, unit: if whole { unit } else { 1 } }
    }
}

#[derive(Debug)]
struct Loaded {
    /// A bit for each granule, set when it cannot be had.
    busy: SmallVec<[u64; 4]>,
    free: u32,
}

/// The granules of one family.
#[derive(Debug)]
pub(crate) struct Granules {
    /// By group.
    shapes: Vec<Shape>,
    /// All slabs, by number.
    slabs: BTreeSet<u32>,
    loaded: BTreeMap<u32, Loaded>,
    unknown: BTreeSet<u32>,
    held: BTreeSet<Place>,
    total: u64,
    /// The group whose turn it is.
    turn: usize,
    /// For each group, the slab in which whole stripes were found last, and single granules.
    cursors: Vec<[u32; 2]>,
    /// Where writers have ended: the granule that would come next, and the place.
    streams: [Option<(u32, u32, Place)>; STREAMS],
    next_stream: usize,
}

impl Granules {
    pub(crate) fn new(shapes: Vec<Shape>) -> Self {
        let cursors = shapes.iter().zip(0..).map(|(_, group)| [Place::slab_number(group, 0); 2]).collect();
        Self {
            shapes,
            slabs: BTreeSet::new(),
            loaded: BTreeMap::new(),
            unknown: BTreeSet::new(),
            held: BTreeSet::new(),
            total: 0,
            turn: 0,
            cursors,
            streams: [None; STREAMS],
            next_stream: 0,
        }
    }

    /// Groups are divided so from now on; slabs that are there stay as they are.
    pub(crate) fn reshape(&mut self, shapes: Vec<Shape>) {
        let fresh = (self.cursors.len() as u16..).take(shapes.len().saturating_sub(self.cursors.len()));
        assert!(shapes.len() >= self.shapes.len(), "groups keep their numbers");
        self.cursors.extend(fresh.map(|group| [Place::slab_number(group, 0); 2]));
        self.shapes = shapes;
    }

    fn shape(&self, slab: u32) -> Shape {
        self.shapes[(slab >> 24) as usize]
    }

    /// Granules of all slabs.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Granules that are held.
    pub(crate) fn held(&self) -> u64 {
        self.held.len() as u64
    }

    pub(crate) fn slab_count(&self) -> usize {
        self.slabs.len()
    }

    pub(crate) fn slabs(&self) -> impl Iterator<Item = u32> + '_ {
        self.slabs.iter().copied()
    }

    pub(crate) fn has(&self, slab: u32) -> bool {
        self.slabs.contains(&slab)
    }

    /// Granules of a slab.
    pub(crate) fn granules(&self, slab: u32) -> u32 {
        self.shape(slab).granules
    }

    /// Granules that together are whole stripes of the group.
    pub(crate) fn unit(&self, group: u16) -> u32 {
        self.shapes[usize::from(group)].unit
    }

    /// The family has the slab; nobody knows what is free in it, or all of it is.
    pub(crate) fn add(&mut self, slab: u32, is_new: bool) {
        let granules = self.granules(slab);
        if self.slabs.insert(slab) {
            self.total += u64::from(granules);
        }
        if is_new {
            let busy = SmallVec::from_elem(0, granules.div_ceil(64) as usize);
            self.loaded.insert(slab, Loaded { busy, free: granules });
        } else {
            self.unknown.insert(slab);
        }
    }

    /// The family does not have the slab any more.
    pub(crate) fn remove(&mut self, slab: u32) {
        if self.slabs.remove(&slab) {
            let granules = u64::from(self.granules(slab));
            assert!(self.total >= granules, "the granules of all slabs are counted");
            self.total -= granules;
        }
        self.loaded.remove(&slab);
        self.unknown.remove(&slab);
    }

    /// Nobody knows any more what is free in a slab.
    pub(crate) fn forget(&mut self, slab: u32) {
        self.loaded.remove(&slab);
        self.unknown.insert(slab);
    }

    /// A slab of which nobody knows what is free.
    pub(crate) fn unknown(&self) -> Option<u32> {
        self.unknown.first().copied()
    }

    /// What is free in a slab is known: what `taken` and the held granules leave.
    pub(crate) fn load(&mut self, slab: u32, taken: &[(u32, u64)]) {
        if !self.unknown.remove(&slab) {
            return;
        }
        let granules = self.granules(slab);
        let mut busy: SmallVec<[u64; 4]> = SmallVec::from_elem(0, granules.div_ceil(64) as usize);
        for &(word, bits) in taken {
            if let Some(place) = busy.get_mut(word as usize) {
                *place |= bits;
            }
        }
        for place in self.held.range(Place::new(slab, 0)..=Place::new(slab, 0x00ff_ffff)) {
            busy[place.index() as usize / 64] |= 1 << (place.index() % 64);
        }
        // What lies behind the last granule is none, whatever was said of it.
        let behind = busy.len() as u32 * 64 - granules;
        if let Some(last) = busy.last_mut() {
            *last &= u64::MAX >> behind;
        }
        let free = granules - busy.iter().map(|word| word.count_ones()).sum::<u32>();
        if free > 0 {
            self.loaded.insert(slab, Loaded { busy, free });
        }
    }

    /// Up to `want` places, held for the caller; fewer where no more are known to be free. Whole stripes first, then
    /// what lies behind the place where the writer of the granule before ended.
    pub(crate) fn take(&mut self, want: usize, branch: u32, granule: u32) -> Places {
        let mut places = Places::new();
        while self.shapes.iter().any(|shape| shape.unit > 1 && want - places.len() >= shape.unit as usize) {
            let run = self.take_unit(want - places.len());
            if run.is_empty() {
                break;
            }
            places.extend(run);
        }
        if places.is_empty() {
            let behind = self.streams.iter().flatten().find(|stream| (stream.0, stream.1) == (branch, granule));
            let mut next = behind.map(|stream| stream.2);
            while let Some(place) = next.filter(|&place| places.len() < want && self.take_one(place)) {
                places.push(place);
                next = Some(place.next());
            }
        }
        while places.len() < want
            && let Some(place) = self.first_free()
        {
            assert!(self.take_one(place), "a free place can be taken");
            places.push(place);
        }
        assert!(places.len() <= want, "nobody gets more places than were asked for");
        if let Some(last) = places.last().filter(|_| places.len() == want) {
            self.remember(branch, granule, places.len(), last.next());
        }
        places
    }

    /// Places for one whole stripe, or a few, of at most `most` granules.
    pub(crate) fn take_unit(&mut self, most: usize) -> Places {
        for step in 0..self.shapes.len() {
            let group = (self.turn + step) % self.shapes.len();
            let unit = self.shapes[group].unit;
            if unit as usize > most {
                continue;
            }
            if let Some(first) = self.find_unit(group, unit) {
                self.turn = (group + 1) % self.shapes.len();
                let places: Places = (0..unit).map(|step| Place(first.0 + u64::from(step))).collect();
                assert!(places.iter().all(|&place| self.take_one(place)), "the unit was found free");
                return places;
            }
        }
        Places::new()
    }

    /// True when a whole stripe is found free.
    pub(crate) fn has_unit(&mut self) -> bool {
        (0..self.shapes.len()).any(|group| self.find_unit(group, self.shapes[group].unit).is_some())
    }

    fn find_unit(&mut self, group: usize, unit: u32) -> Option<Place> {
        let numbers = (group as u32) << 24..(group as u32 + 1) << 24;
        let from = self.cursors[group][0];
        let behind = self.loaded.range(from..numbers.end);
        let before = self.loaded.range(numbers.start..from);
        let granules = self.shapes[group].granules;
        let found = behind.chain(before).take(LOOKS_MAX).find_map(|(&slab, loaded)| {
            let is_free = |index: u32| loaded.busy[index as usize / 64] >> (index % 64) & 1 == 0;
            let starts = (0..granules / unit).map(|number| number * unit);
            let mut fits = starts.filter(|&start| (start..start + unit).all(is_free));
            Some(Place::new(slab, fits.next().filter(|_| loaded.free >= unit)?))
        })?;
        self.cursors[group][0] = found.slab();
        Some(found)
    }

    fn first_free(&mut self) -> Option<Place> {
        let groups = self.shapes.len();
        (0..groups).map(|step| (self.turn + step) % groups).find_map(|group| {
            let numbers = (group as u32) << 24..(group as u32 + 1) << 24;
            let from = self.cursors[group][1];
            let mut known = self.loaded.range(from..numbers.end).chain(self.loaded.range(numbers.start..from));
            let (&slab, loaded) = known.next()?;
            self.cursors[group][1] = slab;
            let word = loaded.busy.iter().position(|word| *word != u64::MAX)?;
            Some(Place::new(slab, word as u32 * 64 + loaded.busy[word].trailing_ones()))
        })
    }

    /// Holds a place if it is known to be free.
    fn take_one(&mut self, place: Place) -> bool {
        let (slab, index) = (place.slab(), place.index());
        if !self.slabs.contains(&slab) || index >= self.granules(slab) {
            return false;
        }
        let Some(loaded) = self.loaded.get_mut(&slab) else { return false };
        let (word, bit) = (&mut loaded.busy[index as usize / 64], 1 << (index % 64));
        if *word & bit != 0 {
            return false;
        }
        assert!(loaded.free > 0, "every granule of a slab that can be had is counted");
        *word |= bit;
        loaded.free -= 1;
        if loaded.free == 0 {
            self.loaded.remove(&slab);
        }
        self.held.insert(place);
        true
    }

    fn remember(&mut self, branch: u32, granule: u32, count: usize, next: Place) {
        let here = |stream: &Option<(u32, u32, Place)>| stream.is_some_and(|one| (one.0, one.1) == (branch, granule));
        let at = self.streams.iter().position(here).unwrap_or(self.next_stream);
        if at == self.next_stream {
            self.next_stream = (self.next_stream + 1) % STREAMS;
        }
        self.streams[at] = Some((branch, granule.saturating_add(count as u32), next));
    }

    /// The map has the place from now on.
    pub(crate) fn used(&mut self, place: Place) {
        assert!(self.held.remove(&place), "a place is held until the map has it");
    }

    /// The map does not have the place any more, but somebody may still need it. False where it is held already: another
    /// version had the same place.
    pub(crate) fn hold(&mut self, place: Place) -> bool {
        self.held.insert(place)
    }

    /// Nobody needs the place any more.
    pub(crate) fn release(&mut self, place: Place) {
        self.held.remove(&place);
        let (slab, index) = (place.slab(), place.index());
        match self.loaded.get_mut(&slab) {
            Some(loaded) => {
                let (word, bit) = (&mut loaded.busy[index as usize / 64], 1 << (index % 64));
                loaded.free += u32::from(*word & bit != 0);
                *word &= !bit;
            }
            None if self.slabs.contains(&slab) => {
                self.unknown.insert(slab);
            }
            None => {}
        }
    }

    /// Slabs in which every granule is free.
    pub(crate) fn wholly_free(&self) -> Vec<u32> {
        let free = self.loaded.iter().filter(|(slab, loaded)| loaded.free == self.granules(**slab));
        free.map(|(&slab, _)| slab).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn granules(slabs: u32) -> Granules {
        let mut granules = Granules::new(vec![Shape { granules: 20, unit: 4 }, Shape { granules: 12, unit: 3 }]);
        (0..slabs).for_each(|slab| granules.add(Place::slab_number((slab % 2) as u16, slab / 2), true));
        granules
    }

    #[test]
    fn shape_of_slabs_whose_stripes_are_no_whole_granules() {
        assert_eq!(Shape::of(4128, 16, 96), Shape { granules: 258, unit: 6 });
        assert_eq!(Shape::of(4128, 64, 96), Shape { granules: 64, unit: 3 });
        assert_eq!(Shape::of(256, 16, 16), Shape { granules: 16, unit: 1 });
        assert_eq!(Shape::of(256, 4, 96), Shape { granules: 64, unit: 24 });
        assert_eq!(Shape::of(256, 256, 97), Shape { granules: 1, unit: 1 }, "no stripe is whole");
    }

    #[test]
    fn large_writes_get_whole_stripes_of_all_groups_in_turn() {
        let mut granules = granules(4);
        let places = granules.take(14, 0, 0);
        assert_eq!(places.len(), 14);
        let groups: Vec<u16> = places.iter().map(|place| place.group()).collect();
        assert_eq!(groups, [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1]);
        assert_eq!((places[0].index() % 4, places[4].index() % 3, places[7].index()), (0, 0, 4));
    }

    /// A map whose bits contradict its versions, or themselves, has a right checksum when it was damaged before.
    #[test]
    fn bits_that_contradict_the_map_give_away_no_granule_that_is_none() {
        let mut known = Granules::new(vec![Shape { granules: 20, unit: 4 }]);
        known.add(0, false);
        known.load(0, &[(0, u64::MAX << 18), (7, 3)]);
        let places: Vec<Place> = std::iter::from_fn(|| known.take(1, 0, 0).first().copied()).collect();
        assert_eq!((places.len(), places.iter().map(|place| place.index()).max()), (18, Some(17)));
        places.iter().for_each(|&place| known.used(place));
        assert!(known.hold(places[3]) && !known.hold(places[3]), "it is in two versions");
        known.forget(0);
        known.load(0, &[]);
        known.release(places[5]);
        assert_eq!(std::iter::from_fn(|| known.take(1, 0, 0).first().copied()).count(), 19, "it was free already");
    }

    #[test]
    fn sequential_writers_get_places_behind_their_last() {
        let mut granules = granules(2);
        let first = granules.take(1, 0, 7)[0];
        let other = granules.take(2, 0, 100);
        assert_eq!(other[1], other[0].next());
        let second = granules.take(1, 0, 8)[0];
        assert_ne!(second, first.next(), "the other came between");
        assert_eq!(granules.take(1, 0, 9)[0], second.next());
        assert_eq!(granules.take(1, 0, 10)[0], second.next().next());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn granules_are_given_once_and_all_of_them(
            steps in prop::collection::vec((0usize..9, any::<bool>(), any::<prop::sample::Index>()), 1..80),
        ) {
            let mut granules = granules(5);
            let total = granules.total();
            prop_assert_eq!(total, 3 * 20 + 2 * 12);
            let mut out: BTreeSet<Place> = BTreeSet::new();
            for (want, back, which) in steps {
                if back && !out.is_empty() {
                    let place = *out.iter().nth(which.index(out.len())).unwrap();
                    out.remove(&place);
                    granules.hold(place);
                    granules.release(place);
                } else {
                    for place in granules.take(want, 0, which.index(1000) as u32) {
                        prop_assert!(out.insert(place), "{place:?} is given twice");
                        granules.used(place);
                    }
                }
                while let Some(slab) = granules.unknown() {
                    let words: Vec<(u32, u64)> = out.iter().filter(|place| place.slab() == slab)
                        .map(|place| (place.index() / 64, 1 << (place.index() % 64))).collect();
                    granules.load(slab, &words);
                }
            }
            let rest = granules.take(1000, 0, 0).len();
            prop_assert_eq!(rest as u64 + out.len() as u64, total);
            prop_assert!(granules.wholly_free().is_empty());
        }
    }
}
