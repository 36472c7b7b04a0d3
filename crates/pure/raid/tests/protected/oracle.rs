//! Oracle: permitted content of each block after a power cut.

use crate::disk::BLOCK;
use block::{Buf, Extent, View};
use std::cell::RefCell;
use std::collections::BTreeMap;

/// Name of a write; 0 for never written.
pub(crate) type Name = u64;

thread_local! {
    static CONTENTS: RefCell<BTreeMap<(Name, u64), View>> = const { RefCell::new(BTreeMap::new()) };
}

/// Content of block `lba` as written under `name`.
pub(crate) fn content(name: Name, lba: u64) -> View {
    CONTENTS.with_borrow_mut(|contents| contents.entry((name, lba)).or_insert_with(|| make(name, lba)).clone())
}

fn make(name: Name, lba: u64) -> View {
    let mut buf = Buf::zeroed(BLOCK);
    if name != 0 {
        let mut state = (name << 32 | lba).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for word in buf.chunks_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
    }
    buf.freeze()
}

/// Content of a run of blocks.
pub(crate) fn run(name: Name, extent: Extent) -> View {
    let mut buf = Buf::zeroed(extent.len.0 as usize * BLOCK);
    for (lba, into) in (extent.start.0..).zip(buf.chunks_mut(BLOCK)) {
        into.copy_from_slice(&content(name, lba));
    }
    buf.freeze()
}

/// State of one block: the names in the order of their writes, from the oldest that a cut may leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct May {
    names: Vec<Name>,
    /// Number of older names that were dropped.
    forgotten: usize,
    /// Position before which names are older than one that a flush could cover, counted with the dropped ones.
    ended: usize,
}

/// Permitted content of every block.
#[derive(Clone, Debug)]
pub(crate) struct Oracle(pub Vec<May>);

impl Oracle {
    pub(crate) fn new(blocks: u64) -> Self {
        Self(vec![May { names: vec![0], forgotten: 0, ended: 0 }; blocks as usize])
    }

    fn of(&mut self, extent: Extent) -> &mut [May] {
        &mut self.0[extent.start.0 as usize..extent.end().0 as usize]
    }

    /// Records the start of a write or discard. Content that is dead may be zeros as well.
    pub(crate) fn begin(&mut self, extent: Extent, name: Name, fresh: bool) {
        for may in self.of(extent) {
            if fresh {
                may.names.push(0);
            }
            may.names.push(name);
        }
    }

    /// Records its end: a flush that starts now makes it durable.
    pub(crate) fn end(&mut self, extent: Extent) {
        self.of(extent).iter_mut().for_each(|may| may.ended = may.forgotten + may.names.len() - 1);
    }

    /// State that a flush that starts now will have made durable.
    pub(crate) fn flush_begins(&self) -> Vec<usize> {
        self.0.iter().map(|may| may.ended).collect()
    }

    pub(crate) fn flush_ends(&mut self, covered: &[usize]) {
        for (may, &covered) in self.0.iter_mut().zip(covered) {
            may.names.drain(..covered.saturating_sub(may.forgotten));
            may.forgotten = may.forgotten.max(covered);
        }
    }

    /// Returns the names that were found, or the first block with a content that is not permitted.
    pub(crate) fn judge(&self, start: u64, found: &[u8]) -> Result<(), String> {
        for ((lba, found), may) in (start..).zip(found.chunks(BLOCK)).zip(&self.0[start as usize..]) {
            if !may.names.iter().any(|&name| *content(name, lba) == *found) {
                return Err(format!("block {lba} holds none of {:?}", may.names));
            }
        }
        Ok(())
    }
}
