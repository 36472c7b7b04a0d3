//! State machine of persistent reservations (SPC-4): each service action of PERSISTENT RESERVE OUT is a function from
//! one state to the next. Nothing here waits, and a refused action changes nothing.

use crate::command::Status;
use crate::conflict::{ReservationRole, ReservationType};
use crate::failure::Failure;
use crate::nexus::ItNexus;
use crate::nexus::UnitAttention;
use crate::sense::{AdditionalSense, Sense};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Maximum number of registrations of a logical unit.
pub(crate) const REGISTRATIONS_MAX: usize = 4096;

/// Offsets for field pointers: SERVICE ACTION RESERVATION KEY, the bits of REGISTER, and the TransportID of REGISTER
/// AND MOVE.
const ACTION_KEY_AT: u16 = 8;
const REGISTER_BITS_AT: u16 = 20;
const MOVE_TRANSPORT_ID_AT: u16 = 24;

/// Registrations and persistent reservation of a logical unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// PRgeneration.
    pub generation: u32,
    /// Last valid APTPL bit.
    pub persists: bool,
    pub registrations: BTreeMap<Rc<ItNexus>, Registration>,
    pub reservation: Option<PersistentReservation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// Reservation key, never zero.
    pub key: u64,
    /// Relative target port identifier of the target port of the nexus.
    pub relative_port: u16,
}

/// Persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PersistentReservation {
    pub kind: ReservationType,
    /// Holder, always registered; `None` for an all registrants type, where every registrant is a holder.
    pub holder: Option<Rc<ItNexus>>,
}

/// Result of a service action: the next state, unit attentions, and tasks to abort.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub after: State,
    /// Unit attentions to establish, at most one per nexus.
    pub attentions: Vec<(Rc<ItNexus>, UnitAttention)>,
    /// Nexuses whose registration a PREEMPT removed: PREEMPT AND ABORT aborts their tasks.
    pub preempted: Vec<Rc<ItNexus>>,
}

/// Nexus to register, with the relative identifier of its target port.
pub(crate) type RegistrantPort = (Rc<ItNexus>, u16);

/// Parameters of REGISTER and REGISTER AND IGNORE EXISTING KEY.
#[derive(Debug)]
pub(crate) struct Register {
    pub ignores_key: bool,
    pub key: u64,
    pub new_key: u64,
    pub persists: bool,
    /// Asking initiator port at the other target ports, where ALL_TG_PT is set.
    pub at_other_ports: Vec<RegistrantPort>,
    /// Nexuses that SPEC_I_PT names, at each of the target ports; `None` without SPEC_I_PT.
    pub others: Option<Vec<RegistrantPort>>,
}

/// Parameters of REGISTER AND MOVE.
#[derive(Debug)]
pub(crate) struct Move {
    pub key: u64,
    pub new_key: u64,
    pub persists: bool,
    pub unregisters: bool,
    pub to: RegistrantPort,
}

const CONFLICT: Failure = Failure::Status(Status::ReservationConflict);

impl State {
    pub(crate) fn key_of(&self, nexus: &ItNexus) -> Option<u64> {
        self.registrations.get(nexus).map(|registration| registration.key)
    }

    pub(crate) fn role(&self, nexus: &ItNexus) -> ReservationRole {
        // An unregistered nexus has no part in a persistent reservation, whoever holds it.
        match &self.reservation {
            _ if !self.registrations.contains_key(nexus) => ReservationRole::Unregistered,
            Some(held) if held.holder.as_deref().is_none_or(|holder| holder == nexus) => ReservationRole::Holder,
            _ => ReservationRole::Registrant,
        }
    }

