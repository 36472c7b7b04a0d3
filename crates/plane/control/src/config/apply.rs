//! The change to what a document says, whole or not at all; and back to what once was.

use super::makes::Makes;
use super::plan::{Plan, Step};
use super::steps::access_steps;
use super::{Annex, Document, Pending, access};
use crate::access::Consent;
use crate::change::together::SettingsOf;
use crate::config::Configuration;
use crate::impact::disrupts;
use crate::request::{NewPool, NewPortal, NewSpare, PoolSettings, Removal, VolumeSettings};
use crate::state::State;
use model::{
    DiskName, Iqn, Name, PortalAddress, Refusal, Span, Subject, SubjectKind, Timestamp, VolumeId, VolumeName, code,
    event,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Volumes that are made or set in one turn: others wait for theirs, and each turn is remembered once.
const VOLUMES_AT_ONCE: usize = 256;

/// Make the array what a document says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyConfig {
    /// What it is to be.
    pub document: Document,
    /// True when hosts, groups, targets and presentations go that are not in it. Disks, pools and volumes never do.
    #[serde(default)]
    pub prune: bool,
    /// The plan's fingerprint, when the array must be as it was then.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Initiators that must be logged in afterwards; who sees what is as before when one is not, in time.
    #[serde(default)]
    pub initiators: Vec<Iqn>,
    /// How long they may take; a minute when absent.
    #[serde(default)]
    pub within: Option<Span>,
    /// True though sessions end or lose access.
    #[serde(default)]
    pub allow_disruption: bool,
    /// True when LUNs that the document states may be other volumes than hosts knew under them.
    #[serde(default)]
    pub reuse_luns: bool,
    /// Add disks and make pools of them although they are not empty: what they hold is overwritten.
    #[serde(default)]
    pub force: bool,
}

/// Go back to an earlier configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestoreConfig {
    /// True though sessions end or lose access.
    pub allow_disruption: bool,
    /// True when LUNs may be other volumes than hosts know under them by now.
    pub reuse_luns: bool,
    /// The fingerprint that came with the steps, when the array must be as it was then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Who saw what, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PastConfig {
    /// The number of its version.
    pub version: u64,
    /// Since when it was so.
    pub time: Timestamp,
    /// True for what is now.
    pub present: bool,
    /// What would be done to be there again.
    pub steps: Vec<Step>,
    /// How many sessions would end, or lose something that they see; each once.
    #[serde(default)]
    pub sessions: u32,
    /// Of the array that the steps begin with.
    #[serde(default)]
    pub fingerprint: String,
}

/// What was made, to be taken back in turn.
enum Made {
    Disk(DiskName),
    Pool(Name),
    Spare(DiskName),
    Volumes(Vec<VolumeName>),
    Portal(PortalAddress),
    VolumeSettings(Vec<SettingsOf>),
    PoolSettings(Name, BTreeMap<String, String>),
}

impl Configuration {
    /// The array is what the document says. When a part of that is refused, what was made is taken back; only volumes that have
    /// grown stay so, and the refusal names them.
    ///
    /// *Errors*: the document could not be applied, the array is another than it was planned for, sessions would lose something and that
    /// was not allowed, or an initiator that was asked for has not come back in time.
    pub async fn apply(&self, request: ApplyConfig, annex: &dyn Annex) -> Result<Applied, Refusal> {
        let _alone = self.applying.lock().await;
        let (Plan { steps, losses, fingerprint: present, .. }, makes) = self.plan_makes(&request, annex).await?;
        let consent = consent(request.allow_disruption, request.reuse_luns);
        let ApplyConfig { document, prune, fingerprint, initiators, within, force, .. } = request;
        if fingerprint.is_some_and(|wanted| wanted != present) {
            let message = "the array was changed since this was planned";
            return Err(Refusal::new(code::CHANGED_MEANWHILE, message, "look at blockyard diff again, and apply then"));
        }
        if steps.is_empty() {
            return Ok(Applied { steps });
        }
        if !losses.is_empty() && !consent.disruption {
            return Err(disrupts(losses, consent.option));
        }
        let before = self.core.state();
        let awaited = self.awaited(&initiators).await?;
        let mut made = Vec::new();
        let mut pending = None;
        let how = (prune, force, consent);
        if let Err(refusal) = self.carry_out(&document, makes, how, annex, (&mut made, &mut pending)).await {
            return Err(self.take_back(made, pending, &before, refusal).await);
        }
        if let Err(refusal) = self.are_back(&awaited, within).await {
            let refusal = self.take_back(made, pending, &before, refusal).await;
            let sentence = format!("a configuration was taken back: {}", refusal.message);
            self.core.raise(
                event::CONFIG_TAKEN_BACK,
                Subject::new(SubjectKind::Node, &self.core.settings().node),
                sentence,
            );
            return Err(refusal);
        }
        pending.into_iter().for_each(Pending::keep);
        let sentence = format!("a configuration was applied: {} steps", steps.len());
        self.core.raise(event::CONFIG_APPLIED, Subject::new(SubjectKind::Node, &self.core.settings().node), sentence);
        Ok(Applied { steps })
    }

