//! Readiness of a unit: presence of device and medium, and the start/stop state of START STOP UNIT.

mod power;

use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::operation::Operation;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// Reason for the absence of the device of a unit, as reported to initiators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Expected to return without intervention (04/01 BECOMING READY): initiators retry.
    BecomingReady,
    /// Returns only after intervention of an operator (04/03 MANUAL INTERVENTION REQUIRED).
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

/// Readiness state of one unit. The medium is present unless it is removable and was ejected; the unit is started
/// unless it was stopped.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    /// `None` while the device is present.
    absence: Cell<Option<Absence>>,
    removable: Cell<bool>,
    ejected: Cell<bool>,
    stopped: Cell<bool>,
    /// Nexuses that prevent removal of the medium (PREVENT ALLOW MEDIUM REMOVAL).
    kept_by: RefCell<BTreeSet<NexusId>>,
}

impl Readiness {
    /// Creates the state of a started unit with its medium.
    pub(crate) fn new(removable: bool) -> Self {
        Self { removable: Cell::new(removable), ..Self::default() }
    }

    pub(crate) fn is_removable(&self) -> bool {
        self.removable.get()
    }

    /// Sets whether the medium is removable and marks it as loaded; true when that changed.
    pub(crate) fn set_removable(&self, removable: bool) -> bool {
        let is_new = self.removable.replace(removable) != removable;
        if is_new {
            // Neither a prevention of removal nor an eject outlives a change of the kind of medium.
            self.kept_by.take();
            self.ejected.set(false);
        }
        is_new
    }

    /// Marks the device as absent for the given reason, or as present.
    pub(crate) fn set_absence(&self, absence: Option<Absence>) {
        self.absence.set(absence);
    }

    pub(crate) fn is_absent(&self) -> bool {
        self.absence.get().is_some()
    }

    /// Drops the prevention of removal by `nexus`.
    pub(crate) fn forget(&self, nexus: NexusId) {
        self.kept_by.borrow_mut().remove(&nexus);
    }

    /// Starts the unit and drops all preventions of removal (LOGICAL UNIT RESET).
    pub(crate) fn reset(&self) {
        self.stopped.set(false);
        // An ejected medium stays ejected, because a reset loads nothing.
        self.kept_by.take();
    }

    /// PREVENT ALLOW MEDIUM REMOVAL (SPC-4): in effect until the nexus allows removal, is lost, or the unit is reset.
    pub(crate) fn prevent_allow(&self, nexus: NexusId, cdb: Cdb) {
        let mut kept_by = self.kept_by.borrow_mut();
        if cdb.bit(4, 0) {
            kept_by.insert(nexus)
        } else {
            kept_by.remove(&nexus)
        };
    }

    /// Refuses operations that need the medium while it is not accessible. A stopped unit still reports its capacity,
    /// and so does one whose device is absent.
    #[inline]
    pub(crate) fn check(&self, operation: &Operation) -> Result<(), Sense> {
        // Without the device nothing is known about the medium, so its absence ranks first.
        if let Some(absence) = self.absence.get() {
            return if operation.is_served_without_device() { Ok(()) } else { Err(absence.sense()) };
        }
        match self.sense() {
            Some(sense) if operation.needs_medium() => Err(sense),
            // An ejected medium has no capacity, a stopped one has.
            Some(sense) if operation.tells_size() && self.ejected.get() => Err(sense),
            _ => Ok(()),
        }
    }

    /// Returns the NOT READY sense of the unit, if it is not ready.
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
