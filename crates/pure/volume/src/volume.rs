//! Segmented (thick) volume as a block device: blocks of 4096 bytes, striped over the groups of its pool.

mod initialise;

use crate::layout::BLOCK_BYTES;
use crate::map::{Map, Piece};
use crate::pool::{Shared, WriteGate};
use crate::usage::{Operation, Usage};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use futures_util::future::{join_all, try_join_all};
use shard::RangeLocks;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uuid::Uuid;

/// Open volume: a device with blocks of 4096 bytes.
///
/// When its size is not a whole number of blocks, the rest of its last block reads as zeros and
/// [`Emulated512`](crate::Emulated512) hides it. Unwritten slabs read as zeros; the first write to a slab zeroes it and
/// commits that.
pub struct Volume<D, G> {
    shared: Rc<Shared<D, G>>,
    id: Uuid,
    map: RefCell<Map>,
    /// Groups that hold parts of it, each once.
    groups: RefCell<SmallVec<[u16; 8]>>,
    geometry: Cell<Geometry>,
    size_bytes: Cell<u64>,
    block_bytes: u32,
    /// Range locks of slabs being initialized, numbered as in [`initialise`].
    filling: RangeLocks,
    usage: Usage,
}

type Pieces = SmallVec<[Piece; 4]>;

impl<D: BlockDevice + 'static, G: BlockDevice> Volume<D, G> {
    /// Opens the volume `id` of the catalog, all of whose changes are committed.
    pub(crate) fn open(shared: Rc<Shared<D, G>>, id: Uuid) -> Option<Self> {
        let slab_blocks = shared.slab_blocks();
        let (map, size_bytes, block_bytes) = shared.store.with_catalog(|catalog| {
            let record = catalog.volume(id)?;
            Some((Map::of(&record.segments, &slab_blocks), record.size_bytes, record.block_bytes))
        })?;
        let groups = map.groups();
        let geometry = Cell::new(geometry(&shared, &map, &groups, size_bytes));
        Some(Self {
            shared,
            id,
            map: RefCell::new(map),
            groups: RefCell::new(groups),
            geometry,
            size_bytes: Cell::new(size_bytes),
            block_bytes,
            filling: RangeLocks::new(),
            usage: Usage::default(),
        })
    }

    /// UUID of the volume.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Size in bytes as hosts see it.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.get()
    }

    /// Logical block size as hosts see it: 512 or 4096 bytes.
    pub fn logical_block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Grows the open volume to `size_bytes`; the catalog has its segments already.
    pub(crate) fn grow(&self, size_bytes: u64) {
        let slab_blocks = self.shared.slab_blocks();
        self.shared.store.with_catalog(|catalog| {
            if let Some(record) = catalog.volume(self.id) {
                self.map.borrow_mut().grow(&record.segments, &slab_blocks);
            }
        });
        // Concurrent resizes may call this out of order; the volume never shrinks.
        let size_bytes = self.size_bytes.get().max(size_bytes);
        self.size_bytes.set(size_bytes);
        let map = self.map.borrow();
        let groups = map.groups();
        self.geometry.set(geometry(&self.shared, &map, &groups, size_bytes));
        *self.groups.borrow_mut() = groups;
    }

    /// Closes the volume: waits for operations in flight and rejects later ones.
    pub(crate) async fn close(&self) {
        self.usage.close().await;
    }

    fn enter(&self, extent: Extent) -> Result<Operation<'_>, IoError> {
        // After `close` the slabs may belong to another volume, so no operation may start.
        let operation = self.usage.enter().ok_or(IoError::new(IoErrorKind::Gone, extent))?;
        self.geometry().admit(extent)?;
        Ok(operation)
    }

    fn pieces(&self, extent: Extent) -> Pieces {
        // Collected, so that the map is not borrowed during an await.
        self.map.borrow().pieces(extent).collect()
    }

    fn gate(&self, piece: &Piece) -> &WriteGate<G> {
        self.shared.gate(piece.group)
    }

    async fn read_piece(&self, piece: Piece) -> Result<Rope, IoError> {
        // The slab may still hold data of another volume, so it is not read.
        if !piece.initialised {
            return Ok(View::zeroed(bytes(piece.extent.len)).into());
        }
        self.gate(&piece).device().read(piece.extent).await.map_err(|error| piece.translate_error(error))
    }

    async fn write_piece(&self, piece: Piece, data: View) -> Result<Written, IoError> {
        assert_eq!(data.len(), bytes(piece.extent.len), "data fills its piece");
        if !piece.initialised {
            // The slab must be zeroed durably and recorded before the first write to it.
            self.initialise(piece.slab).await.map_err(|error| piece.translate_error(error))?;
        }
        // Held until the write has ended: the catalog must call the group dirty all the time.
        let writing = self.shared.start_write(piece.group).await.map_err(|_| piece.refused())?;
        let written = self.gate(&piece).device().write(piece.extent.start, data).await;
        drop(writing);
        written.map_err(|error| piece.translate_error(error))
    }

    async fn discard_piece(&self, piece: Piece) -> Result<Written, IoError> {
        // An uninitialized slab reads as zeros already, which is all that a discard promises.
        if !piece.initialised {
            return Ok(Written::attest());
        }
        let writing = self.shared.start_write(piece.group).await.map_err(|_| piece.refused())?;
        let written = self.gate(&piece).device().discard(piece.extent).await;
        drop(writing);
        written.map_err(|error| piece.translate_error(error))
    }
}

