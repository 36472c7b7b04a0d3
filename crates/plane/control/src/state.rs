//! Desired state of the array, as far as its disks do not record it themselves.

mod disks;
pub(crate) mod host_index;
pub(crate) mod lun_history;
mod unit_shapes;

use crate::Settings;
use crate::state::lun_history::LunHistory;
pub(crate) use crate::state::unit_shapes::UnitShapeRecord;
use model::{
    Access, AuthPolicy, Backend, Balance, Chap, ChapAlgorithm, ChapCredentials, Demand, DiskId, DiskIdentity, DiskName,
    EVERYONE, FormerMember, Host, Initiators, Iqn, IsnsServer, Name, Network, NodeId, Order, PoolId, PoolPolicy,
    Portal, PortalGroupPolicy, PortalPolicy, Presentation, Refusal, ScrubReport, Secret, Size, Target, Timestamp,
    VolumeId, VolumeName, VolumePolicy,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Name of the target that exists from the first start on.
pub(crate) const DEFAULT_TARGET: &str = "default";

/// The desired state: one value, always replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Identity of this node, assigned at its first start.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// The known disks, each with the path where it was found last.
    pub disks: BTreeMap<DiskName, DiskRecord>,
    /// Pools to be opened at start.
    pub pools: BTreeMap<Name, PoolRecord>,
    /// Pools that were being created or destroyed: their remains on these disks are to be wiped.
    pub pending: BTreeMap<PoolId, PendingRecord>,
    /// Volumes without a pool, which nothing else records.
    pub volumes: BTreeMap<VolumeName, VolumeRecord>,
    /// Authentication policy for all hosts and for discovery.
    #[serde(default)]
    pub auth: AuthRecord,
    /// Hosts.
    pub hosts: BTreeMap<Name, HostRecord>,
    /// Host groups with the same mappings; no group shares its name with a host.
    #[serde(default)]
    pub groups: BTreeMap<Name, BTreeSet<Name>>,
    /// Targets.
    pub targets: BTreeMap<Name, TargetRecord>,
    /// Mappings of volumes to hosts and groups, with the LUNs.
    pub presentations: Vec<PresentationRecord>,
    /// Former LUN numbers of hosts, never assigned to another volume automatically.
    #[serde(default)]
    pub luns: LunHistory,
    /// Portals that were added, or that have settings of their own.
    #[serde(default)]
    pub portals: BTreeMap<SocketAddr, PortalRecord>,
    /// Settings of portal groups.
    #[serde(default)]
    pub portal_groups: BTreeMap<u16, PortalGroupPolicy>,
    /// Distribution of sessions over data portals.
    #[serde(default)]
    pub balance: Balance,
    /// The iSNS server that targets are registered with.
    #[serde(default)]
    pub isns: Option<IsnsServer>,
    /// Cache policies and limits of volumes in pools, where they were set.
    #[serde(default)]
    pub policies: BTreeMap<VolumeName, PolicyRecord>,
    /// Shapes of presented volumes, reported to hosts while the volumes are not open.
    #[serde(default)]
    pub shapes: BTreeMap<VolumeName, UnitShapeRecord>,
}

/// A portal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalRecord {
    /// True for a portal to be opened though the configuration file does not name it.
    pub added: bool,
    /// Role, portal group tag, weight and advertised address.
    pub policy: PortalPolicy,
}

/// Cache policy and limits of a volume in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// Identity of the volume; another volume of the same name does not inherit the policy.
    pub volume_id: VolumeId,
    /// Write policy, share of the cache, and limits of IOPS and bandwidth.
    pub policy: VolumePolicy,
}

/// A known disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Path where it was found last; a hint only, because the label identifies the disk.
    pub path: String,
    /// Identity from the label; `None` before the disk joins a pool.
    pub id: Option<DiskId>,
    /// Hot-spare assignment, while the disk is a spare.
    #[serde(default)]
    pub spare: Option<SpareRecord>,
    /// Serial number, model and WWN, as seen last.
    #[serde(default)]
    pub identity: DiskIdentity,
    /// The pool that it was a member of, once another disk has taken its place there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerMember>,
    /// Login settings, where it is a remote disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteRecord>,
}

/// Login settings of a remote disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRecord {
    /// Credentials that authenticate this array to the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapRecord>,
    /// Credentials that authenticate the target to this array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapRecord>,
    /// True to require header and data digests.
    #[serde(default)]
    pub digests: bool,
}

