//! `blockyard pool …`

use super::{DiskGiven, ListOptions, PatienceOptions, setting};
use clap::{Subcommand, ValueEnum};
use model::{DiskName, Level, MemberSize, Name, Size};
use std::path::PathBuf;

/// What can be done with pools.
#[derive(Debug, Subcommand)]
pub(crate) enum PoolCommand {
    /// List all pools, also those that are not open
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard pool list")]
    List(ListOptions),
    /// Make a pool of disks
    #[command(after_help = "Example:
  blockyard pool create tank --level raid6 d0 d1 d2 d3 d4 d5
  blockyard pool create safe --level raid6 d0 d1 d2 d3 d4 d5 --spare d6
  blockyard pool create wide --level raid6 --spread enclosures d0 d1 d2 d3 d4 d5
  blockyard pool create fast --level raid10 --groups 2 --chunk 128KiB d0 d1 d2 d3 d4 d5 d6 d7")]
    Create {
        /// What to call it
        name: Name,
        /// Its disks by name, see blockyard disk list; or by path, such as /dev/sdb
        #[arg(required = true, value_name = "DISK")]
        disks: Vec<DiskGiven>,
        /// raid0, raid1, raid5, raid6 or raid10
        #[arg(long, value_name = "LEVEL")]
        level: Level,
        /// Share the disks out to this many groups, and stripe volumes over them
        #[arg(long, default_value_t = 1, value_name = "N")]
        groups: usize,
        /// Bytes on one disk before the next disk's turn [default: 64KiB]
        #[arg(long, value_name = "SIZE")]
        chunk: Option<Size>,
        /// A disk that takes the place of one that is lost, by itself; repeat it for more
        #[arg(long = "spare", value_name = "DISK")]
        spares: Vec<DiskName>,
        /// Arrange the disks so that the loss of an enclosure is borne where that is possible
        #[arg(long, value_name = "WHAT")]
        spread: Option<Spread>,
        /// How much of each disk is used: `rounded` leaves some of the smallest, so that another disk of the same nominal
        /// size fits; `exact` all of the smallest; or a size, as if each disk had that [default: rounded]
        #[arg(long, value_name = "SIZE")]
        member_size: Option<MemberSize>,
        /// Keep no checksums and no log: rotten blocks are not found, and a crash may cost more than what was in flight
        #[arg(long)]
        no_integrity: bool,
        /// Overwrite what is on the disks
        #[arg(long)]
        force: bool,
    },
    /// Draw a pool: its groups, its disks, its rebuild or reshape
    #[command(after_help = "Example:
  blockyard pool show tank
  blockyard pool show tank --watch
  blockyard pool show tank --wait --quiet && echo rebuilt")]
    Show {
        /// Which
        name: Name,
        /// Follow rebuilds and reshapes until they end
        #[arg(long)]
        watch: bool,
        /// Return only when no rebuild and no reshape runs; exit code 1 unless the pool is healthy then
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// Set how a pool is repaired and looked through; without settings show them
    #[command(after_help = "Example:
  blockyard pool set tank rebuild=fast rebuild.max=200MiB/s
  blockyard pool set tank rebuild.done-by=2h
  blockyard pool set tank rebuild.latency=20ms
  blockyard pool set tank scrub=weekly scrub.window=01:00-05:00
  blockyard pool set tank space.soft=70% space.hard=90%
  blockyard pool set tank

Settings: rebuild (idle, balanced, fast), rebuild.min, rebuild.max, rebuild.done-by, rebuild.latency, disk.deadline, disk.wait,
scrub (weekly, monthly, off), scrub.window (hours in UTC), space.soft and space.hard (percent). `off` takes a setting back.")]
    Set {
        /// Which
        name: Name,
        /// What is to be how
        #[arg(value_name = "KEY=VALUE", value_parser = setting)]
        settings: Vec<(String, String)>,
    },
    /// Repair nothing of a pool until it is resumed: no rebuild, no resync, no scrub
    #[command(after_help = "Example:\n  blockyard pool pause tank")]
    Pause {
        /// Which
        name: Name,
    },
    /// Go on with what was paused
    #[command(after_help = "Example:\n  blockyard pool resume tank")]
    Resume {
        /// Which
        name: Name,
    },
    /// Scrubs: read and compare everything in a pool
    #[command(subcommand, after_help = "Example:\n  blockyard pool scrub start tank")]
    Scrub(ScrubCommand),
    /// Give a pool one more group of disks: new and growing volumes are striped over it, too
    #[command(after_help = "Example:
  blockyard pool add-group tank --level raid6 d6 d7 d8 d9 d10 d11")]
    AddGroup {
        /// Which
        name: Name,
        /// The disks of the group by name, see blockyard disk list; or by path
        #[arg(required = true, value_name = "DISK")]
        disks: Vec<DiskGiven>,
        /// raid0, raid1, raid5, raid6 or raid10
        #[arg(long, value_name = "LEVEL")]
        level: Level,
        /// Bytes on one disk before the next disk's turn [default: 64KiB]
        #[arg(long, value_name = "SIZE")]
        chunk: Option<Size>,
        /// How much of each disk is used: `rounded` leaves some of the smallest, so that another disk of the same nominal
        /// size fits; `exact` all of the smallest; or a size, as if each disk had that [default: rounded]
        #[arg(long, value_name = "SIZE")]
        member_size: Option<MemberSize>,
        /// Keep no checksums and no log: rotten blocks are not found, and a crash may cost more than what was in flight
        #[arg(long)]
        no_integrity: bool,
        /// Overwrite what is on the disks
        #[arg(long)]
        force: bool,
    },
    /// Make a disk one more member of a group, and lay the group out over all of its members
    #[command(after_help = "Example:
  blockyard pool add-member tank d6
  blockyard pool add-member tank d6 --group 1 --wait

Groups of RAID-5 and RAID-6 are laid out anew stripe by stripe, while hosts go on; when that has ended there is more
space. It goes at the pace that is set for repairs, goes on after a crash, and cannot be taken back. A mirror gets one
more copy, and no space. RAID-0 and RAID-10 cannot: give the pool one more group with blockyard pool add-group.")]
    AddMember {
        /// Which pool
        name: Name,
        /// The disk by name, see blockyard disk list; or by path
        #[arg(value_name = "DISK")]
        disk: DiskGiven,
        /// The group, by the number that pool show gives it [default: the only one]
        #[arg(long, value_name = "N")]
        group: Option<u16>,
        /// Overwrite what is on the disk
        #[arg(long)]
        force: bool,
        /// Return only when the group is laid out over all of its members
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// Let a pool use its disks whole, once every disk of a group was replaced by a larger one
    #[command(after_help = "Example:
  blockyard disk replace d0 big0 --force --yes --wait
  blockyard pool grow tank

When the last disk of a group was replaced and filled, blockyard pool show says what can be gained. Volumes stay where
they are, hosts go on, and the room is there at once. A group grows at most eight times so; the smallest disk counts.")]
    Grow {
        /// Which
        name: Name,
        /// The group, by the number that pool show gives it [default: every group that can grow]
        #[arg(long, value_name = "N")]
        group: Option<u16>,
        /// How much of each disk is used: `rounded` leaves some of the smallest, so that another disk of the same nominal
        /// size fits; `exact` all of the smallest; or a size, as if each disk had that [default: rounded]
        #[arg(long, value_name = "SIZE")]
        member_size: Option<MemberSize>,
    },
    /// Give a pool a log device: volumes with the policy back are acknowledged from it, and lose nothing
    #[command(after_help = "Example:
  blockyard pool add-log tank n0 n1
  blockyard volume set tank/vm1 --write-policy back

Two disks or more are a mirror. What is in the log when the daemon ends, however it ends, is written to the pool's disks
before its volumes serve again.")]
    AddLog {
        /// Which
        name: Name,
        /// The disks of the log, best fast ones that keep what they have acknowledged without power
        #[arg(required = true, value_name = "DISK")]
        disks: Vec<DiskGiven>,
        /// Take one disk for enough though the pool bears the loss of a disk
        #[arg(long)]
        yes: bool,
        /// Overwrite what is on the disks
        #[arg(long)]
        force: bool,
    },
    /// Take the log device of a pool away; no volume may be written back then
    #[command(after_help = "Example:
  blockyard volume set tank/vm1 --write-policy through
  blockyard pool remove-log tank
  blockyard pool remove-log tank --lost --yes

To write a volume through empties the log of it. With --lost a log goes whose disks are lost: volumes that wait for what it
held serve again, without what they acknowledged last.")]
    RemoveLog {
        /// Which
        name: Name,
        /// Give up what volumes have in a log that cannot be read
        #[arg(long)]
        lost: bool,
        /// Do not ask for the name to be typed
        #[arg(long)]
        yes: bool,
    },
    /// Write down the key of a pool: without it, or this node, nobody can read its encrypted volumes
    #[command(after_help = "Example:
  blockyard pool key tank --file tank.key

Keep the file where this node's disks are not. It opens the pool's encrypted volumes on another node, and on this one if its own key is lost.")]
    Key {
        /// Which
        name: Name,
        /// The file, which must not be there yet; only its owner can read it
        #[arg(long, value_name = "PATH")]
        file: PathBuf,
    },
    /// Close a pool that no host sees, so that its disks can go to another machine
    #[command(after_help = "Example:
  blockyard pool export tank

Another machine needs the pool's key for encrypted volumes: write it down before, with blockyard pool key.")]
    Export {
        /// Which
        name: Name,
        /// Export it and end the presentations of its volumes, though sessions lose access to them
        #[arg(long)]
        force: bool,
    },
    /// Open a pool that was found on its disks, or whose disks are back
    #[command(after_help = "Example:
  blockyard disk add /dev/sdb /dev/sdc /dev/sdd /dev/sde
  blockyard pool import tank
  blockyard pool import tank --force
  blockyard pool import tank --read-only
  blockyard pool import tank --key-file tank.key

A pool that another node has is not opened. Whether one that another node did not let go of is still in use is
found out by watching its disks for six seconds; if not, --force takes it over.")]
    Import {
        /// What its disks call it
        name: Name,
        /// Take it over from a node that did not let go of it and is surely down
        #[arg(long)]
        force: bool,
        /// Open it although part of a group's redo log cannot be read on any disk: blocks that this part had changed may be older
        /// than what was acknowledged
        #[arg(long)]
        accept_log_loss: bool,
        /// Write nothing to its disks, also after a restart: hosts may read its volumes. Import it without this option to write
        /// to it [default: only where its disks cannot be written]
        #[arg(long)]
        read_only: bool,
        /// What blockyard pool key wrote on the node that had it: this node can read its encrypted volumes from then on
        #[arg(long, value_name = "PATH")]
        key_file: Option<PathBuf>,
        /// Keep the part that this disk belongs to, of a pool that was written in parts without each other; what was written to the
        /// other part is lost
        #[arg(long, value_name = "DISK")]
        keep: Option<DiskName>,
        /// Do not ask for the name to be typed where data may be lost
        #[arg(long)]
        yes: bool,
    },
    /// Check what a pool says of its volumes, reading only; exit code 1 when something is wrong
    #[command(after_help = "Example:\n  blockyard pool check tank")]
    Check {
        /// Which
        name: Name,
    },
    /// Repair errors found by `pool check`; lists the changes and asks first
    #[command(after_help = "Example:\n  blockyard pool repair tank --yes\n  blockyard pool repair tank --accept-loss")]
    Repair {
        /// Which
        name: Name,
        /// Use what is left of a volume's map whose blocks are lost in every copy: blocks may be older, as the list says
        #[arg(long)]
        accept_loss: bool,
        /// Do not ask for the name to be typed
        #[arg(long)]
        yes: bool,
    },
    /// Print the catalog of a pool and the maps of its volumes, for people: the form changes with the version
    #[command(after_help = "Example:\n  blockyard pool dump tank > tank.txt")]
    Dump {
        /// Which
        name: Name,
    },
    /// Destroy a pool that has no volumes; its disks are free then
    #[command(after_help = "Example:\n  blockyard pool destroy tank --yes")]
    Destroy {
        /// Which
        name: Name,
        /// Do not ask for the name to be typed
        #[arg(long)]
        yes: bool,
    },
}

/// What members are kept apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spread {
    /// The enclosures that they sit in.
    Enclosures,
}

/// What can be done with scrubs.
#[derive(Debug, Subcommand)]
pub(crate) enum ScrubCommand {
    /// Begin to read and compare everything, while the pool serves
    #[command(after_help = "Example:
  blockyard pool scrub start tank
  blockyard pool scrub start tank --repair
  blockyard pool scrub start tank --wait")]
    Start {
        /// Which pool
        pool: Name,
        /// Put right parity and mirrors that disagree with the data, taking the data for true
        #[arg(long)]
        repair: bool,
        /// Return when it has ended
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
    /// End the scrub that runs
    #[command(after_help = "Example:\n  blockyard pool scrub stop tank")]
    Stop {
        /// Which pool
        pool: Name,
    },
    /// List what scrubs have found, the latest last
    #[command(after_help = "Example:\n  blockyard pool scrub status tank\n  blockyard pool scrub status tank -o json")]
    Status {
        /// Which pool
        pool: Name,
        #[command(flatten)]
        list: ListOptions,
    },
}