    /// REGISTER: registers `asker`, changes its key, or removes its registration.
    pub(crate) fn register(&self, asker: &RegistrantPort, order: &Register) -> Result<Change, Failure> {
        let own = self.key_of(&asker.0);
        // SPC-4: a nexus without a registration registers with RESERVATION KEY zero.
        if !order.ignores_key && order.key != own.unwrap_or(0) {
            return Err(CONFLICT);
        }
        // SPEC_I_PT is an error for a nexus that is registered, or that unregisters (SPC-4 REGISTER).
        if order.others.is_some() && (own.is_some() || order.new_key == 0) {
            return Err(Sense::parameter(REGISTER_BITS_AT, Some(3)).into());
        }
        // ALL_TG_PT affects the same initiator port at other target ports, each with its own key.
        let has_another_key = |(nexus, _): &RegistrantPort| self.key_of(nexus).is_some_and(|key| key != order.key);
        if !order.ignores_key && order.at_other_ports.iter().any(has_another_key) {
            return Err(CONFLICT);
        }
        let meant = || std::iter::once(asker).chain(&order.at_other_ports);
        // Unregistering a nexus that is not registered changes nothing, not even PRgeneration.
        if order.new_key == 0 && meant().all(|(nexus, _)| self.key_of(nexus).is_none()) {
            return Ok(self.unchanged());
        }
        // SPC-4: a successful REGISTER increments PRgeneration, even if the key stays the same.
        let mut change = self.counted();
        // The APTPL bit of the last successful registration applies (SPC-4).
        change.after.persists = order.persists;
        if order.new_key == 0 {
            for (nexus, _) in meant() {
                change.after.registrations.remove(nexus);
            }
            // SPC-4: a reservation ends when its holder unregisters.
            change.release_without_holder();
        } else {
            // A nexus that is registered keeps its key: SPEC_I_PT only adds.
            let unregistered = order.others.iter().flatten().filter(|(nexus, _)| self.key_of(nexus).is_none());
            meant().chain(unregistered).for_each(|place| change.after.enter(place, order.new_key));
            // Checked at the end, because a nexus that is registered already takes no further room.
            change.after.admit_size()?;
        }
        Ok(change)
    }

