//! What the API is asked: the bodies of its requests.

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
    /// What to call it; made from the path when absent.
    #[serde(default)]
    pub name: Option<DiskName>,
    /// Make a sparse file of this size first.
    #[serde(default)]
    pub create: Option<Size>,
    /// Add it although it is not empty. Nothing is written to it before a pool is made of it, with force as well.
    /// Registrations of other initiators with a remote disk are preempted.
    #[serde(default)]
    pub force: bool,
    /// The CHAP credentials that authenticate this array to a remote disk; the name is the one of the address, or the
    /// node's, when absent.
    #[serde(default)]
    pub chap: Option<NewChap>,
    /// The CHAP credentials that authenticate the target; the name is the target's when absent.
    #[serde(default)]
    pub mutual_chap: Option<NewChap>,
    /// Require header and data digests of a remote disk.
    #[serde(default)]
    pub digests: bool,
}

/// Find a disk in its rack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "light", rename_all = "snake_case", deny_unknown_fields)]
pub enum Locate {
    /// The light of its slot is on.
    On,
    /// The light of its slot is off.
    Off,
    /// Its own light blinks, because it is read in a rhythm.
    Blink {
        /// For how long.
        seconds: u64,
    },
}

/// Replace a disk.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Replace {
    /// The disk that takes its place.
    pub replacement: DiskName,
    /// True to replace a healthy disk, or to overwrite what is on the replacement.
    #[serde(default)]
    pub force: bool,
    /// True when it was confirmed that the disk is to be replaced though it is healthy.
    #[serde(default)]
    pub confirmed: bool,
}

/// Make a pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPool {
    /// Its name.
    pub name: Name,
    /// Its disk groups.
    pub groups: Vec<NewGroup>,
    /// True to overwrite what is on the disks.
    #[serde(default)]
    pub force: bool,
    /// Disks that wait to take the place of lost members.
    #[serde(default)]
    pub spares: Vec<DiskName>,
    /// True to arrange all disks so that the loss of an enclosure is borne where that is possible.
    #[serde(default)]
    pub spread: bool,
}

/// Give a pool one more disk group.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddGroup {
    /// The group.
    pub group: NewGroup,
    /// True to overwrite what is on the disks.
    #[serde(default)]
    pub force: bool,
}

/// Make a disk one more member of a group.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddMember {
    /// The disk.
    pub disk: DiskName,
    /// Which group of the pool, by its number; the only one when absent.
    #[serde(default)]
    pub group: Option<u16>,
    /// True to overwrite what is on the disk.
    #[serde(default)]
    pub force: bool,
}

/// Let a pool use all of its disks.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrowPool {
    /// Which group of it, by its number; every one that can grow when absent.
    #[serde(default)]
    pub group: Option<u16>,
    /// How much of each disk it uses then; `rounded` when absent.
    #[serde(default)]
    pub member_size: Option<MemberSize>,
}

/// Give a pool a log device.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddLog {
    /// Its disks: a mirror where there are several.
    pub disks: Vec<DiskName>,
    /// True to overwrite what is on the disks.
    #[serde(default)]
    pub force: bool,
    /// True when it was confirmed that one disk is enough for a pool that bears the loss of a disk.
    #[serde(default)]
    pub confirmed: bool,
}

/// Take the log device of a pool away.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveLog {
    /// True to give up what volumes have in a log that cannot be read.
    #[serde(default)]
    pub lost: bool,
    /// True when it was confirmed that these volumes lose what they acknowledged last.
    #[serde(default)]
    pub confirmed: bool,
}

/// Open a pool that was found on its disks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImportPool {
    /// True when the node that had it last and did not let go of it is surely down.
    #[serde(default)]
    pub force: bool,
    /// True to open a pool of which part of the redo log cannot be read on any disk: blocks that it had changed may be older
    /// than what was acknowledged.
    #[serde(default)]
    pub accept_log_loss: bool,
    /// True when nothing is to be written to its disks, also after a restart: hosts may read its volumes. It is opened for
    /// writing by the next import without this.
    #[serde(default)]
    pub read_only: bool,
    /// The pool key of the node that had it, where volumes are encrypted.
    #[serde(default)]
    pub key: Option<SecretText>,
    /// A disk of the part that is kept, of a pool that was written in parts without each other. What was written to the other part is
    /// lost, and its disks become old members.
    #[serde(default)]
    pub keep: Option<DiskName>,
    /// True when the loss of the other part is accepted, or that members are absent of a pool that this node never had.
    #[serde(default)]
    pub confirmed: bool,
}

