//! Reports of hosts, groups, targets and presentations, as API responses. The parts ([`crate::change`]) fill
//! them in.

use crate::State;
use crate::state::{AuthRecord, ChapRecord, CredentialsRecord, HostRecord, PresentationRecord};
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
    /// Name of the host.
    pub name: Name,
    /// True when it stands for every initiator that no other host names.
    pub any: bool,
    /// iSCSI names of its initiators.
    pub initiators: Vec<Iqn>,
    /// Networks that it may log in from; every address when empty.
    pub networks: Vec<Network>,
    /// CHAP credentials required at login.
    #[serde(flatten)]
    pub authentication: ProofReport,
    /// Number of volumes presented to it.
    pub presentations: u32,
    /// Former LUNs, which are never assigned to another volume automatically.
    #[serde(default)]
    pub former_luns: Vec<FormerLun>,
}

/// A LUN that a volume was presented under before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FormerLun {
    /// iSCSI name of the target.
    pub target: Iqn,
    /// LUN within the target.
    pub lun: u16,
    /// Name of the volume at that time.
    pub volume: VolumeName,
    /// Identity of the volume, which may have been deleted.
    pub volume_id: VolumeId,
}

/// CHAP authentication at login, without secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProofReport {
    /// CHAP name of the initiator; null when it is not authenticated.
    pub chap_user: Option<String>,
    /// Demand on the initiator: `required` denies a login without CHAP.
    #[serde(default)]
    pub chap_demand: Option<Demand>,
    /// CHAP name of this array (mutual CHAP); null without it.
    pub mutual_chap_user: Option<String>,
    /// Demand on the array: `required` denies a login without mutual CHAP.
    #[serde(default)]
    pub mutual_chap_demand: Option<Demand>,
}

/// Authentication policy for all hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuthReport {
    /// Weakest CHAP hash function that is accepted.
    pub min_algorithm: ChapAlgorithm,
    /// Authentication of discovery sessions; that of the host when absent.
    pub discovery: Option<ProofReport>,
}

/// A group of hosts with the same mappings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostGroupReport {
    /// Name of the group.
    pub name: Name,
    /// Names of its hosts.
    pub hosts: Vec<Name>,
    /// Number of volumes presented to it.
    pub presentations: u32,
    /// Former LUNs, which are never assigned to another volume automatically.
    #[serde(default)]
    pub former_luns: Vec<FormerLun>,
}

/// An iSCSI target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetReport {
    /// Name in this array.
    pub name: Name,
    /// iSCSI name (IQN).
    pub iqn: Iqn,
    /// Number of presentations in it.
    pub presentations: u32,
}

/// A presentation, with everything that a host needs to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PresentationReport {
    /// Name of the volume.
    pub volume: VolumeName,
    /// Identity of the volume.
    pub volume_id: VolumeId,
    /// The host, the host group or `everyone`.
    pub host: Name,
    /// Name of the target in this array.
    pub target: Name,
    /// iSCSI name of the target.
    pub iqn: Iqn,
    /// LUN within the target.
    pub lun: u16,
    /// Portal groups through which it is mapped; all when empty.
    pub groups: Vec<u16>,
    /// True when write commands are rejected.
    pub read_only: bool,
    /// True when any initiator that reaches a portal is mapped without authentication.
    #[serde(default)]
    pub open: bool,
    /// Addresses at which hosts reach the target.
    pub portals: Vec<String>,
    /// CHAP name of the initiator; null when it is not authenticated.
    pub chap_user: Option<String>,
    /// CHAP name of this array (mutual CHAP); null without it.
    pub mutual_chap_user: Option<String>,
}

impl PresentationReport {
    pub(crate) fn of(record: &PresentationRecord, state: &State, portals: &[PortalReport]) -> Self {
        let target = state.targets.get(&record.target).expect("a target with presentations is not removed");
        // `None` for a group: each of its hosts has its own credentials.
        let host = state.hosts.get(&record.host);
        let open = portals.iter().filter(|portal| portal.state == PortalState::Open);
        let open = open.map(|portal| (portal.address, state.portal_policy(portal.address)));
        let shown = |policy: &PortalPolicy| is_shown_in(&record.groups, policy.tag);
        let mut portals: Vec<(SocketAddr, PortalPolicy)> = open.filter(|(_, policy)| shown(policy)).collect();
        // Portals that hosts connect to first: where front portals exist, data portals are reached by
        // redirection only.
        only_fronts(&mut portals);
        // Drained portals last, because they redirect new sessions.
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
            authentication: ProofReport::of(&record.proof),
            presentations: count(presentations),
            former_luns: state.luns.of(name).map(FormerLun::of).collect(),
        }
    }
}

impl ProofReport {
    pub(crate) fn of(record: &CredentialsRecord) -> Self {
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
        Self { min_algorithm: record.weakest, discovery: record.discovery.as_ref().map(ProofReport::of) }
    }
}

impl fmt::Display for ProofReport {
    /// Writes a verb phrase, such as `authenticates as web`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(user) = &self.chap_user else { return f.write_str("needs no authentication") };
        let may = if self.chap_demand == Some(Demand::Offered) { "may authenticate" } else { "authenticates" };
        write!(f, "{may} as {user}")?;
        match (&self.mutual_chap_user, self.mutual_chap_demand) {
            (Some(ours), Some(Demand::Required)) => write!(f, ", mutual CHAP as {ours} required"),
            (Some(ours), _) => write!(f, ", mutual CHAP as {ours} optional"),
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
