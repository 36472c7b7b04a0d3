//! Frame of every structure on disk: a magic, a format version where there is one, and the CRC32C of all bytes.
//!
//! The owner of a structure declares its [`Format`] once, places its own fields after the frame, and reads no field
//! before the format has verified the bytes. Semantic checks of the fields are the owner's.
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

/// Type of structure: its magic, its versions and the position of its checksum.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    magic: [u8; 8],
    /// Range of versions that can be read; the newest is written.
    oldest: u32,
    newest: u32,
    version_bytes: usize,
    checksum_at: usize,
}

/// Reason why bytes are not a readable structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// All zeros: never written, or wiped.
    #[error("nothing is there")]
    Blank,
    /// Wrong magic, or not the size of a block where one is expected: unrelated data.
    #[error("something else is there")]
    Foreign,
    /// Right magic but wrong checksum, or a version older than the oldest that is read.
    #[error("it is damaged")]
    Damaged,
    /// Intact, but of a later version than this program supports.
    #[error("it has format version {0}, which this program does not know")]
    Newer(u32),
}

impl Format {
    /// Returns a format without a version; its frame has 12 bytes.
    #[must_use]
    pub const fn plain(magic: [u8; 8]) -> Self {
        Self { magic, oldest: 0, newest: 0, version_bytes: 0, checksum_at: 8 }
    }

    /// Returns a format that is read in `versions` and written in the last of them; its frame has 16 bytes.
    #[must_use]
    pub const fn versioned(magic: [u8; 8], versions: RangeInclusive<u32>) -> Self {
        Self { magic, oldest: *versions.start(), newest: *versions.end(), version_bytes: 4, checksum_at: 12 }
    }

    /// Returns a versioned format with a version of two bytes; the two bytes after it are the owner's.
    #[must_use]
    pub const fn short_versioned(magic: [u8; 8], versions: RangeInclusive<u32>) -> Self {
        Self { version_bytes: 2, ..Self::versioned(magic, versions) }
    }

    /// Writes the frame into `bytes`, which are the whole structure.
    ///
    /// *Panics*: when the frame does not fit.
    pub fn seal(&self, bytes: &mut [u8]) {
        let checksum = self.checksum_at..self.checksum_at + CHECKSUM_BYTES;
        bytes[..VERSION_AT].copy_from_slice(&self.magic);
        // Little-endian, so the two-byte form is a prefix of the four-byte one.
        bytes[VERSION_AT..VERSION_AT + self.version_bytes]
            .copy_from_slice(&self.newest.to_le_bytes()[..self.version_bytes]);
        // The checksum covers its own field as zeros; the reader substitutes the same.
        bytes[checksum.clone()].fill(0);
        let sum = crc32c(bytes);
        bytes[checksum].copy_from_slice(&sum.to_le_bytes());
    }

    /// Returns a sealed block that begins with `wire` and is padded with zeros. The first bytes of `wire` are those of
    /// the frame.
    pub fn emit<W: IntoBytes + Immutable>(&self, wire: &W) -> [u8; PAGE_BYTES] {
        let mut block = [0; PAGE_BYTES];
        wire.write_to_prefix(&mut block).expect("a header is smaller than a block");
        self.seal(&mut block);
        block
    }

