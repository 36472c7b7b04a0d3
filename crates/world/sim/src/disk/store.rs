//! What is on a medium: sparse pages that copies share until they are written.

use super::ATOM_BYTES;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

const PAGE_ATOMS: u64 = 8;

/// The content of a disk by atom; what was never written is zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(BTreeMap<u64, Rc<Page>>);

pub(crate) type Page = [[u8; ATOM_BYTES]; PAGE_ATOMS as usize];

static ZEROS: [u8; ATOM_BYTES] = [0; ATOM_BYTES];

impl Store {
    /// The atom's bytes.
    pub(crate) fn atom(&self, atom: u64) -> &[u8] {
        match self.0.get(&(atom / PAGE_ATOMS)) {
            Some(page) => &page[(atom % PAGE_ATOMS) as usize],
            None => &ZEROS,
        }
    }

    /// Every page in which something was written, by its number.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.0.iter().map(|(&number, page)| (number, &**page))
    }

    /// The atom holds `bytes` from now on. Zeros where nothing ever was take no memory.
    pub(crate) fn write(&mut self, atom: u64, bytes: &[u8]) {
        let (page, at) = (atom / PAGE_ATOMS, (atom % PAGE_ATOMS) as usize);
        let page = match self.0.entry(page) {
            Entry::Vacant(_) if bytes == ZEROS => return,
            entry => entry.or_insert_with(|| Rc::new([ZEROS; PAGE_ATOMS as usize])),
        };
        Rc::make_mut(page)[at].copy_from_slice(bytes);
    }
}
