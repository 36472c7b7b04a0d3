//! Task management: to every unit that the function is about, and one answer when all have done it.

use super::Connection;
use crate::access::LunEntry;
use crate::seat::{Seat, begin};
use crate::unit::{Done, Ran, Unit};
use futures_util::future::join_all;
use iscsi::TaskId;
use iscsi::pdu::{TaskFunction, TaskFunctionOutcome};
use iscsi::target::TaskManagement;
use model::VolumeId;
use scsi::{ManagementOutcome, NexusId, TaskTag};
use shard::World;
use std::future::Future;
use std::rc::Rc;

/// A function that is done.
pub(super) struct Managed {
    pub(super) task: TaskId,
    pub(super) outcome: TaskFunctionOutcome,
}

impl<W, S, F> Connection<W, S, F>
where
    W: World,
    S: Fn(Rc<Unit<W>>, Ran) -> F,
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
                let (seat, back) = (self.seat.clone(), self.manage_back.clone());
                self.managing += 1;
                let world = seat.world.clone();
                begin(&world, async move {
                    let outcome = manage_all(&seat, units, nexus, function).await;
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

/// Begins with all units at once: commands that come behind the function are not affected by it.
async fn manage_all<W: World>(
    seat: &Rc<Seat<W>>,
    units: Vec<LunEntry>,
    nexus: NexusId,
    function: scsi::TaskManagement,
) -> TaskFunctionOutcome {
    let one = async |LunEntry { unit, home, .. }: LunEntry| {
        if home == seat.index {
            return Some(manage_one(seat, unit, nexus, function).await);
        }
        seat.call(home, move |seat| async move { manage_one(&seat, unit, nexus, function).await }).await
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
    seat: &Seat<W>,
    unit: VolumeId,
    nexus: NexusId,
    function: scsi::TaskManagement,
) -> ManagementOutcome {
    match seat.unit(unit) {
        Some(unit) => unit.manage(nexus, function).await,
        None => ManagementOutcome::TaskDoesNotExist,
    }
}
