//! Memory that is larger than the CPU's caches: what nobody reads soon does not drive out the rest, what somebody reads soon is asked for
//! before, and what stays lies in huge pages.

mod slab;

use crate::sys::memory as kernel;
pub use slab::Slab;
use std::sync::LazyLock;

/// The unit of the caches.
const LINE_BYTES: usize = 64;
/// A processor guesses what is read next within a page, and no further.
const PAGE_BYTES: usize = 4096;
/// What is asked for whole. More would drive out what was asked for before it is read.
const WHOLE_BYTES_MAX: usize = 16 << 10;
/// Of each page of more than that, by a processor that goes on from there by itself.
const FIRST_LINES: usize = 4;
/// Where it was measured first it was 1.13 times the reads of 128 KiB; that machine's processor was not written down, and is taken for AMD's
/// as an earlier one's was. On Intel's it is 1.14 times without (docs/performance.md).
static GOES_ON: LazyLock<bool> = LazyLock::new(|| kernel::vendor() == *b"AuthenticAMD");

/// `from` is in `into`, whose lines were not read for it and are not kept in the caches.
///
/// *Shape*: both as long as each other. *Panics*: when they are not.
pub fn copy_past_caches(into: &mut [u8], from: &[u8]) {
    kernel::copy_past_caches(into, from);
}

/// `bytes` are read soon: they are on their way into the caches, all of a few. Of many the beginning of each page is, where that helps.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    let lines = match bytes.len() {
        ..=WHOLE_BYTES_MAX => PAGE_BYTES / LINE_BYTES,
        _ if *GOES_ON => FIRST_LINES,
        _ => return,
    };
    for page in bytes.chunks(PAGE_BYTES) {
        page.chunks(LINE_BYTES).take(lines).for_each(|line| kernel::prefetch(line.as_ptr()));
    }
}

/// `what`, which is no longer than a line of the caches, is looked at soon.
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
