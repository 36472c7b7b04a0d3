//! Reading and writing the fields of a header at offsets that the compiler has checked.

use super::Bhs;

/// The byte at `AT`.
#[inline]
pub(super) fn u8_at<const AT: usize>(header: &Bhs) -> u8 {
    const { assert!(AT < super::BHS_BYTES) };
    header[AT]
}

/// The big-endian number at `AT`.
#[inline]
pub(super) fn u16_at<const AT: usize>(header: &Bhs) -> u16 {
    u16::from_be_bytes(bytes_at::<AT, 2>(header))
}

/// The big-endian number at `AT`.
#[inline]
pub(super) fn u32_at<const AT: usize>(header: &Bhs) -> u32 {
    u32::from_be_bytes(bytes_at::<AT, 4>(header))
}

/// The big-endian number at `AT`.
#[inline]
pub(super) fn u64_at<const AT: usize>(header: &Bhs) -> u64 {
    u64::from_be_bytes(bytes_at::<AT, 8>(header))
}

/// The `LEN` bytes from `AT` on.
#[inline]
pub(super) fn bytes_at<const AT: usize, const LEN: usize>(header: &Bhs) -> [u8; LEN] {
    const { assert!(AT + LEN <= super::BHS_BYTES) };
    std::array::from_fn(|i| header[AT + i])
}

/// Puts `value` at `AT`.
#[inline]
pub(super) fn put<const AT: usize, const LEN: usize>(header: &mut Bhs, value: [u8; LEN]) {
    const { assert!(AT + LEN <= super::BHS_BYTES) };
    header[AT..AT + LEN].copy_from_slice(&value);
}

/// `mask` when `flag` is set, else no bit.
#[inline]
pub(super) fn bit(flag: bool, mask: u8) -> u8 {
    u8::from(flag) * mask
}
