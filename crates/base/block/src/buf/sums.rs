//! What the pages of storage sum up to, remembered as long as nobody writes them: what is sent again and again is summed up once.

use super::PAGE_BYTES;
use simd::crc32c::{crc32c, crc32c_append, crc32c_append_page};
use simd::memory::prefetch_value;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bit of an entry that is known.
const KNOWN: u64 = 1 << 32;

/// The CRC32C of each page of a run, in the lower half of its entry, as far as somebody has asked for it.
#[derive(Debug, Default)]
pub(super) struct Sums(OnceLock<Box<[AtomicU64]>>);

impl Sums {
    /// The CRC32C of what `crc` was computed of, followed by those of `bytes`, which are all the pages, in `range`.
    pub(super) fn append(&self, crc: u32, bytes: &[u8], range: Range<usize>) -> u32 {
        let whole = range.start.div_ceil(PAGE_BYTES)..range.end / PAGE_BYTES;
        if whole.is_empty() {
            return crc32c_append(crc, &bytes[range]);
        }
        let crc = crc32c_append(crc, &bytes[range.start..whole.start * PAGE_BYTES]);
        let behind = &bytes[whole.end * PAGE_BYTES..range.end];
        let (pages, _) = bytes.as_chunks::<PAGE_BYTES>();
        let entries = self.0.get_or_init(|| pages.iter().map(|_| AtomicU64::new(0)).collect());
        let crc = whole.fold(crc, |crc, page| crc32c_append_page(crc, sum(&entries[page], &pages[page])));
        crc32c_append(crc, behind)
    }

    /// What the page that holds byte `at` sums up to is asked for soon.
    #[inline]
    pub(super) fn prefetch(&self, at: usize) {
        if let Some(entry) = self.0.get().and_then(|entries| entries.get(at / PAGE_BYTES)) {
            prefetch_value(entry);
        }
    }

    /// Pages that hold bytes of `range` are about to be written.
    #[inline]
    pub(super) fn forget(&mut self, range: Range<usize>) {
        if let Some(entries) = self.0.get_mut() {
            let pages = range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES).min(entries.len());
            entries[pages].iter_mut().for_each(|entry| *entry.get_mut() = 0);
        }
    }
}

/// What `page` sums up to. Two threads that find it out at once find the same: nobody writes what is shared.
fn sum(entry: &AtomicU64, page: &[u8; PAGE_BYTES]) -> u32 {
    let known = entry.load(Ordering::Relaxed);
    if known & KNOWN != 0 {
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
                        storage = view.try_thaw().expect("nobody else has it");
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
        let mut storage = view.try_thaw().expect("nobody else has it");
        storage.part_mut(PAGE_BYTES - 1..PAGE_BYTES + 1).fill(1);
        let view = storage.freeze();
        assert_eq!(known(&view), 2);
        assert_eq!(view.crc32c_append(0), crc32c(&view));
        let mut storage = view.try_thaw().expect("nobody else has it");
        storage[0] = 2;
        assert_eq!(known(&storage.freeze()), 0, "whoever may write everywhere may have");
    }

    #[test]
    fn sums_of_buffers_on_their_way_are_not_kept() {
        let view = View::zeroed(LEN);
        assert_eq!((view.crc32c_append(0), known(&view)), (crc32c(&view), 0));
    }
}
