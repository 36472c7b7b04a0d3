//! Page-aligned buffers, pooled per thread: no allocation per command once the pool is warm.
//!
//! A [`Buf`] has one owner, which may write it. [`Buf::freeze`] turns it into a [`View`], which is shared, cut and sent
//! without copying. When the last view is dropped, the pages return to the pool of the thread that dropped it. Recycled
//! pages keep old bytes: only [`Buf::zeroed`] may be left partly unwritten.

mod checksum_cache;
pub mod pool;

use checksum_cache::ChecksumCache;
use simd::crc32c::crc32c_append;
use simd::memory::{Slab, prefetch};
use std::ops::{Bound, Deref, DerefMut, Range, RangeBounds};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment and allocation unit of every buffer, in bytes; satisfies direct I/O on any disk.
pub const PAGE_BYTES: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE_BYTES]);

/// Page-aligned run of whole pages.
#[derive(Debug)]
pub(crate) struct Pages {
    memory: Memory,
    /// True while the pages are counted as in use: they come from the pool and return to it.
    counted: bool,
    /// Cached checksums of the pages; used for resident memory only, which is read more than once.
    sums: ChecksumCache,
}

impl std::fmt::Debug for Page {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Page")
    }
}

impl Pages {
    fn zeroed(pages: usize, counted: bool) -> Self {
        // Zeroed by the allocator, without a copy through the stack.
        let pages = <[Page]>::new_box_zeroed_with_elems(pages).expect("the limits keep buffers within memory");
        Self { memory: Memory::Own(pages), counted, sums: ChecksumCache::default() }
    }

    /// Size class of pages from the pool, whose number is a power of two.
    fn class(&self) -> usize {
        (self.bytes().len() / PAGE_BYTES).trailing_zeros() as usize
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        match &self.memory {
            Memory::Own(pages) => pages.as_bytes(),
            Memory::Slab(slab) => slab,
        }
    }

    #[inline]
    fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own(pages) => pages.as_mut_bytes(),
            Memory::Slab(slab) => slab,
        }
    }
}

/// Origin of the pages.
#[derive(Debug)]
enum Memory {
    /// Own allocation.
    Own(Box<[Page]>),
    /// Slot of a slab that lies in a huge page.
    Slab(Slab),
}

/// Aligned bytes with a single owner, which may write them.
#[derive(Debug)]
pub struct Buf {
    pages: Option<Arc<Pages>>,
    len: usize,
}

impl Buf {
    /// Returns a buffer of `len` bytes, all zero.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::recycled(len);
        buf.fill(0);
        buf
    }

    /// Returns a zeroed buffer for long-lived storage. The buffer is not pooled and not counted as in use.
    #[must_use]
    pub fn resident(len: usize) -> Self {
        Self { pages: Some(Arc::new(Pages::zeroed(len.div_ceil(PAGE_BYTES).max(1), false))), len }
    }

    /// Returns a zeroed buffer for long-lived storage, as [`Self::resident`], in a slot of a shared huge page where
    /// `len` is a power of two from 4 KiB to 1 MiB.
    ///
    /// Meant for randomly accessed data that exceeds the CPU caches. The first buffer of a size may allocate 2 MiB.
    #[must_use]
    pub fn storage(len: usize) -> Self {
        let Some(slab) = Slab::zeroed(len) else { return Self::resident(len) };
        // Not pooled: the slot returns to its region when the last view is dropped.
        let pages = Pages { memory: Memory::Slab(slab), counted: false, sums: ChecksumCache::default() };
        Self { pages: Some(Arc::new(pages)), len }
    }

    /// Returns a buffer of `len` bytes of unspecified content, perhaps that of another command.
    ///
    /// The caller overwrites every byte before any of them can leave the process (compare CVE-2024-43110).
    #[must_use]
    pub fn recycled(len: usize) -> Self {
        Self { pages: Some(pool::take(len)), len }
    }

    /// Returns a buffer with a copy of `bytes`.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::recycled(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Cuts the buffer to `len` bytes.
    ///
    /// *Panics*: when the buffer is shorter.
    pub fn truncate(&mut self, len: usize) {
        // Never longer: the bytes behind `len` may be those of another command.
        assert!(len <= self.len, "a buffer of {} bytes cannot be cut to {len}", self.len);
        self.len = len;
    }

    /// Ends write access; the bytes can be shared from now on.
    #[must_use]
    pub fn freeze(mut self) -> View {
        let len = self.len;
        View { pages: self.pages.take(), start: 0, len }
    }

    /// Returns the bytes in `range` for writing. Cached checksums of the pages outside of `range` stay valid.
    ///
    /// *Panics*: when the range passes the end.
    #[must_use]
    pub fn part_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.end <= self.len, "bytes {range:?} are not in a buffer of {}", self.len);
        let pages = self.pages.as_mut().expect("pages leave only when the buffer does");
        // `freeze` consumes the buffer, so no view can share its pages yet.
        let pages = Arc::get_mut(pages).expect("a Buf is the only owner of its pages");
        // Invalidated before the bytes are lent: `part_mut` is the only way to write them, so no stale checksum can be
        // sent.
        pages.sums.forget(range.clone());
        &mut pages.bytes_mut()[range]
    }

    fn pages(&self) -> &Arc<Pages> {
        self.pages.as_ref().expect("pages leave only when the buffer does")
    }
}

