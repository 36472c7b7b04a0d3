//! Whether a unit is ready: its device and its medium are there, and START STOP UNIT has not stopped it.

mod power;

use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::operation::Operation;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// Why the device of a unit is absent, as far as an initiator is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It is waited for, and the unit becomes ready by itself (04/01): initiators repeat their commands.
    BecomingReady,
    /// Nothing changes without an operator (04/03).
    NeedsOperator,
}

impl Absence {
    fn sense(self) -> Sense {
        let code = match self {
            Self::BecomingReady => AdditionalSense::BECOMING_READY,
            Self::NeedsOperator => AdditionalSense::MANUAL_INTERVENTION_REQUIRED,
        };
        Sense::new(SenseKey::NotReady, code)
    }
}

/// A medium that is there, unless it is removable and was ejected, and a unit that is started, unless it was stopped.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// None while the device is there.
    absence: Cell<Option<Absence>>,
    removable: Cell<bool>,
    ejected: Cell<bool>,
    stopped: Cell<bool>,
    /// PREVENT ALLOW MEDIUM REMOVAL of these says that the medium stays where it is.
    kept_by: RefCell<BTreeSet<NexusId>>,
}

impl Readiness {
    /// A started unit with its medium.
    pub(crate) fn new(removable: bool) -> Self {
        Self { removable: Cell::new(removable), ..Self::default() }
    }

    pub(crate) fn is_removable(&self) -> bool {
        self.removable.get()
    }

    /// The medium can be ejected and loaded from now on, or not any more, and is there; true when that is new.
    pub(crate) fn set_removable(&self, removable: bool) -> bool {
        let is_new = self.removable.replace(removable) != removable;
        if is_new {
            self.kept_by.take();
            self.ejected.set(false);
        }
        is_new
    }

    /// The device is absent for this reason from now on, or is there.
    pub(crate) fn set_absence(&self, absence: Option<Absence>) {
        self.absence.set(absence);
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.absence.get().is_some()
    }

    /// Whatever `nexus` has said of the medium holds no more.
    pub(crate) fn forget(&self, nexus: NexusId) {
        self.kept_by.borrow_mut().remove(&nexus);
    }

    /// The unit is started, and nobody has said anything of the medium.
    pub(crate) fn reset(&self) {
        self.stopped.set(false);
        self.kept_by.take();
    }

    /// PREVENT ALLOW MEDIUM REMOVAL (SPC-4): holds until the nexus allows it, is lost, or the unit is reset.
    pub(crate) fn prevent_allow(&self, nexus: NexusId, cdb: Cdb) {
        let mut kept_by = self.kept_by.borrow_mut();
        if cdb.bit(4, 0) {
            kept_by.insert(nexus)
        } else {
            kept_by.remove(&nexus)
        };
    }

    /// Refuses what needs the medium while it cannot be reached: a stopped unit still tells its size, and so does one whose
    /// device is absent.
    #[inline]
    pub(crate) fn check(&self, operation: &Operation) -> Result<(), Sense> {
        if let Some(absence) = self.absence.get() {
            return if operation.is_served_without_device() { Ok(()) } else { Err(absence.sense()) };
        }
        match self.sense() {
            Some(sense) if operation.needs_medium() => Err(sense),
            Some(sense) if operation.tells_size() && self.ejected.get() => Err(sense),
            _ => Ok(()),
        }
    }

    /// Why the medium cannot be reached, if so.
    pub(crate) fn sense(&self) -> Option<Sense> {
        let not_ready = |code| Some(Sense::new(SenseKey::NotReady, code));
        if let Some(absence) = self.absence.get() {
            Some(absence.sense())
        } else if self.ejected.get() {
            not_ready(AdditionalSense::MEDIUM_NOT_PRESENT)
        } else if self.stopped.get() {
            not_ready(AdditionalSense::INITIALIZING_COMMAND_REQUIRED)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests;
