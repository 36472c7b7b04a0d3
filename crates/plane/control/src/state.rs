//! What the array should be, as far as its disks do not know it themselves.

mod disks;
pub(crate) mod lun_memory;
pub(crate) mod owners;
mod shapes;

use crate::Settings;
use crate::state::lun_memory::LunMemory;
pub(crate) use crate::state::shapes::ShapeRecord;
use model::{
    Access, AuthPolicy, Backend, Balance, Chap, ChapAlgorithm, Demand, DiskId, DiskIdentity, DiskName, EVERYONE,
    FormerMember, Host, Initiators, Iqn, IsnsServer, Name, Network, NodeId, Order, PoolId, PoolPolicy, Portal,
    PortalGroupPolicy, PortalPolicy, Presentation, Proof, Refusal, ScrubReport, Secret, Size, Target, Timestamp,
    VolumeId, VolumeName, VolumePolicy,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// The name of the target that is there from the first start on.
pub(crate) const DEFAULT_TARGET: &str = "default";

/// The desired state: one value, replaced as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Which node this is, from its first start on.
    #[serde(default)]
    pub node: Option<NodeId>,
    /// The disks that we know, and where they were last.
    pub disks: BTreeMap<DiskName, DiskRecord>,
    /// The pools that should be open.
    pub pools: BTreeMap<Name, PoolRecord>,
    /// Pools that were being made or destroyed: whatever of them is on these disks is to be wiped.
    pub pending: BTreeMap<PoolId, PendingRecord>,
    /// Volumes that have no pool to remember them.
    pub volumes: BTreeMap<VolumeName, VolumeRecord>,
    /// What holds for the logins of all hosts.
    #[serde(default)]
    pub auth: AuthRecord,
    /// Hosts.
    pub hosts: BTreeMap<Name, HostRecord>,
    /// Groups of hosts that see the same volumes; their names are no host's.
    #[serde(default)]
    pub groups: BTreeMap<Name, BTreeSet<Name>>,
    /// Targets.
    pub targets: BTreeMap<Name, TargetRecord>,
    /// Who sees what.
    pub presentations: Vec<PresentationRecord>,
    /// LUN numbers that hosts had, and that no other volume gets by itself.
    #[serde(default)]
    pub luns: LunMemory,
    /// Portals that were added, or for which something was set.
    #[serde(default)]
    pub portals: BTreeMap<SocketAddr, PortalRecord>,
    /// What is set for portal groups.
    #[serde(default)]
    pub portal_groups: BTreeMap<u16, PortalGroupPolicy>,
    /// How sessions are shared out over data portals.
    #[serde(default)]
    pub balance: Balance,
    /// The iSNS server that targets are registered with.
    #[serde(default)]
    pub isns: Option<IsnsServer>,
    /// How volumes of pools are cached and how fast they may be, where that was set.
    #[serde(default)]
    pub policies: BTreeMap<VolumeName, PolicyRecord>,
    /// What hosts are told of presented volumes while these are not open.
    #[serde(default)]
    pub shapes: BTreeMap<VolumeName, ShapeRecord>,
}

/// A portal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalRecord {
    /// True when it is to be opened though the configuration file does not name it.
    pub added: bool,
    /// What it is for.
    pub policy: PortalPolicy,
}

/// What was set for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// Which volume of that name.
    pub volume_id: VolumeId,
    /// How it is cached, and how fast it may be.
    pub policy: VolumePolicy,
}

/// A disk that we know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskRecord {
    /// Where it was last.
    pub path: String,
    /// Which disk it is; none before it joins a pool.
    pub id: Option<DiskId>,
    /// What it is for, when it waits to take the place of a lost member.
    #[serde(default)]
    pub spare: Option<SpareRecord>,
    /// Which piece of hardware it is, as it was seen last.
    #[serde(default)]
    pub identity: DiskIdentity,
    /// The pool that it was a member of, once another disk has got its place there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub former: Option<FormerMember>,
    /// How it is logged in to, where it is a disk of another array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteRecord>,
}

/// How a disk of another array is logged in to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRecord {
    /// What authenticates this array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chap: Option<ChapRecord>,
    /// What authenticates the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutual_chap: Option<ChapRecord>,
    /// Header and data digests are required.
    #[serde(default)]
    pub digests: bool,
}

/// What a spare is for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpareRecord {
    /// Its pool; any when absent.
    pub pool: Option<Name>,
    /// True when what it holds may be overwritten.
    #[serde(default)]
    pub force: bool,
}

/// A spare that has taken a place, until there is another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakenRecord {
    /// The disk that was the spare.
    pub spare: DiskName,
    /// What the disk was called whose place it has.
    pub of: String,
    /// The pool that it was a spare for; any when absent.
    pub pool: Option<Name>,
}