/// The key of a pool, for who is to keep it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PoolKeyText {
    /// What it is called; says nothing about the key.
    pub id: String,
    /// The key.
    pub key: SecretText,
}

/// Settings of a pool, by name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolSettings {
    /// What each is to be; see `model::policy::POOL_SETTINGS`.
    pub settings: BTreeMap<String, String>,
}

/// Read and compare everything in a pool.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartScrub {
    /// True to put right parity and mirrors that disagree with the data.
    #[serde(default)]
    pub repairs: bool,
}

/// Repair what a check of a pool finds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RepairPool {
    /// True to use what is left of damaged maps of volumes. The check lists which blocks may be older, or are errors, then.
    #[serde(default)]
    pub accept_loss: bool,
}

/// Make a disk a spare.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSpare {
    /// The pool that it is for; every pool when absent.
    #[serde(default)]
    pub pool: Option<Name>,
    /// True to overwrite what the disk holds, when it takes a place.
    #[serde(default)]
    pub force: bool,
}

/// A disk group of a new pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroup {
    /// How it protects.
    pub level: Level,
    /// Its chunk size; 64 KiB when absent.
    #[serde(default)]
    pub chunk: Option<Size>,
    /// True to keep neither checksums nor a log.
    #[serde(default)]
    pub no_integrity: bool,
    /// How much of each disk it uses; `rounded` when absent.
    #[serde(default)]
    pub member_size: Option<MemberSize>,
    /// Its disks.
    pub disks: Vec<DiskName>,
}

/// Make a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewVolume {
    /// Its name: `pool/volume`, or a bare name with a backend.
    pub name: VolumeName,
    /// Its size; that of the file when absent and there is one.
    #[serde(default)]
    pub size: Option<Size>,
    /// Bytes of a logical block, 512 or 4096; 512 when absent.
    #[serde(default)]
    pub block_bytes: Option<u32>,
    /// Bytes in one disk group before the next group's turn: makes a volume in segments, which can have no snapshots.
    #[serde(default)]
    pub stripe_unit: Option<Size>,
    /// How a volume in a pool takes its space; all of it is kept when absent.
    #[serde(default)]
    pub provision: Option<Provision>,
    /// The unit in which space is given and shared; 64 KiB when absent.
    #[serde(default)]
    pub granule: Option<Size>,
    /// True when whole granules of zeros shall take no space.
    #[serde(default)]
    pub zero_detection: bool,
    /// True when what it holds shall be encrypted on the disks.
    #[serde(default)]
    pub encrypted: bool,
    /// What holds the data of a volume without a pool.
    #[serde(default)]
    pub backend: Option<NewBackend>,
}

impl NewVolume {
    /// A volume with nothing chosen but its name and its size.
    #[must_use]
    pub fn new(name: VolumeName, size: Option<Size>) -> Self {
        let (block_bytes, stripe_unit, provision, granule, backend) = Default::default();
        let (zero_detection, encrypted) = (false, false);
        Self { name, size, block_bytes, stripe_unit, provision, granule, zero_detection, encrypted, backend }
    }
}

/// What holds the data of a volume without a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum NewBackend {
    /// A file or a block device.
    File {
        /// Where, as an absolute path.
        path: String,
    },
    /// Memory.
    Ram {},
    /// Nothing.
    Null {},
}

/// Grow a volume.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Its new size.
    pub size: Size,
}

/// Make a volume of a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewClone {
    /// Of which.
    pub snapshot: SnapshotName,
    /// Its name, in the same pool.
    pub name: VolumeName,
    /// True to keep space for all of it.
    #[serde(default)]
    pub thick: bool,
    /// True when whole granules of zeros shall take no space.
    #[serde(default)]
    pub zero_detection: bool,
}

/// Copy a volume, or a snapshot, wholly.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCopy {
    /// What.
    pub source: CopySource,
    /// The name of the copy, in any pool.
    pub name: VolumeName,
}

/// Go back to a snapshot.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// To which.
    pub snapshot: SnapshotName,
    /// True though sessions use the volume.
    #[serde(default)]
    pub force: bool,
    /// True when it was confirmed that what was written since is to be gone.
    #[serde(default)]
    pub confirmed: bool,
}

/// Settings of a volume, by name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeSettings {
    /// What each is to be; see `model::volume_policy::VOLUME_SETTINGS`.
    pub settings: BTreeMap<String, String>,
}

