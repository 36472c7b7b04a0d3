//! A volume of a pool as a device: one with a map, or one in segments as all were before there were maps.

use super::tending::Chores;
use crate::array::{Disk, Group};
use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Run, Space, Stable, View, Written};
use shard::World;
use std::rc::Rc;

/// A volume of a pool, with blocks of 4096 bytes.
pub enum PoolVolume<W: World> {
    /// In whole slabs, without a map.
    Segments(Rc<volume::Volume<Disk<W>, Group<W>>>),
    /// One of a family.
    Mapped(Mapped<W>),
}

/// A volume of a family.
pub struct Mapped<W: World> {
    /// The volume.
    pub device: Rc<volume::ThinVolume<Disk<W>, Group<W>>>,
    /// True when space for all of it is kept, so that nobody need hear how much there is.
    pub thick: bool,
    /// Told of whatever may leave work for later.
    pub chores: Rc<Chores>,
}

macro_rules! each {
    ($volume:expr, $device:ident => $call:expr) => {
        match $volume {
            PoolVolume::Segments($device) => $call,
            PoolVolume::Mapped(Mapped { device: $device, .. }) => $call,
        }
    };
}

impl<W: World> PoolVolume<W> {
    /// Bytes of a logical block as hosts see it.
    pub fn logical_block_bytes(&self) -> u32 {
        each!(self, device => device.logical_block_bytes())
    }

    fn leave_chores(&self) {
        if let Self::Mapped(Mapped { chores, .. }) = self {
            chores.leave();
        }
    }
}

impl<W: World> BlockDevice for PoolVolume<W> {
    fn geometry(&self) -> Geometry {
        each!(self, device => device.geometry())
    }

    // Each is boxed: the sleeves above hold the future of what lies below in several places, and would be a hundred
    // kilobytes long, moved with every command.

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        each!(self, device => Box::pin(device.read(extent)).await)
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.leave_chores();
        each!(self, device => Box::pin(device.write(start, data)).await)
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.leave_chores();
        each!(self, device => Box::pin(device.write_atomic(start, data)).await)
    }

    fn atomic_bytes_max(&self) -> u32 {
        each!(self, device => device.atomic_bytes_max())
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        each!(self, device => Box::pin(device.flush(after)).await)
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.leave_chores();
        each!(self, device => Box::pin(device.discard(extent)).await)
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        each!(self, device => Box::pin(device.run(extent)).await)
    }

    fn space(&self) -> Option<Space> {
        match self {
            Self::Segments(_) | Self::Mapped(Mapped { thick: true, .. }) => None,
            Self::Mapped(Mapped { device, .. }) => device.space(),
        }
    }
}
