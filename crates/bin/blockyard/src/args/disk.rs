//! `blockyard disk …`

use super::{ListOptions, PatienceOptions};
use clap::{Args, Subcommand, ValueEnum};
use model::{DiskName, Name, Refusal, Size};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What can be done with disks.
#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// List all disks, also those that were not found
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard disk list\n  blockyard disk list -o json")]
    List(ListOptions),
    /// Find disks that this machine has and the array does not know, and tell which are free to take
    #[command(after_help = "Those that are blank and in nobody's use are free. Each of the others says why it is not.

Example:
  blockyard disk find")]
    Find(ListOptions),
    /// Add block devices, files that stand for disks, or logical units of other arrays over iSCSI
    #[command(after_help = "Example:
  blockyard disk add /dev/disk/by-id/ata-ST12000-ZL2ABCDE
  blockyard disk add --name d0 --create 1GiB ./var/d0.img

A logical unit of another array, over two paths, with CHAP in both directions:
  blockyard disk add --name r0 --chap-secret-file own.secret --mutual-secret-file target.secret \\
      iscsi://node1@10.0.0.1,10.0.1.1/iqn.2026-11.io.blockyard:array1/0")]
    Add {
        /// Block devices, regular files, or addresses: iscsi://[CHAP_NAME@]IP[:PORT][,IP[:PORT]...]/TARGET/LUN
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
        /// What to call the disk; made from its path otherwise
        #[arg(long, value_name = "NAME")]
        name: Option<DiskName>,
        /// Make a sparse file of this size first, for labs
        #[arg(long, value_name = "SIZE")]
        create: Option<Size>,
        /// Add a disk that is not empty: a pool of it overwrites a file system, partitions or a member of LVM, md or ZFS.
        /// Preempt registrations of other initiators with a remote disk
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        remote: RemoteOptions,
    },
    /// Forget a disk that no pool uses; what is on it stays
    #[command(after_help = "Example:\n  blockyard disk remove d2")]
    Remove {
        /// Which
        disk: DiskName,
    },
    /// Take a disk out of its pool, as if it had died; refused when the pool cannot do without it
    #[command(after_help = "Example:\n  blockyard disk fail d2")]
    Fail {
        /// Which
        disk: DiskName,
    },
    /// Show a disk: which piece of hardware it is, where it sits, what it has done
    #[command(after_help = "Example:\n  blockyard disk show d2")]
    Show {
        /// Which
        disk: DiskName,
    },
    /// Find a disk in its rack: the light of its slot, or its own
    #[command(after_help = "Example:
  blockyard disk locate d2 on
  blockyard disk locate d2 off
  blockyard disk locate d2 --blink 60")]
    Locate {
        /// Which
        disk: DiskName,
        /// The light of its slot
        #[arg(value_enum, required_unless_present = "blink", conflicts_with = "blink")]
        light: Option<Light>,
        /// Read it in a rhythm for so many seconds, which changes nothing and lets its own light blink
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "30",
              value_parser = clap::value_parser!(u64).range(1..=600))]
        blink: Option<u64>,
    },
    /// Spares: disks that take the place of lost members by themselves
    #[command(subcommand, after_help = "Example:\n  blockyard disk spare add d6")]
    Spare(SpareCommand),
    /// Give a failed disk's place to another one, and rebuild
    #[command(after_help = "Example:
  blockyard disk replace d2 d6 --wait

A disk that failed by accident, such as one that was pulled, may take its own place again:
  blockyard disk replace d2 d2

A healthy disk is replaced when that is said twice:
  blockyard disk replace d2 d6 --force --yes")]
    Replace {
        /// The disk that failed
        disk: DiskName,
        /// The disk that takes its place, or the path of one that the array does not know yet
        #[arg(value_name = "DISK")]
        replacement: DiskGiven,
        /// Also when the disk is healthy, or the replacement holds something
        #[arg(long)]
        force: bool,
        /// Do not ask before a healthy disk is replaced
        #[arg(long)]
        yes: bool,
        /// Return only when the rebuild has ended
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
}

/// How to log in to a remote disk.
#[derive(Debug, Default, Args)]
pub(crate) struct RemoteOptions {
    /// File with the CHAP secret of this array; the CHAP name stands in the address [default: the node's name]
    #[arg(long, value_name = "FILE")]
    pub chap_secret_file: Option<PathBuf>,
    /// CHAP name of the target [default: the target's iSCSI name]
    #[arg(long, value_name = "NAME", requires = "mutual_secret_file")]
    pub mutual_user: Option<String>,
    /// File with the CHAP secret of the target (mutual CHAP)
    #[arg(long, value_name = "FILE")]
    pub mutual_secret_file: Option<PathBuf>,
    /// Require header and data digests
    #[arg(long)]
    pub digests: bool,
}

/// A disk by its name, or by its path when the array does not know it yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskGiven {
    Name(DiskName),
    Path(PathBuf),
}

impl DiskGiven {
    pub(crate) const fn name(&self) -> Option<&DiskName> {
        if let Self::Name(name) = self { Some(name) } else { None }
    }

    pub(crate) fn path(&self) -> Option<&Path> {
        if let Self::Path(path) = self { Some(path) } else { None }
    }
}

impl FromStr for DiskGiven {
    type Err = Refusal;

    /// What has a slash is a path.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        if text.contains('/') { Ok(Self::Path(text.into())) } else { text.parse().map(Self::Name) }
    }
}

/// What can be done with spares.
#[derive(Debug, Subcommand)]
pub(crate) enum SpareCommand {
    /// Make a blank disk a spare, for one pool or for all
    #[command(after_help = "Example:
  blockyard disk spare add d6
  blockyard disk spare add /dev/sdh --pool tank")]
    Add {
        /// Which; a path is added first, and forgotten again when the array refuses
        disk: DiskGiven,
        /// Only for this pool
        #[arg(long, value_name = "POOL")]
        pool: Option<Name>,
        /// Overwrite what the disk holds, when it takes a place
        #[arg(long)]
        force: bool,
    },
    /// A disk is a spare no more; it stays known
    #[command(after_help = "Example:\n  blockyard disk spare remove d6")]
    Remove {
        /// Which
        disk: DiskName,
    },
}

/// The light of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Light {
    /// It shines.
    On,
    /// It does not.
    Off,
}
