//! The trait that every storage layer implements and uses.

use crate::{Blocks, Extent, IoError, IoErrorKind, Lba, Rope, View};

/// Proof that a device accepted data, possibly only into its volatile cache.
///
/// Returned by [`BlockDevice::write`] and [`BlockDevice::discard`], consumed by [`BlockDevice::flush`].
#[derive(Debug)]
#[must_use = "written data survives a power loss only after a flush"]
pub struct Written(());

/// Proof that everything written before a flush survives power loss.
#[derive(Debug)]
#[must_use = "what may only happen after stable storage takes this as an argument"]
pub struct Stable(());

impl Written {
    /// Attests that a device accepted data. For implementations of [`BlockDevice`] only.
    pub fn attest() -> Self {
        Self(())
    }

    /// Merges the proofs of two writes into one.
    pub fn and(self, _other: Self) -> Self {
        self
    }
}

impl Stable {
    /// Attests that a device made its data durable. For implementations of [`BlockDevice`] only.
    pub fn attest() -> Self {
        Self(())
    }

    /// Merges the proofs of two flushes into one.
    pub fn and(self, _other: Self) -> Self {
        self
    }
}

/// Size and properties of a device, as its users see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of one addressable block: 512 or 4096.
    pub block_bytes: u32,
    /// Capacity in blocks.
    pub blocks: Blocks,
    /// Bytes of the smallest write that needs no read-modify-write and is atomic on power loss (4096 for a 512e disk).
    /// Less than `block_bytes` where power loss may tear a block.
    pub physical_block_bytes: u32,
    /// Bytes of the cheapest write (a full stripe of an array); at least `physical_block_bytes`.
    pub optimal_bytes: u32,
    /// True when acknowledged writes may be lost on power loss until a flush.
    pub volatile_cache: bool,
    /// True when discarded blocks read back as zeros.
    pub discard_zeroes: bool,
    /// True when [`BlockDevice::write_unlogged`] of whole `optimal_bytes` units costs less than a write.
    pub prefers_unlogged: bool,
}

impl Geometry {
    /// The capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.blocks.bytes(self.block_bytes)
    }

    /// All blocks of the device.
    #[must_use]
    pub fn all(&self) -> Extent {
        Extent { start: Lba(0), len: self.blocks }
    }

    /// Returns the extent from `start` that `data_bytes` bytes fill.
    ///
    /// *Errors*: `OutOfRange` when they are no whole number of blocks, or pass the end of the device.
    pub fn extent_of(&self, start: Lba, data_bytes: usize) -> Result<Extent, IoError> {
        let block_bytes = u64::from(self.block_bytes);
        let bytes = data_bytes as u64;
        let extent = Extent::checked(start.0, bytes / block_bytes);
        match extent {
            Some(extent) if bytes.is_multiple_of(block_bytes) => self.admit(extent).map(|()| extent),
            // Without a length: there is no whole number of blocks, or it overflows.
            _ => Err(IoError::new(IoErrorKind::OutOfRange, Extent { start, len: Blocks(0) })),
        }
    }

    /// Checks that `extent` lies wholly on the device.
    ///
    /// *Errors*: `OutOfRange` for any other.
    pub fn admit(&self, extent: Extent) -> Result<(), IoError> {
        if self.all().contains(extent) { Ok(()) } else { Err(IoError::new(IoErrorKind::OutOfRange, extent)) }
    }
}

/// Contiguous blocks with the same allocation state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The blocks.
    pub extent: Extent,
    /// True when the blocks are allocated. Unallocated blocks read as zeros, and writing them may consume space.
    pub mapped: bool,
}

/// Fill level of the device that provides the space of a thin one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Allocated bytes of this device.
    pub mapped_bytes: u64,
    /// Bytes that can still be allocated.
    pub free_bytes: u64,
    /// Allocation unit in bytes: allocated and freed as one.
    pub granule_bytes: u32,
}

/// Age of a metadata block: returns its generation, or `None` when the block is invalid. See
/// [`BlockDevice::read_best`].
pub type GenerationFn<'a> = &'a dyn Fn(&[u8]) -> Option<u64>;

/// Result of [`BlockDevice::read_best`].
#[derive(Clone, Debug)]
pub struct BestCopy {
    /// The best copy of each block.
    pub content: View,
    /// Number of invalid or outdated copies of blocks that were rewritten.
    pub repaired: u64,
}

/// Storage that can be read, written, flushed and discarded in blocks.
///
/// Implementations use `&self` and interior mutability: a device belongs to one shard and its operations run
/// concurrently there. Dropping a future leaves the blocks of its extent with old or new content, and changes no
/// others.
#[expect(async_fn_in_trait, reason = "devices live on one shard; their futures need not be Send")]
pub trait BlockDevice {
    /// Returns size and properties. The capacity may grow while the device is in use and never shrinks.
    fn geometry(&self) -> Geometry;

    /// Returns the content of `extent`.
    ///
    /// *Shape*: exactly `extent.len` blocks. *Errors*: any [`IoError`]; no bytes are returned then.
    async fn read(&self, extent: Extent) -> Result<Rope, IoError>;

