//! Arguments of `blockyard up`.

use model::{Iqn, Level, Name, Size, VolumeName};
use std::path::PathBuf;

/// Options of `blockyard up`.
#[derive(Debug, clap::Args)]
pub(crate) struct UpOptions {
    /// Name of the volume, as POOL/VOLUME; the pool is created from the disks, or exists already
    pub volume: VolumeName,
    /// Size of the volume
    pub size: Size,
    /// Disks of a new pool: block devices, or files
    #[arg(value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// Set the RAID level of a new pool [default: raid6 with four or more disks, raid5 with three, raid1 with two,
    /// raid0 with one]
    #[arg(long)]
    pub level: Option<Level>,
    /// Allocate space when it is written (thin provisioning)
    #[arg(long)]
    pub thin: bool,
    /// iSCSI name of an initiator of the host; may be repeated
    #[arg(long = "initiator", value_name = "IQN", required_unless_present = "host")]
    pub initiators: Vec<Iqn>,
    /// Set the name of the host [default: the end of its first initiator's name]; an existing host needs no --initiator
    #[arg(long)]
    pub host: Option<Name>,
    /// File with the CHAP secret of the host
    #[arg(long, value_name = "FILE", requires = "initiators")]
    pub chap_secret_file: Option<PathBuf>,
    /// Create the pool even if disks are not empty: their content is overwritten
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub disruption: super::DisruptionOption,
}
