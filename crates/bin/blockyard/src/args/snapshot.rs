//! `blockyard snapshot …`

use super::ListOptions;
use clap::{Args, Subcommand};
use model::{Name, Refusal, SnapshotName, Span, Timestamp, VolumeName, code};
use std::str::FromStr;

/// What can be done with snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
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
    /// Create a snapshot of a volume, or of several volumes of one pool at one instant
    #[command(after_help = "Example:
  blockyard snapshot create tank/vm1@monday
  blockyard snapshot create tank/vm1 monday
  blockyard snapshot create tank/db,tank/log before-update
  blockyard snapshot create tank/vm1 audit --lock-until 90d")]
    Create {
        /// Volumes, separated by commas; the name may follow behind an @
        #[arg(value_name = "VOLUME[,VOLUME…][@NAME]")]
        volumes: VolumesAt,
        /// Name of the snapshot, unless it stands behind the volumes; the snapshot is POOL/VOLUME@NAME then
        name: Option<Name>,
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

/// A volume, with the name of one of its snapshots where that is given with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeAt {
    /// The volume.
    pub volume: VolumeName,
    /// The name behind the `@`.
    pub snapshot: Option<Name>,
}

/// Volumes that get snapshots of one name, with that name where it is given with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumesAt(Vec<VolumeAt>);

impl FromStr for VolumeAt {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let (volume, snapshot) = text.split_once('@').map_or((text, None), |(volume, name)| (volume, Some(name)));
        Ok(Self { volume: volume.parse()?, snapshot: snapshot.map(str::parse).transpose()? })
    }
}

impl FromStr for VolumesAt {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(Self)
    }
}

impl VolumeAt {
    /// The snapshot, whose name stands behind the volume or is given apart.
    ///
    /// *Errors*: it is given nowhere, or twice.
    pub(crate) fn with(self, apart: Option<Name>) -> Result<SnapshotName, Refusal> {
        let name = one_name(&self.volume, self.snapshot.iter().chain(&apart))?;
        Ok(SnapshotName::of(self.volume, name))
    }
}

impl VolumesAt {
    /// The volumes, and the name of their snapshots, which stands behind them or is given apart.
    ///
    /// *Errors*: it is given nowhere, or there are two.
    pub(crate) fn with(self, apart: Option<Name>) -> Result<(Vec<VolumeName>, Name), Refusal> {
        let names = self.0.iter().filter_map(|at| at.snapshot.as_ref()).chain(&apart);
        let name = one_name(&self.0[0].volume, names)?;
        Ok((self.0.into_iter().map(|at| at.volume).collect(), name))
    }
}

/// The only name among these, of a snapshot of `volume`.
fn one_name<'a>(volume: &VolumeName, mut names: impl Iterator<Item = &'a Name>) -> Result<Name, Refusal> {
    let Some(name) = names.next() else {
        let hint = format!("write {volume}@NAME, or {volume} NAME");
        return Err(Refusal::new(code::VALUE_MISSING, format!("the snapshot of {volume} has no name"), hint));
    };
    match names.find(|other| *other != name) {
        None => Ok(name.clone()),
        Some(other) => {
            let message = format!("there are two names for the snapshot of {volume}, {name} and {other}");
            Err(Refusal::new(code::OPTIONS_CONFLICT, message, "give one of them"))
        }
    }
}

/// Until when a snapshot cannot be deleted.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LockOptions {
    /// Nobody can delete it before: a span from now such as 30d, or a time such as 2027-11-21T10:00:00Z
    #[arg(long, value_name = "TIME")]
    pub lock_until: Option<Until>,
    /// Nobody can ever delete it
    #[arg(long, conflicts_with = "lock_until")]
    pub locked: bool,
}

/// A time, or how long it is until then.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// So long from now.
    In(Span),
    /// Then.
    At(Timestamp),
}

impl FromStr for Until {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let at = text.parse().map(Self::At);
        at.or_else(|_: Refusal| text.parse().map(Self::In)).map_err(|refusal: Refusal| {
            let hint = "write a span such as 30d, or a time in UTC such as 2027-11-21T10:19:59Z";
            Refusal::new(refusal.code, format!("\"{text}\" is neither a span of time nor a time"), hint)
        })
    }
}
