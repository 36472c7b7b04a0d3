//! A volume with a map: blocks of 4096 bytes, of which only those take space that were written.

use crate::family::plan::MappedRun;
use crate::pool::Shared;
use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use std::rc::Rc;
use uuid::Uuid;

/// An open volume of a family, or one of its snapshots, which cannot be written. It is a device with blocks of
/// 4096 bytes; when its size is no whole number of those, [`Sectors`](crate::Sectors) hides the rest.
///
/// What was never written, or was discarded, reads as zeros. A write that finds no space is refused with
/// `NoSpace`, and has changed nothing. What is written survives power loss after a flush.
pub struct ThinVolume<D, G> {
    shared: Rc<Shared<D, G>>,
    id: Uuid,
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> ThinVolume<D, G> {
    /// Which volume or snapshot it is.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Its size as hosts see it, in bytes.
    pub fn size_bytes(&self) -> u64 {
        0
    }

    /// Bytes of a logical block as hosts see it: 512 or 4096.
    pub fn logical_block_bytes(&self) -> u32 {
        512
    }

    /// Bytes of a granule: the unit in which discards give space back.
    pub fn granule_bytes(&self) -> u32 {
        0
    }

    /// True for a snapshot.
    pub fn is_read_only(&self) -> bool {
        false
    }

    /// Which blocks of `extent` are mapped, in order, from its first block on: at most `runs_max` runs, so that
    /// the last of them may end before `extent` does.
    pub async fn mapped(&self, extent: Extent, runs_max: usize) -> Result<Vec<MappedRun>, IoError> {
        let _ = runs_max;
        Err(IoError::new(IoErrorKind::Unsupported, extent))
    }
}

impl<D: BlockDevice + 'static, G: BlockDevice + 'static> BlockDevice for ThinVolume<D, G> {
    fn geometry(&self) -> Geometry {
        self.shared.gate(0).device().geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        Err(IoError::new(IoErrorKind::Unsupported, extent))
    }

    async fn write(&self, _: Lba, _: View) -> Result<Written, IoError> {
        Err(IoError::new(IoErrorKind::Unsupported, Extent::default()))
    }

    async fn flush(&self, _: Written) -> Result<Stable, IoError> {
        Err(IoError::new(IoErrorKind::Unsupported, Extent::default()))
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        Err(IoError::new(IoErrorKind::Unsupported, extent))
    }
}
