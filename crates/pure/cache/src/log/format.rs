//! Byte layout of a log device. Everything is little-endian; units have 4096 bytes.
//!
//! ```text
//! unit 0, 1    two copies of the anchor, written one after the other: position of the tail of the ring
//! unit 2 ..    the ring: contiguous batches, one after the other; a batch that does not fit before the end of
//!              the ring starts at its beginning
//! batch        header (1 to 4 units): 64 bytes, then 64 bytes for each record
//!              payload: the records' data, each at a multiple of 512 bytes
//! ```
//!
//! A batch is valid when its header matches its checksum, has the epoch of the anchor and the expected number, and
//! the data of every record matches its checksum. Several batches are in flight at a time, and none counts before all
//! earlier ones are stable; each names the last batch that was stable when it was made. So an invalid batch was torn
//! by a power cut, unless a later one says that it had been stable, or it cannot be read. Bytes marked *partner* are
//! zero; they are reserved for a second controller that keeps a copy.

use super::UNIT_BYTES;
use crate::VolumeId;
use block::IoError;
use block::frame::{Format, FrameError};
use simd::crc32c::crc32c;
use std::ops::RangeInclusive;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First unit of the ring, behind the two anchors.
pub(super) const RING_START: u64 = 2;
/// Smallest ring, in units.
pub(super) const RING_UNITS_MIN: u64 = 64;
/// Upper bound of units in one batch, header and payload, in rings of any size.
const BATCH_UNITS_MAX: u64 = 1100;
/// Upper bound of header units in one batch.
pub(super) const HEADER_UNITS_MAX: usize = 4;
/// Upper bound of batches in flight.
pub(super) const BATCHES_MAX: usize = 4;
/// Alignment of a record's data, in bytes.
pub(super) const DATA_ALIGN: usize = 512;

/// Exclusive bound of counters and addresses: no log or volume reaches it, so a higher value is foreign, even under a
/// valid checksum.
const COUNT_MAX: u64 = 1 << 60;

const VERSION: u32 = 1;
const ANCHOR: Format = Format::short_versioned(*b"BYLOGANC", 1..=VERSION);
const BATCH: Format = Format::short_versioned(*b"BYLOGBAT", 1..=VERSION);

/// Identity of one log; a device with another log's ring is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogId(pub u128);

/// Reason why a log cannot be formatted, opened or finished.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The device is too small for a ring.
    #[error("a log needs a device of at least {units_min} units of 4 KiB")]
    TooSmall {
        /// Smallest sufficient size, in units.
        units_min: u64,
    },
    /// The device has no valid anchor.
    #[error("there is no write log on this device")]
    NotALog,
    /// The device has another log.
    #[error("the device holds the write log {found:?}")]
    Foreign {
        /// Identity of that log.
        found: LogId,
    },
    /// The log was written by a later version.
    #[error("the write log has format {found}, this program knows up to {VERSION}")]
    TooNew {
        /// Format version of that log.
        found: u32,
    },
    /// Volumes with data in the log were neither replayed nor given up.
    #[error("{} volumes still have data in the write log", .0.len())]
    NotReplayed(Vec<VolumeId>),
    /// The log device or a volume failed.
    #[error("{0}")]
    Io(#[from] IoError),
}

