//! `blockyard snapshot …`

use super::ListOptions;
use clap::{Args, Subcommand};
use model::{Name, Refusal, SnapshotName, Span, Timestamp, VolumeName};

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// List the snapshots, and those that are being deleted
    #[command(
        visible_alias = "ls",
        after_help = "Example:
  blockyard snapshot list
  blockyard snapshot list tank/vm1"
    )]
    List {
        /// Only of this volume
        volume: Option<VolumeName>,
        #[command(flatten)]
        list: ListOptions,
    },
    /// Make a snapshot of a volume, or of several of one pool at one instant
    #[command(after_help = "Example:
  blockyard snapshot create tank/vm1 monday
  blockyard snapshot create tank/db,tank/log before-update
  blockyard snapshot create tank/vm1 audit --lock-until 90d")]
    Create {
        /// Of which volumes
        #[arg(value_delimiter = ',', required = true, value_name = "VOLUME[,VOLUME…]")]
        volumes: Vec<VolumeName>,
        /// What to call it: it is POOL/VOLUME@NAME then
        name: Name,
        #[command(flatten)]
        lock: LockOptions,
    },
    /// Delete a snapshot; what only it holds is given back in the background
    #[command(after_help = "Example:\n  blockyard snapshot delete tank/vm1@monday --yes")]
    Delete {
        /// Which, as POOL/VOLUME@NAME
        name: SnapshotName,
        /// Do not ask for the name to be typed
        #[arg(long)]
        yes: bool,
    },
    /// Keep a snapshot from being deleted; a lock can become longer, never shorter
    #[command(after_help = "Example:
  blockyard snapshot lock tank/vm1@monday --lock-until 2027-11-21T00:00:00Z
  blockyard snapshot lock tank/vm1@monday --locked")]
    Lock {
        /// Which, as POOL/VOLUME@NAME
        name: SnapshotName,
        #[command(flatten)]
        lock: LockOptions,
    },
}

/// Until when a snapshot cannot be deleted.
#[derive(Clone, Copy, Debug, Args)]
pub struct LockOptions {
    /// Nobody can delete it before: a span from now such as 30d, or a time such as 2027-11-21T10:00:00Z
    #[arg(long, value_name = "TIME")]
    pub lock_until: Option<Until>,
    /// Nobody can ever delete it
    #[arg(long, conflicts_with = "lock_until")]
    pub locked: bool,
}

/// A time, or how long it is until then.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// So long from now.
    In(Span),
    /// Then.
    At(Timestamp),
}

impl std::str::FromStr for Until {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let at = text.parse().map(Self::At);
        at.or_else(|_: Refusal| text.parse().map(Self::In)).map_err(|refusal: Refusal| {
            let hint = "write a span such as 30d, or a time in UTC such as 2027-11-21T10:19:59Z";
            Refusal::new(refusal.code, format!("\"{text}\" is neither a span of time nor a time"), hint)
        })
    }
}
