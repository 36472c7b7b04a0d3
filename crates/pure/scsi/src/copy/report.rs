//! RECEIVE COPY RESULTS (SPC-4), and the Third-party Copy VPD page (8Fh).

use super::list::{CSCDS_MAX, DESCRIPTOR_BYTES_MAX, IDENTIFICATION, SELF};
use super::ranges::{RANGES_MAX, TRANSFER_BYTES_MAX};
use super::segment::{BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_WITH_OFFSET, SEGMENT_LENGTH_MAX, SEGMENTS_MAX};
use super::status::{Copies, CopyStatus, State};
use crate::cdb::Cdb;
use crate::command::NexusId;
use crate::failure::Failure;
use crate::operation::OPERATIONS;
use crate::reply::Reply;
use crate::sense::Sense;
use crate::token::{CHANGE_VULNERABLE, INACTIVITY_DEFAULT_S, INACTIVITY_MAX_S, ZERO};
use block::Rope;

const COPY_STATUS: u8 = 0x00;
const OPERATING_PARAMETERS: u8 = 0x03;
const COPY_STATUS_LONG: u8 = 0x05;
/// Supported descriptor types, in ascending order.
const DESCRIPTOR_TYPES: [u8; 3] = [BLOCK_TO_BLOCK, BLOCK_TO_BLOCK_WITH_OFFSET, IDENTIFICATION];
/// Reported limit on concurrent copies, of one nexus and of all.
const CONCURRENT_MAX: u8 = 16;
/// Data segment granularity as a power of two: 512 bytes.
const GRANULARITY: u8 = 9;
/// Length of a ROD type descriptor, and its flags for created and accepted tokens.
const ROD_TYPE_BYTES: usize = 64;
const TOKEN_OUT: u8 = 0x01;
const TOKEN_IN: u8 = 0x02;
/// TRANSFER COUNT UNITS: KiB.
const KIB: u8 = 0x01;

/// COPY OPERATION STATUS: completed, failed, completed with residual data, in progress, and terminated (by COPY
/// OPERATION ABORT or task management).
const DONE: u8 = 0x01;
const FAILED: u8 = 0x02;
const DONE_IN_PART: u8 = 0x03;
const UNDER_WAY: u8 = 0x10;
const ABORTED: u8 = 0x60;
/// ESTIMATED STATUS UPDATE DELAY: no further update, or an update within this number of milliseconds.
const NO_MORE: u32 = 0xFFFF_FFFE;
const SOON_MS: u32 = 1000;
/// TRANSFER COUNT UNITS: logical blocks.
const BLOCKS: u8 = 0xF1;

impl Copies {
    /// Executes RECEIVE COPY RESULTS; `block_bytes` is the block size of the unit.
    pub(crate) fn results(&self, nexus: NexusId, cdb: Cdb, allocation: u64, block_bytes: u32) -> Result<Rope, Failure> {
        // A nexus learns nothing about the copies of others.
        let known = |id: u32| self.status_of(nexus, id).ok_or(Sense::cdb_byte(2));
        let mut body = Reply::new();
        match cdb.u8_at(1) & 0x1F {
            COPY_STATUS => {
                let known = known(cdb.u8_at(2).into())?;
                let state = match known.state {
                    State::Running => 0x00,
                    State::Done | State::DoneInPart => DONE,
                    State::Failed => FAILED,
                };
                body.u8(state).u16(known.segments).u8(KIB);
                body.u32(u32::try_from(known.bytes >> 10).unwrap_or(u32::MAX));
            }
            OPERATING_PARAMETERS => emit_operating_parameters(&mut body),
            COPY_STATUS_LONG => emit_status(&mut body, &known(cdb.u32_at(2))?, KIB, 1 << 10),
            // RECEIVE ROD TOKEN INFORMATION: `OPERATIONS` admits no other service action.
            _ => {
                let known = known(cdb.u32_at(2))?;
                emit_status(&mut body, &known, BLOCKS, block_bytes.into());
                match &known.token {
                    Some(token) => body.u32(2 + token.len() as u32).u16(0).bytes(&token[..]),
                    None => body.u32(0),
                };
            }
        }
        let mut reply = Reply::new();
        reply.u32(u32::try_from(body.len()).expect("an answer is short")).bytes(body.as_bytes());
        Ok(reply.cut(allocation))
    }
}

