//! 512-byte logical blocks over a device with 4096-byte blocks (512e emulation).

use crate::layout::BLOCK_BYTES;
use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};
use shard::RangeLocks;
use std::cell::Cell;

const SECTOR_BYTES: u32 = 512;
/// Sectors in one block of the device below.
const PER_BLOCK: u64 = (BLOCK_BYTES / SECTOR_BYTES) as u64;

/// Device with blocks of 4096 bytes, addressed in sectors of 512.
///
/// Aligned requests pass straight through. An unaligned write is a read-modify-write of the blocks at its ends,
/// serialized per block.
#[derive(Debug)]
pub struct Emulated512<D> {
    device: D,
    sectors: Cell<Blocks>,
    locks: RangeLocks,
}

/// Blocks of 4096 bytes that hold `sectors` of 512.
#[must_use]
pub fn blocks_of_sectors(sectors: Extent) -> Extent {
    let start = sectors.start.0 / PER_BLOCK;
    Extent::new(start, sectors.end().0.div_ceil(PER_BLOCK) - start)
}

impl<D: BlockDevice> Emulated512<D> {
    /// Creates the emulation over all of `device`.
    ///
    /// *Panics*: when the blocks of `device` are not of 4096 bytes.
    pub fn new(device: D) -> Self {
        let geometry = device.geometry();
        assert_eq!(geometry.block_bytes, BLOCK_BYTES, "sectors lie on blocks of 4096 bytes");
        let sectors = Cell::new(Blocks(geometry.blocks.0 * PER_BLOCK));
        Self { device, sectors, locks: RangeLocks::new() }
    }

    /// Sets the capacity to `sectors`, after growth or to hide the padding of the last block.
    ///
    /// *Panics*: when the device below is smaller.
    pub fn set_capacity(&self, sectors: Blocks) {
        assert!(
            sectors.0 <= self.device.geometry().blocks.0 * PER_BLOCK,
            "the device has less than {sectors:?} sectors"
        );
        self.sectors.set(sectors);
    }

    /// Underlying device.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Blocks below that hold `sectors`.
    fn blocks_of(sectors: Extent) -> Extent {
        blocks_of_sectors(sectors)
    }

    fn is_aligned(sectors: Extent) -> bool {
        sectors.start.0.is_multiple_of(PER_BLOCK) && sectors.len.0.is_multiple_of(PER_BLOCK)
    }

    /// Cuts `sectors` out of the blocks that hold them.
    fn cut(sectors: Extent, blocks: Rope) -> Rope {
        if Self::is_aligned(sectors) {
            return blocks;
        }
        let from = bytes(sectors.start.0 % PER_BLOCK, SECTOR_BYTES);
        blocks.slice(from..from + bytes(sectors.len.0, SECTOR_BYTES))
    }

    /// Translates the extent of an error into sectors.
    fn translate_error(&self, error: IoError) -> IoError {
        let all = self.geometry().all();
        // An error may name any blocks below; the result is limited to what this device shows.
        let told = Extent::checked(
            error.extent.start.0.saturating_mul(PER_BLOCK),
            error.extent.len.0.saturating_mul(PER_BLOCK),
        );
        error.at(told.unwrap_or(all).intersection(all))
    }

    /// Pads `data` to whole blocks with the current content of the first and last block; the caller holds their
    /// locks.
    async fn with_neighbours(&self, sectors: Extent, data: View) -> Result<View, IoError> {
        let blocks = Self::blocks_of(sectors);
        let (first, last) = (blocks.start.0, blocks.end().0 - 1);
        // Old content of the buffer does no harm: neighbors and data overwrite all of it.
        let mut whole = Buf::recycled(bytes(blocks.len.0, BLOCK_BYTES));
        let cut_first = !sectors.start.0.is_multiple_of(PER_BLOCK);
        let cut_last = !sectors.end().0.is_multiple_of(PER_BLOCK);
        // A block that is cut at both ends is read once.
        if cut_first || (cut_last && first == last) {
            self.read_into(first, &mut whole[..BLOCK_BYTES as usize]).await?;
        }
        if cut_last && first != last {
            let at = whole.len() - BLOCK_BYTES as usize;
            self.read_into(last, &mut whole[at..]).await?;
        }
        let from = bytes(sectors.start.0 % PER_BLOCK, SECTOR_BYTES);
        assert!(from + data.len() <= whole.len(), "sectors lie within their blocks");
        whole[from..from + data.len()].copy_from_slice(&data);
        Ok(whole.freeze())
    }