/// Assignment of a hot spare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareRecord {
    /// The pool that it serves; every pool when absent.
    pub pool: Option<Name>,
    /// True when the content of the disk may be overwritten.
    #[serde(default)]
    pub force: bool,
}

/// A spare that replaced a member, until another spare is added in its stead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareInUse {
    /// The disk that was the spare.
    pub spare: DiskName,
    /// Name of the replaced disk.
    pub of: String,
    /// The pool that it was assigned to; every pool when absent.
    pub pool: Option<Name>,
}

/// A pool to be opened at start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Identity of the pool.
    pub id: PoolId,
    /// Spares that have replaced members and were not replaced by other spares yet.
    #[serde(default)]
    pub taken: Vec<SpareInUse>,
    /// Policy for rebuild and scrub.
    #[serde(default)]
    pub policy: PoolPolicy,
    /// Reports of the latest scrubs, oldest first.
    #[serde(default)]
    pub scrubs: Vec<ScrubReport>,
    /// Time at which the scrub interval was set.
    #[serde(default)]
    pub scrub_since: Option<Timestamp>,
    /// Start of the scheduled scrub in progress, until its report is stored.
    #[serde(default)]
    pub clocked: Option<Timestamp>,
    /// Members as of the last time the pool was open.
    #[serde(default)]
    pub members: BTreeSet<DiskId>,
    /// Options of a read-only import; `None` for a pool that is opened for writing.
    #[serde(default)]
    pub read_only: Option<ReadOnlyRecord>,
}

impl PoolRecord {
    /// Returns a record with default settings.
    #[must_use]
    pub fn new(id: PoolId) -> Self {
        let (taken, policy, scrubs, scrub_since, clocked, members, read_only) = Default::default();
        Self { id, taken, policy, scrubs, scrub_since, clocked, members, read_only }
    }

    /// Returns the order that opens the pool as recorded; `whole` makes it fail while disks are missing.
    pub(crate) fn order(&self, whole: bool) -> Order {
        let ReadOnlyRecord { force, accept_log_loss, key } = self.read_only.clone().unwrap_or_default();
        let (read_only, key) = (self.read_only.is_some(), key.map(|key| key.secret));
        // Confirmed, because a pool on record is not new to this node, and no part of a split pool is chosen.
        Order::OpenPool { id: self.id, force, accept_log_loss, read_only, key, whole, keep: None, confirmed: true }
    }
}

/// Options of a read-only import. The disks of such a pool are never written, so each start needs the options
/// again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOnlyRecord {
    /// True when the previous owner, which did not export the pool, is confirmed to be down.
    #[serde(default)]
    pub force: bool,
    /// True when the loss of part of the redo log is accepted.
    #[serde(default)]
    pub accept_log_loss: bool,
    /// Pool key of the previous owner.
    #[serde(default)]
    pub key: Option<KeyRecord>,
}

/// Pool key supplied from another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The key.
    #[serde(with = "crate::secret_hex")]
    pub secret: Secret,
}

/// A pool that was being created or destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRecord {
    /// Name of the pool.
    pub pool: Name,
    /// Disks that may carry its label.
    pub disks: Vec<DiskName>,
}

/// A volume without a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Identity of the volume.
    pub id: VolumeId,
    /// Capacity in bytes.
    pub size: Size,
    /// Logical block size in bytes.
    pub block_bytes: u32,
    /// Back end that holds its data.
    pub backend: Backend,
}

/// A host: one client machine, or any initiator that no host names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// True when it stands for every initiator that no other host names.
    pub any: bool,
    /// iSCSI names of its initiators.
    pub initiators: Vec<Iqn>,
    /// Networks that it may log in from; every address when empty.
    pub networks: Vec<Network>,
    /// CHAP credentials required at login.
    #[serde(flatten)]
    pub proof: CredentialsRecord,
}

/// Authentication policy for all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthRecord {
    /// Weakest CHAP hash function that is accepted.
    pub weakest: ChapAlgorithm,
    /// Credentials for discovery sessions; those of the host apply when absent.
    pub discovery: Option<CredentialsRecord>,
}

/// CHAP credentials of both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialsRecord {
    /// Credentials of the initiator.
    pub chap: Option<ChapRecord>,
    /// Credentials of this array (mutual CHAP).
    pub mutual_chap: Option<ChapRecord>,
}