    /// RESERVE: `asker` becomes the holder, or already is the holder with the same type.
    ///
    /// *Errors*: conflict with any other reservation.
    pub(crate) fn reserve(&self, asker: &Rc<ItNexus>, key: u64, kind: ReservationType) -> Result<Change, Failure> {
        self.admit_key(asker, key)?;
        // SPC-4: RESERVE does not change PRgeneration.
        let mut change = self.unchanged();
        match &self.reservation {
            None => change.after.reservation = Some(PersistentReservation::by(asker, kind)),
            Some(held) if held.kind == kind && self.role(asker) == ReservationRole::Holder => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(change)
    }

    /// RELEASE: `asker` gives up the reservation. Without effect when it is not a holder.
    ///
    /// *Errors*: 26/04 when it holds a reservation of another type.
    pub(crate) fn release(&self, asker: &Rc<ItNexus>, key: u64, kind: ReservationType) -> Result<Change, Failure> {
        self.admit_key(asker, key)?;
        // SPC-4: RELEASE does not change PRgeneration.
        let mut change = self.unchanged();
        let Some(held) = &self.reservation else { return Ok(change) };
        if self.role(asker) != ReservationRole::Holder {
            return Ok(change);
        }
        if held.kind != kind {
            return Err(Sense::illegal(AdditionalSense::INVALID_RELEASE).into());
        }
        change.after.reservation = None;
        // Registrants lose access that they had through the reservation, so they are notified.
        if kind.is_for_registrants() {
            change.notify_registrants(asker, UnitAttention::ReservationsReleased);
        }
        Ok(change)
    }

    /// CLEAR: removes the reservation and all registrations.
    pub(crate) fn clear(&self, asker: &Rc<ItNexus>, key: u64) -> Result<Change, Failure> {
        self.admit_key(asker, key)?;
        // CLEAR is permitted to every registrant, not only to the holder.
        Ok(self.cleared(Some(asker)))
    }

    /// Returns the change of a CLEAR by `asker`; `None` is the owner of the unit, and then every registrant is
    /// notified.
    pub(crate) fn cleared(&self, asker: Option<&Rc<ItNexus>>) -> Change {
        let mut change = self.counted();
        let registered = self.registrations.keys().filter(|nexus| Some(*nexus) != asker);
        change.attentions.extend(registered.map(|nexus| (nexus.clone(), UnitAttention::ReservationsPreempted)));
        change.after.registrations.clear();
        change.after.reservation = None;
        change
    }

    /// PREEMPT: removes the registrations with `victim_key`. When the reservation is held under that key, `asker` takes
    /// it over with the type `kind`.
    ///
    /// *Errors*: conflict when no registration has `victim_key`.
    pub(crate) fn preempt(
        &self,
        asker: &Rc<ItNexus>,
        key: u64,
        victim_key: u64,
        kind: Result<ReservationType, Sense>,
    ) -> Result<Change, Failure> {
        // The preempting nexus must be registered itself.
        self.admit_key(asker, key)?;
        // A reservation is preempted only through the key of its holder; any other key removes registrations alone.
        let takes = match &self.reservation {
            // For an all registrants reservation, a key of zero names all holders (SPC-4 PREEMPT).
            Some(PersistentReservation { holder: None, .. }) => victim_key == 0,
            Some(PersistentReservation { holder: Some(holder), .. }) => self.key_of(holder) == Some(victim_key),
            None => false,
        };
        if takes {
            return Ok(self.take_over(asker, victim_key, kind?));
        }
        if victim_key == 0 {
            // Key zero names no registration.
            return Err(Sense::parameter(ACTION_KEY_AT, None).into());
        }
        let mut change = self.counted();
        change.remove(asker, |_, registration| registration.key == victim_key);
        // No registration has this key.
        if change.preempted.is_empty() {
            return Err(CONFLICT);
        }
        change.release_without_holder();
        Ok(change)
    }

    /// Takes the reservation over from its holder, removing the registrations under `victim_key`, or all others where
    /// it is zero.
    fn take_over(&self, asker: &Rc<ItNexus>, victim_key: u64, kind: ReservationType) -> Change {
        let mut change = self.counted();
        change
            .remove(asker, |nexus, registration| nexus != asker && (victim_key == 0 || registration.key == victim_key));
        // SPC-4: the remaining registrants are notified if the type of the reservation changes.
        if self.reservation.as_ref().is_some_and(|held| held.kind != kind) {
            change.notify_registrants(asker, UnitAttention::ReservationsReleased);
        }
        assert!(change.after.registrations.contains_key(asker), "who preempts stays registered");
        change.after.reservation = Some(PersistentReservation::by(asker, kind));
        change
    }

    /// REGISTER AND MOVE: moves the reservation that `asker` holds to another nexus, and registers that nexus.
    pub(crate) fn move_to(&self, asker: &Rc<ItNexus>, order: &Move) -> Result<Change, Failure> {
        self.admit_key(asker, order.key)?;
        // Only the holder may move the reservation; an all registrants type has no single holder to move.
        let held = self.reservation.as_ref().filter(|held| held.holder.as_ref() == Some(asker));
        let kind = held.ok_or(CONFLICT)?.kind;
        if order.new_key == 0 {
            return Err(Sense::parameter(ACTION_KEY_AT, None).into());
        }
        if order.to.0 == *asker {
            // REGISTER AND MOVE to the own nexus is an error (SPC-4).
            return Err(Sense::parameter(MOVE_TRANSPORT_ID_AT, None).into());
        }
        let mut change = self.counted();
        change.after.persists = order.persists;
        change.after.enter(&order.to, order.new_key);
        if order.unregisters {
            // UNREG: the former holder gives up its registration with the reservation.
            change.after.registrations.remove(asker);
        }
        change.after.reservation = Some(PersistentReservation::by(&order.to.0, kind));
        // Behind the removal of the former holder, which makes room for the new one.
        change.after.admit_size()?;
        Ok(change)
    }

    /// Asserts the invariants that hold between two service actions and after a restart.
    pub(crate) fn assert_sound(&self) {
        assert!(self.registrations.len() <= REGISTRATIONS_MAX, "registrations are bounded");
        assert!(self.registrations.values().all(|one| one.key != 0), "a registration has a key");
        let Some(PersistentReservation { kind, holder }) = &self.reservation else { return };
        assert_eq!(
            kind.is_held_by_all(),
            holder.is_none(),
            "one nexus holds the reservation unless all registrants do"
        );
        assert!(!self.registrations.is_empty(), "a reservation ends with the last registration");
        let is_registered = holder.as_ref().is_none_or(|holder| self.registrations.contains_key(holder));
        assert!(is_registered, "the holder is registered");
    }

    /// Starts a change that does not count in PRgeneration (RESERVE, RELEASE).
    fn unchanged(&self) -> Change {
        Change { after: self.clone(), attentions: Vec::new(), preempted: Vec::new() }
    }

    /// Starts a change that increments PRgeneration.
    fn counted(&self) -> Change {
        let mut change = self.unchanged();
        // PRgeneration has 32 bits and wraps (SPC-4).
        change.after.generation = self.generation.wrapping_add(1);
        change
    }

    /// Checks that `nexus` is registered and gives its own key.
    fn admit_key(&self, nexus: &ItNexus, key: u64) -> Result<(), Failure> {
        // SPC-4: a key that does not match is a conflict and not an illegal request.
        if self.key_of(nexus) == Some(key) { Ok(()) } else { Err(CONFLICT) }
    }

    fn enter(&mut self, (nexus, relative_port): &RegistrantPort, key: u64) {
        assert_ne!(key, 0, "a key of zero takes a registration back");
        self.registrations.insert(nexus.clone(), Registration { key, relative_port: *relative_port });
    }

    fn admit_size(&self) -> Result<(), Failure> {
        if self.registrations.len() <= REGISTRATIONS_MAX {
            Ok(())
        } else {
            Err(Sense::illegal(AdditionalSense::INSUFFICIENT_REGISTRATION_RESOURCES).into())
        }
    }
}

impl PersistentReservation {
    fn by(nexus: &Rc<ItNexus>, kind: ReservationType) -> Self {
        Self { kind, holder: (!kind.is_held_by_all()).then(|| nexus.clone()) }
    }
}

impl Change {
    fn notify_registrants(&mut self, asker: &Rc<ItNexus>, attention: UnitAttention) {
        // The issuing nexus receives no unit attention for its own command.
        let registered = self.after.registrations.keys().filter(|nexus| *nexus != asker);
        self.attentions.extend(registered.map(|nexus| (nexus.clone(), attention)));
    }

    /// Removes registrations and notifies the nexuses that lost them, except `asker`.
    fn remove(&mut self, asker: &Rc<ItNexus>, is_lost: impl Fn(&Rc<ItNexus>, &Registration) -> bool) {
        let lost = self.after.registrations.extract_if(.., |nexus, registration| is_lost(nexus, registration));
        self.preempted = lost.map(|(nexus, _)| nexus).collect();
        let others = self.preempted.iter().filter(|nexus| *nexus != asker);
        self.attentions.extend(others.map(|nexus| (nexus.clone(), UnitAttention::RegistrationsPreempted)));
    }

    /// Ends a reservation whose holder is no longer registered, and notifies the remaining registrants where it granted
    /// them access.
    fn release_without_holder(&mut self) {
        let registrations = &self.after.registrations;
        let has_holder = |held: &PersistentReservation| match &held.holder {
            Some(holder) => registrations.contains_key(holder),
            None => !registrations.is_empty(),
        };
        if let Some(released) = self.after.reservation.take_if(|held| !has_holder(held))
            && released.kind.is_for_registrants()
        {
            let told = registrations.keys().map(|nexus| (nexus.clone(), UnitAttention::ReservationsReleased));
            self.attentions.extend(told);
        }
    }
}
