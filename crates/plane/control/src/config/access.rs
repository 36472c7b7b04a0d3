//! Access rules as a document defines them. Pure: it computes the next state and commits nothing.

use super::{AuthEntry, ChapEntry, Document, FormerLunEntry, HostEntry, PresentEntry};
use crate::Settings;
use crate::change::auth::{CredentialsChange, admit_credentials};
use crate::change::hosts::{admit_hosts, unknown_host};
use crate::change::portals;
use crate::change::presentations::Numbers;
use crate::change::volumes;
use crate::request::{NewChap, NewPresentation};
use crate::state::lun_history::FormerMapping;
use crate::state::{
    AuthRecord, ChapRecord, DEFAULT_TARGET, HostRecord, PortalRecord, PresentationRecord, State, TargetRecord,
};
use model::{Name, PortalAddress, PortalGroupPolicy, Refusal, VolumeId, VolumeName, code};
use std::collections::{BTreeMap, BTreeSet};

/// Computes the next state: `before`, with the hosts, groups, targets, presentations and portals of the
/// document; when pruning, without those that it does not name.
///
/// *Errors*: the document contradicts itself, names missing objects, or contains settings that would be refused
/// one by one.
pub(crate) fn after(
    before: &State,
    document: &Document,
    volumes: &BTreeMap<VolumeName, VolumeId>,
    settings: &Settings,
    prune: bool,
) -> Result<State, Refusal> {
    let mut next = before.clone();
    // Pruned first, so that the names of removed objects are free for new ones.
    if prune {
        prune_to(&mut next, document);
    }
    targets(&mut next, document, settings)?;
    hosts(&mut next, document, settings)?;
    // After the hosts, because a group may contain hosts that the same document adds.
    for (name, group) in &document.group {
        if next.hosts.contains_key(name) {
            let message = format!("{name} is the name of a host and of a group");
            return Err(Refusal::new(code::NAME_TAKEN, message, "rename one of them"));
        }
        if let Some(unknown) = group.hosts.iter().find(|host| !next.hosts.contains_key(host)) {
            return Err(unknown_host(unknown));
        }
        // Replaced as a whole, because the document lists all hosts of a group.
        next.groups.insert(name.clone(), group.hosts.iter().cloned().collect());
    }
    let mut known = before.clone();
    former_luns(&mut known, &next, document)?;
    // An initiator that changes hosts brings its known LUNs along, and none of them may be chosen for another
    // volume.
    let mut brought = known.clone();
    next.remember_initiators(before, &mut brought.luns);
    presentations(&mut next, &brought, document, volumes)?;
    // Only what the document adds: LUNs that this change removes are remembered by the commit.
    next.luns = known.luns;
    for (&PortalAddress(address), entry) in &document.portal {
        let policy = portals::changed(address, next.portal_policy(address), &entry.settings)?;
        next.portals.entry(address).or_default().policy = policy;
    }
    // Portals with default settings need no record.
    next.portals.retain(|_, record| *record != PortalRecord::default());
    next.balance = document.balance.unwrap_or(next.balance);
    next.isns = document.isns.or(next.isns);
    for entry in &document.portal_group {
        let policy = PortalGroupPolicy { access: entry.access, preferred: entry.preferred };
        next.portal_groups.insert(entry.tag, policy);
    }
    if let Some(entry) = &document.auth {
        next.auth = auth(before, entry, settings)?;
        // Secrets are compared across hosts and discovery, so only after both are set.
        admit_credentials(&next)?;
    }
    Ok(next)
}

/// Removes hosts, groups, targets and presentations that the document does not name. No data is lost by it.
fn prune_to(next: &mut State, document: &Document) {
    let named: BTreeSet<(&VolumeName, &Name, Name)> =
        document.present.iter().map(|entry| (&entry.volume, &entry.host, target_of(entry.target.as_ref()))).collect();
    next.presentations.retain(|record| named.contains(&(&record.volume, &record.host, record.target.clone())));
    next.groups.retain(|name, _| document.group.contains_key(name));
    next.hosts.retain(|name, _| document.host.contains_key(name));
    // Removed hosts leave the groups that stay.
    next.groups.values_mut().for_each(|hosts| hosts.retain(|host| document.host.contains_key(host)));
    // The default target stays: it is the one that presentations without a target use.
    let default = target_of(None);
    next.targets.retain(|name, _| *name == default || document.target.contains_key(name));
}

