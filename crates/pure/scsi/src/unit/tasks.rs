//! Task management functions and the unit attentions that they cause.

use super::LogicalUnit;
use crate::command::{ManagementOutcome, NexusId, TaskManagement};
use crate::nexus::UnitAttention;
use crate::task_set::{Aborted, Affected, TaskSnapshot};
use block::BlockDevice;

impl<D: BlockDevice> LogicalUnit<D> {
    /// Lists the tasks that have not completed. Commands of the fast path never become tasks.
    #[must_use]
    pub fn task_snapshots(&self) -> Vec<TaskSnapshot> {
        self.tasks.snapshots()
    }

    /// Executes a task management function for `nexus`. When it returns, no affected task is running. Tasks of `nexus`
    /// are not answered. Tasks of other nexuses end with TASK ABORTED, or without an answer and with 2F/00 where TAS is
    /// zero.
    ///
    /// Running tasks are awaited and not torn from the device, so that none of their writes lands later. The caller
    /// must poll their futures meanwhile.
    pub async fn manage(&self, nexus: NexusId, function: TaskManagement) -> ManagementOutcome {
        let affected = match function {
            TaskManagement::AbortTask(tag) => Affected::One(nexus, tag),
            TaskManagement::AbortTaskSet => Affected::OfNexus(nexus),
            TaskManagement::ClearTaskSet | TaskManagement::LogicalUnitReset | TaskManagement::TargetReset => {
                Affected::All
            }
        };
        let tells = self.mode.get().task_aborted_status;
        // Listed before the abort, because aborted tasks may leave at once.
        let mut cleared = self.tasks.nexuses();
        if matches!(affected, Affected::All) {
            // The transport has already dropped the waiting commands of the nexus itself.
            cleared.extend(self.nexuses.clear_pending_data(tells, |other| other != nexus));
        }
        let found = self.tasks.abort(affected, |one| self.aborted_by(nexus, one));
        match function {
            TaskManagement::AbortTask(_) if !found => return ManagementOutcome::TaskDoesNotExist,
            TaskManagement::AbortTask(_) | TaskManagement::AbortTaskSet => {}
            TaskManagement::ClearTaskSet => {
                self.report_cleared_commands(cleared.into_iter().filter(|&other| other != nexus))
            }
            TaskManagement::LogicalUnitReset | TaskManagement::TargetReset => self.reset(),
        }
        // The function completes only after the last affected task has ended, so that no late write follows its
        // response.
        self.tasks.ended(affected).await;
        ManagementOutcome::Complete
    }

    /// Returns how a task of `owner` ends when `nexus` aborts it.
    ///
    /// Source: SPC-4, TAS in the control mode page.
    pub(super) fn aborted_by(&self, nexus: NexusId, owner: NexusId) -> Aborted {
        let is_told = owner != nexus && self.mode.get().task_aborted_status;
        if is_told { Aborted::WithStatus } else { Aborted::Unanswered }
    }

    /// Establishes 2F/00 for `others`, whose tasks were cleared, where TAS is zero. With TAS each task is answered
    /// instead.
    ///
    /// Source: SAM-5, COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub(super) fn report_cleared_commands(&self, others: impl Iterator<Item = NexusId>) {
        if !self.mode.get().task_aborted_status {
            others.for_each(|other| self.nexuses.establish(other, UnitAttention::CommandsCleared));
        }
    }

    /// LOGICAL UNIT RESET (SAM-5): returns to the state after power on; persistent state stays.
    fn reset(&self) {
        self.mode.reset();
        self.readiness.reset();
        // A reservation of RESERVE does not survive a reset (SPC-2).
        self.reservations.set_reserved_by(None);
        self.nexuses.establish_for_all(UnitAttention::Reset);
    }
}
