//! INQUIRY (SPC-4): standard data and vital product data pages.

mod vpd;

use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::identity::{Identity, Options, Provisioning, TargetPort};
use crate::reply::Reply;
use crate::sense::Sense;
use crate::shape::Shape;
use block::{Geometry, Rope, Space};
use std::rc::Rc;

/// Version descriptors of the supported standards: SAM-5, SPC-4, SBC-3, iSCSI.
const VERSIONS: [u16; 4] = [0x00A0, 0x0460, 0x04C0, 0x0960];

/// Length of standard INQUIRY data with all eight version descriptors.
const STANDARD_BYTES: usize = 96;

/// View of a unit that INQUIRY reports to one nexus.
pub(crate) struct InquiryView<'a> {
    pub identity: &'a Identity,
    pub options: &'a Options,
    pub provisioning: Provisioning,
    pub geometry: Geometry,
    pub shape: Shape,
    /// True when the device reports its space, and the report.
    pub tells_space: bool,
    pub space: Option<Space>,
    /// Target port of the nexus; `None` when it is not attached.
    pub port: Option<Rc<TargetPort>>,
    /// True when the unit is not connected through that port now (ALUA).
    pub is_disconnected: bool,
}

impl InquiryView<'_> {
    pub(crate) fn inquire(&self, cdb: Cdb, allocation: u64) -> Result<Rope, Failure> {
        let page = cdb.u8_at(2);
        let reply = match (cdb.bit(1, 0), page) {
            // EVPD selects a vital product data page.
            (true, page) => self.vital_page(page)?,
            (false, 0) => self.standard_inquiry(),
            // PAGE CODE must be zero without EVPD.
            (false, _) => return Err(Sense::cdb_byte(2).into()),
        };
        Ok(reply.cut(allocation))
    }

    /// Peripheral qualifier and device type: direct access block device, connected (000b) or not connected (001b)
    /// through this port.
    fn peripheral(&self) -> u8 {
        if self.is_disconnected { 0x20 } else { 0x00 }
    }

    fn standard_inquiry(&self) -> Reply {
        let mut reply = Reply::new();
        reply.u8(self.peripheral());
        reply.u8(if self.shape.removable { 0x80 } else { 0x00 }); // RMB
        reply.u8(0x06); // SPC-4
        reply.u8(0x10 | 0x02); // HISUP; response data format 2
        // ADDITIONAL LENGTH counts the bytes behind itself, which is byte 4.
        reply.u8((STANDARD_BYTES - 5) as u8);
        reply.u8(0x30 | 0x08); // TPGS: implicit and explicit ALUA; 3PC; no protection information
        reply.u8(0x10); // MULTIP: several target ports are possible
        reply.u8(0x02); // CMDQUE: the task set of SAM-5
        reply.text(&self.identity.vendor, 8).text(&self.identity.product, 16).text(&self.identity.revision, 4);
        reply.pad_to(58);
        for version in VERSIONS {
            reply.u16(version);
        }
        reply.pad_to(STANDARD_BYTES);
        assert_eq!(reply.len(), STANDARD_BYTES, "standard INQUIRY data has one length");
        reply
    }
}

#[cfg(test)]
mod tests;
