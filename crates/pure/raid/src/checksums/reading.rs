//! Reads from members that are verified against their checksums.

use crate::bug_injection::{self, InjectedBug};
use crate::checksums::{Checksums, Pages};
use crate::geometry::bytes;
use crate::members::{MemberState, ReadWait};
use crate::on_disk::entry::Entry;
use block::{BlockDevice, Extent, IoError, IoErrorKind, Rope};
use simd::crc32c::{crc32c, crc32c_of_slices};
use std::rc::Rc;

const BLOCK: usize = crate::BLOCK_BYTES as usize;

/// State of the blocks of an extent according to their entries.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Written {
    All,
    None,
    Some,
}

impl<D: BlockDevice + 'static> Checksums<D> {
    /// Returns zeros for blocks that were never written; `Gone` when the member is out of service.
    pub(crate) fn read_unwritten(&self, member: u16, extent: Extent) -> Result<Rope, IoError> {
        match self.members.place(member).state() {
            // Zeros from an absent member would hide that it cannot be read.
            MemberState::Failed | MemberState::Missing => Err(IoError::new(IoErrorKind::Gone, extent)),
            MemberState::InService | MemberState::Rebuilding { .. } => Ok(self.pages.zeros(bytes(extent.len.0)).into()),
        }
    }

    /// Reads blocks that are all written, and compares them with their entries.
    pub(crate) async fn read_compared(
        self: &Rc<Self>,
        member: u16,
        extent: Extent,
        wait: ReadWait,
    ) -> Result<Rope, IoError> {
        let rope = self.members.read_data(member, extent, wait).await?;
        loop {
            match compare(&self.pages, member, extent, &rope) {
                Some(None) => {
                    self.pages.forget_mismatches(member, extent);
                    return Ok(rope);
                }
                Some(Some(block)) => {
                    // Remembered for `kind_of`, because the error alone does not tell decay from an unreadable block.
                    self.pages.mismatched.borrow_mut().insert((member, block));
                    return Err(IoError::new(IoErrorKind::Medium, Extent::new(block, 1)).of_member(member));
                }
                // The page was evicted during the read.
                None => drop(self.hold_pages(member, extent).await),
            }
        }
    }

    /// Classifies the blocks of an extent, loading their pages as needed.
    pub(crate) async fn written(self: &Rc<Self>, member: u16, extent: Extent) -> Written {
        loop {
            let (mut written, mut unwritten) = (false, false);
            let seen = self.pages.cache.borrow_mut().visit(member, extent, |_, entries| {
                for entry in entries {
                    written |= !entry.is_unwritten();
                    unwritten |= entry.is_unwritten();
                }
            });
            if seen.is_some() {
                return match (written, unwritten) {
                    (true, true) => Written::Some,
                    (false, _) => Written::None,
                    _ => Written::All,
                };
            }
            // Loads the pages; they may be evicted again before the next look, so this is a loop.
            let pins = self.hold_pages(member, extent).await;
            drop(pins);
        }
    }

    /// Splits an extent where blocks start or stop being written. Its pages are in memory.
    pub(crate) fn runs(&self, member: u16, extent: Extent) -> Vec<(Extent, bool)> {
        let mut runs: Vec<(Extent, bool)> = Vec::new();
        let cache = self.pages.cache.borrow();
        for block in extent.start.0..extent.end().0 {
            // A block whose page is not in memory is treated as written, because the read verifies it.
            let is_written = cache.entry(member, block).is_none_or(|entry| !entry.is_unwritten());
            match runs.last_mut() {
                Some((run, same)) if *same == is_written => run.len.0 += 1,
                _ => runs.push((Extent::new(block, 1), is_written)),
            }
        }
        runs
    }

    /// The entry of a block; `UNKNOWN` when its page is not in memory.
    pub(crate) fn entry(&self, member: u16, block: u64) -> Entry {
        self.pages.cache.borrow().entry(member, block).unwrap_or(Entry::UNKNOWN)
    }
}

/// Returns the first block that does not match, if any; `None` when the entries are not in memory.
fn compare(pages: &Pages, member: u16, extent: Extent, rope: &Rope) -> Option<Option<u64>> {
    let mut cache = pages.cache.borrow_mut();
    // Before any guard is computed: a partial comparison would be wasted.
    if !cache.covers(member, extent) {
        return None;
    }
    let mut wrong = None;
    let mut guards = guards_of(rope);
    cache.visit(member, extent, |first, entries| {
        for (block, entry) in (first..).zip(entries) {
            let guard = guards.next().expect("a rope has a guard for each block");
            if wrong.is_none() && !entry.matches(pages.binding(member, block), guard) {
                wrong = Some(block);
            }
        }
    });
    if bug_injection::is_injected(InjectedBug::NoCompare) {
        return Some(None);
    }
    Some(wrong)
}

/// Computes the CRC32C of each block of a rope, however it is split.
fn guards_of(rope: &Rope) -> impl Iterator<Item = u32> {
    // Whole blocks need no list of slices.
    let is_even = rope.parts().all(|part| part.len().is_multiple_of(BLOCK));
    let mut even = is_even.then(|| rope.parts().flat_map(|part| part.chunks(BLOCK)).map(crc32c));
    let mut at = 0;
    std::iter::from_fn(move || match &mut even {
        Some(even) => even.next(),
        // A block that is split over parts is checksummed across them, without a copy.
        None if at < rope.len() => {
            let block = rope.slice(at..at + BLOCK);
            at += BLOCK;
            Some(crc32c_of_slices(block.parts().map(|part| &**part)))
        }
        None => None,
    })
}
