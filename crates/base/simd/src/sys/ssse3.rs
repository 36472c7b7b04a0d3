//! Kernel with vectors of 16 bytes; products by table lookup (PSHUFB).

use super::kernel::nibble_products;
use crate::gf256::REDUCTION;
use std::arch::x86_64::*;

type Vector = __m128i;

kernel!("ssse3", "sse2,ssse3", ["sse2", "ssse3"]);

#[target_feature(enable = "sse2,ssse3")]
#[inline]
fn load(bytes: &[u8; 16]) -> Vector {
    // SAFETY: the 16 bytes are readable; the instruction asks for no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "sse2,ssse3")]
#[inline]
fn store(bytes: &mut [u8; 16], vector: Vector) {
    // SAFETY: the 16 bytes are writable and borrowed exclusively; the instruction requires no alignment.
    unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), vector) }
}

#[target_feature(enable = "sse2,ssse3")]
#[inline]
fn zero() -> Vector {
    _mm_setzero_si128()
}

#[target_feature(enable = "sse2,ssse3")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm_xor_si128(a, b)
}

#[target_feature(enable = "sse2,ssse3")]
#[inline]
fn double(a: Vector) -> Vector {
    // As signed bytes, those with the top bit set are negative.
    let overflow = _mm_cmpgt_epi8(zero(), a);
    xor(_mm_add_epi8(a, a), _mm_and_si128(overflow, _mm_set1_epi8(REDUCTION as i8)))
}

/// Products of `c` with the low and with the high halves of a byte.
struct Factor {
    low: Vector,
    high: Vector,
}

#[target_feature(enable = "sse2,ssse3")]
#[inline]
fn factor(c: u8) -> Factor {
    let (low, high) = nibble_products(c);
    Factor { low: load(&low), high: load(&high) }
}

#[target_feature(enable = "sse2,ssse3")]
#[inline]
fn multiply(a: Vector, c: &Factor) -> Vector {
    let half = _mm_set1_epi8(0x0f);
    let low = _mm_shuffle_epi8(c.low, _mm_and_si128(a, half));
    // The shift moves bits across bytes; the mask removes them.
    let high = _mm_shuffle_epi8(c.high, _mm_and_si128(_mm_srli_epi64::<4>(a), half));
    xor(low, high)
}
