//! Request bodies of the API. Their doc comments become the descriptions in `openapi.json`.
//!
//! These types only carry the request: validation that needs the state is done by the parts in
//! `crate::change`.

mod chap;
mod lists;
mod presentations;
mod setup;
mod snapshots;

pub use chap::{NewChap, SecretText, SetAuth, SetDiscovery};
pub use chap::{from_hex, to_hex};
pub use lists::{Events, SnapshotsOf};
pub use presentations::{NewPresentation, Spread, Unpresent};
pub use setup::{NewSetup, SetupDisk};
pub use snapshots::{LockSnapshot, LockWish, NewSnapshots};

use model::{
    Balance, CopySource, DiskName, Iqn, IsnsServer, Level, MemberSize, Name, Network, PortalAddress, Provision, Size,
    SnapshotName, Span, VolumeName,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Add a disk.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewDisk {
    /// A block device or a regular file, as an absolute path; or the address of a logical unit of another array:
    /// `iscsi://[CHAP_NAME@]IP[:PORT][,IP[:PORT]…]/TARGET/LUN`.
    pub path: String,
    /// Name of the disk; derived from the path when absent.
    #[serde(default)]
    pub name: Option<DiskName>,
    /// Creates a sparse file of this size at the path first.
    #[serde(default)]
    pub create: Option<Size>,
    /// Adds the disk although it is not empty. Nothing is written to it before a pool is created on it, which
    /// requires `force` as well. Registrations of other initiators with a remote disk are preempted.
    #[serde(default)]
    pub force: bool,
    /// CHAP credentials of this array for a remote disk; the name defaults to that in the address, or to the
    /// node's name.
    #[serde(default)]
    pub chap: Option<NewChap>,
    /// CHAP credentials of the target; the name defaults to the target's name.
    #[serde(default)]
    pub mutual_chap: Option<NewChap>,
    /// Requires header and data digests from a remote disk.
    #[serde(default)]
    pub digests: bool,
}

/// Locate a disk in its enclosure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "light", rename_all = "snake_case", deny_unknown_fields)]
pub enum Locate {
    /// Switch the locate LED of its slot on.
    On,
    /// Switch the locate LED of its slot off.
    Off,
    /// Blink the activity LED of the disk by reading it in a rhythm.
    Blink {
        /// Duration in seconds.
        seconds: u64,
    },
}

/// Replace a disk.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replace {
    /// The disk that takes its place.
    pub replacement: DiskName,
    /// True to replace a healthy disk, or to overwrite the content of the replacement.
    #[serde(default)]
    pub force: bool,
    /// True to confirm the replacement of a healthy disk.
    #[serde(default)]
    pub confirmed: bool,
}

/// Create a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPool {
    /// Name of the pool.
    pub name: Name,
    /// Disk groups of the pool.
    pub groups: Vec<NewGroup>,
    /// True to overwrite the content of the disks.
    #[serde(default)]
    pub force: bool,
    /// Hot spares for the pool.
    #[serde(default)]
    pub spares: Vec<DiskName>,
    /// True to distribute the disks over enclosures, so that the pool survives the loss of one where that is
    /// possible.
    #[serde(default)]
    pub spread: bool,
}

/// Add a disk group to a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddGroup {
    /// The disk group.
    pub group: NewGroup,
    /// True to overwrite the content of the disks.
    #[serde(default)]
    pub force: bool,
}

/// Add a disk to a group of a pool (reshape).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMember {
    /// Name of the disk.
    pub disk: DiskName,
    /// Number of the group; the only one when absent.
    #[serde(default)]
    pub group: Option<u16>,
    /// True to overwrite the content of the disk.
    #[serde(default)]
    pub force: bool,
}

/// Expand a pool to the full size of its disks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrowPool {
    /// Number of the group; every one that can grow when absent.
    #[serde(default)]
    pub group: Option<u16>,
    /// Space to use on each disk; `rounded` when absent.
    #[serde(default)]
    pub member_size: Option<MemberSize>,
}

/// Add a log device to a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddLog {
    /// Disks of the log: mirrored if there are several.
    pub disks: Vec<DiskName>,
    /// True to overwrite the content of the disks.
    #[serde(default)]
    pub force: bool,
    /// True to confirm a log on one disk for a pool that survives the loss of a disk.
    #[serde(default)]
    pub confirmed: bool,
}

/// Remove the log device of a pool.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveLog {
    /// True to give up the writes of volumes in a log that cannot be read.
    #[serde(default)]
    pub lost: bool,
    /// True to confirm that these volumes lose their latest acknowledged writes.
    #[serde(default)]
    pub confirmed: bool,
}

