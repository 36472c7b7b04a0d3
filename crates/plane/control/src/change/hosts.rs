//! Hosts: added, changed, removed.

use crate::access::{Access, Consent};
use crate::change::auth::{ProofChange, admit_proofs};
use crate::core::Core;
use crate::request::{HostChange, NewHost, Removal};
use crate::state::{HostRecord, ProofRecord, State};
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
    /// The host is known and may log in; it sees nothing yet.
    ///
    /// *Errors*: its name or one of its initiators is taken, it has no initiator, its CHAP settings do not fit together; or sessions of
    /// its initiators, which a host that takes any has let in, would lose something, and it was not forced.
    pub async fn add(&self, request: NewHost) -> Result<HostReport, Refusal> {
        let turn = self.core.turn().await;
        let name = request.name.clone();
        let state = self.core.state();
        if state.is_taken(&name) {
            return Err(Refusal::new(
                code::NAME_TAKEN,
                format!("there is a host or a group {name} already"),
                "choose another name, or remove it first with blockyard host remove",
            ));
        }
        let NewHost { chap, mutual_chap, .. } = request;
        let change = ProofChange { chap, mutual_chap, ..ProofChange::default() };
        let record = HostRecord {
            any: request.any,
            initiators: request.initiators,
            networks: request.networks,
            proof: ProofRecord::default().changed(change, name.as_str(), self.core.settings.node.as_str())?,
        };
        admit_host(&state, &name, &record)?;
        let (given, force) = (name.clone(), request.force);
        self.access
            .commit(&turn, Consent::forced(force), |state| {
                state.hosts.insert(name, record);
            })
            .await?;
        self.report(&given)
    }

    /// The host is as `change` says from now on. Sessions of initiators that it no longer has end; others stay, whatever
    /// they will have to prove when they log in again.
    ///
    /// *Errors*: there is none of this name, it would be none that could be added so; or sessions would end that see something, and it was
    /// not forced.
    pub async fn change(&self, name: &Name, change: HostChange) -> Result<HostReport, Refusal> {
        let turn = self.core.turn().await;
        let state = self.core.state();
        let mut record = state.hosts.get(name).cloned().ok_or_else(|| unknown_host(name))?;
        if let Some(gone) = change.remove_initiators.iter().find(|gone| !record.initiators.contains(gone)) {
            let message = format!("host {name} has no initiator {gone}");
            return Err(Refusal::new(code::HOST_UNKNOWN, message, "see blockyard host list"));
        }
        record.initiators.retain(|initiator| !change.remove_initiators.contains(initiator));
        record.networks = networks_after(name, record.networks, &change)?;
        record.initiators.extend(change.add_initiators);
        let consent = Consent::forced(change.force);
        let HostChange { chap, mutual_chap, no_chap, no_mutual_chap, .. } = change;
        let change = ProofChange { chap, mutual_chap, no_chap, no_mutual_chap };
        record.proof = record.proof.changed(change, name.as_str(), self.core.settings.node.as_str())?;
        admit_host(&state, name, &record)?;
        self.access
            .commit(&turn, consent, |state| {
                state.hosts.insert(name.clone(), record);
            })
            .await?;
        self.report(name)
    }

    /// The host is no longer known, its sessions have ended, and the LUN numbers that it had are forgotten.
    ///
    /// *Errors*: there is none of this name; or it sees volumes or is one of a group, and it was not forced.
    pub async fn remove(&self, name: &Name, request: Removal) -> Result<(), Refusal> {
        let turn = self.core.turn().await;
        let state = self.core.state();
        if !state.hosts.contains_key(name) {
            return Err(unknown_host(name));
        }
        let removal = |state: &mut State| {
            state.groups.values_mut().for_each(|hosts| _ = hosts.remove(name));
            state.presentations.retain(|record| record.host != *name);
            state.hosts.remove(name);
        };
        if let Some(refusal) = host_in_use(&state, name).filter(|_| !request.force) {
            return Err(self.access.in_use(refusal, removal).await);
        }
        self.access.commit(&turn, Consent::forced(request.force), removal).await
    }

    /// All hosts.
    #[must_use]
    pub fn list(&self) -> Vec<HostReport> {
        let state = self.core.state();
        let counts = state.seen_counts();
        let sees = |name: &Name| counts.get(name).copied().unwrap_or_default();
        state.hosts.iter().map(|(name, record)| HostReport::of(name, record, &state, sees(name))).collect()
    }

    /// One host. *Errors*: there is none of this name.
    pub fn report(&self, name: &Name) -> Result<HostReport, Refusal> {
        let state = self.core.state();
        let record = state.hosts.get(name).ok_or_else(|| unknown_host(name))?;
        Ok(HostReport::of(name, record, &state, state.seen_by(name).count()))
    }
}

