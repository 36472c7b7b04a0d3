//! Findings: corrupted memory that the cache detects and reports.

use block::Extent;
use std::fmt;
use std::rc::Rc;

/// Identity of one volume of the pools that a shard serves; given by the owner, the same after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u128);

/// Place where a checksum did not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Clean page in the read cache: dropped, and read again below.
    Cache,
    /// Dirty data in memory.
    WriteCache,
    /// Record of the write log.
    WriteLog,
}

/// Checksum mismatch: blocks of a volume changed in memory or in the log without a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Place of the mismatch.
    pub layer: Layer,
    /// Volume of the blocks.
    pub volume: VolumeId,
    /// Blocks of the volume.
    pub extent: Extent,
    /// True when the correct content was found elsewhere and nothing is lost.
    pub healed: bool,
}

/// Receiver of every [`Finding`]; shared by the caches of a shard.
#[derive(Clone)]
pub struct Findings(Rc<dyn Fn(Finding)>);

impl Findings {
    /// Creates a receiver that passes findings to `hear`, which must not call back into the cache.
    pub fn new(hear: impl Fn(Finding) + 'static) -> Self {
        Self(Rc::new(hear))
    }

    pub(crate) fn report(&self, finding: Finding) {
        (self.0)(finding);
    }
}

impl fmt::Debug for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Findings")
    }
}
