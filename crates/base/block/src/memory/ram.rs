//! RAM disk: sparse, and read without copying.

use super::geometry;
use crate::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, Lba, Rope, Run, Stable, View, Written};
use simd::memory::copy_past_caches;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Limit of an atomic write in bytes.
const ATOMIC_BYTES_MAX: u32 = 1 << 20;
/// Limit of slabs that one [`BlockDevice::run`] scans.
const RUN_SLABS_MAX: usize = 1 << 16;
/// Allocation unit in bytes.
const SLAB_BYTES: usize = 64 << 10;
/// Size up to which a disk is written through the CPU caches. A larger one bypasses them with streaming stores, so that
/// it does not evict everything else, and its reads are prefetched.
const CACHED_BYTES_MAX: u64 = 32 << 20;
/// Slabs per directory: 32 MiB.
const DIRECTORY_SLABS: usize = 512;

thread_local! {
    /// Zero slab of a shard, shared by all of its disks: there may be a thousand of them.
    static ZEROS: View = Buf::resident(SLAB_BYTES).freeze();
}

/// Disk that keeps its data in memory until it is dropped.
///
/// A read shares the slabs that it finds. A write changes a slab in place when no reader holds it; otherwise it
/// replaces the slab by a changed copy (copy-on-write).
#[derive(Debug)]
pub struct Ram {
    geometry: Cell<Geometry>,
    directories: RefCell<Vec<Option<Box<Directory>>>>,
    zeros: View,
}

/// Slabs of one directory; an empty view is an unwritten slab.
#[derive(Debug)]
struct Directory([View; DIRECTORY_SLABS]);

/// Part of a slab: index of the slab, and a byte range in it.
struct Piece {
    slab: usize,
    range: Range<usize>,
}

impl Ram {
    /// Returns a zeroed disk of `blocks` blocks of `block_bytes` (512 or 4096). Memory is allocated on write.
    #[must_use]
    pub fn new(block_bytes: u32, blocks: Blocks) -> Self {
        let geometry = geometry(block_bytes, blocks);
        let directories = RefCell::new((0..directory_count(&geometry)).map(|_| None).collect());
        Self { geometry: Cell::new(geometry), directories, zeros: ZEROS.with(View::clone) }
    }

    /// Grows the disk to `blocks` blocks; new blocks read as zeros.
    ///
    /// *Panics*: when it would shrink.
    pub fn grow(&self, blocks: Blocks) {
        let geometry = super::grown(self.geometry.get(), blocks);
        let count = directory_count(&geometry);
        self.geometry.set(geometry);
        // Existing slabs stay in place: only directories are added.
        self.directories.borrow_mut().resize_with(count, || None);
    }