fn target_of(target: Option<&Name>) -> Name {
    target.cloned().unwrap_or_else(|| DEFAULT_TARGET.parse().expect("the default target's name is a name"))
}

fn targets(next: &mut State, document: &Document, settings: &Settings) -> Result<(), Refusal> {
    for (name, entry) in &document.target {
        // A known target keeps its iSCSI name, because hosts are configured with it.
        let known = next.targets.get(name).map(|record| record.iqn.clone());
        let iqn = match entry.iqn.clone().or(known) {
            Some(iqn) => iqn,
            None => next.target_iqn(settings, Some(name))?,
        };
        next.targets.insert(name.clone(), TargetRecord { iqn });
    }
    // Two targets with one iSCSI name are one target to a host.
    let mut seen = BTreeMap::new();
    for (name, record) in &next.targets {
        if let Some(other) = seen.insert(&record.iqn, name) {
            let message = format!("targets {other} and {name} have the same iSCSI name {}", record.iqn);
            return Err(Refusal::new(code::NAME_TAKEN, message, "change one of them"));
        }
    }
    Ok(())
}

fn hosts(next: &mut State, document: &Document, settings: &Settings) -> Result<(), Refusal> {
    for (name, entry) in &document.host {
        if next.groups.contains_key(name) && !document.group.contains_key(name) {
            let message = format!("group {name} already exists");
            return Err(Refusal::new(code::NAME_TAKEN, message, "choose another name for the host"));
        }
        let record = host(next.hosts.get(name), name, entry, settings)?;
        next.hosts.insert(name.clone(), record);
    }
    // Once at the end, so that an initiator can move from one host to another.
    admit_hosts(next)
}

fn auth(before: &State, entry: &AuthEntry, settings: &Settings) -> Result<AuthRecord, Refusal> {
    let known = before.auth.discovery.clone().unwrap_or_default();
    let discovery = entry.discovery.as_ref().map(|wanted| {
        admit_secret("auth.discovery.chap", wanted.chap.as_ref(), known.chap.as_ref())?;
        admit_secret("auth.discovery.mutual_chap", wanted.mutual_chap.as_ref(), known.mutual_chap.as_ref())?;
        let change = CredentialsChange {
            chap: wanted.chap.as_ref().map(new_chap),
            mutual_chap: wanted.mutual_chap.as_ref().map(new_chap),
            // The document lists all credentials, so a direction that it omits is removed.
            no_chap: wanted.chap.is_none(),
            no_mutual_chap: wanted.mutual_chap.is_none(),
        };
        let changed = known.changed(change, "discovery", settings.node.as_str());
        changed.map_err(|refusal| Refusal::new(refusal.code, format!("discovery: {}", refusal.message), refusal.hint))
    });
    Ok(AuthRecord { weakest: entry.min_algorithm, discovery: discovery.transpose()? })
}

/// Admits a CHAP entry whose secret comes with the document or is known here; `table` is its place in the
/// document.
///
/// The hint refers to the document, because command-line options that set a secret are no help there.
pub(super) fn admit_secret(table: &str, entry: Option<&ChapEntry>, known: Option<&ChapRecord>) -> Result<(), Refusal> {
    if known.is_some() || entry.is_none_or(|entry| entry.secret.is_some()) {
        return Ok(());
    }
    let message = format!("[{table}] has no secret, and the array has none");
    let hint = "write secret_file = \"FILE\" there; the file lies beside the document and contains only the secret";
    Err(Refusal::new(code::CHAP_INVALID, message, hint))
}

fn new_chap(entry: &ChapEntry) -> NewChap {
    NewChap { user: entry.user.clone(), secret: entry.secret.clone(), demand: entry.demand }
}

