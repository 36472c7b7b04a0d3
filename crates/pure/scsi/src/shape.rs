//! Limits of a unit that CDBs are validated against and that VPD page B0h (Block Limits) announces.

use crate::operation::OptionalFeatures;

/// Maximum number of blocks of one UNMAP, summed over its descriptors.
pub(crate) const UNMAP_BLOCKS_MAX: u32 = 1 << 20;
/// Maximum number of descriptors of one UNMAP.
pub(crate) const UNMAP_DESCRIPTORS_MAX: u32 = 256;
/// Maximum number of blocks of one COMPARE AND WRITE: its length field has one byte.
pub(crate) const COMPARE_BLOCKS_MAX: u32 = 255;
/// Maximum number of blocks of one WRITE SAME: the range of the 16-bit length of WRITE SAME (10). A longer one would
/// block its task set; and from 65,536 blocks on, the libiscsi test suite expects a WRITE of that length to be
/// accepted.
pub(crate) const WRITE_SAME_BLOCKS_MAX: u64 = 65_535;

/// Limits and features that a CDB is validated against. A copy may be cached away from the unit: a stale one costs the
/// initiator a retry, never data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Bytes per logical block.
    pub block_bytes: u32,
    /// Number of logical blocks.
    pub blocks: u64,
    /// Maximum transfer length of one command in bytes.
    pub transfer_bytes_max: u32,
    /// True when UNMAP is supported.
    pub unmap: bool,
    /// Maximum length of WRITE ATOMIC in blocks; 0 where it is not supported.
    pub atomic_blocks_max: u32,
    /// True when SANITIZE is supported.
    pub sanitize: bool,
    /// True when the volume is encrypted and its key can be destroyed (CRYPTOGRAPHIC ERASE).
    pub key: bool,
    /// True when the medium can be ejected.
    pub removable: bool,
    /// True when the unit never accepts writes.
    pub read_only: bool,
}

impl Shape {
    /// Maximum number of blocks that one command may transfer.
    pub(crate) fn transfer_blocks_max(&self) -> u64 {
        // A default shape has no block size, and then nothing may be transferred.
        u64::from(self.transfer_bytes_max).checked_div(u64::from(self.block_bytes)).unwrap_or(0)
    }

    /// Features that select the supported rows of the table of operations.
    pub(crate) fn optional_features(&self) -> OptionalFeatures {
        OptionalFeatures {
            unmap: self.unmap,
            atomic: self.atomic_blocks_max > 0,
            sanitize: self.sanitize,
            key: self.key,
            removable: self.removable,
        }
    }

    /// Maximum length of COMPARE AND WRITE in blocks: its data contains each block twice.
    pub(crate) fn compare_blocks_max(&self) -> u32 {
        let fit = u32::try_from(self.transfer_blocks_max() / 2).unwrap_or(u32::MAX);
        COMPARE_BLOCKS_MAX.min(fit)
    }
}
