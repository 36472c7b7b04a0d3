//! What is reported of hosts, groups, targets and presentations. The parts fill it in ([`crate::change`]); nothing here asks them.

use crate::State;
use crate::state::{AuthRecord, ChapRecord, HostRecord, PresentationRecord, ProofRecord};
use model::{
    ChapAlgorithm, Demand, Iqn, Name, Network, PortalPolicy, PortalReport, PortalState, VolumeId, VolumeName,
    is_shown_in, only_fronts,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// A host, without its secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostReport {
    /// Its name.
    pub name: Name,
    /// True when it stands for every initiator that no other host names.
    pub any: bool,
    /// Its initiators.
    pub initiators: Vec<Iqn>,
    /// Where it may come from; anywhere when empty.
    pub networks: Vec<Network>,
    /// What is proven before it is let in.
    #[serde(flatten)]
    pub proof: ProofReport,
    /// How many volumes it sees.
    pub presentations: u32,
    /// LUN numbers that it had for volumes, and that no other volume gets by itself.
    #[serde(default)]
    pub former_luns: Vec<FormerLun>,
}

/// A LUN number that was a volume once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormerLun {
    /// The iSCSI name of the target.
    pub target: Iqn,
    /// The number.
    pub lun: u16,
    /// What the volume was called.
    pub volume: VolumeName,
    /// Which volume it was. It may be gone.
    pub volume_id: VolumeId,
}

/// What is proven at a login, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProofReport {
    /// The CHAP name that the initiator must prove; none when it need not.
    pub chap_user: Option<String>,
    /// Whether it goes without.
    #[serde(default)]
    pub chap_demand: Option<Demand>,
    /// The CHAP name that we prove; none when we do not.
    pub mutual_chap_user: Option<String>,
    /// Whether it goes without.
    #[serde(default)]
    pub mutual_chap_demand: Option<Demand>,
}

/// What holds for the logins of all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthReport {
    /// The weakest hash function of CHAP that is spoken.
    pub weakest: ChapAlgorithm,
    /// What discovery sessions prove; what their host proves for other sessions when absent.
    pub discovery: Option<ProofReport>,
}

/// A group of hosts that see the same volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostGroupReport {
    /// Its name.
    pub name: Name,
    /// Its hosts.
    pub hosts: Vec<Name>,
    /// How many volumes are presented to it.
    pub presentations: u32,
    /// LUN numbers that it had for volumes, and that no other volume gets by itself.
    #[serde(default)]
    pub former_luns: Vec<FormerLun>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetReport {
    /// Its name among ours.
    pub name: Name,
    /// Its iSCSI name.
    pub iqn: Iqn,
    /// How many presentations go through it.
    pub presentations: u32,
}

/// Who sees what, and what the host needs to know to see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PresentationReport {
    /// The volume.
    pub volume: VolumeName,
    /// Which volume of that name.
    pub volume_id: VolumeId,
    /// The host, or the group of hosts.
    pub host: Name,
    /// The target, by its name among ours.
    pub target: Name,
    /// The target's iSCSI name.
    pub iqn: Iqn,
    /// Under which number.
    pub lun: u16,
    /// Through portals of which groups; through all when empty.
    pub groups: Vec<u16>,
    /// True when the host may not write.
    pub read_only: bool,
    /// True when whoever reaches a portal sees it, and proves nothing.
    #[serde(default)]
    pub open: bool,
    /// Where the target is reached.
    pub portals: Vec<String>,
    /// The CHAP name that the host must prove; none when it need not.
    pub chap_user: Option<String>,
    /// The CHAP name that we prove; none when we do not.
    pub mutual_chap_user: Option<String>,
}

impl PresentationReport {
    pub(crate) fn of(record: &PresentationRecord, state: &State, portals: &[PortalReport]) -> Self {
        let target = state.targets.get(&record.target).expect("a target with presentations is not removed");
        // The hosts of a group have their own.
        let host = state.hosts.get(&record.host);
        let open = portals.iter().filter(|portal| portal.state == PortalState::Open);
        let open = open.map(|portal| (portal.address, state.portal_policy(portal.address)));
        let shown = |policy: &PortalPolicy| is_shown_in(&record.groups, policy.tag);
        let mut portals: Vec<(SocketAddr, PortalPolicy)> = open.filter(|(_, policy)| shown(policy)).collect();
        only_fronts(&mut portals);
        portals.sort_by_key(|(_, policy)| policy.drained);
        Self {
            volume: record.volume.clone(),
            volume_id: record.volume_id,
            host: record.host.clone(),
            target: record.target.clone(),
            iqn: target.iqn.clone(),
            lun: record.lun,
            groups: record.groups.clone(),
            read_only: record.read_only,
            open: state.is_open(&record.host),
            portals: portals.into_iter().map(|(address, policy)| policy.for_hosts(address)).collect(),
            chap_user: host.and_then(|host| host.proof.chap.as_ref()).map(user),
            mutual_chap_user: host.and_then(|host| host.proof.mutual_chap.as_ref()).map(user),
        }
    }
}

impl HostReport {
    pub(crate) fn of(name: &Name, record: &HostRecord, state: &State, presentations: usize) -> Self {
        Self {
            name: name.clone(),
            any: record.any,
            initiators: record.initiators.clone(),
            networks: record.networks.clone(),
            proof: ProofReport::of(&record.proof),
            presentations: count(presentations),
            former_luns: state.luns.of(name).map(FormerLun::of).collect(),
        }
    }
}

impl ProofReport {
    pub(crate) fn of(record: &ProofRecord) -> Self {
        let proof = record.proof();
        Self {
            chap_user: record.chap.as_ref().map(user),
            chap_demand: proof.own.map(|own| own.demand),
            mutual_chap_user: record.mutual_chap.as_ref().map(user),
            mutual_chap_demand: proof.mutual.map(|ours| ours.demand),
        }
    }
}

impl AuthReport {
    pub(crate) fn of(record: &AuthRecord) -> Self {
        Self { weakest: record.weakest, discovery: record.discovery.as_ref().map(ProofReport::of) }
    }
}

impl fmt::Display for ProofReport {
    /// As what an initiator does: `proves itself as web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(user) = &self.chap_user else { return f.write_str("is believed without proof") };
        let may = if self.chap_demand == Some(Demand::Offered) { "may prove" } else { "proves" };
        write!(f, "{may} itself as {user}")?;
        match (&self.mutual_chap_user, self.mutual_chap_demand) {
            (Some(ours), Some(Demand::Required)) => write!(f, " and must check us as {ours}"),
            (Some(ours), _) => write!(f, " and may check us as {ours}"),
            (None, _) => Ok(()),
        }
    }
}

fn user(chap: &ChapRecord) -> String {
    chap.user.clone()
}

pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
