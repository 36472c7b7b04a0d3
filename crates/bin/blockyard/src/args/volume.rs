//! Arguments of `blockyard volume …`, `blockyard present`, `blockyard unpresent` and `blockyard presentation …`.

use super::{ListOptions, PatienceOptions, VolumeAt};
use clap::{Args, Subcommand};
use model::{CopySource, Name, Size, SnapshotName, VolumeName};
use std::path::PathBuf;

/// Actions on volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List all volumes
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard volume list")]
    List(ListOptions),
    /// Create a volume in a pool, or one backed by a file, by memory or by nothing
    #[command(after_help = "Example:
  blockyard volume create tank/vm1 100GiB
  blockyard volume create tank/dev 2TiB --thin --zero-detection
  blockyard volume create tank/vmfs 2TiB --block-size 4096
  blockyard volume create tank/hr 100GiB --encrypted
  blockyard volume create image --file /srv/image.raw
  blockyard volume create scratch 1GiB --ram")]
    Create {
        /// Name of the volume as POOL/VOLUME, or without a pool together with --file, --ram or --null
        name: VolumeName,
        /// Size of the volume, such as 100GiB (2^30 bytes each), 1.5TiB or 100GB (10^9)
        size: Option<Size>,
        /// Set the bytes of a logical block, 512 or 4096 [default: 512]
        #[arg(long, value_name = "BYTES")]
        block_size: Option<u32>,
        /// Allocate space when it is written (thin provisioning) instead of reserving all of it
        #[arg(long)]
        thin: bool,
        /// Set the unit of allocation and of sharing, 16KiB to 1MiB [default: 64KiB]
        #[arg(long, value_name = "SIZE")]
        granule: Option<Size>,
        /// Do not allocate granules that hold only zeros
        #[arg(long)]
        zero_detection: bool,
        /// Encrypt the data on the disks, with snapshots and clones (AES-256-XTS); hosts may then erase it by its key
        #[arg(long)]
        encrypted: bool,
        /// Set the bytes in one disk group before the next: a volume without a map, which cannot have snapshots
        #[arg(long, value_name = "SIZE")]
        stripe_unit: Option<Size>,
        /// Back the volume by this file or block device; a missing file is created
        #[arg(long, value_name = "PATH", conflicts_with_all = ["ram", "null"])]
        file: Option<PathBuf>,
        /// Back the volume by memory: its data is lost when the daemon ends
        #[arg(long, conflicts_with = "null")]
        ram: bool,
        /// Back the volume by nothing: writes are discarded, to measure everything else
        #[arg(long)]
        null: bool,
    },
    /// Show a volume: space used and activity of hosts
    #[command(after_help = "Example:\n  blockyard volume show tank/vm1")]
    Show {
        /// Name of the volume
        name: VolumeName,
    },
    /// Create a volume from a snapshot, sharing the blocks that it does not change
    #[command(after_help = "Example:
  blockyard volume clone tank/vm1@monday tank/test
  blockyard present tank/test lab")]
    Clone {
        /// Name of the snapshot, as POOL/VOLUME@NAME
        snapshot: SnapshotName,
        /// Name of the volume, in the same pool
        name: VolumeName,
        /// Reserve space for the whole volume, so that no write fails for lack of space
        #[arg(long)]
        thick: bool,
        /// Do not allocate granules that hold only zeros
        #[arg(long)]
        zero_detection: bool,
    },
    /// Copy a volume as it is now, or a snapshot, to a new volume of any pool, while hosts stay online
    #[command(after_help = "Example:
  blockyard volume copy tank/vm1 fast
  blockyard volume copy tank/vm1@monday tank --name vm1-monday --wait
  blockyard volume cancel-copy fast/vm1

