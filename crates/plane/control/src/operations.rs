//! Long-running operations, derived from the reports of pools, volumes and snapshots.
//!
//! Nothing is stored here, so an operation is visible whatever started it, and after a restart.

use crate::EventFilter;
use crate::change::copies::Copies;
use crate::change::pools::Pools;
use crate::change::scrubs::Scrubs;
use crate::change::snapshots::Snapshots;
use crate::change::volumes::Volumes;
use crate::reconciler::Reconciler;
use model::{
    Event, EventCode, GroupReport, Name, OperationId, OperationKind, OperationReport, PoolReport, Progress, Refusal,
    SanitizeReport, ScrubState, SnapshotReport, SnapshotState, Subject, SubjectKind, Timestamp, VolumeName,
    VolumeReport, code, event,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Start times of operations, taken from the event log: by the starting event and its subject.
type StartTimes = BTreeMap<(EventCode, Subject), Timestamp>;

/// Long-running operations: rebuilds, scrubs, copies.
pub struct Operations {
    pub(crate) pools: Arc<Pools>,
    pub(crate) scrubs: Arc<Scrubs>,
    pub(crate) volumes: Arc<Volumes>,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) copies: Arc<Copies>,
    pub(crate) reconciler: Arc<Reconciler>,
}

impl Operations {
    /// Lists all running operations.
    pub async fn list(&self) -> Result<Vec<OperationReport>, Refusal> {
        let (pools, volumes, snapshots) =
            (self.pools.list().await?, self.volumes.list().await?, self.snapshots.list().await?);
        // Start times come from the event log, because the reports carry none.
        let begins = begins(self.reconciler.events(EventFilter::default()).await);
        let of_pools = pools.iter().flat_map(|pool| of_pool(pool, &begins));
        let of_volumes = volumes.iter().flat_map(|volume| of_volume(volume, &begins));
        let mut all: Vec<_> = of_pools.chain(of_volumes).chain(snapshots.iter().filter_map(of_snapshot)).collect();
        // Ordered by ID, so that the list is stable between calls.
        all.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(all)
    }

    /// Returns one operation.
    ///
    /// *Errors*: it has ended, or never existed.
    pub async fn report(&self, id: &OperationId) -> Result<OperationReport, Refusal> {
        self.list().await?.into_iter().find(|operation| operation.id == *id).ok_or_else(|| {
            let message = format!("operation {id} is not running");
            Refusal::new(code::OPERATION_UNKNOWN, message, "it may have finished; see blockyard operation list")
        })
    }

    /// Cancels the operation.
    ///
    /// *Errors*: it is not running, or cannot be cancelled.
    pub async fn cancel(&self, id: &OperationId) -> Result<(), Refusal> {
        // Distinguishes an operation that has ended from one that cannot be canceled.
        let operation = self.report(id).await?;
        match id.kind {
            OperationKind::Scrub => self.scrubs.stop(&id.of.parse::<Name>()?).await,
            OperationKind::Copy => self.copies.cancel(&id.of.parse::<VolumeName>()?).await,
            kind => {
                let message = format!("{} cannot be canceled", operation.description);
                Err(Refusal::new(code::OPERATION_FIXED, message, instead(kind, &operation.subject)))
            }
        }
    }
}

/// Returns the alternative to cancelling it.
fn instead(kind: OperationKind, subject: &Subject) -> String {
    match kind {
        OperationKind::Rebuild | OperationKind::Resync | OperationKind::Reshape => {
            format!("pause it with blockyard pool pause {}", subject.name)
        }
        _ => "wait for its end".to_owned(),
    }
}

fn begins(events: Vec<Event>) -> StartTimes {
    // Events come oldest first, so the latest start of each wins.
    events.into_iter().map(|event| ((event.code, event.subject), event.time)).collect()
}

