//! Where every block lies: pure functions between the addresses of an array and those of its members.
//!
//! A stripe is one chunk of every member at the same address. Rows count blocks within a chunk. Data
//! columns are numbered in the order of the array's addresses; P and Q rotate as in md's left-symmetric
//! layout, and data begins behind them, so that consecutive chunks lie on consecutive members.

mod bands;
mod set;

pub use bands::{Band, Touch, bands};
pub use set::MemberSet;

use crate::bounds::{BLOCK_BYTES, CHUNK_BYTES, MEMBERS_MAX};
use crate::error::ArrayError;
use crate::level::Level;
use block::{Blocks, Extent, Lba};
use std::ops::Range;

/// A run of rows of one stripe: blocks within a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The first row.
    pub start: u64,
    /// The row behind the last.
    pub end: u64,
}

/// What a member's chunk of a stripe holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The data column, and which of its copies.
    Data {
        /// The column.
        column: u16,
        /// The copy, zero where there is only one.
        copy: u16,
    },
    /// The XOR of the data columns.
    P,
    /// The second parity of RAID-6.
    Q,
}

/// Where a block of the array lies within its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The stripe.
    pub stripe: u64,
    /// The data column.
    pub column: u16,
    /// The row.
    pub row: u64,
}

/// A run of blocks that is contiguous on the members that hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where its first block lies.
    pub place: Place,
    /// How many blocks; more than the rest of the chunk only where consecutive chunks are contiguous.
    pub blocks: u64,
    /// Its first block, counted from the start of the extent that was cut.
    pub at: u64,
}

/// The part of an extent that one lock covers: a stripe, or several where one column is all there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The stripes.
    pub stripes: Range<u64>,
    /// The blocks of the array.
    pub extent: Extent,
    /// Its first block, counted from the start of the extent that was cut.
    pub at: u64,
}

/// Bytes of each member that are worked on at a time.
const STEP_BYTES: u64 = 512 << 10;

/// The shape of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    level: Level,
    members: u16,
    chunk_blocks: u64,
    stripes: u64,
}

/// How many blocks an array of `members` members of `member_blocks` blocks offers.
///
/// *Errors*: as [`Layout::new`].
pub fn capacity(level: Level, members: usize, chunk_bytes: u32, member_blocks: Blocks) -> Result<Blocks, ArrayError> {
    Layout::new(level, members, chunk_bytes, member_blocks).map(|layout| layout.blocks())
}

impl Layout {
    /// The shape of an array whose smallest member has `member_blocks` blocks of 4096 bytes.
    ///
    /// *Errors*: a sentence that says which bound is broken.
    pub fn new(level: Level, members: usize, chunk_bytes: u32, member_blocks: Blocks) -> Result<Self, ArrayError> {
        if members < usize::from(level.members_min()) {
            return Err(ArrayError::TooFewMembers { level, members });
        }
        if members > usize::from(MEMBERS_MAX) {
            return Err(ArrayError::TooManyMembers { members });
        }
        if level == Level::Raid10 && !members.is_multiple_of(2) {
            return Err(ArrayError::OddMembers { members });
        }
        if !CHUNK_BYTES.contains(&chunk_bytes) || !chunk_bytes.is_power_of_two() {
            return Err(ArrayError::ChunkSize { chunk_bytes });
        }
        let chunk_blocks = u64::from(chunk_bytes / BLOCK_BYTES);
        let stripes = member_blocks.0 / chunk_blocks;
        if stripes == 0 {
            return Err(ArrayError::TooSmall { blocks: member_blocks.0, chunk_blocks });
        }
        let members = u16::try_from(members).expect("the bound on members was just checked");
        Ok(Self { level, members, chunk_blocks, stripes })
    }

    /// The level.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// How many members.
    #[must_use]
    pub fn members(&self) -> u16 {
        self.members
    }

    /// Blocks of a chunk.
    #[must_use]
    pub fn chunk_blocks(&self) -> u64 {
        self.chunk_blocks
    }

    /// How many stripes.
    #[must_use]
    pub fn stripes(&self) -> u64 {
        self.stripes
    }

    /// How many data columns a stripe has.
    #[must_use]
    pub fn columns(&self) -> u16 {
        (self.members - self.level.parities()) / self.copies()
    }

    /// How many members hold each data column.
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

    /// Blocks that the array uses of each member.
    #[must_use]
    pub fn member_blocks(&self) -> Blocks {
        Blocks(self.stripes * self.chunk_blocks)
    }

