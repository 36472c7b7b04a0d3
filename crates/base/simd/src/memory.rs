//! Memory that exceeds the CPU caches: copies that bypass the caches, prefetch, and storage in huge pages.
//!
//! Called by `block` for RAM units, cache frames and reads of them (docs/adr/0015).

mod slab;

use crate::sys::memory as kernel;
pub use slab::Slab;
use std::sync::LazyLock;

/// Cache line size in bytes.
const LINE_BYTES: usize = 64;
/// Page size in bytes: the hardware prefetcher does not cross page boundaries.
const PAGE_BYTES: usize = 4096;
/// Largest buffer that is prefetched completely. Prefetching more would evict lines before they are used.
const WHOLE_BYTES_MAX: usize = 16 << 10;
/// Cache lines per page to prefetch of a larger buffer, on a CPU whose hardware prefetcher continues from there.
const FIRST_LINES: usize = 4;
/// True on CPUs where prefetching the first lines of each page pays off.
///
/// The first measurement gave 1.13 times the reads of 128 KiB; the CPU of that machine was not recorded and is assumed
/// to be AMD's like that of an earlier one. Intel's CPUs are 1.14 times as fast without it (docs/performance.md).
static GOES_ON: LazyLock<bool> = LazyLock::new(|| kernel::vendor() == *b"AuthenticAMD");

/// Copies `from` to `into` with stores that bypass the caches: the lines of `into` are neither read nor kept.
///
/// *Shape*: equal lengths. *Panics*: when they differ.
pub fn copy_past_caches(into: &mut [u8], from: &[u8]) {
    kernel::copy_past_caches(into, from);
}

/// Prefetches `bytes`: all of a small buffer; of a large one the beginning of each page, where that helps.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    let lines = match bytes.len() {
        ..=WHOLE_BYTES_MAX => PAGE_BYTES / LINE_BYTES,
        _ if *GOES_ON => FIRST_LINES,
        _ => return,
    };
    // By page, because the hardware prefetcher stops at each page boundary.
    for page in bytes.chunks(PAGE_BYTES) {
        page.chunks(LINE_BYTES).take(lines).for_each(|line| kernel::prefetch(line.as_ptr()));
    }
}

/// Prefetches `what`, which is not larger than a cache line.
#[inline]
pub fn prefetch_value<T>(what: &T) {
    kernel::prefetch(what);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn copy_past_caches_copies_every_byte_and_no_other(
            from in prop::collection::vec(any::<u8>(), 0..5000), before in 0usize..70, behind in 0usize..70,
        ) {
            let mut memory = vec![0xee; before + from.len() + behind];
            copy_past_caches(&mut memory[before..before + from.len()], &from);
            let (head, rest) = memory.split_at(before);
            prop_assert_eq!(&rest[..from.len()], &from[..]);
            prop_assert!(head.iter().chain(&rest[from.len()..]).all(|&byte| byte == 0xee));
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn vendor_is_the_one_that_the_kernel_knows() {
        let info = std::fs::read_to_string("/proc/cpuinfo").expect("Linux has it");
        let known = info.lines().find_map(|line| line.strip_prefix("vendor_id")?.split(": ").nth(1));
        assert_eq!(std::str::from_utf8(&kernel::vendor()).ok(), known);
    }

    #[test]
    #[should_panic(expected = "as much is copied")]
    fn copy_past_caches_refuses_other_lengths() {
        copy_past_caches(&mut [0; 3], &[0; 4]);
    }
}