fn of_pool(pool: &PoolReport, begins: &StartTimes) -> Vec<OperationReport> {
    let subject = Subject::pool(&pool.name);
    let groups = pool.groups.iter().map(|group| (group.number.to_string(), group));
    // The log is a group of its own, with its own rebuild and resync.
    let log = pool.log.iter().map(|log| ("log".to_owned(), &log.group));
    let mut all: Vec<OperationReport> =
        groups.chain(log).flat_map(|(label, group)| of_group(pool, &label, group, begins)).collect();
    if let Some(scrub) = pool.scrub.as_ref().filter(|scrub| scrub.state.runs()) {
        all.push(OperationReport {
            started: Some(scrub.started),
            is_running: scrub.state == ScrubState::Running && !pool.policy.repair.paused,
            cancellable: true,
            ..under_way(OperationId::of(OperationKind::Scrub, &pool.name), subject, "the scrub of", scrub.progress)
        });
    }
    all
}

fn of_group(pool: &PoolReport, label: &str, group: &GroupReport, begins: &StartTimes) -> Vec<OperationReport> {
    let work = [
        (OperationKind::Rebuild, "the rebuild of", group.rebuild, event::REBUILD_BEGAN),
        (OperationKind::Resync, "the resync of", group.resync, event::RESYNC_BEGAN),
        (OperationKind::Reshape, "the reshape of", group.reshape, event::RESHAPE_BEGAN),
    ];
    let report = |(kind, what, progress, began): (_, &str, Option<Progress>, _)| {
        let subject = Subject::pool(&pool.name);
        // Events name the pool, not the group, so all groups of a pool share the start.
        let begun = begins.get(&(began, subject.clone())).copied();
        let id = OperationId::of_group(kind, &pool.name, label);
        let is_running = !pool.policy.repair.paused;
        progress.map(|progress| OperationReport {
            started: begun,
            is_running,
            ..under_way(id, subject, what, Some(progress))
        })
    };
    work.into_iter().filter_map(report).collect()
}

fn of_volume(volume: &VolumeReport, begins: &StartTimes) -> Vec<OperationReport> {
    let subject = Subject::new(SubjectKind::Volume, &volume.name);
    let begun = |began: EventCode| begins.get(&(began, subject.clone())).copied();
    let of =
        |kind, what: &str, progress| under_way(OperationId::of(kind, &volume.name), subject.clone(), what, progress);
    let copy = volume.copy.as_ref().map(|copy| OperationReport {
        started: begun(event::COPY_BEGAN),
        cancellable: true,
        ..of(OperationKind::Copy, &format!("the copy of {} to", copy.source), Some(copy.progress))
    });
    let cleaning = volume.space.as_ref().and_then(|space| space.cleaning);
    let cleaning = cleaning.map(|progress| of(OperationKind::Cleaning, "freeing the space of", Some(progress)));
    let sanitize = match volume.sanitize {
        Some(SanitizeReport::Running { percent }) => Some(OperationReport {
            started: begun(event::SANITIZE_BEGAN),
            percent: Some(percent),
            ..of(OperationKind::Sanitize, "sanitizing", None)
        }),
        Some(SanitizeReport::Failed) | None => None,
    };
    copy.into_iter().chain(cleaning).chain(sanitize).collect()
}

fn of_snapshot(snapshot: &SnapshotReport) -> Option<OperationReport> {
    let SnapshotState::Deleting { percent } = snapshot.state else { return None };
    let subject = Subject::new(SubjectKind::Volume, &snapshot.name.volume);
    let id = OperationId::of(OperationKind::Deletion, &snapshot.name);
    let what = format!("the deletion of snapshot {} of", snapshot.name.snapshot);
    Some(OperationReport { percent: Some(percent), ..under_way(id, subject, &what, None) })
}

fn under_way(id: OperationId, subject: Subject, what: &str, progress: Option<Progress>) -> OperationReport {
    OperationReport {
        kind: id.kind,
        id,
        description: format!("{what} {subject}"),
        subject,
        percent: progress.map(|progress| progress.percent()),
        progress,
        started: None,
        is_running: true,
        cancellable: false,
    }
}
