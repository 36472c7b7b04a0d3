//! REPORT SUPPORTED OPERATION CODES and REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS (SPC-4).

use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::operation::{OPERATIONS, Operation, OptionalFeatures};
use crate::reply::Reply;
use crate::sense::Sense;
use block::Rope;

const TIMEOUTS_BYTES: u16 = 10;
/// SUPPORT: not supported, or supported in conformance with the standard.
const NOT_SUPPORTED: u8 = 1;
const SUPPORTED: u8 = 3;

pub(crate) fn report_operations(offered: OptionalFeatures, cdb: Cdb, allocation: u64) -> Result<Rope, Failure> {
    let timeouts = cdb.bit(2, 7);
    let (code, action) = (cdb.u8_at(3), cdb.u16_at(4));
    let mut rows = Operation::of_code(code, offered).peekable();
    let first = rows.peek().copied();
    let with_actions = first.is_some_and(|row| row.action().is_some());
    let of_action = |row: &&Operation| row.action().is_none_or(|own| u16::from(own) == action);
    let reply = match cdb.u8_at(2) & 0x07 {
        0 => all_operations(offered, timeouts),
        // REPORTING OPTIONS 001b, by operation code, is an error for a code with service actions.
        1 if with_actions => return Err(Sense::cdb_bit(2, 2).into()),
        1 => one_operation(first, offered, timeouts),
        // REPORTING OPTIONS 010b, by service action, is an error for a code without any.
        2 if first.is_some() && !with_actions => return Err(Sense::cdb_bit(2, 2).into()),
        2 => one_operation(rows.find(of_action), offered, timeouts),
        // REPORTING OPTIONS 011b covers both; a code without service actions matches action 0 only.
        3 if !with_actions => one_operation(first.filter(|_| action == 0), offered, timeouts),
        3 => one_operation(rows.find(of_action), offered, timeouts),
        _ => return Err(Sense::cdb_bit(2, 2).into()),
    };
    Ok(reply.cut(allocation))
}

pub(crate) fn report_task_management(cdb: Cdb, allocation: u64) -> Result<Rope, Failure> {
    // An allocation length below four is an error (SPC-4).
    if allocation < 4 {
        return Err(Sense::cdb_byte(6).into());
    }
    let mut reply = Reply::new();
    // ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET.
    reply.u8(0x80 | 0x40 | 0x10 | 0x08 | 0x02);
    if cdb.bit(2, 7) {
        // The extended form (REPD) adds timeouts, which are zero: no recommendation.
        reply.bytes(&[0, 0, 12]).pad_to(16);
    } else {
        reply.pad_to(4);
    }
    Ok(reply.cut(allocation))
}

fn all_operations(offered: OptionalFeatures, timeouts: bool) -> Reply {
    let mut list = Reply::new();
    for row in OPERATIONS.iter().filter(|row| row.is_known(offered)) {
        // CTDP: a timeouts descriptor follows; SERVACTV: the service action is valid.
        let flags = if timeouts { 0x02 } else { 0 } | u8::from(row.action().is_some());
        list.u8(row.code()).u8(0).u16(u16::from(row.action().unwrap_or(0)));
        list.u8(0).u8(flags).u16(u16::from(row.cdb_bytes));
        if timeouts {
            emit_timeouts(&mut list, row);
        }
    }
    let mut reply = Reply::new();
    reply.u32(u32::try_from(list.len()).expect("the table is short")).bytes(list.as_bytes());
    reply
}

fn one_operation(row: Option<&Operation>, offered: OptionalFeatures, timeouts: bool) -> Reply {
    let mut reply = Reply::new();
    let Some(row) = row else {
        // The header alone: an operation that is not supported has no usage data and no timeouts (SPC-4).
        reply.u8(0).u8(NOT_SUPPORTED).u16(0);
        return reply;
    };
    let usage = row.usage(offered);
    reply.u8(0).u8(SUPPORTED | if timeouts { 0x80 } else { 0 }).u16(u16::from(row.cdb_bytes)).bytes(&usage);
    if timeouts {
        emit_timeouts(&mut reply, row);
    }
    reply
}

/// Emits the command timeouts descriptor: no nominal processing time, and the recommended timeout.
fn emit_timeouts(reply: &mut Reply, row: &Operation) {
    reply.u16(TIMEOUTS_BYTES).u16(0).u32(0).u32(row.timeout_s());
}

#[cfg(test)]
mod tests;
