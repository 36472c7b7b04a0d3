//! Copy-on-write overlay: keeps the writes of a read-only pool in memory.
//!
//! One lies directly above each disk. Until it is switched on it passes everything through. Then no write, flush or
//! discard reaches the disk: recovery runs as usual, and its writes are read back from memory
//! (`docs/adr/0018-pools-that-are-read-only.md`). It must never let a write through once it keeps them.

use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, Stable, View, Written};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory budget that all read-only pools share, on all shards of the daemon.
#[derive(Clone, Debug)]
pub struct OverlayBudget {
    left_bytes: Arc<AtomicU64>,
}

impl OverlayBudget {
    /// Creates a budget of `bytes`.
    pub fn new(bytes: u64) -> Self {
        Self { left_bytes: Arc::new(AtomicU64::new(bytes)) }
    }

    /// Takes bytes from the budget; false if they are not left.
    fn take(&self, bytes: u64) -> bool {
        // A request is granted in full or not at all.
        let rest = |left: u64| left.checked_sub(bytes);
        // Relaxed: the counter guards no other memory.
        self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.left_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Memory that the overlays of one pool share. Dropping it returns its bytes to the budget.
#[derive(Debug)]
pub struct Memory {
    room: OverlayBudget,
    taken_bytes: Cell<u64>,
    /// True once a write found the budget exhausted.
    is_exhausted: Cell<bool>,
}

impl Memory {
    /// Creates the memory of a pool within the budget `room`.
    pub fn of(room: &OverlayBudget) -> Rc<Self> {
        Rc::new(Self { room: room.clone(), taken_bytes: Cell::new(0), is_exhausted: Cell::new(false) })
    }

    /// True once a write was refused for lack of memory. The content that the pool shows may then be incomplete.
    pub fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    fn take(&self, bytes: u64) -> bool {
        let is_there = self.room.take(bytes);
        if is_there {
            self.taken_bytes.set(self.taken_bytes.get() + bytes);
        } else {
            self.is_exhausted.set(true);
        }
        is_there
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.room.give_back(self.taken_bytes.get());
    }
}

/// A disk whose writes can be kept in memory.
pub struct Overlay<D> {
    device: D,
    memory: OnceCell<Rc<Memory>>,
    /// Blocks written since the overlay was switched on, by block number.
    blocks: RefCell<BTreeMap<u64, View>>,
    /// Error of the last write that the disk refused, while writes still reached it.
    refused: Cell<Option<IoError>>,
}

impl<D: BlockDevice> Overlay<D> {
    /// Creates an overlay that passes everything through.
    pub fn new(device: D) -> Self {
        let (memory, blocks, refused) = Default::default();
        Self { device, memory, blocks, refused }
    }

    /// Switches the overlay on: nothing is written to the device from now on. A second call has no effect.
    pub fn divert_writes(&self, memory: &Rc<Memory>) {
        let _ = self.memory.set(memory.clone());
    }

    /// Error with which the disk refused a write, if it did.
    pub fn refused(&self) -> Option<IoError> {
        self.refused.get()
    }

    /// Device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    fn note<T>(&self, written: Result<T, IoError>) -> Result<T, IoError> {
        // `Gone` is a disk that was lost, not one that refuses writes.
        if let Err(error) = &written
            && error.kind != IoErrorKind::Gone
        {
            self.refused.set(Some(*error));
        }
        written
    }

    fn keep(&self, memory: &Memory, extent: Extent, data: &View) -> Result<(), IoError> {
        let size = self.device.geometry().block_bytes as usize;
        assert_eq!(data.len() as u64, extent.len.0 * size as u64, "data fills its extent");
        let mut blocks = self.blocks.borrow_mut();
        for (block, at) in (extent.start.0..extent.end().0).zip((0..).step_by(size)) {
            // A block that is overwritten takes no further memory.
            if !blocks.contains_key(&block) && !memory.take(size as u64) {
                // Not `NoSpace`: this memory is never freed while the pool is open, so a write that waited for space
                // would wait forever.
                return Err(IoError::new(IoErrorKind::ReadOnly, extent));
            }
            // A copy, because a slice would keep the buffer of the whole write alive.
            blocks.insert(block, block::Buf::copy_of(&data.slice(at..at + size)).freeze());
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn geometry(&self) -> Geometry {
        let below = self.device.geometry();
        // A discard is ignored while writes are kept, so it cannot promise zeros.
        if self.memory.get().is_some() { Geometry { discard_zeroes: false, ..below } } else { below }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        if self.memory.get().is_none() {
            return self.device.read(extent).await;
        }
        // Bounds first: the device sees only the parts that are not in memory.
        self.device.geometry().admit(extent)?;
        let mut whole = Rope::new();
        let mut at = extent.start.0;
        // Alternate between the next block in memory and the run of blocks on the disk before it.
        while at < extent.end().0 {
            let kept =
                self.blocks.borrow().range(at..extent.end().0).next().map(|(block, view)| (*block, view.clone()));
            let end = kept.as_ref().map_or(extent.end().0, |(block, _)| *block);
            if end > at {
                whole.append(self.device.read(Extent::new(at, end - at)).await?);
            }
            if let Some((_, view)) = kept {
                whole.push(view);
                at = end + 1;
            } else {
                at = end;
            }
        }
        let bytes = extent.len.bytes(self.device.geometry().block_bytes);
        assert_eq!(whole.len() as u64, bytes, "what memory and the disk have is all of a read");
        Ok(whole)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        // Refusals are noted only while writes reach the disk: they tell whether it can be opened for writing.
        let Some(memory) = self.memory.get() else { return self.note(self.device.write(start, data).await) };
        let extent = self.device.geometry().extent_of(start, data.len())?;
        self.keep(memory, extent, &data).map(|()| Written::attest())
    }

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        match self.memory.get() {
            None => self.note(self.device.write_unlogged(start, data).await),
            Some(_) => self.write(start, data).await,
        }
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        match self.memory.get() {
            None => self.device.flush(after).await,
            // Recovery waits for its flushes; hosts cannot write, so nothing durable is promised to them.
            Some(_) => Ok(Stable::attest()),
        }
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        match self.memory.get() {
            None => self.device.discard(extent).await,
            // The content after a discard is undefined without `discard_zeroes`, so nothing needs to be recorded.
            Some(_) => Ok(Written::attest()),
        }
    }

    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        match self.memory.get() {
            None => self.device.reserve(extent).await,
            Some(_) => Ok(()),
        }
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        self.device.run(extent).await
    }

    fn space(&self) -> Option<Space> {
        self.device.space()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::memory::Ram;
    use block::{Blocks, Buf};
    use futures_util::FutureExt;

    fn filled(byte: u8, blocks: usize) -> View {
        let mut buf = Buf::zeroed(blocks * 4096);
        buf.fill(byte);
        buf.freeze()
    }

    fn read(device: &impl BlockDevice, extent: Extent) -> Vec<u8> {
        device.read(extent).now_or_never().unwrap().unwrap().into_view().to_vec()
    }

    #[test]
    fn overlay_shows_what_was_written_and_leaves_the_disk_as_it_is() {
        let overlay = Overlay::new(Ram::new(4096, Blocks(8)));
        let _ = overlay.write(Lba(0), filled(1, 8)).now_or_never().unwrap().unwrap();
        let room = OverlayBudget::new(3 * 4096);
        let memory = Memory::of(&room);
        overlay.divert_writes(&memory);
        let _ = overlay.write(Lba(2), filled(2, 2)).now_or_never().unwrap().unwrap();
        let _ = overlay.write(Lba(3), filled(3, 1)).now_or_never().unwrap().unwrap();
        let seen = read(&overlay, Extent::new(1, 4));
        assert_eq!(seen.chunks(4096).map(|block| block[0]).collect::<Vec<_>>(), [1, 2, 3, 1]);
        let _ = overlay.discard(Extent::new(0, 8)).now_or_never().unwrap().unwrap();
        let _ = overlay.flush(Written::attest()).now_or_never().unwrap().unwrap();
        assert!(read(overlay.device(), Extent::new(0, 8)).iter().all(|&byte| byte == 1), "nothing was written below");
        let _ = overlay.write(Lba(7), filled(4, 1)).now_or_never().unwrap().unwrap();
        assert!(!memory.is_exhausted());
        let full = overlay.write(Lba(6), filled(4, 1)).now_or_never().unwrap().unwrap_err();
        assert_eq!((full.kind, memory.is_exhausted()), (IoErrorKind::ReadOnly, true), "the memory is bounded");
        assert!(!room.take(1));
        drop((overlay, memory));
        assert!(room.take(3 * 4096), "it is there for the next one");
    }
}
