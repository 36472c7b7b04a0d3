//! Thin volume as a block device: blocks of 4096 bytes, allocated when they are written.

mod copy;

pub use copy::CopyProgress;

use crate::crypt::Encryption;
use crate::family::plan::MappedRun;
use crate::family::{Branch, Family, MapError};
use crate::layout::BLOCK_BYTES;
use crate::usage::{Operation, Usage};
use block::{
    BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, Stable, View, Written,
};
use std::rc::Rc;
use uuid::Uuid;

/// Open volume of a family, or one of its snapshots (read-only): a device with blocks of 4096 bytes.
///
/// When its size is not a whole number of blocks, [`Emulated512`](crate::Emulated512) hides the rest. Unwritten and
/// discarded blocks read as zeros. A write without space fails with `NoSpace` and changes nothing. Writes are
/// durable after a flush.
pub struct ThinVolume<D, G> {
    family: Rc<Family<D, G>>,
    branch: Rc<Branch>,
    id: Uuid,
    view: BranchView,
    usage: Usage,
}

/// View of the branch: the volume itself or one of its snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchView {
    Volume,
    Snapshot { epoch: u64, size_bytes: u64, mapped: u64 },
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> ThinVolume<D, G> {
    pub(crate) fn new(family: Rc<Family<D, G>>, branch: Rc<Branch>, id: Uuid, viewer: BranchView) -> Self {
        Self { family, branch, id, view: viewer, usage: Usage::default() }
    }

    /// UUID of the volume or snapshot.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Size in bytes as hosts see it.
    pub fn size_bytes(&self) -> u64 {
        match self.view {
            BranchView::Volume => self.branch.size_bytes.get(),
            BranchView::Snapshot { size_bytes, .. } => size_bytes,
        }
    }

    /// Logical block size as hosts see it: 512 or 4096 bytes.
    pub fn logical_block_bytes(&self) -> u32 {
        self.branch.block_bytes
    }

    /// Granule size in bytes: the unit in which discards free space.
    pub fn granule_bytes(&self) -> u32 {
        self.family.granule_blocks * BLOCK_BYTES
    }

    /// True when the data is encrypted on the disks.
    pub fn is_encrypted(&self) -> bool {
        !matches!(self.family.data.encryption(), Encryption::Plain)
    }

    /// True for a snapshot.
    pub fn is_read_only(&self) -> bool {
        self.view != BranchView::Volume
    }

    /// Returns the mapped and unmapped runs of `extent` from its first block on, at most `runs_max`; the last
    /// may end before `extent` does.
    pub async fn mapped(&self, extent: Extent, runs_max: usize) -> Result<Vec<MappedRun>, IoError> {
        let _operation = self.enter(extent)?;
        let mapped = self.family.mapped(&self.branch, self.view_epoch(), extent, runs_max).await;
        mapped.map_err(|error| error.into_io_error(extent))
    }

    /// Closes the device: waits for operations in flight and rejects later ones.
    pub(crate) async fn close(&self) {
        self.usage.close().await;
    }

    // A volume is always viewed at its current epoch, which a snapshot raises.
    fn view_epoch(&self) -> u64 {
        match self.view {
            BranchView::Volume => self.branch.epoch.get(),
            BranchView::Snapshot { epoch, .. } => epoch,
        }
    }

    fn enter(&self, extent: Extent) -> Result<Operation<'_>, IoError> {
        // After deletion the granules may belong to another volume.
        let operation = self.usage.enter().ok_or(IoError::new(IoErrorKind::Gone, extent))?;
        self.geometry().admit(extent)?;
        Ok(operation)
    }

    fn enter_to_write(&self, extent: Extent) -> Result<Operation<'_>, IoError> {
        if self.is_read_only() {
            return Err(IoError::new(IoErrorKind::ReadOnly, extent));
        }
        self.enter(extent)
    }

    fn io_error(&self, error: MapError, extent: Extent) -> IoError {
        // A full pool is reported here, once per refused write, for the operator's alert.
        if error == MapError::Full {
            self.family.shared.report_exhausted(self.id);
        }
        error.into_io_error(extent)
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> BlockDevice for ThinVolume<D, G> {
    fn geometry(&self) -> Geometry {
        // A size that ends within a block is rounded up; the layer of logical blocks hides the rest.
        let blocks = Blocks(self.size_bytes().div_ceil(u64::from(BLOCK_BYTES)));
        Geometry {
            block_bytes: BLOCK_BYTES,
            blocks,
            physical_block_bytes: BLOCK_BYTES,
            optimal_bytes: self.family.optimal_bytes(),
            // Data enters the map, and survives power loss, only with a flush.
            volatile_cache: true,
            // Discarded granules are unmapped and read as zeros; parts of granules are zeroed.
            discard_zeroes: true,
            prefers_unlogged: false,
        }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let _operation = self.enter(extent)?;
        let read = self.family.read(&self.branch, self.view_epoch(), extent).await;
        read.map_err(|error| error.into_io_error(extent))
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        let _operation = self.enter_to_write(extent)?;
        let written = self.family.write(&self.branch, extent, data).await;
        written.map(|()| Written::attest()).map_err(|error| self.io_error(error, extent))
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        // A longer write would need several log blocks, which a crash can separate.
        if extent.len.0 > self.family.atomic_blocks_max() {
            return Err(IoError::new(IoErrorKind::Unsupported, extent));
        }
        let _operation = self.enter_to_write(extent)?;
        let written = self.family.write_atomic(&self.branch, extent, data).await;
        written.map(|()| Written::attest()).map_err(|error| self.io_error(error, extent))
    }

    fn atomic_bytes_max(&self) -> u32 {
        if self.is_read_only() {
            return 0;
        }
        u32::try_from(self.family.atomic_blocks_max() * u64::from(BLOCK_BYTES)).expect("an atomic write is short")
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        let all = self.geometry().all();
        let _operation = self.enter(all)?;
        // A snapshot is stable: it was committed when it was taken.
        if self.is_read_only() {
            return Ok(Stable::attest());
        }
        // Data, catalog and map log become stable in this order; concurrent flushes share one commit.
        let committed = self.family.commit().await;
        committed.map(|()| Stable::attest()).map_err(|error| self.io_error(error, all))
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        let runs = self.mapped(extent, 1).await?;
        // Only an empty extent has no run.
        Ok(runs.first().map_or(Run { extent, mapped: false }, |run| Run { extent: run.extent, mapped: run.mapped }))
    }

    fn space(&self) -> Option<Space> {
        let granule = u64::from(self.granule_bytes());
        // Nothing is written to a snapshot, so no space is available to it.
        let (mapped, free_bytes) = match self.view {
            BranchView::Volume => (self.branch.mapped.get(), self.family.free_bytes(&self.branch)),
            BranchView::Snapshot { mapped, .. } => (mapped, 0),
        };
        Some(Space { mapped_bytes: mapped * granule, free_bytes, granule_bytes: self.granule_bytes() })
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let _operation = self.enter_to_write(extent)?;
        let discarded = self.family.discard(&self.branch, extent).await;
        discarded.map(|()| Written::attest()).map_err(|error| self.io_error(error, extent))
    }
}