    async fn carry_out(
        &self,
        document: &Document,
        makes: Makes,
        (prune, force, consent): (bool, bool, Consent),
        annex: &dyn Annex,
        (made, pending): (&mut Vec<Made>, &mut Option<Box<dyn Pending>>),
    ) -> Result<(), Refusal> {
        for name in makes.disks {
            self.disks.add(document.disk[&name].new_disk(&name, force)).await?;
            made.push(Made::Disk(name));
        }
        for name in makes.pools {
            let groups = document.pool[&name].groups.clone();
            self.pools.create(NewPool { name: name.clone(), groups, force, spares: Vec::new(), spread: false }).await?;
            made.push(Made::Pool(name));
        }
        for name in makes.spares {
            let pool = document.disk[&name].spare.as_ref().and_then(|spare| spare.pool.clone());
            self.spares.add(&name, NewSpare { pool, force: false }).await?;
            made.push(Made::Spare(name));
        }
        for names in makes.volumes.chunks(VOLUMES_AT_ONCE) {
            let new = names.iter().map(|name| document.volume[name].new_volume(name)).collect();
            self.volumes.create_all(new).await?;
            made.push(Made::Volumes(names.to_vec()));
        }
        for address in makes.portals {
            let settings = document.portal[&address].settings.clone();
            self.portals.add(NewPortal { address, settings }).await?;
            made.push(Made::Portal(address));
        }
        for wanted in makes.volume_settings.chunks(VOLUMES_AT_ONCE) {
            let set = self.volumes.set_all(wanted).await?;
            let before = set.into_iter().map(|one| (one.report.name, owned(&one.before.settings()))).collect();
            made.push(Made::VolumeSettings(before));
        }
        for (name, settings) in makes.pool_settings {
            let policy = self.core.state().pools.get(&name).map(|record| record.policy.clone()).unwrap_or_default();
            self.pools.set(&name, PoolSettings { settings }).await?;
            made.push(Made::PoolSettings(name, owned(&policy.settings())));
        }
        *pending = Some(annex.commit(document, prune)?);
        self.commit_document(document, prune, consent).await?;
        self.volumes.grow_all(&makes.grown).await.map_err(|(grown, refusal)| match grown {
            [] => refusal,
            grown => {
                let names: Vec<String> = grown.iter().map(|(name, _)| name.to_string()).collect();
                let message = format!("{}; {} have grown already, and stay so", refusal.message, names.join(", "));
                Refusal::new(refusal.code, message, refusal.hint)
            }
        })
    }

    async fn commit_document(&self, document: &Document, prune: bool, consent: Consent) -> Result<(), Refusal> {
        let volumes: BTreeMap<VolumeName, VolumeId> =
            self.volumes.list().await?.into_iter().map(|volume| (volume.name, volume.id)).collect();
        let turn = self.core.turn().await;
        let next = access::after(&self.core.state(), document, &volumes, self.core.settings(), prune)?;
        self.access.commit(&turn, consent, |state| *state = next).await?;
        self.isns.look_again();
        Ok(())
    }

    /// Who sees what is as `before`, and what was made is gone; the refusal, with what could not be taken back.
    async fn take_back(
        &self,
        made: Vec<Made>,
        pending: Option<Box<dyn Pending>>,
        before: &State,
        refusal: Refusal,
    ) -> Refusal {
        let mut left = Vec::new();
        let turn = self.core.turn().await;
        if let Err(failed) = self
            .access
            .commit(&turn, Consent::ALL, |state| {
                state.take_access_of(before);
                state.isns = before.isns;
            })
            .await
        {
            left.push(format!("who sees what: {failed}"));
        }
        drop(turn);
        if let Some(Err(failed)) = pending.map(Pending::take_back) {
            left.push(format!("users and receivers: {failed}"));
        }
        for made in made.into_iter().rev() {
            left.extend(self.undo(made).await);
        }
        if left.is_empty() {
            return refusal;
        }
        let message = format!("{}, and could not take back {}", refusal.message, left.join("; "));
        Refusal::new(refusal.code, message, refusal.hint)
    }

    /// What was made is gone, and what was set is as before; what could not be taken back, and why.
    async fn undo(&self, made: Made) -> Vec<String> {
        let (what, undone) = match made {
            Made::Volumes(names) => {
                let left = self.volumes.delete_all(&names, false).await.into_iter();
                return left.map(|(name, failed)| format!("volume {name}: {failed}")).collect();
            }
            Made::VolumeSettings(before) => return self.reset_volumes(before).await,
            Made::Disk(name) => (format!("disk {name}"), self.disks.remove(&name).await),
            Made::Pool(name) => (format!("pool {name}"), self.pools.destroy(&name).await),
            Made::Spare(name) => (format!("spare {name}"), self.spares.remove(&name).await),
            Made::Portal(at) => (format!("portal {}", at.0), self.portals.remove(at, Removal { force: true }).await),
            Made::PoolSettings(name, settings) => {
                (format!("settings of pool {name}"), self.pools.set(&name, PoolSettings { settings }).await.map(drop))
            }
        };
        undone.err().map(|failed| format!("{what}: {failed}")).into_iter().collect()
    }

