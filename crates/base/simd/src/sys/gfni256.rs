//! Kernel with vectors of 32 bytes; products by bit matrix (GF2P8AFFINEQB). For CPUs with GFNI but without AVX-512.

use super::kernel::{DOUBLE, bit_matrix};
use std::arch::x86_64::*;

type Vector = __m256i;

kernel!("gfni+avx2", "avx2,gfni", ["avx2", "gfni"]);

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn load(bytes: &[u8; 32]) -> Vector {
    // SAFETY: the 32 bytes are readable; the instruction asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn store(bytes: &mut [u8; 32], vector: Vector) {
    // SAFETY: the 32 bytes are writable and borrowed exclusively; the instruction requires no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), vector) }
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn zero() -> Vector {
    _mm256_setzero_si256()
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn xor(a: Vector, b: Vector) -> Vector {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn double(a: Vector) -> Vector {
    // Not GF2P8MULB: that instruction multiplies in the field of AES (0x11b), and RAID-6 uses 0x11d.
    _mm256_gf2p8affine_epi64_epi8::<0>(a, _mm256_set1_epi64x(DOUBLE.cast_signed()))
}

/// Bit matrix of the multiplication, once per eight bytes.
struct Factor(Vector);

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn factor(c: u8) -> Factor {
    Factor(_mm256_set1_epi64x(bit_matrix(c).cast_signed()))
}

#[target_feature(enable = "avx2,gfni")]
#[inline]
fn multiply(a: Vector, c: &Factor) -> Vector {
    _mm256_gf2p8affine_epi64_epi8::<0>(a, c.0)
}