/// A CHAP name and secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChapRecord {
    /// CHAP name (`CHAP_N`).
    pub user: String,
    /// CHAP secret. Stored in hexadecimal, because it may be any bytes.
    #[serde(with = "crate::secret_hex")]
    pub secret: Secret,
    /// Demand that was set; when absent, the default of its direction applies.
    #[serde(default)]
    pub demand: Option<Demand>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// iSCSI name (IQN).
    pub iqn: Iqn,
}

/// A presentation: one mapping of a volume to a host or a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresentationRecord {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Identity of the volume: another volume of the same name is never mapped instead.
    pub volume_id: VolumeId,
    /// The host, the host group or `everyone`.
    pub host: Name,
    /// The target in which it appears.
    pub target: Name,
    /// LUN within the target.
    pub lun: u16,
    /// Portal groups through which it is mapped; all when empty.
    #[serde(default)]
    pub groups: Vec<u16>,
    /// True when write commands are rejected.
    pub read_only: bool,
}

impl State {
    /// Returns the access configuration for the data plane; `portals` are the open ones.
    #[must_use]
    pub fn access(&self, portals: &[SocketAddr]) -> Access {
        let portal = |&address: &SocketAddr| Portal { address, policy: self.portal_policy(address) };
        let target = |(name, record): (&Name, &TargetRecord)| Target { name: name.clone(), iqn: record.iqn.clone() };
        Access {
            targets: self.targets.iter().map(target).collect(),
            portals: portals.iter().map(portal).collect(),
            portal_groups: self.portal_groups.clone(),
            balance: self.balance,
            auth: AuthPolicy {
                weakest: self.auth.weakest,
                discovery: self.auth.discovery.as_ref().map(CredentialsRecord::proof),
            },
            hosts: self.hosts.iter().map(|(name, record)| record.host(name)).chain(self.everyone_host()).collect(),
            presentations: self.mappings().map(|(host, record)| record.presentation(host)).collect(),
            absent: self.absent(),
        }
    }

