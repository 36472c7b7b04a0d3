//! File of the host as a disk: each operation is carried out at once and takes virtual time.

use super::Machine;
use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use shard::{DiskOptions, World};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// File that is open exclusively on its machine.
pub(crate) struct FileDisk {
    machine: Machine,
    file: File,
    inode: (u64, u64),
    geometry: Geometry,
    is_read_only: bool,
}

impl FileDisk {
    /// Creates a disk of `bytes`.
    pub(crate) fn new(machine: Machine, file: File, inode: (u64, u64), bytes: u64, options: DiskOptions) -> Self {
        let block_bytes = options.block_bytes;
        let geometry = Geometry {
            block_bytes,
            blocks: Blocks(bytes / u64::from(block_bytes)),
            physical_block_bytes: 4096,
            optimal_bytes: 4096,
            volatile_cache: true,
            discard_zeroes: false,
            prefers_unlogged: false,
        };
        Self { machine, file, inode, geometry, is_read_only: options.read_only }
    }

    fn offset(&self, start: Lba) -> u64 {
        start.0 * u64::from(self.geometry.block_bytes)
    }

    fn admit_write(&self, extent: Extent) -> Result<(), IoError> {
        self.geometry().admit(extent)?;
        if self.is_read_only { Err(IoError::new(IoErrorKind::ReadOnly, extent)) } else { Ok(()) }
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        self.machine.release(self.inode);
    }
}

impl BlockDevice for FileDisk {
    /// Returns the geometry; the file may have grown.
    fn geometry(&self) -> Geometry {
        let bytes = self.file.metadata().map_or(0, |metadata| metadata.len());
        let blocks = Blocks(bytes / u64::from(self.geometry.block_bytes));
        // A file that has shrunk keeps its size here, so that an operation beyond its end fails as `Gone`.
        Geometry { blocks: blocks.max(self.geometry.blocks), ..self.geometry }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry().admit(extent)?;
        let bytes = usize::try_from(extent.len.bytes(self.geometry.block_bytes)).expect("an operation fits in memory");
        self.machine.sleep(self.machine.service_time(bytes)).await;
        // The data is that at the end of the operation.
        let mut buffer = Buf::zeroed(bytes);
        self.file.read_exact_at(&mut buffer, self.offset(extent.start)).map_err(|error| failed(&error, extent))?;
        Ok(buffer.freeze().into())
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        self.admit_write(extent)?;
        self.machine.sleep(self.machine.service_time(data.len())).await;
        self.file.write_all_at(&data, self.offset(start)).map_err(|error| failed(&error, extent))?;
        Ok(Written::attest())
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        self.machine.sleep(self.machine.service_time(0)).await;
        self.machine.note_flush();
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.admit_write(extent)?;
        // The content stays: `discard_zeroes` is false.
        Ok(Written::attest())
    }
}

fn failed(error: &io::Error, extent: Extent) -> IoError {
    let kind = if error.kind() == io::ErrorKind::UnexpectedEof { IoErrorKind::Gone } else { IoErrorKind::Medium };
    IoError::new(kind, extent)
}
