//! Injectable disk faults, and counters of those that occurred.

use block::IoErrorKind;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Fault profile of a disk. Can be changed at any time; the default is a healthy disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFaults {
    /// Latency of an operation.
    pub latency: RangeInclusive<Duration>,
    /// Rate of slow operations (per million).
    pub slow_per_million: u32,
    /// Latency of a slow operation.
    pub slow: RangeInclusive<Duration>,
    /// Rate of reads that find one of their atoms unreadable, from then on until it is written (per million).
    pub latent_per_million: u32,
    /// Rate of reads that fail although the medium is healthy: the next one may succeed (per million).
    pub read_error_per_million: u32,
    /// Rate of writes that fail, with each of their atoms old or new (per million).
    pub write_error_per_million: u32,
    /// Error of every write, without effect: a full or a read-only file system below the disk.
    pub refuses: Option<IoErrorKind>,
    /// Rate of reads that are preceded by a bit flip on the medium (per million).
    pub bit_rot_per_million: u32,
    /// Rate of writes that are acknowledged and never done (per million).
    pub lost_write_per_million: u32,
    /// Rate of writes that go to a wrong address (per million).
    pub misdirected_write_per_million: u32,
    /// Rate of reads that return data of a wrong address (per million).
    pub misdirected_read_per_million: u32,
    /// Rate of flushes that are acknowledged and make nothing durable (per million).
    pub lost_flush_per_million: u32,
    /// Rate of flushes that fail (per million). The disk is gone then, and unflushed atoms are old or new.
    pub flush_error_per_million: u32,
}

impl Default for DiskFaults {
    fn default() -> Self {
        Self {
            latency: Duration::from_micros(20)..=Duration::from_micros(200),
            slow_per_million: 0,
            slow: Duration::from_millis(100)..=Duration::from_secs(30),
            latent_per_million: 0,
            read_error_per_million: 0,
            write_error_per_million: 0,
            refuses: None,
            bit_rot_per_million: 0,
            lost_write_per_million: 0,
            misdirected_write_per_million: 0,
            misdirected_read_per_million: 0,
            lost_flush_per_million: 0,
            flush_error_per_million: 0,
        }
    }
}

/// Counters of one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Reads that were submitted.
    pub reads: u64,
    /// Writes that were submitted.
    pub writes: u64,
    /// Flushes that were submitted.
    pub flushes: u64,
    /// Discards that were submitted.
    pub discards: u64,
    /// Slow operations.
    pub slow: u64,
    /// Reads that failed on an unreadable atom.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Bit flips.
    pub bits_rotten: u64,
    /// Writes that were acknowledged and not done.
    pub writes_lost: u64,
    /// Writes that went to a wrong address.
    pub writes_misdirected: u64,
    /// Reads of a wrong address.
    pub reads_misdirected: u64,
    /// Flushes that were acknowledged and not done.
    pub flushes_lost: u64,
    /// Flushes that failed.
    pub flush_errors: u64,
    /// Power cuts.
    pub crashes: u64,
    /// Atoms with more than one possible version at a power cut.
    pub atoms_undecided: u64,
    /// Atoms with garbage after a power cut.
    pub atoms_torn: u64,
}

/// Effect of a power cut on each atom that was written since it was last durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Any version, chosen by the seed for each atom independently.
    AnySubset,
    /// As [`Crash::AnySubset`], and atoms of unacknowledged writes may contain garbage.
    Torn,
    /// All submitted writes have taken effect.
    AllLanded,
    /// Only durable writes have taken effect.
    NoneLanded,
}
