//! Bounds and constants of every array.

use std::ops::RangeInclusive;

/// Bytes of a block, of the array and of its members.
pub const BLOCK_BYTES: u32 = 4096;
/// Range of chunk sizes, in bytes; a chunk is also a power of two.
pub const CHUNK_BYTES: RangeInclusive<u32> = 4096..=1 << 20;
/// Upper bound of members in an array.
pub const MEMBERS_MAX: u16 = 64;
/// Upper bound of growths by larger members: the size of the list in an anchor.
pub(crate) const GROWTHS_MAX: usize = 8;
