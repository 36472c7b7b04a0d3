//! What would change, step by step, and what each does to those who are logged in.

use super::{Document, access};
use crate::Control;
use crate::state::{HostRecord, PresentationRecord, State, TargetRecord};
use model::{
    Iqn, Name, PoolReport, PortalAddress, Provision, Refusal, SessionReport, Size, VolumeId, VolumeName, VolumeReport,
    code,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// What a document would change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// What would be done, in order; empty when everything is so already.
    pub steps: Vec<Step>,
    /// What is there, is not in the document, and stays.
    pub kept: Vec<String>,
    /// What the array was like when this was said: `apply` is refused when it is another by then.
    pub fingerprint: String,
}

/// One thing that would be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Made, changed or removed.
    pub kind: StepKind,
    /// What it is about: `host web`.
    pub subject: String,
    /// What is different then; empty where the kind says it all.
    pub change: String,
    /// How many sessions end, or lose something that they see.
    pub sessions: u32,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// It is made.
    Make,
    /// It is changed.
    Change,
    /// It goes.
    Remove,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.kind {
            StepKind::Make => '+',
            StepKind::Change => '~',
            StepKind::Remove => '-',
        };
        write!(f, "{sign} {}", self.subject)?;
        if !self.change.is_empty() {
            write!(f, ": {}", self.change)?;
        }
        match self.sessions {
            0 => Ok(()),
            1 => write!(f, " (1 session)"),
            many => write!(f, " ({many} sessions)"),
        }
    }
}

/// What is made, set and grown apart from the state.
#[derive(Debug, Default)]
pub(super) struct Makes {
    pub disks: Vec<model::DiskName>,
    pub pools: Vec<Name>,
    pub volumes: Vec<VolumeName>,
    pub portals: Vec<PortalAddress>,
    pub grown: Vec<(VolumeName, Size)>,
    pub volume_settings: Vec<(VolumeName, BTreeMap<String, String>)>,
    pub pool_settings: Vec<(Name, BTreeMap<String, String>)>,
}

/// The volume of a document that is not made yet, in a plan.
const NOT_MADE: VolumeId = VolumeId::from_bytes([0; 16]);

impl Control {
    /// What the document would change.
    ///
    /// *Errors*: it could not be applied.
    pub async fn plan(&self, document: &Document, prune: bool) -> Result<Plan, Refusal> {
        self.plan_makes(document, prune).await.map(|(plan, _)| plan)
    }

    pub(super) async fn plan_makes(&self, document: &Document, prune: bool) -> Result<(Plan, Makes), Refusal> {
        if document.schema != super::document::FORM {
            let message =
                format!("the document has form {}, and this version reads {}", document.schema, super::document::FORM);
            return Err(Refusal::new(code::REQUEST_INVALID, message, "begin it with schema = 1"));
        }
        let state = self.state();
        let (pools, volumes, sessions) = (self.pools().await?, self.volumes().await?, self.sessions().await?);
        let mut steps = Vec::new();
        let makes = self.makes(document, &state, &pools, &volumes, &mut steps)?;
        let mut ids: BTreeMap<VolumeName, VolumeId> = volumes.iter().map(|v| (v.name.clone(), v.id)).collect();
        ids.extend(makes.volumes.iter().map(|name| (name.clone(), NOT_MADE)));
        let after = access::after(&state, document, &ids, &self.settings, prune)?;
        steps.extend(access_steps(&state, &after, &sessions));
        let kept = kept(document, &after, &pools, &volumes);
        let fingerprint = self.store.version().to_string();
        Ok((Plan { steps, kept, fingerprint }, makes))
    }

