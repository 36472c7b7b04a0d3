//! The map log: what changed in a family's map since its last checkpoint, in a ring of blocks.
//!
//! Every commit begins with a new block, so that no block is written twice with something to lose in it. A
//! block tells its place in the sequence of all blocks that ever were, and in which *life* of the family (from
//! one opening to the next) it was written: what an interrupted commit left behind the end of the log has
//! an older life than what is written there later, and is never taken for its continuation.

mod replay;

pub(crate) use replay::{remains, replay};

use crate::tree::{Key, Place, Tag};
use block::sealed::{Format, is_blank};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: Format = Format::plain(*b"BLKYDLOG");
const BLOCK_BYTES: usize = 4096;

const REMOVED: u64 = 1 << 56;
const MAPPED_MORE: u64 = 1 << 57;
const MAPPED_LESS: u64 = 1 << 58;
const EXCLUSIVE: u64 = 1 << 59;
const VALUE: u64 = REMOVED - 1;
const NO_PLACE: u64 = u64::MAX;

/// One change of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    /// What the key has from now on; below 2^56.
    pub(crate) value: Option<u64>,
    /// The place that nobody sees any more.
    pub(crate) freed: Option<Place>,
    /// By how many granules the branch shows more data: 1, 0 or -1.
    pub(crate) mapped: i8,
    /// True when the version that this one hides is seen by the newest snapshot alone.
    pub(crate) exclusive: bool,
}

impl Record {
    /// A change of what is not a version.
    pub(crate) fn put(key: Key, value: u64) -> Self {
        Self { key, value: Some(value), freed: None, mapped: 0, exclusive: false }
    }

    /// The place that the key has from now on.
    pub(crate) fn place(&self) -> Option<Place> {
        let is_version = self.key.tag() == Some(Tag::Version);
        self.value.filter(|_| is_version).map(Place).filter(|place| place.is_data())
    }
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    frame: [u8; 12],
    count: U16,
    reserved: U16,
    family: [u8; 16],
    birth: U64,
    sequence: U64,
    serial: U64,
    life: U32,
    back: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    high: U64,
    low: U64,
    value: U64,
    freed: U64,
}

/// The most records of a block.
pub(crate) const RECORDS_MAX: usize = (BLOCK_BYTES - size_of::<Header>()) / size_of::<Wire>();

/// No map counts so far: what says so is none of ours, though its checksum is right. A block's number has 48 bits where copies are compared.
pub(crate) const COUNT_MAX: u64 = 1 << 48;
/// No family is opened so often.
pub(crate) const LIFE_MAX: u32 = 1 << 31;

/// Whose log it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogIdentity {
    pub(crate) family: Uuid,
    pub(crate) birth: u64,
}

/// A block of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogBlock {
    /// Its number among all blocks that were ever written to the log.
    pub(crate) sequence: u64,
    /// The number of its first record among all changes that were ever made.
    pub(crate) serial: u64,
    /// The opening of the family that wrote it.
    pub(crate) life: u32,
    /// How many blocks of its commit are before it.
    pub(crate) back: u32,
    pub(crate) records: Vec<Record>,
}

/// What a place of the log's ring holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogSlot {
    Whole(LogBlock),
    /// Zeros: nothing was ever written there.
    Blank,
    /// Neither: something was written there, and is lost.
    Damaged,
}

impl LogSlot {
    /// What `bytes` are at a place of a ring of `ring` blocks. A block that belongs elsewhere is a damaged one.
    pub(crate) fn of(identity: LogIdentity, bytes: &[u8], place: u64, ring: u64) -> Self {
        match parse(identity, bytes) {
            Some(block) if block.sequence % ring == place => Self::Whole(block),
            Some(_) => Self::Damaged,
            None if is_blank(bytes) => Self::Blank,
            None => Self::Damaged,
        }
    }

    pub(crate) fn block(&self) -> Option<&LogBlock> {
        if let Self::Whole(block) = self { Some(block) } else { None }
    }
}

/// Puts a block with `records` into `into`, which is 4096 bytes of zeros.
///
/// *Panics*: with more records than fit.
pub(crate) fn emit(identity: LogIdentity, block: &LogBlock, records: &[Record], into: &mut [u8]) {
    assert!(records.len() <= RECORDS_MAX, "a log block holds at most {RECORDS_MAX} records");
    let header = Header {
        frame: [0; 12],
        count: (records.len() as u16).into(),
        reserved: 0.into(),
        family: *identity.family.as_bytes(),
        birth: identity.birth.into(),
        sequence: block.sequence.into(),
        serial: block.serial.into(),
        life: block.life.into(),
        back: block.back.into(),
    };
    header.write_to_prefix(into).expect("a header is smaller than a block");
    let places = into[size_of::<Header>()..].chunks_exact_mut(size_of::<Wire>());
    for (place, record) in places.zip(records) {
        place.copy_from_slice(record.wire().as_bytes());
    }
    FORMAT.seal(into);
}

/// The block of this log in `bytes`, if there is a whole one that a family can have written.
pub(crate) fn parse(identity: LogIdentity, bytes: &[u8]) -> Option<LogBlock> {
    let header: &Header = FORMAT.parse(bytes).ok()?;
    let ours = header.family == *identity.family.as_bytes() && header.birth.get() == identity.birth;
    let (sequence, serial) = (header.sequence.get(), header.serial.get());
    let is_possible = sequence < COUNT_MAX && serial < COUNT_MAX && header.life.get() < LIFE_MAX;
    if !ours || !is_possible || u64::from(header.back.get()) > sequence {
        return None;
    }
    let rest = bytes.get(size_of::<Header>()..)?;
    let (wires, _) = <[Wire]>::ref_from_prefix_with_elems(rest, usize::from(header.count.get())).ok()?;
    Some(LogBlock {
        sequence,
        serial,
        life: header.life.get(),
        back: header.back.get(),
        records: wires.iter().map(Wire::record).collect(),
    })
}

impl Record {
    fn wire(&self) -> Wire {
        let flag = |is: bool, bit: u64| if is { bit } else { 0 };
        let value = self.value.unwrap_or(0);
        assert!(value <= VALUE, "a value of the map has 56 bits");
        let flags = flag(self.value.is_none(), REMOVED)
            | flag(self.mapped > 0, MAPPED_MORE)
            | flag(self.mapped < 0, MAPPED_LESS)
            | flag(self.exclusive, EXCLUSIVE);
        Wire {
            high: ((self.key.0 >> 64) as u64).into(),
            low: (self.key.0 as u64).into(),
            value: (value | flags).into(),
            freed: self.freed.map_or(NO_PLACE, |place| place.0).into(),
        }
    }
}

impl Wire {
    fn record(&self) -> Record {
        let value = self.value.get();
        Record {
            key: Key(u128::from(self.high.get()) << 64 | u128::from(self.low.get())),
            value: (value & REMOVED == 0).then_some(value & VALUE),
            freed: Some(self.freed.get()).filter(|&place| place != NO_PLACE).map(Place),
            mapped: i8::from(value & MAPPED_MORE != 0) - i8::from(value & MAPPED_LESS != 0),
            exclusive: value & EXCLUSIVE != 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