/// Anchor: the part of the ring in use. Fits into one sector of any disk, so a power cut does not tear it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Anchor {
    frame: [u8; 16],
    /// The anchor with the higher sequence number counts.
    pub(super) sequence: U64,
    pub(super) epoch: U64,
    /// Position of the first batch to replay.
    pub(super) tail: U64,
    /// Number of that batch.
    pub(super) batch: U64,
    pub(super) log: U128,
    /// *partner*: the controller with a copy of the ring, the epoch of its copy, and the last batch in it.
    partner: [u8; 40],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BatchHeader {
    frame: [u8; 10],
    pub(super) records: U16,
    /// Checksum of the header and all record entries.
    check: [u8; 4],
    pub(super) epoch: U64,
    pub(super) number: U64,
    /// Units of header and payload.
    pub(super) units: U32,
    reserved: [u8; 4],
    log: U128,
    /// Number of the last batch that was stable when this one was made.
    pub(super) stable: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Record {
    pub(super) volume: U128,
    /// First block, in blocks of the volume.
    pub(super) start: U64,
    pub(super) blocks: U64,
    pub(super) number: U64,
    /// Offset of the data in the batch, in bytes; `bytes` is its length.
    pub(super) offset: U32,
    pub(super) bytes: U32,
    pub(super) check: U32,
    pub(super) kind: u8,
    reserved: [u8; 3],
    /// *partner*: number of the record there.
    partner: [u8; 8],
}

pub(super) const KIND_WRITE: u8 = 1;
pub(super) const KIND_DISCARD: u8 = 2;
pub(super) const KIND_RELEASE: u8 = 3;

impl Anchor {
    pub(super) fn new(log: LogId, sequence: u64, epoch: u64, tail: u64, batch: u64) -> Self {
        let mut anchor = Self {
            frame: [0; 16],
            sequence: sequence.into(),
            epoch: epoch.into(),
            tail: tail.into(),
            batch: batch.into(),
            log: log.0.into(),
            partner: [0; 40],
        };
        ANCHOR.seal(anchor.as_mut_bytes());
        anchor
    }

    /// Decodes the anchor at the start of `unit`, if there is one.
    pub(super) fn parse(unit: &[u8]) -> Option<Result<Self, LogError>> {
        let (anchor, _) = Self::read_from_prefix(unit).ok()?;
        match ANCHOR.open(anchor.as_bytes()) {
            Ok(()) => {}
            // Reported, unlike other invalid anchors: the log must not be taken for absent and formatted.
            Err(FrameError::Newer(found)) => return Some(Err(LogError::TooNew { found })),
            Err(_) => return None,
        }
        let counts = [anchor.sequence, anchor.epoch, anchor.tail, anchor.batch].map(U64::get);
        let is_possible = counts.iter().all(|&count| count < COUNT_MAX) && anchor.batch.get() > 0;
        // Batch numbers start at 1, so that the batch before the first one is 0.
        is_possible.then_some(Ok(anchor))
    }
}

impl BatchHeader {
    pub(super) fn new(log: LogId, epoch: u64, [number, stable]: [u64; 2], units: u32) -> Self {
        Self {
            frame: [0; 10],
            records: 0.into(),
            check: [0; 4],
            epoch: epoch.into(),
            number: number.into(),
            units: units.into(),
            reserved: [0; 4],
            log: log.0.into(),
            stable: stable.into(),
        }
    }

    /// Writes the header and `records` to the start of a batch; returns their length in bytes.
    pub(super) fn emit(mut self, records: &[Record], batch: &mut [u8]) -> usize {
        self.records = u16::try_from(records.len()).expect("a header has room for fewer").into();
        let front = &mut batch[..size_of::<Self>() + size_of_val(records)];
        let (head, entries) = front.split_at_mut(size_of::<Self>());
        head.copy_from_slice(self.as_bytes());
        entries.copy_from_slice(records.as_bytes());
        // Seals header and records; the payload has a checksum for each record.
        BATCH.seal(front);
        front.len()
    }

    /// Decodes the header at the start of `unit`, if it may be one of the batches `numbers` of `log` in `epoch`. Its
    /// checksum is verified by [`BatchHeader::records`].
    pub(super) fn parse(unit: &[u8], log: LogId, epoch: u64, numbers: RangeInclusive<u64>) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(unit).ok()?;
        let expected = BATCH.has_magic(unit)
            && header.log.get() == log.0
            && header.epoch.get() == epoch
            && numbers.contains(&header.number.get())
            // A batch cannot know of itself, or of a later one, that it was stable.
            && header.stable.get() < header.number.get()
            // The checksum is not verified yet, so the sizes are bounded before they decide what is read.
            && usize::from(header.records.get()) <= records_max(HEADER_UNITS_MAX)
            && u64::from(header.units.get()) <= BATCH_UNITS_MAX
            && header.units.get() as usize >= header_units(usize::from(header.records.get()));
        expected.then_some(header)
    }

    /// Decodes the records behind the header in `batch`, when the checksum matches and the records are plausible.
    pub(super) fn records(&self, batch: &[u8]) -> Option<Vec<Record>> {
        // One checksum for header and records: which volumes a batch is about is known completely, or not at all.
        let count = usize::from(self.records.get());
        let front = batch.get(..size_of::<Self>() + count * size_of::<Record>())?;
        BATCH.open(front).ok()?;
        let entries = front.get(size_of::<Self>()..)?;
        let records = <[Record]>::ref_from_bytes(entries).ok()?;
        records.iter().all(Record::is_possible).then(|| records.to_vec())
    }
}

impl Record {
    pub(super) fn new(kind: u8, volume: VolumeId, start: u64, blocks: u64, number: u64) -> Self {
        Self {
            volume: volume.0.into(),
            start: start.into(),
            blocks: blocks.into(),
            number: number.into(),
            offset: 0.into(),
            bytes: 0.into(),
            check: 0.into(),
            kind,
            reserved: [0; 3],
            partner: [0; 8],
        }
    }

    /// Adds the data, which starts at byte `offset` of the batch, to the record.
    pub(super) fn with_data(self, offset: usize, data: &[u8]) -> Self {
        let short = |bytes: usize| u32::try_from(bytes).expect("a batch is short");
        // The checksum of the data alone, so that one damaged record does not void its batch.
        Self { offset: short(offset).into(), bytes: short(data.len()).into(), check: crc32c(data).into(), ..self }
    }

    /// True for a record of a known kind whose blocks a volume may have.
    fn is_possible(&self) -> bool {
        // A record has blocks or bytes, and a block has at least a byte, so the larger number bounds its end.
        let end = self.start.get().checked_add(self.blocks.get().max(u64::from(self.bytes.get())));
        let is_known = matches!(self.kind, KIND_WRITE | KIND_DISCARD | KIND_RELEASE);
        is_known && self.number.get() < COUNT_MAX && end.is_some_and(|end| end < COUNT_MAX)
    }

