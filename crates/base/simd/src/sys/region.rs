//! Huge pages that are divided into slots of one size, each with one owner.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Size of a huge page of x86-64, and alignment of a region, in bytes.
pub(crate) const REGION_BYTES: usize = 2 << 20;
/// Smallest slot in bytes.
pub(crate) const SLOT_BYTES_MIN: usize = 4096;

const WORDS: usize = REGION_BYTES / SLOT_BYTES_MIN / 64;

/// Aligned mapping of two megabytes, which the kernel is asked to back by one huge page.
#[derive(Debug)]
pub(crate) struct Region {
    at: NonNull<u8>,
    slot_bytes: usize,
    /// Slots without an owner, by bit.
    free: [AtomicU64; WORDS],
    /// Slots that hold memory: owned now or before, with old content.
    used: [AtomicU64; WORDS],
    is_listed: AtomicBool,
}

/// Owned slot, with the right to write it.
#[derive(Debug)]
pub(crate) struct Slot {
    region: Arc<Region>,
    number: usize,
}

// SAFETY: a region owns its mapping, and never reads or writes it: owners of its slots do.
unsafe impl Send for Region {}
// SAFETY: what changes are atomics; each byte of the mapping belongs to one slot, whose bit has one owner.
unsafe impl Sync for Region {}

impl Region {
    /// Maps a region with slots of `slot_bytes`, a power of two from [`SLOT_BYTES_MIN`] to half of [`REGION_BYTES`].
    ///
    /// *Errors*: the kernel has no memory or no mappings left.
    pub(crate) fn map(slot_bytes: usize) -> io::Result<Self> {
        let at = map_aligned()?;
        // A refusal is ignored: small pages work as well.
        // SAFETY: the mapping is ours, and the advice changes nothing of what it holds.
        let _ = unsafe { madvise(at.as_ptr().cast(), REGION_BYTES, Advice::LinuxHugepage) };
        // Larger slots are fewer than the bits: those behind them stay zero, and are never claimed.
        let slots = REGION_BYTES / slot_bytes;
        let free = std::array::from_fn(|word| AtomicU64::new(low_bits(slots.saturating_sub(word * 64))));
        Ok(Self { at, slot_bytes, free, used: Default::default(), is_listed: AtomicBool::new(false) })
    }

    /// Claims a free slot, zeroed. The flag is true when the slot held memory before.
    pub(crate) fn claim(self: &Arc<Self>) -> Option<(Slot, bool)> {
        for (word, free) in self.free.iter().enumerate() {
            let mut bits = free.load(Ordering::Relaxed);
            while bits != 0 {
                let bit = bits & bits.wrapping_neg();
                // Pairs with the `Release` of the previous owner's drop: its writes end before ours begin.
                bits = free.fetch_and(!bit, Ordering::Acquire);
                // Another thread may have claimed the bit in between; `bits` then holds the current state.
                if bits & bit != 0 {
                    let mut slot = Slot { region: self.clone(), number: word * 64 + bit.trailing_zeros() as usize };
                    // Relaxed: only the owner of a slot changes its bit, and `free` orders the owners.
                    let was_used = self.used[word].fetch_or(bit, Ordering::Relaxed) & bit != 0;
                    // Fresh memory of the kernel is zero already.
                    if was_used {
                        slot.bytes_mut().fill(0);
                    }
                    return Some((slot, was_used));
                }
            }
        }
        None
    }

    /// Number of slots that have an owner.
    pub(crate) fn owned_slots(&self) -> usize {
        REGION_BYTES / self.slot_bytes - ones(&self.free)
    }

    /// Bytes of all slots that hold memory.
    pub(crate) fn held_bytes(&self) -> usize {
        ones(&self.used) * self.slot_bytes
    }

    /// Marks the region as listed by a thread. Returns true when it was not.
    pub(crate) fn list(&self) -> bool {
        !self.is_listed.swap(true, Ordering::Relaxed)
    }

    /// Marks the region as not listed.
    pub(crate) fn unlist(&self) {
        self.is_listed.store(false, Ordering::Relaxed);
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and its slots, which hold the region, are gone.
        // A failure cannot be handled, and only leaks memory.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), REGION_BYTES) };
    }
}

impl Slot {
    /// Region of the slot.
    pub(crate) fn region(&self) -> &Arc<Region> {
        &self.region
    }

    /// Content of the slot.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the bytes lie in the mapping, which lives as long as the slot; the kernel gave them as zeros. Writing
        // them requires `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start(), self.region.slot_bytes) }
    }

    /// Content of the slot, for writing.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; no other slot has this number, as its bit was claimed once and is freed by the drop of
        // this one.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.region.slot_bytes) }
    }

    /// Returns the memory of the slot to the kernel, where possible; its content is zero then.
    pub(crate) fn forget(&mut self) {
        // SAFETY: the bytes are the slot's, and no reference to them exists while it is borrowed mutably. Anonymous
        // memory reads as zeros after this.
        let done = unsafe { madvise(self.start().cast(), self.region.slot_bytes, Advice::LinuxDontNeed) };
        if done.is_ok() {
            self.region.used[self.number / 64].fetch_and(!self.bit(), Ordering::Relaxed);
        }
    }

    fn bit(&self) -> u64 {
        1 << (self.number % 64)
    }

    #[inline]
    fn start(&self) -> *mut u8 {
        // SAFETY: a number that was claimed is that of a slot within the mapping.
        unsafe { self.region.at.as_ptr().add(self.number * self.region.slot_bytes) }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // `Release`: the next owner sees the content of the slot and its bit in `used`.
        self.region.free[self.number / 64].fetch_or(self.bit(), Ordering::Release);
    }
}

fn ones(words: &[AtomicU64]) -> usize {
    words.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
}

fn low_bits(count: usize) -> u64 {
    // A shift by all 64 bits would overflow.
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}

/// Maps [`REGION_BYTES`] zero bytes at an aligned address.
fn map_aligned() -> io::Result<NonNull<u8>> {
    // Usually aligned: the kernel places a mapping next to an aligned one and merges them, which also saves mappings
    // (limit 65,530).
    let plain = map(REGION_BYTES)?;
    if plain.addr().get() % REGION_BYTES == 0 {
        return Ok(plain);
    }
    // SAFETY: the mapping is ours, and no reference to it exists.
    unsafe { munmap(plain.as_ptr().cast(), REGION_BYTES) }?;
    // Twice the size contains an aligned region wherever it starts.
    let wide = map(2 * REGION_BYTES)?;
    let before = wide.as_ptr().align_offset(REGION_BYTES);
    // SAFETY: both parts lie in the mapping, which is ours, and outside of what is returned.
    unsafe {
        let at = wide.as_ptr().add(before);
        if before > 0 {
            munmap(wide.as_ptr().cast(), before)?;
        }
        munmap(at.add(REGION_BYTES).cast(), REGION_BYTES - before)?;
        Ok(NonNull::new_unchecked(at))
    }
}

fn map(bytes: usize) -> io::Result<NonNull<u8>> {
    let how = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the kernel chooses the place, where nothing is.
    let at = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, how.0, how.1) }?;
    NonNull::new(at.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