/// Change a volume: its size, or its settings.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VolumeChange {
    /// Its new size.
    #[serde(default)]
    pub size: Option<Size>,
    /// What each setting is to be; see `model::volume_policy::VOLUME_SETTINGS`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Know a host.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHost {
    /// Its name.
    pub name: Name,
    /// Its initiators.
    #[serde(default)]
    pub initiators: Vec<Iqn>,
    /// True when it stands for every initiator that no other host names.
    #[serde(default)]
    pub any: bool,
    /// Where it may come from; anywhere when empty.
    #[serde(default)]
    pub networks: Vec<Network>,
    /// What it must prove.
    #[serde(default)]
    pub chap: Option<NewChap>,
    /// What we prove.
    #[serde(default)]
    pub mutual_chap: Option<NewChap>,
    /// True though sessions of its initiators, which a host that takes any has let in, lose access.
    #[serde(default)]
    pub force: bool,
}

/// Change a host.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HostChange {
    /// Initiators that are its own, too.
    pub add_initiators: Vec<Iqn>,
    /// Initiators that are its own no more.
    pub remove_initiators: Vec<Iqn>,
    /// Where it may come from instead; anywhere when empty.
    pub networks: Option<Vec<Network>>,
    /// Where it may come from, too.
    pub add_networks: Vec<Network>,
    /// Where it may come from no more.
    pub remove_networks: Vec<Network>,
    /// What it must prove instead.
    pub chap: Option<NewChap>,
    /// What we prove instead.
    pub mutual_chap: Option<NewChap>,
    /// True when it need not prove anything any more, and we do not.
    pub no_chap: bool,
    /// True when we do not prove anything any more.
    pub no_mutual_chap: bool,
    /// True though sessions end or lose access.
    pub force: bool,
}

/// Which volume is to be explained.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Explain {
    /// The volume.
    pub volume: VolumeName,
}

/// Make a group of hosts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewHostGroup {
    /// Its name, which is no host's.
    pub name: Name,
    /// Its hosts.
    #[serde(default)]
    pub hosts: Vec<Name>,
}

/// Change a group of hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GroupChange {
    /// Hosts that come.
    pub join: Vec<Name>,
    /// Hosts that go.
    pub leave: Vec<Name>,
    /// True though sessions of the hosts that go lose access.
    pub force: bool,
}

/// Serve another target.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTarget {
    /// Its name among ours.
    pub name: Name,
    /// Its iSCSI name; made from the node's and this name when absent.
    #[serde(default)]
    pub iqn: Option<Iqn>,
}

/// Listen on another address.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPortal {
    /// Where.
    pub address: PortalAddress,
    /// What each setting is to be; see `model::PORTAL_SETTINGS`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Settings of a portal, by name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalSettings {
    /// What each is to be; see `model::PORTAL_SETTINGS`.
    pub settings: BTreeMap<String, String>,
    /// True though sessions lose access, as with another group.
    #[serde(default)]
    pub force: bool,
}

/// Settings of a portal group, by name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortalGroupSettings {
    /// What each is to be; see `model::PORTAL_GROUP_SETTINGS`.
    pub settings: BTreeMap<String, String>,
    /// True though sessions can neither read nor write any more.
    #[serde(default)]
    pub force: bool,
}

/// Remove something that hosts may use.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// True to remove it though sessions end or lose access, together with what is presented through it.
    #[serde(default)]
    pub force: bool,
}

/// By what sessions are shared out.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetBalance {
    /// By this.
    pub by: Balance,
}

/// End a session.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndSession {
    /// True to cut it off without asking its initiator to log out first.
    #[serde(default)]
    pub now: bool,
    /// Cut off only the connection with this CID.
    #[serde(default)]
    pub cid: Option<u16>,
}

/// Register targets with an iSNS server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetIsns {
    /// Which; none when absent.
    #[serde(default)]
    pub server: Option<IsnsServer>,
}

/// Record what goes over the wire, as a pcapng file.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Of the session with this number.
    #[serde(default)]
    pub session: Option<u32>,
    /// Of everyone who comes from this address or network.
    #[serde(default)]
    pub from: Option<Network>,
    /// For how long; a minute when absent.
    #[serde(default, rename = "for")]
    pub time: Option<Span>,
    /// How large the file may become; 64 MiB when absent.
    #[serde(default, rename = "max")]
    pub bytes_max: Option<Size>,
}

/// Keep which commands a volume gets, and when.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTrace {
    /// The last so many; 65,536 when absent.
    #[serde(default)]
    pub commands: Option<u32>,
}
