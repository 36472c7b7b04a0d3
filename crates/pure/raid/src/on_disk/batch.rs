//! A batch of the log: a table of records, then the images that they speak of; behind these the table again, where the batch
//! goes to one member alone and no other could take a copy.

use crate::bounds::BLOCK_BYTES;
use crate::on_disk::entry::Entry;
use crate::on_disk::wire::{COUNT_MAX, Reader, put};
use block::sealed::Format;
use block::{Buf, View};
use smallvec::SmallVec;

const FORMAT: Format = Format::plain(*b"BLKYREDO");
/// Bytes before the first record.
pub(crate) const HEADER_BYTES: usize = 80;
const RECORD_BYTES: usize = 16;

/// What a record says of a run of blocks of one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// They get the next images, and these entries.
    Images,
    /// They get the images of the record before, and these entries.
    SameImages,
    /// They are about to be written and get these entries; beside each the entry until then.
    Sums,
    /// They have these entries.
    Marks,
    /// They are unwritten.
    Clear,
    /// No blocks: rows before this one have been moved.
    Moved,
}

const KINDS: [Kind; 6] = [Kind::Images, Kind::SameImages, Kind::Sums, Kind::Marks, Kind::Clear, Kind::Moved];

/// Records on their way into a batch.
#[derive(Default)]
pub(crate) struct Records {
    pub(crate) table: SmallVec<[u8; 256]>,
    pub(crate) images: SmallVec<[View; 4]>,
    pub(crate) count: u32,
    /// The blocks that are spoken of: of any member, for regions are the same on all.
    pub(crate) blocks: SmallVec<[(u64, u64); 4]>,
}

impl Records {
    fn begin(&mut self, kind: Kind, member: u16, block: u64, count: u64) {
        let count = u32::try_from(count).expect("a record is of one stripe or of some");
        self.head(kind, member, block, count);
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

    /// These blocks get this content and these entries.
    pub(crate) fn image(&mut self, member: u16, block: u64, entries: &[Entry], content: &View) {
        let same =
            self.images.last().is_some_and(|last| last.as_ptr() == content.as_ptr() && last.len() == content.len());
        self.begin(if same { Kind::SameImages } else { Kind::Images }, member, block, entries.len() as u64);
        entries.iter().for_each(|entry| self.table.extend_from_slice(&entry.to_bytes()));
        if !same {
            self.images.push(content.clone());
        }
    }

    /// These blocks are about to be written; they had the `old` entries and get the `new` ones.
    pub(crate) fn sums(&mut self, member: u16, block: u64, old: &[Entry], new: &[Entry]) {
        self.begin(Kind::Sums, member, block, new.len() as u64);
        for (old, new) in old.iter().zip(new) {
            self.table.extend_from_slice(&old.to_bytes());
            self.table.extend_from_slice(&new.to_bytes());
        }
    }

    /// These blocks have these entries.
    pub(crate) fn marks(&mut self, member: u16, block: u64, entries: &[Entry]) {
        self.begin(Kind::Marks, member, block, entries.len() as u64);
        entries.iter().for_each(|entry| self.table.extend_from_slice(&entry.to_bytes()));
    }

    /// These blocks are unwritten.
    pub(crate) fn clear(&mut self, member: u16, block: u64, count: u64) {
        self.begin(Kind::Clear, member, block, count);
    }

    /// The rows before `row` have been moved, as the other records of the batch say.
    pub(crate) fn moved(&mut self, row: u64) {
        self.head(Kind::Moved, 0, row, 0);
    }

    pub(crate) fn image_blocks(&self) -> u64 {
        self.images.iter().map(|view| view.len() as u64 / u64::from(BLOCK_BYTES)).sum()
    }
}

/// What a batch says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: [u8; 16],
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    /// The writes of batches before this one had ended when this was written.
    pub(crate) settled: u64,
    /// Blocks of the whole batch.
    pub(crate) blocks: u32,
    /// Bytes of header and records.
    pub(crate) table_bytes: u32,
    pub(crate) records: u32,
    /// The table stands a second time behind the images.
    pub(crate) twice: bool,
    /// Block of the ring where the batch begins: what is found elsewhere is its second table, or somebody's data.
    pub(crate) at: u64,
}

