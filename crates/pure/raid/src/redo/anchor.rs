//! The anchor: where the log begins, which pages exist, and what absent members have missed.

use crate::geometry::{BLOCK_BYTES, MEMBERS_MAX, MemberSet};
use crate::sums::regions::Regions;
use crate::wire::{Reader, is_sealed, put, seal};
use block::{Buf, View};

const MAGIC: &[u8; 8] = b"BLKYANCH";
const FORMAT: u32 = 1;
const CHECK_AT: usize = 12;
const LEFT_AT: usize = 128;
/// Blocks of an anchor that are written.
pub(crate) const WRITTEN_BLOCKS: u64 = 3;

/// What every member of an array says of it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Anchor {
    pub(crate) id: [u8; 16],
    /// Counts anchors; the newest epoch's highest number counts.
    pub(crate) number: u64,
    /// Counts openings after which the log goes on differently.
    pub(crate) epoch: u64,
    /// Number of the first batch that has to be replayed.
    pub(crate) tail_number: u64,
    /// Where in the ring it begins, or at zero.
    pub(crate) tail_block: u64,
    /// Pages with a stamp up to this one are in their homes.
    pub(crate) stamp: u64,
    /// Which member this is.
    pub(crate) member: u16,
    /// The shape, to be compared with what the owner believes.
    pub(crate) shape: [u64; 5],
    /// The members that were not in service.
    pub(crate) absent: MemberSet,
    /// For each member the last anchor that it was given: epoch and number.
    pub(crate) given: Box<[(u64, u64); MEMBERS_MAX as usize]>,
    /// The regions whose pages were ever written.
    pub(crate) used: Regions,
    /// The regions that absent members have missed.
    pub(crate) missed: Regions,
}

impl Anchor {
    /// The blocks of an anchor slot.
    pub(crate) fn emit(&self) -> View {
        let block = BLOCK_BYTES as usize;
        let mut bytes = Buf::zeroed(WRITTEN_BLOCKS as usize * block);
        put(&mut bytes, 0, MAGIC);
        put(&mut bytes, 8, &FORMAT.to_le_bytes());
        put(&mut bytes, 16, &self.id);
        let tail = [self.tail_number, self.tail_block, self.stamp];
        let numbers = [self.number, self.epoch].into_iter().chain(tail).chain([u64::from(self.member)]);
        let words = numbers.chain(self.shape).chain([self.absent.bits()]);
        for (at, word) in (32..).step_by(8).zip(words) {
            put(&mut bytes, at, &word.to_le_bytes());
        }
        for (at, (epoch, number)) in (LEFT_AT..).step_by(16).zip(self.given.iter()) {
            put(&mut bytes, at, &epoch.to_le_bytes());
            put(&mut bytes, at + 8, &number.to_le_bytes());
        }
        self.used.emit(&mut bytes[block..2 * block]);
        self.missed.emit(&mut bytes[2 * block..]);
        seal(&mut bytes, CHECK_AT);
        bytes.freeze()
    }

    /// The anchor in these blocks, if there is one, whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let block = BLOCK_BYTES as usize;
        let mut reader = Reader(bytes);
        if reader.array::<8>()? != *MAGIC || reader.u32()? != FORMAT || !is_sealed(bytes, CHECK_AT) {
            return None;
        }
        reader.skip(4)?;
        let id = reader.array::<16>()?;
        let (number, epoch, tail_number, tail_block) = (reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?);
        let stamp = reader.u64()?;
        let member = u16::try_from(reader.u64()?).ok()?;
        let shape = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
        let absent = MemberSet::from_bits(reader.u64()?);
        let mut reader = Reader(bytes.get(LEFT_AT..)?);
        let mut given = Box::new([(0, 0); MEMBERS_MAX as usize]);
        for given in given.iter_mut() {
            *given = (reader.u64()?, reader.u64()?);
        }
        let used = Regions::parse(bytes.get(block..2 * block)?);
        let missed = Regions::parse(bytes.get(2 * block..3 * block)?);
        Some(Self { id, number, epoch, tail_number, tail_block, stamp, member, shape, absent, given, used, missed })
    }

    /// What sorts anchors of one array from the oldest to the newest.
    pub(crate) fn age(&self) -> (u64, u64) {
        (self.epoch, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchor_is_found_as_it_was_written_or_not_at_all() {
        let mut anchor = Anchor {
            id: [3; 16],
            number: 5,
            epoch: 2,
            tail_number: 77,
            tail_block: 9,
            stamp: 8,
            member: 4,
            shape: [1, 2, 3, 4, 5],
            absent: MemberSet::only(63),
            given: Box::new([(0, 0); 64]),
            used: Regions::default(),
            missed: Regions::default(),
        };
        anchor.given[63] = (1, 4);
        anchor.used.add(32_767);
        anchor.missed.add(1);
        let view = anchor.emit();
        assert!(Anchor::parse(&view).as_ref() == Some(&anchor));
        for byte in [0, 9, 40, 1100, 5000, 12_287] {
            let mut torn = view.clone().thaw();
            torn[byte] ^= 4;
            assert!(Anchor::parse(&torn).is_none(), "byte {byte}");
        }
        assert!(Anchor::parse(&view[..8192]).is_none());
    }
}