    /// Returns the data of the record in `batch`, if it matches its checksum.
    pub(super) fn data<'a>(&self, batch: &'a [u8]) -> Option<&'a [u8]> {
        let from = self.offset.get() as usize;
        let data = batch.get(from..from.checked_add(self.bytes.get() as usize)?)?;
        // Offset and length come from the device: `get` refuses a range outside of the batch.
        (crc32c(data) == self.check.get()).then_some(data)
    }
}

/// Upper bound of units in one batch of a ring: a quarter, so that several fit.
pub(super) fn batch_units_max(ring_units: u64) -> u64 {
    (ring_units / 4).min(BATCH_UNITS_MAX)
}

/// Reserve of a ring, in units, for records without data.
pub(super) fn reserve_units(ring_units: u64) -> u64 {
    (ring_units / 16).min(64)
}

/// Upper bound of data in one record, in bytes.
pub(super) fn record_bytes_max(ring_units: u64) -> usize {
    // One unit is left for the header.
    ((batch_units_max(ring_units) - 1) as usize * UNIT_BYTES).min(1 << 20)
}

/// Units of the header of a batch with `records` records.
pub(super) fn header_units(records: usize) -> usize {
    (size_of::<BatchHeader>() + records * size_of::<Record>()).div_ceil(UNIT_BYTES)
}

/// Records that fit into a header of `units` units.
pub(super) fn records_max(units: usize) -> usize {
    (units * UNIT_BYTES - size_of::<BatchHeader>()) / size_of::<Record>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_has_the_documented_sizes() {
        assert_eq!((size_of::<Anchor>(), size_of::<BatchHeader>(), size_of::<Record>()), (104, 64, 64));
        assert_eq!((records_max(1), records_max(4), header_units(63), header_units(64)), (63, 255, 1, 2));
    }

    #[test]
    fn anchor_with_any_bit_changed_is_none() {
        let anchor = Anchor::new(LogId(7), 1, 2, 3, 4);
        assert_eq!(anchor.as_bytes()[..16], *b"BYLOGANC\x01\0\0\0\x16\x81\xf1\xd8");
        assert!(matches!(Anchor::parse(anchor.as_bytes()), Some(Ok(_))));
        for bit in 0..size_of::<Anchor>() * 8 {
            let mut bytes = anchor.as_bytes().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Anchor::parse(&bytes).is_none(), "bit {bit}");
        }
        assert!(Anchor::parse(&anchor.as_bytes()[..50]).is_none());
    }

    #[test]
    fn anchor_and_records_with_impossible_values_are_rejected() {
        for (sequence, epoch, tail, batch) in
            [(COUNT_MAX, 2, 3, 4), (1, COUNT_MAX, 3, 4), (1, 2, u64::MAX, 4), (1, 2, 3, u64::MAX), (1, 2, 3, 0)]
        {
            assert!(Anchor::parse(Anchor::new(LogId(7), sequence, epoch, tail, batch).as_bytes()).is_none());
        }
        let record = |kind, start, blocks, number| Record::new(kind, VolumeId(9), start, blocks, number);
        let read = |record: Record| {
            let mut batch = [0; 128];
            BatchHeader::new(LogId(7), 2, [3, 2], 1).emit(&[record], &mut batch);
            BatchHeader::parse(&batch, LogId(7), 2, 3..=3)?.records(&batch)
        };
        assert!(read(record(KIND_DISCARD, 1, 2, 3)).is_some());
        for impossible in [
            record(KIND_DISCARD, u64::MAX, 1, 1),
            record(KIND_DISCARD, 1, u64::MAX, 1),
            record(KIND_WRITE, 1, 1, u64::MAX),
            record(4, 1, 1, 1),
        ] {
            assert!(read(impossible).is_none(), "{impossible:?}");
        }
        let ahead = BatchHeader::new(LogId(7), 2, [3, 3], 1);
        let mut batch = [0; 64];
        ahead.emit(&[], &mut batch);
        assert!(BatchHeader::parse(&batch, LogId(7), 2, 3..=3).is_none(), "it cannot know that of itself");
    }

    #[test]
    fn batch_with_any_bit_changed_is_none() {
        let data = [5; 512];
        let record = Record::new(KIND_WRITE, VolumeId(9), 1, 1, 1).with_data(512, &data);
        let mut batch = vec![0; 4096];
        assert_eq!(BatchHeader::new(LogId(7), 2, [3, 2], 1).emit(&[record], &mut batch), 128);
        batch[512..1024].copy_from_slice(&data);
        assert_eq!(batch[..16], *b"BYLOGBAT\x01\0\x01\0\xa0a\x06\t");
        let whole = |batch: &[u8]| {
            let header = BatchHeader::parse(batch, LogId(7), 2, 3..=3)?;
            let records = header.records(batch)?;
            records.iter().all(|record| record.data(batch).is_some()).then_some(records.len())
        };
        assert_eq!(whole(&batch), Some(1));
        for bit in (0..128 * 8).chain(512 * 8..1024 * 8) {
            batch[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(whole(&batch), None, "bit {bit}");
            batch[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
