//! `blockyard up`.

use model::{Iqn, Level, Name, Size, VolumeName};
use std::path::PathBuf;

/// What is to be there.
#[derive(Debug, clap::Args)]
pub(crate) struct UpOptions {
    /// The volume, as POOL/VOLUME; the pool is made of the disks, or is there already
    pub volume: VolumeName,
    /// Its size
    pub size: Size,
    /// The disks of a new pool: block devices, or files
    #[arg(value_name = "DISK")]
    pub disks: Vec<PathBuf>,
    /// How the pool protects [default: raid6 of four disks and more, raid5 of three, raid1 of two, raid0 of one]
    #[arg(long)]
    pub level: Option<Level>,
    /// Take space as it is written
    #[arg(long)]
    pub thin: bool,
    /// The initiator that may use it; may be given again
    #[arg(long = "initiator", value_name = "IQN", required_unless_present = "host")]
    pub initiators: Vec<Iqn>,
    /// What to call the host [default: the end of its first initiator's name]; one that is there needs no --initiator
    #[arg(long)]
    pub host: Option<Name>,
    /// The file of the CHAP secret that the host must prove
    #[arg(long, value_name = "FILE", requires = "initiators")]
    pub chap_secret_file: Option<PathBuf>,
    /// Make the pool although disks are not empty: what they hold is overwritten
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub disruption: super::DisruptionOption,
}