impl Header {
    /// Blocks of header and records.
    pub(crate) fn table_blocks(&self) -> u64 {
        blocks_of(self.table_bytes as usize, 0)
    }

    /// Block of the ring where the second table begins, if there is one.
    pub(crate) fn second_table(&self) -> Option<u64> {
        self.twice.then(|| self.at + u64::from(self.blocks) - self.table_blocks())
    }
}

/// Blocks of a batch whose records take `table_bytes` with the header.
pub(crate) fn blocks_of(table_bytes: usize, image_blocks: u64) -> u64 {
    (table_bytes as u64).div_ceil(u64::from(BLOCK_BYTES)) + image_blocks
}

/// The batch as it is written.
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
    bytes[HEADER_BYTES + records.len()..table_blocks].fill(0);
    FORMAT.seal(&mut bytes[..header.table_bytes as usize]);
    let mut at = table_blocks;
    for image in images {
        put(&mut bytes, at, image);
        at += image.len();
    }
    if header.twice {
        bytes.copy_within(..table_blocks, at);
    }
    bytes.freeze()
}

/// The header of a batch, if its first block is one; the table is not judged.
pub(crate) fn parse_header(block: &[u8]) -> Option<Header> {
    let mut reader = Reader(block.get(16..).filter(|_| FORMAT.is_meant(block))?);
    let id = reader.array::<16>()?;
    let (epoch, number, settled) = (reader.u64()?, reader.u64()?, reader.u64()?);
    let (blocks, table_bytes, records) = (reader.u32()?, reader.u32()?, reader.u32()?);
    let (twice, at) = (reader.u32()? == 1, reader.u64()?);
    let header = Header { id, epoch, number, settled, blocks, table_bytes, records, twice, at };
    let tables = header.table_blocks() * if twice { 2 } else { 1 };
    let is_possible = [epoch, number, settled, at].iter().all(|&count| count < COUNT_MAX);
    (is_possible && tables <= u64::from(blocks) && table_bytes as usize >= HEADER_BYTES).then_some(header)
}

/// A record as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) member: u16,
    pub(crate) block: u64,
    pub(crate) count: u64,
    /// The entries that the blocks get; none for [`Kind::Clear`].
    pub(crate) new: Vec<Entry>,
    /// The entries until then, for [`Kind::Sums`].
    pub(crate) old: Vec<Entry>,
    /// Where its first image lies, in blocks of the batch.
    pub(crate) image: Option<u64>,
}

/// The records of a batch, if its table, with which `bytes` begin, is whole. Images are judged by their entries.
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
            next_image += count;
        }
        if matches!(kind, Kind::Images | Kind::SameImages) {
            record.image = Some(last_image);
        }
        if !matches!(kind, Kind::Clear | Kind::Moved) {
            for _ in 0..count {
                if kind == Kind::Sums {
                    record.old.push(Entry::from_bytes(reader.array()?));
                }
                record.new.push(Entry::from_bytes(reader.array()?));
            }
        }
        records.push(record);
    }
    let end = u64::from(header.blocks) - if header.twice { header.table_blocks() } else { 0 };
    (next_image == end).then_some(records)
}

/// Bytes that a record with `entries` entries takes.
pub(crate) fn record_bytes(entries: u64) -> u64 {
    RECORD_BYTES as u64 + 8 * entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_is_found_as_it_was_written_or_not_at_all() {
        let entry = |n| Entry { check: n, generation: 1 };
        let content = View::zeroed(8192);
        let mut records = Records::default();
        records.image(3, 100, &[entry(1), entry(2)], &content);
        records.image(4, 100, &[entry(3), entry(4)], &content);
        records.sums(5, 7, &[Entry::UNWRITTEN], &[entry(9)]);
        records.marks(1, 8, &[Entry::LOST]);
        records.clear(0, 0, 1 << 20);
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
            let mut torn = bytes.clone().thaw();
            torn[byte] ^= 1;
            let header = parse_header(&torn);
            assert!(header.is_none_or(|header| parse(&torn, &header).is_none()), "byte {byte}");
        }
    }
}
