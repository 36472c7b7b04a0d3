//! Catalog slots of a member disk: two copies, each a header block followed by the catalog.
//!
//! Every commit goes to both slots, to the second once it is stable in the first. While one is written the
//! other is intact, and an acknowledged commit is lost only with both, so damage of one slot never brings back
//! an older catalog.

use crate::catalog::needed_by;
use crate::label::{Features, VERSION};
use crate::layout::{BLOCK_BYTES, BODY_BYTES_MAX};
use block::frame::Format;
use block::{Buf, View};
use simd::crc32c::crc32c;
use uuid::Uuid;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: Format = Format::versioned(*b"BLKYDCAT", 1..=VERSION);

/// Header block of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// UUID of the pool.
    pub pool: Uuid,
    /// UUID of the disk.
    pub disk: Uuid,
    /// Generation of the commit.
    pub generation: u64,
    /// Length of the catalog in bytes; at most [`BODY_BYTES_MAX`].
    pub body_bytes: usize,
    /// CRC32C of the catalog.
    pub body_checksum: u32,
    /// Features that a reader must know.
    pub features: Features,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    frame: [u8; 16],
    compat: U64,
    ro_compat: U64,
    incompat: U64,
    pool: [u8; 16],
    disk: [u8; 16],
    generation: U64,
    body_bytes: U32,
    body_checksum: U32,
}

/// Reason why a block is not a usable header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// Empty, torn or damaged: the slot holds nothing.
    #[error("the slot holds nothing")]
    Torn,
    /// Newer format that this version does not know.
    #[error(
        "the catalog has format version {version} with features {:#x}/{:#x}, which this version does not know",
        unknown.incompat, unknown.ro_compat
    )]
    Newer {
        /// Format version.
        version: u32,
        /// Unknown features that forbid opening.
        unknown: Features,
    },
}

impl Header {
    /// Parses the header in `block`.
    pub fn parse(block: &[u8]) -> Result<Self, SlotError> {
        let (wire, version) = FORMAT.parse_any_version::<Wire>(block).map_err(|_| SlotError::Torn)?;
        let features =
            Features { compat: wire.compat.get(), ro_compat: wire.ro_compat.get(), incompat: wire.incompat.get() };
        // A newer slot is reported as such: ignoring it would bring back an older catalog.
        let unknown = features.unknown();
        if version > VERSION || unknown != Features::default() {
            return Err(SlotError::Newer { version, unknown });
        }
        let body_bytes = wire.body_bytes.get() as usize;
        // A longer catalog would reach into the area behind the slot.
        (body_bytes <= BODY_BYTES_MAX)
            .then(|| Self {
                pool: Uuid::from_bytes(wire.pool),
                disk: Uuid::from_bytes(wire.disk),
                generation: wire.generation.get(),
                body_bytes,
                body_checksum: wire.body_checksum.get(),
                features,
            })
            .ok_or(SlotError::Torn)
    }

    /// True when `body` is the catalog that the header describes.
    #[must_use]
    pub fn matches(&self, body: &[u8]) -> bool {
        body.len() == self.body_bytes && crc32c(body) == self.body_checksum
    }

    fn emit(&self) -> [u8; BLOCK_BYTES as usize] {
        let mut wire = Wire::new_zeroed();
        wire.compat = self.features.compat.into();
        wire.ro_compat = self.features.ro_compat.into();
        wire.incompat = self.features.incompat.into();
        wire.pool = *self.pool.as_bytes();
        wire.disk = *self.disk.as_bytes();
        wire.generation = self.generation.into();
        wire.body_bytes = u32::try_from(self.body_bytes).expect("a body fits in its slot").into();
        wire.body_checksum = self.body_checksum.into();
        FORMAT.emit(&wire)
    }
}

/// Encodes a slot: the header for `disk`, then `body`, then zeros to the end of the slot when `whole` is set.
///
/// *Panics*: when the body is longer than [`BODY_BYTES_MAX`], which callers rule out.
pub(crate) fn emit(pool: Uuid, disk: Uuid, generation: u64, body: &[u8], whole: bool) -> View {
    assert!(body.len() <= BODY_BYTES_MAX, "a catalog of {} bytes does not fit in its slot", body.len());
    // A feature bit is set only when the catalog uses the feature, so that older versions can open pools
    // without it.
    let features = Features { incompat: needed_by(body), ..Features::default() };
    let header = Header { pool, disk, generation, body_bytes: body.len(), body_checksum: crc32c(body), features };
    let block_bytes = BLOCK_BYTES as usize;
    // Normally only the blocks in use are written.
    // Zeros to the end overwrite a longer catalog of before, which may hold a key that was replaced.
    let body_bytes = if whole { BODY_BYTES_MAX } else { body.len().next_multiple_of(block_bytes) };
    let mut slot = Buf::zeroed(block_bytes + body_bytes);
    slot[..block_bytes].copy_from_slice(&header.emit());
    slot[block_bytes..block_bytes + body.len()].copy_from_slice(body);
    slot.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_header_matches_its_own_body_alone() {
        let slot = emit(Uuid::from_u128(1), Uuid::from_u128(2), 9, b"catalog", false);
        let header = Header::parse(&slot[..4096]).unwrap();
        assert_eq!((header.generation, header.disk), (9, Uuid::from_u128(2)));
        assert!(header.matches(b"catalog"));
        assert!(!header.matches(b"catalof") && !header.matches(b"catalog\0"));
    }

    #[test]
    fn slot_with_a_feature_that_nobody_knows_names_it() {
        let mut wire = Wire::read_from_prefix(&emit(Uuid::from_u128(1), Uuid::from_u128(2), 9, b"", false)).unwrap().0;
        wire.incompat = 0x600.into();
        let refused = Header::parse(&FORMAT.emit(&wire)).unwrap_err();
        assert_eq!(
            refused,
            SlotError::Newer { version: 1, unknown: Features { incompat: 0x600, ..Features::default() } }
        );
        assert!(refused.to_string().contains("features 0x600/0x0"));
    }

    #[test]
    fn slot_header_with_any_byte_changed_is_torn() {
        let slot = emit(Uuid::from_u128(1), Uuid::from_u128(2), 9, b"", false);
        for at in 0..4096 {
            let mut bad = slot[..4096].to_vec();
            bad[at] ^= 1;
            assert_eq!(Header::parse(&bad), Err(SlotError::Torn), "byte {at}");
        }
    }
}