    /// Bytes of memory that the disk holds.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let directories = self.directories.borrow();
        let slabs = directories.iter().flatten().flat_map(|directory| &directory.0);
        slabs.filter(|slab| !slab.is_empty()).count() * SLAB_BYTES
    }

    /// Splits `len` bytes from block `start` into pieces, in order.
    fn pieces(&self, start: Lba, len: usize) -> impl Iterator<Item = Piece> + use<> {
        let first = Blocks(start.0).bytes(self.geometry.get().block_bytes);
        let mut at = usize::try_from(first).expect("memory is addressable");
        let end = at + len;
        // Borrows nothing: callers change the directories while they iterate.
        std::iter::from_fn(move || {
            let from = at % SLAB_BYTES;
            let here = (SLAB_BYTES - from).min(end - at);
            let slab = at / SLAB_BYTES;
            at += here;
            (here > 0).then_some(Piece { slab, range: from..from + here })
        })
    }

    /// Returns the content of `extent`, sharing its slabs.
    fn share(&self, extent: Extent) -> Result<Rope, IoError> {
        self.geometry.get().admit(extent)?;
        let past_caches = self.passes_caches();
        let directories = self.directories.borrow();
        let mut rope = Rope::new();
        for piece in self.pieces(extent.start, self.bytes_of(extent)) {
            let directory = directories[piece.slab / DIRECTORY_SLABS].as_ref();
            let slab = directory.map(|directory| &directory.0[piece.slab % DIRECTORY_SLABS]);
            // Unallocated slabs read as zeros.
            let slab = slab.filter(|slab| !slab.is_empty()).unwrap_or(&self.zeros);
            let view = slab.slice(piece.range);
            // The data does not fit into the caches: it is fetched while the response is prepared.
            if past_caches {
                view.prefetch();
            }
            rope.push(view);
        }
        Ok(rope)
    }

    /// Copies `data` into its slabs.
    fn keep(&self, start: Lba, data: &[u8]) -> Result<Written, IoError> {
        self.geometry.get().extent_of(start, data.len())?;
        let past_caches = self.passes_caches();
        let mut directories = self.directories.borrow_mut();
        let mut done = 0;
        for piece in self.pieces(start, data.len()) {
            let directory = directories[piece.slab / DIRECTORY_SLABS].get_or_insert_with(Directory::new);
            let slab = &mut directory.0[piece.slab % DIRECTORY_SLABS];
            let here = piece.range.len();
            // Taken out of the directory: the disk's own reference would otherwise make every slab look shared.
            let old = std::mem::take(slab);
            // New storage is zeroed: the bytes of the slab outside of the piece read as zeros.
            let mut buf = if old.is_empty() { Buf::storage(SLAB_BYTES) } else { writable(old) };
            let (into, from) = (buf.part_mut(piece.range), &data[done..done + here]);
            // Data of large disks would only evict the caches.
            if past_caches {
                copy_past_caches(into, from)
            } else {
                into.copy_from_slice(from)
            }
            // Put back without an await in between, so no reader finds the slab missing.
            *slab = buf.freeze();
            done += here;
        }
        Ok(Written::attest())
    }

    /// True when the disk is larger than the CPU caches.
    fn passes_caches(&self) -> bool {
        self.geometry.get().bytes() > CACHED_BYTES_MAX
    }

    fn bytes_of(&self, extent: Extent) -> usize {
        usize::try_from(extent.len.bytes(self.geometry.get().block_bytes)).expect("memory is addressable")
    }
}

/// Returns the slab for writing: the old one when no reader holds it, else a copy.
fn writable(slab: View) -> Buf {
    slab.try_into_buf().unwrap_or_else(|slab| {
        let mut copy = Buf::storage(SLAB_BYTES);
        copy.copy_from_slice(&slab);
        copy
    })
}

fn directory_count(geometry: &Geometry) -> usize {
    let directory_bytes = (SLAB_BYTES * DIRECTORY_SLABS) as u64;
    usize::try_from(geometry.bytes().div_ceil(directory_bytes)).expect("memory is addressable")
}

impl Directory {
    fn new() -> Box<Self> {
        Box::new(Self(std::array::from_fn(|_| View::default())))
    }
}