The copy is a point-in-time image of the volume, taken when the command starts. Unmapped blocks stay unmapped
in the copy. The copy is listed as copying and can be used when it is complete. It continues after a restart or a
crash, once both pools are open.")]
    Copy {
        /// Source of the copy: POOL/VOLUME, or POOL/VOLUME@SNAPSHOT
        source: CopySource,
        /// Name of the destination pool
        pool: Name,
        /// Set the name of the copy [default: the source's name]
        #[arg(long)]
        name: Option<Name>,
        /// Return only when the copy is complete; exit with code 1 if it failed
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// Cancel a running copy and delete its destination
    #[command(after_help = "Example:\n  blockyard volume cancel-copy fast/vm1")]
    CancelCopy {
        /// Name of the destination volume
        name: VolumeName,
    },
    /// Roll a volume back to one of its snapshots; later writes are lost
    #[command(after_help = "Example:
  blockyard volume rollback tank/vm1@monday --yes
  blockyard volume rollback tank/vm1 monday --yes --force")]
    Rollback {
        /// Name of the volume; the name of the snapshot may follow an @
        #[arg(value_name = "VOLUME[@SNAPSHOT]")]
        name: VolumeAt,
        /// Name of the snapshot, unless it follows the volume
        snapshot: Option<Name>,
        /// Roll back even while sessions use the volume, whose hosts may have cached data that is lost then
        #[arg(long)]
        force: bool,
        /// Do not ask for confirmation by typing the name
        #[arg(long)]
        yes: bool,
    },
    /// Show the reservations and registrations of hosts on a volume, or clear them
    #[command(after_help = "Example:
  blockyard volume reservations tank/shared
  blockyard volume reservations tank/shared --clear --yes

Hosts in a cluster fence each other from a shared volume with reservations. Use --clear if no host is left to \
     release one:
remaining hosts are notified and must register again.")]
    Reservations {
        /// Name of the volume
        name: VolumeName,
        /// Clear all reservations and registrations
        #[arg(long)]
        clear: bool,
        /// Do not ask for confirmation by typing the name
        #[arg(long, requires = "clear")]
        yes: bool,
    },
    /// Set the cache and QoS settings of a volume while it is online; without settings, show them
    #[command(after_help = "Example:
  blockyard volume set tank/vm1 --cache-share 400 --read-ahead 1MiB
  blockyard volume set tank/backup --bandwidth 100MiB/s --cache-share 0
  blockyard volume set tank/db --guarantee-iops 5000 --priority 400
  blockyard volume set tank/scratch --write-policy back-volatile
  blockyard volume set tank/vm1

With back-volatile a power failure loses writes that were not flushed, as with the volatile cache of a disk.")]
    Set {
        /// Name of the volume
        name: VolumeName,
        #[command(flatten)]
        settings: VolumeSettingOptions,
    },
    /// Grow a volume while it is online
    #[command(after_help = "Example:\n  blockyard volume resize tank/vm1 200GiB")]
    Resize {
        /// Name of the volume
        name: VolumeName,
        /// New size of the volume
        size: Size,
    },
    /// Show the latency of host commands by operation, since the volume was opened
    #[command(
        after_help = "Measured from the arrival of the complete command to its response. Times are rounded up by at \
             most 12.5 %.

Example:
  blockyard volume latency tank/vm1"
    )]
    Latency {
        /// Name of the volume
        name: VolumeName,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Record the commands that hosts send to a volume, with their times, for `blockyard lab replay`; without options,
    /// show the state of the trace
    #[command(after_help = "The trace keeps the last completed commands: start time, duration, CDB, session, status
and transfer length, but no data. The file is readable by its owner only.

Example:
  blockyard volume trace tank/db --start
  blockyard volume trace tank/db
  blockyard volume trace tank/db --out db.trace
  blockyard volume trace tank/db --out db.trace --stop
  blockyard volume trace tank/db --stop")]
    Trace {
        /// Name of the volume
        name: VolumeName,
        /// Start recording
        #[arg(long, conflicts_with_all = ["out", "stop"])]
        start: bool,
        /// Set the number of commands kept, 56 bytes of memory each [default: 65536]
        #[arg(long, value_name = "N", requires = "start")]
        commands: Option<u32>,
        /// Write the recorded commands to this new file; - for standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Stop recording and discard the recorded commands
        #[arg(long)]
        stop: bool,
    },
    /// Delete a volume and all of its data
    #[command(after_help = "Example:\n  blockyard volume delete tank/vm1 --yes")]
    Delete {
        /// Name of the volume
        name: VolumeName,
        /// Delete the volume with its presentations, even if sessions lose access to it
        #[arg(long)]
        force: bool,
        /// Do not ask for confirmation by typing the name
        #[arg(long)]
        yes: bool,
    },
}

