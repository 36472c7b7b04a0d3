//! START STOP UNIT (SBC-4): of a unit whose medium stays where it is, and of one that ejects and loads it.

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
    /// START STOP UNIT of a unit with a fixed medium. Power conditions and LOEJ are reserved bits: there is no power condition
    /// page.
    pub(crate) async fn start_stop<D: BlockDevice>(&self, cdb: Cdb, medium: &Medium<D>) -> Result<Rope, Failure> {
        let (start, no_flush) = (cdb.bit(4, 0), cdb.bit(4, 2));
        if !start && !no_flush {
            medium.make_earlier_writes_stable().await?;
        }
        self.stopped.set(!start);
        Ok(Rope::new())
    }

    /// START STOP UNIT of a unit with a removable medium: it ejects and loads. Power conditions mean nothing to memory and
    /// are taken as they come.
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
        if load_eject && self.ejected.replace(!start) && start {
            // SPC-4, medium may have changed: not for the one who loads it.
            nexuses.establish_for_others(Some(nexus), UnitAttention::MediumMayHaveChanged);
        }
        Ok(Rope::new())
    }
}

#[cfg(test)]
mod tests;
