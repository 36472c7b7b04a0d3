//! How everything is, seen from above: what the data plane says, and what it cannot know.

mod single;

use crate::state::{AuthRecord, ChapRecord, HostRecord, PresentationRecord, ProofRecord, VolumeRecord};
use crate::unknown::{missing, unknown_pool, unknown_volume};
use crate::{Control, State};
use model::{
    ChapAlgorithm, Demand, DiskCounters, DiskName, DiskReport, DiskState, GroupReport, Iqn, Label, LatencyReport,
    MemberReport, Name, Network, Order, PoolReport, PoolState, PortalPolicy, PortalReport, PortalState, Refusal,
    RefusedLogin, SessionDetail, SessionEnd, SessionReport, Size, SpaceState, SpareReport, TaskReport, VolumeId,
    VolumeName, VolumeReport, VolumeState, is_shown_in, only_fronts, spread,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
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

impl Control {
    /// All disks that are known, also those that were not found.
    pub async fn disks(&self) -> Result<Vec<DiskReport>, Refusal> {
        let mut disks = self.core.engine.disks(Order::Disks).await?;
        let open: BTreeSet<DiskName> = disks.iter().filter_map(|disk| disk.name.clone()).collect();
        let state = self.core.state();
        let lost = state.disks.iter().filter(|(name, _)| !open.contains(name));
        disks.extend(lost.map(|(name, record)| DiskReport {
            name: Some(name.clone()),
            path: record.path.clone(),
            size: Size::ZERO,
            logical_block_bytes: 0,
            physical_block_bytes: 0,
            label: Label::None,
            state: DiskState::Missing,
            counters: DiskCounters::default(),
            spare: None,
            identity: record.identity.clone(),
            health: None,
            remote: record.remote_report(),
        }));
        for disk in &mut disks {
            let record = disk.name.as_ref().and_then(|name| state.disks.get(name));
            let spare = record.and_then(|record| record.spare.as_ref());
            disk.health = disk.name.as_ref().and_then(|name| self.health.of(name));
            disk.spare = spare.map(|spare| SpareReport { pool: spare.pool.clone() });
        }
        disks.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(disks)
    }

    /// All pools that are known, also those that are not open. Missing members have their names.
    pub async fn pools(&self) -> Result<Vec<PoolReport>, Refusal> {
        let mut pools = self.core.engine.pools(Order::Pools).await?;
        let state = self.core.state();
        for member in pools.iter_mut().flat_map(PoolReport::all_groups_mut).flat_map(|group| &mut group.members) {
            if member.disk.is_none() {
                let known = state.disks.iter().find(|(_, record)| record.id == Some(member.id));
                member.disk = known.map(|(name, _)| name.clone());
            }
        }
        let placed = self.placed().await?;
        for pool in &mut pools {
            pool.weak_enclosures = weak_enclosures(pool, &placed);
            pool.spares = state.spares_of(&pool.name).cloned().collect();
            let Some(record) = state.pools.get(&pool.name) else { continue };
            pool.policy = record.policy.clone();
            pool.imported_read_only = record.read_only.is_some();
            pool.scrub = pool.scrub.take().or_else(|| record.scrubs.last().cloned());
            pool.next_scrub = record.next_scrub();
            for member in pool.all_groups_mut().flat_map(|group| &mut group.members) {
                let taken = record.taken.iter().find(|taken| member.disk.as_ref() == Some(&taken.spare));
                member.stands_for = taken.map(|taken| taken.of.clone());
            }
        }
        let open: Vec<Name> = pools.iter().map(|pool| pool.name.clone()).collect();
        let lost = state.pools.iter().filter(|(name, _)| !open.contains(name));
        pools.extend(lost.map(|(name, record)| PoolReport {
            name: name.clone(),
            id: record.id,
            state: PoolState::Missing,
            size: Size::ZERO,
            used: Size::ZERO,
            space: SpaceState::Enough,
            volumes: 0,
            groups: Vec::new(),
            log: None,
            spares: state.spares_of(name).cloned().collect(),
            policy: record.policy.clone(),
            scrub: record.scrubs.last().cloned(),
            weak_enclosures: Vec::new(),
            next_scrub: None,
            fenced: None,
            read_only: None,
            imported_read_only: record.read_only.is_some(),
        }));
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(pools)
    }

    /// The enclosure that each disk sits in, where it is known.
    pub(crate) async fn placed(&self) -> Result<BTreeMap<DiskName, String>, Refusal> {
        let disks = self.core.engine.disks(Order::Disks).await?;
        Ok(disks.into_iter().filter_map(|disk| disk.name.zip(disk.identity.enclosure)).collect())
    }

    /// All volumes that are known, also those whose file was not found.
    pub async fn volumes(&self) -> Result<Vec<VolumeReport>, Refusal> {
        let mut volumes = self.core.engine.volumes(Order::Volumes).await?;
        let open: BTreeSet<VolumeName> = volumes.iter().map(|volume| volume.name.clone()).collect();
        let state = self.core.state();
        let lost = state.volumes.iter().filter(|(name, _)| !open.contains(name));
        volumes.extend(lost.map(lost_volume));
        volumes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(volumes)
    }

    /// The volumes that do not serve: those whose file was not found, and those of open pools that are held back. `open` are the names
    /// of all that the data plane knows, sorted.
    pub(crate) async fn volumes_away(&self, open: &[VolumeName]) -> Result<Vec<VolumeReport>, Refusal> {
        let state = self.core.state();
        let lost = state.volumes.iter().filter(|(name, _)| open.binary_search(name).is_err());
        let mut away: Vec<VolumeReport> = lost.map(lost_volume).collect();
        away.extend(self.core.engine.volumes(Order::HeldVolumes).await?);
        Ok(away)
    }

    /// One disk. *Errors*: there is none of this name.
    pub async fn disk_report(&self, name: &DiskName) -> Result<DiskReport, Refusal> {
        self.core.state().disk(name)?;
        let disks = self.disks().await?;
        disks.into_iter().find(|disk| disk.name.as_ref() == Some(name)).ok_or_else(|| missing(name))
    }

    /// One pool. *Errors*: there is none of this name.
    pub async fn pool_report(&self, name: &Name) -> Result<PoolReport, Refusal> {
        self.pools().await?.into_iter().find(|pool| pool.name == *name).ok_or_else(|| unknown_pool(name))
    }

    /// One volume. *Errors*: there is none of this name.
    pub async fn volume_report(&self, name: &VolumeName) -> Result<VolumeReport, Refusal> {
        let open = self.volume(name).await?;
        let lost = || self.core.state().volumes.get_key_value(name).map(lost_volume);
        open.or_else(lost).ok_or_else(|| unknown_volume(name))
    }

    /// All hosts.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostReport> {
        let state = self.core.state();
        let counts = state.seen_counts();
        let sees = |name: &Name| counts.get(name).copied().unwrap_or_default();
        state.hosts.iter().map(|(name, record)| HostReport::of(name, record, &state, sees(name))).collect()
    }

    /// All targets.
    #[must_use]
    pub fn targets(&self) -> Vec<TargetReport> {
        let state = self.core.state();
        let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
        state.presentations.iter().for_each(|record| *counts.entry(&record.target).or_default() += 1);
        let shows = |name: &Name| counts.get(name).copied().unwrap_or_default();
        let report = |(name, record): (&Name, &crate::state::TargetRecord)| TargetReport {
            name: name.clone(),
            iqn: record.iqn.clone(),
            presentations: count(shows(name)),
        };
        state.targets.iter().map(report).collect()
    }

    /// All presentations, by host and number.
    #[must_use]
    pub fn presentations(&self) -> Vec<PresentationReport> {
        let (state, portals) = (self.core.state(), self.access.portals());
        let report = |record| PresentationReport::of(record, &state, &portals);
        let mut all: Vec<_> = state.presentations.iter().map(report).collect();
        all.sort_by(|a, b| (&a.host, &a.target, a.lun).cmp(&(&b.host, &b.target, b.lun)));
        all
    }

    /// Who was not let in lately, and has not come in since.
    pub async fn refused_logins(&self) -> Result<Vec<RefusedLogin>, Refusal> {
        self.core.engine.refused(Order::RefusedLogins).await
    }

    /// Who is logged in.
    pub async fn sessions(&self) -> Result<Vec<SessionReport>, Refusal> {
        self.core.engine.sessions(Order::Sessions).await
    }

    /// One session in all detail.
    ///
    /// *Errors*: there is none of this number.
    pub async fn session(&self, id: u32) -> Result<SessionDetail, Refusal> {
        Ok(*self.core.engine.session(Order::Session { id }).await?)
    }

    /// The session is over: its initiator was asked to log out first, unless `now`.
    ///
    /// *Errors*: there is none of this number.
    pub async fn end_session(&self, id: u32, now: bool) -> Result<SessionEnd, Refusal> {
        self.core.engine.session_end(Order::EndSession { id, now }).await
    }

    /// One connection of a session is cut off.
    ///
    /// *Errors*: there is none of this number.
    pub async fn end_connection(&self, id: u32, cid: u16) -> Result<SessionEnd, Refusal> {
        self.core.engine.done(Order::EndConnection { id, cid }).await?;
        Ok(SessionEnd::CutOff)
    }

    /// Commands that have no answer yet.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn tasks(&self) -> Result<Vec<TaskReport>, Refusal> {
        self.core.engine.tasks(Order::Tasks).await
    }

    /// How long commands of the volume took since it was opened.
    ///
    /// *Errors*: there is none of this name, or it is not open.
    pub async fn latencies(&self, volume: &VolumeName) -> Result<Vec<LatencyReport>, Refusal> {
        self.core.engine.latencies(Order::Latencies { volume: volume.clone() }).await
    }

    /// Where we listen, and where we should but cannot.
    pub async fn portal_reports(&self) -> Result<Vec<PortalReport>, Refusal> {
        let mut portals = self.core.engine.portals(Order::Portals).await?;
        portals.extend(self.access.portals().into_iter().filter(|portal| portal.state != PortalState::Open));
        portals.sort_by_key(|portal| portal.address);
        Ok(portals)
    }

    pub(crate) fn presentation_report(&self, record: &PresentationRecord) -> PresentationReport {
        PresentationReport::of(record, &self.core.state(), &self.access.portals())
    }
}

/// A volume that the state knows, and whose file was not found.
fn lost_volume((name, record): (&VolumeName, &VolumeRecord)) -> VolumeReport {
    let VolumeRecord { id, size, block_bytes, backend } = record;
    let state = (VolumeState::Missing, None);
    VolumeReport::away(name.clone(), *id, *size, *block_bytes, backend.clone(), state)
}

impl PresentationReport {
    fn of(record: &PresentationRecord, state: &State, portals: &[PortalReport]) -> Self {
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

/// The enclosures without which some group of the pool would lose data.
fn weak_enclosures(pool: &PoolReport, placed: &BTreeMap<DiskName, String>) -> Vec<String> {
    let of_group = |group: &GroupReport| {
        let place = |member: &MemberReport| {
            let disk = member.disk.clone().unwrap_or_else(|| pool.name.clone());
            let enclosure = placed.get(&disk).cloned();
            (disk, enclosure)
        };
        spread::weak_enclosures(group.level, &group.members.iter().map(place).collect::<Vec<_>>())
    };
    let weak: BTreeSet<String> = pool.kept_groups().flat_map(of_group).collect();
    weak.into_iter().collect()
}

fn user(chap: &ChapRecord) -> String {
    chap.user.clone()
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
