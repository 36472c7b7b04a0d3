//! Portable kernel: eight bytes at a time in a `u64`. It defines the results of all kernels.

use crate::gf256;
use crate::kernel::{Columns, Kernel};

pub(crate) static KERNEL: Kernel = Kernel { name: "scalar", xor_into, xor, pq, multiply_into, scale };

const WORD: usize = size_of::<u64>();

/// Doubles each of the eight bytes in the field: shifts, and reduces those whose top bit was set.
fn double_word(word: u64) -> u64 {
    let overflow = (word >> 7) & 0x0101_0101_0101_0101;
    // Each byte of `overflow` is 0 or 1, so the product carries nothing into the next byte.
    ((word & 0x7f7f_7f7f_7f7f_7f7f) << 1) ^ (overflow * u64::from(gf256::REDUCTION))
}

/// `c` times each of the eight bytes.
fn multiply_word(mut word: u64, mut c: u8) -> u64 {
    let mut product = 0;
    // Adds the word where bit 0 of `c` is set, without a branch.
    while c != 0 {
        product ^= word & u64::from(c & 1).wrapping_neg();
        word = double_word(word);
        c >>= 1;
    }
    product
}

fn load(bytes: &[u8; WORD]) -> u64 {
    // Native order: no operation here moves a bit from one byte to another.
    u64::from_ne_bytes(*bytes)
}

pub(crate) fn xor_into(target: &mut [u8], source: &[u8]) {
    for (target, source) in target.iter_mut().zip(source) {
        *target ^= source;
    }
}

pub(crate) fn xor(sources: &[&[u8]], out: &mut [u8]) {
    xor_from(sources, 0, out);
}

/// XOR of the sources' bytes from `from`; also computes the tail of the wider kernels.
pub(crate) fn xor_from(sources: &[&[u8]], from: usize, out: &mut [u8]) {
    out.fill(0);
    for source in sources {
        xor_into(out, &source[from..]);
    }
}

pub(crate) fn pq(columns: &Columns<'_>, from: usize, p: &mut [u8], q: &mut [u8]) {
    let words = p.len() / WORD * WORD;
    for at in (0..words).step_by(WORD) {
        // P and Q in one pass, because the columns may exceed the CPU caches.
        let (mut sum, mut syndrome) = (0, 0);
        // Horner's rule from the last column: Q = d₀ + 2·(d₁ + 2·(d₂ + …)).
        for column in columns.iter().rev() {
            syndrome = double_word(syndrome);
            if let Some(bytes) = column {
                let (word, _) = bytes[from + at..].split_first_chunk().expect("a column is as long as its parity");
                sum ^= load(word);
                syndrome ^= load(word);
            }
        }
        p[at..at + WORD].copy_from_slice(&u64::to_ne_bytes(sum));
        q[at..at + WORD].copy_from_slice(&u64::to_ne_bytes(syndrome));
    }
    for at in words..p.len() {
        (p[at], q[at]) = columns.iter().rev().fold((0, 0), |(sum, syndrome), column| {
            let byte = column.map_or(0, |bytes| bytes[from + at]);
            (sum ^ byte, gf256::double(syndrome) ^ byte)
        });
    }
}

pub(crate) fn multiply_into(target: &mut [u8], source: &[u8], c: u8) {
    let (words, rest) = target.as_chunks_mut::<WORD>();
    let (source_words, source_rest) = source.as_chunks::<WORD>();
    for (word, source) in words.iter_mut().zip(source_words) {
        *word = (load(word) ^ multiply_word(load(source), c)).to_ne_bytes();
    }
    for (byte, &source) in rest.iter_mut().zip(source_rest) {
        *byte ^= gf256::multiply(source, c);
    }
}

pub(crate) fn scale(target: &mut [u8], c: u8) {
    let (words, rest) = target.as_chunks_mut::<WORD>();
    for word in words {
        *word = multiply_word(load(word), c).to_ne_bytes();
    }
    for byte in rest {
        *byte = gf256::multiply(*byte, c);
    }
}
