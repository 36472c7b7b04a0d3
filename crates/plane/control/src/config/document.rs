//! Schema of the configuration document.

use super::external::{ReceiverEntry, UserEntry};
use crate::request::{NewBackend, NewChap, NewDisk, NewGroup, NewVolume, SecretText};
use model::{
    Balance, ChapAlgorithm, Demand, DiskName, GroupAccess, Iqn, IsnsServer, Name, Network, PortalAddress, Provision,
    Size, VolumeId, VolumeName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the document schema that is written and read.
pub(super) const FORM: u32 = 1;

/// Size limit of a document in bytes, as a file and as a request: twice what 10,000 volumes with all of their
/// settings and 16,384 presentations to 4,096 hosts take, with names of the maximum length.
pub const DOCUMENT_BYTES_MAX: usize = 32 << 20;

/// Desired configuration of an array. Objects that are not named stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Document {
    /// Version of the document schema: 1.
    pub schema: u32,
    /// Disks, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub disk: BTreeMap<DiskName, DiskEntry>,
    /// Pools, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub pool: BTreeMap<Name, PoolEntry>,
    /// Volumes, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub volume: BTreeMap<VolumeName, VolumeEntry>,
    /// Targets, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub target: BTreeMap<Name, TargetEntry>,
    /// Hosts, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub host: BTreeMap<Name, HostEntry>,
    /// Groups of hosts, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub group: BTreeMap<Name, GroupEntry>,
    /// Presentations of volumes to hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub present: Vec<PresentEntry>,
    /// Former LUNs, which are never assigned to another volume automatically. They are added to those on
    /// record; none is removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub former_lun: Vec<FormerLunEntry>,
    /// Portals, by address.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub portal: BTreeMap<PortalAddress, PortalEntry>,
    /// Distribution of sessions over data portals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// iSNS server that targets are registered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isns: Option<IsnsServer>,
    /// Authentication policy for all hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthEntry>,
    /// Settings of portal groups, where they were changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub portal_group: Vec<PortalGroupEntry>,
    /// Users, by name. An absent section leaves them alone, even when the rest is pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<BTreeMap<Name, UserEntry>>,
    /// Alert receivers, by name. An absent section leaves them alone, even when the rest is pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<BTreeMap<Name, ReceiverEntry>>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskEntry {
    /// Absolute path of a block device or regular file, or the address of a remote disk. A disk that is known
    /// already must be there.
    pub path: String,
    /// CHAP credentials of this array for a remote disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapEntry>,
    /// CHAP credentials of the target of a remote disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapEntry>,
    /// Requires header and data digests from a remote disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub digests: bool,
    /// Hot-spare assignment; unchanged when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<SpareEntry>,
}

impl DiskEntry {
    /// Returns the request that adds the disk.
    pub(super) fn new_disk(&self, name: &DiskName, force: bool) -> NewDisk {
        // No demand is set, because a login to a remote disk always requires what is configured.
        let chap = |entry: &ChapEntry| NewChap { user: entry.user.clone(), secret: entry.secret.clone(), demand: None };
        NewDisk {
            path: self.path.clone(),
            name: Some(name.clone()),
            force,
            chap: self.chap.as_ref().map(chap),
            mutual_chap: self.mutual_chap.as_ref().map(chap),
            digests: self.digests,
            ..NewDisk::default()
        }
    }
}

/// Hot-spare assignment of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpareEntry {
    /// The pool; every pool when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
}

/// Authentication policy for all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthEntry {
    /// Weakest CHAP hash function that is accepted.
    #[serde(alias = "weakest")]
    pub min_algorithm: ChapAlgorithm,
    /// Credentials for discovery sessions; those of the host apply when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryEntry>,
}

/// Credentials for discovery sessions; no authentication when empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiscoveryEntry {
    /// CHAP credentials of the initiator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapEntry>,
    /// CHAP credentials of this array (mutual CHAP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapEntry>,
}

/// Settings of a portal group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalGroupEntry {
    /// Portal group tag.
    pub tag: u16,
    /// ALUA access state.
    #[serde(default)]
    pub access: GroupAccess,
    /// True to mark it as preferred among groups of the same access state.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preferred: bool,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolEntry {
    /// Disk groups. Those of an existing pool must match; a spare stands for the disk that it replaced.
    pub groups: Vec<NewGroup>,
    /// Settings, as for `pool set`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// True when it was imported read-only. An existing pool must match where this is given: only an import
    /// changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeEntry {
    /// Capacity; a volume grows to it and never shrinks.
    pub size: Option<Size>,
    /// Logical block size in bytes, 512 or 4096; 512 when absent. This and the following apply to a volume that
    /// is created; an existing one must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
    /// Provisioning; thick when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
    /// Allocation unit (granule), which snapshots share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granule: Option<Size>,
    /// Bytes per disk group before the next group, for a volume in segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripe_unit: Option<Size>,
    /// True to store no granules that are all zeros.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub zero_detection: bool,
    /// True to encrypt the content on the disks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    /// Backend of a volume without a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<NewBackend>,
    /// Settings, as for `volume set`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TargetEntry {
    /// iSCSI name; derived from the target's name when absent.
    pub iqn: Option<Iqn>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostEntry {
    /// True when it stands for every initiator that no other host names.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub any: bool,
    /// iSCSI names of its initiators.
    pub initiators: Vec<Iqn>,
    /// Networks that it may log in from; every address when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// CHAP credentials of the host; none when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapEntry>,
    /// CHAP credentials of this array for the host (mutual CHAP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapEntry>,
}

/// Credentials of one CHAP direction. Secrets are never exported: an absent secret leaves the present one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChapEntry {
    /// CHAP name (`CHAP_N`); the host's name when absent (the node's for mutual CHAP).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// CHAP secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
    /// Path of a file that holds the secret alone, on the machine where the document is applied; the daemon
    /// does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// Authentication demand: `required` denies a login without it, `offered` accepts one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
}

/// A group of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupEntry {
    /// Names of its hosts.
    pub hosts: Vec<Name>,
}

/// A presentation of a volume to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PresentEntry {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Name of the host or group, or `everyone`.
    pub host: Name,
    /// Name of the target; `default` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Name>,
    /// LUN; when absent the present one, or the lowest free one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// Portal groups through which it is mapped; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u16>,
    /// True to reject write commands.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A former LUN of a host, a group or `everyone`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FormerLunEntry {
    /// Name of the host or group, or `everyone`.
    pub host: Name,
    /// iSCSI name of the target.
    pub target: Iqn,
    /// LUN within the target.
    pub lun: u16,
    /// Name of the volume at that time.
    pub volume: VolumeName,
    /// Identity of the volume, which may have been deleted.
    pub volume_id: VolumeId,
}

/// A portal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PortalEntry {
    /// Settings, as for `portal set`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl VolumeEntry {
    /// Returns the request that creates the volume.
    pub(super) fn new_volume(&self, name: &VolumeName) -> NewVolume {
        NewVolume {
            name: name.clone(),
            size: self.size,
            block_bytes: self.block_bytes,
            stripe_unit: self.stripe_unit,
            provision: self.provision,
            granule: self.granule,
            zero_detection: self.zero_detection,
            encrypted: self.encrypted,
            backend: self.backend.clone(),
        }
    }
}
