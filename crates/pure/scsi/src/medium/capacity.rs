//! READ CAPACITY (10) and (16) (SBC-4).

use crate::identity::Provisioning;
use crate::reply::Reply;
use block::{Geometry, Rope};

/// Length of the READ CAPACITY (16) parameter data in bytes.
const LONG_BYTES: usize = 32;

pub(crate) fn read_capacity_10(geometry: Geometry) -> Rope {
    let mut reply = Reply::new();
    // A last LBA beyond 32 bits is reported as FFFFFFFFh: the initiator must use the 16-byte form (SBC-4).
    reply.u32(u32::try_from(last_lba(geometry)).unwrap_or(u32::MAX)).u32(geometry.block_bytes);
    // READ CAPACITY (10) has no allocation length.
    reply.cut(u64::MAX)
}

pub(crate) fn read_capacity_16(geometry: Geometry, provisioning: Provisioning, allocation: u64) -> Rope {
    let mut reply = Reply::new();
    reply.u64(last_lba(geometry)).u32(geometry.block_bytes);
    reply.u8(0).u8(physical_exponent(geometry));
    // LBPME, and LBPRZ: unmapped blocks read as zeros.
    let unmaps = provisioning != Provisioning::Full;
    reply.u8(if unmaps { 0x80 } else { 0 } | if unmaps && geometry.discard_zeroes { 0x40 } else { 0 });
    reply.pad_to(LONG_BYTES);
    reply.cut(allocation)
}

fn last_lba(geometry: Geometry) -> u64 {
    // A unit without blocks cannot be reported, so its last block is 0.
    geometry.blocks.0.saturating_sub(1)
}

/// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT: 3 for a 512e disk.
pub(crate) fn physical_exponent(geometry: Geometry) -> u8 {
    let ratio = geometry.physical_block_bytes.checked_div(geometry.block_bytes).unwrap_or(1).max(1);
    // The field has four bits.
    ratio.ilog2().min(15) as u8
}

#[cfg(test)]
mod tests;
