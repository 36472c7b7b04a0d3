//! Address arithmetic: pure functions between the addresses of an array and those of its members.
//!
//! A stripe is one chunk of every member at the same address. Rows count blocks within a chunk. Data columns are
//! numbered in the order of the array's addresses; P and Q rotate as in md's left-symmetric layout, and data starts
//! behind them, so that consecutive chunks lie on consecutive members.

mod bands;
mod set;

pub use bands::{Band, ColumnWrite, bands};
pub use set::MemberSet;

use crate::bounds::{BLOCK_BYTES, CHUNK_BYTES, MEMBERS_MAX};
use crate::error::ArrayError;
use crate::level::Level;
use block::{Blocks, Extent, Lba};
use std::ops::Range;

/// Run of rows of one stripe; a row is the block at the same offset of each chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// First row.
    pub start: u64,
    /// Row behind the last.
    pub end: u64,
}

/// Content of a member's chunk in a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data.
    Data {
        /// Data column, counted from 0.
        column: u16,
        /// Mirror copy; 0 where there is only one.
        copy: u16,
    },
    /// First parity: the XOR of the data columns.
    P,
    /// Second parity (RAID-6): the sum of 2^i times column i over GF(2^8).
    Q,
}

/// Position of a block of the array within its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripePosition {
    /// Stripe, counted from 0.
    pub stripe: u64,
    /// Data column, counted from 0.
    pub column: u16,
    /// Row within the chunk.
    pub row: u64,
}

/// Run of blocks that is contiguous on the members that hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Position of its first block.
    pub position: StripePosition,
    /// Number of blocks; more than the rest of the chunk only where consecutive chunks are contiguous.
    pub blocks: u64,
    /// Offset of the first block from the start of the extent that was split.
    pub at: u64,
}

/// Part of an extent that is locked as one: a stripe, or several where a stripe has a single column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Stripes that the part touches.
    pub stripes: Range<u64>,
    /// Blocks of the array.
    pub extent: Extent,
    /// Offset of the first block from the start of the extent that was split.
    pub at: u64,
}

/// Bytes of each member that one step of a walk processes.
const STEP_BYTES: u64 = 512 << 10;

/// Level, number of members, chunk size and number of stripes of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    level: Level,
    members: u16,
    chunk_blocks: u64,
    stripes: u64,
}

/// Returns the number of blocks that an array of `members` members of `member_blocks` blocks offers.
///
/// *Errors*: as [`Layout::new`].
pub fn capacity(level: Level, members: usize, chunk_bytes: u32, member_blocks: Blocks) -> Result<Blocks, ArrayError> {
    Layout::new(level, members, chunk_bytes, member_blocks).map(|layout| layout.blocks())
}

impl Layout {
    /// Lays out an array whose smallest member has `member_blocks` blocks of 4096 bytes.
    ///
    /// *Errors*: a sentence that says which bound is broken.
    pub fn new(level: Level, members: usize, chunk_bytes: u32, member_blocks: Blocks) -> Result<Self, ArrayError> {
        if members < usize::from(level.members_min()) {
            return Err(ArrayError::TooFewMembers { level, members });
        }
        if members > usize::from(MEMBERS_MAX) {
            return Err(ArrayError::TooManyMembers { members });
        }
        // RAID-10 consists of pairs.
        if level == Level::Raid10 && !members.is_multiple_of(2) {
            return Err(ArrayError::OddMembers { members });
        }
        if !CHUNK_BYTES.contains(&chunk_bytes) || !chunk_bytes.is_power_of_two() {
            return Err(ArrayError::ChunkSize { chunk_bytes });
        }
        let chunk_blocks = u64::from(chunk_bytes / BLOCK_BYTES);
        // Whole chunks only: a partial stripe at the end is left unused.
        let stripes = member_blocks.0 / chunk_blocks;
        if stripes == 0 {
            return Err(ArrayError::TooSmall { blocks: member_blocks.0, chunk_blocks });
        }
        let members = u16::try_from(members).expect("the bound on members was just checked");
        Ok(Self { level, members, chunk_blocks, stripes })
    }

    /// RAID level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// Number of members.
    #[must_use]
    pub fn members(&self) -> u16 {
        self.members
    }

