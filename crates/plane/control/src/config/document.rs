//! What stands in a document.

use super::annex::{ReceiverEntry, UserEntry};
use crate::request::{NewBackend, NewChap, NewDisk, NewGroup, NewVolume, SecretText};
use model::{
    Balance, ChapAlgorithm, Demand, DiskName, GroupAccess, Iqn, IsnsServer, Name, Network, PortalAddress, Provision,
    Size, VolumeId, VolumeName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The form of documents that this version writes and reads.
pub(super) const FORM: u32 = 1;

/// The largest document that is read, as a file and as a request: 10,000 volumes with all of their settings and 16,384 presentations to
/// 4,096 hosts, with names as long as names may be, have half of it.
pub const DOCUMENT_BYTES_MAX: usize = 32 << 20;

/// An array, as somebody wants it. What is not named stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Document {
    /// The form of the document: 1.
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
    /// Who sees what.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub present: Vec<PresentEntry>,
    /// LUN numbers that hosts had: no other volume gets them by itself. They are added to those that are remembered, never removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub former_lun: Vec<FormerLunEntry>,
    /// Portals, by address.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub portal: BTreeMap<PortalAddress, PortalEntry>,
    /// How sessions are shared out over data portals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub balance: Option<Balance>,
    /// The server that targets are registered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isns: Option<IsnsServer>,
    /// What holds for the logins of all hosts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<AuthEntry>,
    /// How portal groups serve, where that was set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub portal_group: Vec<PortalGroupEntry>,
    /// Users, by name. They are left alone when the section is absent, also when the rest is pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<BTreeMap<Name, UserEntry>>,
    /// Receivers of alerts, by name. They are left alone when the section is absent, also when the rest is pruned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<BTreeMap<Name, ReceiverEntry>>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskEntry {
    /// A block device or a regular file, as an absolute path, or the address of a remote disk. A disk that is known already
    /// must be there.
    pub path: String,
    /// What authenticates this array to a remote disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapEntry>,
    /// What authenticates the target of a remote disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapEntry>,
    /// Require header and data digests of a remote disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub digests: bool,
    /// What it is a spare for; what it is stays when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spare: Option<SpareEntry>,
}

impl DiskEntry {
    /// The request that adds the disk.
    pub(super) fn new_disk(&self, name: &DiskName, force: bool) -> NewDisk {
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

/// What a disk is a spare for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SpareEntry {
    /// The pool; any when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
}

/// What holds for the logins of all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthEntry {
    /// The weakest hash function of CHAP that is spoken.
    pub weakest: ChapAlgorithm,
    /// What discovery sessions prove; what their host proves otherwise when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryEntry>,
}

/// What discovery sessions prove; nothing when it is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DiscoveryEntry {
    /// What the initiator proves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapEntry>,
    /// What we prove to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapEntry>,
}

/// How volumes are served through the portals of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalGroupEntry {
    /// The group's tag.
    pub tag: u16,
    /// How well.
    #[serde(default)]
    pub access: GroupAccess,
    /// True when hosts should choose it before others with the same access.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub preferred: bool,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolEntry {
    /// Its disk groups. Those of a pool that is there already must be so; a spare stands for the disk whose place it has.
    pub groups: Vec<NewGroup>,
    /// Its settings, as `pool set` takes them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
    /// True when it was imported read-only. A pool must be so already, where this is given: an import changes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
}

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VolumeEntry {
    /// Its size; a volume grows to it, and never becomes smaller.
    pub size: Option<Size>,
    /// Bytes of a logical block, 512 or 4096; 512 when absent. This and what follows hold for a volume that is made; of one that
    /// is there already it must be so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_bytes: Option<u32>,
    /// How it takes its space; all of it is kept when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provision: Option<Provision>,
    /// The unit in which space is given and shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granule: Option<Size>,
    /// Bytes in one disk group before the next group's turn, for a volume in segments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stripe_unit: Option<Size>,
    /// True when whole granules of zeros shall take no space.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub zero_detection: bool,
    /// True when what it holds shall be encrypted on the disks.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
    /// What holds the data of a volume without a pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<NewBackend>,
    /// Its settings, as `volume set` takes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

/// A target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TargetEntry {
    /// Its iSCSI name; made from its name when absent.
    pub iqn: Option<Iqn>,
}

/// A host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostEntry {
    /// True when it stands for every initiator that no other host names.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub any: bool,
    /// Its initiators.
    pub initiators: Vec<Iqn>,
    /// Where it may come from; anywhere when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub networks: Vec<Network>,
    /// What it proves with CHAP; nothing when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapEntry>,
    /// What we prove to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapEntry>,
}

/// One direction of CHAP. Secrets are never exported: without one the secret that is there stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ChapEntry {
    /// CHAP_N; the host's name when absent (the node's for what we prove).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretText>,
    /// A file that holds the secret alone, beside whoever applies the document; the daemon does not read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<String>,
    /// Whether a login goes without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demand: Option<Demand>,
}

/// A group of hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupEntry {
    /// Its hosts.
    pub hosts: Vec<Name>,
}

/// A volume that a host sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PresentEntry {
    /// The volume.
    pub volume: VolumeName,
    /// The host, a group of hosts, or `everyone`.
    pub host: Name,
    /// Through which target; the first one when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Name>,
    /// Under which number; the one that it has, or the lowest that is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lun: Option<u16>,
    /// Through portals of which groups; through all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<u16>,
    /// True when the host may not write.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A LUN number that a host, a group or `everyone` had for a volume, and has no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FormerLunEntry {
    /// The host, the group, or `everyone`.
    pub host: Name,
    /// The iSCSI name of the target.
    pub target: Iqn,
    /// The number.
    pub lun: u16,
    /// What the volume was called.
    pub volume: VolumeName,
    /// Which volume it was. It may be gone.
    pub volume_id: VolumeId,
}

/// A portal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PortalEntry {
    /// Its settings, as `portal set` takes them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl VolumeEntry {
    /// The request that makes it.
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
