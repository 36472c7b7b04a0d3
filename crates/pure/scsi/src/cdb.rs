//! Command descriptor blocks and their fields. Accessors cannot fail and cannot index out of bounds.

/// Maximum CDB length of the supported operations in bytes.
pub(crate) const CDB_BYTES_MAX: usize = 16;

/// Command descriptor block.
///
/// No supported operation has more than 16 bytes, so only the first 16 bytes of a longer CDB (7Fh, up to 260 bytes) are
/// kept; its operation code is refused. A shorter CDB reads as if padded with zeros.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Cdb(u128);

impl Cdb {
    /// Reads the CDB in `bytes`.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        let mut first = [0; CDB_BYTES_MAX];
        for (to, from) in first.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(u128::from_be_bytes(first))
    }

    /// Returns the first 16 bytes.
    #[must_use]
    pub fn bytes(self) -> [u8; CDB_BYTES_MAX] {
        self.0.to_be_bytes()
    }

    /// Returns the OPERATION CODE.
    #[must_use]
    pub fn operation_code(self) -> u8 {
        self.u8_at(0)
    }

    pub(crate) const fn word(self) -> u128 {
        self.0
    }

    pub(crate) const fn u8_at(self, byte: u32) -> u8 {
        self.field(byte, 1) as u8
    }

    pub(crate) const fn u16_at(self, byte: u32) -> u16 {
        self.field(byte, 2) as u16
    }

    pub(crate) const fn u24_at(self, byte: u32) -> u32 {
        self.field(byte, 3) as u32
    }

    pub(crate) const fn u32_at(self, byte: u32) -> u32 {
        self.field(byte, 4) as u32
    }

    pub(crate) const fn u64_at(self, byte: u32) -> u64 {
        self.field(byte, 8)
    }

    pub(crate) const fn bit(self, byte: u32, bit: u32) -> bool {
        (self.u8_at(byte) >> bit) & 1 == 1
    }

    /// Returns the `bytes` bytes from `byte` on as a big-endian number; both arguments are constants of this crate.
    const fn field(self, byte: u32, bytes: u32) -> u64 {
        assert!(bytes >= 1 && bytes <= 8 && byte + bytes <= CDB_BYTES_MAX as u32);
        // Shifts out the bytes before and behind the field; by the bounds above, both shifts are below 128 bits.
        ((self.0 << (8 * byte)) >> (128 - 8 * bytes)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cdb_fields_are_big_endian_and_zero_behind_the_end() {
        let cdb = Cdb::new(&[0x88, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(cdb.operation_code(), 0x88);
        assert_eq!((cdb.u8_at(1), cdb.u16_at(1), cdb.u24_at(1), cdb.u32_at(1)), (1, 0x0102, 0x010203, 0x01020304));
        assert_eq!(cdb.u64_at(2), 0x0203_0405_0607_0809);
        assert_eq!(cdb.u32_at(10), 0);
        assert!(cdb.bit(3, 0) && !cdb.bit(4, 0) && cdb.bit(8, 3));
        assert_eq!(Cdb::new(&[7; 260]).bytes(), [7; 16]);
        assert_eq!(Cdb::new(&[]).operation_code(), 0);
    }
}