    fn makes(
        &self,
        document: &Document,
        state: &State,
        pools: &[PoolReport],
        volumes: &[VolumeReport],
        steps: &mut Vec<Step>,
    ) -> Result<Makes, Refusal> {
        let mut makes = Makes::default();
        for (name, disk) in document.disk.iter().filter(|(name, _)| !state.disks.contains_key(*name)) {
            steps.push(step(StepKind::Make, format!("disk {name}"), disk.path.clone()));
            makes.disks.push(name.clone());
        }
        for (name, entry) in &document.pool {
            let known = pools.iter().find(|pool| pool.name == *name);
            if known.is_none() {
                let of: Vec<String> =
                    entry.groups.iter().map(|g| format!("{} of {} disks", g.level, g.disks.len())).collect();
                steps.push(step(StepKind::Make, format!("pool {name}"), of.join(", ")));
                makes.pools.push(name.clone());
            }
            let policy = state.pools.get(name).map(|record| record.policy.clone()).unwrap_or_default();
            let mut wanted = policy.clone();
            entry.settings.iter().try_for_each(|(key, value)| wanted.set(key, value))?;
            if let Some(change) = changes(&policy.settings(), &wanted.settings()) {
                steps.push(step(StepKind::Change, format!("pool {name}"), change));
                makes.pool_settings.push((name.clone(), entry.settings.clone()));
            }
        }
        for (name, entry) in &document.volume {
            let known = volumes.iter().find(|volume| volume.name == *name);
            match known {
                None => {
                    let size = entry.size.map(|size| size.to_string()).unwrap_or_default();
                    steps.push(step(StepKind::Make, format!("volume {name}"), size));
                    makes.volumes.push(name.clone());
                }
                Some(volume) => {
                    admit_volume(volume, entry)?;
                    if let Some(size) = entry.size.filter(|&size| size > volume.size) {
                        steps.push(step(
                            StepKind::Change,
                            format!("volume {name}"),
                            format!("{} → {size}", volume.size),
                        ));
                        makes.grown.push((name.clone(), size));
                    }
                }
            }
            let policy = known.and_then(|volume| volume.policy).unwrap_or_default();
            let mut wanted = policy;
            entry.settings.iter().try_for_each(|(key, value)| wanted.set(key, value))?;
            if let Some(change) = changes(&policy.settings(), &wanted.settings()) {
                steps.push(step(StepKind::Change, format!("volume {name}"), change));
                makes.volume_settings.push((name.clone(), entry.settings.clone()));
            }
        }
        for &PortalAddress(address) in document.portal.keys() {
            if self.portals().iter().all(|portal| portal.address != address) {
                steps.push(step(StepKind::Make, format!("portal {address}"), String::new()));
                makes.portals.push(PortalAddress(address));
            }
        }
        Ok(makes)
    }
}

fn step(kind: StepKind, subject: String, change: String) -> Step {
    Step { kind, subject, change, sessions: 0 }
}

/// Admits an entry of a volume that is there.
fn admit_volume(volume: &VolumeReport, entry: &super::VolumeEntry) -> Result<(), Refusal> {
    let name = &volume.name;
    if entry.size.is_some_and(|size| size < volume.size) {
        let message =
            format!("volume {name} is {} and the document says {}", volume.size, entry.size.unwrap_or_default());
        return Err(Refusal::new(
            code::REQUEST_INVALID,
            message,
            "volumes do not become smaller: write its size, or more",
        ));
    }
    let is = match volume.backend {
        model::Backend::Pool { provision, .. } => Some(provision),
        _ => None,
    };
    let wanted =
        entry.provision.unwrap_or(if entry.stripe_unit.is_some() { Provision::Segments } else { Provision::Thick });
    let block_bytes = entry.block_bytes.unwrap_or(512);
    let fixed = is.is_none_or(|is| is == wanted) && block_bytes == volume.block_bytes;
    if fixed {
        return Ok(());
    }
    let message = format!(
        "volume {name} was made otherwise: {}, blocks of {} bytes",
        volume.backend.as_str(),
        volume.block_bytes
    );
    Err(Refusal::new(code::REQUEST_INVALID, message, "write what it is, or call the new one otherwise and copy"))
}

/// What is set otherwise, in words.
fn changes<const N: usize>(is: &[(&str, String); N], wanted: &[(&str, String); N]) -> Option<String> {
    let different = is.iter().zip(wanted).filter(|(is, wanted)| is != wanted);
    let each: Vec<String> = different.map(|((key, is), (_, wanted))| format!("{key} {is} → {wanted}")).collect();
    (!each.is_empty()).then(|| each.join(", "))
}

/// The difference of two states in who sees what.
pub(super) fn access_steps(before: &State, after: &State, sessions: &[SessionReport]) -> Vec<Step> {
    let told = |was: Option<String>, is: Option<String>| was.into_iter().chain(is).collect::<Vec<_>>().join(" → ");
    let targets = compared(&before.targets, &after.targets, |name, was, is| {
        let through = |iqn: &Iqn| count(sessions, |session| session.target.as_deref() == Some(iqn.as_str()));
        let iqn = |record: &TargetRecord| record.iqn.to_string();
        (format!("target {name}"), told(was.map(iqn), is.map(iqn)), was.map_or(0, |was| through(&was.iqn)))
    });
    let hosts = compared(&before.hosts, &after.hosts, |name, was, is| {
        let change = match (was, is) {
            (Some(was), Some(is)) => host_change(was, is),
            (None, Some(is)) => initiators(is),
            _ => String::new(),
        };
        let ends = |session: &SessionReport| {
            let stays = |is: &HostRecord| is.any || is.initiators.iter().any(|iqn| iqn.as_str() == session.initiator);
            session.host.as_ref() == Some(name) && !is.is_some_and(stays)
        };
        (format!("host {name}"), change, count(sessions, ends))
    });
    let groups = compared(&before.groups, &after.groups, |name, was, is| {
        (format!("group {name}"), if is.is_some() { told(was.map(names), is.map(names)) } else { String::new() }, 0)
    });
    let (was, is) = (by_place(before), by_place(after));
    let presentations = compared(&was, &is, |&(volume, host, target), was, is| {
        let iqn = before.targets.get(target).map(|record| record.iqn.as_str());
        let sees = |session: &SessionReport| {
            let is_host = session.host.as_ref().is_some_and(|own| before.hosts_of(host).any(|one| one == own));
            is_host && session.target.as_deref() == iqn
        };
        let sessions = if was.is_some() { count(sessions, sees) } else { 0 };
        let seen_as = |record: &&PresentationRecord| seen_as(record);
        (format!("presentation of volume {volume} to {host}"), told(was.map(seen_as), is.map(seen_as)), sessions)
    });
    [targets, hosts, groups, presentations, portal_steps(before, after, sessions)].into_iter().flatten().collect()
}