    async fn read_into(&self, block: u64, into: &mut [u8]) -> Result<(), IoError> {
        self.device.read(Extent::new(block, 1)).await?.copy_to(into);
        Ok(())
    }
}

fn bytes(blocks: u64, block_bytes: u32) -> usize {
    usize::try_from(Blocks(blocks).bytes(block_bytes)).expect("a request fits in memory")
}

impl<D: BlockDevice> BlockDevice for Emulated512<D> {
    fn geometry(&self) -> Geometry {
        let below = self.device.geometry();
        // The physical block stays that of the device below, so that hosts align their writes to it.
        Geometry { block_bytes: SECTOR_BYTES, blocks: self.sectors.get(), ..below }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry().admit(extent)?;
        let rope = self.device.read(Self::blocks_of(extent)).await.map_err(|error| self.translate_error(error))?;
        Ok(Self::cut(extent, rope))
    }

    // Reads served from memory stay synchronous through this layer.
    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        self.geometry().admit(extent).ok()?;
        let read = self.device.try_read(Self::blocks_of(extent))?;
        Some(read.map(|rope| Self::cut(extent, rope)).map_err(|error| self.translate_error(error)))
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        let blocks = Self::blocks_of(extent);
        let range = blocks.start.0..blocks.end().0;
        let written = if Self::is_aligned(extent) {
            // Aligned writes may run concurrently, but never with a read-modify-write of the same block.
            let _guard = self.locks.shared(range).await;
            self.device.write(blocks.start, data).await
        } else {
            // Held until the block is written, so that no other write of it is lost between read and write.
            let _guard = self.locks.exclusive(range).await;
            match self.with_neighbours(extent, data).await {
                Ok(whole) => self.device.write(blocks.start, whole).await,
                Err(error) => Err(error),
            }
        };
        written.map_err(|error| self.translate_error(error))
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        let blocks = Self::blocks_of(extent);
        // Exclusive also when aligned: no read-modify-write may see half of an atomic write.
        let _guard = self.locks.exclusive(blocks.start.0..blocks.end().0).await;
        let whole = if Self::is_aligned(extent) { Ok(data) } else { self.with_neighbours(extent, data).await };
        let written = match whole {
            Ok(whole) => self.device.write_atomic(blocks.start, whole).await,
            Err(error) => Err(error),
        };
        written.map_err(|error| self.translate_error(error))
    }

    /// One block less than the device below: unaligned data touches one more block.
    fn atomic_bytes_max(&self) -> u32 {
        self.device.atomic_bytes_max().saturating_sub(BLOCK_BYTES)
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        self.device.flush(after).await.map_err(|error| self.translate_error(error))
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry().admit(extent)?;
        // Only whole blocks can be discarded; partial ones are zeroed where the device promises zeros after a
        // discard.
        let first = extent.start.0.div_ceil(PER_BLOCK);
        let end = extent.end().0 / PER_BLOCK;
        if first >= end {
            return self.clear(extent).await;
        }
        let head = Extent::new(extent.start.0, first * PER_BLOCK - extent.start.0);
        let tail = Extent::new(end * PER_BLOCK, extent.end().0 - end * PER_BLOCK);
        // A read-modify-write that has read a block must not write it back after the discard.
        let guard = self.locks.exclusive(first..end).await;
        let whole =
            self.device.discard(Extent::new(first, end - first)).await.map_err(|error| self.translate_error(error))?;
        drop(guard);
        Ok(whole.and(self.clear(head).await?).and(self.clear(tail).await?))
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        self.geometry().admit(extent)?;
        let below = self.device.run(Self::blocks_of(extent)).await.map_err(|error| self.translate_error(error))?;
        // Runs are known per block, so the result is cut to the sectors asked for.
        let sectors = Extent::new(below.extent.start.0 * PER_BLOCK, below.extent.len.0 * PER_BLOCK);
        Ok(Run { extent: sectors.intersection(extent), ..below })
    }

    fn space(&self) -> Option<Space> {
        self.device.space()
    }
}

