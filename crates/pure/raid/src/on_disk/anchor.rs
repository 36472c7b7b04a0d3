//! Anchor: the log superblock of a member. It names the log's tail, the pages that exist, and the regions that absent
//! members have missed.

use crate::bounds::{BLOCK_BYTES, GROWTHS_MAX, MEMBERS_MAX};
use crate::geometry::MemberSet;
use crate::on_disk::regions::Regions;
use crate::on_disk::wire::{COUNT_MAX, Reader, put};
use block::frame::Format;
use block::{Buf, View};

/// Version 3 of anchors and batches; other versions are refused.
const FORMAT: Format = Format::versioned(*b"BLKYANCH", 3..=3);
const LAST_ANCHORS_AT: usize = 128;
const GROWN_AT: usize = LAST_ANCHORS_AT + 16 * MEMBERS_MAX as usize;
const LAST_PAGES_AT: usize = GROWN_AT + 8 * GROWTHS_MAX + 16;
/// Blocks of an anchor that are written; a slot has one more.
pub(crate) const WRITTEN_BLOCKS: u64 = 3;

/// State of an unfinished reshape: a member has been added, and blocks are being moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reshape {
    /// Number of members before the reshape.
    pub(crate) from: u16,
    /// Rows before this one, counted over all stripes, are laid out over all members.
    pub(crate) rows: u64,
}

/// For each member one page that it has, encoded by [`page_key`], and a lower bound of that page's stamp; stamp 0
/// where there is none.
pub(crate) type LastPages = Box<[(u64, u64); MEMBERS_MAX as usize]>;

/// Encodes a page number and its copy: the member's own (0), or of the member before it (1).
pub(crate) fn page_key(page: u64, copy: usize) -> u64 {
    page << 1 | copy as u64
}

/// Log superblock; every counted member has the same one but for `member`.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) id: [u8; 16],
    /// Sequence number of anchors; between epochs the higher epoch is newer.
    pub(crate) number: u64,
    /// Incremented when the array is opened; batches of another epoch are ignored.
    pub(crate) epoch: u64,
    /// Number of the first batch to replay.
    pub(crate) tail_number: u64,
    /// Block of the ring where that batch starts, or block 0 where it does not fit before the end.
    pub(crate) tail_block: u64,
    /// Pages with a stamp up to this one are complete in their homes.
    pub(crate) stamp: u64,
    /// Number of the member that this anchor is on.
    pub(crate) member: u16,
    /// Level, members, chunk bytes, member blocks and ring blocks; compared with the owner's record. The member size
    /// is the one of the format.
    pub(crate) shape: [u64; 5],
    /// Member sizes to which the array grew, in order, then zeros.
    pub(crate) sizes: [u64; GROWTHS_MAX],
    /// State of the reshape, while one is unfinished.
    pub(crate) reshape: Option<Reshape>,
    /// Members that were not in service.
    pub(crate) absent: MemberSet,
    /// For each member the epoch and number of the last anchor that it was given.
    pub(crate) last_anchor: Box<[(u64, u64); MEMBERS_MAX as usize]>,
    /// Last page written to each member before this anchor: a member with an older one has gone back in time.
    pub(crate) last_pages: LastPages,
    /// Regions whose pages were ever written.
    pub(crate) used: Regions,
    /// Regions that absent members have missed.
    pub(crate) missed: Regions,
}

impl Anchor {
    /// Encodes the anchor into the blocks of a slot.
    pub(crate) fn emit(&self) -> View {
        let block = BLOCK_BYTES as usize;
        // Zeroed, because the unused bytes count in the checksum, too.
        let mut bytes = Buf::zeroed(WRITTEN_BLOCKS as usize * block);
        put(&mut bytes, 16, &self.id);
        let tail = [self.tail_number, self.tail_block, self.stamp];
        let numbers = [self.number, self.epoch].into_iter().chain(tail).chain([u64::from(self.member)]);
        let words = numbers.chain(self.shape).chain([self.absent.bits()]);
        // Offsets as in docs/raid.md: 8-byte words behind the frame and the identity.
        for (at, word) in (32..).step_by(8).zip(words) {
            put(&mut bytes, at, &word.to_le_bytes());
        }
        put_pairs(&mut bytes, LAST_ANCHORS_AT, &*self.last_anchor);
        put_pairs(&mut bytes, LAST_PAGES_AT, &*self.last_pages);
        let reshape = self.reshape.map_or([0, 0], |reshape| [u64::from(reshape.from), reshape.rows]);
        for (at, word) in (GROWN_AT..).step_by(8).zip(self.sizes.into_iter().chain(reshape)) {
            put(&mut bytes, at, &word.to_le_bytes());
        }
        self.used.emit(&mut bytes[block..2 * block]);
        self.missed.emit(&mut bytes[2 * block..]);
        // Last, because the checksum covers all three blocks.
        FORMAT.seal(&mut bytes);
        bytes.freeze()
    }

