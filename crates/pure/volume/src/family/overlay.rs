//! In-memory overlay of a map: changes since the last checkpoint, above the unchanged tree.
//!
//! The changes of a checkpoint in progress are *frozen*: lookups still see them, and newer changes lie above
//! them.

use crate::maplog::Record;
use crate::tree::{Change, Key, Tag};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Changed keys: versions by value, allocation bitmaps as bits set and cleared.
#[derive(Clone, Debug, Default)]
pub(crate) struct OverlayLayer {
    changes: BTreeMap<Key, Change>,
}

impl OverlayLayer {
    /// Applies a record, including its allocation and freeing of granules.
    fn apply(&mut self, record: &Record) {
        // The last change of a key wins.
        self.changes.insert(record.key, record.value.map_or(Change::Remove, Change::Put));
        if let Some(place) = record.place() {
            self.mark(place.slab(), place.index() / 64, 1 << (place.index() % 64), 0);
        }
        if let Some(freed) = record.freed {
            self.mark(freed.slab(), freed.index() / 64, 0, 1 << (freed.index() % 64));
        }
    }

    fn mark(&mut self, slab: u32, word: u32, set: u64, clear: u64) {
        self.mask(Key::taken(slab, word), set, clear);
    }

    fn mask(&mut self, key: Key, set: u64, clear: u64) {
        // A mask, not a value: the tree's bits need not be read to record a change of some of them.
        let change = self.changes.entry(key).or_insert(Change::Mask { set: 0, clear: 0 });
        // Bitmaps change by masks alone, so the entry is one.
        if let Change::Mask { set: sets, clear: clears } = change {
            *sets = (*sets | set) & !clear;
            *clears = (*clears | clear) & !set;
        }
    }

    fn last(&self, range: RangeInclusive<Key>) -> Option<(Key, Change)> {
        self.changes.range(range).next_back().map(|(&key, &change)| (key, change))
    }
}

/// Active and frozen changes above a tree.
#[derive(Clone, Debug, Default)]
pub(crate) struct MapOverlay {
    active: OverlayLayer,
    frozen: Option<Rc<OverlayLayer>>,
}

impl MapOverlay {
    pub(crate) fn apply(&mut self, record: &Record) {
        self.active.apply(record);
    }

    /// Marks granules of one 64-granule word of a slab as allocated (`set`) or free (`clear`).
    pub(crate) fn mark(&mut self, slab: u32, word: u32, set: u64, clear: u64) {
        self.active.mark(slab, word, set, clear);
    }

    /// Number of changes that the next checkpoint must write.
    pub(crate) fn len(&self) -> usize {
        self.active.changes.len()
    }

    /// Freezes the changes so far for a checkpoint.
    pub(crate) fn freeze(&mut self) -> Rc<OverlayLayer> {
        assert!(self.frozen.is_none(), "one checkpoint is written at a time");
        // Changes from here on belong to the next checkpoint, and are seen above the frozen ones.
        let frozen = Rc::new(std::mem::take(&mut self.active));
        self.frozen = Some(frozen.clone());
        frozen
    }

    /// Drops the frozen changes after the checkpoint: the tree contains them.
    pub(crate) fn drop_frozen(&mut self) {
        self.frozen = None;
    }

    /// Merges the frozen changes back after a failed checkpoint: the next one writes them, together with newer
    /// changes.
    pub(crate) fn merge_back(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        // The frozen layer becomes the active one again, and the newer changes are applied on top.
        let newer = std::mem::replace(&mut self.active, Rc::unwrap_or_clone(frozen));
        for (key, change) in newer.changes {
            match change {
                // Bits of both layers are combined; every other newer change replaces the frozen one.
                Change::Mask { set, clear } => self.active.mask(key, set, clear),
                _ => drop(self.active.changes.insert(key, change)),
            }
        }
    }

    /// Last changed key in `range` and its change.
    pub(crate) fn last(&self, range: RangeInclusive<Key>) -> Option<(Key, Change)> {
        let frozen = self.frozen.as_ref().and_then(|frozen| frozen.last(range.clone()));
        match (self.active.last(range), frozen) {
            // Of equal keys the active layer wins, being newer.
            (Some(active), Some(frozen)) if frozen.0 > active.0 => Some(frozen),
            (Some(active), _) => Some(active),
            (None, frozen) => frozen,
        }
    }

