//! Granule allocator of a family: free granules of its slabs, and which of them a writer gets.
//!
//! A slab is *loaded* (its free granules are known, and there are some), *unknown* (not read yet) or full. A
//! granule is *held* while a write fills it, and again after it was freed until neither the map on disk nor an
//! active reader can refer to it.

use crate::tree::GranuleAddress;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};

/// Places allocated for one write.
pub(crate) type Allocation = SmallVec<[GranuleAddress; 16]>;
/// Maximum number of slabs of one group searched for a whole free stripe.
const LOOKS_MAX: usize = 8;
/// Number of sequential write streams tracked.
const STREAMS: usize = 8;

/// Division of a group's slabs into granules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of granules in a slab.
    pub(crate) granules: u32,
    /// Number of granules that form whole stripes; 1 where none do.
    pub(crate) unit: u32,
}

impl Shape {
    pub(crate) fn of(slab_blocks: u32, granule_blocks: u32, stripe_blocks: u32) -> Self {
        let granules = slab_blocks / granule_blocks;
        let mut unit = 1;
        // The smallest number of granules whose blocks are a whole number of stripes.
        while unit < granules && !(unit * granule_blocks).is_multiple_of(stripe_blocks.max(1)) {
            unit += 1;
        }
        let whole = (unit * granule_blocks).is_multiple_of(stripe_blocks.max(1));
        Self { granules, unit: if whole { unit } else { 1 } }
    }
}

#[derive(Debug)]
struct Loaded {
    /// Bitmap of granules that cannot be allocated.
    busy: SmallVec<[u64; 4]>,
    free: u32,
}

/// Allocation state of one family's granules.
#[derive(Debug)]
pub(crate) struct Granules {
    /// Slab division by group.
    shapes: Vec<Shape>,
    /// All slabs, by number.
    slabs: BTreeSet<u32>,
    loaded: BTreeMap<u32, Loaded>,
    unknown: BTreeSet<u32>,
    held: BTreeSet<GranuleAddress>,
    total: u64,
    /// Group from which the next stripe is allocated (round robin).
    next_group: usize,
    /// Per group, the slab in which the last whole stripe and the last single granule were found.
    cursors: Vec<[u32; 2]>,
    /// Ends of sequential streams: branch, next granule, and the place behind the last one.
    streams: [Option<(u32, u32, GranuleAddress)>; STREAMS],
    next_stream: usize,
}

impl Granules {
    pub(crate) fn new(shapes: Vec<Shape>) -> Self {
        let cursors = shapes.iter().zip(0..).map(|(_, group)| [GranuleAddress::slab_number(group, 0); 2]).collect();
        Self {
            shapes,
            slabs: BTreeSet::new(),
            loaded: BTreeMap::new(),
            unknown: BTreeSet::new(),
            held: BTreeSet::new(),
            total: 0,
            next_group: 0,
            cursors,
            streams: [None; STREAMS],
            next_stream: 0,
        }
    }

    /// Sets the division of groups; existing slabs are unchanged.
    pub(crate) fn reshape(&mut self, shapes: Vec<Shape>) {
        // Cursors of the known groups stay: they point into slabs that have not moved.
        let fresh = (self.cursors.len() as u16..).take(shapes.len().saturating_sub(self.cursors.len()));
        assert!(shapes.len() >= self.shapes.len(), "groups keep their numbers");
        self.cursors.extend(fresh.map(|group| [GranuleAddress::slab_number(group, 0); 2]));
        self.shapes = shapes;
    }

    fn shape(&self, slab: u32) -> Shape {
        self.shapes[(slab >> 24) as usize]
    }

    /// Number of granules in all slabs.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// Number of held granules.
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

    /// Number of granules in a slab.
    pub(crate) fn granules(&self, slab: u32) -> u32 {
        self.shape(slab).granules
    }

    /// Number of granules that form whole stripes of the group.
    pub(crate) fn unit(&self, group: u16) -> u32 {
        self.shapes[usize::from(group)].unit
    }

    /// Adds a slab: all free when `is_new`, otherwise unknown.
    pub(crate) fn add(&mut self, slab: u32, is_new: bool) {
        let granules = self.granules(slab);
        if self.slabs.insert(slab) {
            self.total += u64::from(granules);
        }
        // A slab just leased has no entry in the map, so it need not be read.
        if is_new {
            let busy = SmallVec::from_elem(0, granules.div_ceil(64) as usize);
            self.loaded.insert(slab, Loaded { busy, free: granules });
        } else {
            self.unknown.insert(slab);
        }
    }

    /// Removes a slab.
    pub(crate) fn remove(&mut self, slab: u32) {
        if self.slabs.remove(&slab) {
            let granules = u64::from(self.granules(slab));
            assert!(self.total >= granules, "the granules of all slabs are counted");
            self.total -= granules;
        }
        self.loaded.remove(&slab);
        self.unknown.remove(&slab);
    }

