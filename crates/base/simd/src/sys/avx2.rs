//! Kernel with vectors of 32 bytes; products by table lookup (VPSHUFB).

use super::kernel::nibble_products;
use crate::gf256::REDUCTION;
use std::arch::x86_64::*;

type Vector = __m256i;

kernel!("avx2", "avx2", ["avx2"]);

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[u8; 32]) -> Vector {
    // SAFETY: the 32 bytes are readable; the instruction asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(bytes: &mut [u8; 32], vector: Vector) {
    // SAFETY: the 32 bytes are writable and borrowed exclusively; the instruction requires no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn zero() -> Vector {
    _mm256_setzero_si256()
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn double(a: Vector) -> Vector {
    // As signed bytes, those with the top bit set are negative.
    let overflow = _mm256_cmpgt_epi8(zero(), a);
    xor(_mm256_add_epi8(a, a), _mm256_and_si256(overflow, _mm256_set1_epi8(REDUCTION as i8)))
}

/// Products of `c` with the low and with the high halves of a byte.
struct Factor {
    low: Vector,
    high: Vector,
}

#[target_feature(enable = "avx2")]
#[inline]
fn factor(c: u8) -> Factor {
    let (low, high) = nibble_products(c);
    Factor { low: twice(&low), high: twice(&high) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn multiply(a: Vector, c: &Factor) -> Vector {
    let half = _mm256_set1_epi8(0x0f);
    let low = _mm256_shuffle_epi8(c.low, _mm256_and_si256(a, half));
    // The shift moves bits across bytes; the mask removes them.
    let high = _mm256_shuffle_epi8(c.high, _mm256_and_si256(_mm256_srli_epi64::<4>(a), half));
    xor(low, high)
}

/// Duplicates the table: the shuffle looks up each half of the vector in the same half of the table.
#[target_feature(enable = "avx2")]
#[inline]
fn twice(table: &[u8; 16]) -> Vector {
    let mut both = [0; 32];
    both[..16].copy_from_slice(table);
    both[16..].copy_from_slice(table);
    load(&both)
}
