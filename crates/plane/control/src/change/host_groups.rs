//! Host groups: create, change, remove.

use crate::access::{Access, Confirmation};
use crate::change::hosts::unknown_host;
use crate::core::Core;
use crate::request::{GroupChange, NewHostGroup, Removal};
use crate::state::State;
pub(crate) use crate::unknown::unknown_group;
use crate::view::{FormerLun, HostGroupReport};
use model::{Name, Refusal, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Host groups: hosts with the same mappings.
pub struct HostGroups {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
}

impl HostGroups {
    /// Creates a group of these hosts; nothing is presented to it yet.
    ///
    /// *Errors*: its name is taken, or a host is unknown.
    pub async fn add(&self, request: NewHostGroup) -> Result<HostGroupReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let (name, state) = (request.name, self.core.state());
        // Hosts and groups share one name space, because a presentation names either.
        if state.is_taken(&name) {
            let message = format!("a host or group {name} already exists");
            return Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"));
        }
        if let Some(unknown) = request.hosts.iter().find(|host| !state.hosts.contains_key(host)) {
            return Err(unknown_host(unknown));
        }
        let hosts: BTreeSet<Name> = request.hosts.into_iter().collect();
        let report = HostGroupReport {
            name: name.clone(),
            hosts: hosts.iter().cloned().collect(),
            presentations: 0,
            former_luns: Vec::new(),
        };
        self.access
            .commit(&turn, Confirmation::forced(false), |state| {
                state.groups.insert(name, hosts);
            })
            .await?;
        Ok(report)
    }

    /// Adds hosts to the group, which get its mappings, and removes others.
    ///
    /// *Errors*: the group or a host is unknown; a joining host has or had another volume under a LUN of the
    /// group; or sessions of a leaving host would lose access, and `force` is not set.
    pub async fn change(&self, name: &Name, change: GroupChange) -> Result<HostGroupReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let state = self.core.state();
        let mut hosts = state.groups.get(name).cloned().ok_or_else(|| unknown_group(name))?;
        // Removed before added, so that a host in both lists is in the group.
        for host in &change.leave {
            if !hosts.remove(host) {
                let message = format!("host {host} is not in group {name}");
                return Err(Refusal::new(code::HOST_UNKNOWN, message, "see blockyard group list"));
            }
        }
        for host in &change.join {
            if !state.hosts.contains_key(host) {
                return Err(unknown_host(host));
            }
            // Members have the mappings of the group already.
            if !hosts.contains(host) {
                admit_into(&state, name, host)?;
            }
        }
        hosts.extend(change.join);
        self.access
            .commit(&turn, Confirmation::forced(change.force), |state| {
                state.groups.insert(name.clone(), hosts);
            })
            .await?;
        self.report(name)
    }

    /// Removes the group; its hosts stay.
    ///
    /// *Errors*: there is none of this name; or volumes are presented to it, and `force` is not set.
    pub async fn remove(&self, name: &Name, request: Removal) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        let state = self.core.state();
        if !state.groups.contains_key(name) {
            return Err(unknown_group(name));
        }
        let removal = |state: &mut State| {
            // A later group of this name must not inherit the mappings.
            state.presentations.retain(|record| record.host != *name);
            state.groups.remove(name);
        };
        // Presentations of single members stay, so only those of the group count.
        let seen = state.presentations.iter().find(|record| record.host == *name);
        if let Some(seen) = seen.filter(|_| !request.force) {
            let message = format!("volume {} is presented to group {name}", seen.volume);
            let hint = format!("unpresent it first with blockyard unpresent {} {name}", seen.volume);
            return Err(self.access.in_use(Refusal::new(code::HOST_IN_USE, message, hint), removal).await);
        }
        self.access.commit(&turn, Confirmation::forced(request.force), removal).await
    }

    /// Lists all host groups.
    #[must_use]
    pub fn list(&self) -> Vec<HostGroupReport> {
        let state = self.core.state();
        let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
        state.presentations.iter().for_each(|record| *counts.entry(&record.host).or_default() += 1);
        let shown = |name| counts.get(name).copied().unwrap_or_default();
        state.groups.keys().map(|name| HostGroupReport::of(name, &state, shown(name))).collect()
    }

    /// Returns one host group. *Errors*: there is none of this name.
    pub fn report(&self, name: &Name) -> Result<HostGroupReport, Refusal> {
        let state = self.core.state();
        if !state.groups.contains_key(name) {
            return Err(unknown_group(name));
        }
        let presentations = state.presentations.iter().filter(|record| record.host == *name).count();
        Ok(HostGroupReport::of(name, &state, presentations))
    }
}

/// Admits a host whose own mappings do not collide with those of the group.
fn admit_into(state: &State, group: &Name, host: &Name) -> Result<(), Refusal> {
    for shown in state.presentations.iter().filter(|record| record.host == *group) {
        // Within a target, a host has each LUN and each volume once.
        let mut seen = state.mappings_of(host).filter(|record| record.target == shown.target);
        let Some(other) = seen.find(|record| record.lun == shown.lun || record.volume == shown.volume) else {
            continue;
        };
        let (code, message) = if other.volume == shown.volume {
            (
                code::PRESENTED_ALREADY,
                format!("volume {} is already presented to host {host}, as LUN {}", other.volume, other.lun),
            )
        } else {
            let (own, groups) = (&other.volume, &shown.volume);
            (
                code::LUN_TAKEN,
                format!(
                    "volume {own} is LUN {} of host {host}, but group {group} uses that LUN for {groups}",
                    other.lun
                ),
            )
        };
        let hint = format!("unpresent it first with blockyard unpresent {} {}", other.volume, other.host);
        return Err(Refusal::new(code, message, hint));
    }
    Ok(())
}

impl HostGroupReport {
    pub(crate) fn of(name: &Name, state: &State, presentations: usize) -> Self {
        Self {
            name: name.clone(),
            hosts: state.groups.get(name).into_iter().flatten().cloned().collect(),
            presentations: u32::try_from(presentations).unwrap_or(u32::MAX),
            former_luns: state.luns.of(name).map(FormerLun::of).collect(),
        }
    }
}
