//! Checksum page: the entries of a run of blocks of one member, as both copies have it on disk.

use crate::bounds::{BLOCK_BYTES, MEMBERS_MAX};
use crate::on_disk::area::PAGE_ENTRIES;
use crate::on_disk::entry::Entry;
use crate::on_disk::wire::{COUNT_MAX, Reader, put};
use block::frame::Format;
use block::{Buf, Extent, View};
use std::ops::Range;

/// Entries of one page.
pub(crate) type Entries = [Entry; PAGE_ENTRIES as usize];

/// Identity of a page: the member whose blocks it describes, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PageId {
    pub(crate) member: u16,
    pub(crate) page: u64,
}

/// Blocks whose entries the page holds.
pub(crate) fn blocks_of(page: u64) -> Extent {
    Extent::new(page * PAGE_ENTRIES, PAGE_ENTRIES)
}

/// Pages that hold the entries of these blocks.
pub(crate) fn pages_of(extent: Extent) -> Range<u64> {
    extent.start.0 / PAGE_ENTRIES..extent.end().0.div_ceil(PAGE_ENTRIES)
}

const FORMAT: Format = Format::plain(*b"BLKYSUMS");
const ENTRIES_AT: usize = 64;

/// Decoded page.
pub(crate) struct Found {
    pub(crate) stamp: u64,
    pub(crate) entries: Box<Entries>,
}

impl Found {
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp
    }

    #[cfg(feature = "fuzzing")]
    pub(crate) fn entries(&self) -> &Entries {
        &self.entries
    }

    /// True when the page holds exactly these entries.
    pub(crate) fn has(&self, entries: &Entries) -> bool {
        *self.entries == *entries
    }
}

/// Encodes a page for both homes; of two versions the one with the higher stamp is newer.
pub(crate) fn emit(id: [u8; 16], page: PageId, stamp: u64, entries: &Entries) -> View {
    let mut block = Buf::zeroed(BLOCK_BYTES as usize);
    // The frame of a format without a version ends at 12; the four bytes behind it stay zero.
    put(&mut block, 16, &id);
    put(&mut block, 32, &stamp.to_le_bytes());
    put(&mut block, 40, &page.page.to_le_bytes());
    put(&mut block, 48, &page.member.to_le_bytes());
    for (bytes, entry) in block[ENTRIES_AT..].as_chunks_mut::<8>().0.iter_mut().zip(entries) {
        *bytes = entry.to_bytes();
    }
    FORMAT.seal(&mut block);
    block.freeze()
}

/// True for a block with the magic of a page, whether it is intact or not.
pub(crate) fn is_meant(block: &[u8]) -> bool {
    FORMAT.has_magic(block)
}

/// Decodes the block if it is this page and intact.
pub(crate) fn parse(block: &[u8], id: [u8; 16], page: PageId) -> Option<Found> {
    let (is, found) = parse_any(block, id)?;
    // A misdirected write of another page is as wrong as a damaged one.
    (is == page || crate::bug_injection::is_injected(crate::bug_injection::InjectedBug::AnyPage)).then_some(found)
}

/// Decodes the block if it is an intact page of the array; returns which.
pub(crate) fn parse_any(block: &[u8], id: [u8; 16]) -> Option<(PageId, Found)> {
    let mut reader = Reader(block.get(16..)?);
    let (array, stamp, page, member) = (reader.array::<16>()?, reader.u64()?, reader.u64()?, reader.u16()?);
    // An implausible stamp would become the counter of the array, which only increases.
    let is_possible = stamp < COUNT_MAX && member < MEMBERS_MAX;
    // The cheap comparisons first: most foreign blocks fail the identity.
    if array != id || !is_possible || FORMAT.open(block).is_err() {
        return None;
    }
    let mut entries = Box::new([Entry::UNWRITTEN; PAGE_ENTRIES as usize]);
    for (entry, bytes) in entries.iter_mut().zip(block.get(ENTRIES_AT..)?.as_chunks::<8>().0) {
        *entry = Entry::from_bytes(*bytes);
    }
    Some((PageId { member, page }, Found { stamp, entries }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_another_identity_is_rejected() {
        let id = PageId { member: 3, page: 9 };
        let mut entries = [Entry::UNWRITTEN; PAGE_ENTRIES as usize];
        entries[503] = Entry { check: 1, generation: 2 };
        let block = emit([7; 16], id, 11, &entries);
        assert_eq!(block[..16], *b"BLKYSUMSGy\xfe\xa9\0\0\0\0");
        let found = parse(&block, [7; 16], id).expect("whole");
        assert_eq!((found.stamp, found.entries[503].generation), (11, 2));
        assert!(parse(&block, [8; 16], id).is_none());
        assert!(parse(&block, [7; 16], PageId { member: 2, ..id }).is_none());
        assert!(parse(&block, [7; 16], PageId { page: 8, ..id }).is_none());
        assert!(parse(&emit([7; 16], id, u64::MAX, &entries), [7; 16], id).is_none(), "no array counts so far");
        let mut torn = block.into_buf();
        torn[4000] ^= 1;
        assert!(parse(&torn, [7; 16], id).is_none());
    }
}
