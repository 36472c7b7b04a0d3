//! Request body of the first setup: from disks to a volume that a host uses.

use super::NewChap;
use model::{DiskName, Iqn, Level, Name, Provision, Size, VolumeName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Create a pool, a volume in it and a host, and present the volume to the host, all or nothing.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSetup {
    /// Name of the volume, as `pool/volume`.
    pub volume: VolumeName,
    /// Capacity of the volume.
    pub size: Size,
    /// Provisioning; thick when absent.
    #[serde(default)]
    pub provision: Option<Provision>,
    /// Disks of a new pool, which is called like the first part of the volume's name; empty where the pool
    /// exists.
    #[serde(default)]
    pub disks: Vec<SetupDisk>,
    /// RAID level of the new pool; the one that survives the loss of most disks when absent.
    #[serde(default)]
    pub level: Option<Level>,
    /// Creates the pool although disks are not empty: their content is overwritten.
    #[serde(default)]
    pub force: bool,
    /// Name of the host.
    pub host: Name,
    /// Initiators of a host to add; empty where the host exists.
    #[serde(default)]
    pub initiators: Vec<Iqn>,
    /// CHAP credentials of a host to add; none when absent.
    #[serde(default)]
    pub chap: Option<NewChap>,
    /// Refuses a volume or host of these names that exists already. Without it, existing ones are used as they
    /// are.
    #[serde(default)]
    pub must_be_new: bool,
    /// True to proceed although sessions end or lose access.
    #[serde(default)]
    pub allow_disruption: bool,
}

/// A disk of the new pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetupDisk {
    /// Name of the disk; an unknown one is added under it.
    pub name: DiskName,
    /// A block device or a regular file, as an absolute path.
    pub path: String,
}