    /// Builds the iSCSI name of a new target or of the default one: naming authority, node name, first part of
    /// the node's UUID, and target name. Machine names repeat, and a host takes two arrays with one target name
    /// for one target and combines their disks as paths to one device (RFC 7143 §4.2.7).
    ///
    /// *Errors*: the name is too long.
    pub fn target_iqn(&self, settings: &Settings, target: Option<&Name>) -> Result<Iqn, Refusal> {
        let id = self.node.map(|id| id.to_string()).unwrap_or_default();
        // The first part of the UUID tells arrays apart, and keeps the name short.
        let unique = id.split('-').next().filter(|part| !part.is_empty()).map(str::to_owned);
        let parts = [Some(settings.node.to_string()), unique, target.map(ToString::to_string)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("{}:{}", settings.target_base, parts.join(".")).parse()
    }

    /// Returns the policy of the portal, or the default one.
    #[must_use]
    pub fn portal_policy(&self, address: SocketAddr) -> PortalPolicy {
        self.portals.get(&address).map(|record| record.policy.clone()).unwrap_or_default()
    }

    /// Returns the spares that may replace a member of the pool.
    pub fn spares_of<'a>(&'a self, pool: &'a Name) -> impl Iterator<Item = &'a DiskName> {
        let may = move |spare: &SpareRecord| spare.pool.as_ref().is_none_or(|own| own == pool);
        self.disks.iter().filter(move |(_, disk)| disk.spare.as_ref().is_some_and(may)).map(|(name, _)| name)
    }

    /// Returns the presentations that apply to the host: its own, those of its groups and those of `everyone`.
    pub fn mappings_of<'a>(&'a self, host: &'a Name) -> impl Iterator<Item = &'a PresentationRecord> {
        self.presentations.iter().filter(move |record| self.replaces(&record.host, host))
    }

    /// Returns every pair of host and presentation, host by host; those of unknown initiators come last.
    fn mappings(&self) -> impl Iterator<Item = (&Name, &PresentationRecord)> {
        let mut seen: BTreeMap<&Name, Vec<&PresentationRecord>> = BTreeMap::new();
        for record in &self.presentations {
            self.hosts_of(&record.host).for_each(|host| seen.entry(host).or_default().push(record));
        }
        // Without the pseudo-host the data plane would get presentations to a host that it does not have.
        let is_open = self.everyone_host().is_some();
        let open = self.presentations.iter().filter(move |record| is_open && self.is_everyone(&record.host));
        let of_host = |(host, records): (_, Vec<_>)| records.into_iter().map(move |record| (host, record));
        seen.into_iter().flat_map(of_host).chain(open.map(|record| (&record.host, record)))
    }

    /// Returns the number of presentations of each host that has any.
    pub fn mapping_counts(&self) -> BTreeMap<&Name, usize> {
        let mut counts = BTreeMap::new();
        self.mappings().for_each(|(host, _)| *counts.entry(host).or_default() += 1);
        counts
    }

    /// Resolves a name to hosts: a host, the members of a group, or all hosts.
    pub fn hosts_of<'a>(&'a self, who: &'a Name) -> impl Iterator<Item = &'a Name> {
        let all = self.is_everyone(who).then(|| self.hosts.keys());
        let members = self.groups.get(who).into_iter().flatten().filter(|host| self.hosts.contains_key(*host));
        let itself = self.hosts.get_key_value(who).map(|(host, _)| host);
        // A group may still name a host that was removed.
        itself.into_iter().chain(members).chain(all.into_iter().flatten())
    }

    /// Returns true when no new host or group can have this name.
    pub fn is_taken(&self, name: &Name) -> bool {
        self.hosts.contains_key(name) || self.groups.contains_key(name) || name.as_str() == EVERYONE
    }

    /// Returns true when the name stands for every host and every unknown initiator.
    pub fn is_everyone(&self, who: &Name) -> bool {
        // An older state may have a host or a group of that name; it keeps its meaning.
        who.as_str() == EVERYONE && !self.hosts.contains_key(who) && !self.groups.contains_key(who)
    }

    /// Returns true when any initiator that reaches a portal is covered by the name without authentication.
    pub fn is_open(&self, who: &Name) -> bool {
        // A host for any initiator, from any address and without CHAP, is as open as `everyone`. CHAP that is only
        // offered keeps nobody out: a login without it is accepted.
        let any = self.hosts.get(who).filter(|host| host.any && host.networks.is_empty());
        let is_optional = |host: &HostRecord| host.proof.proof().own.is_none_or(|own| own.demand != Demand::Required);
        self.is_everyone(who) || any.is_some_and(is_optional)
    }

    /// Returns the pseudo-host of unknown initiators, which exists while something is presented to `everyone`
    /// and no host stands for any initiator.
    fn everyone_host(&self) -> Option<Host> {
        let name = &self.presentations.iter().find(|record| self.is_everyone(&record.host))?.host;
        // A host that stands for any initiator already covers them.
        let nobody_else = self.hosts.values().all(|host| !host.any);
        let (networks, proof) = Default::default();
        nobody_else.then(|| Host { name: name.clone(), initiators: Initiators::Any, networks, chap: proof })
    }

    fn replaces(&self, who: &Name, host: &Name) -> bool {
        who == host || self.is_everyone(who) || self.groups.get(who).is_some_and(|group| group.contains(host))
    }

    /// Returns the presentations of a volume.
    pub fn presentations_of<'a>(&'a self, volume: &'a VolumeName) -> impl Iterator<Item = &'a PresentationRecord> {
        self.presentations.iter().filter(move |presentation| presentation.volume == *volume)
    }
}

impl HostRecord {
    fn host(&self, name: &Name) -> Host {
        Host {
            name: name.clone(),
            initiators: if self.any { Initiators::Any } else { Initiators::Listed(self.initiators.clone()) },
            networks: self.networks.clone(),
            chap: self.proof.proof(),
        }
    }
}

impl CredentialsRecord {
    /// Converts to the model. By default the initiator is required to authenticate, and this array
    /// authenticates when asked.
    pub(crate) fn proof(&self) -> ChapCredentials {
        let chap = |record: &ChapRecord, usual: Demand| Chap {
            user: record.user.clone(),
            secret: record.secret.clone(),
            demand: record.demand.unwrap_or(usual),
        };
        ChapCredentials {
            own: self.chap.as_ref().map(|own| chap(own, Demand::Required)),
            mutual: self.mutual_chap.as_ref().map(|ours| chap(ours, Demand::Offered)),
        }
    }
}

impl PresentationRecord {
    /// Resolves the presentation for one host.
    fn presentation(&self, host: &Name) -> Presentation {
        Presentation {
            volume: self.volume.clone(),
            volume_id: self.volume_id,
            host: host.clone(),
            target: self.target.clone(),
            lun: self.lun,
            groups: self.groups.clone(),
            read_only: self.read_only,
        }
    }
}