    /// Blocks of a chunk.
    #[must_use]
    pub fn chunk_blocks(&self) -> u64 {
        self.chunk_blocks
    }

    /// Number of stripes.
    #[must_use]
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// Data columns of a stripe.
    #[must_use]
    pub fn columns(&self) -> u16 {
        // Divides without a rest: RAID-10 has an even number of members, and RAID-1 as many copies as members.
        (self.members - self.level.parities()) / self.copies()
    }

    /// Members that hold each data column: 1 unless the level mirrors.
    #[must_use]
    pub fn copies(&self) -> u16 {
        self.level.copies(self.members)
    }

    /// Data blocks of a stripe.
    #[must_use]
    pub fn stripe_blocks(&self) -> u64 {
        u64::from(self.columns()) * self.chunk_blocks
    }

    /// Blocks that the array offers.
    #[must_use]
    pub fn blocks(&self) -> Blocks {
        Blocks(self.stripes * self.stripe_blocks())
    }

    /// Blocks that the array uses of each member, in whole chunks.
    #[must_use]
    pub fn member_blocks(&self) -> Blocks {
        Blocks(self.stripes * self.chunk_blocks)
    }

    /// Parities of a stripe, P first.
    pub(crate) fn parity_roles(&self) -> impl Iterator<Item = Role> + use<> {
        [Role::P, Role::Q].into_iter().take(usize::from(self.level.parities()))
    }

    /// True when the level keeps parity.
    pub(crate) fn has_parity(&self) -> bool {
        self.level.parities() > 0
    }

    /// True when every block can be served without the members in `lost`.
    #[must_use]
    pub fn survives(&self, lost: MemberSet) -> bool {
        if self.has_parity() {
            // Parity rotates over all members, so only their number counts.
            return lost.len() <= self.level.parities();
        }
        let copies = self.copies();
        // Copies of a column lie on adjacent members, so each column needs one survivor among them.
        (0..self.columns()).all(|column| (0..copies).any(|copy| !lost.contains(column * copies + copy)))
    }

    /// Position of block `lba` of the array.
    #[must_use]
    pub fn locate(&self, lba: Lba) -> StripePosition {
        let (stripe, offset) = (lba.0 / self.stripe_blocks(), lba.0 % self.stripe_blocks());
        let column = u16::try_from(offset / self.chunk_blocks).expect("a stripe has fewer columns than members");
        StripePosition { stripe, column, row: offset % self.chunk_blocks }
    }

    /// Block of the array at `place`; the inverse of [`Layout::locate`].
    #[must_use]
    pub fn lba_of(&self, place: StripePosition) -> Lba {
        assert!(place.column < self.columns() && place.row < self.chunk_blocks, "a place is within its stripe");
        Lba(place.stripe * self.stripe_blocks() + u64::from(place.column) * self.chunk_blocks + place.row)
    }

    /// Block of the array that `block` of a member's data holds; `None` for parity.
    #[must_use]
    pub fn lba_on(&self, member: u16, block: u64) -> Option<Lba> {
        let (stripe, row) = (block / self.chunk_blocks, block % self.chunk_blocks);
        match self.role_of(stripe, member) {
            Role::Data { column, .. } => Some(self.lba_of(StripePosition { stripe, column, row })),
            Role::P | Role::Q => None,
        }
    }

    /// Member that has `role` in `stripe`.
    #[must_use]
    pub fn member_of(&self, stripe: u64, role: Role) -> u16 {
        match role {
            // Copies of a column are on adjacent members; `survives` and the pairs of RAID-10 rely on that.
            Role::Data { column, copy } if !self.has_parity() => column * self.copies() + copy,
            // Data begins behind the parities and wraps, so consecutive chunks are on consecutive members.
            Role::Data { column, .. } => (self.first_parity(stripe) + self.level.parities() + column) % self.members,
            Role::P => self.first_parity(stripe),
            Role::Q => (self.first_parity(stripe) + 1) % self.members,
        }
    }

