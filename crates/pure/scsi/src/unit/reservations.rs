//! Changes of reservations, in this order: persist, install, establish unit attentions, abort tasks.

use super::LogicalUnit;
use crate::cdb::Cdb;
use crate::command::{NexusId, Status};
use crate::failure::Failure;
use crate::nexus::{InitiatorPort, ItNexus};
use crate::persistence::{StoreError, store_failure};
use crate::persistent_state::PersistentState;
use crate::request::Job;
use crate::reservation::{ActionContext, Change, ReservationStatus, ends_tasks};
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::task_set::{Affected, PERSISTENT_STATE_SLOT};
use block::{BlockDevice, Rope};
use std::rc::Rc;

impl<D: BlockDevice> LogicalUnit<D> {
    /// Returns the initiator port of `nexus`, or `None` when it is not attached.
    pub fn initiator(&self, nexus: NexusId) -> Option<InitiatorPort> {
        self.nexuses.names(nexus).map(|(name, _)| name.initiator.clone())
    }

    /// Returns the reservation and the registrations for management views.
    pub fn reservations(&self) -> ReservationStatus {
        self.reservations.status(&self.nexuses)
    }

    /// Clears the reservation and all registrations by order of the owner. Establishes 2A/03 for every registered
    /// nexus.
    ///
    /// *Durability*: durable when it returns. *Errors*: the store failed; nothing has changed then.
    pub async fn clear_reservations(&self) -> Result<(), StoreError> {
        let _turn = self.tasks.acquire_owner_slot(PERSISTENT_STATE_SLOT).await;
        let change = self.reservations.state().cleared(None);
        self.store_and_install(change).await?;
        // The SPC-2 reservation is not persistent, so it is dropped only after the persistent change succeeded.
        self.reservations.set_reserved_by(None);
        Ok(())
    }

    /// Executes PERSISTENT RESERVE OUT. When it returns, persistent state is durable and preempted tasks have ended.
    pub(super) async fn persistent_reserve_out(&self, job: &Job) -> Result<Rope, Failure> {
        if self.nexuses.is_read_only(job.nexus) {
            // A nexus without write access must not decide on the access of others.
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        let (cdb, data): (Cdb, _) = (job.request.cdb, job.whole_data()?);
        // A detached nexus has no port names; its tasks are aborted, so BUSY is never sent.
        let (asker, port) = self.nexuses.names(job.nexus).ok_or(Status::Busy)?;
        let place = (asker, port.relative_port);
        let asking = ActionContext { place, port: &port, nexuses: &self.nexuses, persistence: &self.persistence };
        let change = self.reservations.change_of(cdb, &data, &asking)?;
        let preempted = change.preempted.clone();
        self.store_and_install(change).await.map_err(store_failure)?;
        // PREEMPT AND ABORT: GOOD must not be sent before the last task of a preempted nexus has ended (SPC-4).
        if ends_tasks(cdb) {
            self.end_tasks_of(&preempted, job).await;
        }
        Ok(Rope::new())
    }

    /// Aborts and awaits all tasks of the preempted nexuses except `job` itself. Aborted tasks complete as described at
    /// [`LogicalUnit::manage`].
    async fn end_tasks_of(&self, preempted: &[Rc<ItNexus>], job: &Job) {
        let preempted: Vec<_> = preempted.iter().map(|nexus| (nexus.clone(), ())).collect();
        let tasks_of = |(nexus, ())| {
            // The asking nexus may preempt its own registration. Its PREEMPT AND ABORT must not wait for itself.
            if nexus == job.nexus { Affected::OthersOf(nexus, job.tag) } else { Affected::OfNexus(nexus) }
        };
        let preempted = self.nexuses.called(&preempted);
        let is_other = |one: NexusId| one != job.nexus && preempted.iter().any(|&(nexus, ())| nexus == one);
        // Commands that still await their data belong to the task set, too (SAM-5), so they are cleared before tasks.
        let mut cleared = self.nexuses.clear_pending_data(self.mode.get().task_aborted_status, is_other);
        cleared.extend(self.tasks.nexuses().into_iter().filter(|&one| is_other(one)));
        let affected: Vec<Affected> = preempted.iter().copied().map(tasks_of).collect();
        // All tasks are marked before the first wait, so that none of them can start while another is awaited.
        for &affected in &affected {
            self.tasks.abort(affected, |one| self.aborted_by(job.nexus, one));
        }
        self.report_cleared_commands(cleared.into_iter());
        for affected in affected {
            self.tasks.ended(affected).await;
        }
    }

    /// Persists the change, installs it and establishes its unit attentions. On an error nothing has changed.
    async fn store_and_install(&self, change: Change) -> Result<(), StoreError> {
        // A change of state that is not persistent (APTPL is zero before and after) needs no write to the state store.
        let is_same = change.after.emit() == self.reservations.state().emit();
        if !is_same {
            self.store(PersistentState { reservations: change.after.clone(), ..self.persistent_state() }).await?;
        }
        self.reservations.install(change.after);
        // Behind the installation, because the roles follow from the new state.
        self.nexuses.set_roles(|nexus| self.reservations.role(nexus));
        let told = self.nexuses.called(&change.attentions).into_iter();
        told.for_each(|(nexus, attention)| self.nexuses.establish(nexus, attention));
        Ok(())
    }
}