    /// These volumes have the settings that they had; where one cannot, the others all the same.
    async fn reset_volumes(&self, before: Vec<SettingsOf>) -> Vec<String> {
        let mut left = Vec::new();
        if self.volumes.set_all(&before).await.is_ok() {
            return left;
        }
        for (name, settings) in before {
            let set = self.volumes.set(&name, VolumeSettings { settings }).await;
            left.extend(set.err().map(|failed| format!("settings of volume {name}: {failed}")));
        }
        left
    }

    /// Who saw what, the latest ten and more, the present one first.
    ///
    /// *Errors*: the file cannot be read.
    pub async fn past(&self) -> Result<Vec<PastConfig>, Refusal> {
        let sessions = self.sessions.list().await?;
        // Before the state is read: what is committed in between makes it another array.
        let fingerprint = self.core.store.version().to_string();
        let state = self.core.state();
        let past = |version: u64, time: Timestamp, then: &State| {
            let told = access_steps(&state, &state.with_access_of(then), &sessions);
            let present = state.access_part() == then.access_part();
            let sessions = u32::try_from(told.sessions.len()).unwrap_or(u32::MAX);
            PastConfig { version, time, present, steps: told.steps, sessions, fingerprint: fingerprint.clone() }
        };
        let mut told = Vec::new();
        for (version, time) in self.core.store.configs().into_iter().rev() {
            told.extend(self.core.store.config(version)?.map(|then| past(version, time, &then)));
        }
        Ok(told)
    }

    /// Hosts, groups, targets, presentations, portals' settings and proofs are as they were in this version, as far as the
    /// volumes and portals are still there.
    ///
    /// *Errors*: it is not kept; the array is another than the steps were worked out for; or sessions would lose something, or hosts would find other volumes under numbers that they know, and
    /// that was not allowed.
    pub async fn restore(&self, version: u64, request: RestoreConfig) -> Result<Applied, Refusal> {
        let _alone = self.applying.lock().await;
        let sessions = self.sessions.list().await?;
        let volumes: BTreeSet<VolumeId> = self.volumes.list().await?.into_iter().map(|volume| volume.id).collect();
        let turn = self.core.turn().await;
        let is_kept = self.core.store.configs().iter().any(|(number, _)| *number == version);
        let then = if is_kept { self.core.store.config(version)? } else { None };
        let then = then.ok_or_else(|| {
            let message = format!("configuration {version} is not kept");
            Refusal::new(code::CONFIG_UNKNOWN, message, "see blockyard config list")
        })?;
        if request.fingerprint.is_some_and(|wanted| wanted != self.core.store.version().to_string()) {
            let message = "the array was changed since these steps were worked out";
            let hint = "look at blockyard config list again, and restore then";
            return Err(Refusal::new(code::CHANGED_MEANWHILE, message, hint));
        }
        let state = self.core.state();
        let mut next = state.with_access_of(&then);
        next.presentations.retain(|record| volumes.contains(&record.volume_id));
        let steps = access_steps(&state, &next, &sessions).steps;
        let consent = consent(request.allow_disruption, request.reuse_luns);
        self.access.commit(&turn, consent, |state| *state = next).await?;
        drop(turn);
        let sentence = format!("configuration {version} was restored: {} steps", steps.len());
        self.core.raise(event::CONFIG_APPLIED, Subject::new(SubjectKind::Node, &self.core.settings().node), sentence);
        Ok(Applied { steps })
    }
}

fn consent(allow_disruption: bool, reuse_luns: bool) -> Consent {
    Consent { disruption: allow_disruption, luns: reuse_luns, option: "--allow-disruption" }
}

fn owned<const N: usize>(settings: &[(&'static str, String); N]) -> BTreeMap<String, String> {
    settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

impl State {
    /// Who sees what, alone.
    pub(crate) fn access_part(&self) -> Self {
        Self::default().with_access_of(self).with_portals_of(self)
    }

    /// This state, where everybody sees what they saw `then`; portals that are not there any more are left out.
    pub(super) fn with_access_of(&self, then: &Self) -> Self {
        let mut next = self.clone();
        next.take_access_of(then);
        next
    }

    fn take_access_of(&mut self, then: &Self) {
        self.auth.clone_from(&then.auth);
        self.hosts.clone_from(&then.hosts);
        self.groups.clone_from(&then.groups);
        self.targets.clone_from(&then.targets);
        self.presentations.clone_from(&then.presentations);
        self.portal_groups.clone_from(&then.portal_groups);
        self.balance = then.balance;
        for (address, record) in &mut self.portals {
            record.policy = then.portal_policy(*address);
        }
        let set = then.portals.iter().filter(|(_, record)| !record.added);
        self.portals.extend(set.map(|(address, record)| (*address, record.clone())));
        self.portals.retain(|_, record| *record != crate::state::PortalRecord::default());
    }

    fn with_portals_of(mut self, then: &Self) -> Self {
        self.portals.clone_from(&then.portals);
        self
    }
}