/// Import a pool that was found on its disks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// True to confirm that the previous owner, which did not export the pool, is down.
    #[serde(default)]
    pub force: bool,
    /// True to open a pool with a partly unreadable redo log: blocks that it had changed may be older than what
    /// was acknowledged.
    #[serde(default)]
    pub accept_log_loss: bool,
    /// True to write nothing to its disks, also after a restart: hosts may only read its volumes. The next
    /// import without this opens it for writing.
    #[serde(default)]
    pub read_only: bool,
    /// Pool key of the previous owner, where volumes are encrypted.
    #[serde(default)]
    pub key: Option<SecretText>,
    /// A disk of the part to keep, for a pool whose parts were written independently (split brain). What was
    /// written to the other part is lost, and its disks become former members.
    #[serde(default)]
    pub keep: Option<DiskName>,
    /// True to accept the loss of the other part, or that members of a pool new to this node are absent.
    #[serde(default)]
    pub confirmed: bool,
}

/// The key of a pool, to be kept in a safe place.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PoolKeyText {
    /// ID of the key, which reveals nothing about it.
    pub id: String,
    /// The key.
    pub key: SecretText,
}

/// Change settings of a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// New value by setting; see `model::policy::POOL_SETTINGS`.
    pub settings: BTreeMap<String, String>,
}

/// Start a scrub, which reads and verifies everything in a pool.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartScrub {
    /// True to repair parity and mirrors that disagree with the data.
    #[serde(default)]
    pub repairs: bool,
}

/// Repair the findings of a consistency check of a pool.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairPool {
    /// True to continue with the rest of damaged volume maps. The check lists the blocks that are older or
    /// unreadable then.
    #[serde(default)]
    pub accept_loss: bool,
}

/// Make a disk a hot spare.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSpare {
    /// The pool that it is assigned to; every pool when absent.
    #[serde(default)]
    pub pool: Option<Name>,
    /// True to overwrite the content of the disk when it replaces a member.
    #[serde(default)]
    pub force: bool,
}

/// A disk group of a new pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroup {
    /// RAID level.
    pub level: Level,
    /// Chunk size; 64 KiB when absent.
    #[serde(default)]
    pub chunk: Option<Size>,
    /// True to keep neither checksums nor a redo log.
    #[serde(default)]
    pub no_integrity: bool,
    /// Space to use on each disk; `rounded` when absent.
    #[serde(default)]
    pub member_size: Option<MemberSize>,
    /// Member disks.
    pub disks: Vec<DiskName>,
}

/// Create a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Name of the volume: `pool/volume`, or a bare name with a backend.
    pub name: VolumeName,
    /// Capacity; that of the file when absent and there is one.
    #[serde(default)]
    pub size: Option<Size>,
    /// Logical block size in bytes, 512 or 4096; 512 when absent.
    #[serde(default)]
    pub block_bytes: Option<u32>,
    /// Bytes per disk group before the next group: creates a volume in segments, which cannot have snapshots.
    #[serde(default)]
    pub stripe_unit: Option<Size>,
    /// Provisioning of a volume in a pool; thick when absent.
    #[serde(default)]
    pub provision: Option<Provision>,
    /// Allocation unit (granule), which snapshots share; 64 KiB when absent.
    #[serde(default)]
    pub granule: Option<Size>,
    /// True to store no granules that are all zeros.
    #[serde(default)]
    pub zero_detection: bool,
    /// True to encrypt the content on the disks.
    #[serde(default)]
    pub encrypted: bool,
    /// Backend of a volume without a pool.
    #[serde(default)]
    pub backend: Option<NewBackend>,
}

impl NewVolume {
    /// Returns a request with defaults for everything but name and size.
    #[must_use]
    pub fn new(name: VolumeName, size: Option<Size>) -> Self {
        let (block_bytes, stripe_unit, provision, granule, backend) = Default::default();
        let (zero_detection, encrypted) = (false, false);
        Self { name, size, block_bytes, stripe_unit, provision, granule, zero_detection, encrypted, backend }
    }
}

/// Backend of a volume without a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NewBackend {
    /// A file or a block device.
    File {
        /// Absolute path.
        path: String,
    },
    /// Memory (RAM disk), lost when the daemon ends.
    Ram {},
    /// No storage: writes are discarded.
    Null {},
}

/// Resize a volume.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// New capacity; not less than before.
    pub size: Size,
}

/// Create a clone of a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewClone {
    /// The snapshot.
    pub snapshot: SnapshotName,
    /// Name of the clone, in the same pool.
    pub name: VolumeName,
    /// True to reserve space for all of it (thick provisioning).
    #[serde(default)]
    pub thick: bool,
    /// True to store no granules that are all zeros.
    #[serde(default)]
    pub zero_detection: bool,
}

/// Copy a volume or a snapshot completely.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCopy {
    /// The volume or snapshot to copy.
    pub source: CopySource,
    /// Name of the copy, in any pool.
    pub name: VolumeName,
}

/// Roll a volume back to a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// The snapshot.
    pub snapshot: SnapshotName,
    /// True to roll back although sessions use the volume.
    #[serde(default)]
    pub force: bool,
    /// True to confirm that later writes are lost.
    #[serde(default)]
    pub confirmed: bool,
}

