//! Inspection of disks that belong to no open pool: geometry, identity, and content (label or foreign data).
//!
//! Called for `disk add`, `disk list`, erasures and openings. Nothing is written, except by `erase`.

use crate::remote::{self, MemberDisk, RemoteDisks};
use block::BlockDevice;
use futures_util::future::{Either, select};
use initiator::OpenMode;
use model::{
    DiskCounters, DiskId, DiskIdentity, DiskReport, DiskState, Label, LabelOwner, MachineId, NodeId, PoolId, Refusal,
    RemoteAddress, Size, UNKNOWN_DATA, code,
};
use shard::{AbandonableDevice, DiskOptions, RunClock, World, spawn_on};
use std::io;
use std::pin::pin;
use std::time::Duration;
use volume::{BLOCK_BYTES, Contents};

/// Longest silence of a disk during an inspection.
const DEADLINE: Duration = Duration::from_secs(8);

/// Inspects the disk at `path`. Nothing is written, and nothing stays open. With `read_only` the disk need not be
/// writable, and udev is not triggered, which rescans a device after every close of a writable descriptor.
///
/// *Errors*: the disk cannot be opened or read, is not a disk, or is in use by something else.
pub(crate) async fn inspect_disk<W: World>(
    disks: &RemoteDisks<W>,
    path: &str,
    read_only: bool,
) -> Result<DiskReport, Refusal> {
    if !RemoteAddress::is_remote(path) {
        return inspect_local_disk(disks, path, read_only).await;
    }
    disks.landings().admit(path)?;
    let disk = disks.open(path, OpenMode::Inspect).await?;
    // Another initiator has registered: reads would work, but the disk cannot become a member.
    if let Some(key) = disk.foreign_key() {
        return Err(remote::reserved(path, key));
    }
    let identity = remote::identity(&disk);
    let report = within_deadline(disks, path, disk, async |disk| look(disk, path, identity).await).await??;
    let reached = remote::idle_report(disks.logins(), path);
    Ok(DiskReport { remote: reached, ..report })
}

/// As [`inspect_disk`], for a disk or file of this machine.
///
/// *Errors*: as [`inspect_disk`].
pub(crate) async fn inspect_local_disk<W: World>(
    disks: &RemoteDisks<W>,
    path: &str,
    read_only: bool,
) -> Result<DiskReport, Refusal> {
    // A late write of an earlier opening could overwrite what is written after this inspection.
    disks.landings().admit(path)?;
    let (world, options) = (disks.world(), DiskOptions { block_bytes: BLOCK_BYTES, read_only });
    let disk = world.open_disk(path, options).await.map_err(|error| unreadable(path, &error))?;
    let identity = identify(world, path);
    within_deadline(disks, path, disk, async |disk| look(disk, path, identity).await).await?
}

/// Runs `work` on a disk, with a deadline on its silence.
///
/// *Errors*: `DISK_UNREADABLE` after [`DEADLINE`]; the disk is not opened again before its operations have landed.
async fn within_deadline<W: World, D: BlockDevice + 'static, T>(
    disks: &RemoteDisks<W>,
    path: &str,
    device: D,
    work: impl AsyncFnOnce(&AbandonableDevice<D>) -> T,
) -> Result<T, Refusal> {
    // A clock of its own, advanced below: that of the shard runs only while a pool has a disk open.
    let (world, clock) = (disks.world(), RunClock::default());
    let disk = AbandonableDevice::new(device, clock.clone(), spawn_on(world));
    // After a timeout, operations of this inspection may land late like those of a member.
    disks.landings().watch(path, disk.in_flight());
    // The deadline is on silence, not on the total time: a slow disk that keeps answering is not given up.
    let silent = async {
        while disk.response_age().progress < DEADLINE {
            clock.step(world).await;
        }
    };
    match select(pin!(work(&disk)), pin!(silent)).await {
        Either::Left((done, _)) => Ok(done),
        Either::Right((_, work)) => {
            // Callers stop waiting now; the operations themselves land later.
            disk.interrupt();
            drop(work.await);
            let message = format!("{path} has not responded for {} s", DEADLINE.as_secs());
            Err(Refusal::new(code::DISK_UNREADABLE, message, "check the disk, its cable and its controller"))
        }
    }
}

