//! Cached CRC32C of resident pages, valid until the page is written: data that is sent repeatedly is summed once.
//!
//! Used by [`View::crc32c_append`](super::View::crc32c_append) for data digests (docs/adr/0014).

use super::PAGE_BYTES;
use simd::crc32c::{crc32c, crc32c_append, crc32c_append_page};
use simd::memory::prefetch_value;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Flag of an entry whose checksum is valid. Bit 32, as the checksum takes the lower 32 bits.
const KNOWN: u64 = 1 << 32;

/// CRC32C of each page of a run, in the lower half of its entry; allocated on first use.
#[derive(Debug, Default)]
pub(super) struct ChecksumCache(OnceLock<Box<[AtomicU64]>>);

impl ChecksumCache {
    /// Appends `bytes[range]` to the CRC32C `crc`. `bytes` are all the pages of the buffer.
    pub(super) fn append(&self, crc: u32, bytes: &[u8], range: Range<usize>) -> u32 {
        // Whole pages only: parts of pages at both ends are summed directly.
        let whole = range.start.div_ceil(PAGE_BYTES)..range.end / PAGE_BYTES;
        if whole.is_empty() {
            return crc32c_append(crc, &bytes[range]);
        }
        let crc = crc32c_append(crc, &bytes[range.start..whole.start * PAGE_BYTES]);
        let behind = &bytes[whole.end * PAGE_BYTES..range.end];
        let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
        // Allocated on first use: storage that is never sent has no table.
        let entries = self.0.get_or_init(|| pages.iter().map(|_| AtomicU64::new(0)).collect());
        // The checksum of a page is joined to the running one arithmetically, without reading the page.
        let crc = whole.fold(crc, |crc, page| crc32c_append_page(crc, sum(&entries[page], &pages[page])));
        crc32c_append(crc, behind)
    }

    /// Prefetches the cached checksum of the page that holds byte `at`.
    #[inline]
    pub(super) fn prefetch(&self, at: usize) {
        if let Some(entry) = self.0.get().and_then(|entries| entries.get(at / PAGE_BYTES)) {
            prefetch_value(entry);
        }
    }

    /// Invalidates the checksums of all pages that overlap `range`, which is about to be written.
    #[inline]
    pub(super) fn forget(&mut self, range: Range<usize>) {
        // `&mut self` proves that no other thread reads the table, so plain stores suffice.
        if let Some(entries) = self.0.get_mut() {
            // A page that is written in part loses its checksum as well.
            let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES).min(entries.len());
            entries[pages].iter_mut().for_each(|entry| *entry.get_mut() = 0);
        }
    }
}

/// Returns the checksum of `page`, from the cache or computed. Two threads that compute it at once get the same value,
/// because shared pages are never written.
fn sum(entry: &AtomicU64, page: &[u8; PAGE_BYTES]) -> u32 {
    // `Relaxed` suffices: flag and checksum are in one word, and the pages were written before they were shared.
    let known = entry.load(Ordering::Relaxed);
    if known & KNOWN != 0 {
        // The cast drops the flag in bit 32.
        return known as u32;
    }
    let sum = crc32c(page);
    entry.store(KNOWN | u64::from(sum), Ordering::Relaxed);
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buf, View};
    use proptest::prelude::*;

    const LEN: usize = 4 * PAGE_BYTES + 100;

    fn known(view: &View) -> usize {
        let entries = view.pages.as_ref().and_then(|pages| pages.sums.0.get());
        entries.map_or(0, |entries| entries.iter().filter(|entry| entry.load(Ordering::Relaxed) != 0).count())
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_bytes_whatever_is_written_between(
            steps in prop::collection::vec((0..LEN, 0..LEN, 0..3u8, any::<u8>(), any::<u32>()), 1..30),
        ) {
            let mut storage = Buf::resident(LEN);
            for (a, b, kind, byte, crc) in steps {
                let range = a.min(b)..a.max(b);
                match kind {
                    0 => storage.part_mut(range).fill(byte),
                    1 => storage[range].fill(byte),
                    _ => {
                        let view = storage.freeze();
                        prop_assert_eq!(view.slice(range.clone()).crc32c_append(crc), crc32c_append(crc, &view[range]));
                        storage = view.try_into_buf().expect("nobody else has it");
                    }
                }
            }
        }
    }

    #[test]
    fn sums_are_remembered_until_their_page_is_written() {
        let view = Buf::resident(LEN).freeze();
        let sum = view.crc32c_append(0);
        assert_eq!((sum, known(&view)), (crc32c(&view), 4), "the last page is none of the view's whole ones");
        let mut storage = view.try_into_buf().expect("nobody else has it");
        storage.part_mut(PAGE_BYTES - 1..PAGE_BYTES + 1).fill(1);
        let view = storage.freeze();
        assert_eq!(known(&view), 2);
        assert_eq!(view.crc32c_append(0), crc32c(&view));
        let mut storage = view.try_into_buf().expect("nobody else has it");
        storage[0] = 2;
        assert_eq!(known(&storage.freeze()), 0, "whoever may write everywhere may have");
    }

    #[test]
    fn sums_of_buffers_on_their_way_are_not_kept() {
        let view = View::zeroed(LEN);
        assert_eq!((view.crc32c_append(0), known(&view)), (crc32c(&view), 0));
    }
}
