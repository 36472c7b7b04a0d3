//! LOG SENSE (SPC-4, log parameters), limited to values that are actually counted.

use crate::cdb::Cdb;
use crate::failure::Failure;
use crate::reply::Reply;
use crate::sense::Sense;
use crate::threshold::Resources;
use block::{Rope, Space};
use std::cell::Cell;

const SUPPORTED_PAGES: u8 = 0x00;
const WRITE_ERRORS: u8 = 0x02;
const READ_ERRORS: u8 = 0x03;
const BLOCK_PROVISIONING: u8 = 0x0C;
const BACKGROUND_SCAN: u8 = 0x15;
const STATISTICS: u8 = 0x19;
const INFORMATIONAL_EXCEPTIONS: u8 = 0x2F;
/// All pages, in ascending order.
const PAGES: [u8; 7] = [
    SUPPORTED_PAGES,
    WRITE_ERRORS,
    READ_ERRORS,
    BLOCK_PROVISIONING,
    BACKGROUND_SCAN,
    STATISTICS,
    INFORMATIONAL_EXCEPTIONS,
];

/// Control byte of a binary counter without thresholds (DU, TSD, FORMAT AND LINKING 00b).
const COUNTER: u8 = 0x00;
/// Control byte of a binary list parameter.
const LIST: u8 = 0x03;

/// SCOPE of a resource count.
const DEDICATED: u8 = 0x01;
const SHARED: u8 = 0x02;

/// Counters of a unit since it was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    reads: Cell<u64>,
    writes: Cell<u64>,
    blocks_read: Cell<u64>,
    bytes_written: Cell<u64>,
    read_errors: Cell<u64>,
    write_errors: Cell<u64>,
    conflicts: Cell<u64>,
}

/// Counters of a unit since it was opened, for management views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Completed read commands.
    pub reads: u64,
    /// Completed write commands.
    pub writes: u64,
    /// Bytes read by them.
    pub read_bytes: u64,
    /// Bytes written by them.
    pub written_bytes: u64,
    /// Reads and writes that the device failed.
    pub errors: u64,
    /// Commands that ended with RESERVATION CONFLICT.
    pub conflicts: u64,
}

impl Counters {
    pub(crate) fn statistics(&self, block_bytes: u32) -> Statistics {
        Statistics {
            reads: self.reads.get(),
            writes: self.writes.get(),
            read_bytes: self.blocks_read.get().wrapping_mul(u64::from(block_bytes)),
            written_bytes: self.bytes_written.get(),
            errors: self.read_errors.get().wrapping_add(self.write_errors.get()),
            conflicts: self.conflicts.get(),
        }
    }

    pub(crate) fn count_read(&self, blocks: u64) {
        add(&self.reads, 1);
        add(&self.blocks_read, blocks);
    }

    pub(crate) fn count_write(&self, bytes: usize) {
        add(&self.writes, 1);
        add(&self.bytes_written, bytes as u64);
    }

    pub(crate) fn count_read_error(&self) {
        add(&self.read_errors, 1);
    }

    pub(crate) fn count_write_error(&self) {
        add(&self.write_errors, 1);
    }

    pub(crate) fn count_conflict(&self) {
        add(&self.conflicts, 1);
    }
}

fn add(counter: &Cell<u64>, more: u64) {
    // A wrap after 2^64 does no harm, while a panic would.
    counter.set(counter.get().wrapping_add(more));
}

/// Input of the log pages of a unit.
pub(crate) struct LogView<'a> {
    pub counters: &'a Counters,
    pub block_bytes: u32,
    /// True when the device reports its space.
    pub tells_space: bool,
    pub space: Option<Space>,
}

