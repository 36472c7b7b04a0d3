//! Hosts: add, change, remove.

use crate::access::{Access, Confirmation};
use crate::change::auth::{CredentialsChange, admit_credentials};
use crate::core::Core;
use crate::request::{HostChange, NewHost, Removal};
use crate::state::{CredentialsRecord, HostRecord, State};
pub(crate) use crate::unknown::{unknown_host, unknown_target};
use crate::view::HostReport;
use model::{Iqn, Name, Network, Refusal, code};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Hosts.
pub struct Hosts {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
}

impl Hosts {
    /// Adds a host, which may log in; nothing is presented to it yet.
    ///
    /// *Errors*: its name or one of its initiators is taken, it has no initiator, its CHAP settings are
    /// inconsistent; or sessions of its initiators, which a host for any initiator has admitted, would lose
    /// access, and `force` is not set.
    pub async fn add(&self, request: NewHost) -> Result<HostReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let name = request.name.clone();
        let state = self.core.state();
        if state.is_taken(&name) {
            return Err(Refusal::new(
                code::NAME_TAKEN,
                format!("a host or group {name} already exists"),
                "choose another name, or remove it first with blockyard host remove",
            ));
        }
        let NewHost { chap, mutual_chap, .. } = request;
        let change = CredentialsChange { chap, mutual_chap, ..CredentialsChange::default() };
        let record = HostRecord {
            any: request.any,
            initiators: request.initiators,
            networks: request.networks,
            proof: CredentialsRecord::default().changed(change, name.as_str(), self.core.settings.node.as_str())?,
        };
        admit_host(&state, &name, &record)?;
        let (given, force) = (name.clone(), request.force);
        self.access
            .commit(&turn, Confirmation::forced(force), |state| {
                state.hosts.insert(name, record);
            })
            .await?;
        self.report(&given)
    }

    /// Changes the host. Sessions of initiators that it no longer has end; others stay, whatever credentials
    /// they will need at their next login.
    ///
    /// *Errors*: there is none of this name, or the result could not be added as a host; or sessions with
    /// mappings would end, and `force` is not set.
    pub async fn change(&self, name: &Name, change: HostChange) -> Result<HostReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let state = self.core.state();
        // A copy, which replaces the record only if the result is admitted as a whole.
        let mut record = state.hosts.get(name).cloned().ok_or_else(|| unknown_host(name))?;
        // An initiator that the host does not have is most likely a typing error, so nothing is changed.
        if let Some(gone) = change.remove_initiators.iter().find(|gone| !record.initiators.contains(gone)) {
            let message = format!("host {name} has no initiator {gone}");
            return Err(Refusal::new(code::HOST_UNKNOWN, message, "see blockyard host list"));
        }
        // Removed before added, so that an initiator in both lists stays.
        record.initiators.retain(|initiator| !change.remove_initiators.contains(initiator));
        record.networks = networks_after(name, record.networks, &change)?;
        record.initiators.extend(change.add_initiators);
        let consent = Confirmation::forced(change.force);
        let HostChange { chap, mutual_chap, no_chap, no_mutual_chap, .. } = change;
        let change = CredentialsChange { chap, mutual_chap, no_chap, no_mutual_chap };
        record.proof = record.proof.changed(change, name.as_str(), self.core.settings.node.as_str())?;
        admit_host(&state, name, &record)?;
        self.access
            .commit(&turn, consent, |state| {
                state.hosts.insert(name.clone(), record);
            })
            .await?;
        self.report(name)
    }

    /// Removes the host: its sessions end, and its former LUNs are forgotten.
    ///
    /// *Errors*: there is none of this name; or volumes are presented to it or it is in a group, and `force` is
    /// not set.
    pub async fn remove(&self, name: &Name, request: Removal) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        let state = self.core.state();
        if !state.hosts.contains_key(name) {
            return Err(unknown_host(name));
        }
        let removal = |state: &mut State| {
            // A later host of this name must not be in the groups of this one.
            state.groups.values_mut().for_each(|hosts| _ = hosts.remove(name));
            state.presentations.retain(|record| record.host != *name);
            state.hosts.remove(name);
        };
        if let Some(refusal) = host_in_use(&state, name).filter(|_| !request.force) {
            return Err(self.access.in_use(refusal, removal).await);
        }
        self.access.commit(&turn, Confirmation::forced(request.force), removal).await
    }

    /// Lists all hosts.
    #[must_use]
    pub fn list(&self) -> Vec<HostReport> {
        let state = self.core.state();
        // Counted once for all hosts.
        let counts = state.mapping_counts();
        let sees = |name: &Name| counts.get(name).copied().unwrap_or_default();
        state.hosts.iter().map(|(name, record)| HostReport::of(name, record, &state, sees(name))).collect()
    }

    /// Returns one host. *Errors*: there is none of this name.
    pub fn report(&self, name: &Name) -> Result<HostReport, Refusal> {
        let state = self.core.state();
        let record = state.hosts.get(name).ok_or_else(|| unknown_host(name))?;
        Ok(HostReport::of(name, record, &state, state.mappings_of(name).count()))
    }
}

