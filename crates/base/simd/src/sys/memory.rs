//! Streaming stores, which bypass the CPU caches, and prefetch.

use std::arch::x86_64::*;

/// Bytes of one streaming store.
const STORE_BYTES: usize = 16;

/// Copies `from` to `into` without reading or keeping the cache lines of `into`.
///
/// *Panics*: when the lengths differ.
pub(crate) fn copy_past_caches(into: &mut [u8], from: &[u8]) {
    assert_eq!(into.len(), from.len(), "as much is copied as there is room");
    // SAFETY: any bytes are a vector.
    let (head, vectors, tail) = unsafe { into.align_to_mut::<__m128i>() };
    let (from_head, rest) = from.split_at(head.len());
    let (from_vectors, from_tail) = rest.split_at(vectors.len() * STORE_BYTES);
    head.copy_from_slice(from_head);
    tail.copy_from_slice(from_tail);
    for (vector, bytes) in vectors.iter_mut().zip(from_vectors.chunks_exact(STORE_BYTES)) {
        // SAFETY: the 16 bytes are readable, and the instruction asks for no alignment; the vector is aligned, writable
        // and borrowed exclusively.
        unsafe { _mm_stream_si128(vector, _mm_loadu_si128(bytes.as_ptr().cast())) }
    }
    // Streaming stores are weakly ordered: the fence makes them visible before any later store that publishes the
    // bytes.
    // SAFETY: every x86-64 has this instruction, which has no operands.
    unsafe { _mm_sfence() }
}

/// Prefetches the cache line of `at` into the second-level cache.
#[inline]
pub(crate) fn prefetch<T>(at: *const T) {
    // SAFETY: a prefetch has no visible effect, and never faults.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) }
}

/// Vendor identification of the CPU (CPUID leaf 0).
pub(crate) fn vendor() -> [u8; 12] {
    let said = __cpuid(0);
    let words = [said.ebx, said.edx, said.ecx].map(u32::to_le_bytes);
    words.concat().try_into().expect("three words of four bytes")
}
