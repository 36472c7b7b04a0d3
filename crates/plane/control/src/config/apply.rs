//! Application of a document, all or nothing; and restoring an earlier configuration.

use super::plan::{Plan, Step};
use super::resources::ResourceChanges;
use super::steps::access_steps;
use super::{Document, ExternalSections, ProvisionalChange, access};
use crate::access::Confirmation;
use crate::change::batch::SettingsOf;
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
use std::sync::Arc;

/// Volumes created or set under one hold of the change lock: others get it in between, and each batch is one
/// commit.
const VOLUMES_AT_ONCE: usize = 256;

/// Apply a configuration document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApplyConfig {
    /// The document.
    pub document: Document,
    /// True to remove hosts, groups, targets and presentations that it does not name. Disks, pools and volumes
    /// always stay.
    #[serde(default)]
    pub prune: bool,
    /// Fingerprint of the plan; refused when the array has changed since.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Initiators that must log in again afterwards; the change is rolled back when one does not in time.
    #[serde(default)]
    pub initiators: Vec<Iqn>,
    /// Time limit for them; one minute when absent.
    #[serde(default)]
    pub within: Option<Span>,
    /// True to apply it although sessions end or lose access.
    #[serde(default)]
    pub allow_disruption: bool,
    /// True to allow LUNs in the document that hosts know as other volumes.
    #[serde(default)]
    pub reuse_luns: bool,
    /// Adds disks and creates pools on them although they are not empty: their content is overwritten.
    #[serde(default)]
    pub force: bool,
}

/// Restore an earlier configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RestoreConfig {
    /// True to restore it although sessions end or lose access.
    pub allow_disruption: bool,
    /// True to allow LUNs that hosts know as other volumes by now.
    pub reuse_luns: bool,
    /// Fingerprint that came with the steps; refused when the array has changed since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Result of an application.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Applied {
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// An earlier configuration of access.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PastConfig {
    /// Number of its version.
    pub version: u64,
    /// Time at which it came into force.
    pub time: Timestamp,
    /// True for the present configuration.
    pub current: bool,
    /// Steps that would restore it.
    pub steps: Vec<Step>,
    /// Sessions that would end or lose access, each counted once.
    #[serde(default)]
    pub sessions: u32,
    /// Fingerprint of the array that the steps start from.
    #[serde(default)]
    pub fingerprint: String,
}

/// Objects and settings to be rolled back, in reverse order.
enum RollbackStep {
    Disk(DiskName),
    Pool(Name),
    Spare(DiskName),
    Volumes(Vec<VolumeName>),
    Portal(PortalAddress),
    VolumeSettings(Vec<SettingsOf>),
    PoolSettings(Name, BTreeMap<String, String>),
}

/// Changes of a document that are rolled back when a later part of it is refused.
#[derive(Default)]
struct Applying {
    /// Created and changed objects, in order.
    made: Vec<RollbackStep>,
    /// Users and receivers.
    external: Option<Box<dyn ProvisionalChange>>,
    /// The access rules, once they are committed.
    access: Option<AccessChange>,
}

/// States right before and right after the commit of the access rules.
struct AccessChange {
    before: Arc<State>,
    after: Arc<State>,
}

