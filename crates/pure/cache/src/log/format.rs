//! What lies on a log device, byte by byte. Everything is little-endian; units have 4096 bytes.
//!
//! ```text
//! unit 0, 1    the anchor, written to one and then to the other: where the ring begins to be in use
//! unit 2 ..    the ring: batches, each in one piece, behind one another; one that would pass the end of the
//!              ring begins at its start
//! batch        header (1 to 4 units): 64 bytes, then 64 bytes for each record
//!              payload: the records' data, each at a multiple of 512 bytes
//! ```
//!
//! A batch is whole when its header matches its check, it has the epoch of the anchor and the number that is
//! expected, and the data of every record matches its check. A few batches are under way at a time, and none counts
//! before all that are in front of it are stable; each says which was the last stable one when it was made. So a batch
//! that is not whole was torn by a power cut, unless a later one says that it had been stable, or it cannot be read. The bytes marked *partner* are zero; they are for a second controller that keeps a copy.

use super::UNIT_BYTES;
use crate::VolumeId;
use block::IoError;
use block::sealed::{Format, NotSealed};
use simd::crc32c::crc32c;
use std::ops::RangeInclusive;
use zerocopy::little_endian::{U16, U32, U64, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first unit of the ring.
pub(super) const RING_START: u64 = 2;
/// The smallest ring.
pub(super) const RING_UNITS_MIN: u64 = 64;
/// The largest batch of any ring, header and payload.
const BATCH_UNITS_MAX: u64 = 1100;
/// The most header units of a batch.
pub(super) const HEADER_UNITS_MAX: usize = 4;
/// The most batches under way at a time.
pub(super) const BATCHES_MAX: usize = 4;
/// Data of a record begins at a multiple of this.
pub(super) const DATA_ALIGN: usize = 512;

/// No log counts so far, and no volume is so large: what says so is none of ours, though its check is right.
const COUNT_MAX: u64 = 1 << 60;

const VERSION: u32 = 1;
const ANCHOR: Format = Format::short_versioned(*b"BYLOGANC", 1..=VERSION);
const BATCH: Format = Format::short_versioned(*b"BYLOGBAT", 1..=VERSION);

/// Names one log; a device that holds another one's ring is not taken for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogId(pub u128);

/// Why a log cannot be made, found or ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// The device is too small for a ring.
    #[error("a log needs a device of at least {units_min} units of 4 KiB")]
    TooSmall {
        /// The least that is enough.
        units_min: u64,
    },
    /// There is no anchor on the device.
    #[error("there is no write log on this device")]
    NotALog,
    /// There is another log on the device.
    #[error("the device holds the write log {found:?}")]
    Foreign {
        /// Whose it is.
        found: LogId,
    },
    /// A later version wrote it.
    #[error("the write log has format {found}, this program knows up to {VERSION}")]
    TooNew {
        /// Its version.
        found: u32,
    },
    /// Volumes that have data in the log were neither replayed nor given up.
    #[error("{} volumes still have data in the write log", .0.len())]
    NotReplayed(Vec<VolumeId>),
    /// The log device or a volume failed.
    #[error("{0}")]
    Io(#[from] IoError),
}

/// Where the ring is in use. Fits into one sector of any disk, so it is never torn.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Anchor {
    frame: [u8; 16],
    /// The newer of two anchors counts.
    pub(super) sequence: U64,
    pub(super) epoch: U64,
    /// Where the first batch that counts begins.
    pub(super) tail: U64,
    /// And its number.
    pub(super) batch: U64,
    pub(super) log: U128,
    /// *partner*: who has a copy of the ring, which of its lives, and up to which batch.
    partner: [u8; 40],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct BatchHeader {
    frame: [u8; 10],
    pub(super) records: U16,
    /// Of the header and all record entries.
    check: [u8; 4],
    pub(super) epoch: U64,
    pub(super) number: U64,
    /// Header and payload.
    pub(super) units: U32,
    reserved: [u8; 4],
    log: U128,
    /// The last batch that was stable when this one was made.
    pub(super) stable: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Record {
    pub(super) volume: U128,
    /// In blocks of the volume.
    pub(super) start: U64,
    pub(super) blocks: U64,
    pub(super) number: U64,
    /// Where the data begins in the batch, in bytes; and how many bytes it has.
    pub(super) offset: U32,
    pub(super) bytes: U32,
    pub(super) check: U32,
    pub(super) kind: u8,
    reserved: [u8; 3],
    /// *partner*: the number that the record has there.
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

    /// The anchor at the beginning of `unit`, if there is one.
    pub(super) fn parse(unit: &[u8]) -> Option<Result<Self, LogError>> {
        let (anchor, _) = Self::read_from_prefix(unit).ok()?;
        match ANCHOR.open(anchor.as_bytes()) {
            Ok(()) => {}
            Err(NotSealed::Newer(found)) => return Some(Err(LogError::TooNew { found })),
            Err(_) => return None,
        }
        let counts = [anchor.sequence, anchor.epoch, anchor.tail, anchor.batch].map(U64::get);
        let is_possible = counts.iter().all(|&count| count < COUNT_MAX) && anchor.batch.get() > 0;
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

    /// Puts the header and `records` at the beginning of a batch; the answer is how many bytes they take.
    pub(super) fn emit(mut self, records: &[Record], batch: &mut [u8]) -> usize {
        self.records = u16::try_from(records.len()).expect("a header has room for fewer").into();
        let front = &mut batch[..size_of::<Self>() + size_of_val(records)];
        let (head, entries) = front.split_at_mut(size_of::<Self>());
        head.copy_from_slice(self.as_bytes());
        entries.copy_from_slice(records.as_bytes());
        BATCH.seal(front);
        front.len()
    }

    /// The header at the beginning of `unit`, not checked yet, when it may be one of the batches `numbers` of `log` in `epoch`.
    pub(super) fn parse(unit: &[u8], log: LogId, epoch: u64, numbers: RangeInclusive<u64>) -> Option<Self> {
        let (header, _) = Self::read_from_prefix(unit).ok()?;
        let expected = BATCH.is_meant(unit)
            && header.log.get() == log.0
            && header.epoch.get() == epoch
            && numbers.contains(&header.number.get())
            && header.stable.get() < header.number.get()
            && usize::from(header.records.get()) <= records_max(HEADER_UNITS_MAX)
            && u64::from(header.units.get()) <= BATCH_UNITS_MAX
            && header.units.get() as usize >= header_units(usize::from(header.records.get()));
        expected.then_some(header)
    }

    /// The records behind the header in `batch`, when header and records match their check and can have been written.
    pub(super) fn records(&self, batch: &[u8]) -> Option<Vec<Record>> {
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

    /// The record with its data, which begins at the byte `offset` of the batch.
    pub(super) fn with_data(self, offset: usize, data: &[u8]) -> Self {
        let short = |bytes: usize| u32::try_from(bytes).expect("a batch is short");
        Self { offset: short(offset).into(), bytes: short(data.len()).into(), check: crc32c(data).into(), ..self }
    }

    /// True for a record of a known kind about blocks that a volume may have.
    fn is_possible(&self) -> bool {
        let end = self.start.get().checked_add(self.blocks.get().max(u64::from(self.bytes.get())));
        let is_known = matches!(self.kind, KIND_WRITE | KIND_DISCARD | KIND_RELEASE);
        is_known && self.number.get() < COUNT_MAX && end.is_some_and(|end| end < COUNT_MAX)
    }

    /// The data of the record in `batch`, when it matches its check.
    pub(super) fn data<'a>(&self, batch: &'a [u8]) -> Option<&'a [u8]> {
        let from = self.offset.get() as usize;
        let data = batch.get(from..from.checked_add(self.bytes.get() as usize)?)?;
        (crc32c(data) == self.check.get()).then_some(data)
    }
}

/// The largest batch of a ring, so that a few of them fit.
pub(super) fn batch_units_max(ring_units: u64) -> u64 {
    (ring_units / 4).min(BATCH_UNITS_MAX)
}

/// Units of a ring that only records without data may use.
pub(super) fn reserve_units(ring_units: u64) -> u64 {
    (ring_units / 16).min(64)
}

/// The longest data of one record.
pub(super) fn record_bytes_max(ring_units: u64) -> usize {
    ((batch_units_max(ring_units) - 1) as usize * UNIT_BYTES).min(1 << 20)
}

/// How many units the header of a batch of `records` takes.
pub(super) fn header_units(records: usize) -> usize {
    (size_of::<BatchHeader>() + records * size_of::<Record>()).div_ceil(UNIT_BYTES)
}

/// How many records a header of `units` has room for.
pub(super) fn records_max(units: usize) -> usize {
    (units * UNIT_BYTES - size_of::<BatchHeader>()) / size_of::<Record>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_has_the_sizes_that_are_written_down() {
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
    fn anchor_and_records_that_nobody_writes_are_none_though_their_check_is_right() {
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