async fn look(disk: &impl BlockDevice, path: &str, identity: DiskIdentity) -> Result<DiskReport, Refusal> {
    let geometry = disk.geometry();
    let probe = volume::probe(disk).await;
    let label = match probe.contents {
        // No label, but data of another system that must not be overwritten by accident.
        Contents::Blank if probe.has_residue => Label::Foreign { description: UNKNOWN_DATA.to_owned() },
        Contents::Blank => Label::None,
        Contents::Foreign(what) => Label::Foreign { description: what.to_owned() },
        // Not ours to overwrite, although a later version of this program wrote it.
        Contents::Newer { sentence, .. } => Label::Foreign { description: sentence },
        Contents::Damaged => Label::Damaged,
        Contents::Member(member) => Label::PoolMember {
            pool: PoolId::from_bytes(member.label.pool.into_bytes()),
            pool_name: pool_name(&member.label.pool_name),
            disk: DiskId::from_bytes(member.label.disk.into_bytes()),
            owner: member.owner.as_ref().map(owner),
        },
        Contents::Unreadable(error) => {
            let hint = "check the disk and its cable";
            return Err(Refusal::new(code::DISK_UNREADABLE, format!("{path} cannot be read: {error}"), hint));
        }
    };
    Ok(DiskReport {
        name: None,
        path: path.to_owned(),
        size: Size::new(geometry.bytes()),
        logical_block_bytes: geometry.block_bytes,
        physical_block_bytes: geometry.physical_block_bytes,
        label,
        state: DiskState::Free,
        counters: DiskCounters::default(),
        spare: None,
        former: None,
        identity,
        health: None,
        remote: None,
    })
}

/// Translates an owner's mark into the terms of the model.
fn owner(mark: &cluster::Claim) -> LabelOwner {
    LabelOwner {
        node: NodeId::from_bytes(mark.node.into_bytes()),
        node_name: mark.name.clone(),
        machine: mark.machine.map(|machine| MachineId::from_bytes(machine.into_bytes())),
        released: mark.released,
    }
}

/// Hardware identity of the disk at `path`, as reported by the system.
pub(crate) fn identify<W: World>(world: &W, path: &str) -> DiskIdentity {
    // A file has no hardware, and an identity that cannot be read hinders nothing.
    let facts = world.describe_disk(path).unwrap_or_default();
    DiskIdentity {
        serial: facts.serial,
        model: facts.model,
        wwn: facts.wwn,
        partition: facts.partition,
        stable_path: facts.stable_path,
        rotational: facts.rotational,
        enclosure: facts.enclosure,
        slot: facts.slot,
        has_light: facts.has_light,
    }
}

/// Erases the label of the disk at `path`, durably.
pub(crate) async fn erase<W: World>(disks: &RemoteDisks<W>, path: &str) -> Result<(), Refusal> {
    let disk = open_as(disks, path, false, false).await?;
    let wiped = within_deadline(disks, path, disk, async |disk| volume::wipe(disk).await).await?;
    wiped.map(|_| ()).map_err(|error| {
        Refusal::new(
            code::DISK_UNREADABLE,
            format!("{path} cannot be written: {error}"),
            "check the disk and its cable",
        )
    })
}

/// Opens the disk at `path` for use as a member, with blocks of 4096 bytes.
///
/// Read-only on request. A remote disk is registered with, which is an error if another initiator has registered; with
/// `force` that registration is preempted.
pub(crate) async fn open_as<W: World>(
    disks: &RemoteDisks<W>,
    path: &str,
    read_only: bool,
    force: bool,
) -> Result<MemberDisk<W>, Refusal> {
    // A late write of an earlier opening would overwrite what the pool writes from now on.
    disks.landings().admit(path)?;
    if RemoteAddress::is_remote(path) {
        // Looking at a remote disk registers no reservation key.
        let usage = if read_only { OpenMode::Inspect } else { OpenMode::ReadWrite { force } };
        return disks.open(path, usage).await.map(MemberDisk::Remote);
    }
    let options = DiskOptions { block_bytes: BLOCK_BYTES, read_only };
    disks.world().open_disk(path, options).await.map(MemberDisk::Local).map_err(|error| unreadable(path, &error))
}

/// Refusal for a path that cannot be opened.
pub(crate) fn unreadable(path: &str, error: &io::Error) -> Refusal {
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::new(
            code::DISK_UNREADABLE,
            format!("{path} does not exist"),
            "give the path of a block device or a regular file",
        ),
        io::ErrorKind::InvalidInput => Refusal::new(
            code::DISK_WRONG_KIND,
            format!("{path} is neither a block device nor a regular file"),
            "give the path of one",
        ),
        io::ErrorKind::ResourceBusy => Refusal::new(
            code::DISK_IN_USE,
            format!("{path} is in use"),
            "unmount it, remove it from its array or stop the other daemon first",
        ),
        _ => Refusal::new(
            code::DISK_UNREADABLE,
            format!("{path} cannot be opened: {error}"),
            "give the daemon read and write permission",
        ),
    }
}

/// Pool name of a label. Names written by us are valid; any other is reported as "unnamed".
fn pool_name(name: &str) -> model::Name {
    name.parse().unwrap_or_else(|_| "unnamed".parse().expect("this is a name"))
}
