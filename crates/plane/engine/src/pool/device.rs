//! A volume of a pool as a block device: with a map, or in segments (the format before maps).
//!
//! Errors of a failed pool are reported as `Unreachable`: the pool is closed and opened again when its disks are back,
//! and has lost nothing that it acknowledged (`docs/adr/0025-luns-without-a-device.md`).

use super::OpenPool;
use super::map_work::MapWork;
use crate::array::{Disk, Group};
use crate::shard_context::ShardContext;
use block::{BlockDevice, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Run, Space, Stable, View, Written};
use model::Name;
use shard::World;
use std::rc::{Rc, Weak};

/// A volume of a pool, with blocks of 4096 bytes.
pub struct PoolVolume<W: World> {
    kind: Kind<W>,
    pool: Name,
    shard: Weak<ShardContext<W>>,
}

/// Allocation scheme of a volume.
pub(super) enum Kind<W: World> {
    /// Whole slabs, without a map.
    Segments(Rc<volume::Volume<Disk<W>, Group<W>>>),
    /// Mapped granules; the volume is a member of a family.
    Mapped(Mapped<W>),
}

/// A mapped volume.
pub(super) struct Mapped<W: World> {
    /// Device of the volume.
    pub device: Rc<volume::ThinVolume<Disk<W>, Group<W>>>,
    /// True if its space is reserved in full (thick), so that no free space is reported to hosts.
    pub thick: bool,
    /// Deferred work on maps; notified of changes that may cause some.
    pub chores: Rc<MapWork>,
}

macro_rules! each {
    ($volume:expr, $device:ident => $call:expr) => {
        match $volume {
            Kind::Segments($device) => $call,
            Kind::Mapped(Mapped { device: $device, .. }) => $call,
        }
    };
}

impl<W: World> PoolVolume<W> {
    /// Creates the device of a volume of `pool`.
    pub(super) fn of(pool: &OpenPool<W>, kind: Kind<W>) -> Self {
        Self { kind, pool: pool.name.clone(), shard: Rc::downgrade(&pool.shard) }
    }

    /// Translates an error: `Unreachable` if the pool has failed and the host may retry.
    #[cold]
    fn told(&self, error: IoError) -> IoError {
        // Bounds and space errors are answers of a working pool and stay as they are.
        let may_be_away = match error.kind {
            IoErrorKind::Gone | IoErrorKind::TimedOut | IoErrorKind::ReadOnly | IoErrorKind::Medium => true,
            IoErrorKind::Unreachable | IoErrorKind::OutOfRange | IoErrorKind::NoSpace | IoErrorKind::Unsupported => {
                false
            }
        };
        let Some(shard) = self.shard.upgrade().filter(|_| may_be_away) else { return error };
        // Only errors get here, so the lookup costs no command that succeeds.
        let pools = shard.pools.borrow();
        let has_failed = pools.get(&self.pool).is_some_and(|pool| has_failed(pool));
        if has_failed { IoError { kind: IoErrorKind::Unreachable, ..error } } else { error }
    }

    /// Bytes of a logical block as hosts see it.
    pub fn logical_block_bytes(&self) -> u32 {
        each!(&self.kind, device => device.logical_block_bytes())
    }

    fn schedule_map_work(&self) {
        // Every change may leave maintenance of the map to do.
        if let Kind::Mapped(Mapped { chores, .. }) = &self.kind {
            chores.leave();
        }
    }
}

impl<W: World> BlockDevice for PoolVolume<W> {
    fn geometry(&self) -> Geometry {
        each!(&self.kind, device => device.geometry())
    }

    // Each future is boxed: the layers above hold it in several places, which would make a future of a hundred
    // kilobytes that is moved with every command.

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        each!(&self.kind, device => Box::pin(device.read(extent)).await).map_err(|error| self.told(error))
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.schedule_map_work();
        each!(&self.kind, device => Box::pin(device.write(start, data)).await).map_err(|error| self.told(error))
    }

    async fn write_atomic(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.schedule_map_work();
        each!(&self.kind, device => Box::pin(device.write_atomic(start, data)).await).map_err(|error| self.told(error))
    }

    fn atomic_bytes_max(&self) -> u32 {
        each!(&self.kind, device => device.atomic_bytes_max())
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        each!(&self.kind, device => Box::pin(device.flush(after)).await).map_err(|error| self.told(error))
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.schedule_map_work();
        each!(&self.kind, device => Box::pin(device.discard(extent)).await).map_err(|error| self.told(error))
    }

    async fn run(&self, extent: Extent) -> Result<Run, IoError> {
        each!(&self.kind, device => Box::pin(device.run(extent)).await).map_err(|error| self.told(error))
    }

    fn space(&self) -> Option<Space> {
        match &self.kind {
            // All of it is reserved, so hosts need no figures and no thresholds.
            Kind::Segments(_) | Kind::Mapped(Mapped { thick: true, .. }) => None,
            Kind::Mapped(Mapped { device, .. }) => device.space(),
        }
    }
}

/// True for a pool that is closed because a group has stopped, and neither fenced nor read-only.
fn has_failed<W: World>(pool: &OpenPool<W>) -> bool {
    let has_stopped = pool.groups.iter().any(|(_, group)| group.array.status().stopped.is_some());
    has_stopped && !pool.is_fenced() && !pool.is_read_only()
}
