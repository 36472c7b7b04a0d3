//! Registrations and the persistent reservation of a logical unit, and what each service action of PERSISTENT RESERVE OUT
//! makes of them (SPC-4, persistent reservations). Nothing here waits, and a refused action changes nothing.

use crate::command::Status;
use crate::conflict::{ReservationType, Standing};
use crate::failure::Failure;
use crate::nexus::ItNexus;
use crate::nexus::UnitAttention;
use crate::sense::{AdditionalSense, Sense};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The most registrations of a logical unit.
pub(crate) const REGISTRATIONS_MAX: usize = 4096;

/// Where in the parameter list the SERVICE ACTION RESERVATION KEY and the bits of REGISTER stand, and the TransportID of
/// REGISTER AND MOVE.
const ACTION_KEY_AT: u16 = 8;
const REGISTER_BITS_AT: u16 = 20;
const MOVE_TRANSPORT_ID_AT: u16 = 24;

/// What a logical unit knows of its persistent reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// PRgeneration.
    pub generation: u32,
    /// The last valid APTPL bit.
    pub persists: bool,
    pub registrations: BTreeMap<Rc<ItNexus>, Registration>,
    pub held: Option<Held>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Registration {
    /// The reservation key, never zero.
    pub key: u64,
    /// The relative target port identifier of the nexus' target port.
    pub relative_port: u16,
}

/// A persistent reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub kind: ReservationType,
    /// Who holds it, always somebody with a registration; nobody in particular where all registrants do.
    pub holder: Option<Rc<ItNexus>>,
}

/// What a service action makes of the state, and who hears of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub after: State,
    /// What each is told; nobody is told two things.
    pub told: Vec<(Rc<ItNexus>, UnitAttention)>,
    /// Who lost its registration to a PREEMPT: PREEMPT AND ABORT ends their tasks.
    pub preempted: Vec<Rc<ItNexus>>,
}

/// A nexus that is to be registered, and the relative identifier of its target port.
pub(crate) type Place = (Rc<ItNexus>, u16);

/// REGISTER, and REGISTER AND IGNORE EXISTING KEY.
#[derive(Debug)]
pub(crate) struct Register {
    pub ignores_key: bool,
    pub key: u64,
    pub new_key: u64,
    pub persists: bool,
    /// The asking initiator port at the other target ports, where ALL_TG_PT is set.
    pub at_other_ports: Vec<Place>,
    /// Whom SPEC_I_PT names, at each of the target ports.
    pub others: Option<Vec<Place>>,
}

/// REGISTER AND MOVE.
#[derive(Debug)]
pub(crate) struct Move {
    pub key: u64,
    pub new_key: u64,
    pub persists: bool,
    pub unregisters: bool,
    pub to: Place,
}

const CONFLICT: Failure = Failure::Status(Status::ReservationConflict);

impl State {
    pub(crate) fn key_of(&self, nexus: &ItNexus) -> Option<u64> {
        self.registrations.get(nexus).map(|registration| registration.key)
    }

    pub(crate) fn standing(&self, nexus: &ItNexus) -> Standing {
        match &self.held {
            _ if !self.registrations.contains_key(nexus) => Standing::Stranger,
            Some(held) if held.holder.as_deref().is_none_or(|holder| holder == nexus) => Standing::Holder,
            _ => Standing::Registrant,
        }
    }

    /// Registers `asker`, gives it another key, or takes its registration back.
    pub(crate) fn register(&self, asker: &Place, order: &Register) -> Result<Change, Failure> {
        let own = self.key_of(&asker.0);
        if !order.ignores_key && order.key != own.unwrap_or(0) {
            return Err(CONFLICT);
        }
        if order.others.is_some() && (own.is_some() || order.new_key == 0) {
            return Err(Sense::parameter(REGISTER_BITS_AT, Some(3)).into());
        }
        let has_another_key = |(nexus, _): &Place| self.key_of(nexus).is_some_and(|key| key != order.key);
        if !order.ignores_key && order.at_other_ports.iter().any(has_another_key) {
            return Err(CONFLICT);
        }
        let meant = || std::iter::once(asker).chain(&order.at_other_ports);
        if order.new_key == 0 && meant().all(|(nexus, _)| self.key_of(nexus).is_none()) {
            return Ok(self.unchanged());
        }
        let mut change = self.counted();
        change.after.persists = order.persists;
        if order.new_key == 0 {
            for (nexus, _) in meant() {
                change.after.registrations.remove(nexus);
            }
            change.release_without_holder();
        } else {
            let unregistered = order.others.iter().flatten().filter(|(nexus, _)| self.key_of(nexus).is_none());
            meant().chain(unregistered).for_each(|place| change.after.enter(place, order.new_key));
            change.after.admit_size()?;
        }
        Ok(change)
    }

