//! The one trait that every storage layer has and uses.

use crate::{Blocks, Extent, IoError, IoErrorKind, Lba, Rope, View};

/// Proof that data was accepted by a device, though perhaps only into its volatile cache.
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
    /// Attests that a device accepted data. Only implementations of [`BlockDevice`] say this.
    pub fn attest() -> Self {
        Self(())
    }

    /// One proof for both writes.
    pub fn and(self, _other: Self) -> Self {
        self
    }
}

impl Stable {
    /// Attests that a device made its data durable. Only implementations of [`BlockDevice`] say this.
    pub fn attest() -> Self {
        Self(())
    }

    /// One proof for both flushes.
    pub fn and(self, _other: Self) -> Self {
        self
    }
}

/// What a device looks like from above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of one addressable block: 512 or 4096.
    pub block_bytes: u32,
    /// How many blocks the device has.
    pub blocks: Blocks,
    /// Bytes of the smallest write that costs no read, and that a power cut leaves old or new (4096 for a 512e disk);
    /// fewer than `block_bytes` where a block may be torn.
    pub physical_block_bytes: u32,
    /// Bytes of the write that costs least (a full stripe of an array); at least `physical_block_bytes`.
    pub optimal_bytes: u32,
    /// True when acknowledged writes may be lost by a power cut until a flush.
    pub volatile_cache: bool,
    /// True when discarded blocks read back as zeros.
    pub discard_zeroes: bool,
    /// True when [`BlockDevice::write_fresh`] of whole `optimal_bytes` units costs less than a write.
    pub prefers_fresh: bool,
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

    /// How many blocks `data` fills.
    ///
    /// *Errors*: `OutOfRange` when it is no whole number of blocks, or passes the end of the device.
    pub fn extent_of(&self, start: Lba, data_bytes: usize) -> Result<Extent, IoError> {
        let block_bytes = u64::from(self.block_bytes);
        let bytes = data_bytes as u64;
        let extent = Extent::checked(start.0, bytes / block_bytes);
        match extent {
            Some(extent) if bytes.is_multiple_of(block_bytes) => self.admit(extent).map(|()| extent),
            _ => Err(IoError::new(IoErrorKind::OutOfRange, Extent { start, len: Blocks(0) })),
        }
    }

    /// Admits an extent that lies wholly on the device.
    ///
    /// *Errors*: `OutOfRange` for any other.
    pub fn admit(&self, extent: Extent) -> Result<(), IoError> {
        if self.all().contains(extent) { Ok(()) } else { Err(IoError::new(IoErrorKind::OutOfRange, extent)) }
    }
}

/// Blocks beside each other, and whether they have a place of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Which blocks.
    pub extent: Extent,
    /// False for blocks that have no place: they read as zeros, and writing them may take space.
    pub mapped: bool,
}

/// How full the device is that gives a thin one its space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the device's own blocks that have a place.
    pub mapped_bytes: u64,
    /// Bytes that can still be given to blocks without a place.
    pub free_bytes: u64,
    /// Bytes that are mapped and given back as one.
    pub granule_bytes: u32,
}

/// How new a block of metadata is, where it is whole; see [`BlockDevice::read_best`].
pub type Rank<'a> = &'a dyn Fn(&[u8]) -> Option<u64>;

/// What [`BlockDevice::read_best`] has found.
#[derive(Clone, Debug)]
pub struct Best {
    /// The blocks.
    pub content: View,
    /// Copies of blocks that were not whole, or older than another, and were written again.
    pub repaired: u64,
}

/// Blocks that can be read, written, made durable and forgotten.
///
/// Implementations use `&self` and interior mutability: a device belongs to one shard and its
/// operations run concurrently there. A dropped future leaves the blocks of its own extent with old
/// or new content, and touches no others.
#[expect(async_fn_in_trait, reason = "devices live on one shard; their futures need not be Send")]
pub trait BlockDevice {
    /// The shape of the device. May grow while the device is in use, never shrinks.
    fn geometry(&self) -> Geometry;

    /// Returns the content of `extent`.
    ///
    /// *Shape*: exactly `extent.len` blocks. *Errors*: any [`IoError`]; no bytes are returned then.
    async fn read(&self, extent: Extent) -> Result<Rope, IoError>;

