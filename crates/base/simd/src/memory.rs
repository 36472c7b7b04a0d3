//! Memory that is larger than the CPU's caches: what nobody reads soon does not drive out the rest.

use crate::sys::memory as kernel;

/// `from` is in `into`, whose lines were not read for it and are not kept in the caches.
///
/// *Shape*: both as long as each other. *Panics*: when they are not.
pub fn copy_past_caches(into: &mut [u8], from: &[u8]) {
    kernel::copy_past_caches(into, from);
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
    #[should_panic(expected = "as much is copied")]
    fn copy_past_caches_refuses_other_lengths() {
        copy_past_caches(&mut [0; 3], &[0; 4]);
    }
}