    /// Decodes an anchor; `None` unless the blocks hold a valid one that an array can have written.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let block = BLOCK_BYTES as usize;
        // Magic, version and checksum over all three blocks, before any field is used.
        FORMAT.open(bytes).ok()?;
        let mut reader = Reader(bytes.get(16..)?);
        let id = reader.array::<16>()?;
        let (number, epoch, tail_number, tail_block) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let stamp = reader.u64()?;
        let member = u16::try_from(reader.u64()?).ok()?;
        let shape = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
        let absent = MemberSet::from_bits(reader.u64()?);
        let last_anchor = pairs(bytes, LAST_ANCHORS_AT)?;
        let last_pages = pairs(bytes, LAST_PAGES_AT)?;
        let mut reader = Reader(bytes.get(GROWN_AT..)?);
        let mut sizes = [0; GROWTHS_MAX];
        for size in &mut sizes {
            *size = reader.u64()?;
        }
        let (from, rows) = (u16::try_from(reader.u64()?).ok()?, reader.u64()?);
        // A reshape starts from at least three members, so 0 stands for none.
        let reshape = (from != 0).then_some(Reshape { from, rows });
        let used = Regions::parse(bytes.get(block..2 * block)?);
        let missed = Regions::parse(bytes.get(2 * block..3 * block)?);
        let anchor = Self {
            id,
            number,
            epoch,
            tail_number,
            tail_block,
            stamp,
            member,
            shape,
            sizes,
            reshape,
            absent,
            last_anchor,
            last_pages,
            used,
            missed,
        };
        anchor.is_possible().then_some(anchor)
    }

    fn is_possible(&self) -> bool {
        let Self { number, epoch, tail_number, stamp, .. } = *self;
        let [_, members, _, member_blocks, ring_blocks] = self.shape;
        let rows = self.reshape.map_or(0, |reshape| reshape.rows);
        let counts =
            [number, epoch, tail_number, stamp, rows, member_blocks, ring_blocks].into_iter().chain(self.sizes);
        let pairs = self.last_anchor.iter().chain(&*self.last_pages).flat_map(|&(one, other)| [one, other]);
        // The checksum proves that the bytes are unchanged, not that an array wrote them: implausible values are
        // refused.
        let members_max = u64::from(MEMBERS_MAX);
        counts.chain(pairs).all(|count| count < COUNT_MAX)
            && (1..=members_max).contains(&members)
            && self.member < MEMBERS_MAX
            // A reshape only adds members.
            && self.reshape.is_none_or(|reshape| u64::from(reshape.from) < members)
            && self.tail_block < ring_blocks
    }

    /// Sort key of anchors of one array, ascending from the oldest.
    pub(crate) fn age(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }
}

fn put_pairs(bytes: &mut [u8], at: usize, pairs: &[(u64, u64)]) {
    for (at, (one, other)) in (at..).step_by(16).zip(pairs) {
        put(bytes, at, &one.to_le_bytes());
        put(bytes, at + 8, &other.to_le_bytes());
    }
}

fn pairs(bytes: &[u8], at: usize) -> Option<Box<[(u64, u64); MEMBERS_MAX as usize]>> {
    let mut reader = Reader(bytes.get(at..)?);
    let mut pairs = Box::new([(0, 0); MEMBERS_MAX as usize]);
    for pair in pairs.iter_mut() {
        *pair = (reader.u64()?, reader.u64()?);
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchor_parses_as_written_or_is_rejected() {
        let mut anchor = Anchor {
            id: [3; 16],
            number: 5,
            epoch: 2,
            tail_number: 77,
            tail_block: 9,
            stamp: 8,
            member: 4,
            shape: [1, 5, 3, 400, 50],
            sizes: [0; 8],
            reshape: None,
            absent: MemberSet::only(63),
            last_anchor: Box::new([(0, 0); 64]),
            last_pages: Box::new([(0, 0); 64]),
            used: Regions::default(),
            missed: Regions::default(),
        };
        anchor.last_anchor[63] = (1, 4);
        anchor.last_pages[63] = (1 << 40, 8);
        anchor.used.add(32_767);
        anchor.missed.add(1);
        let view = anchor.emit();
        assert_eq!(view[..16], *b"BLKYANCH\x03\0\0\0@\x9e\x13\x0c");
        assert!(Anchor::parse(&view).as_ref() == Some(&anchor));
        anchor.sizes[7] = 99;
        anchor.sizes[0] = 9;
        anchor.reshape = Some(Reshape { from: 3, rows: 1 << 40 });
        let view = anchor.emit();
        assert!(Anchor::parse(&view).as_ref() == Some(&anchor));
        let impossible: [fn(&mut Anchor); 9] = [
            |anchor| anchor.number = u64::MAX,
            |anchor| anchor.epoch = COUNT_MAX,
            |anchor| anchor.tail_number = u64::MAX,
            |anchor| anchor.stamp = u64::MAX,
            |anchor| anchor.tail_block = anchor.shape[4],
            |anchor| anchor.member = 64,
            |anchor| anchor.shape[1] = 65,
            |anchor| anchor.sizes[1] = u64::MAX,
            |anchor| anchor.reshape = Some(Reshape { from: 5, rows: 1 }),
        ];
        for (at, change) in impossible.into_iter().enumerate() {
            let mut anchor = anchor.clone();
            change(&mut anchor);
            assert!(Anchor::parse(&anchor.emit()).is_none(), "change {at}");
        }
        for byte in [0, 9, 40, 1100, 5000, 12_287] {
            let mut torn = view.clone().into_buf();
            torn[byte] ^= 4;
            assert!(Anchor::parse(&torn).is_none(), "byte {byte}");
        }
        assert!(Anchor::parse(&view[..8192]).is_none());
    }
}
