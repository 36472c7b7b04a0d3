//! Block addresses, block counts and extents of a device.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A logical block address on one device, counted in that device's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lba(pub u64);

/// A number of blocks of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Blocks(pub u64);

/// A run of `len` blocks starting at `start`. May be empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Address of the first block.
    pub start: Lba,
    /// Number of blocks.
    pub len: Blocks,
}

impl Extent {
    /// Returns the run of `len` blocks that starts at `start`.
    ///
    /// *Panics*: when the run would pass the end of the address space. Addresses from a peer or a disk are checked with
    /// [`Extent::checked`] first.
    #[must_use]
    pub fn new(start: u64, len: u64) -> Self {
        Self::checked(start, len).expect("an extent of our own making fits in 64 bits")
    }

    /// Returns the run of `len` blocks that starts at `start`, or `None` when its end does not fit in 64 bits.
    #[must_use]
    pub fn checked(start: u64, len: u64) -> Option<Self> {
        // `end` relies on this check: it adds the two numbers without one of its own.
        start.checked_add(len)?;
        Some(Self { start: Lba(start), len: Blocks(len) })
    }

    /// Address of the first block after the run.
    #[must_use]
    pub fn end(self) -> Lba {
        Lba(self.start.0 + self.len.0)
    }

    /// True when the run contains no block.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len.0 == 0
    }

    /// True when every block of `other` is in this run.
    #[must_use]
    pub fn contains(self, other: Self) -> bool {
        // An empty run touches no block, so it is contained in any run, wherever it starts.
        other.is_empty() || (self.start <= other.start && other.end() <= self.end())
    }

    /// True when the two runs share a block.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        // An empty run inside of the other one would pass the comparisons, so it is excluded first.
        !self.is_empty() && !other.is_empty() && self.start < other.end() && other.start < self.end()
    }

    /// The blocks that both runs share; empty when there are none.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        // For disjoint runs `start` may lie behind `end`, hence the saturating subtraction.
        let start = self.start.max(other.start);
        let end = self.end().min(other.end());
        Self { start, len: Blocks(end.0.saturating_sub(start.0)) }
    }
}

impl Blocks {
    /// Size of the blocks in bytes.
    ///
    /// *Panics*: when the product does not fit in 64 bits (no device is that large).
    #[must_use]
    pub fn bytes(self, block_bytes: u32) -> u64 {
        self.0.checked_mul(u64::from(block_bytes)).expect("a device holds less than 2^64 bytes")
    }
}

impl Add<Blocks> for Lba {
    type Output = Self;
    fn add(self, blocks: Blocks) -> Self {
        Self(self.0 + blocks.0)
    }
}

impl Sub for Lba {
    type Output = Blocks;
    fn sub(self, earlier: Self) -> Blocks {
        Blocks(self.0 - earlier.0)
    }
}

impl Add for Blocks {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Blocks {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Blocks {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blocks {}..{}", self.start.0, self.end().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extent_that_passes_the_address_space_is_refused() {
        assert_eq!(Extent::checked(u64::MAX, 1), None);
        assert!(Extent::checked(u64::MAX, 0).is_some());
    }

    #[test]
    fn extent_overlap_needs_a_shared_block() {
        assert!(!Extent::new(0, 4).overlaps(Extent::new(4, 4)));
        assert!(Extent::new(0, 5).overlaps(Extent::new(4, 4)));
        assert!(!Extent::new(2, 0).overlaps(Extent::new(0, 8)));
        assert_eq!(Extent::new(0, 5).intersection(Extent::new(4, 4)), Extent::new(4, 1));
        assert!(Extent::new(0, 2).intersection(Extent::new(4, 4)).is_empty());
    }
}
