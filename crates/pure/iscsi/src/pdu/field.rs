//! Access to header fields at offsets that are checked at compile time.

use super::Bhs;

/// Returns the byte at `AT`.
#[inline]
pub(super) fn u8_at<const AT: usize>(header: &Bhs) -> u8 {
    const { assert!(AT < super::BHS_BYTES) };
    header[AT]
}

/// Returns the big-endian 16-bit number at `AT`.
#[inline]
pub(super) fn u16_at<const AT: usize>(header: &Bhs) -> u16 {
    u16::from_be_bytes(bytes_at::<AT, 2>(header))
}

/// Returns the big-endian 32-bit number at `AT`.
#[inline]
pub(super) fn u32_at<const AT: usize>(header: &Bhs) -> u32 {
    u32::from_be_bytes(bytes_at::<AT, 4>(header))
}

/// Returns the big-endian 64-bit number at `AT`.
#[inline]
pub(super) fn u64_at<const AT: usize>(header: &Bhs) -> u64 {
    u64::from_be_bytes(bytes_at::<AT, 8>(header))
}

/// Returns the `LEN` bytes from `AT` on.
#[inline]
pub(super) fn bytes_at<const AT: usize, const LEN: usize>(header: &Bhs) -> [u8; LEN] {
    const { assert!(AT + LEN <= super::BHS_BYTES) };
    std::array::from_fn(|i| header[AT + i])
}

/// Writes `value` at `AT`.
#[inline]
pub(super) fn put<const AT: usize, const LEN: usize>(header: &mut Bhs, value: [u8; LEN]) {
    const { assert!(AT + LEN <= super::BHS_BYTES) };
    header[AT..AT + LEN].copy_from_slice(&value);
}

/// Returns `mask` when `flag` is set, else 0.
#[inline]
pub(super) fn bit(flag: bool, mask: u8) -> u8 {
    u8::from(flag) * mask
}
