//! Volumes without a pool: in memory, on the null device, or on an existing file or block device.
//!
//! Called by [`crate::backends`] on the volume's home shard.

use super::{HostState, Parts, Store, Unit};
use crate::inspect;
use crate::remote::RemoteDisks;
use crate::shard_context::ShardContext;
use block::memory::{Null, Ram};
use block::{BlockDevice, Blocks};
use model::{Backend, Label, Refusal, Size, VolumeId, VolumeReport, VolumeSpec, code};
use shard::{DiskOptions, GroupCommit, World};
use std::rc::Rc;

/// Opens the volume and serves it on this shard.
///
/// *Errors*: the file cannot be opened, is smaller than the volume, or is a disk of a pool.
pub async fn open_standalone<W: World>(shard: Rc<ShardContext<W>>, spec: VolumeSpec) -> Result<VolumeReport, Refusal> {
    let is_whole = spec.size.bytes().is_multiple_of(u64::from(spec.block_bytes));
    assert!(is_whole, "the conductor admits sizes of whole blocks");
    let blocks = Blocks(spec.size.bytes() / u64::from(spec.block_bytes));
    let store = match &spec.backend {
        Backend::Ram => Store::Ram(Ram::new(spec.block_bytes, blocks)),
        Backend::Null => Store::Null(Null::new(spec.block_bytes, blocks)),
        Backend::File { path } => {
            admit_file(&shard.remotes, path).await?;
            // Commands that flush at the same time share one flush of the file.
            Store::File(GroupCommit::new(open_file(&shard.world, path, &spec).await?))
        }
        Backend::Pool { .. } => unreachable!("volumes of pools are made by their pools"),
    };
    let (id, name, backend) = (spec.id, spec.name, spec.backend);
    // Without a catalog there is no place where host state would survive a restart.
    let (read_only, meter, host_state) = (false, Rc::default(), HostState::none());
    let unit = Rc::new(Unit::new(Parts { id, name, backend, store, read_only, meter, host_state }));
    shard.serve(unit.clone());
    Ok(unit.report())
}

/// Admits a path that is not a member of a pool of this node or another, whose content hosts would overwrite. A path
/// that cannot be inspected is admitted: opening it returns the error.
async fn admit_file<W: World>(disks: &RemoteDisks<W>, path: &str) -> Result<(), Refusal> {
    // Read-only, so that the inspection cannot disturb the file.
    let report = inspect::inspect_local_disk(disks, path, true).await.ok();
    let Some(Label::PoolMember { pool_name, .. }) = report.map(|report| report.label) else { return Ok(()) };
    let message = format!("{path} is a disk of pool {pool_name}");
    let hint = "choose another path, or erase the disk first if the pool is no longer needed";
    Err(Refusal::new(code::DISK_IN_USE, message, hint))
}

async fn open_file<W: World>(world: &W, path: &str, spec: &VolumeSpec) -> Result<W::Disk, Refusal> {
    let options = DiskOptions { block_bytes: spec.block_bytes, read_only: false };
    let disk = world.open_disk(path, options).await.map_err(|error| inspect::unreadable(path, &error))?;
    let held = disk.geometry().bytes();
    // A larger file is admitted: the volume uses the front of it.
    if held < spec.size.bytes() {
        let message = format!("{path} has {}, less than the volume size of {}", Size::new(held).iec(), spec.size.iec());
        return Err(Refusal::new(code::FILE_UNUSABLE, message, "make the file larger, or the volume smaller"));
    }
    Ok(disk)
}

/// Resizes a volume in memory or on the null device and notifies its initiators.
///
/// *Errors*: `VOLUME_SHRINK` if it would shrink; `FILE_UNUSABLE` for a file, whose size is not ours to change.
pub async fn resize_standalone<W: World>(
    shard: &Rc<ShardContext<W>>,
    id: VolumeId,
    size: Size,
) -> Result<VolumeReport, Refusal> {
    let unit = shard.unit(id).ok_or_else(|| gone(id))?;
    let geometry = unit.store.geometry();
    // Shrinking would cut off data of hosts.
    if size.bytes() < geometry.bytes() {
        return Err(shrinks(&unit.name.to_string(), geometry.bytes(), size));
    }
    let blocks = Blocks(size.bytes() / u64::from(geometry.block_bytes));
    assert!(blocks >= geometry.blocks, "a volume only grows");
    match &*unit.store {
        Store::Ram(ram) => ram.grow(blocks),
        Store::Null(null) => null.grow(blocks),
        Store::File(_) | Store::Volume(_) | Store::Volume512(_) | Store::Absent(_) => {
            let message = format!("volume {} is as large as its file", unit.name);
            let hint = "create a larger file and a new volume on it";
            return Err(Refusal::new(code::FILE_UNUSABLE, message, hint));
        }
    }
    // After the device has grown: hosts ask for the capacity as soon as they are told.
    unit.capacity_changed();
    Ok(unit.report())
}

/// Withdraws the volume from hosts and closes it.
pub async fn close_standalone<W: World>(shard: &Rc<ShardContext<W>>, id: VolumeId) -> Result<(), Refusal> {
    shard.withdraw(id).map(drop).ok_or_else(|| gone(id))
}

/// Refusal to shrink a volume.
pub(super) fn shrinks(name: &str, held: u64, asked: Size) -> Refusal {
    let message = format!("volume {name} has {}, more than {}", Size::new(held).iec(), asked.iec());
    Refusal::new(code::VOLUME_SHRINK, message, "volumes cannot shrink; create a smaller one and copy the data")
}

fn gone(id: VolumeId) -> Refusal {
    Refusal::new(
        code::VOLUME_UNKNOWN,
        format!("no volume has the identity {id}"),
        "`blockyard volume list` shows the volumes",
    )
}
