//! Task management: to every unit that the function is about, and one answer when all have done it.

use super::Connection;
use crate::access::LunEntry;
use crate::iscsi_shard::IscsiShard;
use crate::nexus::SessionId;
use crate::registry::{Entry, Notice};
use crate::scsi_unit::{Done, Ran, ScsiUnit};
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

/// A function that is done.
pub(super) struct Managed {
    pub(super) task: TaskId,
    pub(super) outcome: TaskFunctionOutcome,
}

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<ScsiUnit<W>>, Ran) -> F,
    F: Future<Output = Done>,
{
    pub(super) fn manage(&mut self, request: TaskManagement) {
        let Some(session) = self.session.as_mut() else { return };
        let nexus = session.nexus();
        let one = session.find(request.lun.0).map(|reach| vec![reach.entry]);
        let found = match request.function {
            TaskFunction::AbortTask => {
                request.referenced.ok_or(TaskFunctionOutcome::TaskDoesNotExist).and_then(|task| {
                    let units = one.ok_or(TaskFunctionOutcome::LunDoesNotExist)?;
                    Ok((units, scsi::TaskManagement::AbortTask(TaskTag(task.bits()))))
                })
            }
            TaskFunction::AbortTaskSet => about(one, scsi::TaskManagement::AbortTaskSet),
            TaskFunction::ClearTaskSet => about(one, scsi::TaskManagement::ClearTaskSet),
            TaskFunction::LogicalUnitReset => about(one, scsi::TaskManagement::LogicalUnitReset),
            TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => {
                Ok((session.units(), scsi::TaskManagement::TargetReset))
            }
            TaskFunction::TaskReassign => Err(TaskFunctionOutcome::ReassignmentNotSupported),
            _ => Err(TaskFunctionOutcome::FunctionNotSupported),
        };
        match found {
            Err(outcome) => self.machine.respond_task_management(request.task, outcome),
            Ok((units, function)) => {
                let (shard, back) = (self.shard.clone(), self.manage_back.clone());
                self.managing += 1;
                let world = shard.world.clone();
                let ends = (request.function == TaskFunction::TargetColdReset)
                    .then(|| (session.id, session.initiator().to_owned(), session.target().to_owned()));
                begin(&world, async move {
                    let reset: BTreeSet<VolumeId> = units.iter().map(|entry| entry.unit).collect();
                    let outcome = manage_all(&shard, units, nexus, function).await;
                    if let (Some((id, initiator, target)), TaskFunctionOutcome::Complete) = (ends, outcome) {
                        tracing::warn!(
                            initiator,
                            target,
                            "a host resets the target: the sessions that share its volumes end"
                        );
                        end_others(&shard, id, &target, &reset);
                    }
                    // A connection stays until its functions are done, so somebody listens.
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

/// The other sessions of the target that see one of these units end, as when the power goes. What they had begun is over,
/// and whoever sees none of them is none of the asking host's business.
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
        // Nobody waits for its end: two that reset at the same time would wait for each other.
        let (gone, _) = mailbox::channel();
        // One that is just ending need not be told.
        let _ = entry.notices.send(Notice::Close { gone });
    }
}

/// Begins with all units at once: commands that come behind the function are not affected by it.
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
        // It is gone, and nothing of it runs: only a single task may be asked for that is not there.
        None if matches!(function, scsi::TaskManagement::AbortTask(_)) => ManagementOutcome::TaskDoesNotExist,
        None => ManagementOutcome::Complete,
    }
}
