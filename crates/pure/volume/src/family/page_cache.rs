//! Cache of map pages in memory, shared by all families of a pool and bounded by a budget.
//!
//! Set-associative, with least recently used replacement in each set.

use crate::tree::Page;
use std::cell::RefCell;

/// Associativity: a page can be in any place of one set only.
const WAYS: usize = 8;
/// Default size in pages: 32 MiB.
const PAGES: usize = 8192;

/// Cached pages of all families of a pool.
#[derive(Debug)]
pub(crate) struct PageCache {
    sets: RefCell<Sets>,
}

#[derive(Debug)]
struct Sets {
    places: Vec<Option<Cached>>,
    /// Counter of lookups: the page used last has the highest number.
    clock: u64,
}

#[derive(Debug)]
struct Cached {
    key: u64,
    looked: u64,
    page: Page,
}

impl Default for PageCache {
    fn default() -> Self {
        Self { sets: RefCell::new(Sets { places: places(PAGES), clock: 0 }) }
    }
}

fn places(pages: usize) -> Vec<Option<Cached>> {
    let sets = (pages / WAYS).max(1).next_power_of_two();
    std::iter::repeat_with(|| None).take(sets * WAYS).collect()
}

impl PageCache {
    /// Sets the size to about `pages` pages and empties the cache.
    pub(crate) fn resize(&self, pages: usize) {
        // Emptied, because the set of a page depends on the number of sets.
        self.sets.borrow_mut().places = places(pages);
    }

    pub(crate) fn find(&self, key: u64) -> Option<Page> {
        let mut sets = self.sets.borrow_mut();
        sets.clock += 1;
        let clock = sets.clock;
        let cached = sets.set(key).iter_mut().flatten().find(|cached| cached.key == key)?;
        cached.looked = clock;
        Some(cached.page.clone())
    }

    pub(crate) fn insert(&self, key: u64, page: Page) {
        let mut sets = self.sets.borrow_mut();
        sets.clock += 1;
        let looked = sets.clock;
        let set = sets.set(key);
        let same = set.iter().position(|place| place.as_ref().is_some_and(|cached| cached.key == key));
        // An empty place counts as oldest.
        let oldest = || (0..WAYS).min_by_key(|&at| set[at].as_ref().map_or(0, |cached| cached.looked));
        // A page that is cached already is replaced where it is, so that no key occurs twice.
        let at = same.or_else(oldest).expect("a set has places");
        set[at] = Some(Cached { key, looked, page });
    }

    pub(crate) fn forget(&self, key: u64) {
        let mut sets = self.sets.borrow_mut();
        // The number of a page that was given up may come back with another content.
        for place in sets.set(key) {
            if place.as_ref().is_some_and(|cached| cached.key == key) {
                *place = None;
            }
        }
    }
}

impl Sets {
    fn set(&mut self, key: u64) -> &mut [Option<Cached>] {
        let sets = self.places.len() / WAYS;
        // Fibonacci hashing: page numbers of one family are consecutive and must spread over the sets.
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let at = mixed as usize % sets * WAYS;
        &mut self.places[at..at + WAYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Key, PageIdentity};

    fn page(number: u64) -> Page {
        let identity = PageIdentity { family: [0; 16], birth: 0, number, generation: 0 };
        Page::emit(identity, 0, &[(Key(1), number)])
    }

    #[test]
    fn page_cache_keeps_what_was_looked_at_last_within_its_budget() {
        let cache = PageCache::default();
        cache.resize(8);
        (0..8).for_each(|number| cache.insert(number, page(number)));
        assert!(cache.find(0).is_some());
        cache.insert(100, page(100));
        assert!(cache.find(1).is_none() && cache.find(0).is_some());
        assert_eq!(cache.find(100).unwrap().entry(0).1, 100);
        cache.forget(100);
        assert!(cache.find(100).is_none());
        assert!((0..101).filter(|&number| cache.find(number).is_some()).count() <= 8);
    }
}
