//! Log batch: a header and a table of records, then the images that the records name; behind these the table again
//! where no other member could take a copy of it.

use crate::bounds::BLOCK_BYTES;
use crate::on_disk::entry::Entry;
use crate::on_disk::wire::{COUNT_MAX, Reader, put};
use block::frame::Format;
use block::{Buf, View};
use smallvec::SmallVec;

const FORMAT: Format = Format::plain(*b"BLKYREDO");
/// Bytes of the header, before the first record.
pub(crate) const HEADER_BYTES: usize = 80;
const RECORD_BYTES: usize = 16;

/// Type of a log record; a record describes a run of blocks of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The blocks get the next images, and these entries.
    Images,
    /// The blocks get the images of the record before (mirrors), and these entries.
    SharedImages,
    /// Checksum-only: the blocks are about to be written and get these entries; beside each stands the previous one.
    ChecksumOnly,
    /// The blocks have these entries.
    Entries,
    /// The blocks are unwritten.
    Unwritten,
    /// Names no blocks: rows before this one have been moved by a reshape.
    Moved,
}

const KINDS: [Kind; 6] =
    [Kind::Images, Kind::SharedImages, Kind::ChecksumOnly, Kind::Entries, Kind::Unwritten, Kind::Moved];

/// Records to be added to a batch.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) table: SmallVec<[u8; 256]>,
    pub(crate) images: SmallVec<[View; 4]>,
    pub(crate) count: u32,
    /// Blocks that the records describe, as start and count, of any member: regions are the same on all.
    pub(crate) blocks: SmallVec<[(u64, u64); 4]>,
}

impl Records {
    fn begin(&mut self, kind: Kind, member: u16, block: u64, count: u64) {
        let count = u32::try_from(count).expect("a record is of one stripe or of some");
        self.head(kind, member, block, count);
        // Records of mirrors follow each other and name the same blocks.
        if self.blocks.last() != Some(&(block, u64::from(count))) {
            self.blocks.push((block, u64::from(count)));
        }
    }

    fn head(&mut self, kind: Kind, member: u16, block: u64, count: u32) {
        self.table.push(kind as u8);
        self.table.push(0);
        self.table.extend_from_slice(&member.to_le_bytes());
        self.table.extend_from_slice(&count.to_le_bytes());
        self.table.extend_from_slice(&block.to_le_bytes());
        self.count += 1;
    }

    /// Logs new content and new entries of a run of blocks.
    pub(crate) fn image(&mut self, member: u16, block: u64, entries: &[Entry], content: &View) {
        // Mirrors and copies share one buffer, so the image is stored once.
        let same =
            self.images.last().is_some_and(|last| last.as_ptr() == content.as_ptr() && last.len() == content.len());
        self.begin(if same { Kind::SharedImages } else { Kind::Images }, member, block, entries.len() as u64);
        entries.iter().for_each(|entry| self.table.extend_from_slice(&entry.to_bytes()));
        if !same {
            self.images.push(content.clone());
        }
    }

    /// Logs a checksum-only write: the blocks had the `old` entries and get the `new` ones.
    pub(crate) fn checksum_only(&mut self, member: u16, block: u64, old: &[Entry], new: &[Entry]) {
        self.begin(Kind::ChecksumOnly, member, block, new.len() as u64);
        for (old, new) in old.iter().zip(new) {
            self.table.extend_from_slice(&old.to_bytes());
            self.table.extend_from_slice(&new.to_bytes());
        }
    }

    /// Logs that these blocks have these entries.
    pub(crate) fn entries(&mut self, member: u16, block: u64, entries: &[Entry]) {
        self.begin(Kind::Entries, member, block, entries.len() as u64);
        entries.iter().for_each(|entry| self.table.extend_from_slice(&entry.to_bytes()));
    }

    /// Logs that these blocks are unwritten.
    pub(crate) fn unwritten(&mut self, member: u16, block: u64, count: u64) {
        self.begin(Kind::Unwritten, member, block, count);
    }

    /// Logs that the rows before `row` have been moved, with the contents that the other records of the batch name.
    pub(crate) fn moved(&mut self, row: u64) {
        // Not in `blocks`: the record names a row of the reshape, and absent members miss nothing by it.
        self.head(Kind::Moved, 0, row, 0);
    }

    pub(crate) fn image_blocks(&self) -> u64 {
        self.images.iter().map(|view| view.len() as u64 / u64::from(BLOCK_BYTES)).sum()
    }
}