/// Emits the common part of RECEIVE COPY STATUS (LID4) and RECEIVE ROD TOKEN INFORMATION; the transfer count is in
/// units of `unit_bytes`.
fn emit_status(body: &mut Reply, known: &CopyStatus, units: u8, unit_bytes: u64) {
    let status = match (known.state, known.sense) {
        (State::Running, _) => UNDER_WAY,
        (State::Done, _) => DONE,
        (State::DoneInPart, _) => DONE_IN_PART,
        (State::Failed, Some(_)) => FAILED,
        // A failure without sense data was an abort.
        (State::Failed, None) => ABORTED,
    };
    let (is_under_way, sense) = (known.state == State::Running, known.sense.map(|sense| sense.emit()));
    let sense = sense.as_deref().unwrap_or_default();
    let length = u8::try_from(sense.len()).expect("sense data is short");
    // EXTENDED COPY COMPLETION STATUS is the status that the copy would have had without IMMED: GOOD or CHECK
    // CONDITION.
    let completion = if sense.is_empty() { 0x00 } else { 0x02 };
    body.u8(known.action).u8(status).u16(0).u32(if is_under_way { SOON_MS } else { NO_MORE });
    body.u8(completion).u8(length).u8(length).u8(units).u64(known.bytes / unit_bytes);
    // SEGMENTS PROCESSED is zero for token commands, which have no segments.
    body.u16(known.segments).bytes(&[0; 6]).bytes(sense);
}

fn emit_operating_parameters(body: &mut Reply) {
    let concurrent = u16::from(CONCURRENT_MAX);
    body.u32(0).u16(CSCDS_MAX as u16).u16(SEGMENTS_MAX as u16).u32(DESCRIPTOR_BYTES_MAX as u32);
    // Inline data, held data and streams are not supported.
    body.u32(SEGMENT_LENGTH_MAX).u32(0).u32(0).u32(0).u16(0).u16(concurrent).u8(CONCURRENT_MAX);
    body.u8(GRANULARITY).u8(0).u8(0).bytes(&[0; 3]).u8(DESCRIPTOR_TYPES.len() as u8).bytes(&DESCRIPTOR_TYPES);
}

/// Emits the third-party copy descriptors of VPD page 8Fh.
pub(crate) fn emit_third_party_page(reply: &mut Reply) {
    // Block Device ROD Limits (SBC-3).
    let mut limits = Reply::new();
    limits.pad_to(6).u16(RANGES_MAX as u16).u32(INACTIVITY_MAX_S).u32(INACTIVITY_DEFAULT_S);
    limits.u64(TRANSFER_BYTES_MAX).u64(TRANSFER_BYTES_MAX);
    emit(reply, 0x0000, &limits);
    // Supported Commands.
    let mut commands = Reply::new();
    // Taken from the table of operations, so the page never lists an action that is not supported.
    for code in [0x83_u8, 0x84] {
        let actions: Vec<u8> =
            OPERATIONS.iter().filter(|row| row.code() == code).filter_map(|row| row.action()).collect();
        commands.u8(code).u8(actions.len() as u8).bytes(&actions);
    }
    let mut supported = Reply::new();
    supported.u8(commands.len() as u8).bytes(commands.as_bytes());
    emit(reply, 0x0001, &supported);
    // Parameter Data.
    let mut parameters = Reply::new();
    parameters.u32(0).u16(CSCDS_MAX as u16).u16(SEGMENTS_MAX as u16).u32(DESCRIPTOR_BYTES_MAX as u32).u32(0).pad_to(28);
    emit(reply, 0x0004, &parameters);
    // Supported Descriptors.
    let mut descriptors = Reply::new();
    descriptors.u8(DESCRIPTOR_TYPES.len() as u8).bytes(&DESCRIPTOR_TYPES);
    emit(reply, 0x0008, &descriptors);
    // Supported CSCD Descriptor IDs.
    let mut ids = Reply::new();
    ids.u16(2).u16(SELF);
    emit(reply, 0x000C, &ids);
    emit_rod_descriptors(reply);
    // General Copy Operations.
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

/// Emits the ROD Token Features and Supported ROD Token and ROD Types descriptors.
fn emit_rod_descriptors(reply: &mut Reply) {
    let mut features = Reply::new();
    // REMOTE TOKENS is zero: only tokens of units of the same target are accepted.
    features.u8(0).pad_to(12).u32(INACTIVITY_DEFAULT_S).u32(INACTIVITY_MAX_S).u32(INACTIVITY_MAX_S).pad_to(42).u16(48);
    // Block ROD device type specific features.
    features.u8(0).u8(0).u16(44).u16(0).u16(0);
    features.u64(TRANSFER_BYTES_MAX).u64(TRANSFER_BYTES_MAX).u64(TRANSFER_BYTES_MAX).u64(TRANSFER_BYTES_MAX).pad_to(92);
    emit(reply, 0x0106, &features);
    let mut types = Reply::new();
    types.u16(0).u16(2 * ROD_TYPE_BYTES as u16);
    for (kind, uses) in [(CHANGE_VULNERABLE, TOKEN_IN | TOKEN_OUT), (ZERO, TOKEN_IN)] {
        let end = types.len() + ROD_TYPE_BYTES;
        types.u32(kind).u8(uses).pad_to(end);
    }
    emit(reply, 0x0108, &types);
}

/// Emits one third-party copy descriptor, padded to four bytes.
fn emit(reply: &mut Reply, kind: u16, body: &Reply) {
    let length = body.len().next_multiple_of(4);
    reply.u16(kind).u16(u16::try_from(length).expect("a descriptor is short")).bytes(body.as_bytes());
    let end = reply.len() + length - body.len();
    reply.pad_to(end);
}
