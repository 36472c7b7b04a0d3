//! Batch changes of volumes (settings, deletion): one commit of the state for all of them instead of one for
//! each.

use crate::access::Confirmation;
use crate::change::copies::admit_whole;
use crate::change::volumes::{Volumes, unknown};
use crate::request::{Removal, VolumeSettings};
use crate::state::{PolicyRecord, State};
use model::{Order, Refusal, VolumeName, VolumePolicy, VolumeReport, code};
use std::collections::BTreeMap;

/// Settings requested for a volume.
pub(crate) type SettingsOf = (VolumeName, BTreeMap<String, String>);

/// A volume whose settings were changed, with the policy before.
pub(crate) struct SetVolume {
    pub report: VolumeReport,
    pub before: VolumePolicy,
}

impl Volumes {
    /// Changes settings of the volume, immediately and after every restart.
    ///
    /// *Errors*: there is no such volume or setting, a value is invalid, or the write policy is impossible.
    /// Nothing is changed then.
    pub async fn set(&self, name: &VolumeName, request: VolumeSettings) -> Result<VolumeReport, Refusal> {
        let mut set = self.set_all(&[(name.clone(), request.settings)]).await?;
        // One change was given, so one is returned.
        Ok(set.remove(0).report)
    }

    /// Changes the settings of all of these volumes, or of none, as [`Self::set`] does, with a single commit.
    pub(crate) async fn set_all(&self, wanted: &[SettingsOf]) -> Result<Vec<SetVolume>, Refusal> {
        let turn = self.core.lock_changes().await;
        let mut changes = Vec::new();
        for (name, settings) in wanted {
            changes.push(self.admit_settings(name, settings).await?);
        }
        let state = self.core.state();
        // Committed before it is applied: after a crash the next start applies the rest.
        self.core.commit(&turn, |state| {
            state.policies.extend(changes.iter().map(|(_, name, record)| (name.clone(), *record)));
            // Volumes without a record have the default policy, so a default policy needs none.
            state.policies.retain(|_, record| record.policy != VolumePolicy::default());
        })?;
        let mut set = Vec::new();
        for (at, (before, name, record)) in changes.iter().enumerate() {
            let order = Order::SetVolumePolicy { volume: name.clone(), policy: record.policy };
            match self.core.engine.volume(order).await {
                Ok(report) => set.push(SetVolume { report, before: *before }),
                Err(refusal) => {
                    // The refused one is undone as well: everything but its write policy was applied.
                    for (before, name, _) in changes[..=at].iter().rev() {
                        let undo = Order::SetVolumePolicy { volume: name.clone(), policy: *before };
                        if let Err(refusal) = self.core.engine.volume(undo).await {
                            tracing::error!(volume = %name, %refusal, "a policy could not be taken back");
                        }
                    }
                    // The change lock is still held, so no policy of another change is undone.
                    self.core.commit(&turn, |now| now.policies.clone_from(&state.policies))?;
                    return Err(refusal);
                }
            }
        }
        Ok(set)
    }

    /// Returns the volume's policy before and after the settings.
    async fn admit_settings(
        &self,
        name: &VolumeName,
        settings: &BTreeMap<String, String>,
    ) -> Result<(VolumePolicy, VolumeName, PolicyRecord), Refusal> {
        let volume = self.opened(name).await?.ok_or_else(|| unknown(name))?;
        admit_whole(&volume)?;
        let before = volume.policy.ok_or_else(|| {
            let message = format!("volume {name} is not in a pool, and only volumes in pools are cached");
            Refusal::new(code::POLICY_IMPOSSIBLE, message, "create a volume in a pool")
        })?;
        let mut policy = before;
        settings.iter().try_for_each(|(key, value)| policy.set(key, value))?;
        Ok((before, name.clone(), PolicyRecord { volume_id: volume.id, policy }))
    }

    /// Deletes the volume and its data. A file or block device below it stays as it is.
    ///
    /// *Errors*: there is none of this name; or it is presented, and `force` is not set.
    pub async fn delete(&self, name: &VolumeName, request: Removal) -> Result<(), Refusal> {
        self.delete_all(std::slice::from_ref(name), request.force)
            .await
            .pop()
            .map_or(Ok(()), |(_, refusal)| Err(refusal))
    }

    /// Deletes these volumes as [`Self::delete`] does, with a single commit, and returns those that could not
    /// be deleted, with the reasons.
    pub(crate) async fn delete_all(&self, names: &[VolumeName], force: bool) -> Vec<(VolumeName, Refusal)> {
        let turn = self.core.lock_changes().await;
        let before = self.core.state();
        let (mut left, mut going) = (Vec::new(), Vec::new());
        for name in names {
            match self.admit_deletion(name, &before, force).await {
                Ok(is_open) => going.push((name, is_open)),
                Err(refusal) => left.push((name.clone(), refusal)),
            }
        }
        let all =
            |refusal: &Refusal| going.iter().map(|(name, _)| ((*name).clone(), refusal.clone())).collect::<Vec<_>>();
        // Presentations first, while the volumes still exist: hosts lose the LUN before its data is gone.
        let unpresented = |state: &mut State| {
            state.presentations.retain(|record| going.iter().all(|(name, _)| record.volume != **name));
        };
        // Without `force` only volumes that are not presented were admitted, so there is nothing to end.
        if force && let Err(refusal) = self.access.commit(&turn, Confirmation::forced(true), unpresented).await {
            left.extend(all(&refusal));
            return left;
        }
        // Records of volumes without a pool go before the volumes do: a crash in between leaves nothing to
        // reopen.
        let forgotten =
            self.core.commit(&turn, |state| going.iter().for_each(|(name, _)| _ = state.volumes.remove(*name)));
        if let Err(refusal) = forgotten {
            left.extend(all(&refusal));
            return left;
        }
        let mut kept = Vec::new();
        // A record without an open volume is gone with the commit above.
        for (name, _) in going.iter().filter(|(_, is_open)| *is_open) {
            if let Err(refusal) = self.core.engine.done(Order::DeleteVolume { volume: (*name).clone() }).await {
                kept.push(((*name).clone(), refusal));
            }
        }
        // Volumes that the data plane kept get their records back; policies of the deleted ones go.
        let settled = self.core.commit(&turn, |state| {
            for (name, is_open) in &going {
                if kept.iter().any(|(kept, _)| kept == *name) {
                    state.volumes.extend(
                        before.volumes.get_key_value(*name).map(|(name, record)| (name.clone(), record.clone())),
                    );
                } else if *is_open {
                    state.policies.remove(*name);
                }
            }
        });
        left.extend(settled.err().map_or(kept, |refusal| all(&refusal)));
        left
    }

    /// Admits the deletion; returns true when the volume is open, false when only its record exists.
    async fn admit_deletion(&self, name: &VolumeName, state: &State, force: bool) -> Result<bool, Refusal> {
        let volume = self.opened(name).await?;
        volume.iter().try_for_each(admit_whole)?;
        // A record without an open volume, as of a lost file, can be deleted, too.
        if volume.is_none() && !state.volumes.contains_key(name) {
            return Err(unknown(name));
        }
        if let Some(presentation) = state.presentations_of(name).next().filter(|_| !force) {
            let message = format!("volume {name} is presented to host {}", presentation.host);
            let hint = format!("unpresent it first with blockyard unpresent {name} {}", presentation.host);
            let unpresented = |state: &mut State| state.presentations.retain(|record| record.volume != *name);
            return Err(self.access.in_use(Refusal::new(code::VOLUME_IN_USE, message, hint), unpresented).await);
        }
        Ok(volume.is_some())
    }
}
