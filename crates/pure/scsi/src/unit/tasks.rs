//! The tasks of a unit as a whole: task management functions, and what others hear of them.

use super::LogicalUnit;
use crate::command::{ManagementOutcome, NexusId, TaskManagement};
use crate::nexus::UnitAttention;
use crate::task_set::{Aborted, Affected, TaskStanding};
use block::BlockDevice;

impl<D: BlockDevice> LogicalUnit<D> {
    /// The tasks that have no answer yet. Those that end at once never are tasks.
    #[must_use]
    pub fn standing_tasks(&self) -> Vec<TaskStanding> {
        self.tasks.standing()
    }

    /// Carries out a task management function for `nexus`. When it returns, none of the affected tasks runs any more. Those
    /// of `nexus` are not answered; those of others end with TASK ABORTED, or without an answer and 2F/00 where TAS is zero.
    ///
    /// Tasks that have begun are waited for, not torn out of the device, so that nothing that they write
    /// lands later. Their futures must be polled meanwhile.
    pub async fn manage(&self, nexus: NexusId, function: TaskManagement) -> ManagementOutcome {
        let affected = match function {
            TaskManagement::AbortTask(tag) => Affected::One(nexus, tag),
            TaskManagement::AbortTaskSet => Affected::OfNexus(nexus),
            TaskManagement::ClearTaskSet | TaskManagement::LogicalUnitReset | TaskManagement::TargetReset => {
                Affected::All
            }
        };
        let tells = self.mode.get().task_aborted_status;
        let mut cleared = self.tasks.nexuses();
        if matches!(affected, Affected::All) {
            // Its own that wait were dropped by whoever received them.
            cleared.extend(self.nexuses.clear_incoming(tells, |other| other != nexus));
        }
        let found = self.tasks.abort(affected, |one| self.aborted_by(nexus, one));
        match function {
            TaskManagement::AbortTask(_) if !found => return ManagementOutcome::TaskDoesNotExist,
            TaskManagement::AbortTask(_) | TaskManagement::AbortTaskSet => {}
            TaskManagement::ClearTaskSet => self.tell_of_cleared(cleared.into_iter().filter(|&other| other != nexus)),
            TaskManagement::LogicalUnitReset | TaskManagement::TargetReset => self.reset(),
        }
        self.tasks.ended(affected).await;
        ManagementOutcome::Complete
    }

    /// How a task of `owner` ends that `nexus` aborts.
    ///
    /// Source: SPC-4, TAS in the control mode page.
    pub(super) fn aborted_by(&self, nexus: NexusId, owner: NexusId) -> Aborted {
        let is_told = owner != nexus && self.mode.get().task_aborted_status;
        if is_told { Aborted::Told } else { Aborted::Unanswered }
    }

    /// Tasks of `others` were cleared. With TAS each of them is answered; without, a unit attention is all that they hear.
    ///
    /// Source: SAM-5, COMMANDS CLEARED BY ANOTHER INITIATOR.
    pub(super) fn tell_of_cleared(&self, others: impl Iterator<Item = NexusId>) {
        if !self.mode.get().task_aborted_status {
            others.for_each(|other| self.nexuses.establish(other, UnitAttention::CommandsCleared));
        }
    }

    /// LOGICAL UNIT RESET (SAM-5): the unit is as it came up, but for what survives power loss.
    fn reset(&self) {
        self.mode.reset();
        self.readiness.reset();
        self.reservations.set_reserved_by(None);
        self.nexuses.establish_for_all(UnitAttention::Reset);
    }
}