impl LogView<'_> {
    pub(crate) fn sense(&self, cdb: Cdb, allocation: u64) -> Result<Rope, Failure> {
        let (control, page) = (cdb.u8_at(2) >> 6, cdb.u8_at(2) & 0x3F);
        let (subpage, pointer) = (cdb.u8_at(3), cdb.u16_at(5));
        // Only cumulative values exist: there are no thresholds and no defaults.
        if control != 1 {
            return Err(Sense::cdb_bit(2, 7).into());
        }
        let pages = self.pages();
        let mut reply = Reply::new();
        match (page, subpage) {
            (SUPPORTED_PAGES, 0x00) => {
                reply.u8(page).u8(0).u16(0).bytes(&pages);
            }
            // With subpages: each page with its subpage 0, and this page itself.
            (SUPPORTED_PAGES, 0xFF) => {
                // Subpage FFh of page 00h lists pages together with their subpages.
                reply.u8(0x40 | page).u8(0xFF).u16(0).bytes(&[0, 0, 0, 0xFF]);
                // Page 00h is listed above with both of its subpages.
                pages.iter().skip(1).for_each(|&page| {
                    reply.u8(page).u8(0);
                });
            }
            (page, 0) if pages.contains(&page) => {
                let parameters = self.parameters(page);
                // SPC-4: a PARAMETER POINTER beyond the last parameter is an error.
                // Parameters are in ascending order, so the last one has the highest code.
                if parameters.last().is_none_or(|last| last.code < pointer) {
                    return Err(Sense::cdb_byte(5).into());
                }
                reply.u8(page).u8(0).u16(0);
                // Only parameters from PARAMETER POINTER on are returned (SPC-4).
                parameters.iter().filter(|parameter| parameter.code >= pointer).for_each(|p| p.emit(&mut reply));
            }
            (page, _) if pages.contains(&page) => return Err(Sense::cdb_byte(3).into()),
            _ => return Err(Sense::cdb_bit(2, 5).into()),
        }
        reply.set_length16(2);
        Ok(reply.cut(allocation))
    }

    /// Returns the supported pages; a device that does not report its space has no provisioning page.
    fn pages(&self) -> Vec<u8> {
        PAGES.into_iter().filter(|&page| self.tells_space || page != BLOCK_PROVISIONING).collect()
    }

    fn parameters(&self, page: u8) -> Vec<Parameter> {
        let counters = self.counters;
        let block_bytes = u64::from(self.block_bytes);
        // 0005h: total bytes processed; 0006h: total uncorrected errors.
        // Corrected errors are left out: redundancy corrects them below the unit, which does not learn of them.
        let errors = |bytes, errors| vec![Parameter::counter(0x0005, bytes), Parameter::counter(0x0006, errors)];
        match page {
            WRITE_ERRORS => errors(counters.bytes_written.get(), counters.write_errors.get()),
            READ_ERRORS => errors(counters.blocks_read.get().wrapping_mul(block_bytes), counters.read_errors.get()),
            BLOCK_PROVISIONING => self.space.map_or_else(Vec::new, resource_parameters),
            // No scan is active, and none was performed: members are scrubbed below the unit, invisible to SCSI.
            BACKGROUND_SCAN => vec![Parameter::list(0x0000, vec![0; 12])],
            STATISTICS => vec![Parameter::list(0x0001, self.statistics_parameter())],
            // No exception; the temperature is unknown (FFh).
            INFORMATIONAL_EXCEPTIONS => vec![Parameter::list(0x0000, vec![0x00, 0x00, 0xFF, 0x00])],
            _ => Vec::new(),
        }
    }

    /// General Access Statistics and Performance: command and block counts; times are not measured and zero.
    fn statistics_parameter(&self) -> Vec<u8> {
        let counters = self.counters;
        let block_bytes = u64::from(self.block_bytes);
        let blocks_written = counters.bytes_written.get() / block_bytes;
        let kept = [counters.reads.get(), counters.writes.get(), blocks_written, counters.blocks_read.get()];
        let mut values: Vec<u8> = kept.into_iter().flat_map(u64::to_be_bytes).collect();
        // The remaining fields are times, which are reported as zero.
        values.resize(64, 0);
        values
    }
}

/// Returns the available space, which is shared with other units, and the used space, which is the unit's own.
fn resource_parameters(space: Space) -> Vec<Parameter> {
    let Resources { available, used } = Resources::of(space);
    let resource = |code, count: u32, scope| {
        Parameter::list(code, count.to_be_bytes().into_iter().chain([scope, 0, 0, 0]).collect())
    };
    vec![resource(0x0001, available, SHARED), resource(0x0002, used, DEDICATED)]
}

struct Parameter {
    code: u16,
    control: u8,
    value: Vec<u8>,
}

impl Parameter {
    fn counter(code: u16, value: u64) -> Self {
        Self { code, control: COUNTER, value: value.to_be_bytes().to_vec() }
    }

    fn list(code: u16, value: Vec<u8>) -> Self {
        Self { code, control: LIST, value }
    }

    fn emit(&self, reply: &mut Reply) {
        let length = u8::try_from(self.value.len()).expect("a log parameter of our own is short");
        reply.u16(self.code).u8(self.control).u8(length).bytes(&self.value);
    }
}

#[cfg(test)]
mod tests;