/// What is made, changed and removed from one map to the other; `say` gives subject, change and sessions.
fn compared<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    say: impl Fn(&K, Option<&V>, Option<&V>) -> (String, String, u32),
) -> Vec<Step> {
    let keys: BTreeSet<&K> = before.keys().chain(after.keys()).collect();
    let step = |key: &K| {
        let (was, is) = (before.get(key), after.get(key));
        let kind = match (was, is) {
            (None, _) => StepKind::Make,
            (_, None) => StepKind::Remove,
            _ if was == is => return None,
            _ => StepKind::Change,
        };
        let (subject, change, sessions) = say(key, was, is);
        Some(Step { kind, subject, change, sessions })
    };
    keys.into_iter().filter_map(step).collect()
}

fn portal_steps(before: &State, after: &State, sessions: &[SessionReport]) -> Vec<Step> {
    let addresses: BTreeSet<_> = before.portals.keys().chain(after.portals.keys()).copied().collect();
    let step = |address| {
        let (was, is) = (before.portal_policy(address), after.portal_policy(address));
        let change = changes(&was.settings(), &is.settings())?;
        let sessions = count(sessions, |session| session.portal == address);
        Some(Step { kind: StepKind::Change, subject: format!("portal {address}"), change, sessions })
    };
    let mut steps: Vec<Step> = addresses.into_iter().filter_map(step).collect();
    if before.balance != after.balance {
        let change = format!("{} → {}", before.balance.as_str(), after.balance.as_str());
        let subject = "balance of sessions".to_owned();
        steps.push(Step { kind: StepKind::Change, subject, change, sessions: 0 });
    }
    steps
}

fn names(hosts: &BTreeSet<Name>) -> String {
    hosts.iter().map(|host| host.as_str()).collect::<Vec<_>>().join(", ")
}

fn count(sessions: &[SessionReport], is_meant: impl Fn(&SessionReport) -> bool) -> u32 {
    u32::try_from(sessions.iter().filter(|session| is_meant(session)).count()).unwrap_or(u32::MAX)
}

fn by_place(state: &State) -> BTreeMap<(&VolumeName, &Name, &Name), &PresentationRecord> {
    state.presentations.iter().map(|record| ((&record.volume, &record.host, &record.target), record)).collect()
}

fn seen_as(record: &PresentationRecord) -> String {
    let mode = if record.read_only { ", read-only" } else { "" };
    format!("LUN {} of target {}{mode}", record.lun, record.target)
}

fn initiators(host: &HostRecord) -> String {
    if host.any {
        return "any initiator".to_owned();
    }
    host.initiators.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn host_change(was: &HostRecord, is: &HostRecord) -> String {
    let mut changes = Vec::new();
    if (was.any, &was.initiators) != (is.any, &is.initiators) {
        changes.push(format!("{} → {}", initiators(was), initiators(is)));
    }
    if was.networks != is.networks {
        changes.push("where it may come from".to_owned());
    }
    if was.proof != is.proof {
        changes.push("what is proven at its logins".to_owned());
    }
    changes.join(", ")
}

/// What is there and not in the document.
fn kept(document: &Document, after: &State, pools: &[PoolReport], volumes: &[VolumeReport]) -> Vec<String> {
    let disks = after.disks.keys().filter(|name| !document.disk.contains_key(*name)).map(|name| format!("disk {name}"));
    let pools =
        pools.iter().filter(|pool| !document.pool.contains_key(&pool.name)).map(|pool| format!("pool {}", pool.name));
    let volumes = volumes.iter().filter(|volume| !document.volume.contains_key(&volume.name));
    let hosts = after.hosts.keys().filter(|name| !document.host.contains_key(*name)).map(|name| format!("host {name}"));
    let groups =
        after.groups.keys().filter(|name| !document.group.contains_key(*name)).map(|name| format!("group {name}"));
    let named = |record: &&PresentationRecord| {
        document.present.iter().any(|entry| entry.volume == record.volume && entry.host == record.host)
    };
    let seen = after.presentations.iter().filter(|record| !named(record));
    let seen = seen.map(|record| format!("presentation of volume {} to {}", record.volume, record.host));
    disks
        .chain(pools)
        .chain(volumes.map(|volume| format!("volume {}", volume.name)))
        .chain(hosts)
        .chain(groups)
        .chain(seen)
        .collect()
}
