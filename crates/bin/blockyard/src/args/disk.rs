//! Arguments of `blockyard disk …`.

use super::{ListOptions, PatienceOptions};
use clap::{Args, Subcommand, ValueEnum};
use model::{DiskName, Name, Refusal, Size};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Actions on disks.
#[derive(Debug, Subcommand)]
pub(crate) enum DiskCommand {
    /// List all disks, including missing ones
    #[command(visible_alias = "ls", after_help = "Example:\n  blockyard disk list\n  blockyard disk list -o json")]
    List(ListOptions),
    /// Find disks of this machine that the array does not know, and show which are free
    #[command(after_help = "Disks that are blank and not in use are free. For each other disk the reason is shown.

Example:
  blockyard disk find")]
    Find(ListOptions),
    /// Add block devices, files used as disks, or logical units of other arrays over iSCSI
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
        /// Set the name of the disk [default: made from its path]
        #[arg(long, value_name = "NAME")]
        name: Option<DiskName>,
        /// Create a sparse file of this size first, for labs
        #[arg(long, value_name = "SIZE")]
        create: Option<Size>,
        /// Add a disk that is not empty: a pool on it overwrites a file system, partitions or a member of LVM, md or
        /// ZFS. Preempt registrations of other initiators on a remote disk
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        remote: RemoteOptions,
    },
    /// Remove a disk that no pool uses; its content stays
    #[command(after_help = "Example:\n  blockyard disk remove d2")]
    Remove {
        /// Name of the disk
        disk: DiskName,
    },
    /// Mark a disk as failed and remove it from its pool; refused when the pool needs it
    #[command(after_help = "Example:\n  blockyard disk fail d2")]
    Fail {
        /// Name of the disk
        disk: DiskName,
    },
    /// Show a disk: hardware identity, location and statistics
    #[command(after_help = "Example:\n  blockyard disk show d2")]
    Show {
        /// Name of the disk
        disk: DiskName,
    },
    /// Locate a disk in its rack by the light of its slot, or by its own
    #[command(after_help = "Example:
  blockyard disk locate d2 on
  blockyard disk locate d2 off
  blockyard disk locate d2 --blink 60")]
    Locate {
        /// Name of the disk
        disk: DiskName,
        /// State of the slot's locate light
        #[arg(value_enum, required_unless_present = "blink", conflicts_with = "blink")]
        light: Option<Light>,
        /// Blink the disk's own activity light by reading it at intervals for 1 to 600 seconds; changes nothing
        /// [default: 30]
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "30",
              value_parser = clap::value_parser!(u64).range(1..=600))]
        blink: Option<u64>,
    },
    /// Hot spares, which replace failed members automatically: add, remove
    #[command(subcommand, after_help = "Example:\n  blockyard disk spare add d6")]
    Spare(SpareCommand),
    /// Replace a failed disk with another one, and rebuild
    #[command(after_help = "Example:
  blockyard disk replace d2 d6 --wait

A disk that is good but was marked failed, such as one that was pulled, can rejoin its own slot:
  blockyard disk replace d2 d2

Replacing a healthy disk needs two confirmations:
  blockyard disk replace d2 d6 --force --yes")]
    Replace {
        /// Name of the failed disk
        disk: DiskName,
        /// Name of the replacement, or path of a disk that the array does not know yet
        #[arg(value_name = "DISK")]
        replacement: DiskGiven,
        /// Replace a healthy disk as well, or use a replacement that is not empty
        #[arg(long)]
        force: bool,
        /// Do not ask for confirmation before a healthy disk is replaced
        #[arg(long)]
        yes: bool,
        /// Return only when the rebuild has finished
        #[arg(long)]
        wait: bool,
        #[command(flatten)]
        patience: PatienceOptions,
    },
}

/// Credentials and options for the login to a remote disk.
#[derive(Debug, Default, Args)]
pub(crate) struct RemoteOptions {
    /// File with the CHAP secret of this array; its CHAP name is part of the address [default: the node's name]
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

/// Disk named by its registered name, or by its path if the array does not know it yet.
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

    /// Reads text with a slash as a path, and any other text as a name.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        // Names have no slash. A file in the current folder is written `./d0.img`.
        if text.contains('/') { Ok(Self::Path(text.into())) } else { text.parse().map(Self::Name) }
    }
}

/// Actions on hot spares.
#[derive(Debug, Subcommand)]
pub(crate) enum SpareCommand {
    /// Add a blank disk as a hot spare, for one pool or for all
    #[command(after_help = "Example:
  blockyard disk spare add d6
  blockyard disk spare add /dev/sdh --pool tank")]
    Add {
        /// Name or path of the disk; a path is added first, and removed again if the array refuses the spare
        disk: DiskGiven,
        /// Use the spare only for this pool
        #[arg(long, value_name = "POOL")]
        pool: Option<Name>,
        /// Overwrite the content of the disk when it replaces a member
        #[arg(long)]
        force: bool,
    },
    /// Remove a disk from the hot spares; the array keeps the disk
    #[command(after_help = "Example:\n  blockyard disk spare remove d6")]
    Remove {
        /// Name of the disk
        disk: DiskName,
    },
}

/// State of the locate light of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Light {
    /// Light on.
    On,
    /// Light off.
    Off,
}
