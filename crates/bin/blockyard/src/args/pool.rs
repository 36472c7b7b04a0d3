//! Arguments of `blockyard pool …`.

use super::{DiskGiven, ListOptions, PatienceOptions, setting};
use clap::{Subcommand, ValueEnum};
use model::{DiskName, Level, MemberSize, Name, Size};
use std::path::PathBuf;

/// Actions on pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List all pools, including those that are not open
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard pool list")]
    List(ListOptions),
    /// Create a pool from disks
    #[command(after_help = "Example:
  blockyard pool create tank --level raid6 d0 d1 d2 d3 d4 d5
  blockyard pool create safe --level raid6 d0 d1 d2 d3 d4 d5 --spare d6
  blockyard pool create wide --level raid6 --spread enclosures d0 d1 d2 d3 d4 d5
  blockyard pool create fast --level raid10 --groups 2 --chunk 128KiB d0 d1 d2 d3 d4 d5 d6 d7")]
    Create {
        /// Name of the pool
        name: Name,
        /// Disks by name, as listed by blockyard disk list; or by path, such as /dev/sdb
        #[arg(required = true, value_name = "DISK")]
        disks: Vec<DiskGiven>,
        /// Set the RAID level: raid0, raid1, raid5, raid6 or raid10
        #[arg(long, value_name = "LEVEL")]
        level: Level,
        /// Divide the disks into this many groups, and stripe volumes over them
        #[arg(long, default_value_t = 1, value_name = "N")]
        groups: usize,
        /// Set the chunk size, the bytes on one disk before the next [default: 64KiB]
        #[arg(long, value_name = "SIZE")]
        chunk: Option<Size>,
        /// Add a hot spare, which replaces a failed disk automatically; may be repeated
        #[arg(long = "spare", value_name = "DISK")]
        spares: Vec<DiskName>,
        /// Place the disks so that the pool survives the loss of an enclosure where possible
        #[arg(long, value_name = "WHAT")]
        spread: Option<Spread>,
        /// Set the space used on each disk: `rounded` leaves some of the smallest disk unused, so that another disk of
        /// the same nominal size fits; `exact` uses all of the smallest; a size counts as the size of each disk
        /// [default: rounded]
        #[arg(long, value_name = "SIZE")]
        member_size: Option<MemberSize>,
        /// Keep no checksums and no log: corrupt blocks are not detected, and a crash may lose more than the writes in
        /// flight
        #[arg(long)]
        no_integrity: bool,
        /// Overwrite the content of the disks
        #[arg(long)]
        force: bool,
    },
    /// Show a pool: groups, disks, rebuild or reshape
    #[command(after_help = "Example:
  blockyard pool show tank
  blockyard pool show tank --watch
  blockyard pool show tank --wait --quiet && echo rebuilt")]
    Show {
        /// Name of the pool
        name: Name,
        /// Follow rebuilds and reshapes until they finish
        #[arg(long)]
        watch: bool,
        /// Return only when no rebuild or reshape is running; exit with code 1 unless the pool is then healthy
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// Set the repair, scrub and space settings of a pool; without settings, show them
    #[command(after_help = "Example:
  blockyard pool set tank rebuild=fast rebuild.max=200MiB/s
  blockyard pool set tank rebuild.done-by=2h
  blockyard pool set tank rebuild.latency=20ms
  blockyard pool set tank scrub=weekly scrub.window=01:00-05:00
  blockyard pool set tank space.soft=70% space.hard=90%
  blockyard pool set tank

Settings: rebuild (idle, balanced, fast), rebuild.min, rebuild.max, rebuild.done-by, rebuild.latency, disk.deadline, disk.wait,
disk.errors, disk.error-rate, disk.slow, scrub (weekly, monthly, off), scrub.window (hours in UTC), space.soft and
space.hard (percent).")]
    Set {
        /// Name of the pool
        name: Name,
        /// Settings and their values
        #[arg(value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Pause rebuild, resync and scrub of a pool until it is resumed
    #[command(after_help = "Example:\n  blockyard pool pause tank")]
    Pause {
        /// Name of the pool
        name: Name,
    },
    /// Resume paused maintenance of a pool
    #[command(after_help = "Example:\n  blockyard pool resume tank")]
    Resume {
        /// Name of the pool
        name: Name,
    },
    /// Scrubs, which read and verify all data of a pool: start, stop, status
    #[command(subcommand, after_help = "Example:\n  blockyard pool scrub start tank")]
    Scrub(ScrubCommand),
    /// Add a disk group to a pool: new and growing volumes are striped over it as well
    #[command(after_help = "Example:
  blockyard pool add-group tank --level raid6 d6 d7 d8 d9 d10 d11")]
    AddGroup {
        /// Name of the pool
        name: Name,
        /// Disks of the group by name, as listed by blockyard disk list; or by path
        #[arg(required = true, value_name = "DISK")]
        disks: Vec<DiskGiven>,
        /// Set the RAID level: raid0, raid1, raid5, raid6 or raid10
        #[arg(long, value_name = "LEVEL")]
        level: Level,
        /// Set the chunk size, the bytes on one disk before the next [default: 64KiB]
        #[arg(long, value_name = "SIZE")]
        chunk: Option<Size>,
        /// Set the space used on each disk: `rounded` leaves some of the smallest disk unused, so that another disk of
        /// the same nominal size fits; `exact` uses all of the smallest; a size counts as the size of each disk
        /// [default: rounded]
        #[arg(long, value_name = "SIZE")]
        member_size: Option<MemberSize>,
        /// Keep no checksums and no log: corrupt blocks are not detected, and a crash may lose more than the writes in
        /// flight
        #[arg(long)]
        no_integrity: bool,
        /// Overwrite the content of the disks
        #[arg(long)]
        force: bool,
    },
    /// Expand a group by one disk, and reshape it over all of its members
    #[command(after_help = "Example:
  blockyard pool add-member tank d6
  blockyard pool add-member tank d6 --group 1 --wait

Groups of RAID-5 and RAID-6 are reshaped stripe by stripe while the pool stays online; the new space is available at
the end. The reshape runs at the rebuild rate, continues after a crash, and cannot be undone. A mirror gets one
more copy and no space. RAID-0 and RAID-10 cannot be reshaped: add a group with blockyard pool add-group.")]
    AddMember {
        /// Name of the pool
        name: Name,
        /// Disk by name, as listed by blockyard disk list; or by path
        #[arg(value_name = "DISK")]
        disk: DiskGiven,
        /// Number of the group, as shown by pool show [default: the only group]
        #[arg(long, value_name = "N")]
        group: Option<u16>,
        /// Overwrite the content of the disk
        #[arg(long)]
        force: bool,
        /// Return only when the reshape has finished
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// Grow a pool to the full size of its disks, after every disk of a group was replaced by a larger one
    #[command(after_help = "Example:
  blockyard disk replace d0 big0 --force --yes --wait
  blockyard pool grow tank

After the last disk of a group is replaced and rebuilt, blockyard pool show prints the space that can be gained. Volumes
stay online, and the space is available at once. A group can grow eight times; its smallest disk sets the size.")]
    Grow {
        /// Name of the pool
        name: Name,
        /// Number of the group, as shown by pool show [default: every group that can grow]
        #[arg(long, value_name = "N")]
        group: Option<u16>,
        /// Set the space used on each disk: `rounded` leaves some of the smallest disk unused, so that another disk of
        /// the same nominal size fits; `exact` uses all of the smallest; a size counts as the size of each disk
        /// [default: rounded]
        #[arg(long, value_name = "SIZE")]
        member_size: Option<MemberSize>,
    },
    /// Add a log device to a pool: writes to volumes with the policy back are acknowledged from it, without data loss
    #[command(after_help = "Example:
  blockyard pool add-log tank n0 n1
  blockyard volume set tank/vm1 --write-policy back

Two or more disks form a mirror. After a shutdown or a crash the contents of the log are written to the disks of \
     the pool
before its volumes come online.")]
    AddLog {
        /// Name of the pool
        name: Name,
        /// Disks of the log, preferably fast ones with power-loss protection
        #[arg(required = true, value_name = "DISK")]
        disks: Vec<DiskGiven>,
        /// Accept a single log disk even if the pool itself survives a disk failure
        #[arg(long)]
        yes: bool,
        /// Overwrite the content of the disks
        #[arg(long)]
        force: bool,
    },
    /// Remove the log device of a pool; no volume may use the write policy back then
    #[command(after_help = "Example:
  blockyard volume set tank/vm1 --write-policy through
  blockyard pool remove-log tank
  blockyard pool remove-log tank --lost --yes

Setting a volume to write-through empties its part of the log. With --lost a log is removed whose disks are lost: the
volumes that wait for it come online again, without the last acknowledged writes.")]
    RemoveLog {
        /// Name of the pool
        name: Name,
        /// Discard the writes of volumes in a log that cannot be read
        #[arg(long)]
        lost: bool,
        /// Do not ask for confirmation by typing the name
        #[arg(long)]
        yes: bool,
    },
    /// Save the key of a pool to a file: without this file or this node its encrypted volumes cannot be read
    #[command(after_help = "Example:
  blockyard pool key tank --file tank.key

Keep the file away from the disks of this node. It opens the encrypted volumes of the pool on another node, and on \
     this one if its own key is lost.")]
    Key {
        /// Name of the pool
        name: Name,
        /// File to create; it must not exist, and only its owner can read it
        #[arg(long, value_name = "PATH")]
        file: PathBuf,
    },
    /// Close a pool without mapped volumes, so that its disks can be moved to another machine
    #[command(after_help = "Example:
  blockyard pool export tank

Encrypted volumes need the pool key on the other machine: save it first with blockyard pool key.")]
    Export {
        /// Name of the pool
        name: Name,
        /// Export the pool and end the presentations of its volumes, even if sessions lose access to them
        #[arg(long)]
        force: bool,
    },
    /// Open a pool that was found on its disks, or whose disks are available again
    #[command(after_help = "Example:
  blockyard disk add /dev/sdb /dev/sdc /dev/sdd /dev/sde
  blockyard pool import tank
  blockyard pool import tank --force
  blockyard pool import tank --read-only
  blockyard pool import tank --key-file tank.key

A pool that another node uses is not opened. If another node did not export the pool, its disks are watched for six
seconds; if they are not in use, --force imports the pool.")]
    Import {
        /// Name of the pool, as stored on its disks
        name: Name,
        /// Forcibly import a pool that its previous owner did not export; only if that node is certainly down
        #[arg(long)]
        force: bool,
        /// Open the pool even if part of a group's redo log cannot be read on any disk: blocks that this part had
        /// changed may be older than what was acknowledged
        #[arg(long)]
        accept_log_loss: bool,
        /// Import the pool read-only, also after a restart: its disks are not written, and hosts may only read its
        /// volumes. To write to the pool, import it without this option [default: only if its disks cannot be written]
        #[arg(long)]
        read_only: bool,
        /// File written by blockyard pool key on the previous owner: this node can then read the encrypted volumes
        #[arg(long, value_name = "PATH")]
        key_file: Option<PathBuf>,
        /// Keep the part of the pool that this disk belongs to, if parts of the pool were written independently; writes
        /// to the other part are lost
        #[arg(long, value_name = "DISK")]
        keep: Option<DiskName>,
        /// Do not ask for confirmation by typing the name where data may be lost
        #[arg(long)]
        yes: bool,
    },
    /// Check the metadata of a pool without changing it; exit with code 1 if there are errors
    #[command(after_help = "Example:\n  blockyard pool check tank")]
    Check {
        /// Name of the pool
        name: Name,
    },
    /// Repair errors found by `pool check`; lists the changes and asks first
    #[command(after_help = "Example:\n  blockyard pool repair tank --yes\n  blockyard pool repair tank --accept-loss")]
    Repair {
        /// Name of the pool
        name: Name,
        /// Continue with the rest of a volume map whose blocks are lost in every copy: data may be older, as listed
        #[arg(long)]
        accept_loss: bool,
        /// Do not ask for confirmation by typing the name
        #[arg(long)]
        yes: bool,
    },
    /// Print the catalog of a pool and the maps of its volumes, for people: the format changes between versions
    #[command(after_help = "Example:\n  blockyard pool dump tank > tank.txt")]
    Dump {
        /// Name of the pool
        name: Name,
    },
    /// Destroy a pool without volumes; its disks become free
    #[command(after_help = "Example:\n  blockyard pool destroy tank --yes")]
    Destroy {
        /// Name of the pool
        name: Name,
        /// Do not ask for confirmation by typing the name
        #[arg(long)]
        yes: bool,
    },
}

/// Failure domain that members of a group are distributed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spread {
    /// Enclosures that the disks sit in.
    Enclosures,
}

/// Actions on scrubs.
#[derive(Debug, Subcommand)]
pub(crate) enum ScrubCommand {
    /// Start a scrub: read and verify all data while the pool is online
    #[command(after_help = "Example:
  blockyard pool scrub start tank
  blockyard pool scrub start tank --repair
  blockyard pool scrub start tank --wait")]
    Start {
        /// Name of the pool
        pool: Name,
        /// Repair parity and mirrors that disagree with the data, trusting the data
        #[arg(long)]
        repair: bool,
        /// Return only when the scrub has finished
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// Stop the running scrub
    #[command(after_help = "Example:\n  blockyard pool scrub stop tank")]
    Stop {
        /// Name of the pool
        pool: Name,
    },
    /// List the results of scrubs, latest last
    #[command(after_help = "Example:\n  blockyard pool scrub status tank\n  blockyard pool scrub status tank -o json")]
    Status {
        /// Name of the pool
        pool: Name,
        #[command(flatten)]
        list: ListOptions,
    },
}
