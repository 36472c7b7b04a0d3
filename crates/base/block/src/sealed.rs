//! The frame of every structure on disk: a magic, a format version where it has one, and the CRC32C of all of its bytes.
//!
//! The owner of a structure names its [`Format`] once, lays out its own fields behind the frame, and reads no field before the
//! format has admitted the bytes. What the fields mean, and which of them can be true, is the owner's to judge.
//!
//! ```text
//! plain       magic 8, checksum 4
//! versioned   magic 8, version 4 (or 2, and 2 of the owner's), checksum 4
//! ```

use crate::PAGE_BYTES;
use simd::crc32c::{crc32c, crc32c_of_slices};
use std::ops::RangeInclusive;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const VERSION_AT: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// A kind of structure: what it begins with, and where its checksum stands.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    magic: [u8; 8],
    /// The versions that are read; the newest is written.
    oldest: u32,
    newest: u32,
    version_bytes: usize,
    checksum_at: usize,
}

/// Why bytes are not a structure that this program can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSealed {
    /// Zeros: nothing was ever written there, or it was wiped.
    #[error("nothing is there")]
    Blank,
    /// It does not begin with the magic, or is no block where one is asked for: something else is there.
    #[error("something else is there")]
    Foreign,
    /// It begins with the magic, and the checksum is wrong; or no program wrote, or reads any more, a version as old as it says.
    #[error("it is damaged")]
    Damaged,
    /// It is whole, and of a later version than this program knows.
    #[error("it has format version {0}, which this program does not know")]
    Newer(u32),
}

impl Format {
    /// A format without a version, whose frame has 12 bytes.
    #[must_use]
    pub const fn plain(magic: [u8; 8]) -> Self {
        Self { magic, oldest: 0, newest: 0, version_bytes: 0, checksum_at: 8 }
    }

    /// A format that is read in these versions and written in the last of them, whose frame has 16 bytes.
    #[must_use]
    pub const fn versioned(magic: [u8; 8], versions: RangeInclusive<u32>) -> Self {
        Self { magic, oldest: *versions.start(), newest: *versions.end(), version_bytes: 4, checksum_at: 12 }
    }

    /// The same with a version of two bytes; the two behind it are the owner's.
    #[must_use]
    pub const fn short_versioned(magic: [u8; 8], versions: RangeInclusive<u32>) -> Self {
        Self { version_bytes: 2, ..Self::versioned(magic, versions) }
    }

    /// The frame stands in `bytes`, which are the whole structure.
    ///
    /// *Panics*: when the frame does not fit.
    pub fn seal(&self, bytes: &mut [u8]) {
        let checksum = self.checksum_at..self.checksum_at + CHECKSUM_BYTES;
        bytes[..VERSION_AT].copy_from_slice(&self.magic);
        bytes[VERSION_AT..VERSION_AT + self.version_bytes]
            .copy_from_slice(&self.newest.to_le_bytes()[..self.version_bytes]);
        bytes[checksum.clone()].fill(0);
        let sum = crc32c(bytes);
        bytes[checksum].copy_from_slice(&sum.to_le_bytes());
    }

    /// The block that begins with `wire`, whose first bytes are left to the frame, and has zeros behind it.
    pub fn emit<W: IntoBytes + Immutable>(&self, wire: &W) -> [u8; PAGE_BYTES] {
        let mut block = [0; PAGE_BYTES];
        wire.write_to_prefix(&mut block).expect("a header is smaller than a block");
        self.seal(&mut block);
        block
    }

    /// True when the bytes begin with the magic: they were meant to be such a structure, whole or not.
    #[must_use]
    pub fn is_meant(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.magic)
    }

    /// Admits `bytes`, which are all of the structure.
    pub fn open(&self, bytes: &[u8]) -> Result<(), NotSealed> {
        self.known(self.version_of(bytes)?)
    }

    /// The fields at the beginning of a block. *Shape*: one block of 4096 bytes, else it is foreign.
    pub fn parse<'a, W>(&self, block: &'a [u8]) -> Result<&'a W, NotSealed>
    where
        W: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (wire, version) = self.parse_any_version(block)?;
        self.known(version).map(|()| wire)
    }

    /// The same with the version, which may be a later one: for formats whose first fields stay in their places.
    pub fn parse_any_version<'a, W>(&self, block: &'a [u8]) -> Result<(&'a W, u32), NotSealed>
    where
        W: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        if block.len() != PAGE_BYTES {
            return Err(NotSealed::Foreign);
        }
        let version = self.version_of(block)?;
        let (wire, _) = W::ref_from_prefix(block).map_err(|_| NotSealed::Foreign)?;
        Ok((wire, version))
    }

    /// The version of what is whole: the oldest that is read, or a later one.
    fn version_of(&self, bytes: &[u8]) -> Result<u32, NotSealed> {
        if !self.is_meant(bytes) {
            return Err(if is_blank(bytes) { NotSealed::Blank } else { NotSealed::Foreign });
        }
        let (before, rest) = bytes.split_at_checked(self.checksum_at).ok_or(NotSealed::Damaged)?;
        let (found, behind) = rest.split_at_checked(CHECKSUM_BYTES).ok_or(NotSealed::Damaged)?;
        let checksum = crc32c_of_slices([before, &[0; CHECKSUM_BYTES], behind]);
        let digits = before.iter().skip(VERSION_AT).take(self.version_bytes);
        let version = digits.rev().fold(0, |version, &byte| version << 8 | u32::from(byte));
        if found == checksum.to_le_bytes() && version >= self.oldest { Ok(version) } else { Err(NotSealed::Damaged) }
    }

    fn known(&self, version: u32) -> Result<(), NotSealed> {
        if version > self.newest { Err(NotSealed::Newer(version)) } else { Ok(()) }
    }
}

