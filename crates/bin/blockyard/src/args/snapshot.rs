//! Arguments of `blockyard snapshot …`.

use super::ListOptions;
use clap::{Args, Subcommand};
use model::{Name, Refusal, SnapshotName, Span, Timestamp, VolumeName, code};
use std::str::FromStr;

/// Actions on snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// List snapshots, including those that are being deleted
    #[command(
        visible_alias = "ls",
        after_help = "Example:
  blockyard snapshot list
  blockyard snapshot list tank/vm1"
    )]
    List {
        /// Name of the volume [default: all volumes]
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
        /// Volumes, separated by commas; the name of the snapshot may follow an @
        #[arg(value_name = "VOLUME[,VOLUME…][@NAME]")]
        volumes: VolumesAt,
        /// Name of the snapshot, unless it follows the volumes; the snapshot is then POOL/VOLUME@NAME
        name: Option<Name>,
        #[command(flatten)]
        lock: LockOptions,
    },
    /// Delete a snapshot; space that only it uses is freed in the background
    #[command(after_help = "Example:\n  blockyard snapshot delete tank/vm1@monday --yes")]
    Delete {
        /// Name of the snapshot, as POOL/VOLUME@NAME
        name: SnapshotName,
        /// Do not ask for confirmation by typing the name
        #[arg(long)]
        yes: bool,
    },
    /// Lock a snapshot against deletion; a lock can be extended, never shortened
    #[command(after_help = "Example:
  blockyard snapshot lock tank/vm1@monday --lock-until 2027-11-21T00:00:00Z
  blockyard snapshot lock tank/vm1@monday --locked")]
    Lock {
        /// Name of the snapshot, as POOL/VOLUME@NAME
        name: SnapshotName,
        #[command(flatten)]
        lock: LockOptions,
    },
}

/// Volume, with the name of one of its snapshots if it follows an `@`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeAt {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Name after the `@`.
    pub snapshot: Option<Name>,
}

/// Volumes for snapshots of one name, with that name if it follows an `@`.
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
    /// Returns the name of the snapshot, from the text after the `@` or from the separate argument.
    ///
    /// *Errors*: the name is missing, or the two names differ.
    pub(crate) fn with(self, apart: Option<Name>) -> Result<SnapshotName, Refusal> {
        let name = one_name(&self.volume, self.snapshot.iter().chain(&apart))?;
        Ok(SnapshotName::of(self.volume, name))
    }
}

impl VolumesAt {
    /// Returns the volumes and the common name of their snapshots, from the text after an `@` or from the separate
    /// argument.
    ///
    /// *Errors*: the name is missing, or there are two different names.
    pub(crate) fn with(self, apart: Option<Name>) -> Result<(Vec<VolumeName>, Name), Refusal> {
        let names = self.0.iter().filter_map(|at| at.snapshot.as_ref()).chain(&apart);
        let name = one_name(&self.0[0].volume, names)?;
        Ok((self.0.into_iter().map(|at| at.volume).collect(), name))
    }
}

/// Returns the only name among `names`; `volume` is named in the error otherwise.
fn one_name<'a>(volume: &VolumeName, mut names: impl Iterator<Item = &'a Name>) -> Result<Name, Refusal> {
    let Some(name) = names.next() else {
        let hint = format!("write {volume}@NAME, or {volume} NAME");
        return Err(Refusal::new(code::VALUE_MISSING, format!("the snapshot of {volume} has no name"), hint));
    };
    match names.find(|other| *other != name) {
        None => Ok(name.clone()),
        Some(other) => {
            let message = format!("two names were given for the snapshot of {volume}: {name} and {other}");
            Err(Refusal::new(code::OPTIONS_CONFLICT, message, "give one name"))
        }
    }
}

/// Lock of a snapshot against deletion.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LockOptions {
    /// Lock the snapshot until a time such as 2027-11-21T10:00:00Z, or for a span from now such as 30d
    #[arg(long, value_name = "TIME")]
    pub lock_until: Option<Until>,
    /// Lock the snapshot permanently: it can never be deleted
    #[arg(long, conflicts_with = "lock_until")]
    pub locked: bool,
}

/// End of a lock, as an absolute time or as a span from now.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// Span from now.
    In(Span),
    /// Absolute time.
    At(Timestamp),
}

impl FromStr for Until {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let at = text.parse().map(Self::At);
        at.or_else(|_: Refusal| text.parse().map(Self::In)).map_err(|refusal: Refusal| {
            let hint = "write a duration such as 30d, or a UTC time such as 2027-11-21T10:19:59Z";
            Refusal::new(refusal.code, format!("\"{text}\" is neither a duration nor a time"), hint)
        })
    }
}
