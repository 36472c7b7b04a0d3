//! Self-describing block content for data verification: every 512 bytes carry their address, generation and run, and
//! the rest is derived from these.

use crate::random::mix;

/// Bytes of a stamp, the smallest block size.
pub const STAMP_BYTES: usize = 512;
const WORD_BYTES: usize = 8;
const MAGIC: u64 = u64::from_be_bytes(*b"BYSTAMP1");

/// Origin of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the 512 bytes on the unit, or in the stream.
    pub block: u64,
    /// Number of the write, from 1 on.
    pub generation: u64,
    /// Seed of the run.
    pub seed: u64,
}

/// Content of 512 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Valid stamp.
    Stamp(Stamp),
    /// Zeros.
    Zeros,
    /// Anything else.
    Damaged,
}

impl Stamp {
    fn words(self) -> impl Iterator<Item = u64> {
        // The rotation separates small block numbers and generations, so that both affect the content independently.
        let start = mix(mix(self.seed) ^ mix(self.block.rotate_left(32) ^ self.generation));
        let rest = (0..).map(move |index: u64| {
            let word = start.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            (word ^ word >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        });
        [MAGIC, self.block, self.generation, self.seed].into_iter().chain(rest)
    }

    /// Fills `bytes` with the stamps of consecutive blocks, starting with this one.
    ///
    /// *Panics*: the length is no multiple of a stamp.
    pub fn fill(self, bytes: &mut [u8]) {
        assert!(bytes.len().is_multiple_of(STAMP_BYTES), "whole stamps are filled");
        for (block, into) in (self.block..).zip(bytes.chunks_exact_mut(STAMP_BYTES)) {
            for (into, word) in into.chunks_exact_mut(WORD_BYTES).zip((Self { block, ..self }).words()) {
                into.copy_from_slice(&word.to_be_bytes());
            }
        }
    }

    /// Parses 512 bytes.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Found {
        let mut words = bytes.chunks_exact(WORD_BYTES).map(|word| word.try_into().map_or(0, u64::from_be_bytes));
        let (Some(magic), Some(block), Some(generation), Some(seed)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Found::Damaged;
        };
        let stamp = Self { block, generation, seed };
        // The first words alone prove nothing about the rest, so every word is compared.
        if magic == MAGIC
            && bytes.len() == STAMP_BYTES
            && words.eq(stamp.words().take(STAMP_BYTES / WORD_BYTES).skip(4))
        {
            return Found::Stamp(stamp);
        }
        // Last, because nearly all blocks that are read have a valid stamp.
        if bytes.iter().all(|&byte| byte == 0) { Found::Zeros } else { Found::Damaged }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_as_they_were_filled_and_one_wrong_bit_shows() {
        let first = Stamp { block: 7, generation: 3, seed: 9 };
        let mut bytes = vec![0; 4 * STAMP_BYTES];
        first.fill(&mut bytes);
        for (block, bytes) in (7..).zip(bytes.chunks(STAMP_BYTES)) {
            assert_eq!(Stamp::read(bytes), Found::Stamp(Stamp { block, ..first }));
        }
        for at in [0, 8, 31, 32, 300, 511] {
            let mut bytes = bytes[..STAMP_BYTES].to_vec();
            bytes[at] ^= 1;
            assert_eq!(Stamp::read(&bytes), Found::Damaged, "bit of byte {at}");
        }
        assert_eq!(Stamp::read(&[0; STAMP_BYTES]), Found::Zeros);
    }
}