impl<D: BlockDevice> Emulated512<D> {
    /// Zeroes sectors of a partial block, if discarded blocks of the device read as zeros.
    async fn clear(&self, sectors: Extent) -> Result<Written, IoError> {
        if sectors.is_empty() || !self.device.geometry().discard_zeroes {
            return Ok(Written::attest());
        }
        self.write(sectors.start, View::zeroed(bytes(sectors.len.0, SECTOR_BYTES))).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::memory::Ram;
    use futures_util::FutureExt;
    use proptest::prelude::*;

    fn now<T>(future: impl Future<Output = Result<T, IoError>>) -> T {
        future.now_or_never().expect("memory answers at once").expect("the request is good")
    }

    proptest! {
        #[test]
        fn sectors_hold_what_was_written_last(
            writes in prop::collection::vec((0u64..60, 1u64..20, any::<u8>(), any::<bool>()), 1..24),
        ) {
            let device = Emulated512::new(Ram::new(4096, Blocks(8)));
            device.set_capacity(Blocks(61));
            let mut flat = vec![0_u8; 61 * 512];
            for (start, len, fill, discard) in writes {
                let len = len.min(61 - start);
                let here = start as usize * 512..(start + len) as usize * 512;
                if discard {
                    let _ = now(device.discard(Extent::new(start, len)));
                    let zeroes = device.geometry().discard_zeroes;
                    prop_assert!(zeroes, "the model below counts on it");
                    flat[here].fill(0);
                } else {
                    let mut data = Buf::zeroed(here.len());
                    data.fill(fill);
                    let _ = now(device.write(Lba(start), data.freeze()));
                    flat[here].fill(fill);
                }
            }
            prop_assert!(now(device.read(Extent::new(0, 61))) == flat[..]);
            prop_assert!(now(device.read(Extent::new(7, 11))) == flat[7 * 512..18 * 512]);
        }
    }

    #[test]
    fn sectors_behind_the_shown_ones_are_refused() {
        let device = Emulated512::new(Ram::new(4096, Blocks(8)));
        device.set_capacity(Blocks(61));
        let refused = device.read(Extent::new(60, 2)).now_or_never().unwrap();
        assert_eq!(refused.unwrap_err().kind, block::IoErrorKind::OutOfRange);
        device.set_capacity(Blocks(64));
        assert!(device.read(Extent::new(60, 4)).now_or_never().unwrap().is_ok());
    }

    #[test]
    fn sectors_of_one_block_written_at_once_are_all_kept() {
        use crate::tests::disk::{SimDisk, block_on};
        let device = Emulated512::new(SimDisk::slow(16));
        let writes = (0..8).map(|sector| {
            let mut data = Buf::zeroed(512);
            data.fill(sector as u8 + 1);
            device.write(Lba(sector), data.freeze())
        });
        let written = block_on(futures_util::future::join_all(writes));
        assert!(written.iter().all(Result::is_ok));
        let block = block_on(device.read(Extent::new(0, 8))).unwrap().into_view();
        assert!((0..8).all(|sector| block[sector * 512] == sector as u8 + 1), "a read-modify-write lost its neighbour");
    }
}
