//! Map log: changes of a family's map since its last checkpoint, in a ring of blocks.
//!
//! Every commit starts a new block, so that no block with committed records is ever rewritten. A block carries
//! its sequence number and the *life* of the family (one opening) that wrote it: what an interrupted commit
//! left behind the end of the log has an older life than what is written there later, and is never taken for
//! its continuation.

mod replay;

pub(crate) use replay::{replay, salvage_log};

use crate::tree::{GranuleAddress, Key, Tag};
use block::frame::{Format, is_blank};
use uuid::Uuid;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const FORMAT: Format = Format::plain(*b"BLKYDLOG");
const BLOCK_BYTES: usize = 4096;

// A value has 56 bits; the highest byte of the word carries the flags of a record.
const REMOVED: u64 = 1 << 56;
const MAPPED_MORE: u64 = 1 << 57;
const MAPPED_LESS: u64 = 1 << 58;
const EXCLUSIVE: u64 = 1 << 59;
const VALUE: u64 = REMOVED - 1;
// All ones is no possible place: a place has 56 bits.
const NO_PLACE: u64 = u64::MAX;

/// Change of one key of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    /// New value, below 2^56; none removes the key.
    pub(crate) value: Option<u64>,
    /// Place that no version refers to any more.
    pub(crate) freed: Option<GranuleAddress>,
    /// Change of the number of granules mapped in the branch: 1, 0 or -1.
    pub(crate) mapped: i8,
    /// True when only the newest snapshot sees the version that this one hides.
    pub(crate) exclusive: bool,
}

impl Record {
    /// Creates a record that is not a version.
    pub(crate) fn put(key: Key, value: u64) -> Self {
        Self { key, value: Some(value), freed: None, mapped: 0, exclusive: false }
    }

    /// New place of the key, if it is a version with data.
    pub(crate) fn place(&self) -> Option<GranuleAddress> {
        let is_version = self.key.tag() == Some(Tag::Version);
        // Values of other keys are counters or bitmaps and never places.
        self.value.filter(|_| is_version).map(GranuleAddress).filter(|place| place.is_data())
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

/// Maximum number of records in a block.
pub(crate) const RECORDS_MAX: usize = (BLOCK_BYTES - size_of::<Header>()) / size_of::<Wire>();

/// Limit of sequence and serial numbers: a larger number is damage despite its checksum. Where copies are
/// compared, a sequence number has 48 bits.
pub(crate) const COUNT_MAX: u64 = 1 << 48;
/// Limit of lives; no family is opened so often.
pub(crate) const LIFE_MAX: u32 = 1 << 31;

/// Owner of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogIdentity {
    pub(crate) family: Uuid,
    pub(crate) birth: u64,
}

/// Block of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogBlock {
    /// Sequence number among all blocks ever written to the log.
    pub(crate) sequence: u64,
    /// Serial number of its first record among all changes ever made.
    pub(crate) serial: u64,
    /// Opening of the family that wrote it.
    pub(crate) life: u32,
    /// Number of blocks of its commit before it.
    pub(crate) back: u32,
    pub(crate) records: Vec<Record>,
}

/// Content of one place of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogSlot {
    Whole(LogBlock),
    /// Zeros: never written.
    Blank,
    /// Neither a block nor zeros: it was written and is lost.
    Damaged,
}

impl LogSlot {
    /// Classifies `bytes` at a place of a ring of `ring` blocks. A block that belongs elsewhere counts as
    /// damaged.
    pub(crate) fn of(identity: LogIdentity, bytes: &[u8], place: u64, ring: u64) -> Self {
        match parse(identity, bytes) {
            Some(block) if block.sequence % ring == place => Self::Whole(block),
            // A misdirected write of a valid block counts as damage, not as the end of the log.
            Some(_) => Self::Damaged,
            None if is_blank(bytes) => Self::Blank,
            None => Self::Damaged,
        }
    }

    pub(crate) fn block(&self) -> Option<&LogBlock> {
        if let Self::Whole(block) = self { Some(block) } else { None }
    }
}

/// Encodes a block with `records` into `into`, which is 4096 bytes of zeros.
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
    // The checksum covers the whole block, including unused space.
    FORMAT.seal(into);
}

/// Parses the block of this log in `bytes`; none unless it is intact and its numbers are possible.
pub(crate) fn parse(identity: LogIdentity, bytes: &[u8]) -> Option<LogBlock> {
    let header: &Header = FORMAT.parse(bytes).ok()?;
    // Blocks of an earlier family on the same slabs are whole as well.
    let ours = header.family == *identity.family.as_bytes() && header.birth.get() == identity.birth;
    let (sequence, serial) = (header.sequence.get(), header.serial.get());
    let is_possible = sequence < COUNT_MAX && serial < COUNT_MAX && header.life.get() < LIFE_MAX;
    // A commit cannot have begun before the first block.
    if !ours || !is_possible || u64::from(header.back.get()) > sequence {
        return None;
    }
    let rest = bytes.get(size_of::<Header>()..)?;
    // Also none when the count exceeds the block.
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
        // A removed key has no value; its flag tells that from 0.
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
            freed: Some(self.freed.get()).filter(|&place| place != NO_PLACE).map(GranuleAddress),
            mapped: i8::from(value & MAPPED_MORE != 0) - i8::from(value & MAPPED_LESS != 0),
            exclusive: value & EXCLUSIVE != 0,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
