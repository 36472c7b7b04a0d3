//! CRC32C (Castagnoli), the checksum of iSCSI digests and of the structures on disk.

use crc_fast::{CrcAlgorithm, Digest, crc32_iscsi};

/// Returns the CRC32C of `bytes`.
///
/// *Shape*: as a number; on the wire the least significant byte goes first. *Source*: RFC 7143 §13.1, RFC 3720 §B.4.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32_iscsi(bytes)
}

/// Appends `bytes` to the CRC32C `crc`. The CRC of no bytes is zero.
#[inline]
#[must_use]
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    match (crc, bytes) {
        // Common case: padding and additional headers are usually absent.
        (_, []) => crc,
        // A CRC of zero is the initial state of the register, so the one-shot function applies.
        (0, _) => crc32c(bytes),
        _ => append_bytes(crc, bytes),
    }
}

/// Appends 4096 bytes to the CRC32C `crc`, given only their own CRC32C `page`: joins two checksums without reading the
/// bytes.
///
/// *Source*: the register is linear; 4096 zero bytes multiply it by x^32768 modulo the polynomial.
#[inline]
#[must_use]
pub fn crc32c_append_page(crc: u32, page: u32) -> u32 {
    let [a, b, c, d] = crc.to_le_bytes().map(usize::from);
    PAGE[0][a] ^ PAGE[1][b] ^ PAGE[2][c] ^ PAGE[3][d] ^ page
}

/// Castagnoli polynomial, lowest power in the highest bit.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// Table of each byte of a register, by position, multiplied by x^32768.
static PAGE: [[u32; 256]; 4] = {
    // Squaring x fifteen times gives x^(2^15).
    // In this bit order the highest bit is the power zero, so `1 << 30` is x itself.
    let (mut shift, mut square) = (1 << 30, 0);
    while square < 15 {
        shift = multiply(shift, shift);
        square += 1;
    }
    let mut table = [[0; 256]; 4];
    let mut at = 0;
    while at < 1024 {
        table[at / 256][at % 256] = multiply(shift, (at as u32 % 256) << (at / 256 * 8));
        at += 1;
    }
    table
};

/// Product of two registers modulo the polynomial.
const fn multiply(a: u32, b: u32) -> u32 {
    // From the power zero upward: `shifted` is `b` multiplied by the power of `bit`.
    let (mut product, mut shifted, mut bit) = (0, b, 1 << 31);
    while bit > 0 {
        if a & bit != 0 {
            product ^= shifted;
        }
        shifted = if shifted & 1 == 0 { shifted >> 1 } else { (shifted >> 1) ^ POLYNOMIAL };
        bit >>= 1;
    }
    product
}

fn append_bytes(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = resume(crc);
    digest.update(bytes);
    finish(&digest)
}

/// CRC32C of all `slices`, concatenated.
#[must_use]
pub fn crc32c_of_slices<'a>(slices: impl IntoIterator<Item = &'a [u8]>) -> u32 {
    let mut digest = resume(0);
    for slice in slices {
        digest.update(slice);
    }
    finish(&digest)
}

/// Returns a digest that continues from `crc`. The register starts as all ones and is inverted at the end, so the
/// inversion is undone first.
fn resume(crc: u32) -> Digest {
    Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc))
}

fn finish(digest: &Digest) -> u32 {
    u32::try_from(digest.finalize()).expect("a 32-bit CRC has 32 bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes of a CRC as they appear on the wire, which is how RFC 3720 §B.4 prints them.
    fn on_the_wire(crc: u32) -> [u8; 4] {
        crc.to_le_bytes()
    }

    #[test]
    fn crc32c_matches_the_vectors_of_rfc_3720() {
        let up: Vec<u8> = (0..32).collect();
        let down: Vec<u8> = (0..32).rev().collect();
        assert_eq!(on_the_wire(crc32c(&[0; 32])), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(on_the_wire(crc32c(&[0xff; 32])), [0x43, 0xab, 0xa8, 0x62]);
        assert_eq!(on_the_wire(crc32c(&up)), [0x4e, 0x79, 0xdd, 0x46]);
        assert_eq!(on_the_wire(crc32c(&down)), [0x5c, 0xdb, 0x3f, 0x11]);
    }

    #[test]
    fn crc32c_matches_the_read_10_pdu_of_rfc_3720() {
        let mut pdu = [0; 48];
        for (at, byte) in [(0, 0x01), (1, 0xc0), (16, 0x14), (22, 0x04), (27, 0x14), (31, 0x18), (32, 0x28), (40, 0x02)]
        {
            pdu[at] = byte;
        }
        assert_eq!(on_the_wire(crc32c(&pdu)), [0x56, 0x3a, 0x96, 0xd9]);
    }

    #[test]
    fn crc32c_of_the_check_string() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn crc32c_append_page_goes_on_behind_nothing() {
        let page = crc32c(&[0x5a; 4096]);
        assert_eq!(crc32c_append_page(0, page), page);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn crc32c_append_page_is_what_the_bytes_give(
            before in prop::collection::vec(any::<u8>(), 0..5000), page in prop::collection::vec(any::<u8>(), 4096),
        ) {
            prop_assert_eq!(crc32c_append_page(crc32c(&before), crc32c(&page)), crc32c_append(crc32c(&before), &page));
        }
    }

    proptest! {
        #[test]
        fn crc32c_does_not_depend_on_how_the_bytes_are_cut(
            bytes in prop::collection::vec(any::<u8>(), 0..2000), a in 0usize..2000, b in 0usize..2000,
        ) {
            let (a, b) = (a.min(b).min(bytes.len()), a.max(b).min(bytes.len()));
            let whole = crc32c(&bytes);
            prop_assert_eq!(crc32c_append(crc32c(&bytes[..a]), &bytes[a..]), whole);
            prop_assert_eq!(crc32c_of_slices([&bytes[..a], &bytes[a..b], &bytes[b..]]), whole);
        }
    }
}
