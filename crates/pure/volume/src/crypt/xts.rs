//! AES-256 in XTS mode (IEEE 1619): each block of 4096 bytes is one data unit, with its place as tweak.

use super::keys::DataKey;
use crate::layout::BLOCK_BYTES;
use aes::Aes256;
use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use std::fmt;

/// AES block of 16 bytes.
type Cell = aes::Block;
const CELL_BYTES: usize = 16;
/// Number of AES blocks processed together; the cipher pipelines several in the time of one.
const LANES: usize = 32;

/// Block cipher of a family. Its keys are zeroized on drop.
pub(crate) struct BlockCipher {
    data: Aes256,
    tweak: Aes256,
}

impl fmt::Debug for BlockCipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockCipher")
    }
}

impl BlockCipher {
    pub(crate) fn new(key: &DataKey) -> Self {
        let (data, tweak) = key.halves();
        Self { data: Aes256::new(data.into()), tweak: Aes256::new(tweak.into()) }
    }

    /// Encrypts whole blocks for the addresses from block `first` of `group` on.
    pub(crate) fn encrypt(&self, group: u16, first: u64, data: &mut [u8]) {
        self.each_run(group, first, data, |cells| self.data.encrypt_blocks(cells));
    }

    /// Decrypts whole blocks from the addresses from block `first` of `group` on.
    pub(crate) fn decrypt(&self, group: u16, first: u64, data: &mut [u8]) {
        self.each_run(group, first, data, |cells| self.data.decrypt_blocks(cells));
    }

    fn each_run(&self, group: u16, first: u64, data: &mut [u8], crypt: impl Fn(&mut [Cell])) {
        for (block, number) in data.chunks_exact_mut(BLOCK_BYTES as usize).zip(first..) {
            // Each block of 4096 bytes is its own data unit, so blocks can be read and written independently.
            let mut mask = self.first_mask(group, number);
            // 32 cells of 16 bytes divide a block of 4096 bytes, so no remainder is left out.
            for run in block.chunks_exact_mut(CELL_BYTES * LANES) {
                let mut masks = [0; LANES];
                for place in &mut masks {
                    *place = mask;
                    mask = doubled(mask);
                }
                let (cells, _) = Cell::slice_as_chunks_mut(run);
                blend(cells, &masks);
                crypt(cells);
                blend(cells, &masks);
            }
        }
    }

    /// Mask of the first AES block of a data unit: its encrypted address.
    fn first_mask(&self, group: u16, number: u64) -> u128 {
        // Group and block number identify a place permanently: both stay the same when a pool grows.
        let place = u128::from(group) << 64 | u128::from(number);
        let mut cell = Array(place.to_le_bytes());
        self.tweak.encrypt_block(&mut cell);
        u128::from_le_bytes(cell.into())
    }
}

fn blend(cells: &mut [Cell], masks: &[u128; LANES]) {
    for (cell, mask) in cells.iter_mut().zip(masks) {
        let blended = u128::from_le_bytes((*cell).into()) ^ mask;
        cell.copy_from_slice(&blended.to_le_bytes());
    }
}

/// Mask of the next AES block: multiplication by x modulo x^128 + x^7 + x^2 + x + 1.
fn doubled(mask: u128) -> u128 {
    // The bytes of a mask are little-endian (IEEE 1619), so a shift to the left multiplies by x.
    mask << 1 ^ if mask >> 127 == 1 { 0x87 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xts_mode::Xts128;

    fn key() -> DataKey {
        DataKey::of(std::array::from_fn(|at| at as u8 * 3 + 1))
    }

    #[test]
    fn blocks_are_encrypted_as_another_xts_does_it() {
        let plain: Vec<u8> = (0..3 * 4096_u32).map(|at| (at * 7 / 8) as u8).collect();
        let (cipher, key) = (BlockCipher::new(&key()), key());
        let (one, two) = key.halves();
        let other = Xts128::new(Aes256::new(one.into()), Aes256::new(two.into()));
        for (group, first) in [(0, 0), (3, 77), (63, u64::MAX >> 8)] {
            let mut data = plain.clone();
            cipher.encrypt(group, first, &mut data);
            let mut expected = plain.clone();
            for (block, at) in expected.chunks_exact_mut(4096).zip(0..) {
                let place = u128::from(group) << 64 | u128::from(first + at);
                other.encrypt_sector(block, place.to_le_bytes().into());
            }
            assert!(data == expected, "group {group}, block {first}");
            cipher.decrypt(group, first, &mut data);
            assert!(data == plain);
        }
    }

    #[test]
    fn one_block_lies_otherwise_at_every_place_and_under_every_key() {
        let lain = |key: &DataKey, group, first| {
            let mut data = vec![0; 4096];
            BlockCipher::new(key).encrypt(group, first, &mut data);
            data
        };
        let here = lain(&key(), 1, 5);
        assert_ne!(here, lain(&key(), 1, 6));
        assert_ne!(here, lain(&key(), 2, 5));
        assert_ne!(here, lain(&DataKey::of([9; 64]), 1, 5));
        assert_ne!(here[..16], here[16..32], "cells of one block differ, too");
    }
}
