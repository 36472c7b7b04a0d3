//! Status of the array: one consistent look at everything ([`Snapshot`]) and all problems in it. The status,
//! the alerts, the findings of `doctor`, the metrics and the exit code of `status --check` all derive from the
//! same list of conditions.

mod conditions;
mod problems;

pub use conditions::{Condition, Conditions};
pub(crate) use problems::{of_stalled, spare_failures};

use crate::access::Access;
use crate::change::disks::Disks;
use crate::change::pools::Pools;
use crate::change::portals::Portals;
use crate::change::volumes::Volumes;
use crate::core::Core;
use crate::isns::IsnsRegistration;
use crate::memory::Memory;
use crate::notices::Notices;
use crate::refused::RefusedLogins;
use crate::sessions::Sessions;
use model::{EngineReport, Order, PoolReport, Problem, Refusal, Severity, Size, StatusReport};
use problems::of_drained;
use std::sync::Arc;

/// The status of the array: problems, conditions, findings.
pub struct Status {
    pub(crate) core: Arc<Core>,
    pub(crate) access: Arc<Access>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) disks: Arc<Disks>,
    pub(crate) pools: Arc<Pools>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) portals: Arc<Portals>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) refused_logins: Arc<RefusedLogins>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) isns: Arc<IsnsRegistration>,
}

impl Status {
    /// Reports the status of the whole array.
    ///
    /// *Errors*: the data plane is gone.
    pub async fn report(&self) -> Result<StatusReport, Refusal> {
        let engine = self.core.engine.status(Order::Status).await?;
        let snapshot = self.snapshot().await?;
        let problems: Vec<Problem> = snapshot.conditions().into_iter().map(|condition| condition.problem).collect();
        // A drained portal was chosen by an operator: shown, without effect on the severity.
        let notices: Vec<Problem> =
            snapshot.portals.iter().filter(|portal| portal.policy.drained).map(of_drained).collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let pools = &snapshot.pools;
        let total = |amount: fn(&PoolReport) -> Size| Size::new(pools.iter().map(|pool| amount(pool).bytes()).sum());
        Ok(StatusReport {
            node: self.core.settings.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // Conditions are sorted, so the first problem is the worst.
            severity: problems.first().map_or(Severity::Good, |problem| problem.severity),
            summary: summary(&problems, &notices),
            pools: count(pools.len()),
            size: total(|pool| pool.size),
            used: total(|pool| pool.used),
            disks: count(snapshot.disks.len()),
            volumes: count(snapshot.volumes),
            hosts: count(self.core.state().hosts.len()),
            engine: EngineReport { ..engine },
            memory: self.memory.report(),
            confinement: self.core.measures(),
            problems,
            notices,
        })
    }
}

/// Summarizes in one sentence: all good, or the worst problem with its action.
fn summary(problems: &[Problem], notices: &[Problem]) -> String {
    match problems {
        [] if notices.is_empty() => "All good".to_owned(),
        [] => format!("All good, but {}", summary(notices, &[])),
        [only] => format!("{} is {}: {}", only.subject, only.state, only.action),
        [worst, rest @ ..] => {
            format!("{} is {}: {} ({} more below)", worst.subject, worst.state, worst.action, rest.len())
        }
    }
}

#[cfg(test)]
mod tests;
