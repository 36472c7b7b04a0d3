//! RECEIVE COPY RESULTS (SPC-4), and the Third-party Copy VPD page.

use super::list::{BLOCK_TO_BLOCK, CSCDS_MAX, DESCRIPTOR_BYTES_MAX, IDENTIFICATION, SEGMENTS_MAX, SELF};
use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::failure::Failure;
use crate::operation::OPERATIONS;
use crate::reply::Reply;
use crate::sense::Sense;
use crate::unit::LogicalUnit;
use block::{BlockDevice, Rope};

const COPY_STATUS: u8 = 0x00;
/// One segment has at most so many bytes: 65,535 blocks of 4096.
const SEGMENT_LENGTH_MAX: u32 = 0xFFFF * 4096;
/// How many copies may run at once, of one nexus and of all.
const CONCURRENT_MAX: u8 = 16;
/// Blocks of 512 bytes, as a power of two.
const GRANULARITY: u8 = 9;
/// TRANSFER COUNT UNITS: KiB.
const KIB: u8 = 0x01;

impl<D: BlockDevice> LogicalUnit<D> {
    pub(crate) fn receive_copy_results(&self, nexus: NexusId, cdb: Cdb, allocation: u64) -> Result<Rope, Failure> {
        let mut body = Reply::new();
        if cdb.u8_at(1) & 0x1F == COPY_STATUS {
            // Of a copy that the nexus did not ask for, nobody tells it.
            let known = self.copies.known(nexus, cdb.u8_at(2)).ok_or(Sense::cdb_byte(2))?;
            body.u8(known.state as u8).u16(known.segments).u8(KIB);
            body.u32(u32::try_from(known.bytes >> 10).unwrap_or(u32::MAX));
        } else {
            emit_operating_parameters(&mut body);
        }
        let mut reply = Reply::new();
        reply.u32(u32::try_from(body.len()).expect("an answer is short")).bytes(body.as_bytes());
        Ok(reply.cut(allocation))
    }
}

fn emit_operating_parameters(body: &mut Reply) {
    let concurrent = u16::from(CONCURRENT_MAX);
    body.u32(0).u16(CSCDS_MAX as u16).u16(SEGMENTS_MAX as u16).u32(DESCRIPTOR_BYTES_MAX as u32);
    // No inline data, no held data, no streams.
    body.u32(SEGMENT_LENGTH_MAX).u32(0).u32(0).u32(0).u16(0).u16(concurrent).u8(CONCURRENT_MAX);
    body.u8(GRANULARITY).u8(0).u8(0).bytes(&[0; 3]).u8(2).u8(BLOCK_TO_BLOCK).u8(IDENTIFICATION);
}

/// The descriptors of VPD page 8Fh.
pub(crate) fn emit_third_party_page(reply: &mut Reply) {
    let mut commands = Reply::new();
    for code in [0x83_u8, 0x84] {
        let actions: Vec<u8> =
            OPERATIONS.iter().filter(|row| row.code() == code).filter_map(|row| row.action()).collect();
        commands.u8(code).u8(actions.len() as u8).bytes(&actions);
    }
    let mut supported = Reply::new();
    supported.u8(commands.len() as u8).bytes(commands.as_bytes());
    emit(reply, 0x0001, &supported);
    let mut parameters = Reply::new();
    parameters.u32(0).u16(CSCDS_MAX as u16).u16(SEGMENTS_MAX as u16).u32(DESCRIPTOR_BYTES_MAX as u32).u32(0).pad_to(28);
    emit(reply, 0x0004, &parameters);
    let mut descriptors = Reply::new();
    descriptors.u8(2).u8(BLOCK_TO_BLOCK).u8(IDENTIFICATION);
    emit(reply, 0x0008, &descriptors);
    let mut ids = Reply::new();
    ids.u16(2).u16(SELF);
    emit(reply, 0x000C, &ids);
    let mut general = Reply::new();
    general
        .u32(u32::from(CONCURRENT_MAX))
        .u32(u32::from(CONCURRENT_MAX))
        .u32(SEGMENT_LENGTH_MAX)
        .u8(GRANULARITY)
        .u8(0)
        .pad_to(32);
    emit(reply, 0x8001, &general);
}

/// One third-party copy descriptor, padded to four bytes.
fn emit(reply: &mut Reply, kind: u16, body: &Reply) {
    let length = body.len().next_multiple_of(4);
    reply.u16(kind).u16(u16::try_from(length).expect("a descriptor is short")).bytes(body.as_bytes());
    let end = reply.len() + length - body.len();
    reply.pad_to(end);
}
