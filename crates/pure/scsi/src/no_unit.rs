//! Responses that need no logical unit: commands to a LUN without a unit (SPC-4 and SAM-5, incorrect logical unit
//! selection), and the LUN inventory.

use crate::cdb::Cdb;
use crate::command::Outcome;
use crate::judge::request_of;
use crate::lun::Lun;
use crate::nexus::UnitAttention;
use crate::operation::{Operation, OptionalFeatures, Verb};
use crate::reply::Reply;
use crate::sense::{AdditionalSense, Sense};
use crate::shape::Shape;
use block::Rope;

/// Peripheral qualifier 3 and device type 1Fh: no unit can be present at this LUN.
const NO_UNIT: u8 = 0x7F;

/// Shape of a missing unit; no media access command is validated against it.
const NO_SHAPE: Shape = Shape {
    block_bytes: 512,
    blocks: 0,
    transfer_bytes_max: 0,
    unmap: true,
    atomic_blocks_max: 0,
    sanitize: true,
    key: true,
    removable: true,
    read_only: false,
};

/// Executes a command addressed to a LUN that is not mapped for the nexus, whose inventory is `luns`.
///
/// INQUIRY reports that no unit can be present, REPORT LUNS lists `luns`, and REQUEST SENSE and all other commands
/// report 25/00.
#[must_use]
pub fn execute(cdb: Cdb, luns: &[Lun]) -> Outcome {
    let unsupported = Sense::illegal(AdditionalSense::LOGICAL_UNIT_NOT_SUPPORTED);
    let answer = match Operation::find(cdb, OptionalFeatures::ALL) {
        // Quiet operations are those that are executed despite a unit attention: INQUIRY, REPORT LUNS and REQUEST
        // SENSE.
        Ok(operation) if operation.ignores_unit_attention() => answer(operation, cdb, luns, unsupported),
        _ => Err(unsupported),
    };
    answer.map_or_else(Outcome::check, Outcome::good)
}

/// Executes a command addressed to a LUN that now denotes another unit than the nexus knew: reports 3F/0E where
/// [`execute`] reports 25/00.
#[must_use]
pub fn replaced(cdb: Cdb, luns: &[Lun]) -> Outcome {
    match Operation::find(cdb, OptionalFeatures::ALL) {
        Ok(operation) if operation.ignores_unit_attention() => execute(cdb, luns),
        _ => Outcome::check(UnitAttention::LunsChanged.sense()),
    }
}

/// Executes REPORT LUNS (SPC-4) for a nexus with the inventory `luns`, addressed to any LUN.
///
/// The caller must clear pending 3F/0E attentions of that nexus with
/// [`LogicalUnit::lun_inventory_reported`](crate::LogicalUnit::lun_inventory_reported).
#[must_use]
pub fn report_luns(cdb: Cdb, luns: &[Lun]) -> Outcome {
    match luns_of(cdb, luns) {
        Ok(data_in) => Outcome::good(data_in),
        Err(sense) => Outcome::check(sense),
    }
}

fn answer(operation: &'static Operation, cdb: Cdb, luns: &[Lun], unsupported: Sense) -> Result<Rope, Sense> {
    let request = request_of(operation, cdb, &NO_SHAPE)?;
    let allocation = request.need.data_in;
    match operation.verb {
        Verb::Inquiry => inquiry_of_no_unit(cdb, allocation),
        Verb::ReportLuns => luns_of(cdb, luns),
        Verb::RequestSense => {
            let mut reply = Reply::new();
            // REQUEST SENSE returns the condition as data, with status GOOD (SPC-4).
            reply.bytes(&Sense { descriptor_format: cdb.bit(1, 0), ..unsupported }.emit());
            Ok(reply.cut(allocation))
        }
        _ => Err(unsupported),
    }
}

fn inquiry_of_no_unit(cdb: Cdb, allocation: u64) -> Result<Rope, Sense> {
    let (vital, page) = (cdb.bit(1, 0), cdb.u8_at(2));
    let mut reply = Reply::new();
    match (vital, page) {
        // SPC-4, HISUP, response data format 2, and 31 bytes behind the length.
        (false, 0) => reply.bytes(&[NO_UNIT, 0, 0x06, 0x12, 31]).pad_to(36),
        // The only VPD page is the list of supported pages.
        (true, 0) => reply.bytes(&[NO_UNIT, 0, 0, 1, 0]),
        _ => return Err(Sense::cdb_byte(2)),
    };
    Ok(reply.cut(allocation))
}

pub(crate) fn luns_of(cdb: Cdb, luns: &[Lun]) -> Result<Rope, Sense> {
    let request = request_of(Operation::find(cdb, OptionalFeatures::ALL)?, cdb, &NO_SHAPE)?;
    let allocation = request.need.data_in;
    let luns = match cdb.u8_at(2) {
        // SELECT REPORT 00h excludes well-known logical units and 02h includes them; there are none here.
        0x00 | 0x02 => luns,
        0x01 => &[],
        _ => return Err(Sense::cdb_byte(2)),
    };
    // SPC-4 REPORT LUNS: an allocation length below 16 is an error.
    if allocation < 16 {
        return Err(Sense::cdb_byte(6));
    }
    let mut reply = Reply::new();
    let list_bytes = u32::try_from(luns.len().saturating_mul(8)).expect("a target has at most 16,384 units");
    reply.u32(list_bytes).u32(0);
    for lun in luns {
        reply.u64(lun.0);
    }
    Ok(reply.cut(allocation))
}

#[cfg(test)]
mod tests;
