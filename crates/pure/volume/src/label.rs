//! The label of a member disk: which pool and which disk it is, and where its areas lie.
//!
//! Three copies, two at the head and one at the end, are written when a disk joins a pool and never in
//! one flush. Everything that changes later is in the catalog slots.

use crate::layout::{BLOCK_BYTES, DATA_START, SLOT_STARTS, data_area};
use block::sealed::{Format, NotSealed};
use block::{Blocks, Extent};
use uuid::Uuid;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The format version that this code writes and the newest that it reads.
pub(crate) const VERSION: u32 = 1;
const FORMAT: Format = Format::versioned(*b"BLKYDLBL", 1..=VERSION);
/// The longest name of a pool or a volume, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// The catalog has families of volumes: a program that does not know them would give their slabs away.
pub const FAMILIES: u64 = 1;
/// The catalog has protected groups: a program that does not know them would take sums and log for data.
pub const PROTECTED: u64 = 2;
/// The pool has, or had, a group for a write log: a program that does not know it would serve volumes without what is in it.
pub const LOGS: u64 = 4;
/// A volume is being copied to and is not whole: a program that does not know it would show it.
pub const PARTIAL: u64 = 8;
/// Hosts have reserved a volume so that it survives power loss: a program that does not know it would let in whom they
/// have shut out.
pub const RESERVATIONS: u64 = 16;
/// Volumes are encrypted: a program that does not know it would serve what nobody wrote.
pub const ENCRYPTED: u64 = 32;
/// Features that must be known to open a pool. This version opens pools only to write to them.
const KNOWN: Features = Features {
    compat: u64::MAX,
    ro_compat: 0,
    incompat: FAMILIES | PROTECTED | LOGS | PARTIAL | RESERVATIONS | ENCRYPTED,
};

/// Feature bits of a format: what an implementation that does not know a bit may still do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// May be ignored.
    pub compat: u64,
    /// May be ignored by those who only read.
    pub ro_compat: u64,
    /// Forbids to open the pool.
    pub incompat: u64,
}

impl Features {
    /// Those that this version would have to know to open the pool, and does not.
    #[must_use]
    pub fn unknown(self) -> Self {
        Self { compat: 0, ro_compat: self.ro_compat & !KNOWN.ro_compat, incompat: self.incompat & !KNOWN.incompat }
    }
}

/// What a label says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Which pool the disk belongs to.
    pub pool: Uuid,
    /// What the pool is called.
    pub pool_name: String,
    /// Which disk it is.
    pub disk: Uuid,
    /// The pool's generation when the disk was labelled.
    pub generation: u64,
    /// The size of the disk when it was labelled, in blocks of 4096 bytes.
    pub device_blocks: Blocks,
    /// The area that its array may use.
    pub data: Extent,
    /// When it was labelled, in seconds since 1970.
    pub labelled_at: u64,
    /// Which program wrote it.
    pub created_by: String,
    /// The features of the pool when the disk was labelled.
    pub features: Features,
}

/// Why a block is no label that we can use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoLabel {
    /// The block does not claim to be a label.
    #[error("there is no label")]
    Absent,
    /// The block claims to be a label, but its checksum or its content is wrong.
    #[error("the label is damaged")]
    Damaged,
    /// A newer program wrote it in a way that this one does not understand.
    #[error(
        "the disk has format version {version} with features {:#x}/{:#x}, which this version does not know; \
         open it with {created_by} or newer", unknown.incompat, unknown.ro_compat
    )]
    Newer {
        /// Which pool it belongs to.
        pool: Uuid,
        /// Its format version.
        version: u32,
        /// Its features that forbid to open it.
        unknown: Features,
        /// The program that wrote it.
        created_by: String,
    },
}

/// The fixed part of the block. The fields up to `disk` stay where they are in every version.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    frame: [u8; 16],
    compat: U64,
    ro_compat: U64,
    incompat: U64,
    created_by: [u8; 32],
    pool: [u8; 16],
    disk: [u8; 16],
    generation: U64,
    device_blocks: U64,
    data_start: U64,
    data_blocks: U64,
    slot_starts: [U64; 2],
    labelled_at: U64,
    copy: u8,
    reserved: [u8; 7],
    pool_name: [u8; 64],
}

impl Label {
    /// The block of copy number `copy` (0 and 1 at the head, 2 at the end).
    pub(crate) fn emit(&self, copy: u8) -> [u8; BLOCK_BYTES as usize] {
        let mut wire = Wire::new_zeroed();
        wire.compat = self.features.compat.into();
        wire.ro_compat = self.features.ro_compat.into();
        wire.incompat = self.features.incompat.into();
        put_text(&mut wire.created_by, &self.created_by);
        wire.pool = *self.pool.as_bytes();
        wire.disk = *self.disk.as_bytes();
        wire.generation = self.generation.into();
        wire.device_blocks = self.device_blocks.0.into();
        wire.data_start = self.data.start.0.into();
        wire.data_blocks = self.data.len.0.into();
        wire.slot_starts = SLOT_STARTS.map(U64::new);
        wire.labelled_at = self.labelled_at.into();
        wire.copy = copy;
        put_text(&mut wire.pool_name, &self.pool_name);
        FORMAT.emit(&wire)
    }

