//! Label of a member disk: identity of pool and disk, and the location of its areas.
//!
//! It has three copies, two at the head and one at the end, written when a disk joins a pool and never within
//! one flush. Whatever changes later is in the catalog slots.

use crate::layout::{BLOCK_BYTES, DATA_START, SLOT_STARTS, data_area};
use block::frame::{Format, FrameError};
use block::{Blocks, Extent};
use uuid::Uuid;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Format version that this code writes, and the newest that it reads.
pub(crate) const VERSION: u32 = 1;
const FORMAT: Format = Format::versioned(*b"BLKYDLBL", 1..=VERSION);
/// Maximum length of a pool or volume name in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Feature: volume families. A program that does not know them would allocate their slabs again.
pub const FAMILIES: u64 = 1;
/// Feature: protected groups. A program that does not know them would take checksums and redo log for data.
pub const PROTECTED: u64 = 2;
/// Feature: write log group, present or former. A program that does not know it would serve volumes without the
/// data in the log.
pub const LOGS: u64 = 4;
/// Feature: partially copied volume. A program that does not know it would serve half a copy.
pub const PARTIAL: u64 = 8;
/// Feature: persistent reservations (APTPL). A program that does not know them would admit hosts that were
/// excluded.
pub const RESERVATIONS: u64 = 16;
/// Feature: encrypted volumes. A program that does not know them would serve ciphertext.
pub const ENCRYPTED: u64 = 32;
/// Features known to this version, which opens pools only for writing.
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
    /// May be ignored by readers.
    pub ro_compat: u64,
    /// Forbid opening the pool.
    pub incompat: u64,
}

impl Features {
    /// Features that are required to open the pool and that this version does not know.
    #[must_use]
    pub fn unknown(self) -> Self {
        Self { compat: 0, ro_compat: self.ro_compat & !KNOWN.ro_compat, incompat: self.incompat & !KNOWN.incompat }
    }
}

/// Content of a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// UUID of the pool.
    pub pool: Uuid,
    /// Name of the pool.
    pub pool_name: String,
    /// UUID of the disk.
    pub disk: Uuid,
    /// Generation of the pool when the disk was labeled.
    pub generation: u64,
    /// Size of the disk when it was labeled, in blocks of 4096 bytes.
    pub device_blocks: Blocks,
    /// Area available to the array.
    pub data: Extent,
    /// Time of labeling in seconds since 1970.
    pub labelled_at: u64,
    /// Program and version that wrote it.
    pub created_by: String,
    /// Features of the pool when the disk was labeled.
    pub features: Features,
}

/// Reason why a block is not a usable label.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// No label.
    #[error("there is no label")]
    Absent,
    /// Label with a wrong checksum or impossible content.
    #[error("the label is damaged")]
    Damaged,
    /// Newer format that this version does not know.
    #[error(
        "the disk has format version {version} with features {:#x}/{:#x}, which this version does not know; \
         open it with {created_by} or newer", unknown.incompat, unknown.ro_compat
    )]
    Newer {
        /// UUID of the pool.
        pool: Uuid,
        /// Format version.
        version: u32,
        /// Unknown features that forbid opening.
        unknown: Features,
        /// Program and version that wrote it.
        created_by: String,
    },
}

/// Fixed part of the block. Fields up to `disk` keep their place in every version.
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
    /// Encodes copy `copy` of the label (0 and 1 at the head, 2 at the end).
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
        // Stored although they are constants of this version, so that later versions can move the slots.
        wire.slot_starts = SLOT_STARTS.map(U64::new);
        wire.labelled_at = self.labelled_at.into();
        // Not compared when the label is read: any whole copy stands for it.
        wire.copy = copy;
        put_text(&mut wire.pool_name, &self.pool_name);
        FORMAT.emit(&wire)
    }

    /// Parses the label in `block`.
    ///
    /// *Shape*: one block of 4096 bytes; any other length holds no label.
    pub fn parse(block: &[u8]) -> Result<Self, LabelError> {
        let (wire, version) = FORMAT.parse_any_version::<Wire>(block).map_err(|not| match not {
            FrameError::Damaged => LabelError::Damaged,
            _ => LabelError::Absent,
        })?;
        // Read before the version is judged: a refusal names the program to use.
        let created_by = take_text(&wire.created_by).ok_or(LabelError::Damaged)?;
        // The fields up to `disk` are valid in every version, so a newer label still names pool and writer.
        let unknown = wire.features().unknown();
        if version > VERSION || unknown != Features::default() {
            return Err(LabelError::Newer { pool: Uuid::from_bytes(wire.pool), version, unknown, created_by });
        }
        wire.read(created_by).ok_or(LabelError::Damaged)
    }
}

impl Wire {
    /// Converts the fixed part; none unless the areas are laid out as in version 1.
    fn read(&self, created_by: String) -> Option<Label> {
        let data = Extent::checked(self.data_start.get(), self.data_blocks.get())?;
        let device_blocks = Blocks(self.device_blocks.get());
        // A label must describe exactly this layout, which the rest of the code assumes.
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

/// Copies `text`, truncated at a character boundary so that a zero byte follows.
pub(crate) fn put_text(place: &mut [u8], text: &str) {
    // One byte is left for the terminating zero.
    let mut len = text.len().min(place.len() - 1);
    // Ends at 0 at the latest, which is a boundary of every text.
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    place[..len].copy_from_slice(&text.as_bytes()[..len]);
}

/// Text up to the first zero byte; none without one, or with control characters.
pub(crate) fn take_text(place: &[u8]) -> Option<String> {
    let end = place.iter().position(|&byte| byte == 0)?;
    let text = std::str::from_utf8(place.get(..end)?).ok()?;
    // Names go to terminals and log lines, where control characters could do harm.
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
            let expected = if at < 8 { LabelError::Absent } else { LabelError::Damaged };
            assert_eq!(Label::parse(&bad), Err(expected), "byte {at}");
        }
        assert_eq!(Label::parse(&good[..4095]), Err(LabelError::Absent));
    }

    /// An unterminated name would change when it is written again.
    #[test]
    fn label_whose_name_does_not_end_is_damaged() {
        let mut wire = Wire::read_from_prefix(&label().emit(0)).unwrap().0;
        wire.pool_name = [b'x'; 64];
        assert_eq!(Label::parse(&FORMAT.emit(&wire)), Err(LabelError::Damaged));
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
        assert_eq!(Label::parse(&Label { data, ..label() }.emit(0)), Err(LabelError::Damaged));
    }
}
