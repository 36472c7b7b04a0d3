//! Disks in memory that lie as real ones do.
//!
//! The atom is 512 bytes. A write is durable once a flush that was submitted after its completion has
//! completed, or at its completion when the disk has no volatile cache. A power cut leaves each atom,
//! independently, with any version from its last durable one up to the last submitted ([`Crash`]).
//! Discards are writes of zeros.

mod faults;
mod handle;
mod io;
mod state;
mod store;

pub use faults::{Crash, DiskCounts, DiskFaults};
pub use handle::{DiskHandle, DiskImage};
pub use io::SimDisk;
pub(crate) use state::DiskState;

/// The unit that a disk writes whole or not at all.
pub(crate) const ATOM_BYTES: usize = 512;

/// What a simulated disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskShape {
    /// The capacity; whole atoms of 512 bytes.
    pub bytes: u64,
    /// The smallest block that it can be opened with: 512 or 4096.
    pub logical_block_bytes: u32,
    /// What it says is its physical block.
    pub physical_block_bytes: u32,
    /// True when acknowledged writes wait in a cache that a power cut empties.
    pub volatile_cache: bool,
}

impl DiskShape {
    /// A 512e disk of `bytes` with a volatile cache.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, logical_block_bytes: 512, physical_block_bytes: 512, volatile_cache: true }
    }
}
