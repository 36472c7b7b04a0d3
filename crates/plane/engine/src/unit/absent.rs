//! Device of a volume whose storage is not available: it has the shape of the former device and no blocks.
//!
//! A front end serves presented volumes over it while they are not open, and does not pass it any command that needs
//! blocks (`docs/adr/0025-luns-without-a-device.md`).

use block::{
    BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, Stable, View, Written,
};
use model::UnitAttributes;

/// A device of a known shape that is not available.
pub struct AbsentDevice {
    geometry: Geometry,
    atomic_bytes: u32,
    granule_bytes: Option<u32>,
}

impl AbsentDevice {
    /// Creates the device from the shape of its unit; `None` for a shape that no device has.
    pub fn of(shape: &UnitAttributes) -> Option<Self> {
        // The shape comes from the stored state, so it is validated, not asserted.
        let is_block = matches!(shape.block_bytes, 512 | 4096);
        let bytes = Some(shape.size.bytes()).filter(|bytes| is_block && *bytes > 0);
        let bytes = bytes.filter(|bytes| bytes.is_multiple_of(u64::from(shape.block_bytes)))?;
        let geometry = Geometry {
            block_bytes: shape.block_bytes,
            blocks: Blocks(bytes / u64::from(shape.block_bytes)),
            physical_block_bytes: shape.physical_block_bytes,
            optimal_bytes: shape.optimal_bytes,
            volatile_cache: true,
            discard_zeroes: shape.discard_zeroes,
            prefers_unlogged: false,
        };
        assert!(geometry.bytes() == shape.size.bytes(), "a device has all of its blocks");
        Some(Self { geometry, atomic_bytes: shape.atomic_bytes, granule_bytes: shape.granule_bytes })
    }

    fn away<T>(&self, extent: Extent) -> Result<T, IoError> {
        Err(IoError::new(IoErrorKind::Unreachable, extent))
    }
}

impl BlockDevice for AbsentDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.away(extent)
    }

    async fn write(&self, start: Lba, _data: View) -> Result<Written, IoError> {
        // The length of the extent is unknown without dividing by the block size; the start suffices for the error.
        self.away(Extent::new(start.0, 0))
    }

    async fn write_atomic(&self, start: Lba, _data: View) -> Result<Written, IoError> {
        self.away(Extent::new(start.0, 0))
    }

    fn atomic_bytes_max(&self) -> u32 {
        self.atomic_bytes
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        self.away(self.geometry.all())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.away(extent)
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        self.away(extent)
    }

    fn space(&self) -> Option<Space> {
        // Hosts see from the granule size that the volume is thin; the amounts are unknown while it is not open.
        self.granule_bytes.map(|granule_bytes| Space { mapped_bytes: 0, free_bytes: 0, granule_bytes })
    }
}
