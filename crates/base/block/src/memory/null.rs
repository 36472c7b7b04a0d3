//! Null device for measurements of the software above it: writes are discarded, reads return zeros.

use super::geometry;
use crate::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use std::cell::Cell;

/// Size of the zero buffer that all reads share, in bytes.
const ZERO_BYTES: usize = 1 << 20;

thread_local! {
    /// Zero buffer of a shard, shared by all of its devices: there may be a thousand of them.
    static ZEROS: View = Buf::resident(ZERO_BYTES).freeze();
}

/// Device that reads as zeros without copying and discards what is written.
#[derive(Debug)]
pub struct Null {
    geometry: Cell<Geometry>,
    zeros: View,
}

impl Null {
    /// Returns a device of `blocks` blocks of `block_bytes` (512 or 4096).
    #[must_use]
    pub fn new(block_bytes: u32, blocks: Blocks) -> Self {
        Self { geometry: Cell::new(geometry(block_bytes, blocks)), zeros: ZEROS.with(View::clone) }
    }

    /// Grows the device to `blocks` blocks.
    ///
    /// *Panics*: when it would shrink.
    pub fn grow(&self, blocks: Blocks) {
        self.geometry.set(super::grown(self.geometry.get(), blocks));
    }

    fn zeros_of(&self, extent: Extent) -> Result<Rope, IoError> {
        let geometry = self.geometry.get();
        geometry.admit(extent)?;
        let mut missing = extent.len.bytes(geometry.block_bytes);
        // Common case in one piece; longer reads repeat the same view.
        if missing <= ZERO_BYTES as u64 {
            return Ok(self.zeros.slice(..usize::try_from(missing).expect("at most one view")).into());
        }
        let mut rope = Rope::new();
        while missing > 0 {
            let here = missing.min(ZERO_BYTES as u64);
            rope.push(self.zeros.slice(..usize::try_from(here).expect("at most one view")));
            missing -= here;
        }
        Ok(rope)
    }

    fn swallow(&self, start: Lba, data: &[u8]) -> Result<Written, IoError> {
        // Only the bounds are checked.
        // A write that a real disk would refuse must not succeed in a measurement.
        self.geometry.get().extent_of(start, data.len())?;
        Ok(Written::attest())
    }
}

impl BlockDevice for Null {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.zeros_of(extent)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.swallow(start, &data)
    }

    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        Some(self.zeros_of(extent))
    }

    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        Some(self.swallow(start, data))
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry.get().admit(extent)?;
        Ok(Written::attest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoErrorKind, memory::tests::now};

    #[test]
    fn null_reads_zeros_of_the_asked_length_without_copying() {
        let null = Null::new(512, Blocks(1 << 20));
        let rope = now(null.read(Extent::new(8, 5000))).expect("on the device");
        assert_eq!(rope.len(), 5000 * 512);
        assert!(rope.parts().all(|part| part.iter().all(|&byte| byte == 0)));
        assert_eq!(rope.parts().next().map(|part| part.as_ptr()), Some(null.zeros.as_ptr()));
    }

    #[test]
    fn null_refuses_what_is_not_on_it() {
        let null = Null::new(4096, Blocks(8));
        let error = now(null.read(Extent::new(8, 1))).expect_err("behind the end");
        assert_eq!(error.kind, IoErrorKind::OutOfRange);
        let error = now(null.write(Lba(0), View::zeroed(100))).expect_err("no whole block");
        assert_eq!(error.kind, IoErrorKind::OutOfRange);
    }
}
