//! `blockyard volume …`, `blockyard present …` and what belongs to it.

use super::{ListOptions, PatienceOptions, VolumeAt};
use clap::{Args, Subcommand};
use model::{CopySource, Name, Size, SnapshotName, VolumeName};
use std::path::PathBuf;

/// What can be done with volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum VolumeCommand {
    /// List all volumes
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard volume list")]
    List(ListOptions),
    /// Make a volume in a pool, or one of a file, of memory or of nothing
    #[command(after_help = "Example:
  blockyard volume create tank/vm1 100GiB
  blockyard volume create tank/dev 2TiB --thin --zero-detection
  blockyard volume create tank/vmfs 2TiB --block-size 4096
  blockyard volume create tank/hr 100GiB --encrypted
  blockyard volume create image --file /srv/image.raw
  blockyard volume create scratch 1GiB --ram")]
    Create {
        /// POOL/VOLUME, or a bare name together with --file, --ram or --null
        name: VolumeName,
        /// Its size, such as 100GiB (2^30 bytes each), 1.5TiB or 100GB (10^9)
        size: Option<Size>,
        /// Bytes of a logical block, 512 or 4096 [default: 512]
        #[arg(long, value_name = "BYTES")]
        block_size: Option<u32>,
        /// Take space as it is written, instead of keeping all of it
        #[arg(long)]
        thin: bool,
        /// The unit in which space is given and shared, 16KiB to 1MiB [default: 64KiB]
        #[arg(long, value_name = "SIZE")]
        granule: Option<Size>,
        /// Let whole granules of zeros take no space
        #[arg(long)]
        zero_detection: bool,
        /// Encrypt what it holds on the disks, with its snapshots and clones (AES-256-XTS); hosts may then erase it by its key
        #[arg(long)]
        encrypted: bool,
        /// Bytes in one disk group before the next group's turn: a volume without a map, for which there are no snapshots
        #[arg(long, value_name = "SIZE")]
        stripe_unit: Option<Size>,
        /// Use this file or block device; a file that is not there is made
        #[arg(long, value_name = "PATH", conflicts_with_all = ["ram", "null"])]
        file: Option<PathBuf>,
        /// Use memory: gone with the daemon
        #[arg(long, conflicts_with = "null")]
        ram: bool,
        /// Use nothing: writes are forgotten, to measure everything else
        #[arg(long)]
        null: bool,
    },
    /// Show a volume: what it takes, and what hosts do with it
    #[command(after_help = "Example:\n  blockyard volume show tank/vm1")]
    Show {
        /// Which
        name: VolumeName,
    },
    /// Make a volume of a snapshot, which shares with it what it does not change
    #[command(after_help = "Example:
  blockyard volume clone tank/vm1@monday tank/test
  blockyard present tank/test lab")]
    Clone {
        /// Of which snapshot, as POOL/VOLUME@NAME
        snapshot: SnapshotName,
        /// Its name, in the same pool
        name: VolumeName,
        /// Keep space for all of it, so that no write is ever refused
        #[arg(long)]
        thick: bool,
        /// Let whole granules of zeros take no space
        #[arg(long)]
        zero_detection: bool,
    },
    /// Copy all that a volume shows now, or a snapshot, to a new volume of any pool, while hosts go on
    #[command(after_help = "Example:
  blockyard volume copy tank/vm1 fast
  blockyard volume copy tank/vm1@monday tank --name vm1-monday --wait
  blockyard volume cancel-copy fast/vm1

