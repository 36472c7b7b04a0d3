//! Reservations of a logical unit (SPC-4, SPC-2) and the check of commands against them.
//!
//! `state.rs` is the transition of each service action; `out.rs` parses its parameter list; `report.rs` answers
//! PERSISTENT RESERVE IN. The tables of conflicts are in `conflict.rs`. The unit persists a change, installs it and
//! establishes unit attentions: nothing here waits.

mod out;
mod report;
mod reserve;
mod state;
mod stored;

pub(crate) use out::check_list_length;

use crate::cdb::Cdb;
use crate::command::{NexusId, Status};
use crate::conflict::{Access, ReservationRole, ReservationType};
use crate::nexus::{InitiatorPort, ItNexus, Nexuses};
pub(crate) use out::{ActionContext, ends_tasks};
pub(crate) use state::{Change, State};
use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;

/// Reservations of one logical unit.
#[derive(Debug, Default)]
pub(crate) struct Reservations {
    state: RefCell<State>,
    /// Holder of an SPC-2 reservation, made with RESERVE (6) or (10).
    reserved_by: Cell<Option<NexusId>>,
    /// False while there is no reservation: every command reads this cell and nothing more then.
    restricts: Cell<bool>,
}

/// Reservation status of a logical unit for management views.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReservationStatus {
    /// PRgeneration.
    pub generation: u32,
    /// True when registrations and reservation survive power loss (APTPL).
    pub persists: bool,
    /// Type of the persistent reservation, if there is one.
    pub kind: Option<ReservationType>,
    /// Registered nexuses.
    pub registrations: Vec<RegistrationStatus>,
    /// Holder of an SPC-2 reservation (RESERVE), and the target that it used.
    pub reserved_by: Option<(InitiatorPort, String)>,
}

/// Registration for management views.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistrationStatus {
    /// Registered initiator port.
    pub initiator: InitiatorPort,
    /// Target through which it is registered.
    pub target_name: String,
    /// Reservation key.
    pub key: u64,
    /// True for a holder of the persistent reservation.
    pub is_holder: bool,
}

impl Reservations {
    /// Registrations and the persistent reservation.
    pub(crate) fn state(&self) -> Ref<'_, State> {
        self.state.borrow()
    }

    pub(crate) fn install(&self, state: State) {
        state.assert_sound();
        // RESERVE has no effect while registrations exist (CRH), and PERSISTENT RESERVE OUT conflicts with a RESERVE
        // reservation.
        assert!(
            self.reserved_by.get().is_none() || state.registrations.is_empty(),
            "only one kind of reservation at a time"
        );
        self.state.replace(state);
        self.look_for_restrictions();
    }

    /// Holder of an SPC-2 reservation.
    pub(crate) fn reserved_by(&self) -> Option<NexusId> {
        self.reserved_by.get()
    }

    pub(crate) fn set_reserved_by(&self, nexus: Option<NexusId>) {
        let is_free = nexus.is_none() || self.state.borrow().registrations.is_empty();
        assert!(is_free, "RESERVE does nothing where there are registrations");
        self.reserved_by.set(nexus);
        self.look_for_restrictions();
    }

    fn look_for_restrictions(&self) {
        self.restricts.set(self.state.borrow().reservation.is_some() || self.reserved_by.get().is_some());
    }

    pub(crate) fn role(&self, nexus: &ItNexus) -> ReservationRole {
        self.state.borrow().role(nexus)
    }

    /// Returns the reservation status for management views.
    pub(crate) fn status(&self, nexuses: &Nexuses) -> ReservationStatus {
        let state = self.state();
        let registration = |(nexus, registration): (&Rc<ItNexus>, &state::Registration)| RegistrationStatus {
            initiator: nexus.initiator.clone(),
            target_name: nexus.target_name.clone(),
            key: registration.key,
            is_holder: state.role(nexus) == ReservationRole::Holder,
        };
        let names = self.reserved_by().and_then(|nexus| nexuses.names(nexus));
        ReservationStatus {
            generation: state.generation,
            persists: state.persists,
            kind: state.reservation.as_ref().map(|held| held.kind),
            registrations: state.registrations.iter().map(registration).collect(),
            reserved_by: names.map(|(nexus, _)| (nexus.initiator.clone(), nexus.target_name.clone())),
        }
    }

    /// Refuses a command of `nexus` that conflicts with a reservation.
    #[inline]
    pub(crate) fn check(&self, nexus: NexusId, access: Access, cdb: Cdb, nexuses: &Nexuses) -> Result<(), Status> {
        if self.restricts.get() { self.check_reserved(nexus, access, cdb, nexuses) } else { Ok(()) }
    }

    fn check_reserved(&self, nexus: NexusId, access: Access, cdb: Cdb, nexuses: &Nexuses) -> Result<(), Status> {
        let access = match access {
            // START with POWER CONDITION zero (SPC-4: allowed; any other START STOP UNIT conflicts).
            Access::Starts if cdb.bit(4, 0) && cdb.u8_at(4) >> 4 == 0 => Access::Persistent,
            Access::Prevents if !cdb.bit(4, 0) => Access::Persistent,
            access => access,
        };
        // The role is looked up only where the type of the reservation makes it matter.
        let is_kept_out = self.has_conflict(nexus, access, || nexuses.role(nexus));
        if is_kept_out { Err(Status::ReservationConflict) } else { Ok(()) }
    }

    /// True when a reservation conflicts with `access` of a nexus in this role.
    pub(crate) fn has_conflict(&self, nexus: NexusId, access: Access, standing: impl Fn() -> ReservationRole) -> bool {
        let is_allowed = match self.reserved_by() {
            // A RESERVE reservation excludes persistent ones, so only one of the two is in effect.
            Some(holder) => access.is_allowed_under_reserve(holder == nexus),
            None => self
                .state()
                .reservation
                .as_ref()
                .is_none_or(|held| access.is_allowed_under(held.kind) || standing().shares(held.kind)),
        };
        !is_allowed
    }
}

#[cfg(test)]
mod tests;
