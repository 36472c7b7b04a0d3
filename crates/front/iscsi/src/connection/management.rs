//! Task management: the function is executed on every affected unit, and answered once when all have completed.

use super::Connection;
use crate::access::LunEntry;
use crate::iscsi_shard::IscsiShard;
use crate::nexus::SessionId;
use crate::registry::{Entry, Notice};
use crate::scsi_unit::{Completed, PendingCommand, ScsiUnit};
use engine::peers::begin;
use futures_util::future::join_all;
use iscsi::TaskId;
use iscsi::pdu::{TaskFunction, TaskFunctionOutcome};
use iscsi::target::TaskManagement;
use model::VolumeId;
use scsi::{ManagementOutcome, NexusId, TaskTag};
use shard::{World, mailbox};
use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;

/// Result of a completed function.
pub(super) struct Managed {
    pub(super) task: TaskId,
    pub(super) outcome: TaskFunctionOutcome,
}

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<ScsiUnit<W>>, PendingCommand) -> F,
    F: Future<Output = Completed>,
{
    /// Starts a task management function.
    pub(super) fn manage(&mut self, request: TaskManagement) {
        let Some(session) = self.session.as_mut() else { return };
        let nexus = session.nexus();
        // Attaches the nexus if necessary, so that the function finds the unit.
        let one = session.find(request.lun.0).map(|reach| vec![reach.entry]);
        let found = match request.function {
            TaskFunction::AbortTask => {
                request.referenced.ok_or(TaskFunctionOutcome::TaskDoesNotExist).and_then(|task| {
                    let units = one.ok_or(TaskFunctionOutcome::LunDoesNotExist)?;
                    // Units know a task by the identifier that the state machine assigned, not by its initiator task
                    // tag.
                    Ok((units, scsi::TaskManagement::AbortTask(TaskTag(task.bits()))))
                })
            }
            TaskFunction::AbortTaskSet => about(one, scsi::TaskManagement::AbortTaskSet),
            TaskFunction::ClearTaskSet => about(one, scsi::TaskManagement::ClearTaskSet),
            TaskFunction::LogicalUnitReset => about(one, scsi::TaskManagement::LogicalUnitReset),
            TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => {
                // A target reset affects every unit that the session can see.
                Ok((session.units(), scsi::TaskManagement::TargetReset))
            }
            // The state machine handles task reassignment itself, so it never reaches the units.
            TaskFunction::TaskReassign => Err(TaskFunctionOutcome::ReassignmentNotSupported),
            _ => Err(TaskFunctionOutcome::FunctionNotSupported),
        };
        match found {
            Err(outcome) => self.machine.respond_task_management(request.task, outcome),
            Ok((units, function)) => {
                let (shard, back) = (self.shard.clone(), self.manage_back.clone());
                // The connection stays open until all of its functions have completed.
                self.managing += 1;
                let world = shard.world.clone();
                // Captured before the future starts, because the session may end while the function runs.
                let ends = (request.function == TaskFunction::TargetColdReset)
                    .then(|| (session.id, session.initiator().to_owned(), session.target().to_owned()));
                begin(&world, async move {
                    // The list of units is consumed by the function below.
                    let reset: BTreeSet<VolumeId> = units.iter().map(|entry| entry.unit).collect();
                    let outcome = manage_all(&shard, units, nexus, function).await;
                    if let (Some((id, initiator, target)), TaskFunctionOutcome::Complete) = (ends, outcome) {
                        tracing::warn!(
                            initiator,
                            target,
                            "target reset by a host: sessions that share its volumes are closed"
                        );
                        end_others(&shard, id, &target, &reset);
                    }
                    // The connection outlives its functions, so the receiver still exists.
                    let _ = back.send(Managed { task: request.task, outcome });
                });
            }
        }
    }
}

type About = Result<(Vec<LunEntry>, scsi::TaskManagement), TaskFunctionOutcome>;

fn about(units: Option<Vec<LunEntry>>, function: scsi::TaskManagement) -> About {
    units.map(|units| (units, function)).ok_or(TaskFunctionOutcome::LunDoesNotExist)
}

/// Closes the other sessions of the target that have access to one of the reset units, as at power loss; their commands
/// are aborted by the reset. Sessions without access to any of these units are not affected, because they do not
/// concern the requesting host.
///
/// Source: RFC 7143 §11.5.1.
fn end_others<W: World>(shard: &IscsiShard<W>, own: SessionId, target: &str, reset: &BTreeSet<VolumeId>) {
    let view = shard.access.borrow().clone();
    let Some(own_target) = view.target_of(target) else { return };
    let sees = |entry: &Entry| {
        let host = view.host_of(&entry.nexus.initiator, entry.peer.ip());
        let tag = view.policy_at(entry.portal).tag;
        host.is_some_and(|host| shard.luns(own_target, host, tag).values().any(|lun| reset.contains(&lun.unit)))
    };
    let concerns = |(id, entry): &(SessionId, Arc<Entry>)| *id != own && entry.nexus.target == target && sees(entry);
    for (_, entry) in shard.registry.sessions().into_iter().filter(concerns) {
        // The end of the sessions is not awaited: two sessions that reset each other at the same time would deadlock.
        let (gone, _) = mailbox::channel();
        // A session that is ending does not need the notice.
        let _ = entry.notices.send(Notice::Close { gone });
    }
}

/// Starts the function on all units at once, so that commands received after the function are not affected by it.
async fn manage_all<W: World>(
    shard: &Rc<IscsiShard<W>>,
    units: Vec<LunEntry>,
    nexus: NexusId,
    function: scsi::TaskManagement,
) -> TaskFunctionOutcome {
    let one = async |entry: LunEntry| {
        if entry.home == shard.index {
            return Some(manage_one(shard, entry, nexus, function).await);
        }
        shard.call(entry.home, move |shard| async move { manage_one(&shard, entry, nexus, function).await }).await
    };
    let mut outcome = TaskFunctionOutcome::Complete;
    for managed in join_all(units.into_iter().map(one)).await {
        match managed {
            Some(ManagementOutcome::Complete) => {}
            Some(ManagementOutcome::TaskDoesNotExist) => outcome = TaskFunctionOutcome::TaskDoesNotExist,
            // The shard of the unit has stopped.
            None => outcome = TaskFunctionOutcome::Rejected,
        }
    }
    outcome
}

async fn manage_one<W: World>(
    shard: &IscsiShard<W>,
    entry: LunEntry,
    nexus: NexusId,
    function: scsi::TaskManagement,
) -> ManagementOutcome {
    match shard.unit_at(&entry) {
        Some(unit) => unit.manage(nexus, function).await,
        // The unit is closed and has no tasks left: only ABORT TASK reports that its task does not exist.
        None if matches!(function, scsi::TaskManagement::AbortTask(_)) => ManagementOutcome::TaskDoesNotExist,
        None => ManagementOutcome::Complete,
    }
}
