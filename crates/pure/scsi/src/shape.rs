//! The shape of a unit: what CDBs are judged against, and the limits that VPD page B0h announces.

use crate::operation::Offered;

/// The most blocks that one UNMAP may name, over all of its descriptors.
pub(crate) const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// The most descriptors in one UNMAP.
pub(crate) const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// The most blocks that one COMPARE AND WRITE can name.
pub(crate) const COMPARE_BLOCKS_MAX: u32 = 255;
/// The most blocks that one WRITE SAME may name: what its short form can also say. A longer one would
/// hold up its task set; and from 65,536 on, libiscsi's suite expects as long a WRITE to be taken.
pub(crate) const WRITE_SAME_BLOCKS_MAX: u64 = 65_535;

/// What a CDB is judged against. A copy may be kept where the unit itself is not at hand: one that is
/// out of date costs the initiator a retry, never data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of one logical block.
    pub block_bytes: u32,
    /// How many logical blocks the unit has.
    pub blocks: u64,
    /// The longest transfer of one command, in bytes.
    pub transfer_bytes_max: u32,
    /// True when UNMAP is offered.
    pub unmap: bool,
    /// The most blocks of WRITE ATOMIC; it is not offered where there are none.
    pub atomic_blocks_max: u32,
    /// True when the unit can be sanitized.
    pub sanitize: bool,
    /// True when what is written to the unit is encrypted, and its key can be lost.
    pub key: bool,
    /// True when the medium can be ejected.
    pub removable: bool,
    /// True when the unit never takes writes.
    pub read_only: bool,
}

impl Shape {
    /// The most blocks that one command may move.
    pub(crate) fn transfer_blocks_max(&self) -> u64 {
        u64::from(self.transfer_bytes_max).checked_div(u64::from(self.block_bytes)).unwrap_or(0)
    }

    /// What of the table of operations there is.
    pub(crate) fn offered(&self) -> Offered {
        Offered {
            unmap: self.unmap,
            atomic: self.atomic_blocks_max > 0,
            sanitize: self.sanitize,
            key: self.key,
            removable: self.removable,
        }
    }

    /// The most blocks that one COMPARE AND WRITE may name: its data holds each of them twice.
    pub(crate) fn compare_blocks_max(&self) -> u32 {
        let fit = u32::try_from(self.transfer_blocks_max() / 2).unwrap_or(u32::MAX);
        COMPARE_BLOCKS_MAX.min(fit)
    }
}