/// Geometry of a volume of `size_bytes` on `groups`.
fn geometry<D, G: BlockDevice>(shared: &Shared<D, G>, map: &Map, groups: &[u16], size_bytes: u64) -> Geometry {
    let below = || groups.iter().map(|&group| shared.gate(group).device().geometry());
    let stripe_bytes = below().map(|geometry| geometry.optimal_bytes).max().unwrap_or(BLOCK_BYTES);
    // On several groups a full round of all columns is the optimal write size, otherwise a full stripe.
    let turns = map.round_blocks().filter(|_| groups.len() > 1).map(|blocks| blocks * u64::from(BLOCK_BYTES));
    Geometry {
        block_bytes: BLOCK_BYTES,
        blocks: Blocks(size_bytes.div_ceil(u64::from(BLOCK_BYTES))),
        physical_block_bytes: BLOCK_BYTES,
        optimal_bytes: turns.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(stripe_bytes),
        // The volume promises what all of its groups do.
        volatile_cache: below().any(|geometry| geometry.volatile_cache),
        discard_zeroes: below().all(|geometry| geometry.discard_zeroes),
        prefers_unlogged: false,
    }
}

impl Piece {
    /// Translates the extent of a group's error into the volume's addresses.
    fn translate_error(&self, error: IoError) -> IoError {
        let shared = self.extent.intersection(error.extent);
        // An error elsewhere in the group, such as one of a stripe's other blocks, counts for the whole piece.
        if shared.is_empty() {
            return error.at(Extent { start: self.start, len: self.extent.len });
        }
        error.at(Extent { start: self.start + (shared.start - self.extent.start), len: shared.len })
    }

    /// Error of a write that could not start because the catalog accepts no more changes.
    fn refused(&self) -> IoError {
        IoError::new(IoErrorKind::ReadOnly, Extent { start: self.start, len: self.extent.len })
    }
}

fn bytes(blocks: Blocks) -> usize {
    usize::try_from(blocks.bytes(BLOCK_BYTES)).expect("a request fits in memory")
}

/// Combines the results of all parts. Every part has ended, even when one failed: no write continues after the
/// answer.
fn all_written(parts: Vec<Result<Written, IoError>>) -> Result<Written, IoError> {
    parts.into_iter().try_fold(Written::attest(), |all, part| Ok(all.and(part?)))
}

impl<D: BlockDevice + 'static, G: BlockDevice> BlockDevice for Volume<D, G> {
    fn geometry(&self) -> Geometry {
        self.geometry.get()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let _operation = self.enter(extent)?;
        let pieces = self.pieces(extent);
        if let [piece] = pieces[..] {
            return self.read_piece(piece).await;
        }
        // Reads may be abandoned at the first error; writes may not, see `all_written`.
        let parts = try_join_all(pieces.into_iter().map(|piece| self.read_piece(piece))).await?;
        let mut rope = Rope::new();
        parts.into_iter().for_each(|part| rope.append(part));
        assert_eq!(rope.len(), bytes(extent.len), "the pieces of a read are all of it");
        Ok(rope)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        let _operation = self.enter(extent)?;
        let pieces = self.pieces(extent);
        if let [piece] = pieces[..] {
            return self.write_piece(piece, data).await;
        }
        let writes = pieces.into_iter().map(|piece| {
            let from = bytes(piece.start - start);
            self.write_piece(piece, data.slice(from..from + bytes(piece.extent.len)))
        });
        all_written(join_all(writes).await)
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        let all = self.geometry().all();
        let _operation = self.enter(all)?;
        let groups = self.groups.borrow().clone();
        if let [group] = groups[..] {
            return self.shared.gate(group).device().flush(after).await.map_err(|error| error.at(all));
        }
        // `after` does not tell which groups were written, so all are flushed.
        let flushes = groups.iter().map(|&group| self.shared.gate(group).device().flush(Written::attest()));
        let parts = join_all(flushes).await.into_iter();
        let stable = parts.reduce(|all, part| Ok(all?.and(part?))).expect("a volume lies on a group");
        stable.map_err(|error| error.at(all))
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let _operation = self.enter(extent)?;
        // Piece by piece, because a discard may span the whole volume.
        let (mut at, end) = (extent.start.0, extent.end().0);
        let mut written = Written::attest();
        while at < end {
            let piece = self.map.borrow().locate(at, end - at);
            written = written.and(self.discard_piece(piece).await?);
            at += piece.extent.len.0;
        }
        Ok(written)
    }
}
