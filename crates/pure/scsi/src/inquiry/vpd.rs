//! Vital product data pages (SPC-4 and SBC-4, vital product data).

use super::InquiryView;
use crate::copy::emit_third_party_page;
use crate::designator::{Association, CodeSet, emit_designator, emit_port, padded_name, uuid_designator};
use crate::identity::Provisioning;
use crate::reply::Reply;
use crate::sense::Sense;
use crate::shape::{Shape, UNMAP_BLOCKS_MAX, UNMAP_DESCRIPTORS_MAX, WRITE_SAME_BLOCKS_MAX};
use crate::threshold::threshold_exponent;

const SUPPORTED_PAGES: u8 = 0x00;
const UNIT_SERIAL_NUMBER: u8 = 0x80;
const DEVICE_IDENTIFICATION: u8 = 0x83;
const EXTENDED_INQUIRY: u8 = 0x86;
const THIRD_PARTY_COPY: u8 = 0x8F;
const BLOCK_LIMITS: u8 = 0xB0;
const BLOCK_CHARACTERISTICS: u8 = 0xB1;
const BLOCK_PROVISIONING: u8 = 0xB2;

/// All pages, in the ascending order in which they are listed.
const PAGES: [u8; 8] = [
    SUPPORTED_PAGES,
    UNIT_SERIAL_NUMBER,
    DEVICE_IDENTIFICATION,
    EXTENDED_INQUIRY,
    THIRD_PARTY_COPY,
    BLOCK_LIMITS,
    BLOCK_CHARACTERISTICS,
    BLOCK_PROVISIONING,
];

/// Fixed length of pages 86h, B0h and B1h.
const LONG_PAGE_BYTES: usize = 64;
/// Serial numbers are truncated to this number of characters.
const SERIAL_CHARACTERS_MAX: usize = 64;