    /// Reads metadata whose blocks carry a checksum of their own: as [`BlockDevice::read`], but returns the best copy
    /// of each block that the device has and rewrites the other copies.
    ///
    /// `rank` returns the generation of one block, or `None` when it is invalid; the highest rank wins. A block of
    /// which no copy has a rank is returned as [`BlockDevice::read`] finds it, for the caller to judge. A device that
    /// verifies its reads (a protected array), or that has a single copy, only reads.
    ///
    /// *Shape*: `rank` gets exactly one block. *Errors*: as [`BlockDevice::read`], when a block cannot be read from any
    /// copy.
    async fn read_best(&self, extent: Extent, rank: GenerationFn<'_>) -> Result<BestCopy, IoError> {
        let _ = rank;
        // Without redundancy there is only one copy to choose from.
        Ok(BestCopy { content: self.read(extent).await?.into_view(), repaired: 0 })
    }

    /// Reads for callers that can get the content elsewhere: as [`BlockDevice::read`], but a device with a read
    /// deadline does not wait longer than that.
    ///
    /// *Errors*: `TimedOut` after the deadline; the device may be healthy.
    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        // A device without a read deadline has nothing to cut short.
        self.read(extent).await
    }

    /// Writes `data` to the blocks from `start`; every later read of this device returns it.
    ///
    /// *Shape*: `data` is a whole number of blocks. *Errors*: any [`IoError`]; each block of the extent then has its
    /// old or its new content. *Durability*: only after [`BlockDevice::flush`].
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError>;

    /// Writes blocks whose old content is dead: as [`BlockDevice::write`], but until a flush has finished, a power
    /// loss, an error or a dropped future may leave arbitrary or unreadable content in them.
    ///
    /// Saves a device that must preserve the old content until then (a redo log, a copy) that cost.
    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.write(start, data).await
    }

    /// Writes blocks atomically: as [`BlockDevice::write`], but all blocks have either their old or their new content,
    /// after a power loss at any instant and after an error.
    ///
    /// *Shape*: at most [`BlockDevice::atomic_bytes_max`]. *Errors*: `Unsupported` for more.
    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        // The extent is validated first: a bug of the caller stays visible as `OutOfRange`.
        let extent = self.geometry().extent_of(start, data.len())?;
        Err(IoError::new(IoErrorKind::Unsupported, extent))
    }

    /// Limit of [`BlockDevice::write_atomic`] in bytes, at any start address; 0 when atomic writes are not supported.
    fn atomic_bytes_max(&self) -> u32 {
        0
    }

    /// Synchronous attempt at [`BlockDevice::read`]: returns its result when no waiting is needed. `None` means that
    /// nothing was done and that [`BlockDevice::read`] has to be called.
    fn try_read(&self, _extent: Extent) -> Option<Result<Rope, IoError>> {
        None
    }

    /// Synchronous attempt at [`BlockDevice::write`]: returns its result when no waiting is needed. `None` means that
    /// nothing was done and that [`BlockDevice::write`] has to be called.
    fn try_write(&self, _start: Lba, _data: &[u8]) -> Option<Result<Written, IoError>> {
        None
    }

    /// Makes everything durable that was written before this call.
    ///
    /// *Errors*: after a failed flush nothing written since the last successful one is trustworthy. The device fails
    /// every later operation with `Gone`; a failed flush is never retried into success.
    async fn flush(&self, after: Written) -> Result<Stable, IoError>;

    /// Discards the content of `extent` (UNMAP, TRIM). Where [`Geometry::discard_zeroes`] is true the extent reads as
    /// zeros from now on; elsewhere it may keep its content.
    async fn discard(&self, extent: Extent) -> Result<Written, IoError>;

    /// Reserves space for the blocks of `extent`, whose content stays: later writes to them do not fail for lack of
    /// space. Does nothing on a device whose blocks are always allocated, or that cannot give this guarantee.
    ///
    /// *Errors*: `NoSpace` when there is none.
    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        self.geometry().admit(extent)
    }

    /// Returns the longest run from the start of `extent`, within it, whose blocks are all mapped or all unmapped.
    ///
    /// *Shape*: `extent` is not empty, and neither is the result; the result may end early.
    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        // Conservative default: everything counts as mapped.
        Ok(Run { extent, mapped: true })
    }

    /// Returns used and available space; `None` where every block is allocated from the beginning.
    fn space(&self) -> Option<Space> {
        None
    }
}

/// A shared device is a device: every call is forwarded.
impl<D: BlockDevice> BlockDevice for std::rc::Rc<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        (**self).read(extent).await
    }
    async fn read_best(&self, extent: Extent, rank: GenerationFn<'_>) -> Result<BestCopy, IoError> {
        (**self).read_best(extent, rank).await
    }
    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        (**self).read_hedged(extent).await
    }
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        (**self).write(start, data).await
    }
    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        (**self).write_unlogged(start, data).await
    }
    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        (**self).write_atomic(start, data).await
    }
    fn atomic_bytes_max(&self) -> u32 {
        (**self).atomic_bytes_max()
    }
    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        (**self).try_read(extent)
    }
    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        (**self).try_write(start, data)
    }
    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        (**self).flush(after).await
    }
    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        (**self).discard(extent).await
    }
    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        (**self).reserve(extent).await
    }
    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        (**self).run(extent).await
    }
    fn space(&self) -> Option<Space> {
        (**self).space()
    }
}