impl Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.pages().bytes()[..self.len]
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        self.part_mut(0..len)
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // Absent after `freeze`: the view owns the pages then.
        if let Some(pages) = self.pages.take() {
            pool::give(pages);
        }
    }
}

/// Shared, read-only window on a frozen [`Buf`].
#[derive(Clone, Debug, Default)]
pub struct View {
    pages: Option<Arc<Pages>>,
    start: usize,
    len: usize,
}

impl View {
    /// Returns a view of `len` zero bytes.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Buf::zeroed(len).freeze()
    }

    /// Length in bytes. Same as the length of the slice, without touching the pages.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when the view has no bytes.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the part of the view in `range`, sharing its memory.
    ///
    /// *Panics*: when the range passes the end.
    #[inline]
    #[must_use]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Self {
        let from = match range.start_bound() {
            Bound::Included(&n) => n,
            Bound::Excluded(&n) => n + 1,
            Bound::Unbounded => 0,
        };
        let to = match range.end_bound() {
            Bound::Included(&n) => n + 1,
            Bound::Excluded(&n) => n,
            Bound::Unbounded => self.len,
        };
        assert!(from <= to && to <= self.len, "bytes {from}..{to} are not in a view of {}", self.len);
        Self { pages: self.pages.clone(), start: self.start + from, len: to - from }
    }

    /// Appends the bytes of the view to the CRC32C `crc`.
    ///
    /// Checksums of whole pages of resident memory are cached until the page is written. A bit that flips in memory
    /// afterwards therefore no longer matches the digest that is sent.
    #[must_use]
    pub fn crc32c_append(&self, crc: u32) -> u32 {
        match &self.pages {
            // Pooled buffers are sent once, so caching their checksums would cost memory and save nothing.
            Some(pages) if !pages.counted => pages.sums.append(crc, pages.bytes(), self.start..self.start + self.len),
            _ => crc32c_append(crc, self),
        }
    }

    /// Prefetches the bytes, and their cached checksums, into the CPU caches ([`prefetch`]). Called when they will be
    /// sent soon.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(pages) = &self.pages {
            // Prefetched first: a prefetch issued last would complete only after all the data.
            pages.sums.prefetch(self.start);
            prefetch(self);
        }
    }

    /// True when the bytes start at a multiple of `align` in memory.
    #[must_use]
    pub fn is_aligned(&self, align: usize) -> bool {
        // Pages are aligned, so up to the size of a page the offset alone decides.
        self.start.is_multiple_of(align.min(PAGE_BYTES))
    }

    /// Returns the bytes for writing, without copying when this is the last view of a whole buffer.
    #[must_use]
    pub fn into_buf(self) -> Buf {
        self.try_into_buf().unwrap_or_else(|view| Buf::copy_of(&view))
    }

    /// Returns the bytes for writing when this is the last view and starts at the beginning of the buffer, else the
    /// view.
    pub fn try_into_buf(mut self) -> Result<Buf, Self> {
        // A `Buf` has no start offset, so only a view from byte 0 can become one again.
        if self.start == 0
            && let Some(mut pages) = self.pages.take()
        {
            if Arc::get_mut(&mut pages).is_some() {
                return Ok(Buf { pages: Some(pages), len: self.len });
            }
            // Other views exist: the caller gets its view back unchanged, and may copy it.
            self.pages = Some(pages);
        }
        Err(self)
    }
}

impl Deref for View {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.pages {
            Some(pages) => &pages.bytes()[self.start..self.start + self.len],
            None => &[],
        }
    }
}

impl From<Buf> for View {
    fn from(buf: Buf) -> Self {
        buf.freeze()
    }
}

impl Drop for View {
    #[inline]
    fn drop(&mut self) {
        if let Some(pages) = self.pages.take() {
            pool::give(pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buf_is_page_aligned_and_keeps_its_length() {
        for len in [0, 1, 4095, 4096, 4097, 1 << 20] {
            for buf in [Buf::zeroed(len), Buf::resident(len), Buf::storage(len)] {
                assert_eq!(buf.len(), len);
                assert_eq!(buf.as_ptr().align_offset(PAGE_BYTES), 0);
                assert!(buf.iter().all(|&b| b == 0));
            }
        }
    }

    #[test]
    fn buf_zeroed_never_shows_what_the_pool_kept() {
        let mut dirty = Buf::zeroed(8192);
        dirty.fill(0xa5);
        drop(dirty);
        assert!(Buf::zeroed(8192).iter().all(|&b| b == 0));
    }

    #[test]
    fn view_slices_share_memory_and_thaw_copies_only_when_shared() {
        let mut buf = Buf::zeroed(8192);
        buf[4096] = 7;
        let whole = buf.freeze();
        let tail = whole.slice(4096..);
        assert_eq!(tail[0], 7);
        assert!(tail.is_aligned(4096));
        let address = whole.as_ptr();
        let copy = whole.clone().into_buf();
        assert_ne!(copy.as_ptr(), address);
        drop(tail);
        assert_eq!(whole.into_buf().as_ptr(), address);
    }
}