impl Configuration {
    /// Applies the document. When a part is refused, everything is rolled back; only volumes that have grown
    /// stay so, and the refusal names them.
    ///
    /// *Errors*: the document is invalid, the array has changed since the plan, sessions would lose access
    /// without permission, or a given initiator has not logged in again in time.
    pub async fn apply(&self, request: ApplyConfig, annex: &dyn ExternalSections) -> Result<Applied, Refusal> {
        // Held until the end of the wait, so that the rollback of one document never undoes another one.
        let _alone = self.applying.lock().await;
        // Planned under the lock, so that the plan and its execution see the same array.
        let (Plan { steps, losses, fingerprint: present, .. }, makes) = self.plan_all(&request, annex).await?;
        let consent = confirmation(request.allow_disruption, request.reuse_luns);
        let ApplyConfig { document, prune, fingerprint, initiators, within, force, .. } = request;
        // Checked under `applying`, so no other document is applied between the check and the change.
        if fingerprint.is_some_and(|wanted| wanted != present) {
            let message = "the array was changed since the preview";
            return Err(Refusal::new(code::CHANGED_MEANWHILE, message, "run blockyard diff again, then apply"));
        }
        // Without a step there is no event, and no wait for initiators.
        if steps.is_empty() {
            return Ok(Applied { steps });
        }
        if !losses.is_empty() && !consent.disruption {
            return Err(disrupts(losses, consent.option));
        }
        let awaited = self.expected_initiators(&initiators).await?;
        let mut applying = Applying::default();
        let how = (prune, force, consent);
        if let Err(refusal) = self.carry_out(&document, makes, how, annex, &mut applying).await {
            return Err(self.roll_back(applying, refusal).await);
        }
        if let Err(refusal) = self.wait_for_relogin(&awaited, within).await {
            let refusal = self.roll_back(applying, refusal).await;
            let sentence = format!("configuration rolled back: {}", refusal.message);
            self.core.raise(
                event::CONFIG_TAKEN_BACK,
                Subject::new(SubjectKind::Node, &self.core.settings().node),
                sentence,
            );
            return Err(refusal);
        }
        // Only now do the changes of users and receivers become final.
        applying.external.into_iter().for_each(ProvisionalChange::finalize);
        let sentence = format!("configuration applied: {} steps", steps.len());
        self.core.raise(event::CONFIG_APPLIED, Subject::new(SubjectKind::Node, &self.core.settings().node), sentence);
        Ok(Applied { steps })
    }

    async fn carry_out(
        &self,
        document: &Document,
        makes: ResourceChanges,
        (prune, force, consent): (bool, bool, Confirmation),
        annex: &dyn ExternalSections,
        Applying { made, external, access }: &mut Applying,
    ) -> Result<(), Refusal> {
        // In order of dependence: disks, pools on them, spares, volumes, portals; settings after the objects
        // they belong to.
        // The names come from the plan of this document, so the indexing below cannot fail.
        for name in makes.disks {
            self.disks.add(document.disk[&name].new_disk(&name, force)).await?;
            // Only after success, because a refused request leaves nothing behind.
            made.push(RollbackStep::Disk(name));
        }
        for name in makes.pools {
            let groups = document.pool[&name].groups.clone();
            self.pools.create(NewPool { name: name.clone(), groups, force, spares: Vec::new(), spread: false }).await?;
            made.push(RollbackStep::Pool(name));
        }
        for name in makes.spares {
            let pool = document.disk[&name].spare.as_ref().and_then(|spare| spare.pool.clone());
            // A document never lets a spare overwrite data.
            self.spares.add(&name, NewSpare { pool, force: false }).await?;
            made.push(RollbackStep::Spare(name));
        }
        for names in makes.volumes.chunks(VOLUMES_AT_ONCE) {
            let new = names.iter().map(|name| document.volume[name].new_volume(name)).collect();
            self.volumes.create_all(new).await?;
            made.push(RollbackStep::Volumes(names.to_vec()));
        }
        for address in makes.portals {
            let settings = document.portal[&address].settings.clone();
            self.portals.add(NewPortal { address, settings }).await?;
            made.push(RollbackStep::Portal(address));
        }
        for wanted in makes.volume_settings.chunks(VOLUMES_AT_ONCE) {
            let set = self.volumes.set_all(wanted).await?;
            let before = set.into_iter().map(|one| (one.report.name, owned(&one.before.settings()))).collect();
            made.push(RollbackStep::VolumeSettings(before));
        }
        for (name, settings) in makes.pool_settings {
            // Read before the change, for the rollback.
            let policy = self.core.state().pools.get(&name).map(|record| record.policy.clone()).unwrap_or_default();
            self.pools.set(&name, PoolSettings { settings }).await?;
            made.push(RollbackStep::PoolSettings(name, owned(&policy.settings())));
        }
        // Users and receivers come before the access rules, and stay provisional until everything has
        // succeeded.
        *external = Some(annex.commit(document, prune)?);
        *access = Some(self.commit_document(document, prune, consent).await?);
        // Last, because a volume that has grown cannot be rolled back.
        self.volumes.grow_all(&makes.grown).await.map_err(|(grown, refusal)| match grown {
            [] => refusal,
            grown => {
                let names: Vec<String> = grown.iter().map(|(name, _)| name.to_string()).collect();
                let message = format!("{}; {} were already resized and stay so", refusal.message, names.join(", "));
                Refusal::new(refusal.code, message, refusal.hint)
            }
        })
    }

