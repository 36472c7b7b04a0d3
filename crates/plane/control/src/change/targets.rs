//! iSCSI targets: add, remove.

use crate::access::{Access, Confirmation};
use crate::core::Core;
use crate::request::{NewTarget, Removal};
use crate::state::{State, TargetRecord};
use crate::unknown::unknown_target;
use crate::view::{TargetReport, count};
use model::{Iqn, Name, Refusal, code};
use std::collections::BTreeMap;
use std::sync::Arc;

/// iSCSI targets.
pub struct Targets {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
}

impl Targets {
    /// Lists all targets.
    #[must_use]
    pub fn list(&self) -> Vec<TargetReport> {
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

    /// Returns one target. *Errors*: there is none of this name.
    pub fn report(&self, name: &Name) -> Result<TargetReport, Refusal> {
        let state = self.core.state();
        let record = state.targets.get(name).ok_or_else(|| unknown_target(name))?;
        let presentations = state.presentations.iter().filter(|shown| shown.target == *name).count();
        Ok(TargetReport { name: name.clone(), iqn: record.iqn.clone(), presentations: count(presentations) })
    }

    /// Adds a target.
    ///
    /// *Errors*: its name or its iSCSI name is taken.
    pub async fn add(&self, request: NewTarget) -> Result<TargetReport, Refusal> {
        let turn = self.core.lock_changes().await;
        let state = self.core.state();
        let iqn: Iqn = match request.iqn {
            Some(iqn) => iqn,
            None => state.target_iqn(&self.core.settings, Some(&request.name))?,
        };
        let taken = |message: String| Err(Refusal::new(code::NAME_TAKEN, message, "choose another name"));
        if state.targets.contains_key(&request.name) {
            return taken(format!("target {} already exists", request.name));
        }
        // Hosts know a target by its iSCSI name alone, so that has to be unique as well.
        if let Some((other, _)) = state.targets.iter().find(|(_, record)| record.iqn == iqn) {
            return taken(format!("target {other} has the iSCSI name {iqn}"));
        }
        let report = TargetReport { name: request.name.clone(), iqn: iqn.clone(), presentations: 0 };
        self.access
            .commit(&turn, Confirmation::forced(false), |state| {
                state.targets.insert(request.name, TargetRecord { iqn });
            })
            .await?;
        Ok(report)
    }

    /// Removes a target.
    ///
    /// *Errors*: there is none of this name, it is the last one; or volumes are presented in it, and `force` is
    /// not set.
    pub async fn remove(&self, name: &Name, request: Removal) -> Result<(), Refusal> {
        let turn = self.core.lock_changes().await;
        let state = self.core.state();
        if !state.targets.contains_key(name) {
            return Err(unknown_target(name));
        }
        // Before `force` is looked at, which does not override this.
        if state.targets.len() == 1 {
            let message = format!("target {name} is the only one and cannot be removed");
            return Err(Refusal::new(code::TARGET_IN_USE, message, "add another target first"));
        }
        let removal = |state: &mut State| {
            // A later target of this name must not inherit the mappings.
            state.presentations.retain(|record| record.target != *name);
            state.targets.remove(name);
        };
        if !request.force && state.presentations.iter().any(|presentation| presentation.target == *name) {
            let message = format!("volumes are presented through target {name}");
            let refusal = Refusal::new(code::TARGET_IN_USE, message, "remove the presentations first");
            return Err(self.access.in_use(refusal, removal).await);
        }
        self.access.commit(&turn, Confirmation::forced(request.force), removal).await
    }
}
