//! Task management: affected tasks of a function, and the order of its response behind theirs.
//!
//! On a single connection the order of the bytes stands for the acknowledgement that RFC 7143 §4.2.3 requires: PDUs
//! sent for an affected task arrive before the response to the function, and none are sent after it. Outstanding R2Ts
//! are not awaited: initiators stop answering them once they abort, and data that they send nevertheless is discarded.

use super::CloseReason;
use super::event::{Event, TaskManagement};
use super::full_feature::{FullFeature, OrderedAction};
use super::link::Link;
use super::task::{Kind, Progress, Task};
use crate::Violation;
use crate::pdu::{
    InitiatorTaskTag, SegmentLengths, TaskFunction, TaskFunctionOutcome, TaskManagementRequest, TaskManagementResponse,
};
use crate::session::TaskId;
use shard::Time;

impl FullFeature {
    pub(crate) fn handle_task_management(
        &mut self,
        link: &mut Link,
        request: TaskManagementRequest,
    ) -> Result<(), Violation> {
        // As for commands: outside the window a request is silently ignored (RFC 7143 §4.2.2.1).
        if !self.in_window(request.immediate, request.cmd_sn) {
            return Ok(());
        }
        if self.is_discovery() {
            return Err(Violation::OnlyDiscovery);
        }
        self.session.admit(request.initiator_task_tag, request.immediate)?;
        let id = self.session.insert(Task {
            tag: request.initiator_task_tag,
            lun: request.lun,
            cmd_sn: request.cmd_sn,
            slot: Some(link.slot),
            immediate: request.immediate,
            // The age of these tasks is never queried.
            since: Time::default(),
            affected_by: Vec::new(),
            kind: Kind::TaskManagement(request.function),
        });
        // Commands on other connections may still be in transit and belong to the affected ones.
        if self.is_early(&request) {
            self.cross_connection.defer(id, request);
            return Ok(());
        }
        let turn = OrderedAction::TaskManagement(id, request);
        self.run_in_cmdsn_order(link, request.immediate, request.cmd_sn, turn);
        Ok(())
    }

    /// Executes a function whose turn has come.
    pub(crate) fn start_task_management(&mut self, link: &mut Link, id: TaskId, request: &TaskManagementRequest) {
        use TaskFunction as F;
        match request.function {
            F::AbortTask => self.abort_task(link, id, request),
            F::AbortTaskSet | F::ClearTaskSet | F::LogicalUnitReset | F::TargetWarmReset | F::TargetColdReset => {
                self.mark_affected(id, request);
                // Removing commands may permit those that waited for them.
                self.deliver();
                self.ask(id, request, None);
            }
            // Done behind this PDU, because a reassignment needs the links of two connections.
            F::TaskReassign if self.keeps_tasks() => self.cross_connection.moves.push((id, *request)),
            F::TaskReassign => {
                self.respond_task_management(link, id, TaskFunctionOutcome::ReassignmentNotSupported);
            }
            // ACA is not supported (NormACA is zero), and the functions of iSCSIProtocolLevel 2 were not negotiated.
            F::ClearAca | F::QueryTask | F::QueryTaskSet | F::NexusReset | F::QueryAsynchronousEvent | F::Other(_) => {
                self.respond_task_management(link, id, TaskFunctionOutcome::FunctionNotSupported);
            }
        }
    }

    /// Ends the tasks affected by a function that has completed. Otherwise they continue, unless another function under
    /// way affects them, too.
    pub(crate) fn finish_affected(&mut self, id: TaskId, outcome: TaskFunctionOutcome) {
        for doomed in self.session.matching(|task| task.affected_by.contains(&id)) {
            // Running commands end only after the driver has confirmed the function.
            if outcome == TaskFunctionOutcome::Complete {
                self.remove(doomed);
            } else if let Some(task) = self.session.find_mut(doomed) {
                task.affected_by.retain(|&function| function != id);
            }
        }
        self.deliver();
    }