/// True for zeros alone.
#[must_use]
pub fn is_blank(bytes: &[u8]) -> bool {
    // Without a way out of the inner loop it runs in wide registers.
    bytes.chunks(64).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Format = Format::plain(*b"BLKYTEST");
    const VERSIONED: Format = Format::versioned(*b"BLKYTEST", 2..=3);
    const SHORT: Format = Format::short_versioned(*b"BLKYTEST", 2..=3);
    const FORMATS: [Format; 3] = [PLAIN, VERSIONED, SHORT];

    fn sealed(format: Format) -> [u8; 64] {
        let mut bytes = [7; 64];
        format.seal(&mut bytes);
        bytes
    }

    /// The checksum was computed by another program: CRC32C of the bytes with zeros in its place.
    #[test]
    fn frame_stands_where_the_format_says() {
        assert_eq!(sealed(PLAIN)[..20], *b"BLKYTEST\x5a\x5d\x7f\x93\x07\x07\x07\x07\x07\x07\x07\x07");
        assert_eq!(sealed(VERSIONED)[..20], *b"BLKYTEST\x03\0\0\0\x85\x45\xcf\x1b\x07\x07\x07\x07");
        assert_eq!(sealed(SHORT)[..20], *b"BLKYTEST\x03\0\x07\x07\x2e\x71\xb6\x5b\x07\x07\x07\x07");
    }

    #[test]
    fn bytes_with_any_bit_changed_are_damaged_or_foreign() {
        for format in FORMATS {
            let good = sealed(format);
            assert_eq!(format.open(&good), Ok(()));
            for bit in 0..64 * 8 {
                let mut bad = good;
                bad[bit / 8] ^= 1 << (bit % 8);
                let expected = if bit < 64 { NotSealed::Foreign } else { NotSealed::Damaged };
                assert_eq!(format.open(&bad), Err(expected), "bit {bit} of {format:?}");
            }
            for len in 0..64 {
                let expected = [NotSealed::Foreign, NotSealed::Damaged][usize::from(len >= 8)];
                let expected = if len == 0 { NotSealed::Blank } else { expected };
                assert_eq!(format.open(&good[..len]), Err(expected), "{len} bytes of {format:?}");
            }
        }
    }

    #[test]
    fn zeros_are_blank_and_other_bytes_are_foreign() {
        for format in FORMATS {
            assert_eq!(format.open(&[0; 4096]), Err(NotSealed::Blank));
            for at in [0, 63, 64, 4095] {
                let mut bytes = [0; 4096];
                bytes[at] = 1;
                assert_eq!(format.open(&bytes), Err(NotSealed::Foreign), "byte {at}");
            }
        }
    }

    #[test]
    fn version_that_is_not_read_is_newer_or_damaged() {
        for (version, expected) in
            [(1, Err(NotSealed::Damaged)), (2, Ok(())), (3, Ok(())), (4, Err(NotSealed::Newer(4)))]
        {
            for (format, other) in [
                (VERSIONED, Format::versioned(*b"BLKYTEST", version..=version)),
                (SHORT, Format::short_versioned(*b"BLKYTEST", version..=version)),
            ] {
                assert_eq!(format.open(&sealed(other)), expected, "{version}");
            }
        }
    }

    #[test]
    fn block_is_parsed_in_its_length_alone_and_in_a_later_version_where_that_is_asked_for() {
        let mut fields = [0; 20];
        fields[16..].copy_from_slice(&[1, 2, 3, 4]);
        let block = Format::versioned(*b"BLKYTEST", 5..=5).emit(&fields);
        assert_eq!(VERSIONED.parse::<[u8; 20]>(&block), Err(NotSealed::Newer(5)));
        let (found, version) = VERSIONED.parse_any_version::<[u8; 20]>(&block).unwrap();
        assert_eq!((&found[16..], version), (&fields[16..], 5));
        let block = VERSIONED.emit(&fields);
        assert_eq!(VERSIONED.parse::<[u8; 20]>(&block).unwrap()[16..], fields[16..]);
        assert_eq!(VERSIONED.parse::<[u8; 20]>(&block[..4095]), Err(NotSealed::Foreign));
    }
}
