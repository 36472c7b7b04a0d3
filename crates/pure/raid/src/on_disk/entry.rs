//! Checksum entry of one block: check and generation, kept apart from the data.
//!
//! The check is the *guard*, the CRC32C of the content, mixed with member, address and generation, so the guard can
//! be recovered from it and need not be computed twice.

use block::View;
use simd::crc32c::crc32c;

/// Checksum entry of one block, 8 bytes on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) check: u32,
    pub(crate) generation: u32,
}

/// First reserved generation; higher ones mark special states.
const GENERATION_END: u32 = u32::MAX - 1;

impl Entry {
    /// Never written: the block reads as zeros, whatever is on the disk.
    pub(crate) const UNWRITTEN: Self = Self { check: 0, generation: 0 };
    /// Not known: the content on disk is not trusted, and content computed for it needs no proof.
    pub(crate) const UNKNOWN: Self = Self { check: 0, generation: GENERATION_END };
    /// Lost: the content cannot be reconstructed, and reads are a medium error until the block is written.
    pub(crate) const LOST: Self = Self { check: 0, generation: u32::MAX };

    pub(crate) fn is_unwritten(self) -> bool {
        self.generation == 0
    }

    /// True for a block whose content can be verified.
    pub(crate) fn is_known(self) -> bool {
        self.generation < GENERATION_END
    }

    /// Returns the entry of the block once it is written with content of this guard.
    pub(crate) fn next(self, binding: CheckBinding, guard: u32) -> Self {
        // The counter wraps to 1, below the reserved generations.
        let counts_on = self.is_known() && self.generation + 1 < GENERATION_END;
        let generation = if counts_on { self.generation + 1 } else { 1 };
        // XOR keeps the CRC32C recoverable, so it need not be stored beside the check.
        Self { check: guard ^ binding.mix(generation), generation }
    }

    /// True when content of this guard is what was written last.
    pub(crate) fn matches(self, binding: CheckBinding, guard: u32) -> bool {
        // An unwritten or reserved entry proves nothing, whatever its check is.
        !self.is_unwritten() && self.is_known() && self.check == guard ^ binding.mix(self.generation)
    }

    pub(crate) fn to_bytes(self) -> [u8; 8] {
        (u64::from(self.generation) << 32 | u64::from(self.check)).to_le_bytes()
    }

    pub(crate) fn from_bytes(bytes: [u8; 8]) -> Self {
        let word = u64::from_le_bytes(bytes);
        Self { check: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Member and address that a check is bound to, with the array's seed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckBinding(u64);

impl CheckBinding {
    pub(crate) fn new(seed: u64, member: u16, block: u64) -> Self {
        Self(seed ^ u64::from(member) << 48 ^ block)
    }

    fn mix(self, generation: u32) -> u32 {
        // Two rounds of multiply and fold, so that neighboring members, blocks and generations give unrelated values.
        let mut word = self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ word >> 32 ^ u64::from(generation)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (word >> 32) as u32
    }
}

/// Computes the CRC32C of each block of `content`, in order.
pub(crate) fn guards(content: &View) -> impl Iterator<Item = u32> {
    content.chunks(crate::BLOCK_BYTES as usize).map(crc32c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_matches_its_content_member_place_and_version_only() {
        let binding = CheckBinding::new(1, 2, 3);
        let entry = Entry::UNWRITTEN.next(binding, 77);
        assert!(entry.matches(binding, 77) && !entry.matches(binding, 76));
        for other in [CheckBinding::new(2, 2, 3), CheckBinding::new(1, 3, 3), CheckBinding::new(1, 2, 4)] {
            assert!(!entry.matches(other, 77), "{other:?}");
        }
        assert!(!Entry { generation: 2, ..entry }.matches(binding, 77));
        assert_eq!(Entry::from_bytes(entry.to_bytes()), entry);
    }

    #[test]
    fn entry_kinds_are_never_reached_by_counting() {
        let binding = CheckBinding::new(1, 2, 3);
        let last = Entry { check: 0, generation: GENERATION_END - 1 };
        for entry in [Entry::UNWRITTEN, Entry::UNKNOWN, Entry::LOST, last] {
            assert_eq!(entry.next(binding, 5).generation, 1, "{entry:?}");
            assert!(entry == last || !entry.matches(binding, 0));
        }
    }
}