fn host(
    known: Option<&HostRecord>,
    name: &Name,
    entry: &HostEntry,
    settings: &Settings,
) -> Result<HostRecord, Refusal> {
    let proof = known.map(|known| known.proof.clone()).unwrap_or_default();
    admit_secret(&format!("host.{name}.chap"), entry.chap.as_ref(), proof.chap.as_ref())?;
    admit_secret(&format!("host.{name}.mutual_chap"), entry.mutual_chap.as_ref(), proof.mutual_chap.as_ref())?;
    let change = CredentialsChange {
        chap: entry.chap.as_ref().map(new_chap),
        mutual_chap: entry.mutual_chap.as_ref().map(new_chap),
        no_chap: entry.chap.is_none(),
        no_mutual_chap: entry.mutual_chap.is_none(),
    };
    let proof = proof.changed(change, name.as_str(), settings.node.as_str());
    let proof = proof
        .map_err(|refusal| Refusal::new(refusal.code, format!("host {name}: {}", refusal.message), refusal.hint))?;
    let HostEntry { any, initiators, networks, .. } = entry.clone();
    Ok(HostRecord { any, initiators, networks, proof })
}

fn presentations(
    next: &mut State,
    known: &State,
    document: &Document,
    volumes: &BTreeMap<VolumeName, VolumeId>,
) -> Result<(), Refusal> {
    let before = std::mem::take(&mut next.presentations);
    let places: BTreeMap<_, usize> = (0..).zip(&before).map(|(at, record)| (key(record), at)).collect();
    let named: Vec<(&PresentEntry, Name)> =
        document.present.iter().map(|entry| (entry, target_of(entry.target.as_ref()))).collect();
    // All named presentations are removed first, so that two can swap their LUNs.
    let those: BTreeSet<_> = named.iter().map(|(entry, target)| (&entry.volume, &entry.host, target)).collect();
    next.presentations = before.iter().filter(|record| !those.contains(&key(record))).cloned().collect();
    let mut numbers = Numbers::of(next, known);
    // Explicit LUNs are assigned before free ones are chosen.
    let (given, free): (Vec<_>, Vec<_>) = named.iter().partition(|(entry, _)| entry.lun.is_some());
    for (entry, target) in given.into_iter().chain(free) {
        let volume_id = *volumes.get(&entry.volume).ok_or_else(|| volumes::unknown(&entry.volume))?;
        // The present LUN is kept if it is still the same volume.
        let was = places.get(&(&entry.volume, &entry.host, target)).map(|&at| &before[at]);
        let request = NewPresentation {
            volume: entry.volume.clone(),
            host: entry.host.clone(),
            target: Some(target.clone()),
            lun: entry.lun.or(was.filter(|record| record.volume_id == volume_id).map(|record| record.lun)),
            read_only: entry.read_only,
            groups: entry.groups.clone(),
            force: false,
        };
        next.presentations.push(numbers.admit(next, request, volume_id, target.clone())?);
    }
    // Existing presentations keep their position, so that an unchanged state compares as equal.
    next.presentations.sort_by_key(|record| places.get(&key(record)).copied().unwrap_or(usize::MAX));
    Ok(())
}

/// Adds the former LUNs of the document, except LUNs that are presented to the same hosts now.
fn former_luns(known: &mut State, next: &State, document: &Document) -> Result<(), Refusal> {
    for FormerLunEntry { host, target, lun, volume, volume_id } in &document.former_lun {
        if !next.is_taken(host) {
            return Err(unknown_host(host));
        }
        let is_at = |record: &PresentationRecord| {
            record.host == *host
                && record.lun == *lun
                && known.targets.get(&record.target).is_some_and(|known| known.iqn == *target)
        };
        if !known.presentations.iter().any(is_at) {
            let former = FormerMapping { lun: *lun, volume: volume.clone(), volume_id: *volume_id };
            known.luns.insert(host, target, former);
        }
    }
    Ok(())
}

fn key(record: &PresentationRecord) -> (&VolumeName, &Name, &Name) {
    (&record.volume, &record.host, &record.target)
}