    /// Nobody has reserved the unit, and `asker` does now; or it does already.
    pub(crate) fn reserve(&self, asker: &Rc<ItNexus>, key: u64, kind: ReservationType) -> Result<Change, Failure> {
        self.admit_key(asker, key)?;
        let mut change = self.unchanged();
        match &self.held {
            None => change.after.held = Some(Held::by(asker, kind)),
            Some(held) if held.kind == kind && self.standing(asker) == Standing::Holder => {}
            Some(_) => return Err(CONFLICT),
        }
        Ok(change)
    }

    /// `asker` does not hold the reservation any more, if it did.
    ///
    /// *Errors*: 26/04 when it holds one of another type.
    pub(crate) fn release(&self, asker: &Rc<ItNexus>, key: u64, kind: ReservationType) -> Result<Change, Failure> {
        self.admit_key(asker, key)?;
        let mut change = self.unchanged();
        let Some(held) = &self.held else { return Ok(change) };
        if self.standing(asker) != Standing::Holder {
            return Ok(change);
        }
        if held.kind != kind {
            return Err(Sense::illegal(AdditionalSense::INVALID_RELEASE).into());
        }
        change.after.held = None;
        if kind.is_for_registrants() {
            change.tell_registrants(asker, UnitAttention::ReservationsReleased);
        }
        Ok(change)
    }

    /// There is neither a reservation nor a registration.
    pub(crate) fn clear(&self, asker: &Rc<ItNexus>, key: u64) -> Result<Change, Failure> {
        self.admit_key(asker, key)?;
        Ok(self.cleared(Some(asker)))
    }

    /// As after CLEAR by `asker`, or by nobody who would not have to be told.
    pub(crate) fn cleared(&self, asker: Option<&Rc<ItNexus>>) -> Change {
        let mut change = self.counted();
        let registered = self.registrations.keys().filter(|nexus| Some(*nexus) != asker);
        change.told.extend(registered.map(|nexus| (nexus.clone(), UnitAttention::ReservationsPreempted)));
        change.after.registrations.clear();
        change.after.held = None;
        change
    }

    /// Who is registered under `victim_key` is so no more; when that is the holder's key, `asker` takes the reservation,
    /// as one of the type that `kind` gives.
    pub(crate) fn preempt(
        &self,
        asker: &Rc<ItNexus>,
        key: u64,
        victim_key: u64,
        kind: Result<ReservationType, Sense>,
    ) -> Result<Change, Failure> {
        self.admit_key(asker, key)?;
        let takes = match &self.held {
            Some(Held { holder: None, .. }) => victim_key == 0,
            Some(Held { holder: Some(holder), .. }) => self.key_of(holder) == Some(victim_key),
            None => false,
        };
        if takes {
            return Ok(self.take_over(asker, victim_key, kind?));
        }
        if victim_key == 0 {
            return Err(Sense::parameter(ACTION_KEY_AT, None).into());
        }
        let mut change = self.counted();
        change.remove(asker, |_, registration| registration.key == victim_key);
        if change.preempted.is_empty() {
            return Err(CONFLICT);
        }
        change.release_without_holder();
        Ok(change)
    }

    fn take_over(&self, asker: &Rc<ItNexus>, victim_key: u64, kind: ReservationType) -> Change {
        let mut change = self.counted();
        change
            .remove(asker, |nexus, registration| nexus != asker && (victim_key == 0 || registration.key == victim_key));
        if self.held.as_ref().is_some_and(|held| held.kind != kind) {
            change.tell_registrants(asker, UnitAttention::ReservationsReleased);
        }
        assert!(change.after.registrations.contains_key(asker), "who preempts stays registered");
        change.after.held = Some(Held::by(asker, kind));
        change
    }