    /// Content of `member` in `stripe`; the inverse of [`Layout::member_of`].
    #[must_use]
    pub fn role_of(&self, stripe: u64, member: u16) -> Role {
        assert!(member < self.members, "only members of the layout hold a part of its stripes");
        if !self.has_parity() {
            return Role::Data { column: member / self.copies(), copy: member % self.copies() };
        }
        // Distance behind P, around the members: P, then Q, then the data columns.
        // Adding `members` first keeps the difference from going below zero.
        let behind_p = (member + self.members - self.first_parity(stripe)) % self.members;
        match behind_p {
            0 => Role::P,
            1 if self.level.parities() == 2 => Role::Q,
            _ => Role::Data { column: behind_p - self.level.parities(), copy: 0 },
        }
    }

    /// Blocks of a member that hold `rows` of `stripe`.
    #[must_use]
    pub fn member_extent(&self, stripe: u64, rows: Rows) -> Extent {
        assert!(rows.end <= self.chunk_blocks, "rows are of one chunk");
        Extent::new(stripe * self.chunk_blocks + rows.start, rows.len())
    }

    /// All rows of a chunk.
    #[must_use]
    pub fn all_rows(&self) -> Rows {
        Rows::new(0, self.chunk_blocks)
    }

    /// Splits `extent` into runs that are contiguous on the members, in order.
    pub fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> + use<> {
        let layout = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = extent.len.0 - at;
            let place = layout.locate(Lba(extent.start.0 + at));
            // With one column the chunks of consecutive stripes follow each other on every member.
            let contiguous = if layout.columns() == 1 { u64::MAX } else { layout.chunk_blocks - place.row };
            let piece = Piece { position: place, blocks: rest.min(contiguous), at };
            at += piece.blocks;
            (rest > 0).then_some(piece)
        })
    }

    /// Splits `extent` into the parts that are locked and written as one, in order.
    pub fn spans(&self, extent: Extent) -> impl Iterator<Item = Span> + use<> {
        let layout = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            let (start, rest) = (extent.start.0 + at, extent.len.0 - at);
            let first = start / layout.stripe_blocks();
            let in_stripe = (first + 1) * layout.stripe_blocks() - start;
            // With one data column there is no parity to keep, so one span may cover many stripes.
            let blocks = if layout.columns() == 1 { rest } else { rest.min(in_stripe) };
            let part = Extent::new(start, blocks);
            let stripes = first..part.end().0.div_ceil(layout.stripe_blocks());
            let span = Span { stripes, extent: part, at };
            at += blocks;
            (rest > 0).then_some(span)
        })
    }

    /// Splits a range of stripes into the steps of a walk.
    pub(crate) fn steps(&self, stripes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let chunk_bytes = self.chunk_blocks * u64::from(BLOCK_BYTES);
        // At least one stripe, also where a chunk is larger than a step.
        let step = (STEP_BYTES / chunk_bytes).max(1);
        let mut at = stripes.start;
        std::iter::from_fn(move || {
            // Saturates, because a range may end at `u64::MAX`: the mover asks for one step of an unbounded range.
            let here = at..stripes.end.min(at.saturating_add(step));
            at = here.end;
            (!here.is_empty()).then_some(here)
        })
    }

    /// Member that has P: the last one in stripe 0, one further to the front with every stripe.
    fn first_parity(&self, stripe: u64) -> u16 {
        // Every member has P once in as many stripes as there are members.
        let turn = u16::try_from(stripe % u64::from(self.members)).expect("a remainder is below the divisor");
        self.members - 1 - turn
    }
}

impl Rows {
    /// The rows from `start` to before `end`.
    #[must_use]
    pub fn new(start: u64, end: u64) -> Self {
        assert!(start <= end, "rows are counted upwards");
        Self { start, end }
    }

    /// Number of rows.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "runs of rows are made to be worked on; none is empty")]
    pub fn len(self) -> u64 {
        self.end - self.start
    }

    /// True when all of `other` is in these rows.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }

    /// Byte range of `part` in a buffer that holds these rows.
    pub(crate) fn bytes_of(self, part: Self) -> Range<usize> {
        assert!(self.contains(part), "only rows that are there have bytes");
        bytes(part.start - self.start)..bytes(part.end - self.start)
    }
}

/// Bytes of `blocks` blocks.
pub(crate) fn bytes(blocks: u64) -> usize {
    usize::try_from(blocks).expect("what is in memory is addressable") * BLOCK_BYTES as usize
}

#[cfg(test)]
mod tests;
