//! Storage of a unit: an enum over the kinds of device, so that a command follows no trait object.

use super::absent::AbsentDevice;
use super::stack::{self, Stack};
use crate::pool::PoolVolume;
use block::memory::{Null, Ram};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};
use cache::{CachedVolume, Stall};
use shard::{GroupCommit, World};
use std::rc::Rc;
use volume::Emulated512;

/// Volume of a pool with its cache and limits.
pub(super) type Policed<W> = CachedVolume<PoolVolume<W>, W>;

/// Device stack of a unit of a pool.
type VolumeStack<W> = Stack<Policed<W>>;

/// Device of a unit, in the block size that hosts see.
pub enum Store<W: World> {
    /// A volume of a pool with 4096-byte blocks.
    Volume(VolumeStack<W>),
    /// A volume of a pool with 512-byte blocks (512e).
    Volume512(Emulated512<VolumeStack<W>>),
    /// File or block device, used as it is.
    File(GroupCommit<W::Disk>),
    /// Memory.
    Ram(Ram),
    /// Null device: accepts writes and keeps nothing.
    Null(Null),
    /// Storage that is not available: the volume is presented and not open.
    Absent(AbsentDevice),
}

impl<W: World> Store<W> {
    /// Creates the store of a volume of a pool whose hosts see blocks of `block_bytes` (512 or 4096).
    pub fn in_pool(volume: Policed<W>, block_bytes: u32) -> Self {
        assert!(matches!(block_bytes, 512 | volume::BLOCK_BYTES), "hosts see sectors or whole blocks");
        let stack = Stack::new(volume);
        match block_bytes {
            volume::BLOCK_BYTES => Self::Volume(stack),
            // 512e: hosts address sectors, the volume below has blocks of 4096 bytes.
            _ => Self::Volume512(Emulated512::new(stack)),
        }
    }

    fn stack(&self) -> Option<&VolumeStack<W>> {
        match self {
            Self::Volume(stack) => Some(stack),
            Self::Volume512(sectors) => Some(sectors.device()),
            Self::File(_) | Self::Ram(_) | Self::Null(_) | Self::Absent(_) => None,
        }
    }

    /// Cache and limits of a volume of a pool; `None` for a volume without a pool.
    pub fn policed(&self) -> Option<&Policed<W>> {
        self.stack().map(Stack::device)
    }

    /// Inserts a layer above the cache of a volume of a pool. False for a volume without a pool, which takes none.
    pub fn insert(&self, layer: impl FnOnce(Rc<dyn stack::Layer>) -> Rc<dyn stack::Layer>) -> bool {
        self.stack().map(|stack| stack.insert(layer)).is_some()
    }

    /// Publishes the new size of a volume of a pool, which has grown to `bytes`.
    pub fn show_growth(&self, bytes: u64) {
        // The 512e translation keeps the size it shows; other stores read it from the device.
        if let Self::Volume512(sectors) = self {
            sectors.set_capacity(Blocks(bytes / 512));
        }
    }

    /// Reason why a command for `extent`, in blocks of the unit, waits above the device.
    pub fn wait_reason(&self, extent: Extent) -> Option<Stall> {
        match self {
            Self::Volume(stack) => stack.device().stall(extent),
            // The cache counts in blocks of 4096 bytes.
            Self::Volume512(sectors) => sectors.device().device().stall(volume::blocks_of_sectors(extent)),
            // Nothing lies above these devices that could hold a command back.
            Self::File(_) | Self::Ram(_) | Self::Null(_) | Self::Absent(_) => None,
        }
    }
}

macro_rules! each {
    ($store:expr, $device:ident => $call:expr) => {
        match $store {
            Store::Volume($device) => $call,
            Store::Volume512($device) => $call,
            Store::File($device) => $call,
            Store::Ram($device) => $call,
            Store::Null($device) => $call,
            Store::Absent($device) => $call,
        }
    };
}

/// As `each!`, for asynchronous operations. Memory completes without waiting; the other futures are deep and large and
/// are boxed, because otherwise every command of every unit would carry their size.
macro_rules! awaited {
    ($store:expr, $device:ident => $call:expr) => {
        match $store {
            Store::Volume($device) => Box::pin($call).await,
            Store::Volume512($device) => Box::pin($call).await,
            Store::File($device) => Box::pin($call).await,
            Store::Ram($device) => $call.await,
            Store::Null($device) => $call.await,
            Store::Absent($device) => $call.await,
        }
    };
}

impl<W: World> BlockDevice for Store<W> {
    #[inline]
    fn geometry(&self) -> Geometry {
        each!(self, device => device.geometry())
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        awaited!(self, device => device.read(extent))
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        awaited!(self, device => device.write(start, data))
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        awaited!(self, device => device.write_atomic(start, data))
    }

    fn atomic_bytes_max(&self) -> u32 {
        each!(self, device => device.atomic_bytes_max())
    }

    fn try_read(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        each!(self, device => device.try_read(extent))
    }

    fn try_write(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        each!(self, device => device.try_write(start, data))
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        awaited!(self, device => device.flush(after))
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        awaited!(self, device => device.discard(extent))
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        awaited!(self, device => device.run(extent))
    }

    fn space(&self) -> Option<Space> {
        each!(self, device => device.space())
    }
}
