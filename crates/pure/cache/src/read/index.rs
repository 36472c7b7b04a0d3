//! Which frame holds which page: a table of groups of pages.

#![expect(clippy::disallowed_types, reason = "the hasher has no seed, and the table is never iterated")]

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Pages of one group: one look into the table finds 64 KiB.
pub(super) const GROUP_PAGES: u64 = 16;
/// A page that no frame holds.
pub(super) const NOWHERE: u32 = u32::MAX;

/// A frame's number for every page of a group.
type Group = [u32; GROUP_PAGES as usize];

/// Multiplies and folds: keys are small numbers of our own, nobody attacks them.
#[derive(Default)]
pub(super) struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0.rotate_left(23) ^ word ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }
}

/// A table with the hasher above; never iterate it.
pub(super) type Table<K, V> = HashMap<K, V, BuildHasherDefault<Fold>>;

#[derive(Debug, Default)]
pub(super) struct Index(Table<(u32, u64), Group>);

impl Index {
    /// The frames of the pages of the group that `page` is in, if any is held.
    pub(super) fn group(&self, owner: u32, page: u64) -> Option<&Group> {
        self.0.get(&(owner, page / GROUP_PAGES))
    }

    /// The frame that holds `page`.
    pub(super) fn frame(&self, owner: u32, page: u64) -> Option<u32> {
        let frame = self.group(owner, page)?[place(page)];
        (frame != NOWHERE).then_some(frame)
    }

    /// The frame `frame` holds `page` from now on.
    pub(super) fn put(&mut self, owner: u32, page: u64, frame: u32) {
        let group = self.0.entry((owner, page / GROUP_PAGES));
        group.or_insert([NOWHERE; GROUP_PAGES as usize])[place(page)] = frame;
    }

    /// No frame holds `page` from now on; returns the one that did.
    pub(super) fn take(&mut self, owner: u32, page: u64) -> Option<u32> {
        let key = (owner, page / GROUP_PAGES);
        let group = self.0.get_mut(&key)?;
        let frame = std::mem::replace(&mut group[place(page)], NOWHERE);
        if group.iter().all(|&frame| frame == NOWHERE) {
            self.0.remove(&key);
        }
        (frame != NOWHERE).then_some(frame)
    }
}

/// The place of a page in its group.
pub(super) fn place(page: u64) -> usize {
    (page % GROUP_PAGES) as usize
}
