//! Memory that does not hold what was put there, and who hears of it.

use block::Extent;
use std::fmt;
use std::rc::Rc;

/// Names one volume of the pools that a shard serves; given by the owner, the same after a restart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u128);

/// Where a guard did not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// A clean block in the read cache: dropped and read again below.
    Cache,
    /// Acknowledged data that waits in memory to be written below.
    WriteCache,
    /// A record of the write log.
    WriteLog,
}

/// A guard did not match: blocks of a volume changed where nobody may change them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where it was found.
    pub layer: Layer,
    /// Whose blocks.
    pub volume: VolumeId,
    /// Which blocks of the volume.
    pub extent: Extent,
    /// True when the right content was found elsewhere and nothing is lost.
    pub healed: bool,
}

/// Hears of every [`Finding`]; shared by what a shard caches.
#[derive(Clone)]
pub struct Findings(Rc<dyn Fn(Finding)>);

impl Findings {
    /// Tells each finding to `hear`, which must not call back into the cache.
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