    /// As [`BlockDevice::read`], for metadata whose blocks carry a checksum of their own: each block is the best of the copies
    /// that the device has of it, and the other copies are written again.
    ///
    /// `rank` says of one block how new it is, or `None` when it is not whole; the highest rank is the best. A block of which
    /// no copy has a rank is returned as [`BlockDevice::read`] finds it, for the caller to judge. A device that proves what
    /// it reads (a protected array), or that has one copy alone, only reads.
    ///
    /// *Shape*: `rank` gets exactly one block. *Errors*: as [`BlockDevice::read`], when a block cannot be read from any copy.
    async fn read_best(&self, extent: Extent, rank: Rank<'_>) -> Result<Best, IoError> {
        let _ = rank;
        Ok(Best { content: self.read(extent).await?.into_view(), repaired: 0 })
    }

    /// As [`BlockDevice::read`], for callers that can get the content elsewhere: a device that knows its deadline does not
    /// wait longer than that.
    ///
    /// *Errors*: `TimedOut` after the deadline; the device may be well.
    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        self.read(extent).await
    }

    /// The blocks from `start` on hold `data`, for every later read of this device.
    ///
    /// *Shape*: `data` is a whole number of blocks. *Errors*: any [`IoError`]; each block of the
    /// extent then has its old or its new content. *Durability*: only after [`BlockDevice::flush`].
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError>;

    /// As [`BlockDevice::write`], for blocks whose content nobody needs: until a flush has ended, a power
    /// cut or an error may leave anything in them, also what cannot be read, and a dropped future likewise.
    ///
    /// Spares a device that must be able to give back the old content the cost of keeping it.
    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.write(start, data).await
    }

    /// As [`BlockDevice::write`], and the blocks have their old content or the new one all together: after a power cut at any
    /// instant, and after an error.
    ///
    /// *Shape*: at most [`BlockDevice::atomic_bytes_max`]. *Errors*: `Unsupported` for more.
    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let extent = self.geometry().extent_of(start, data.len())?;
        Err(IoError::new(IoErrorKind::Unsupported, extent))
    }

    /// Bytes of the longest [`BlockDevice::write_atomic`], wherever it begins; zero where there is none.
    fn atomic_bytes_max(&self) -> u32 {
        0
    }

    /// What [`BlockDevice::read`] comes to, where that is known without waiting for anything. With `None` nothing was
    /// done, and it takes a [`BlockDevice::read`] to know.
    fn read_at_once(&self, _extent: Extent) -> Option<Result<Rope, IoError>> {
        None
    }

    /// What [`BlockDevice::write`] comes to, where that can be done without waiting for anything. With `None` nothing was
    /// done, and it takes a [`BlockDevice::write`] to do it.
    fn write_at_once(&self, _start: Lba, _data: &[u8]) -> Option<Result<Written, IoError>> {
        None
    }

    /// Everything written before this call survives power loss.
    ///
    /// *Errors*: after a failed flush nothing written since the last good one may be believed; the
    /// device fails every later operation with `Gone`, and a flush is never tried again into success.
    async fn flush(&self, after: Written) -> Result<Stable, IoError>;

    /// The content of `extent` is not needed any more. Where [`Geometry::discard_zeroes`] is true it
    /// reads as zeros from now on; elsewhere it may keep its content.
    async fn discard(&self, extent: Extent) -> Result<Written, IoError>;

    /// There is space for the blocks of `extent`, whose content stays: writing them does not fail for want of it. A device
    /// whose blocks always have their place, or that cannot promise it, does nothing.
    ///
    /// *Errors*: `NoSpace` when there is none.
    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        self.geometry().admit(extent)
    }

    /// The longest run from the start of `extent` on, within it, whose blocks are all mapped or all not.
    ///
    /// *Shape*: `extent` is not empty, and neither is the answer; it may end early.
    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        Ok(Run { extent, mapped: true })
    }

    /// How much space the device takes and may still get; `None` where every block has its place from the
    /// beginning.
    fn space(&self) -> Option<Space> {
        None
    }
}

/// A shared device is a device.
impl<D: BlockDevice> BlockDevice for std::rc::Rc<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        (**self).read(extent).await
    }
    async fn read_best(&self, extent: Extent, rank: Rank<'_>) -> Result<Best, IoError> {
        (**self).read_best(extent, rank).await
    }
    async fn read_hedged(&self, extent: Extent) -> Result<Rope, IoError> {
        (**self).read_hedged(extent).await
    }
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        (**self).write(start, data).await
    }
    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        (**self).write_fresh(start, data).await
    }
    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        (**self).write_atomic(start, data).await
    }
    fn atomic_bytes_max(&self) -> u32 {
        (**self).atomic_bytes_max()
    }
    fn read_at_once(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        (**self).read_at_once(extent)
    }
    fn write_at_once(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        (**self).write_at_once(start, data)
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