    /// Sends the response to a function, after [`FullFeature::finish_affected`].
    pub(crate) fn respond_task_management(&mut self, link: &mut Link, id: TaskId, outcome: TaskFunctionOutcome) {
        let Some(task) = self.session.find(id) else { return };
        let Kind::TaskManagement(function) = task.kind else { return };
        let tag = task.tag;
        // Removed before the PDU is built, so that its MaxCmdSN counts the place as free.
        self.remove(id);
        let (exp_cmd_sn, max_cmd_sn) = self.cmd_sns();
        let stat_sn = link.take_stat_sn();
        let response = TaskManagementResponse { outcome, initiator_task_tag: tag, stat_sn, exp_cmd_sn, max_cmd_sn };
        let mut header = [0; 48];
        response.emit(SegmentLengths::NONE, &mut header);
        link.push_status(&header, &[]);
        // RFC 7143 §11.5.1: a cold reset also terminates the session.
        if function == TaskFunction::TargetColdReset && outcome == TaskFunctionOutcome::Complete {
            self.end_session(link, CloseReason::ColdReset);
        }
    }

    /// Executes ABORT TASK.
    ///
    /// Source: RFC 7143 §11.5.1, §11.5.5, §11.6.1.
    fn abort_task(&mut self, link: &mut Link, id: TaskId, request: &TaskManagementRequest) {
        let Some(referenced) = self.find_command(request.referenced_task_tag, request) else {
            let outcome = self.abort_missing(link, request);
            return self.respond_task_management(link, id, outcome);
        };
        let Some(task) = self.session.find_mut(referenced) else { return };
        // Only the driver can stop a command that it is executing; all other states end here.
        if task.command().is_some_and(|command| command.progress == Progress::Running) {
            // Besides a function under way that affects the task already: the first of them that completes ends it.
            task.affected_by.push(id);
            return self.ask(id, request, Some(referenced));
        }
        self.remove(referenced);
        self.deliver();
        self.respond_task_management(link, id, TaskFunctionOutcome::Complete);
    }

    /// Handles ABORT TASK for an unknown command: one whose CmdSN lies in the window counts as received, and will never
    /// be executed.
    fn abort_missing(&mut self, link: &mut Link, request: &TaskManagementRequest) -> TaskFunctionOutcome {
        let window = &self.session.window;
        let expected = window.expected();
        // The referenced command may still be in transit on another connection.
        let ahead = request.ref_cmd_sn == expected || expected.precedes(request.ref_cmd_sn);
        if ahead && request.ref_cmd_sn.precedes(request.cmd_sn) && window.is_open_for(request.ref_cmd_sn) {
            // RFC 7143 §11.5.5: the abort consumes the CmdSN of the missing command, so the window does not stall.
            self.run_in_cmdsn_order(link, false, request.ref_cmd_sn, OrderedAction::Pass);
            return TaskFunctionOutcome::Complete;
        }
        TaskFunctionOutcome::TaskDoesNotExist
    }

    fn find_command(&self, tag: InitiatorTaskTag, request: &TaskManagementRequest) -> Option<TaskId> {
        let id = self.session.by_tag(tag)?;
        let task = self.session.find(id)?;
        // A tag that is in use by a task of another unit is not the referenced task.
        (task.lun == request.lun && task.command().is_some()).then_some(id)
    }

    /// Removes the affected commands that have not been delivered, and marks those that have.
    fn mark_affected(&mut self, id: TaskId, request: &TaskManagementRequest) {
        let everywhere = matches!(request.function, TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset);
        let affected = self.session.matching(|task| {
            task.command().is_some()
                && (everywhere || task.lun == request.lun)
                // Commands with a later CmdSN than the function are not affected (RFC 7143 §4.2.3.3).
                && (task.immediate || task.cmd_sn.precedes(request.cmd_sn))
        });
        for affected in affected {
            let Some(task) = self.session.find_mut(affected) else { continue };
            match task.command().map(|command| command.progress) {
                Some(Progress::Running | Progress::Responding) => {
                    // Besides other functions: one of them that fails must not release a task that this one ends.
                    task.affected_by.push(id);
                }
                _ => {
                    self.remove(affected);
                }
            }
        }
    }

    fn ask(&mut self, task: TaskId, request: &TaskManagementRequest, referenced: Option<TaskId>) {
        let (function, lun) = (request.function, request.lun);
        self.events.push_back(Event::TaskManagement(TaskManagement { task, function, lun, referenced }));
    }
}
