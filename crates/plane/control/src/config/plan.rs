//! Plan of a document: the steps that it takes, and the effect of each on sessions.

use super::resources::{ExistingObjects, ResourceChanges};
use super::steps::{Steps, access_steps};
use super::{ApplyConfig, Document, ExternalSections, access};
use crate::config::Configuration;
use crate::impact::losses;
use crate::state::{PresentationRecord, State};
use model::{PoolReport, Refusal, SessionLoss, VolumeId, VolumeName, VolumeReport, code};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Plan of a configuration document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Plan {
    /// Steps in order; empty when nothing would change.
    pub steps: Vec<Step>,
    /// Objects that the document does not name, and that stay.
    pub kept: Vec<String>,
    /// Sessions that end or lose access, each counted once, however many steps affect it.
    #[serde(default)]
    pub sessions: u32,
    /// Sessions that end or lose access, with what they lose: `apply` is refused unless that is allowed.
    #[serde(default)]
    pub losses: Vec<SessionLoss>,
    /// Fingerprint of the array: `apply` is refused when it has changed since.
    pub fingerprint: String,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Creation, change or removal.
    pub kind: StepKind,
    /// Object of the step: `host web`.
    pub subject: String,
    /// Description of the change; empty where the kind says it all.
    pub change: String,
    /// Sessions that end or lose access.
    pub sessions: u32,
    /// Effect on these sessions, with its duration where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// The object is created.
    Create,
    /// The object is changed.
    Change,
    /// The object is removed.
    Remove,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.kind {
            StepKind::Create => '+',
            StepKind::Change => '~',
            StepKind::Remove => '-',
        };
        write!(f, "{sign} {}", self.subject)?;
        if !self.change.is_empty() {
            write!(f, ": {}", self.change)?;
        }
        let effect = self.effect.as_ref().map(|effect| format!(": {effect}")).unwrap_or_default();
        match self.sessions {
            0 => Ok(()),
            1 => write!(f, " (1 session{effect})"),
            many => write!(f, " ({many} sessions{effect})"),
        }
    }
}

/// Placeholder identity of a volume that the document creates.
const NOT_MADE: VolumeId = VolumeId::from_bytes([0; 16]);

impl Configuration {
    /// Plans the changes of a document.
    ///
    /// *Errors*: it cannot be applied.
    pub async fn plan(&self, request: &ApplyConfig, annex: &dyn ExternalSections) -> Result<Plan, Refusal> {
        self.plan_all(request, annex).await.map(|(plan, _)| plan)
    }

    pub(super) async fn plan_all(
        &self,
        request: &ApplyConfig,
        annex: &dyn ExternalSections,
    ) -> Result<(Plan, ResourceChanges), Refusal> {
        let ApplyConfig { document, prune, reuse_luns, .. } = request;
        let prune = *prune;
        if document.schema != super::document::FORM {
            let message = format!(
                "the document has schema {}, but this version reads {}",
                document.schema,
                super::document::FORM
            );
            return Err(Refusal::new(code::DOCUMENT_INVALID, message, "start it with schema = 1"));
        }
        // Read before the state: a commit in between makes the fingerprint outdated. Read after it, the fingerprint
        // would admit a plan that does not know of that commit.
        let version = self.core.store.version();
        let state = self.core.state();
        let (pools, volumes, sessions) =
            (self.pools.list().await?, self.volumes.list().await?, self.sessions.list().await?);
        let known = ExistingObjects::of(&state, &pools, &volumes);
        let (makes, mut steps) = self.plan_resources(document, &known)?;
        let mut ids: BTreeMap<VolumeName, VolumeId> = volumes.iter().map(|v| (v.name.clone(), v.id)).collect();
        // Volumes to be created take part under a placeholder identity.
        ids.extend(makes.volumes.iter().map(|name| (name.clone(), NOT_MADE)));
        let after = access::after(&state, document, &ids, &self.core.settings, prune)?;
        // LUN conflicts are found here, before any disk, pool or volume is created.
        if !reuse_luns {
            after.admit_luns(&state).map_err(|refusal| {
                // The hint of the refusal names `--force`, which a document does not have.
                let hint = "use another LUN in the document, or apply with --reuse-luns if no host uses the old \
                     number";
                Refusal::new(refusal.code, refusal.message, hint)
            })?;
        }
        // Losses are computed against the complete next state, exactly as the commit does.
        let losses = losses(&state, &after, &sessions);
        let Steps { steps: of_access, sessions } = access_steps(&state, &after, &sessions);
        steps.extend(of_access);
        let beside = annex.plan(document, prune)?;
        steps.extend(beside.steps);
        let mut kept = kept(document, &after, &pools, &volumes);
        kept.extend(beside.kept);
        // State version and the part outside the state: either change makes the plan outdated.
        let fingerprint = format!("{version}{}", beside.fingerprint);
        let sessions = u32::try_from(sessions.len()).unwrap_or(u32::MAX);
        Ok((Plan { steps, kept, sessions, losses, fingerprint }, makes))
    }
}

/// Describes the settings that differ.
pub fn changes<const N: usize>(is: &[(&str, String); N], wanted: &[(&str, String); N]) -> Option<String> {
    let different = is.iter().zip(wanted).filter(|(is, wanted)| is != wanted);
    let each: Vec<String> = different.map(|((key, is), (_, wanted))| format!("{key} {is} → {wanted}")).collect();
    (!each.is_empty()).then(|| each.join(", "))
}

/// Lists the objects that exist and that the document does not name.
fn kept(document: &Document, after: &State, pools: &[PoolReport], volumes: &[VolumeReport]) -> Vec<String> {
    let disks = after.disks.keys().filter(|name| !document.disk.contains_key(*name)).map(|name| format!("disk {name}"));
    let pools =
        pools.iter().filter(|pool| !document.pool.contains_key(&pool.name)).map(|pool| format!("pool {}", pool.name));
    let volumes = volumes.iter().filter(|volume| !document.volume.contains_key(&volume.name));
    let hosts = after.hosts.keys().filter(|name| !document.host.contains_key(*name)).map(|name| format!("host {name}"));
    let groups =
        after.groups.keys().filter(|name| !document.group.contains_key(*name)).map(|name| format!("group {name}"));
    let shown: BTreeSet<_> = document.present.iter().map(|entry| (&entry.volume, &entry.host)).collect();
    let named = |record: &&PresentationRecord| shown.contains(&(&record.volume, &record.host));
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
