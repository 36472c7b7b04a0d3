//! RESERVE and RELEASE, (6) and (10), of SPC-2, with the exceptions for those who hold a persistent reservation (CRH).
//!
//! Such a reservation ends with the session that made it and with a reset, and nothing of it is kept.

use super::Reservations;
use crate::command::{NexusId, Status};
use crate::failure::Failure;
use crate::nexus::Nexuses;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::Rope;

impl Reservations {
    pub(crate) fn reserve(&self, nexus: NexusId, nexuses: &Nexuses) -> Result<Rope, Failure> {
        if nexuses.is_read_only(nexus) {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        if self.has_registrations_that_allow(nexus, nexuses)? {
            return Ok(Rope::new());
        }
        match self.reserved_by() {
            Some(holder) if holder != nexus => Err(Status::ReservationConflict.into()),
            _ => {
                self.set_reserved_by(Some(nexus));
                Ok(Rope::new())
            }
        }
    }

    /// Who has not reserved the unit releases nothing, and that is GOOD.
    pub(crate) fn release(&self, nexus: NexusId, nexuses: &Nexuses) -> Result<Rope, Failure> {
        if !self.has_registrations_that_allow(nexus, nexuses)? {
            self.release_of(nexus);
        }
        Ok(Rope::new())
    }

    /// `nexus` has not reserved the unit any more.
    pub(crate) fn release_of(&self, nexus: NexusId) {
        if self.reserved_by() == Some(nexus) {
            self.set_reserved_by(None);
        }
    }

    /// False without registrations: RESERVE and RELEASE do what they say. True where they do nothing, and that is GOOD.
    ///
    /// *Errors*: conflict. *Source*: SPC-4, "exceptions to SPC-2 RESERVE and RELEASE behavior".
    fn has_registrations_that_allow(&self, nexus: NexusId, nexuses: &Nexuses) -> Result<bool, Failure> {
        let state = self.state();
        if state.registrations.is_empty() {
            return Ok(false);
        }
        let standing = nexuses.standing(nexus);
        let is_allowed = state.held.as_ref().is_some_and(|held| standing.shares(held.kind));
        if is_allowed { Ok(true) } else { Err(Status::ReservationConflict.into()) }
    }
}
