//! Page index: a hash table from groups of pages to frames.

#![expect(clippy::disallowed_types, reason = "the hasher has no seed, and the table is never iterated")]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Pages per group: one lookup covers 64 KiB.
pub(super) const GROUP_PAGES: u64 = 16;
/// Marker for a page without a frame.
pub(super) const NOWHERE: u32 = u32::MAX;

/// Frame number of every page of a group.
type Group = [u32; GROUP_PAGES as usize];

/// Hasher that multiplies and folds: the keys are small numbers of our own, which no attacker chooses.
#[derive(Default)]
pub(super) struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Required by the trait. The keys of this index are hashed by words.
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        // The rotation makes the order of the words in a key count.
        let product = u128::from(self.0.rotate_left(23) ^ word ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
        // Both halves: the table uses the lowest and the highest bits, and the low half alone leaves the lowest weak.
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

/// Hash table with this hasher; never iterate it, because the order is not defined.
pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Fold>>;

#[derive(Debug, Default)]
pub(super) struct Index(Table<(u32, u64), Group>);

impl Index {
    /// Frames of the group that contains `page`, if any page of it is cached.
    pub(super) fn group(&self, owner: u32, page: u64) -> Option<&Group> {
        self.0.get(&(owner, page / GROUP_PAGES))
    }

    /// Frame that holds `page`.
    pub(super) fn frame(&self, owner: u32, page: u64) -> Option<u32> {
        let frame = self.group(owner, page)?[place(page)];
        (frame != NOWHERE).then_some(frame)
    }

    /// Sets the frame of `page`.
    pub(super) fn put(&mut self, owner: u32, page: u64, frame: u32) {
        let group = self.0.entry((owner, page / GROUP_PAGES));
        group.or_insert([NOWHERE; GROUP_PAGES as usize])[place(page)] = frame;
    }

    /// Removes `page`; returns the frame that held it.
    pub(super) fn take(&mut self, owner: u32, page: u64) -> Option<u32> {
        let key = (owner, page / GROUP_PAGES);
        let group = self.0.get_mut(&key)?;
        let frame = std::mem::replace(&mut group[place(page)], NOWHERE);
        // Empty groups are removed, so that the table is bounded by the cached pages.
        if group.iter().all(|&frame| frame == NOWHERE) {
            self.0.remove(&key);
        }
        (frame != NOWHERE).then_some(frame)
    }
}

/// Index of a page in its group.
pub(super) fn place(page: u64) -> usize {
    (page % GROUP_PAGES) as usize
}