    /// Another nexus has the reservation that `asker` held.
    pub(crate) fn move_to(&self, asker: &Rc<ItNexus>, order: &Move) -> Result<Change, Failure> {
        self.admit_key(asker, order.key)?;
        let held = self.held.as_ref().filter(|held| held.holder.as_ref() == Some(asker));
        let kind = held.ok_or(CONFLICT)?.kind;
        if order.new_key == 0 {
            return Err(Sense::parameter(ACTION_KEY_AT, None).into());
        }
        if order.to.0 == *asker {
            return Err(Sense::parameter(MOVE_TRANSPORT_ID_AT, None).into());
        }
        let mut change = self.counted();
        change.after.persists = order.persists;
        change.after.enter(&order.to, order.new_key);
        if order.unregisters {
            change.after.registrations.remove(asker);
        }
        change.after.held = Some(Held::by(&order.to.0, kind));
        change.after.admit_size()?;
        Ok(change)
    }

    /// What holds between two service actions, and after a restart.
    pub(crate) fn assert_sound(&self) {
        assert!(self.registrations.len() <= REGISTRATIONS_MAX, "registrations are bounded");
        assert!(self.registrations.values().all(|one| one.key != 0), "a registration has a key");
        let Some(Held { kind, holder }) = &self.held else { return };
        assert_eq!(
            kind.is_held_by_all(),
            holder.is_none(),
            "one nexus holds the reservation unless all registrants do"
        );
        assert!(!self.registrations.is_empty(), "a reservation ends with the last registration");
        let is_registered = holder.as_ref().is_none_or(|holder| self.registrations.contains_key(holder));
        assert!(is_registered, "the holder is registered");
    }

    fn unchanged(&self) -> Change {
        Change { after: self.clone(), told: Vec::new(), preempted: Vec::new() }
    }

    /// What PRgeneration counts.
    fn counted(&self) -> Change {
        let mut change = self.unchanged();
        change.after.generation = self.generation.wrapping_add(1);
        change
    }

    /// Admits a nexus that gives its own key.
    fn admit_key(&self, nexus: &ItNexus, key: u64) -> Result<(), Failure> {
        if self.key_of(nexus) == Some(key) { Ok(()) } else { Err(CONFLICT) }
    }

    fn enter(&mut self, (nexus, relative_port): &Place, key: u64) {
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

impl Held {
    fn by(nexus: &Rc<ItNexus>, kind: ReservationType) -> Self {
        Self { kind, holder: (!kind.is_held_by_all()).then(|| nexus.clone()) }
    }
}

impl Change {
    fn tell_registrants(&mut self, asker: &Rc<ItNexus>, attention: UnitAttention) {
        let registered = self.after.registrations.keys().filter(|nexus| *nexus != asker);
        self.told.extend(registered.map(|nexus| (nexus.clone(), attention)));
    }

    /// Takes registrations away, and tells whose they were, unless it is `asker` itself.
    fn remove(&mut self, asker: &Rc<ItNexus>, is_lost: impl Fn(&Rc<ItNexus>, &Registration) -> bool) {
        let lost = self.after.registrations.extract_if(.., |nexus, registration| is_lost(nexus, registration));
        self.preempted = lost.map(|(nexus, _)| nexus).collect();
        let others = self.preempted.iter().filter(|nexus| *nexus != asker);
        self.told.extend(others.map(|nexus| (nexus.clone(), UnitAttention::RegistrationsPreempted)));
    }

    /// A reservation whose holder is registered no more is none; where it let registrants in, those who still are hear so.
    fn release_without_holder(&mut self) {
        let registrations = &self.after.registrations;
        let has_holder = |held: &Held| match &held.holder {
            Some(holder) => registrations.contains_key(holder),
            None => !registrations.is_empty(),
        };
        if let Some(released) = self.after.held.take_if(|held| !has_holder(held))
            && released.kind.is_for_registrants()
        {
            let told = registrations.keys().map(|nexus| (nexus.clone(), UnitAttention::ReservationsReleased));
            self.told.extend(told);
        }
    }
}
