//! Window: a contiguous range of a device's blocks, presented as a device of its own.

use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};

/// Blocks of one extent of a device, addressed from 0.
#[derive(Debug)]
pub struct Window<D> {
    device: D,
    area: Extent,
}

impl<D: BlockDevice> Window<D> {
    /// Creates a window over `area`.
    ///
    /// *Panics*: when the device ends before the area does.
    pub fn new(device: D, area: Extent) -> Self {
        assert!(device.geometry().all().contains(area), "{area} do not lie on the device");
        Self { device, area }
    }

    /// Underlying device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Position of the window on the device.
    pub fn area(&self) -> Extent {
        self.area
    }

    fn translate(&self, extent: Extent) -> Extent {
        let below = Extent { start: self.area.start + (extent.start - Lba(0)), len: extent.len };
        // A member disk holds labels, marks and catalogs beside the array's area, so an address outside is a
        // bug.
        assert!(self.area.contains(below), "what lies beside a window is not its own");
        below
    }

    /// Translates the extent of an error into the window's addresses.
    fn translate_error(&self, error: IoError) -> IoError {
        // An error may name more than the window, such as the whole device.
        let shared = self.area.intersection(error.extent);
        let start = Lba(shared.start.0.saturating_sub(self.area.start.0));
        error.at(Extent { start, len: shared.len })
    }
}

impl<D: BlockDevice> BlockDevice for Window<D> {
    fn geometry(&self) -> Geometry {
        Geometry { blocks: self.area.len, ..self.device.geometry() }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry().admit(extent)?;
        self.device.read(self.translate(extent)).await.map_err(|error| self.translate_error(error))
    }

    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry().admit(extent)?;
        self.device.read_hedged(self.translate(extent)).await.map_err(|error| self.translate_error(error))
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        self.device.write(self.translate(extent).start, data).await.map_err(|error| self.translate_error(error))
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        self.device
            .write_unlogged(self.translate(extent).start, data)
            .await
            .map_err(|error| self.translate_error(error))
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        // Covers more than the window: the cache belongs to the whole device.
        self.device.flush(after).await.map_err(|error| self.translate_error(error))
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry().admit(extent)?;
        self.device.discard(self.translate(extent)).await.map_err(|error| self.translate_error(error))
    }

    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        self.geometry().admit(extent)?;
        self.device.reserve(self.translate(extent)).await.map_err(|error| self.translate_error(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::memory::Ram;
    use block::{Blocks, Buf, IoErrorKind};
    use futures_util::FutureExt;

    #[test]
    fn window_shows_its_blocks_alone() {
        let window = Window::new(Ram::new(4096, Blocks(8)), Extent::new(2, 4));
        assert_eq!(window.geometry().blocks, Blocks(4));
        let mut block = Buf::zeroed(4096);
        block.fill(7);
        let _ = window.write(Lba(3), block.freeze()).now_or_never().unwrap().unwrap();
        let below = window.device().read(Extent::new(5, 1)).now_or_never().unwrap().unwrap();
        assert!(below == [7; 4096][..]);
        let beyond = window.read(Extent::new(3, 2)).now_or_never().unwrap().unwrap_err();
        assert_eq!(beyond.kind, IoErrorKind::OutOfRange, "the blocks behind the window are somebody else's");
        let beyond = window.write(Lba(4), Buf::zeroed(4096).freeze()).now_or_never().unwrap().unwrap_err();
        assert_eq!(beyond.kind, IoErrorKind::OutOfRange);
    }

    #[test]
    fn window_error_is_told_in_its_own_addresses() {
        let window = Window::new(Ram::new(4096, Blocks(8)), Extent::new(2, 4));
        let below = IoError::new(block::IoErrorKind::Medium, Extent::new(3, 1));
        assert_eq!(window.translate_error(below).extent, Extent::new(1, 1));
    }
}
