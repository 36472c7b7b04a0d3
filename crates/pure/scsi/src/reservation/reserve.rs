//! RESERVE and RELEASE, (6) and (10), of SPC-2, with the exceptions for holders of a persistent reservation (CRH).
//!
//! An SPC-2 reservation ends with the session that made it and with a reset, and is never persisted.

use super::Reservations;
use crate::command::{NexusId, Status};
use crate::failure::Failure;
use crate::nexus::Nexuses;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use block::Rope;

impl Reservations {
    pub(crate) fn reserve(&self, nexus: NexusId, nexuses: &Nexuses) -> Result<Rope, Failure> {
        // A nexus without write access must not decide on the access of others.
        if nexuses.is_read_only(nexus) {
            return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED).into());
        }
        // With registrations, RESERVE conflicts or has no effect (CRH).
        if self.has_registrations_that_allow(nexus, nexuses)? {
            return Ok(Rope::new());
        }
        match self.reserved_by() {
            Some(holder) if holder != nexus => Err(Status::ReservationConflict.into()),
            // The holder may repeat its RESERVE (SPC-2).
            _ => {
                self.set_reserved_by(Some(nexus));
                Ok(Rope::new())
            }
        }
    }

    /// Releases the reservation of `nexus`. A RELEASE by any other nexus has no effect and returns GOOD (SPC-2).
    pub(crate) fn release(&self, nexus: NexusId, nexuses: &Nexuses) -> Result<Rope, Failure> {
        if !self.has_registrations_that_allow(nexus, nexuses)? {
            self.release_of(nexus);
        }
        Ok(Rope::new())
    }

    /// Releases the SPC-2 reservation if `nexus` holds it.
    pub(crate) fn release_of(&self, nexus: NexusId) {
        if self.reserved_by() == Some(nexus) {
            self.set_reserved_by(None);
        }
    }

    /// Checks for registrations: false without any, so that RESERVE and RELEASE take effect; true where they must
    /// return GOOD without effect.
    ///
    /// *Errors*: conflict. *Source*: SPC-4, "exceptions to SPC-2 RESERVE and RELEASE behavior".
    fn has_registrations_that_allow(&self, nexus: NexusId, nexuses: &Nexuses) -> Result<bool, Failure> {
        let state = self.state();
        if state.registrations.is_empty() {
            return Ok(false);
        }
        // CRH: a nexus with access under the persistent reservation may still use RESERVE and RELEASE, without effect.
        let standing = nexuses.role(nexus);
        let is_allowed = state.reservation.as_ref().is_some_and(|held| standing.shares(held.kind));
        if is_allowed { Ok(true) } else { Err(Status::ReservationConflict.into()) }
    }
}