    /// The label in `block`.
    ///
    /// *Shape*: one block of 4096 bytes; any other length holds no label.
    pub fn parse(block: &[u8]) -> Result<Self, NoLabel> {
        let (wire, version) = FORMAT.parse_any_version::<Wire>(block).map_err(|not| match not {
            NotSealed::Damaged => NoLabel::Damaged,
            _ => NoLabel::Absent,
        })?;
        let created_by = take_text(&wire.created_by).ok_or(NoLabel::Damaged)?;
        let unknown = wire.features().unknown();
        if version > VERSION || unknown != Features::default() {
            return Err(NoLabel::Newer { pool: Uuid::from_bytes(wire.pool), version, unknown, created_by });
        }
        wire.read(created_by).ok_or(NoLabel::Damaged)
    }
}

impl Wire {
    /// The label, if it describes areas as version 1 lays them out.
    fn read(&self, created_by: String) -> Option<Label> {
        let data = Extent::checked(self.data_start.get(), self.data_blocks.get())?;
        let device_blocks = Blocks(self.device_blocks.get());
        let fits = data_area(device_blocks).is_some_and(|area| area.contains(data));
        let as_laid_out = data.start.0 == DATA_START && self.slot_starts.map(U64::get) == SLOT_STARTS;
        (fits && as_laid_out).then_some(())?;
        Some(Label {
            pool: Uuid::from_bytes(self.pool),
            pool_name: take_text(&self.pool_name)?,
            disk: Uuid::from_bytes(self.disk),
            generation: self.generation.get(),
            device_blocks,
            data,
            labelled_at: self.labelled_at.get(),
            created_by,
            features: self.features(),
        })
    }

    fn features(&self) -> Features {
        Features { compat: self.compat.get(), ro_compat: self.ro_compat.get(), incompat: self.incompat.get() }
    }
}

/// Puts as much of `text` as leaves room for a zero byte at its end.
pub(crate) fn put_text(place: &mut [u8], text: &str) {
    let mut len = text.len().min(place.len() - 1);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    place[..len].copy_from_slice(&text.as_bytes()[..len]);
}

/// The text up to the first zero byte, if there is one and the text has no control characters.
pub(crate) fn take_text(place: &[u8]) -> Option<String> {
    let end = place.iter().position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(place.get(..end)?).ok()?;
    (!text.contains(char::is_control)).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label() -> Label {
        Label {
            pool: Uuid::from_u128(1),
            pool_name: "tank".into(),
            disk: Uuid::from_u128(2),
            generation: 3,
            device_blocks: Blocks(20000),
            data: data_area(Blocks(20000)).unwrap(),
            labelled_at: 1_700_000_000,
            created_by: "blockyard 0.1.0".into(),
            features: Features { compat: 1, ..Features::default() },
        }
    }

    #[test]
    fn label_is_written_as_it_was() {
        assert_eq!(label().emit(2)[..16], *b"BLKYDLBL\x01\0\0\0\xc8 \xf9v");
    }

    #[test]
    fn label_parses_to_what_was_emitted() {
        assert_eq!(Label::parse(&label().emit(2)), Ok(label()));
    }

    #[test]
    fn label_with_any_byte_changed_is_damaged_or_absent() {
        let good = label().emit(0);
        for at in 0..good.len() {
            let mut bad = good;
            bad[at] ^= 0x10;
            let expected = if at < 8 { NoLabel::Absent } else { NoLabel::Damaged };
            assert_eq!(Label::parse(&bad), Err(expected), "byte {at}");
        }
        assert_eq!(Label::parse(&good[..4095]), Err(NoLabel::Absent));
    }

    /// Such a name would be another one after it was written again.
    #[test]
    fn label_whose_name_does_not_end_is_damaged() {
        let mut wire = Wire::read_from_prefix(&label().emit(0)).unwrap().0;
        wire.pool_name = [b'x'; 64];
        assert_eq!(Label::parse(&FORMAT.emit(&wire)), Err(NoLabel::Damaged));
        wire.pool_name[63] = 0;
        assert_eq!(Label::parse(&FORMAT.emit(&wire)).unwrap().pool_name, "x".repeat(63));
    }

    #[test]
    fn label_with_an_unknown_feature_names_who_can_open_it() {
        for (incompat, ro_compat, told) in [(0x400, 0, "features 0x400/0x0"), (0, 1, "features 0x0/0x1")] {
            let features = Features { compat: 0, ro_compat, incompat };
            let refused = Label::parse(&Label { features, created_by: "blockyard 7.1".into(), ..label() }.emit(0));
            let sentence = refused.unwrap_err().to_string();
            assert!(sentence.contains(told) && sentence.contains("blockyard 7.1 or newer"), "{sentence}");
        }
    }

    #[test]
    fn label_whose_areas_pass_the_disk_is_damaged() {
        let data = Extent::new(DATA_START, 20000);
        assert_eq!(Label::parse(&Label { data, ..label() }.emit(0)), Err(NoLabel::Damaged));
    }
}