impl InquiryView<'_> {
    pub(super) fn vital_page(&self, page: u8) -> Result<Reply, Sense> {
        let mut reply = Reply::new();
        // PAGE LENGTH is filled in at the end.
        reply.u8(self.peripheral()).u8(page).u16(0);
        match page {
            SUPPORTED_PAGES => {
                reply.bytes(&PAGES);
            }
            UNIT_SERIAL_NUMBER => {
                let serial = &self.identity.serial;
                reply.text(serial, serial.len().min(SERIAL_CHARACTERS_MAX));
            }
            DEVICE_IDENTIFICATION => self.emit_designators(&mut reply),
            EXTENDED_INQUIRY => self.emit_extended_inquiry(&mut reply),
            THIRD_PARTY_COPY => emit_third_party_page(&mut reply),
            BLOCK_LIMITS => self.emit_block_limits(&mut reply),
            BLOCK_CHARACTERISTICS => self.emit_characteristics(&mut reply),
            BLOCK_PROVISIONING => self.emit_provisioning(&mut reply),
            _ => return Err(Sense::cdb_byte(2)),
        }
        reply.set_length16(2);
        Ok(reply)
    }

    fn emit_designators(&self, reply: &mut Reply) {
        let identity = self.identity;
        // A T10 vendor ID based designator begins with the vendor identification (SPC-4).
        let mut vendor_based = Reply::new();
        vendor_based.text(&identity.vendor, 8).text(&identity.product, 16);
        vendor_based.text(&identity.serial, identity.serial.len().min(SERIAL_CHARACTERS_MAX));
        // The name format of iSCSI for an NAA identifier (RFC 7143 §4.2.7).
        let naa_name = format!("naa.{}", hex(&identity.naa));
        emit_designator(reply, Association::LogicalUnit, CodeSet::Binary, 0x3, &identity.naa);
        emit_designator(reply, Association::LogicalUnit, CodeSet::Ascii, 0x1, vendor_based.as_bytes());
        emit_designator(reply, Association::LogicalUnit, CodeSet::Utf8, 0x8, &padded_name(&naa_name));
        emit_designator(reply, Association::LogicalUnit, CodeSet::Binary, 0xA, &uuid_designator(identity));
        // The port through which the nexus is logged in; the others are reported through themselves.
        if let Some(port) = &self.port {
            emit_port(reply, port);
        }
    }

    fn emit_extended_inquiry(&self, reply: &mut Reply) {
        reply.u8(0x00); // no protection information
        reply.u8(0x07); // HEADSUP, ORDSUP, SIMPSUP
        reply.u8(0x00); // V_SUP is zero: no volatile cache behind GOOD
        reply.pad_to(LONG_PAGE_BYTES);
    }

    fn emit_block_limits(&self, reply: &mut Reply) {
        let (shape, geometry) = (&self.shape, self.geometry);
        let transfer_max = clamp(shape.transfer_blocks_max());
        let optimal = blocks_in(geometry.optimal_bytes, shape);
        let physical = blocks_in(geometry.physical_block_bytes, shape);
        // The field has 16 bits; a larger optimal size gives way to the physical block.
        let granularity = u16::try_from(optimal).or(u16::try_from(physical)).unwrap_or(0);
        reply.u8(0x01); // WSNZ: WRITE SAME names how many blocks
        reply.u8(shape.compare_blocks_max() as u8);
        reply.u16(granularity).u32(transfer_max);
        // OPTIMAL TRANSFER LENGTH is a multiple of the granularity, and at most the maximum.
        // Zero is an optimal size without meaning, which must not be a divisor.
        reply.u32(if optimal <= transfer_max { transfer_max - transfer_max % optimal.max(1) } else { transfer_max });
        reply.u32(0); // PRE-FETCH has no limit
        let unmap = |value| if shape.unmap { value } else { 0 };
        reply.u32(unmap(UNMAP_BLOCKS_MAX)).u32(unmap(UNMAP_DESCRIPTORS_MAX));
        // Only whole granules free space; they are aligned to block 0 (UGAVALID is one, alignment 0).
        let granule = self.space.map_or(physical, |space| blocks_in(space.granule_bytes, shape));
        reply.u32(unmap(granule)).u32(unmap(0x8000_0000));
        reply.u64(WRITE_SAME_BLOCKS_MAX);
        // Atomic writes may start anywhere and have any length up to the maximum; atomic boundaries are not supported.
        reply.u32(shape.atomic_blocks_max).u32(0).u32(0).u32(0).u32(0);
        reply.pad_to(LONG_PAGE_BYTES);
    }

    fn emit_characteristics(&self, reply: &mut Reply) {
        let shape = &self.shape;
        // MEDIUM ROTATION RATE 1 is non-rotating; 0 is not reported, because members of any rate may lie below.
        reply.u16(u16::from(!self.options.rotational)).u8(0);
        // WABEREQ and WACEREQ: a block can be read after BLOCK ERASE or CRYPTOGRAPHIC ERASE before it is written again.
        let by_blocks = if shape.sanitize && shape.unmap { 0x40 } else { 0 };
        reply.u8(by_blocks | if shape.key { 0x10 } else { 0 });
        reply.pad_to(LONG_PAGE_BYTES);
    }

    fn emit_provisioning(&self, reply: &mut Reply) {
        let zeros = if self.geometry.discard_zeroes { 0x04 } else { 0 };
        let exponent = if self.tells_space { threshold_exponent(self.geometry.block_bytes) } else { 0 };
        // LBPU, LBPWS and LBPWS10 with UNMAP, none without; anchored blocks are not supported.
        let (supported, kind) = match self.provisioning {
            Provisioning::Full => (0x00, 0),
            Provisioning::Resource => (0xE0 | zeros, 1),
            Provisioning::Thin => (0xE0 | zeros, 2),
        };
        reply.u8(exponent).u8(supported).u8(kind).u8(0);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn blocks_in(bytes: u32, shape: &Shape) -> u32 {
    bytes / shape.block_bytes.max(1)
}

fn clamp(blocks: u64) -> u32 {
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
