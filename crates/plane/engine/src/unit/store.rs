//! What a unit's data is on: one of a few kinds of device, without a pointer to follow per command.

use super::absent::AbsentDevice;
use super::stack::{self, Stack};
use crate::pool::PoolVolume;
use block::memory::{Null, Ram};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};
use cache::{Hold, PolicedVolume};
use shard::{GroupCommit, World};
use std::rc::Rc;
use volume::Sectors;

/// A volume of a pool behind its cache and its limits.
pub(super) type Policed<W> = PolicedVolume<PoolVolume<W>, W>;

/// The devices below a unit of a pool.
type VolumeStack<W> = Stack<Policed<W>>;

/// The device under a logical unit, in the block size that its hosts see.
pub enum Store<W: World> {
    /// A volume of a pool with 4096-byte blocks.
    Volume(VolumeStack<W>),
    /// A volume of a pool with 512-byte blocks (512e).
    Volume512(Sectors<VolumeStack<W>>),
    /// A file or a block device, as it is.
    File(GroupCommit<W::Disk>),
    /// Memory.
    Ram(Ram),
    /// Nothing.
    Null(Null),
    /// What the volume was on is not there.
    Absent(AbsentDevice),
}

impl<W: World> Store<W> {
    /// The devices below a unit of a pool whose hosts see blocks of so many bytes.
    pub fn in_pool(volume: Policed<W>, block_bytes: u32) -> Self {
        assert!(matches!(block_bytes, 512 | volume::BLOCK_BYTES), "hosts see sectors or whole blocks");
        let stack = Stack::new(volume);
        match block_bytes {
            volume::BLOCK_BYTES => Self::Volume(stack),
            _ => Self::Volume512(Sectors::new(stack)),
        }
    }

    fn stack(&self) -> Option<&VolumeStack<W>> {
        match self {
            Self::Volume(stack) => Some(stack),
            Self::Volume512(sectors) => Some(sectors.device()),
            Self::File(_) | Self::Ram(_) | Self::Null(_) | Self::Absent(_) => None,
        }
    }

    /// The volume of a pool; none of what has no pool.
    pub fn policed(&self) -> Option<&Policed<W>> {
        self.stack().map(Stack::device)
    }

    /// Inserts a layer above the cache of a volume of a pool; false for what has no pool.
    pub fn insert(&self, layer: impl FnOnce(Rc<dyn stack::Layer>) -> Rc<dyn stack::Layer>) -> bool {
        self.stack().map(|stack| stack.insert(layer)).is_some()
    }

    /// The volume of a pool has grown to `bytes`.
    pub fn show_growth(&self, bytes: u64) {
        if let Self::Volume512(sectors) = self {
            sectors.show(Blocks(bytes / 512));
        }
    }

    /// What holds a command for `extent`, in blocks of the unit, before it goes below.
    pub fn hold(&self, extent: Extent) -> Option<Hold> {
        match self {
            Self::Volume(stack) => stack.device().hold(extent),
            Self::Volume512(sectors) => sectors.device().device().hold(volume::blocks_of_sectors(extent)),
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

/// The same of an operation. Memory answers at once; the way below everything else is long, and its future would be moved with
/// every command of every unit, were it not apart.
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

    fn read_at_once(&self, extent: Extent) -> Option<Result<Rope, IoError>> {
        each!(self, device => device.read_at_once(extent))
    }

    fn write_at_once(&self, start: Lba, data: &[u8]) -> Option<Result<Written, IoError>> {
        each!(self, device => device.write_at_once(start, data))
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
