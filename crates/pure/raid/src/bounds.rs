//! Bounds of every array.

use std::ops::RangeInclusive;

/// Bytes of a block, of the array and of its members.
pub const BLOCK_BYTES: u32 = 4096;
/// The sizes that a chunk may have, if a power of two.
pub const CHUNK_BYTES: RangeInclusive<u32> = 4096..=1 << 20;
/// The most members of an array.
pub const MEMBERS_MAX: u16 = 64;
/// How often an array may grow by larger members.
pub(crate) const GROWTHS_MAX: usize = 8;
