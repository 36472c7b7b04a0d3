//! INQUIRY (SPC-4): what the unit is.

mod vpd;

use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::failure::Failure;
use crate::reply::Reply;
use crate::sense::Sense;
use crate::unit::LogicalUnit;
use block::{BlockDevice, Rope};

/// The standards that the unit follows, as version descriptors: SAM-5, SPC-4, SBC-3, iSCSI.
const VERSIONS: [u16; 4] = [0x00A0, 0x0460, 0x04C0, 0x0960];

/// Standard INQUIRY data with all eight version descriptors.
const STANDARD_BYTES: usize = 96;

impl<D: BlockDevice> LogicalUnit<D> {
    pub(crate) fn inquire(&self, nexus: NexusId, cdb: Cdb, allocation: u64) -> Result<Rope, Failure> {
        let page = cdb.u8_at(2);
        let reply = match (cdb.bit(1, 0), page) {
            (true, page) => self.vital_page(nexus, page)?,
            (false, 0) => self.standard_inquiry(nexus),
            // A page code without EVPD asks for nothing.
            (false, _) => return Err(Sense::cdb_byte(2).into()),
        };
        Ok(reply.cut(allocation))
    }

    /// A direct access block device, which is here or, through this port, not connected now.
    fn peripheral(&self, nexus: NexusId) -> u8 {
        if self.access_state(nexus).is_disconnected() { 0x20 } else { 0x00 }
    }

    fn standard_inquiry(&self, nexus: NexusId) -> Reply {
        let mut reply = Reply::new();
        reply.u8(self.peripheral(nexus));
        reply.u8(if self.medium.is_removable() { 0x80 } else { 0x00 }); // RMB
        reply.u8(0x06); // SPC-4
        reply.u8(0x10 | 0x02); // HISUP; response data format 2
        reply.u8((STANDARD_BYTES - 5) as u8);
        reply.u8(0x30 | 0x08); // TPGS: access is changed by us and by SET TARGET PORT GROUPS; 3PC; no protection
        reply.u8(0x10); // MULTIP: there may be several ports
        reply.u8(0x02); // CMDQUE: the task set of SAM-5
        reply.text(&self.identity.vendor, 8).text(&self.identity.product, 16).text(&self.identity.revision, 4);
        reply.pad_to(58);
        for version in VERSIONS {
            reply.u16(version);
        }
        reply.pad_to(STANDARD_BYTES);
        reply
    }
}

#[cfg(test)]
mod tests;
