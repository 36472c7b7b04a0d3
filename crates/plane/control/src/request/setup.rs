//! From disks to a volume that a host uses, as one request.

use super::NewChap;
use model::{DiskName, Iqn, Level, Name, Provision, Size, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Make a pool, a volume in it and a host, and present the volume to the host: all of it, or nothing.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSetup {
    /// The volume, as `pool/volume`.
    pub volume: VolumeName,
    /// Its size.
    pub size: Size,
    /// How it takes its space; all of it is kept when absent.
    #[serde(default)]
    pub provision: Option<Provision>,
    /// The disks of a new pool, which has the name that the volume begins with; empty where the pool is there.
    #[serde(default)]
    pub disks: Vec<SetupDisk>,
    /// The RAID level of the new pool; the one that bears the loss of most disks when absent.
    #[serde(default)]
    pub level: Option<Level>,
    /// Make the pool although disks are not empty: what they hold is overwritten.
    #[serde(default)]
    pub force: bool,
    /// The host.
    pub host: Name,
    /// The initiators of a host that is added; empty where the host is there.
    #[serde(default)]
    pub initiators: Vec<Iqn>,
    /// The CHAP credentials of a host that is added; none when absent.
    #[serde(default)]
    pub chap: Option<NewChap>,
    /// Refuse a volume or a host of these names that is there already. Without it, what is so already stays.
    #[serde(default)]
    pub must_be_new: bool,
    /// True though sessions end or lose access.
    #[serde(default)]
    pub allow_disruption: bool,
}

/// A disk of the new pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetupDisk {
    /// Its name; one that is not known yet is added under it.
    pub name: DiskName,
    /// A block device or a regular file, as an absolute path.
    pub path: String,
}
