//! What a disk does to its users, and a count of what it did.

use block::IoErrorKind;
use std::ops::RangeInclusive;
use std::time::Duration;

/// How bad a disk is. Settable at any time; the default is a healthy one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskFaults {
    /// How long an operation takes.
    pub latency: RangeInclusive<Duration>,
    /// How often an operation takes long instead (per million),
    pub slow_per_million: u32,
    /// and how long then.
    pub slow: RangeInclusive<Duration>,
    /// How often a read finds one of its atoms unreadable, from then on until it is written (per million).
    pub latent_per_million: u32,
    /// How often a read fails though the medium is well: the next one may succeed (per million).
    pub read_error_per_million: u32,
    /// How often a write fails, with each of its atoms old or new (per million).
    pub write_error_per_million: u32,
    /// What every write is refused with, with nothing written: a full file system below the disk, or one that is read-only.
    pub refuses: Option<IoErrorKind>,
    /// How often a read is preceded by the flip of one bit on the medium (per million).
    pub bit_rot_per_million: u32,
    /// How often a write is acknowledged and never done (per million).
    pub lost_write_per_million: u32,
    /// How often a write lands somewhere else (per million).
    pub misdirected_write_per_million: u32,
    /// How often a read comes from somewhere else (per million).
    pub misdirected_read_per_million: u32,
    /// How often a flush is acknowledged and makes nothing durable (per million).
    pub lost_flush_per_million: u32,
    /// How often a flush fails (per million). The disk is gone then, and what was not flushed is old or new.
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

/// How often each thing happened to one disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Reads that were begun.
    pub reads: u64,
    /// Writes that were begun.
    pub writes: u64,
    /// Flushes that were begun.
    pub flushes: u64,
    /// Discards that were begun.
    pub discards: u64,
    /// Operations that took long.
    pub slow: u64,
    /// Reads that failed on an unreadable atom.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Bits that flipped.
    pub bits_rotten: u64,
    /// Writes that were acknowledged and not done.
    pub writes_lost: u64,
    /// Writes that landed elsewhere.
    pub writes_misdirected: u64,
    /// Reads that came from elsewhere.
    pub reads_misdirected: u64,
    /// Flushes that were acknowledged and not done.
    pub flushes_lost: u64,
    /// Flushes that failed.
    pub flush_errors: u64,
    /// Power cuts.
    pub crashes: u64,
    /// Atoms that a power cut found with more than one possible version.
    pub atoms_undecided: u64,
    /// Atoms that a power cut left with garbage.
    pub atoms_torn: u64,
}

/// What a power cut leaves of each atom that was written since it was last durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Any version, each atom for itself, as the seed says.
    AnySubset,
    /// As [`Crash::AnySubset`], and atoms of writes that were not acknowledged may be garbage.
    Torn,
    /// Everything submitted has landed.
    AllLanded,
    /// Nothing has landed that was not durable.
    NoneLanded,
}
