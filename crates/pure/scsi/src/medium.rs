//! The medium of a unit: whether it can be taken out, whether it is there, and who keeps it from being taken out.

use crate::attention::UnitAttention;
use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::failure::Failure;
use crate::operation::Operation;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::unit::LogicalUnit;
use block::{BlockDevice, Rope};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

/// A medium that is there, unless it is removable and was ejected.
#[derive(Debug, Default)]
pub(crate) struct Medium {
    removable: Cell<bool>,
    ejected: Cell<bool>,
    /// PREVENT ALLOW MEDIUM REMOVAL of these says that it stays where it is.
    kept_by: RefCell<BTreeSet<NexusId>>,
}

impl Medium {
    /// A medium that is there.
    pub fn new(removable: bool) -> Self {
        Self { removable: Cell::new(removable), ..Self::default() }
    }

    pub fn is_removable(&self) -> bool {
        self.removable.get()
    }

    pub fn is_ejected(&self) -> bool {
        self.ejected.get()
    }

    /// Whatever `nexus` has said of the medium holds no more.
    pub fn forget(&self, nexus: NexusId) {
        self.kept_by.borrow_mut().remove(&nexus);
    }

    /// Nobody has said anything of the medium.
    pub fn reset(&self) {
        self.kept_by.take();
    }
}

impl<D: BlockDevice> LogicalUnit<D> {
    /// The medium can be ejected and loaded by START STOP UNIT from now on, or not any more, and is there; every nexus is told (3F/03)
    /// when that is new.
    pub fn set_removable(&self, removable: bool) {
        if self.medium.removable.replace(removable) != removable {
            self.medium.reset();
            self.medium.ejected.set(false);
            self.nexuses.establish_for_all(UnitAttention::InquiryDataChanged);
        }
    }

    /// PREVENT ALLOW MEDIUM REMOVAL (SPC-4): holds until the nexus allows it, is lost, or the unit is reset.
    pub(crate) fn prevent_allow(&self, nexus: NexusId, cdb: Cdb) -> Rope {
        let mut kept_by = self.medium.kept_by.borrow_mut();
        if cdb.bit(4, 0) {
            kept_by.insert(nexus)
        } else {
            kept_by.remove(&nexus)
        };
        Rope::new()
    }

    /// START STOP UNIT (SBC-4) of a unit with a removable medium: it ejects and loads. Power conditions mean nothing to memory and
    /// are taken as they come.
    ///
    /// *Errors*: 53/02 while somebody keeps the medium where it is.
    pub(crate) async fn start_stop_removable(&self, nexus: NexusId, cdb: Cdb) -> Result<Rope, Failure> {
        let (start, load_eject, no_flush) = (cdb.bit(4, 0), cdb.bit(4, 1), cdb.bit(4, 2));
        if cdb.u8_at(4) >> 4 != 0 {
            return Ok(Rope::new());
        }
        if load_eject && !self.medium.kept_by.borrow().is_empty() {
            return Err(Sense::illegal(AdditionalSense::MEDIUM_REMOVAL_PREVENTED).into());
        }
        if !start && !no_flush && !self.medium.is_ejected() {
            self.synchronize_cache().await?;
        }
        if load_eject && self.medium.ejected.replace(!start) && start {
            // SPC-4, medium may have changed: not for the one who loads it.
            self.nexuses.establish_for_others(Some(nexus), UnitAttention::MediumMayHaveChanged);
        }
        Ok(Rope::new())
    }

    /// Refuses what needs the medium while it cannot be reached: a stopped unit still tells its size.
    #[inline]
    pub(crate) fn check_medium(&self, operation: &Operation) -> Result<(), Sense> {
        match self.medium_sense() {
            Some(sense) if operation.needs_medium() => Err(sense),
            Some(sense) if operation.tells_size() && self.medium.is_ejected() => Err(sense),
            _ => Ok(()),
        }
    }

    /// Why the medium cannot be reached, if so.
    pub(crate) fn medium_sense(&self) -> Option<Sense> {
        let not_ready = |code| Some(Sense::new(SenseKey::NotReady, code));
        if self.medium.is_ejected() {
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