/// Returns the reason why removing the host would take something away.
fn host_in_use(state: &State, name: &Name) -> Option<Refusal> {
    if let Some((group, _)) = state.groups.iter().find(|(_, hosts)| hosts.contains(name)) {
        let (message, hint) =
            (format!("host {name} is in group {group}"), format!("run blockyard group leave {group} {name} first"));
        return Some(Refusal::new(code::HOST_IN_USE, message, hint));
    }
    let seen = state.presentations.iter().find(|presentation| presentation.host == *name)?;
    let message = format!("volume {} is presented to host {name}", seen.volume);
    let hint = format!("unpresent it first with blockyard unpresent {} {name}", seen.volume);
    Some(Refusal::new(code::HOST_IN_USE, message, hint))
}

/// Computes the allowed networks of host `name` after the change. Adding a network to a host without
/// restrictions must not restrict it, and removing the last network must not lift the restriction.
fn networks_after(name: &Name, before: Vec<Network>, change: &HostChange) -> Result<Vec<Network>, Refusal> {
    let HostChange { networks, add_networks, remove_networks, .. } = change;
    let refused = |message: String, hint: &str| Err(Refusal::new(code::NETWORKS_INVALID, message, hint));
    let mut after = networks.clone().unwrap_or(before);
    if let Some(gone) = remove_networks.iter().find(|gone| !after.contains(gone)) {
        return refused(format!("{gone} is not an allowed address of host {name}"), "see blockyard host list");
    }
    if !add_networks.is_empty() && after.is_empty() {
        let hint = "no change needed; --address limits it to given addresses";
        return refused(format!("host {name} already has no address limit"), hint);
    }
    after.extend(add_networks);
    after.retain(|network| !remove_networks.contains(network));
    let mut seen = BTreeSet::new();
    after.retain(|network| seen.insert(*network));
    if after.is_empty() && !remove_networks.is_empty() {
        let hint = "confirm with --anywhere, or give the allowed addresses with --address";
        return refused(format!("host {name} would have no address limit"), hint);
    }
    Ok(after)
}

/// Admits the host as recorded, beside the other hosts.
pub(crate) fn admit_host(state: &State, name: &Name, record: &HostRecord) -> Result<(), Refusal> {
    admit_shape(name, record)?;
    let mut others = state.hosts.iter().filter(|(other, _)| *other != name);
    // An initiator belongs to one host at most, and at most one host stands for any other initiator.
    let clashes = |other: &HostRecord| {
        record.any && other.any || record.initiators.iter().any(|iqn| other.initiators.contains(iqn))
    };
    if let Some((other, clashing)) = others.find(|(_, other)| clashes(other)) {
        return Err(match record.initiators.iter().find(|iqn| clashing.initiators.contains(iqn)) {
            None => any_taken(other),
            Some(iqn) => initiator_taken(iqn, other),
        });
    }
    // CHAP secrets are compared across all hosts, so the check needs the complete state.
    let mut next = State::clone(state);
    next.hosts.insert(name.clone(), record.clone());
    admit_credentials(&next)
}

fn any_taken(owner: &Name) -> Refusal {
    let message = format!("host {owner} already stands for any initiator");
    Refusal::new(code::IQN_TAKEN, message, "give the initiators of this host")
}

fn initiator_taken(iqn: &Iqn, owner: &Name) -> Refusal {
    let message = format!("initiator {iqn} belongs to host {owner}");
    let hint = format!(
        "present to host {owner}, or remove the initiator first with blockyard host change {owner} \
         --remove-initiator {iqn}"
    );
    Refusal::new(code::IQN_TAKEN, message, hint)
}

/// Admits all hosts of the state: each has initiators, and no initiator belongs to two.
pub(crate) fn admit_hosts(state: &State) -> Result<(), Refusal> {
    // One pass over all hosts; comparing each with each would be quadratic.
    let (mut owners, mut any): (BTreeMap<&Iqn, &Name>, Option<&Name>) = Default::default();
    for (name, record) in &state.hosts {
        admit_shape(name, record)?;
        if record.any
            && let Some(other) = any.replace(name)
        {
            return Err(any_taken(other));
        }
        for iqn in &record.initiators {
            if let Some(owner) = owners.insert(iqn, name) {
                return Err(initiator_taken(iqn, owner));
            }
        }
    }
    admit_credentials(state)
}

fn admit_shape(name: &Name, record: &HostRecord) -> Result<(), Refusal> {
    // Either named initiators or any: one host cannot be both.
    if record.any != record.initiators.is_empty() {
        return Err(Refusal::new(
            code::HOST_EMPTY,
            format!("host {name} needs either initiator names or --any"),
            "give at least one --initiator IQN, or --any",
        ));
    }
    let mut seen = BTreeSet::new();
    match record.initiators.iter().find(|iqn| !seen.insert(*iqn)) {
        Some(iqn) => {
            let message = format!("initiator {iqn} is listed twice");
            Err(Refusal::new(code::IQN_TAKEN, message, "list each initiator once"))
        }
        None => Ok(()),
    }
}
