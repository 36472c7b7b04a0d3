//! Head of a family's map (checkpoint record): root of the newest tree and where its log continues. Two slots
//! alternate.

use crate::layout::BLOCK_BYTES;
use crate::maplog::{COUNT_MAX, LIFE_MAX, LogIdentity};
use crate::tree::Root;
use block::frame::Format;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: Format = Format::plain(*b"BLKYDMAP");
/// Maximum number of page regions that a head can describe.
pub(crate) const REGIONS_MAX: usize = 480;

/// Newest checkpoint of a map.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// Number of checkpoints so far.
    pub(crate) generation: u64,
    pub(crate) root: Option<Root>,
    /// Number of entries in the tree.
    pub(crate) entries: u64,
    /// The tree contains all changes with a smaller serial number.
    pub(crate) serial: u64,
    /// Sequence number of the log block where the log continues.
    pub(crate) sequence: u64,
    /// Life of the family that wrote it; later log blocks have the same life or a newer one.
    pub(crate) life: u32,
    /// Location of the free-page bitmap of each region.
    pub(crate) regions: Vec<Region>,
}

/// Location of a region's free-page bitmap: the checkpoint that wrote it and the copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Region {
    pub(crate) generation: u64,
    pub(crate) copy: u8,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    frame: [u8; 12],
    regions: U32,
    family: [u8; 16],
    birth: U64,
    generation: U64,
    root: U64,
    root_count: U16,
    root_level: u8,
    reserved: u8,
    life: U32,
    entries: U64,
    serial: U64,
    sequence: U64,
    places: [U64; REGIONS_MAX],
}

impl Head {
    pub(crate) fn emit(&self, identity: LogIdentity) -> [u8; BLOCK_BYTES as usize] {
        assert!(self.regions.len() <= REGIONS_MAX, "a map has at most {REGIONS_MAX} regions of pages");
        let mut wire = Wire::new_zeroed();
        wire.regions = u32::try_from(self.regions.len()).expect("bounded by REGIONS_MAX").into();
        wire.family = *identity.family.as_bytes();
        wire.birth = identity.birth.into();
        wire.generation = self.generation.into();
        if let Some(root) = self.root {
            (wire.root, wire.root_count, wire.root_level) = (root.page.into(), root.count.into(), root.level);
        }
        wire.entries = self.entries.into();
        wire.serial = self.serial.into();
        wire.sequence = self.sequence.into();
        wire.life = self.life.into();
        for (place, region) in wire.places.iter_mut().zip(&self.regions) {
            // `COUNT_MAX` keeps generations below 2^48, so the shift loses no bit.
            *place = (region.generation << 1 | u64::from(region.copy)).into();
        }
        FORMAT.emit(&wire)
    }

    /// Parses the head of this map in `block`; none unless it is intact and its numbers are possible.
    pub(crate) fn parse(identity: LogIdentity, block: &[u8]) -> Option<Self> {
        let wire: &Wire = FORMAT.parse(block).ok()?;
        let ours = wire.family == *identity.family.as_bytes() && wire.birth.get() == identity.birth;
        // A checksum does not prove that the numbers are sane; values beyond any real life of a family would
        // overflow later.
        let counts = [wire.generation, wire.root, wire.entries, wire.serial, wire.sequence];
        let is_possible = counts.iter().all(|count| count.get() < COUNT_MAX) && wire.life.get() < LIFE_MAX;
        if !ours || !is_possible {
            return None;
        }
        let (page, level, count) = (wire.root.get(), wire.root_level, wire.root_count.get());
        // A count beyond the array makes the head damaged, although its checksum is right.
        let regions = wire.places.get(..wire.regions.get() as usize)?.iter().map(|place| place.get());
        Some(Self {
            generation: wire.generation.get(),
            // Block 0 is a head, so a page number of 0 means an empty tree.
            root: (page != 0).then_some(Root { page, level, count }),
            entries: wire.entries.get(),
            serial: wire.serial.get(),
            sequence: wire.sequence.get(),
            life: wire.life.get(),
            regions: regions.map(|place| Region { generation: place >> 1, copy: (place & 1) as u8 }).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Uuid;

    #[test]
    fn head_parses_to_what_was_emitted_and_to_nothing_when_a_byte_is_changed() {
        let identity = LogIdentity { family: Uuid::from_u128(4), birth: 7 };
        let head = Head {
            generation: 12,
            root: Some(Root { page: 900, level: 2, count: 33 }),
            entries: 4711,
            serial: 99_000,
            sequence: 500,
            life: 6,
            regions: vec![Region { generation: 12, copy: 1 }, Region { generation: 3, copy: 0 }],
        };
        let block = head.emit(identity);
        assert_eq!(block[..16], *b"BLKYDMAP\x8f\xca\xbd\xf1\x02\0\0\0");
        assert_eq!(Head::parse(identity, &block), Some(head.clone()));
        assert_eq!(Head::parse(LogIdentity { birth: 8, ..identity }, &block), None);
        for impossible in [
            Head { generation: COUNT_MAX, ..head.clone() },
            Head { serial: u64::MAX, ..head.clone() },
            Head { sequence: u64::MAX, ..head.clone() },
            Head { entries: u64::MAX, ..head.clone() },
            Head { life: u32::MAX, ..head.clone() },
        ] {
            assert_eq!(Head::parse(identity, &impossible.emit(identity)), None, "{impossible:?}");
        }
        for at in 0..block.len() {
            let mut bad = block;
            bad[at] ^= 4;
            assert_eq!(Head::parse(identity, &bad), None, "byte {at}");
        }
    }
}