    /// Marks a slab as unknown.
    pub(crate) fn mark_unknown(&mut self, slab: u32) {
        self.loaded.remove(&slab);
        self.unknown.insert(slab);
    }

    /// Returns a slab whose free granules are unknown.
    pub(crate) fn unknown(&self) -> Option<u32> {
        self.unknown.first().copied()
    }

    /// Loads a slab: granules neither in `taken` nor held are free.
    pub(crate) fn load(&mut self, slab: u32, taken: &[(u32, u64)]) {
        if !self.unknown.remove(&slab) {
            return;
        }
        let granules = self.granules(slab);
        let mut busy: SmallVec<[u64; 4]> = SmallVec::from_elem(0, granules.div_ceil(64) as usize);
        // Words beyond the slab come only from a damaged map and are ignored.
        for &(word, bits) in taken {
            if let Some(place) = busy.get_mut(word as usize) {
                *place |= bits;
            }
        }
        // Held places are free in the map, but in use by a writer or possibly by a reader.
        for place in self.held.range(GranuleAddress::new(slab, 0)..=GranuleAddress::new(slab, 0x00ff_ffff)) {
            busy[place.index() as usize / 64] |= 1 << (place.index() % 64);
        }
        // Bits beyond the last granule are ignored, whatever a damaged map says.
        let behind = busy.len() as u32 * 64 - granules;
        if let Some(last) = busy.last_mut() {
            *last &= u64::MAX >> behind;
        }
        let free = granules - busy.iter().map(|word| word.count_ones()).sum::<u32>();
        if free > 0 {
            self.loaded.insert(slab, Loaded { busy, free });
        }
    }

    /// Allocates up to `want` places, held for the caller; fewer where no more are known to be free.
    ///
    /// Whole stripes come first, then the places behind the end of the stream that wrote the preceding granule.
    pub(crate) fn take(&mut self, want: usize, branch: u32, granule: u32) -> Allocation {
        let mut places = Allocation::new();
        // Full stripes first: they are written without read-modify-write.
        while self.shapes.iter().any(|shape| shape.unit > 1 && want - places.len() >= shape.unit as usize) {
            let run = self.take_unit(want - places.len());
            if run.is_empty() {
                break;
            }
            places.extend(run);
        }
        // Continuing behind the last write keeps sequential data adjacent.
        if places.is_empty() {
            let behind = self.streams.iter().flatten().find(|stream| (stream.0, stream.1) == (branch, granule));
            let mut next = behind.map(|stream| stream.2);
            while let Some(place) = next.filter(|&place| places.len() < want && self.take_one(place)) {
                places.push(place);
                next = Some(place.next());
            }
        }
        // Everything else takes the first free granules.
        while places.len() < want
            && let Some(place) = self.first_free()
        {
            assert!(self.take_one(place), "a free place can be taken");
            places.push(place);
        }
        assert!(places.len() <= want, "nobody gets more places than were asked for");
        if let Some(last) = places.last().filter(|_| places.len() == want) {
            // Only a fully satisfied request continues a stream.
            self.remember(branch, granule, places.len(), last.next());
        }
        places
    }

    /// Allocates one whole stripe, or the smallest number of stripes that granules fill, of at most `most`
    /// granules.
    pub(crate) fn take_unit(&mut self, most: usize) -> Allocation {
        for step in 0..self.shapes.len() {
            let group = (self.next_group + step) % self.shapes.len();
            let unit = self.shapes[group].unit;
            if unit as usize > most {
                continue;
            }
            if let Some(first) = self.find_unit(group, unit) {
                // Round robin over the groups, so that all disks share the load.
                self.next_group = (group + 1) % self.shapes.len();
                let places: Allocation = (0..unit).map(|step| GranuleAddress(first.0 + u64::from(step))).collect();
                assert!(places.iter().all(|&place| self.take_one(place)), "the unit was found free");
                return places;
            }
        }
        Allocation::new()
    }

    /// True when a whole free stripe is found.
    pub(crate) fn has_unit(&mut self) -> bool {
        (0..self.shapes.len()).any(|group| self.find_unit(group, self.shapes[group].unit).is_some())
    }

    fn find_unit(&mut self, group: usize, unit: u32) -> Option<GranuleAddress> {
        // The group is the high part of a slab number, so the slabs of a group are adjacent in the map.
        let numbers = (group as u32) << 24..(group as u32 + 1) << 24;
        // The search starts at the last hit and is bounded: a nearly full slab list must not slow down each
        // write.
        let from = self.cursors[group][0];
        let behind = self.loaded.range(from..numbers.end);
        let before = self.loaded.range(numbers.start..from);
        let granules = self.shapes[group].granules;
        let found = behind.chain(before).take(LOOKS_MAX).find_map(|(&slab, loaded)| {
            let is_free = |index: u32| loaded.busy[index as usize / 64] >> (index % 64) & 1 == 0;
            let starts = (0..granules / unit).map(|number| number * unit);
            let mut fits = starts.filter(|&start| (start..start + unit).all(is_free));
            Some(GranuleAddress::new(slab, fits.next().filter(|_| loaded.free >= unit)?))
        })?;
        self.cursors[group][0] = found.slab();
        Some(found)
    }