/// Header of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    /// In-place writes of batches before this number had ended when the batch was sealed.
    pub(crate) settled: u64,
    /// Blocks of the whole batch, second table included.
    pub(crate) blocks: u32,
    /// Bytes of header and records; the checksum covers exactly these.
    pub(crate) table_bytes: u32,
    pub(crate) records: u32,
    /// True where the table stands a second time behind the images.
    pub(crate) twice: bool,
    /// Block of the ring where the batch starts; a table found elsewhere is the second one, or payload of another
    /// batch.
    pub(crate) at: u64,
}

impl Header {
    /// Blocks of header and records.
    pub(crate) fn table_blocks(&self) -> u64 {
        blocks_of(self.table_bytes as usize, 0)
    }

    /// Block of the ring where the second table starts, if there is one.
    pub(crate) fn second_table(&self) -> Option<u64> {
        self.twice.then(|| self.at + u64::from(self.blocks) - self.table_blocks())
    }
}

/// Blocks of a batch, from the bytes of header and records and the blocks of its images.
pub(crate) fn blocks_of(table_bytes: usize, image_blocks: u64) -> u64 {
    (table_bytes as u64).div_ceil(u64::from(BLOCK_BYTES)) + image_blocks
}

/// Encodes a batch.
pub(crate) fn emit(header: &Header, records: &[u8], images: &[View]) -> View {
    let table_blocks = blocks_of(header.table_bytes as usize, 0) as usize * BLOCK_BYTES as usize;
    let mut bytes = Buf::recycled(header.blocks as usize * BLOCK_BYTES as usize);
    bytes[..HEADER_BYTES].fill(0);
    put(&mut bytes, 16, &header.id);
    for (at, word) in [(32, header.epoch), (40, header.number), (48, header.settled), (72, header.at)] {
        put(&mut bytes, at, &word.to_le_bytes());
    }
    let twice = u32::from(header.twice);
    for (at, word) in [(56, header.blocks), (60, header.table_bytes), (64, header.records), (68, twice)] {
        put(&mut bytes, at, &word.to_le_bytes());
    }
    assert_eq!(HEADER_BYTES + records.len(), header.table_bytes as usize, "the header counts its records");
    put(&mut bytes, HEADER_BYTES, records);
    // The buffer is recycled and may hold old data.
    bytes[HEADER_BYTES + records.len()..table_blocks].fill(0);
    // Header and records only: images are verified by the entries in their records.
    FORMAT.seal(&mut bytes[..header.table_bytes as usize]);
    let mut at = table_blocks;
    for image in images {
        put(&mut bytes, at, image);
        at += image.len();
    }
    if header.twice {
        // Byte for byte the same table, so either copy can be parsed alone.
        bytes.copy_within(..table_blocks, at);
    }
    bytes.freeze()
}

/// Decodes the header in the first block of a batch; the checksum of the table is verified by [`parse`].
pub(crate) fn parse_header(block: &[u8]) -> Option<Header> {
    let mut reader = Reader(block.get(16..).filter(|_| FORMAT.has_magic(block))?);
    let id = reader.array::<16>()?;
    let (epoch, number, settled) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (blocks, table_bytes, records) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (twice, at) = (reader.u32()? == 1, reader.u64()?);
    let header = Header { id, epoch, number, settled, blocks, table_bytes, records, twice, at };
    let tables = header.table_blocks() * if twice { 2 } else { 1 };
    // Checked before the table is read: the sizes decide how much that is.
    let is_possible = [epoch, number, settled, at].iter().all(|&count| count < COUNT_MAX);
    (is_possible && tables <= u64::from(blocks) && table_bytes as usize >= HEADER_BYTES).then_some(header)
}

/// Decoded log record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) member: u16,
    pub(crate) block: u64,
    pub(crate) count: u64,
    /// New entries of the blocks; empty for [`Kind::Unwritten`] and [`Kind::Moved`].
    pub(crate) new: Vec<Entry>,
    /// Previous entries of the blocks, for [`Kind::ChecksumOnly`] only.
    pub(crate) old: Vec<Entry>,
    /// First image of the record, in blocks of the batch.
    pub(crate) image: Option<u64>,
}

