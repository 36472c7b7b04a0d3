//! Kernel with vectors of 64 bytes; products by bit matrix (GF2P8AFFINEQB).

use super::kernel::{DOUBLE, bit_matrix};
use std::arch::x86_64::*;

type Vector = __m512i;

kernel!("gfni+avx512", "avx512f,avx512bw,gfni", ["avx512f", "avx512bw", "gfni"]);

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn load(bytes: &[u8; 64]) -> Vector {
    // SAFETY: the 64 bytes are readable; the instruction asks for no alignment.
    unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn store(bytes: &mut [u8; 64], vector: Vector) {
    // SAFETY: the 64 bytes are writable and borrowed exclusively; the instruction requires no alignment.
    unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), vector) }
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn zero() -> Vector {
    _mm512_setzero_si512()
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn double(a: Vector) -> Vector {
    _mm512_gf2p8affine_epi64_epi8::<0>(a, _mm512_set1_epi64(DOUBLE.cast_signed()))
}

/// Bit matrix of the multiplication, once per eight bytes.
struct Factor(Vector);

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn factor(c: u8) -> Factor {
    Factor(_mm512_set1_epi64(bit_matrix(c).cast_signed()))
}

#[target_feature(enable = "avx512f,avx512bw,gfni")]
#[inline]
fn multiply(a: Vector, c: &Factor) -> Vector {
    _mm512_gf2p8affine_epi64_epi8::<0>(a, c.0)
}