    fn first_free(&mut self) -> Option<GranuleAddress> {
        let groups = self.shapes.len();
        (0..groups).map(|step| (self.next_group + step) % groups).find_map(|group| {
            let numbers = (group as u32) << 24..(group as u32 + 1) << 24;
            let from = self.cursors[group][1];
            let mut known = self.loaded.range(from..numbers.end).chain(self.loaded.range(numbers.start..from));
            // Full slabs are not kept loaded, so the first one has a free granule.
            let (&slab, loaded) = known.next()?;
            self.cursors[group][1] = slab;
            // Bits beyond the last granule are clear as well, but a free granule has a lower one.
            let word = loaded.busy.iter().position(|word| *word != u64::MAX)?;
            Some(GranuleAddress::new(slab, word as u32 * 64 + loaded.busy[word].trailing_ones()))
        })
    }

    /// Holds a place if it is known to be free.
    fn take_one(&mut self, place: GranuleAddress) -> bool {
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
        // Full slabs are not kept loaded, which bounds memory and the search.
        if loaded.free == 0 {
            self.loaded.remove(&slab);
        }
        self.held.insert(place);
        true
    }

    fn remember(&mut self, branch: u32, granule: u32, count: usize, next: GranuleAddress) {
        let here =
            |stream: &Option<(u32, u32, GranuleAddress)>| stream.is_some_and(|one| (one.0, one.1) == (branch, granule));
        // A continued stream keeps its slot; a new one replaces the oldest.
        let at = self.streams.iter().position(here).unwrap_or(self.next_stream);
        if at == self.next_stream {
            self.next_stream = (self.next_stream + 1) % STREAMS;
        }
        self.streams[at] = Some((branch, granule.saturating_add(count as u32), next));
    }

    /// Records that the map now refers to the place.
    pub(crate) fn mark_mapped(&mut self, place: GranuleAddress) {
        assert!(self.held.remove(&place), "a place is held until the map has it");
    }

    /// Holds a place that the map no longer refers to, while readers may. False where it is held already:
    /// another version had the same place.
    pub(crate) fn hold_freed(&mut self, place: GranuleAddress) -> bool {
        self.held.insert(place)
    }

    /// Frees a place that nothing refers to any more.
    pub(crate) fn release(&mut self, place: GranuleAddress) {
        self.held.remove(&place);
        let (slab, index) = (place.slab(), place.index());
        match self.loaded.get_mut(&slab) {
            Some(loaded) => {
                let (word, bit) = (&mut loaded.busy[index as usize / 64], 1 << (index % 64));
                // Counted only if the bit was set, so that a repeated release cannot overcount.
                loaded.free += u32::from(*word & bit != 0);
                *word &= !bit;
            }
            // A slab that was full is not loaded; its free granules are read again when needed.
            None if self.slabs.contains(&slab) => {
                self.unknown.insert(slab);
            }
            None => {}
        }
    }

    /// Slabs in which all granules are free.
    pub(crate) fn empty_slabs(&self) -> Vec<u32> {
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
        (0..slabs).for_each(|slab| granules.add(GranuleAddress::slab_number((slab % 2) as u16, slab / 2), true));
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

    /// A map whose bits contradict its versions, or each other, has a valid checksum when it was damaged before
    /// that was computed.
    #[test]
    fn bits_that_contradict_the_map_give_away_no_granule_that_is_none() {
        let mut known = Granules::new(vec![Shape { granules: 20, unit: 4 }]);
        known.add(0, false);
        known.load(0, &[(0, u64::MAX << 18), (7, 3)]);
        let places: Vec<GranuleAddress> = std::iter::from_fn(|| known.take(1, 0, 0).first().copied()).collect();
        assert_eq!((places.len(), places.iter().map(|place| place.index()).max()), (18, Some(17)));
        places.iter().for_each(|&place| known.mark_mapped(place));
        assert!(known.hold_freed(places[3]) && !known.hold_freed(places[3]), "it is in two versions");
        known.mark_unknown(0);
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
            let mut out: BTreeSet<GranuleAddress> = BTreeSet::new();
            for (want, back, which) in steps {
                if back && !out.is_empty() {
                    let place = *out.iter().nth(which.index(out.len())).unwrap();
                    out.remove(&place);
                    granules.hold_freed(place);
                    granules.release(place);
                } else {
                    for place in granules.take(want, 0, which.index(1000) as u32) {
                        prop_assert!(out.insert(place), "{place:?} is given twice");
                        granules.mark_mapped(place);
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
            prop_assert!(granules.empty_slabs().is_empty());
        }
    }
}