    /// Applies the changes to `entries`, the tree's entries with keys from `from` up to, but not including,
    /// `end`.
    pub(crate) fn apply_to(&self, entries: Vec<(Key, u64)>, from: Key, end: Key) -> Vec<(Key, u64)> {
        let mut result = entries;
        // Oldest layer first, so that newer changes override it.
        for layer in self.frozen.iter().map(|frozen| &**frozen).chain([&self.active]) {
            let mut changes = layer.changes.range(from..end).peekable();
            // Most leaves have no change, and are then not copied.
            if changes.peek().is_none() {
                continue;
            }
            let mut merged = Vec::with_capacity(result.len());
            let mut old = result.into_iter().peekable();
            for (&key, &change) in changes {
                while let Some(entry) = old.next_if(|entry| entry.0 < key) {
                    merged.push(entry);
                }
                let before = old.next_if(|entry| entry.0 == key).map(|(_, value)| value);
                merged.extend(change.of(before).map(|value| (key, value)));
            }
            merged.extend(old);
            result = merged;
        }
        result
    }
}

/// Combines the changes of a frozen layer with the changed counters for the tree.
pub(crate) fn tree_changes(layer: &OverlayLayer, counters: BTreeMap<Key, Change>) -> BTreeMap<Key, Change> {
    let mut changes = layer.changes.clone();
    let are_counters = counters.keys().all(|key| key.tag() == Some(Tag::Counter));
    assert!(are_counters, "no counter hides a version or what is taken");
    changes.extend(counters);
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::GranuleAddress;

    fn record(granule: u32, value: Option<u64>, freed: Option<u64>) -> Record {
        let key = Key::version(0, granule, 1);
        Record { key, value, freed: freed.map(GranuleAddress), mapped: 0, exclusive: false }
    }

    #[test]
    fn layers_show_the_newest_of_active_frozen_and_tree() {
        let mut layers = MapOverlay::default();
        layers.apply(&record(3, Some(30), None));
        layers.apply(&record(4, None, None));
        layers.freeze();
        layers.apply(&record(3, None, Some(30)));
        layers.apply(&record(6, Some(60), None));
        let key = |granule| Key::version(0, granule, 1);
        let tree = vec![(key(3), 3), (key(4), 4), (key(5), 5), (key(6), 6)];
        assert_eq!(layers.apply_to(tree, key(0), key(9)), [(key(5), 5), (key(6), 60)]);
        assert_eq!(layers.last(key(0)..=key(5)), Some((key(4), Change::Remove)));
        assert_eq!(layers.last(key(0)..=key(3)), Some((key(3), Change::Remove)));
        layers.drop_frozen();
        assert_eq!(layers.last(key(4)..=key(5)), None);
    }

    #[test]
    fn layers_of_a_checkpoint_that_failed_are_as_if_it_had_not_begun() {
        let mut layers = MapOverlay::default();
        layers.apply(&record(3, Some(65), None));
        layers.apply(&record(4, Some(66), None));
        layers.freeze();
        layers.apply(&record(3, Some(67), Some(65)));
        let (from, end) = (Key(0), Key(u128::MAX));
        let before = layers.apply_to(Vec::new(), from, end);
        layers.merge_back();
        assert_eq!(layers.apply_to(Vec::new(), from, end), before);
        assert_eq!(layers.apply_to(vec![(Key::taken(0, 1), 1 << 1)], from, end).last().unwrap().1, 1 << 2 | 1 << 3);
        layers.freeze();
    }

    #[test]
    fn layers_tell_which_granules_are_taken_whatever_the_tree_says() {
        let mut layers = MapOverlay::default();
        layers.apply(&record(3, Some(65), None));
        layers.apply(&record(3, Some(66), Some(65)));
        layers.apply(&record(4, None, Some(70)));
        let word = Key::taken(0, 1);
        assert_eq!(layers.apply_to(vec![(word, 1 << 6 | 1)], word, word.next()), [(word, 1 | 1 << 2)]);
        assert_eq!(layers.apply_to(Vec::new(), word, word.next()), [(word, 1 << 2)]);
    }
}
