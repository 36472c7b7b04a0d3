//! Writes that stay in memory: what a pool is opened on whose disks may not, or cannot, be written.
//!
//! One lies directly above each disk. Until it is told otherwise it passes everything on. Then no write, flush or discard
//! reaches the disk any more: recovery runs as it always does, and what it writes is read from memory. It must never let a
//! write through once it keeps them.

use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, Stable, View, Written};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that all pools which may not be written share, on all shards of the daemon.
#[derive(Clone, Debug)]
pub struct Room {
    left_bytes: Arc<AtomicU64>,
}

impl Room {
    /// So many bytes.
    pub fn new(bytes: u64) -> Self {
        Self { left_bytes: Arc::new(AtomicU64::new(bytes)) }
    }

    /// True when the bytes were there, and are taken now.
    fn take(&self, bytes: u64) -> bool {
        let rest = |left: u64| left.checked_sub(bytes);
        self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        self.left_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// The memory that all disks of a pool share for what is not written to them. What it has taken is given back with it.
#[derive(Debug)]
pub struct Memory {
    room: Room,
    taken_bytes: Cell<u64>,
    /// True once a write found no room there.
    is_exhausted: Cell<bool>,
}

impl Memory {
    /// Of this room.
    pub fn of(room: &Room) -> Rc<Self> {
        Rc::new(Self { room: room.clone(), taken_bytes: Cell::new(0), is_exhausted: Cell::new(false) })
    }

    /// True once a write was refused because there was no room: what the pool shows may lack it.
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

/// A disk whose writes may be kept in memory.
pub struct Overlay<D> {
    device: D,
    memory: OnceCell<Rc<Memory>>,
    /// By block: what was written since.
    blocks: RefCell<BTreeMap<u64, View>>,
    /// What the disk refused a write with last, while writes went there.
    refused: Cell<Option<IoError>>,
}

impl<D: BlockDevice> Overlay<D> {
    /// The device, written as it is.
    pub fn new(device: D) -> Self {
        let (memory, blocks, refused) = Default::default();
        Self { device, memory, blocks, refused }
    }

    /// Nothing is written to the device any more. The first memory that is given stays.
    pub fn keep_in(&self, memory: &Rc<Memory>) {
        let _ = self.memory.set(memory.clone());
    }

    /// What the disk refused a write with, if it did.
    pub fn refused(&self) -> Option<IoError> {
        self.refused.get()
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    fn note<T>(&self, written: Result<T, IoError>) -> Result<T, IoError> {
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
            if !blocks.contains_key(&block) && !memory.take(size as u64) {
                // Not `NoSpace`: nobody frees this memory, and a write that waits for it would wait in vain.
                return Err(IoError::new(IoErrorKind::ReadOnly, extent));
            }
            // A copy of its own: a slice would keep all of the write in memory.
            blocks.insert(block, block::Buf::copy_of(&data.slice(at..at + size)).freeze());
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn geometry(&self) -> Geometry {
        let below = self.device.geometry();
        // What memory holds needs no flush, and a discard need not fill it.
        if self.memory.get().is_some() { Geometry { discard_zeroes: false, ..below } } else { below }
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        if self.memory.get().is_none() {
            return self.device.read(extent).await;
        }
        self.device.geometry().admit(extent)?;
        let mut whole = Rope::new();
        let mut at = extent.start.0;
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
        let Some(memory) = self.memory.get() else { return self.note(self.device.write(start, data).await) };
        let extent = self.device.geometry().extent_of(start, data.len())?;
        self.keep(memory, extent, &data).map(|()| Written::attest())
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        match self.memory.get() {
            None => self.note(self.device.write_fresh(start, data).await),
            Some(_) => self.write(start, data).await,
        }
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        match self.memory.get() {
            None => self.device.flush(after).await,
            Some(_) => Ok(Stable::attest()),
        }
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        match self.memory.get() {
            None => self.device.discard(extent).await,
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
        let room = Room::new(3 * 4096);
        let memory = Memory::of(&room);
        overlay.keep_in(&memory);
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
