//! Changes of reservations: what is to survive power loss does, then they hold, then others hear of them and tasks end.

use super::LogicalUnit;
use crate::cdb::Cdb;
use crate::command::{NexusId, Status};
use crate::failure::Failure;
use crate::keeper::{NotKept, keeping_failure};
use crate::kept::Kept;
use crate::nexus::{InitiatorPort, ItNexus};
use crate::request::Job;
use crate::reservation::{Asking, Change, ReservationStatus, ends_tasks};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::{Affected, TURN};
use block::{BlockDevice, Rope};
use std::rc::Rc;

impl<D: BlockDevice> LogicalUnit<D> {
    /// The initiator port from which `nexus` comes, while it is attached.
    pub fn initiator(&self, nexus: NexusId) -> Option<InitiatorPort> {
        self.nexuses.names(nexus).map(|(name, _)| name.initiator.clone())
    }

    /// Who has reserved the unit, and who is registered.
    pub fn reservations(&self) -> ReservationStatus {
        self.reservations.status(&self.nexuses)
    }

    /// Nobody has reserved the unit or is registered any more, by order of its owner; who was registered is told (2A/03).
    ///
    /// *Durability*: when it returns. *Errors*: what was kept cannot be taken back; nothing has changed then.
    pub async fn clear_reservations(&self) -> Result<(), NotKept> {
        let _turn = self.tasks.owner_turn(TURN).await;
        let change = self.reservations.state().cleared(None);
        self.keep_and_install(change).await?;
        self.reservations.set_reserved_by(None);
        Ok(())
    }

    /// Carries out PERSISTENT RESERVE OUT. What is to survive power loss does, and preempted tasks have ended, when it returns.
    pub(super) async fn persistent_reserve_out(&self, job: &Job) -> Result<Rope, Failure> {
        if self.nexuses.is_read_only(job.nexus) {
            // Who may not write does not decide who may.
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        let (cdb, data): (Cdb, _) = (job.request.cdb, job.whole_data()?);
        // It comes through a port as long as it is attached; the tasks of one that is not are aborted.
        let (asker, port) = self.nexuses.names(job.nexus).ok_or(Status::Busy)?;
        let place = (asker, port.relative_port);
        let asking = Asking { place, port: &port, nexuses: &self.nexuses, persistence: &self.persistence };
        let change = self.reservations.change_of(cdb, &data, &asking)?;
        let preempted = change.preempted.clone();
        self.keep_and_install(change).await.map_err(keeping_failure)?;
        if ends_tasks(cdb) {
            self.end_tasks_of(&preempted, job).await;
        }
        Ok(Rope::new())
    }

    /// No task of those who were preempted runs any more, but that of `job` itself; they end as [`LogicalUnit::manage`] says.
    async fn end_tasks_of(&self, preempted: &[Rc<ItNexus>], job: &Job) {
        let preempted: Vec<_> = preempted.iter().map(|nexus| (nexus.clone(), ())).collect();
        let tasks_of = |(nexus, ())| {
            if nexus == job.nexus { Affected::OthersOf(nexus, job.tag) } else { Affected::OfNexus(nexus) }
        };
        let preempted = self.nexuses.called(&preempted);
        let is_other = |one: NexusId| one != job.nexus && preempted.iter().any(|&(nexus, ())| nexus == one);
        let mut cleared = self.nexuses.clear_incoming(self.mode.get().task_aborted_status, is_other);
        cleared.extend(self.tasks.nexuses().into_iter().filter(|&one| is_other(one)));
        let affected: Vec<Affected> = preempted.iter().copied().map(tasks_of).collect();
        for &affected in &affected {
            self.tasks.abort(affected, |one| self.aborted_by(job.nexus, one));
        }
        self.tell_of_cleared(cleared.into_iter());
        for affected in affected {
            self.tasks.ended(affected).await;
        }
    }

    /// What is to survive power loss does, then the change holds, and whom it concerns hears of it.
    async fn keep_and_install(&self, change: Change) -> Result<(), NotKept> {
        let is_same = change.after.kept() == self.reservations.state().kept();
        if !is_same {
            self.keep(Kept { reservations: change.after.clone(), ..self.kept() }).await?;
        }
        self.reservations.install(change.after);
        self.nexuses.set_standings(|nexus| self.reservations.standing(nexus));
        let told = self.nexuses.called(&change.told).into_iter();
        told.for_each(|(nexus, attention)| self.nexuses.establish(nexus, attention));
        Ok(())
    }
}
