//! Simulated disks with the faults of real ones.
//!
//! The atom is 512 bytes. A write is durable once a flush that was submitted after its completion has completed, or at
//! its completion when the disk has no volatile cache. A power cut leaves each atom, independently, with any version
//! from its last durable one up to the last submitted ([`Crash`]). Discards are writes of zeros.

mod faults;
mod handle;
mod io;
mod state;
mod store;

pub use faults::{Crash, DiskCounts, DiskFaults};
pub use handle::{DiskHandle, DiskImage};
pub use io::SimDisk;
pub(crate) use state::DiskState;

/// Unit of atomic writes in bytes.
pub(crate) const ATOM_BYTES: usize = 512;

/// Capacity and properties of a simulated disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskShape {
    /// Capacity in bytes; whole atoms of 512 bytes.
    pub bytes: u64,
    /// Smallest block size that it can be opened with: 512 or 4096.
    pub logical_block_bytes: u32,
    /// Physical block size that it reports.
    pub physical_block_bytes: u32,
    /// True when acknowledged writes are in a volatile cache until a flush.
    pub volatile_cache: bool,
}

impl DiskShape {
    /// Returns a disk of `bytes` with blocks of 512 bytes and a volatile cache.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, logical_block_bytes: 512, physical_block_bytes: 512, volatile_cache: true }
    }
}
