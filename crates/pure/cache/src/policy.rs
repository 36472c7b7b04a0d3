//! What an operator may choose for one volume, at any time.

use std::time::Duration;

/// How a volume is cached. Every part can be changed while hosts use the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// When a write is acknowledged.
    pub write: WritePolicy,
    /// What is read before anybody asks for it.
    pub read_ahead: ReadAhead,
    /// Its part of the shard's read cache.
    pub share: Share,
    /// How fast its hosts may be.
    pub limits: Limits,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// When the device below has accepted it.
    #[default]
    Through,
    /// When the write log has made it stable. Without a log, or with one that failed, as [`WritePolicy::Through`].
    Back,
    /// When it is in memory: a power cut loses what no flush has covered. Reported as a volatile cache.
    BackVolatile,
}

/// What is read before anybody asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// Nothing.
    Off,
    /// Behind a sequential reader always this much.
    Fixed {
        /// How far, in bytes.
        bytes: u32,
    },
    /// As much as sequential readers turn out to use.
    #[default]
    Adaptive,
}

/// A volume's part of the read cache of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its part is `weight` of the sum of all volumes' weights; what others leave free it may use too. Zero: no cache.
    pub weight: u32,
    /// Never more than this many bytes, whatever is free.
    pub bytes_max: Option<u64>,
    /// How often a hit is compared with its guard.
    pub check: Check,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 100, bytes_max: None, check: Check::Every }
    }
}

/// How often a hit in the read cache is compared with its guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Every time.
    #[default]
    Every,
    /// Every so many hits.
    OneIn(u32),
    /// Never.
    Off,
}

/// How fast the hosts of a volume may be, and how fast they shall be when volumes compete. Zero: no such limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// At most this many commands in a second.
    pub iops_max: u64,
    /// At most this many bytes in a second.
    pub bytes_per_second_max: u64,
    /// How long a volume that was idle may be as fast as it can, measured in time at its maximum.
    pub burst: Duration,
    /// At least this many commands in a second, before any other volume gets more than its own guarantee.
    pub iops_min: u64,
    /// Its part when volumes compete: twice the priority, twice the bytes.
    pub priority: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { iops_max: 0, bytes_per_second_max: 0, burst: Duration::from_millis(100), iops_min: 0, priority: 100 }
    }
}