/// A pool that should be open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Which.
    pub id: PoolId,
    /// Spares that have taken a place in it, and were not replaced by other spares yet.
    #[serde(default)]
    pub taken: Vec<TakenRecord>,
    /// How it is to be repaired and looked through.
    #[serde(default)]
    pub policy: PoolPolicy,
    /// What its latest scrubs have found, oldest first.
    #[serde(default)]
    pub scrubs: Vec<ScrubReport>,
    /// When it was set how often it is to be looked through.
    #[serde(default)]
    pub scrub_since: Option<Timestamp>,
    /// When the scrub began that the clock has begun, until its end is remembered.
    #[serde(default)]
    pub clocked: Option<Timestamp>,
    /// Its members, as they were known last.
    #[serde(default)]
    pub members: BTreeSet<DiskId>,
    /// How it was imported read-only; none for one that is opened for writing.
    #[serde(default)]
    pub read_only: Option<ReadOnlyRecord>,
}

impl PoolRecord {
    /// A pool of which nothing else is known.
    #[must_use]
    pub fn new(id: PoolId) -> Self {
        let (taken, policy, scrubs, scrub_since, clocked, members, read_only) = Default::default();
        Self { id, taken, policy, scrubs, scrub_since, clocked, members, read_only }
    }

    /// The order that opens the pool as its record says; `whole` to refuse while disks are waited for.
    pub(crate) fn order(&self, whole: bool) -> Order {
        let ReadOnlyRecord { force, accept_log_loss, key } = self.read_only.clone().unwrap_or_default();
        let (read_only, key) = (self.read_only.is_some(), key.map(|key| key.secret));
        Order::OpenPool { id: self.id, force, accept_log_loss, read_only, key, whole, keep: None, confirmed: true }
    }
}

/// What an operator said when importing a pool read-only. Nothing of it can stand on the disks of the pool, so each start
/// needs it again.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadOnlyRecord {
    /// True when the node that had the pool last and did not let go of it is down.
    #[serde(default)]
    pub force: bool,
    /// True when the loss of a part of the redo log is accepted.
    #[serde(default)]
    pub accept_log_loss: bool,
    /// The pool key of the node that had it.
    #[serde(default)]
    pub key: Option<KeyRecord>,
}

/// A pool key that was brought along from another node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The key.
    #[serde(with = "crate::secret_hex")]
    pub secret: Secret,
}

/// A pool that was being made or destroyed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingRecord {
    /// What it was, or was to be, called.
    pub pool: Name,
    /// The disks that may bear its label.
    pub disks: Vec<DiskName>,
}

/// A volume without a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// Which.
    pub id: VolumeId,
    /// Its size.
    pub size: Size,
    /// Bytes of a logical block.
    pub block_bytes: u32,
    /// What holds its data.
    pub backend: Backend,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// True when it stands for every initiator that no other host names.
    pub any: bool,
    /// Its initiators.
    pub initiators: Vec<Iqn>,
    /// Where it may come from; anywhere when empty.
    pub networks: Vec<Network>,
    /// What is proven before it is let in.
    #[serde(flatten)]
    pub proof: ProofRecord,
}

/// What holds for the logins of all hosts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthRecord {
    /// The weakest hash function of CHAP that is spoken.
    pub weakest: ChapAlgorithm,
    /// What discovery sessions prove; what their host proves otherwise when absent.
    pub discovery: Option<ProofRecord>,
}

/// What is proven with CHAP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofRecord {
    /// What the initiator proves.
    pub chap: Option<ChapRecord>,
    /// What we prove.
    pub mutual_chap: Option<ChapRecord>,
}

/// A CHAP name and secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChapRecord {
    /// CHAP_N.
    pub user: String,
    /// The secret, in hexadecimal: it may be any bytes.
    #[serde(with = "crate::secret_hex")]
    pub secret: Secret,
    /// Whether a login goes without it, where that was said.
    #[serde(default)]
    pub demand: Option<Demand>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetRecord {
    /// Its iSCSI name.
    pub iqn: Iqn,
}

/// Who sees what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresentationRecord {
    /// The volume.
    pub volume: VolumeName,
    /// Which volume of that name.
    pub volume_id: VolumeId,
    /// The host, or the group of hosts.
    pub host: Name,
    /// The target.
    pub target: Name,
    /// Under which number.
    pub lun: u16,
    /// Through portals of which groups; through all when empty.
    #[serde(default)]
    pub groups: Vec<u16>,
    /// True when the host may not write.
    pub read_only: bool,
}