/// Settings of a volume.
#[derive(Clone, Debug, Args)]
pub(crate) struct VolumeSettingOptions {
    /// Set when a write is acknowledged: through (on the disks), back (in the log device), back-volatile (in memory)
    #[arg(long, value_name = "POLICY")]
    pub write_policy: Option<String>,
    /// Set the share of the read cache, relative to the 100 of other volumes; 0 disables caching
    #[arg(long, value_name = "N")]
    pub cache_share: Option<String>,
    /// Set the read-ahead (prefetch): off, a size, or adaptive
    #[arg(long, value_name = "HOW")]
    pub read_ahead: Option<String>,
    /// Limit the commands per second; off removes the limit
    #[arg(long, value_name = "N")]
    pub iops: Option<String>,
    /// Limit the bytes per second, such as 100MiB/s; off removes the limit
    #[arg(long, value_name = "RATE")]
    pub bandwidth: Option<String>,
    /// Set the time for which a volume that was idle may exceed these limits, such as 2s
    #[arg(long, value_name = "SPAN")]
    pub burst: Option<String>,
    /// Guarantee this many commands per second before other volumes exceed their own guarantee; off removes it
    #[arg(long, value_name = "N")]
    pub guarantee_iops: Option<String>,
    /// Set the QoS weight of the volume, relative to the 100 of other volumes
    #[arg(long, value_name = "N")]
    pub priority: Option<String>,
    /// Set whether hosts may eject its medium and load it again: yes or no
    #[arg(long, value_name = "YES|NO")]
    pub removable: Option<String>,
}

/// Options of `blockyard present`.
#[derive(Debug, Args)]
pub(crate) struct PresentOptions {
    /// Name of the volume
    pub volume: VolumeName,
    /// Name of the host, or of the group of hosts
    #[arg(required_unless_present = "everyone")]
    pub host: Option<Name>,
    /// Present the volume to every initiator that reaches a portal, without authentication
    #[arg(long, conflicts_with = "host")]
    pub everyone: bool,
    /// Spread one volume through each of N targets, or several (--also) over them: several sessions instead of one
    #[arg(long, value_name = "N", conflicts_with_all = ["lun", "target"])]
    pub spread: Option<u16>,
    /// Spread another volume as well; may be repeated
    #[arg(long = "also", value_name = "VOLUME", requires = "spread")]
    pub also: Vec<VolumeName>,
    /// Set the LUN [default: the former LUN of this volume on the host, else the lowest that no volume has used there]
    #[arg(long, value_name = "N")]
    pub lun: Option<u16>,
    /// Use this LUN even if the host has used it for another volume: a host that still has that volume open writes to
    /// this one
    #[arg(long, requires = "lun")]
    pub force: bool,
    /// Set the target [default: the first one]
    #[arg(long, value_name = "NAME")]
    pub target: Option<Name>,
    /// Deny writes of the host
    #[arg(long)]
    pub read_only: bool,
    /// Present the volume only through portals of this group; may be repeated [default: all groups]
    #[arg(long = "group", value_name = "N")]
    pub groups: Vec<u16>,
}

/// Options of `blockyard unpresent`.
#[derive(Debug, Args)]
pub(crate) struct UnpresentOptions {
    /// Name of the volume
    pub volume: VolumeName,
    /// Name of the host or group, or everyone
    pub host: Name,
    /// Unmap the volume only from this target [default: every target]
    #[arg(long, value_name = "NAME")]
    pub target: Option<Name>,
    /// Unmap the volume even if sessions lose access to it
    #[arg(long)]
    pub force: bool,
}

/// Actions on presentations.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PresentationCommand {
    /// List mappings of volumes to hosts
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard presentation list")]
    List(ListOptions),
}