    /// True when the bytes begin with the magic: they are such a structure, intact or damaged.
    #[must_use]
    pub fn has_magic(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&self.magic)
    }

    /// Verifies `bytes`, which are the whole structure.
    pub fn open(&self, bytes: &[u8]) -> Result<(), FrameError> {
        // The checksum comes first: a version that is too new is a fact then, and no damage.
        self.known(self.version_of(bytes)?)
    }

    /// Verifies a block and returns the fields at its beginning. *Shape*: one block of 4096 bytes; any other size is
    /// `Foreign`.
    pub fn parse<'a, W>(&self, block: &'a [u8]) -> Result<&'a W, FrameError>
    where
        W: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (wire, version) = self.parse_any_version(block)?;
        self.known(version).map(|()| wire)
    }

    /// As [`Self::parse`], but accepts later versions and returns the version: for formats whose first fields keep
    /// their places.
    pub fn parse_any_version<'a, W>(&self, block: &'a [u8]) -> Result<(&'a W, u32), FrameError>
    where
        W: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        // A frame fills exactly one page.
        if block.len() != PAGE_BYTES {
            return Err(FrameError::Foreign);
        }
        let version = self.version_of(block)?;
        // Fails only if `W` is larger than a page: the type needs no alignment.
        let (wire, _) = W::ref_from_prefix(block).map_err(|_| FrameError::Foreign)?;
        Ok((wire, version))
    }

    /// Returns the version of an intact structure: at least the oldest that is read, possibly a later one.
    fn version_of(&self, bytes: &[u8]) -> Result<u32, FrameError> {
        if !self.has_magic(bytes) {
            // A blank block was never written, which callers tell from foreign content.
            return Err(if is_blank(bytes) { FrameError::Blank } else { FrameError::Foreign });
        }
        // The magic is present, so a short buffer is damaged, not foreign.
        let (before, rest) = bytes.split_at_checked(self.checksum_at).ok_or(FrameError::Damaged)?;
        let (found, behind) = rest.split_at_checked(CHECKSUM_BYTES).ok_or(FrameError::Damaged)?;
        let checksum = crc32c_of_slices([before, &[0; CHECKSUM_BYTES], behind]);
        // Little-endian: the last byte is the most significant.
        let digits = before.iter().skip(VERSION_AT).take(self.version_bytes);
        let version = digits.rev().fold(0, |version, &byte| version << 8 | u32::from(byte));
        if found == checksum.to_le_bytes() && version >= self.oldest { Ok(version) } else { Err(FrameError::Damaged) }
    }

    fn known(&self, version: u32) -> Result<(), FrameError> {
        if version > self.newest { Err(FrameError::Newer(version)) } else { Ok(()) }
    }
}

/// True when all bytes are zero.
#[must_use]
pub fn is_blank(bytes: &[u8]) -> bool {
    // No early exit inside of a chunk, so that the compiler vectorizes the inner loop.
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

    /// The expected checksums were computed by another program: CRC32C of the bytes with zeros in the checksum field.
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
                let expected = if bit < 64 { FrameError::Foreign } else { FrameError::Damaged };
                assert_eq!(format.open(&bad), Err(expected), "bit {bit} of {format:?}");
            }
            for len in 0..64 {
                let expected = [FrameError::Foreign, FrameError::Damaged][usize::from(len >= 8)];
                let expected = if len == 0 { FrameError::Blank } else { expected };
                assert_eq!(format.open(&good[..len]), Err(expected), "{len} bytes of {format:?}");
            }
        }
    }

    #[test]
    fn zeros_are_blank_and_other_bytes_are_foreign() {
        for format in FORMATS {
            assert_eq!(format.open(&[0; 4096]), Err(FrameError::Blank));
            for at in [0, 63, 64, 4095] {
                let mut bytes = [0; 4096];
                bytes[at] = 1;
                assert_eq!(format.open(&bytes), Err(FrameError::Foreign), "byte {at}");
            }
        }
    }

    #[test]
    fn version_that_is_not_read_is_newer_or_damaged() {
        for (version, expected) in
            [(1, Err(FrameError::Damaged)), (2, Ok(())), (3, Ok(())), (4, Err(FrameError::Newer(4)))]
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
        assert_eq!(VERSIONED.parse::<[u8; 20]>(&block), Err(FrameError::Newer(5)));
        let (found, version) = VERSIONED.parse_any_version::<[u8; 20]>(&block).unwrap();
        assert_eq!((&found[16..], version), (&fields[16..], 5));
        let block = VERSIONED.emit(&fields);
        assert_eq!(VERSIONED.parse::<[u8; 20]>(&block).unwrap()[16..], fields[16..]);
        assert_eq!(VERSIONED.parse::<[u8; 20]>(&block[..4095]), Err(FrameError::Foreign));
    }
}