impl BlockDevice for Ram {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.share(extent)
    }

    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        Some(self.share(extent))
    }

    /// Atomic as it is: nothing survives the process, and a write is done without awaiting.
    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.keep(start, &data)
    }

    fn atomic_bytes_max(&self) -> u32 {
        ATOMIC_BYTES_MAX
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.keep(start, &data)
    }

    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        Some(self.keep(start, data))
    }

    async fn flush(&self, _after: Written) -> Result<Stable, IoError> {
        Ok(Stable::attest())
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.geometry.get().admit(extent)?;
        let mut directories = self.directories.borrow_mut();
        for piece in self.pieces(extent.start, self.bytes_of(extent)) {
            let Some(directory) = &mut directories[piece.slab / DIRECTORY_SLABS] else { continue };
            let slab = &mut directory.0[piece.slab % DIRECTORY_SLABS];
            if slab.is_empty() {
                continue;
            }
            let old = std::mem::take(slab);
            // A slab that is discarded as a whole is freed; a part of one is only zeroed.
            if piece.range.len() < SLAB_BYTES {
                let mut buf = writable(old);
                buf.part_mut(piece.range).fill(0);
                *slab = buf.freeze();
            }
        }
        Ok(Written::attest())
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        self.geometry.get().admit(extent)?;
        let directories = self.directories.borrow();
        let is_held = |slab: usize| {
            let directory = directories[slab / DIRECTORY_SLABS].as_ref();
            directory.is_some_and(|directory| !directory.0[slab % DIRECTORY_SLABS].is_empty())
        };
        // Bounds the time of one call; the trait allows a run to end early.
        let mut pieces = self.pieces(extent.start, self.bytes_of(extent)).take(RUN_SLABS_MAX).peekable();
        let mapped = pieces.peek().is_some_and(|piece| is_held(piece.slab));
        let alike = pieces.take_while(|piece| is_held(piece.slab) == mapped);
        let bytes: usize = alike.map(|piece| piece.range.len()).sum();
        // A slab holds whole blocks, so the division is exact.
        let len = Blocks(bytes as u64 / u64::from(self.geometry.get().block_bytes));
        Ok(Run { extent: Extent { len, ..extent }, mapped })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoErrorKind, memory::tests::now, pool::taken_here};
    use proptest::prelude::*;

    const BLOCKS: u64 = 3 * (SLAB_BYTES as u64) / 512 + 5;

    fn filled(blocks: u64, byte: u8) -> View {
        let mut buf = Buf::zeroed(blocks as usize * 512);
        buf.fill(byte);
        buf.freeze()
    }

    proptest! {
        #[test]
        fn ram_reads_what_a_plain_array_would_hold(
            steps in prop::collection::vec((0..BLOCKS, 1..200u64, 0..3u8, 1..=255u8), 1..40),
        ) {
            let ram = Ram::new(512, Blocks(BLOCKS));
            let mut plain = vec![0u8; BLOCKS as usize * 512];
            let mut readers = Vec::new();
            for (start, len, kind, byte) in steps {
                let extent = Extent::new(start, len.min(BLOCKS - start));
                let bytes = start as usize * 512..extent.end().0 as usize * 512;
                match kind {
                    0 => {
                        let _: Written = now(ram.write(extent.start, filled(extent.len.0, byte))).expect("on the disk");
                        plain[bytes].fill(byte);
                    }
                    1 => {
                        let _: Written = now(ram.discard(extent)).expect("on the disk");
                        plain[bytes].fill(0);
                    }
                    _ => readers.push((now(ram.read(extent)).expect("on the disk"), plain[bytes].to_vec())),
                }
            }
            for (rope, expected) in readers {
                prop_assert!(rope == expected[..], "a reader's bytes never change under it");
            }
        }
    }

    #[test]
    fn ram_takes_memory_when_written_and_gives_it_back_when_discarded() {
        let ram = Ram::new(4096, Blocks(1 << 28));
        assert_eq!(ram.held_bytes(), 0);
        let _: Written = now(ram.write(Lba(1 << 27), View::zeroed(SLAB_BYTES))).expect("on the disk");
        assert_eq!(ram.held_bytes(), SLAB_BYTES);
        let _: Written = now(ram.discard(Extent::new(0, 1 << 28))).expect("on the disk");
        assert_eq!(ram.held_bytes(), 0);
    }

    #[test]
    fn ram_tells_which_blocks_take_memory() {
        let ram = Ram::new(512, Blocks(BLOCKS));
        let slab = SLAB_BYTES as u64 / 512;
        let _: Written = now(ram.write(Lba(slab + 3), filled(1, 0))).expect("on the disk");
        let run = |start| {
            let run = now(ram.run(Extent::new(start, BLOCKS - start))).expect("on the disk");
            (run.extent.start.0, run.extent.len.0, run.mapped)
        };
        assert_eq!(run(0), (0, slab, false));
        assert_eq!(run(7), (7, slab - 7, false));
        assert_eq!(run(slab), (slab, slab, true));
        assert_eq!(run(2 * slab - 1), (2 * slab - 1, 1, true));
        assert_eq!(run(2 * slab), (2 * slab, BLOCKS - 2 * slab, false));
    }

    #[test]
    fn ram_holds_no_buffers_of_commands() {
        let ram = Ram::new(512, Blocks(BLOCKS));
        let whole = Extent::new(0, BLOCKS);
        let written = |write: Result<Written, IoError>| drop(write.expect("on the disk"));
        written(now(ram.write(Lba(0), filled(BLOCKS, 1))));
        // A reader keeps the old bytes, so the slab changed below it is a copy, which must be resident memory again.
        for change in [Extent::new(3, 5), Extent::new(100, 200)] {
            let reader = now(ram.read(whole)).expect("on the disk");
            written(now(ram.discard(change)));
            written(now(ram.write(change.start, filled(1, 2))));
            drop(reader);
        }
        assert_eq!(taken_here(), 0);
    }

    #[test]
    fn ram_refuses_what_is_not_on_it() {
        let ram = Ram::new(512, Blocks(8));
        let error = now(ram.write(Lba(7), View::zeroed(1024))).expect_err("passes the end");
        assert_eq!(error.kind, IoErrorKind::OutOfRange);
    }
}
