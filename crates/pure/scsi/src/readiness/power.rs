//! START STOP UNIT (SBC-4), for a fixed and for a removable medium.

use super::Readiness;
use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::failure::Failure;
use crate::medium::Medium;
use crate::nexus::Nexuses;
use crate::nexus::UnitAttention;
use crate::sense::{AdditionalSense, Sense};
use block::{BlockDevice, Rope};

impl Readiness {
    /// START STOP UNIT of a unit with a fixed medium. POWER CONDITION and LOEJ are reserved bits there: no power
    /// condition page exists.
    pub(crate) async fn start_stop<D: BlockDevice>(&self, cdb: Cdb, medium: &Medium<D>) -> Result<Rope, Failure> {
        let (start, no_flush) = (cdb.bit(4, 0), cdb.bit(4, 2));
        // SBC-4: a stop flushes cached data unless NO_FLUSH is set.
        if !start && !no_flush {
            medium.make_earlier_writes_stable().await?;
        }
        // Behind the flush, so that the unit stays started if the flush fails.
        self.stopped.set(!start);
        Ok(Rope::new())
    }

    /// START STOP UNIT of a unit with a removable medium: ejects and loads it. Power conditions have no effect and are
    /// accepted.
    ///
    /// *Errors*: 53/02 while a nexus prevents the removal.
    pub(crate) async fn start_stop_removable<D: BlockDevice>(
        &self,
        nexus: NexusId,
        cdb: Cdb,
        medium: &Medium<D>,
        nexuses: &Nexuses,
    ) -> Result<Rope, Failure> {
        let (start, load_eject, no_flush) = (cdb.bit(4, 0), cdb.bit(4, 1), cdb.bit(4, 2));
        if cdb.u8_at(4) >> 4 != 0 {
            return Ok(Rope::new());
        }
        if load_eject && !self.kept_by.borrow().is_empty() {
            return Err(Sense::illegal(AdditionalSense::MEDIUM_REMOVAL_PREVENTED).into());
        }
        if !start && !no_flush && !self.ejected.get() {
            medium.synchronize_cache().await?;
        }
        // Only loading after an eject brings a medium that hosts do not know.
        if load_eject && self.ejected.replace(!start) && start {
            // SPC-4, medium may have changed: not established for the nexus that loads it.
            nexuses.establish_for_others(Some(nexus), UnitAttention::MediumMayHaveChanged);
        }
        Ok(Rope::new())
    }
}

#[cfg(test)]
mod tests;