/// Decodes the records of a batch if the table at the start of `bytes` is valid. Images are verified by their
/// entries.
pub(crate) fn parse(bytes: &[u8], header: &Header) -> Option<Vec<Record>> {
    let table = bytes.get(..header.table_bytes as usize)?;
    FORMAT.open(table).ok()?;
    let mut reader = Reader(table.get(HEADER_BYTES..)?);
    let mut records = Vec::new();
    let mut next_image = blocks_of(header.table_bytes as usize, 0);
    let mut last_image = next_image;
    for _ in 0..header.records {
        let (kind, _) = (reader.u8()?, reader.u8()?);
        let kind = *KINDS.get(usize::from(kind))?;
        let (member, count, block) = (reader.u16()?, u64::from(reader.u32()?), reader.u64()?);
        let mut record = Record { kind, member, block, count, new: Vec::new(), old: Vec::new(), image: None };
        if kind == Kind::Images {
            last_image = next_image;
            // Cannot overflow: a count has 32 bits, and its entries follow in the table or parsing ends.
            next_image += count;
        }
        if matches!(kind, Kind::Images | Kind::SharedImages) {
            // A shared image is that of the record before, so its blocks are counted once.
            record.image = Some(last_image);
        }
        // Unwritten and moved records have no entries, and their count may be large.
        if !matches!(kind, Kind::Unwritten | Kind::Moved) {
            for _ in 0..count {
                if kind == Kind::ChecksumOnly {
                    record.old.push(Entry::from_bytes(reader.array()?));
                }
                record.new.push(Entry::from_bytes(reader.array()?));
            }
        }
        records.push(record);
    }
    // The images must fill the batch exactly.
    let end = u64::from(header.blocks) - if header.twice { header.table_blocks() } else { 0 };
    (next_image == end).then_some(records)
}

/// Bytes of a record with `entries` entries.
pub(crate) fn record_bytes(entries: u64) -> u64 {
    RECORD_BYTES as u64 + 8 * entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_parses_as_written_or_is_rejected() {
        let entry = |n| Entry { check: n, generation: 1 };
        let content = View::zeroed(8192);
        let mut records = Records::default();
        records.image(3, 100, &[entry(1), entry(2)], &content);
        records.image(4, 100, &[entry(3), entry(4)], &content);
        records.checksum_only(5, 7, &[Entry::UNWRITTEN], &[entry(9)]);
        records.entries(1, 8, &[Entry::LOST]);
        records.unwritten(0, 0, 1 << 20);
        records.moved(1 << 40);
        let table_bytes = HEADER_BYTES + records.table.len();
        let header = Header {
            id: [1; 16],
            epoch: 4,
            number: 6,
            settled: 5,
            blocks: u32::try_from(blocks_of(table_bytes, records.image_blocks())).expect("small"),
            table_bytes: u32::try_from(table_bytes).expect("small"),
            records: records.count,
            twice: false,
            at: 17,
        };
        assert_eq!(header.blocks, 3, "the mirrors share their images");
        let bytes = emit(&header, &records.table, &records.images);
        assert_eq!(bytes[..16], *b"BLKYREDO\xd6\xca\xf2\xd4\0\0\0\0");
        assert_eq!(parse_header(&bytes), Some(header));
        let found = parse(&bytes, &header).expect("whole");
        assert_eq!(
            found.iter().map(|record| record.image).collect::<Vec<_>>(),
            [Some(1), Some(1), None, None, None, None]
        );
        assert_eq!(
            (found[1].new[1], found[2].old[0], found[4].count, found[5].block),
            (entry(4), Entry::UNWRITTEN, 1 << 20, 1 << 40)
        );
        for impossible in [
            Header { epoch: u64::MAX, ..header },
            Header { number: u64::MAX, ..header },
            Header { settled: COUNT_MAX, ..header },
            Header { at: u64::MAX, ..header },
        ] {
            assert_eq!(parse_header(&emit(&impossible, &records.table, &records.images)), None, "{impossible:?}");
        }
        let header = Header { twice: true, blocks: 4, ..header };
        let twice = emit(&header, &records.table, &records.images);
        assert_eq!((header.second_table(), &twice[3 * 4096..]), (Some(20), &twice[..4096]));
        assert_eq!(parse(&twice[3 * 4096..], &header), Some(found), "the second table is as good as the first");
        for byte in [17, 40, 68, 72, 80, table_bytes - 1] {
            let mut torn = bytes.clone().into_buf();
            torn[byte] ^= 1;
            let header = parse_header(&torn);
            assert!(header.is_none_or(|header| parse(&torn, &header).is_none()), "byte {byte}");
        }
    }
}
