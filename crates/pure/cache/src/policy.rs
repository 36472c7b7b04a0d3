//! Cache policy and I/O limits of a volume, which an operator can change at any time.

use std::time::Duration;

/// Cache policy and I/O limits of a volume. Every part can be changed during host I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Point at which a write is acknowledged.
    pub write: WritePolicy,
    /// Read-ahead of sequential reads.
    pub read_ahead: ReadAhead,
    /// Share of the shard's read cache.
    pub share: Share,
    /// IOPS and bandwidth limits of the volume's hosts.
    pub limits: Limits,
}

/// Point at which a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// Write-through: when the device below has accepted the write.
    #[default]
    Through,
    /// Write-back: when the write log has made the write stable. Without a log, or with a failed one, as
    /// [`WritePolicy::Through`].
    Back,
    /// Volatile write-back: when the write is in memory; a power cut loses what no flush has covered. Reported as a
    /// volatile cache.
    BackVolatile,
}

/// Read-ahead of sequential reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// No read-ahead.
    Off,
    /// Fixed window behind each sequential reader.
    Fixed {
        /// Size of the window, in bytes.
        bytes: u32,
    },
    /// Window adapted to how much sequential readers use.
    #[default]
    Adaptive,
}

/// Share of a volume in the read cache of its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Share relative to the sum of all volumes' weights; memory that others leave unused is available, too. 0
    /// disables caching.
    pub weight: u32,
    /// Upper bound in bytes, even if memory is unused; `None` for no bound.
    pub bytes_max: Option<u64>,
    /// Frequency of checksum verification on hits.
    pub check: Check,
}

impl Default for Share {
    fn default() -> Self {
        Self { weight: 100, bytes_max: None, check: Check::Every }
    }
}

/// Frequency of checksum verification on hits in the read cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Check {
    /// Every hit.
    #[default]
    Every,
    /// One in this number of hits.
    OneIn(u32),
    /// No hit.
    Off,
}

/// Rate limits of a volume, and its guarantees when volumes compete. 0 means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// IOPS limit.
    pub iops_max: u64,
    /// Bandwidth limit, in bytes per second.
    pub bytes_per_second_max: u64,
    /// Burst allowance of an idle volume, as time at its maximum rate.
    pub burst: Duration,
    /// Guaranteed IOPS, served before any other volume gets more than its own guarantee.
    pub iops_min: u64,
    /// Weight among competing volumes: twice the priority gets twice the bytes.
    pub priority: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { iops_max: 0, bytes_per_second_max: 0, burst: Duration::from_millis(100), iops_min: 0, priority: 100 }
    }
}
