//! A volume: blocks of 4096 bytes, spread over the groups of its pool.

mod initialise;

use crate::layout::BLOCK_BYTES;
use crate::map::{Map, Piece};
use crate::pool::{Gate, Shared};
use crate::usage::{Operation, Usage};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use futures_util::future::{join_all, try_join_all};
use shard::RangeLocks;
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uuid::Uuid;

/// An open volume. It is a device with blocks of 4096 bytes; when its size is no whole number of those, the
/// rest of its last block reads as zeros, and [`Sectors`](crate::Sectors) hides it.
///
/// Slabs that nobody has written read as zeros; the first write to a slab zeroes it and commits that it did.
pub struct Volume<D, G> {
    shared: Rc<Shared<D, G>>,
    id: Uuid,
    map: RefCell<Map>,
    /// The groups that hold a part of it, each once.
    groups: RefCell<SmallVec<[u16; 8]>>,
    geometry: Cell<Geometry>,
    size_bytes: Cell<u64>,
    block_bytes: u32,
    /// Slabs being initialised, numbered as in [`initialise`].
    filling: RangeLocks,
    usage: Usage,
}

type Pieces = SmallVec<[Piece; 4]>;

impl<D: BlockDevice + 'static, G: BlockDevice> Volume<D, G> {
    /// The volume `id` as the catalog has it. All changes of it are committed.
    pub(crate) fn open(shared: Rc<Shared<D, G>>, id: Uuid) -> Option<Self> {
        let slab_blocks = shared.slab_blocks();
        let (map, size_bytes, block_bytes) = shared.store.look(|catalog| {
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

    /// Which volume it is.
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Its size as hosts see it, in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.get()
    }

    /// Bytes of a logical block as hosts see it: 512 or 4096.
    pub fn logical_block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The volume has `size_bytes` from now on; the catalog has its segments.
    pub(crate) fn grow(&self, size_bytes: u64) {
        let slab_blocks = self.shared.slab_blocks();
        self.shared.store.look(|catalog| {
            if let Some(record) = catalog.volume(self.id) {
                self.map.borrow_mut().grow(&record.segments, &slab_blocks);
            }
        });
        let size_bytes = self.size_bytes.get().max(size_bytes);
        self.size_bytes.set(size_bytes);
        let map = self.map.borrow();
        let groups = map.groups();
        self.geometry.set(geometry(&self.shared, &map, &groups, size_bytes));
        *self.groups.borrow_mut() = groups;
    }

    /// No operation is under way, and none will be.
    pub(crate) async fn close(&self) {
        self.usage.close().await;
    }

    fn enter(&self, extent: Extent) -> Result<Operation<'_>, IoError> {
        let operation = self.usage.enter().ok_or(IoError::new(IoErrorKind::Gone, extent))?;
        self.geometry().admit(extent)?;
        Ok(operation)
    }

    fn pieces(&self, extent: Extent) -> Pieces {
        self.map.borrow().pieces(extent).collect()
    }

    fn gate(&self, piece: &Piece) -> &Gate<G> {
        self.shared.gate(piece.group)
    }

    async fn read_piece(&self, piece: Piece) -> Result<Rope, IoError> {
        if !piece.initialised {
            return Ok(View::zeroed(bytes(piece.extent.len)).into());
        }
        self.gate(&piece).device().read(piece.extent).await.map_err(|error| piece.told(error))
    }

    async fn write_piece(&self, piece: Piece, data: View) -> Result<Written, IoError> {
        assert_eq!(data.len(), bytes(piece.extent.len), "data fills its piece");
        if !piece.initialised {
            self.initialise(piece.slab).await.map_err(|error| piece.told(error))?;
        }
        let writing = self.shared.begin_write(piece.group).await.map_err(|_| piece.refused())?;
        let written = self.gate(&piece).device().write(piece.extent.start, data).await;
        drop(writing);
        written.map_err(|error| piece.told(error))
    }

    async fn discard_piece(&self, piece: Piece) -> Result<Written, IoError> {
        if !piece.initialised {
            return Ok(Written::attest());
        }
        let writing = self.shared.begin_write(piece.group).await.map_err(|_| piece.refused())?;
        let written = self.gate(&piece).device().discard(piece.extent).await;
        drop(writing);
        written.map_err(|error| piece.told(error))
    }
}

/// The shape of a volume of `size_bytes` that lies on `groups`.
fn geometry<D, G: BlockDevice>(shared: &Shared<D, G>, map: &Map, groups: &[u16], size_bytes: u64) -> Geometry {
    let below = || groups.iter().map(|&group| shared.gate(group).device().geometry());
    let stripe_bytes = below().map(|geometry| geometry.optimal_bytes).max().unwrap_or(BLOCK_BYTES);
    let turns = map.round_blocks().filter(|_| groups.len() > 1).map(|blocks| blocks * u64::from(BLOCK_BYTES));
    Geometry {
        block_bytes: BLOCK_BYTES,
        blocks: Blocks(size_bytes.div_ceil(u64::from(BLOCK_BYTES))),
        physical_block_bytes: BLOCK_BYTES,
        optimal_bytes: turns.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(stripe_bytes),
        volatile_cache: below().any(|geometry| geometry.volatile_cache),
        discard_zeroes: below().all(|geometry| geometry.discard_zeroes),
        prefers_fresh: false,
    }
}

impl Piece {
    /// An error of the group, told in the volume's addresses.
    fn told(&self, error: IoError) -> IoError {
        let shared = self.extent.intersection(error.extent);
        if shared.is_empty() {
            return error.at(Extent { start: self.start, len: self.extent.len });
        }
        error.at(Extent { start: self.start + (shared.start - self.extent.start), len: shared.len })
    }

    /// The write that could not begin because the catalog takes no change any more.
    fn refused(&self) -> IoError {
        IoError::new(IoErrorKind::ReadOnly, Extent { start: self.start, len: self.extent.len })
    }
}

fn bytes(blocks: Blocks) -> usize {
    usize::try_from(blocks.bytes(BLOCK_BYTES)).expect("a request fits in memory")
}

/// One proof for all parts. Every part has ended, also when one failed: nothing goes on behind the answer.
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
        let flushes = groups.iter().map(|&group| self.shared.gate(group).device().flush(Written::attest()));
        let parts = join_all(flushes).await.into_iter();
        let stable = parts.reduce(|all, part| Ok(all?.and(part?))).expect("a volume lies on a group");
        stable.map_err(|error| error.at(all))
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let _operation = self.enter(extent)?;
        // One piece after the other: a discard may span the whole volume.
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
