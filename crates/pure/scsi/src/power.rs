//! START STOP UNIT, SYNCHRONIZE CACHE and REQUEST SENSE: the state of the unit as a whole.

use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::failure::Failure;
use crate::reply::Reply;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::unit::LogicalUnit;
use block::{BlockDevice, Rope, Written};

impl<D: BlockDevice> LogicalUnit<D> {
    /// START STOP UNIT (SBC-4). Power conditions and LOEJ are reserved bits here: the unit has no
    /// power condition page, and its medium cannot be ejected (else see [`Self::start_stop_removable`]).
    pub(crate) async fn start_stop(&self, cdb: Cdb) -> Result<Rope, Failure> {
        let (start, no_flush) = (cdb.bit(4, 0), cdb.bit(4, 2));
        if !start && !no_flush {
            self.make_stable(earlier_writes()).await?;
        }
        self.stopped.set(!start);
        Ok(Rope::new())
    }

    /// SYNCHRONIZE CACHE (SBC-4). What was answered is stable already; the flush is for what
    /// aborted commands left behind, and tells of a device that failed one. IMMED allows an early answer
    /// and does not ask for one.
    pub(crate) async fn synchronize_cache(&self) -> Result<Rope, Failure> {
        self.flush(earlier_writes()).await?;
        Ok(Rope::new())
    }

    /// REQUEST SENSE (SPC-4): what the nexus has not been told, or the state of the unit.
    pub(crate) fn request_sense(&self, nexus: NexusId, cdb: Cdb) -> Rope {
        let mut sense = match self.nexuses.take(nexus) {
            Some(attention) => attention.sense(),
            None => self.state_sense(nexus),
        };
        sense.descriptor_format = cdb.bit(1, 0);
        let mut reply = Reply::new();
        reply.bytes(&sense.emit());
        reply.cut(u64::from(cdb.u8_at(4)))
    }

    fn state_sense(&self, nexus: NexusId) -> Sense {
        if let Some(sense) = self.sanitize_sense() {
            return sense;
        }
        if let Some(sense) = self.medium_sense() {
            return sense;
        }
        self.access_sense(nexus).unwrap_or(Sense::new(SenseKey::NoSense, AdditionalSense::NONE))
    }
}

/// Stands for the writes of commands that ended before: the device accepted them then.
fn earlier_writes() -> Written {
    Written::attest()
}

#[cfg(test)]
mod tests;