    /// The parities of a stripe.
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
            return lost.len() <= self.level.parities();
        }
        let copies = self.copies();
        (0..self.columns()).all(|column| (0..copies).any(|copy| !lost.contains(column * copies + copy)))
    }

    /// Where block `lba` of the array lies.
    #[must_use]
    pub fn locate(&self, lba: Lba) -> Place {
        let (stripe, offset) = (lba.0 / self.stripe_blocks(), lba.0 % self.stripe_blocks());
        let column = u16::try_from(offset / self.chunk_blocks).expect("a stripe has fewer columns than members");
        Place { stripe, column, row: offset % self.chunk_blocks }
    }

    /// The block of the array that lies at `place`; the inverse of [`Layout::locate`].
    #[must_use]
    pub fn lba_of(&self, place: Place) -> Lba {
        assert!(place.column < self.columns() && place.row < self.chunk_blocks, "a place is within its stripe");
        Lba(place.stripe * self.stripe_blocks() + u64::from(place.column) * self.chunk_blocks + place.row)
    }

    /// The block of the array that `block` of a member's data holds; none for parity.
    #[must_use]
    pub fn lba_on(&self, member: u16, block: u64) -> Option<Lba> {
        let (stripe, row) = (block / self.chunk_blocks, block % self.chunk_blocks);
        match self.role_of(stripe, member) {
            Role::Data { column, .. } => Some(self.lba_of(Place { stripe, column, row })),
            Role::P | Role::Q => None,
        }
    }

    /// The member that has `role` in `stripe`.
    #[must_use]
    pub fn member_of(&self, stripe: u64, role: Role) -> u16 {
        match role {
            Role::Data { column, copy } if !self.has_parity() => column * self.copies() + copy,
            Role::Data { column, .. } => (self.first_parity(stripe) + self.level.parities() + column) % self.members,
            Role::P => self.first_parity(stripe),
            Role::Q => (self.first_parity(stripe) + 1) % self.members,
        }
    }

    /// What `member` holds in `stripe`; the inverse of [`Layout::member_of`].
    #[must_use]
    pub fn role_of(&self, stripe: u64, member: u16) -> Role {
        assert!(member < self.members, "only members of the layout hold a part of its stripes");
        if !self.has_parity() {
            return Role::Data { column: member / self.copies(), copy: member % self.copies() };
        }
        let behind_p = (member + self.members - self.first_parity(stripe)) % self.members;
        match behind_p {
            0 => Role::P,
            1 if self.level.parities() == 2 => Role::Q,
            _ => Role::Data { column: behind_p - self.level.parities(), copy: 0 },
        }
    }

    /// The blocks of a member that hold `rows` of `stripe`.
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

    /// Cuts `extent` into runs that are contiguous on the members, in order.
    pub fn pieces(&self, extent: Extent) -> impl Iterator<Item = Piece> + use<> {
        let layout = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = extent.len.0 - at;
            let place = layout.locate(Lba(extent.start.0 + at));
            let contiguous = if layout.columns() == 1 { u64::MAX } else { layout.chunk_blocks - place.row };
            let piece = Piece { place, blocks: rest.min(contiguous), at };
            at += piece.blocks;
            (rest > 0).then_some(piece)
        })
    }

    /// Cuts `extent` into what is locked and written at a time, in order.
    pub fn spans(&self, extent: Extent) -> impl Iterator<Item = Span> + use<> {
        let layout = *self;
        let mut at = 0;
        std::iter::from_fn(move || {
            let (start, rest) = (extent.start.0 + at, extent.len.0 - at);
            let first = start / layout.stripe_blocks();
            let in_stripe = (first + 1) * layout.stripe_blocks() - start;
            let blocks = if layout.columns() == 1 { rest } else { rest.min(in_stripe) };
            let part = Extent::new(start, blocks);
            let stripes = first..part.end().0.div_ceil(layout.stripe_blocks());
            let span = Span { stripes, extent: part, at };
            at += blocks;
            (rest > 0).then_some(span)
        })
    }

    /// Cuts a range of stripes into what is worked on at a time.
    pub(crate) fn steps(&self, stripes: Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        let chunk_bytes = self.chunk_blocks * u64::from(BLOCK_BYTES);
        let step = (STEP_BYTES / chunk_bytes).max(1);
        let mut at = stripes.start;
        std::iter::from_fn(move || {
            let here = at..stripes.end.min(at.saturating_add(step));
            at = here.end;
            (!here.is_empty()).then_some(here)
        })
    }

    /// P of stripe 0 lies on the last member and moves one to the front with every stripe.
    fn first_parity(&self, stripe: u64) -> u16 {
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

    /// How many.
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

    /// The bytes of `part` in a buffer that holds these rows.
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