Of a volume that is in use, the copy is of one instant: that at which the command was given. What takes no space takes
none in the copy. The copy is listed as copying and can be used when it is whole. It continues after a restart or a
crash, when both pools are open.")]
    Copy {
        /// POOL/VOLUME, or POOL/VOLUME@SNAPSHOT
        source: CopySource,
        /// The pool to copy it to
        pool: Name,
        /// What to call the copy [default: as the source]
        #[arg(long)]
        name: Option<Name>,
        /// Return only when the copy is whole; exit code 1 when it could not be made
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// End a copy that runs; what it has made is gone
    #[command(after_help = "Example:\n  blockyard volume cancel-copy fast/vm1")]
    CancelCopy {
        /// The volume that is copied to
        name: VolumeName,
    },
    /// Roll a volume back to one of its snapshots; what was written since is lost
    #[command(after_help = "Example:
  blockyard volume rollback tank/vm1@monday --yes
  blockyard volume rollback tank/vm1 monday --yes --force")]
    Rollback {
        /// The volume; the name of the snapshot may follow behind an @
        #[arg(value_name = "VOLUME[@SNAPSHOT]")]
        name: VolumeAt,
        /// Name of the snapshot, unless it stands behind the volume
        snapshot: Option<Name>,
        /// Also while sessions use the volume, whose hosts may have cached what is gone then
        #[arg(long)]
        force: bool,
        /// Do not ask for the name to be typed
        #[arg(long)]
        yes: bool,
    },
    /// Show which hosts have reserved a volume or are registered to share it, or take it all back
    #[command(after_help = "Example:
  blockyard volume reservations tank/shared
  blockyard volume reservations tank/shared --clear --yes

Hosts in a cluster shut each other out of a shared volume by reserving it. --clear is for what nobody is left to release:
hosts that are still there are told, and must register again.")]
    Reservations {
        /// Which
        name: VolumeName,
        /// Take back every reservation and registration
        #[arg(long)]
        clear: bool,
        /// Do not ask for the name to be typed
        #[arg(long, requires = "clear")]
        yes: bool,
    },
    /// Set how a volume is cached and how fast it may be, while it is in use; without settings show them
    #[command(after_help = "Example:
  blockyard volume set tank/vm1 --cache-share 400 --read-ahead 1MiB
  blockyard volume set tank/backup --bandwidth 100MiB/s --cache-share 0
  blockyard volume set tank/db --guarantee-iops 5000 --priority 400
  blockyard volume set tank/scratch --write-policy back-volatile
  blockyard volume set tank/vm1

With back-volatile a power cut loses what was written and not flushed, as with the cache of a disk.")]
    Set {
        /// Which
        name: VolumeName,
        #[command(flatten)]
        settings: VolumeSettingOptions,
    },
    /// Grow a volume while it is in use
    #[command(after_help = "Example:\n  blockyard volume resize tank/vm1 200GiB")]
    Resize {
        /// Which
        name: VolumeName,
        /// Its new size
        size: Size,
    },
    /// Show how long the commands of hosts take, for each operation, since the volume was opened
    #[command(
        after_help = "From when all of a command is there to its answer. Each time is at most an eighth more than it was.

Example:
  blockyard volume latency tank/vm1"
    )]
    Latency {
        /// Which
        name: VolumeName,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Keep which commands hosts send to a volume, and when, for `blockyard lab replay`; without options show whether that is on
    #[command(
        after_help = "Kept are the last commands that have ended: when each began, how long it took, its CDB, which session sent it, its status
and how much it moved. Nothing of what hosts read or write is kept. The file is for its owner alone.

Example:
  blockyard volume trace tank/db --start
  blockyard volume trace tank/db
  blockyard volume trace tank/db --out db.trace
  blockyard volume trace tank/db --out db.trace --stop
  blockyard volume trace tank/db --stop"
    )]
    Trace {
        /// Which
        name: VolumeName,
        /// Keep them from now on
        #[arg(long, conflicts_with_all = ["out", "stop"])]
        start: bool,
        /// How many, of 56 bytes of memory each [default: 65536]
        #[arg(long, value_name = "N", requires = "start")]
        commands: Option<u32>,
        /// Write what is kept to this new file; - for standard output
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Keep none any more, and forget those that are kept
        #[arg(long)]
        stop: bool,
    },
    /// Delete a volume and everything on it
    #[command(after_help = "Example:\n  blockyard volume delete tank/vm1 --yes")]
    Delete {
        /// Which
        name: VolumeName,
        /// Delete it with its presentations, though sessions lose access to it
        #[arg(long)]
        force: bool,
        /// Do not ask for the name to be typed
        #[arg(long)]
        yes: bool,
    },
}

