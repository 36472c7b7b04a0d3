//! Arguments of `blockyard state …`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Actions on the stored state of the array.
#[derive(Debug, Subcommand)]
pub(crate) enum StateCommand {
    /// Show the version of the state in use, and the reason if changes are refused
    #[command(after_help = "Example:\n  blockyard state show")]
    Show,
    /// Accept the older version of the state in use, and allow changes again
    #[command(after_help = "If the latest version of the state is damaged, the daemon uses the latest intact one and \
             refuses changes.
Check hosts, mappings and users first: later changes are missing. The damaged file is kept as *.damaged.

Example:
  blockyard state show
  blockyard state accept")]
    Accept,
    /// List the copies of the state on the disks of pools, and restore one if the state folder is lost; the daemon must
    /// be stopped
    #[command(
        after_help = "Copies are never restored automatically. Each line shows the version, when and by which node \
             it was written, and how it differs
from the state in the folder, or from the first copy where there is none: + only in the copy, - not in the copy, ~ other values.
Users and alert receivers are not in copies. Secrets are encrypted with node.key, which must be restored as well.

Example:
  blockyard state recover /dev/sdb /dev/sdc
  blockyard state recover /dev/sdb /dev/sdc --take 42"
    )]
    Recover(RecoverOptions),
}

/// Options of `blockyard state recover`.
#[derive(Debug, Args)]
pub(crate) struct RecoverOptions {
    /// Disks of pools: block devices or files
    #[arg(required = true, value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// Restore the copy of this version
    #[arg(long, value_name = "VERSION")]
    pub take: Option<u64>,
    /// Set the folder of the state [default: /var/lib/blockyard]
    #[arg(long, value_name = "FOLDER", default_value = "/var/lib/blockyard", hide_default_value = true)]
    pub state_dir: PathBuf,
}