    /// Commits the access rules of the document.
    async fn commit_document(
        &self,
        document: &Document,
        prune: bool,
        consent: Confirmation,
    ) -> Result<AccessChange, Refusal> {
        let turn = self.core.lock_changes().await;
        // Read again, because volumes that were just created have their identities only now. Under the lock, so that
        // no volume is deleted between this list and the commit that presents it.
        let volumes: BTreeMap<VolumeName, VolumeId> =
            self.volumes.list().await?.into_iter().map(|volume| (volume.name, volume.id)).collect();
        let before = self.core.state();
        let next = access::after(&before, document, &volumes, self.core.settings(), prune)?;
        self.access.commit(&turn, consent, |state| *state = next).await?;
        // Targets may have got their first mapping, or lost their last one, so the registration may change.
        self.isns.wake();
        Ok(AccessChange { before, after: self.core.state() })
    }

    /// Restores the access rules of before, if they were changed, and removes what was created; returns the refusal,
    /// with what could not be rolled back.
    async fn roll_back(&self, applying: Applying, mut refusal: Refusal) -> Refusal {
        let Applying { made, external, access } = applying;
        // Access first: hosts lose the volumes before these are deleted.
        let mut left = Vec::new();
        if let Some(AccessChange { before, after }) = access {
            let turn = self.core.lock_changes().await;
            // Rules depend on each other, such as LUNs and initiators that may occur once, so they are restored as a
            // whole. An operator who changed one in the meantime has to know that it was undone.
            if self.core.state().access_part() != after.access_part() {
                refusal.message += "; later changes of hosts, mappings and portals by others were rolled back as well";
            }
            let restored = self.access.commit(&turn, Confirmation::ALL, |state| {
                state.take_access_of(&before);
                // The iSNS server is no access rule, but the document may have set it.
                state.isns = before.isns;
            });
            left.extend(restored.await.err().map(|failed| format!("mappings: {failed}")));
            // The steps below take the lock themselves, so it is released here.
        }
        // A step of the rollback that fails does not stop the others.
        if let Some(Err(failed)) = external.map(ProvisionalChange::roll_back) {
            left.push(format!("users and receivers: {failed}"));
        }
        // In reverse order, because pools stand on disks and volumes on pools.
        for made in made.into_iter().rev() {
            left.extend(self.undo(made).await);
        }
        if left.is_empty() {
            return refusal;
        }
        let message = format!("{}, and could not roll back {}", refusal.message, left.join("; "));
        Refusal::new(refusal.code, message, refusal.hint)
    }

    /// Removes an object or resets settings; returns what could not be rolled back, and why.
    async fn undo(&self, made: RollbackStep) -> Vec<String> {
        let (what, undone) = match made {
            RollbackStep::Volumes(names) => {
                // Without `force`: the mappings were rolled back first, so nothing presents them any more.
                let left = self.volumes.delete_all(&names, false).await.into_iter();
                return left.map(|(name, failed)| format!("volume {name}: {failed}")).collect();
            }
            RollbackStep::VolumeSettings(before) => return self.reset_volumes(before).await,
            RollbackStep::Disk(name) => (format!("disk {name}"), self.disks.remove(&name).await),
            RollbackStep::Pool(name) => (format!("pool {name}"), self.pools.destroy(&name).await),
            RollbackStep::Spare(name) => (format!("spare {name}"), self.spares.remove(&name).await),
            // Hosts may have logged in through the new portal in the meantime.
            RollbackStep::Portal(at) => {
                (format!("portal {}", at.0), self.portals.remove(at, Removal { force: true }).await)
            }
            RollbackStep::PoolSettings(name, settings) => {
                (format!("settings of pool {name}"), self.pools.set(&name, PoolSettings { settings }).await.map(drop))
            }
        };
        undone.err().map(|failed| format!("{what}: {failed}")).into_iter().collect()
    }

    /// Resets the settings of these volumes; one at a time where the batch is refused, so that one failure does
    /// not keep the others.
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