impl State {
    /// What the data plane needs to decide who may see what.
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
                discovery: self.auth.discovery.as_ref().map(ProofRecord::proof),
            },
            hosts: self.hosts.iter().map(|(name, record)| record.host(name)).chain(self.stranger()).collect(),
            presentations: self.seen().map(|(host, record)| record.presentation(host)).collect(),
            absent: self.absent(),
        }
    }

    /// The iSCSI name of a new target, or of the default one: the naming authority, the node's name, the first part of the
    /// node's UUID, and the target's name. Names of machines repeat, and two arrays with one target name are one target to a
    /// host, which takes their disks for paths to one (RFC 7143 §4.2.7).
    ///
    /// *Errors*: it is too long.
    pub fn target_iqn(&self, settings: &Settings, target: Option<&Name>) -> Result<Iqn, Refusal> {
        let id = self.node.map(|id| id.to_string()).unwrap_or_default();
        let unique = id.split('-').next().filter(|part| !part.is_empty()).map(str::to_owned);
        let parts = [Some(settings.node.to_string()), unique, target.map(ToString::to_string)];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        format!("{}:{}", settings.target_base, parts.join(".")).parse()
    }

    /// What is set for the portal.
    #[must_use]
    pub fn portal_policy(&self, address: SocketAddr) -> PortalPolicy {
        self.portals.get(&address).map(|record| record.policy.clone()).unwrap_or_default()
    }

    /// The spares that may take a place in the pool.
    pub fn spares_of<'a>(&'a self, pool: &'a Name) -> impl Iterator<Item = &'a DiskName> {
        let may = move |spare: &SpareRecord| spare.pool.as_ref().is_none_or(|own| own == pool);
        self.disks.iter().filter(move |(_, disk)| disk.spare.as_ref().is_some_and(may)).map(|(name, _)| name)
    }

    /// What the host sees, by itself and as one of its groups.
    pub fn seen_by<'a>(&'a self, host: &'a Name) -> impl Iterator<Item = &'a PresentationRecord> {
        self.presentations.iter().filter(move |record| self.stands_for(&record.host, host))
    }

    /// What every host sees, host by host; what a stranger sees comes last.
    fn seen(&self) -> impl Iterator<Item = (&Name, &PresentationRecord)> {
        let mut seen: BTreeMap<&Name, Vec<&PresentationRecord>> = BTreeMap::new();
        for record in &self.presentations {
            self.hosts_of(&record.host).for_each(|host| seen.entry(host).or_default().push(record));
        }
        let is_open = self.stranger().is_some();
        let open = self.presentations.iter().filter(move |record| is_open && self.is_everyone(&record.host));
        let of_host = |(host, records): (_, Vec<_>)| records.into_iter().map(move |record| (host, record));
        seen.into_iter().flat_map(of_host).chain(open.map(|record| (&record.host, record)))
    }

    /// How many presentations each host sees that sees any.
    pub fn seen_counts(&self) -> BTreeMap<&Name, usize> {
        let mut counts = BTreeMap::new();
        self.seen().for_each(|(host, _)| *counts.entry(host).or_default() += 1);
        counts
    }

    /// The hosts that a name stands for: a host, those of a group, or all.
    pub fn hosts_of<'a>(&'a self, who: &'a Name) -> impl Iterator<Item = &'a Name> {
        let all = self.is_everyone(who).then(|| self.hosts.keys());
        let members = self.groups.get(who).into_iter().flatten().filter(|host| self.hosts.contains_key(*host));
        let itself = self.hosts.get_key_value(who).map(|(host, _)| host);
        itself.into_iter().chain(members).chain(all.into_iter().flatten())
    }

    /// True when no new host or group can be called so.
    pub fn is_taken(&self, name: &Name) -> bool {
        self.hosts.contains_key(name) || self.groups.contains_key(name) || name.as_str() == EVERYONE
    }

    /// True when the name stands for every host and for whoever is none.
    pub fn is_everyone(&self, who: &Name) -> bool {
        who.as_str() == EVERYONE && !self.hosts.contains_key(who) && !self.groups.contains_key(who)
    }

    /// True when the name stands for whoever reaches a portal, without a proof.
    pub fn is_open(&self, who: &Name) -> bool {
        let any = self.hosts.get(who).filter(|host| host.any && host.networks.is_empty());
        self.is_everyone(who) || any.is_some_and(|host| host.proof.proof().own.is_none())
    }

    /// Whoever is no host, while something is presented to everyone and no host stands for any initiator.
    fn stranger(&self) -> Option<Host> {
        let name = &self.presentations.iter().find(|record| self.is_everyone(&record.host))?.host;
        let nobody_else = self.hosts.values().all(|host| !host.any);
        let (networks, proof) = Default::default();
        nobody_else.then(|| Host { name: name.clone(), initiators: Initiators::Any, networks, proof })
    }

    fn stands_for(&self, who: &Name, host: &Name) -> bool {
        who == host || self.is_everyone(who) || self.groups.get(who).is_some_and(|group| group.contains(host))
    }

    /// The presentations of a volume.
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
            proof: self.proof.proof(),
        }
    }
}

impl ProofRecord {
    /// What the initiator proves must be, what we prove is for who asks, where nothing else was said.
    pub(crate) fn proof(&self) -> Proof {
        let chap = |record: &ChapRecord, usual: Demand| Chap {
            user: record.user.clone(),
            secret: record.secret.clone(),
            demand: record.demand.unwrap_or(usual),
        };
        Proof {
            own: self.chap.as_ref().map(|own| chap(own, Demand::Required)),
            mutual: self.mutual_chap.as_ref().map(|ours| chap(ours, Demand::Offered)),
        }
    }
}

impl PresentationRecord {
    /// As one host sees it.
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