/// Change settings of a volume.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSettings {
    /// New value by setting; see `model::volume_policy::VOLUME_SETTINGS`.
    pub settings: BTreeMap<String, String>,
}

/// Change the size or the settings of a volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeChange {
    /// New capacity; not less than before.
    #[serde(default)]
    pub size: Option<Size>,
    /// New value by setting; see `model::volume_policy::VOLUME_SETTINGS`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Add a host.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHost {
    /// Name of the host.
    pub name: Name,
    /// iSCSI names of its initiators.
    #[serde(default)]
    pub initiators: Vec<Iqn>,
    /// True when it stands for every initiator that no other host names.
    #[serde(default)]
    pub any: bool,
    /// Networks that it may log in from; every address when empty.
    #[serde(default)]
    pub networks: Vec<Network>,
    /// CHAP credentials of the host; none when absent.
    #[serde(default)]
    pub chap: Option<NewChap>,
    /// CHAP credentials of this array for the host (mutual CHAP).
    #[serde(default)]
    pub mutual_chap: Option<NewChap>,
    /// True to add it although sessions of its initiators, admitted by a host for any initiator, lose access.
    #[serde(default)]
    pub force: bool,
}

/// Change a host.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostChange {
    /// Initiators to add.
    pub add_initiators: Vec<Iqn>,
    /// Initiators to remove.
    pub remove_initiators: Vec<Iqn>,
    /// Networks that it may log in from, replacing the present ones; every address when empty.
    pub networks: Option<Vec<Network>>,
    /// Networks to add.
    pub add_networks: Vec<Network>,
    /// Networks to remove.
    pub remove_networks: Vec<Network>,
    /// New CHAP credentials of the host.
    pub chap: Option<NewChap>,
    /// New CHAP credentials of this array for the host (mutual CHAP).
    pub mutual_chap: Option<NewChap>,
    /// True to remove CHAP in both directions.
    pub no_chap: bool,
    /// True to remove mutual CHAP.
    pub no_mutual_chap: bool,
    /// True to change it although sessions end or lose access.
    pub force: bool,
}

/// Explain the access of a host to a volume.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// Name of the volume.
    pub volume: VolumeName,
}

/// Create a host group.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHostGroup {
    /// Name of the group; no host may have it.
    pub name: Name,
    /// Names of its hosts.
    #[serde(default)]
    pub hosts: Vec<Name>,
}

/// Change a host group.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupChange {
    /// Hosts to add.
    pub join: Vec<Name>,
    /// Hosts to remove.
    pub leave: Vec<Name>,
    /// True to change it although sessions of removed hosts lose access.
    pub force: bool,
}

/// Add a target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTarget {
    /// Name of the target in this array.
    pub name: Name,
    /// iSCSI name; derived from the node's name and this name when absent.
    #[serde(default)]
    pub iqn: Option<Iqn>,
}

/// Add a portal.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPortal {
    /// Address and port to listen on.
    pub address: PortalAddress,
    /// New value by setting; see `model::PORTAL_SETTINGS`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Change settings of a portal.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalSettings {
    /// New value by setting; see `model::PORTAL_SETTINGS`.
    pub settings: BTreeMap<String, String>,
    /// True to change them although sessions lose access, as with another portal group.
    #[serde(default)]
    pub force: bool,
}

/// Change settings of a portal group.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalGroupSettings {
    /// New value by setting; see `model::PORTAL_GROUP_SETTINGS`.
    pub settings: BTreeMap<String, String>,
    /// True to change them although sessions can no longer read or write.
    #[serde(default)]
    pub force: bool,
}

/// Remove an object that hosts may use.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// True to remove it although sessions end or lose access, together with its presentations.
    #[serde(default)]
    pub force: bool,
}

/// Set the distribution of sessions over portals.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBalance {
    /// Criterion of the distribution.
    pub by: Balance,
}

/// End a session.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndSession {
    /// True to drop it without asking its initiator to log out first.
    #[serde(default)]
    pub now: bool,
    /// Drops only the connection with this CID.
    #[serde(default)]
    pub cid: Option<u16>,
}

/// Set the iSNS server that targets are registered with.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetIsns {
    /// Address of the server; none when absent.
    #[serde(default)]
    pub server: Option<IsnsServer>,
}

/// Record iSCSI traffic as a pcapng file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Number of the session to record.
    #[serde(default)]
    pub session: Option<u32>,
    /// Address or network of the initiators to record.
    #[serde(default)]
    pub from: Option<Network>,
    /// Duration; one minute when absent.
    #[serde(default, rename = "for")]
    pub time: Option<Span>,
    /// Size limit of the file; 64 MiB when absent.
    #[serde(default, rename = "max")]
    pub bytes_max: Option<Size>,
}

/// Start an I/O trace of a volume.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTrace {
    /// Number of commands to keep; 65,536 when absent.
    #[serde(default)]
    pub commands: Option<u32>,
}