/// Why a host cannot be removed without losing something.
fn host_in_use(state: &State, name: &Name) -> Option<Refusal> {
    if let Some((group, _)) = state.groups.iter().find(|(_, hosts)| hosts.contains(name)) {
        let (message, hint) =
            (format!("host {name} is one of group {group}"), format!("first blockyard group leave {group} {name}"));
        return Some(Refusal::new(code::HOST_IN_USE, message, hint));
    }
    let seen = state.presentations.iter().find(|presentation| presentation.host == *name)?;
    let message = format!("host {name} sees volume {}", seen.volume);
    let hint = format!("end that first with blockyard unpresent {} {name}", seen.volume);
    Some(Refusal::new(code::HOST_IN_USE, message, hint))
}

/// Where the host `name` may come from after the change. Who may come from anywhere is not shut out by being let in
/// somewhere, and who may come from one place alone is not let in everywhere when that goes.
fn networks_after(name: &Name, before: Vec<Network>, change: &HostChange) -> Result<Vec<Network>, Refusal> {
    let HostChange { networks, add_networks, remove_networks, .. } = change;
    let refused = |message: String, hint: &str| Err(Refusal::new(code::NETWORKS_INVALID, message, hint));
    let mut after = networks.clone().unwrap_or(before);
    if let Some(gone) = remove_networks.iter().find(|gone| !after.contains(gone)) {
        return refused(format!("host {name} does not come from {gone}"), "see blockyard host list");
    }
    if !add_networks.is_empty() && after.is_empty() {
        let hint = "there is nothing to do; --address lets it come from there alone";
        return refused(format!("host {name} may come from anywhere already"), hint);
    }
    after.extend(add_networks);
    after.retain(|network| !remove_networks.contains(network));
    let mut seen = BTreeSet::new();
    after.retain(|network| seen.insert(*network));
    if after.is_empty() && !remove_networks.is_empty() {
        let hint = "say --anywhere if that is wanted, or where it may come from with --address";
        return refused(format!("host {name} would come from anywhere"), hint);
    }
    Ok(after)
}

/// Admits a host as `record` says, beside the others.
pub(crate) fn admit_host(state: &State, name: &Name, record: &HostRecord) -> Result<(), Refusal> {
    admit_shape(name, record)?;
    let mut others = state.hosts.iter().filter(|(other, _)| *other != name);
    let clashes = |other: &HostRecord| {
        record.any && other.any || record.initiators.iter().any(|iqn| other.initiators.contains(iqn))
    };
    if let Some((other, clashing)) = others.find(|(_, other)| clashes(other)) {
        return Err(match record.initiators.iter().find(|iqn| clashing.initiators.contains(iqn)) {
            None => any_taken(other),
            Some(iqn) => initiator_taken(iqn, other),
        });
    }
    let mut next = State::clone(state);
    next.hosts.insert(name.clone(), record.clone());
    admit_proofs(&next)
}

fn any_taken(owner: &Name) -> Refusal {
    let message = format!("host {owner} stands for any initiator already");
    Refusal::new(code::IQN_TAKEN, message, "name the initiators of this one")
}

fn initiator_taken(iqn: &Iqn, owner: &Name) -> Refusal {
    let message = format!("initiator {iqn} belongs to host {owner}");
    let hint = format!(
        "present to host {owner}, or take it away first with blockyard host change {owner} --remove-initiator {iqn}"
    );
    Refusal::new(code::IQN_TAKEN, message, hint)
}

/// Admits all hosts of the state: each is something, and no initiator is two of them.
pub(crate) fn admit_hosts(state: &State) -> Result<(), Refusal> {
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
    admit_proofs(state)
}

fn admit_shape(name: &Name, record: &HostRecord) -> Result<(), Refusal> {
    if record.any != record.initiators.is_empty() {
        return Err(Refusal::new(
            code::HOST_EMPTY,
            format!("host {name} must be either some initiators or any"),
            "give at least one --initiator IQN, or --any",
        ));
    }
    let mut seen = BTreeSet::new();
    match record.initiators.iter().find(|iqn| !seen.insert(*iqn)) {
        Some(iqn) => {
            let message = format!("initiator {iqn} is named twice");
            Err(Refusal::new(code::IQN_TAKEN, message, "name each initiator once"))
        }
        None => Ok(()),
    }
}
