//! Content of a medium: sparse pages, shared by copies until they are written.

use super::ATOM_BYTES;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::Rc;

const PAGE_ATOMS: u64 = 8;

/// Content of a disk by atom; unwritten atoms are zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(BTreeMap<u64, Rc<Page>>);

pub(crate) type Page = [[u8; ATOM_BYTES]; PAGE_ATOMS as usize];

static ZEROS: [u8; ATOM_BYTES] = [0; ATOM_BYTES];

impl Store {
    /// Content of the atom.
    pub(crate) fn atom(&self, atom: u64) -> &[u8] {
        match self.0.get(&(atom / PAGE_ATOMS)) {
            Some(page) => &page[(atom % PAGE_ATOMS) as usize],
            None => &ZEROS,
        }
    }

    /// Returns every written page with its number.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u64, &Page)> {
        self.0.iter().map(|(&number, page)| (number, &**page))
    }

    /// Writes the atom. Zeros to an unwritten page take no memory.
    pub(crate) fn write(&mut self, atom: u64, bytes: &[u8]) {
        let (page, at) = (atom / PAGE_ATOMS, (atom % PAGE_ATOMS) as usize);
        let page = match self.0.entry(page) {
            // Zeros need no page, so a sparse disk stays sparse.
            Entry::Vacant(_) if bytes == ZEROS => return,
            entry => entry.or_insert_with(|| Rc::new([ZEROS; PAGE_ATOMS as usize])),
        };
        // Copy on write: images share the pages.
        Rc::make_mut(page)[at].copy_from_slice(bytes);
    }
}