    /// Lists the kept configurations of access, the present one first.
    ///
    /// *Errors*: a file cannot be read.
    pub async fn restore_points(&self) -> Result<Vec<PastConfig>, Refusal> {
        let sessions = self.sessions.list().await?;
        // Read before the state: a commit in between makes the fingerprint outdated, never wrong.
        let fingerprint = self.core.store.version().to_string();
        let state = self.core.state();
        let past = |version: u64, time: Timestamp, then: &State| {
            let told = access_steps(&state, &state.with_access_of(then), &sessions);
            let present = state.access_part() == then.access_part();
            let sessions = u32::try_from(told.sessions.len()).unwrap_or(u32::MAX);
            PastConfig {
                version,
                time,
                current: present,
                steps: told.steps,
                sessions,
                fingerprint: fingerprint.clone(),
            }
        };
        let mut told = Vec::new();
        // One version at a time: each holds all secrets.
        for (version, time) in self.core.store.restore_points().into_iter().rev() {
            told.extend(self.core.store.read_restore_point(version)?.map(|then| past(version, time, &then)));
        }
        Ok(told)
    }

    /// Restores hosts, groups, targets, presentations, settings of portals and credentials of this version, as
    /// far as volumes and portals still exist.
    ///
    /// *Errors*: the version is not kept; the array has changed since the steps were computed; or, without
    /// permission, sessions would lose access or hosts would find other volumes under LUNs that they know.
    pub async fn restore(&self, version: u64, request: RestoreConfig) -> Result<Applied, Refusal> {
        let _alone = self.applying.lock().await;
        let turn = self.core.lock_changes().await;
        // Listed under the change lock: a volume that is deleted in between must not be presented again.
        let sessions = self.sessions.list().await?;
        let volumes: BTreeSet<VolumeId> = self.volumes.list().await?.into_iter().map(|volume| volume.id).collect();
        // Only versions that changed the access of hosts are offered as restore points.
        let is_kept = self.core.store.restore_points().iter().any(|(number, _)| *number == version);
        let then = if is_kept { self.core.store.read_restore_point(version)? } else { None };
        let then = then.ok_or_else(|| {
            let message = format!("configuration {version} is not stored");
            Refusal::new(code::CONFIG_UNKNOWN, message, "see blockyard config list")
        })?;
        // Under the change lock, so that nothing is committed between this check and the change.
        if request.fingerprint.is_some_and(|wanted| wanted != self.core.store.version().to_string()) {
            let message = "the array was changed since the preview";
            let hint = "see blockyard config list again, then restore";
            return Err(Refusal::new(code::CHANGED_MEANWHILE, message, hint));
        }
        let state = self.core.state();
        let mut next = state.with_access_of(&then);
        // A volume that was deleted since cannot be presented again.
        next.presentations.retain(|record| volumes.contains(&record.volume_id));
        let steps = access_steps(&state, &next, &sessions).steps;
        let consent = confirmation(request.allow_disruption, request.reuse_luns);
        self.access.commit(&turn, consent, |state| *state = next).await?;
        drop(turn);
        let sentence = format!("configuration {version} restored: {} steps", steps.len());
        self.core.raise(event::CONFIG_APPLIED, Subject::new(SubjectKind::Node, &self.core.settings().node), sentence);
        Ok(Applied { steps })
    }
}

fn confirmation(allow_disruption: bool, reuse_luns: bool) -> Confirmation {
    Confirmation { disruption: allow_disruption, luns: reuse_luns, option: "--allow-disruption" }
}

fn owned<const N: usize>(settings: &[(&'static str, String); N]) -> BTreeMap<String, String> {
    settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

impl State {
    /// Returns the access rules alone, for comparison.
    pub(crate) fn access_part(&self) -> Self {
        Self::default().with_access_of(self).with_portals_of(self)
    }

    /// Returns this state with the access rules of `then`; portals that no longer exist are left out.
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
        // Portals that were added since stay, with the settings that they had then.
        for (address, record) in &mut self.portals {
            record.policy = then.portal_policy(*address);
        }
        // Settings of portals from the configuration file, which have no record unless they were changed.
        let set = then.portals.iter().filter(|(_, record)| !record.added);
        self.portals.extend(set.map(|(address, record)| (*address, record.clone())));
        self.portals.retain(|_, record| *record != crate::state::PortalRecord::default());
    }

    fn with_portals_of(mut self, then: &Self) -> Self {
        self.portals.clone_from(&then.portals);
        self
    }
}