/// What can be set for a volume.
#[derive(Clone, Debug, Args)]
pub(crate) struct VolumeSettingOptions {
    /// When a write is acknowledged: through (on the disks), back (in the log device), back-volatile (in memory)
    #[arg(long, value_name = "POLICY")]
    pub write_policy: Option<String>,
    /// Its part of the read cache, against the 100 of other volumes; 0 for none
    #[arg(long, value_name = "N")]
    pub cache_share: Option<String>,
    /// What to read before it is asked for: off, a size, or adaptive
    #[arg(long, value_name = "HOW")]
    pub read_ahead: Option<String>,
    /// At most so many commands in a second, or off
    #[arg(long, value_name = "N")]
    pub iops: Option<String>,
    /// At most so much in a second, such as 100MiB/s, or off
    #[arg(long, value_name = "RATE")]
    pub bandwidth: Option<String>,
    /// How long a volume that was idle may be faster than that, such as 2s
    #[arg(long, value_name = "SPAN")]
    pub burst: Option<String>,
    /// At least so many commands in a second, before other volumes get more than their own, or off
    #[arg(long, value_name = "N")]
    pub guarantee_iops: Option<String>,
    /// Its part when volumes compete, against the 100 of others
    #[arg(long, value_name = "N")]
    pub priority: Option<String>,
    /// Whether hosts may eject its medium and load it again: yes or no
    #[arg(long, value_name = "YES|NO")]
    pub removable: Option<String>,
}

/// Show a volume to a host.
#[derive(Debug, Args)]
pub(crate) struct PresentOptions {
    /// Which volume
    pub volume: VolumeName,
    /// To which host, or group of hosts
    #[arg(required_unless_present = "everyone")]
    pub host: Option<Name>,
    /// To everyone who reaches a portal, without proof
    #[arg(long, conflicts_with = "host")]
    pub everyone: bool,
    /// One volume through each of N targets, or several (--also) shared out to them: several sessions instead of one
    #[arg(long, value_name = "N", conflicts_with_all = ["lun", "target"])]
    pub spread: Option<u16>,
    /// Another volume to spread; may be repeated
    #[arg(long = "also", value_name = "VOLUME", requires = "spread")]
    pub also: Vec<VolumeName>,
    /// LUN [default: the one that the host had for the volume, or the lowest that it had for no other]
    #[arg(long, value_name = "N")]
    pub lun: Option<u16>,
    /// Take this LUN though the host had another volume under it: a host that still has that open writes into this one
    #[arg(long, requires = "lun")]
    pub force: bool,
    /// Through which target [default: the first one]
    #[arg(long, value_name = "NAME")]
    pub target: Option<Name>,
    /// The host may not write
    #[arg(long)]
    pub read_only: bool,
    /// Only through portals of this group; may be repeated [default: through all]
    #[arg(long = "group", value_name = "N")]
    pub groups: Vec<u16>,
}

/// Show a volume to a host no more.
#[derive(Debug, Args)]
pub(crate) struct UnpresentOptions {
    /// Which volume
    pub volume: VolumeName,
    /// To which host
    pub host: Name,
    /// Only through this target [default: through every target]
    #[arg(long, value_name = "NAME")]
    pub target: Option<Name>,
    /// Take it away though sessions lose access to it
    #[arg(long)]
    pub force: bool,
}

/// What can be done with presentations.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum PresentationCommand {
    /// List who sees what
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard presentation list")]
    List(ListOptions),
}
