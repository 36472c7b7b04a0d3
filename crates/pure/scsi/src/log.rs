//! LOG SENSE (SPC-4, log parameters): counters that are counted, and nothing else.

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
/// Every page, in ascending order.
const PAGES: [u8; 7] = [
    SUPPORTED_PAGES,
    WRITE_ERRORS,
    READ_ERRORS,
    BLOCK_PROVISIONING,
    BACKGROUND_SCAN,
    STATISTICS,
    INFORMATIONAL_EXCEPTIONS,
];

/// A counter that target and initiator let run on, in binary (DU, TSD, FORMAT AND LINKING 00b).
const COUNTER: u8 = 0x00;
/// A binary list parameter.
const LIST: u8 = 0x03;

/// SCOPE of a resource count.
const DEDICATED: u8 = 0x01;
const SHARED: u8 = 0x02;

/// What a unit has done since it came up.
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

/// What a unit has done since it came up, for its owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Commands that read.
    pub reads: u64,
    /// Commands that wrote.
    pub writes: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they wrote.
    pub written_bytes: u64,
    /// Reads and writes that the device did not do.
    pub errors: u64,
    /// Commands that were refused because another nexus has reserved the unit.
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
    counter.set(counter.get().wrapping_add(more));
}

/// What log pages tell of a unit.
pub(crate) struct Logged<'a> {
    pub counters: &'a Counters,
    pub block_bytes: u32,
    /// True when the device tells its space.
    pub tells_space: bool,
    pub space: Option<Space>,
}

impl Logged<'_> {
    pub(crate) fn sense(&self, cdb: Cdb, allocation: u64) -> Result<Rope, Failure> {
        let (control, page) = (cdb.u8_at(2) >> 6, cdb.u8_at(2) & 0x3F);
        let (subpage, pointer) = (cdb.u8_at(3), cdb.u16_at(5));
        // Only cumulative values are kept: there are no thresholds and no defaults.
        if control != 1 {
            return Err(Sense::cdb_bit(2, 7).into());
        }
        let pages = self.pages();
        let mut reply = Reply::new();
        match (page, subpage) {
            (SUPPORTED_PAGES, 0x00) => {
                reply.u8(page).u8(0).u16(0).bytes(&pages);
            }
            // With subpages: the same pages, each with its subpage 0, and this one itself.
            (SUPPORTED_PAGES, 0xFF) => {
                reply.u8(0x40 | page).u8(0xFF).u16(0).bytes(&[0, 0, 0, 0xFF]);
                pages.iter().skip(1).for_each(|&page| {
                    reply.u8(page).u8(0);
                });
            }
            (page, 0) if pages.contains(&page) => {
                let parameters = self.parameters(page);
                if parameters.last().is_none_or(|last| last.code < pointer) {
                    return Err(Sense::cdb_byte(5).into());
                }
                reply.u8(page).u8(0).u16(0);
                parameters.iter().filter(|parameter| parameter.code >= pointer).for_each(|p| p.emit(&mut reply));
            }
            (page, _) if pages.contains(&page) => return Err(Sense::cdb_byte(3).into()),
            _ => return Err(Sense::cdb_bit(2, 5).into()),
        }
        reply.set_length16(2);
        Ok(reply.cut(allocation))
    }

    /// The pages that the unit has: one that does not tell its space has none about it.
    fn pages(&self) -> Vec<u8> {
        PAGES.into_iter().filter(|&page| self.tells_space || page != BLOCK_PROVISIONING).collect()
    }

    fn parameters(&self, page: u8) -> Vec<Parameter> {
        let counters = self.counters;
        let block_bytes = u64::from(self.block_bytes);
        // Total bytes processed, total uncorrected errors.
        let errors = |bytes, errors| vec![Parameter::counter(0x0005, bytes), Parameter::counter(0x0006, errors)];
        match page {
            WRITE_ERRORS => errors(counters.bytes_written.get(), counters.write_errors.get()),
            READ_ERRORS => errors(counters.blocks_read.get().wrapping_mul(block_bytes), counters.read_errors.get()),
            BLOCK_PROVISIONING => self.space.map_or_else(Vec::new, resource_parameters),
            // No scan is active, and none was made: members are scrubbed below, out of sight of SCSI.
            BACKGROUND_SCAN => vec![Parameter::list(0x0000, vec![0; 12])],
            STATISTICS => vec![Parameter::list(0x0001, self.statistics_parameter())],
            // No exception; the temperature is not known.
            INFORMATIONAL_EXCEPTIONS => vec![Parameter::list(0x0000, vec![0x00, 0x00, 0xFF, 0x00])],
            _ => Vec::new(),
        }
    }

    /// General access statistics: commands and blocks; times are not kept, and zero.
    fn statistics_parameter(&self) -> Vec<u8> {
        let counters = self.counters;
        let block_bytes = u64::from(self.block_bytes);
        let blocks_written = counters.bytes_written.get() / block_bytes;
        let kept = [counters.reads.get(), counters.writes.get(), blocks_written, counters.blocks_read.get()];
        let mut values: Vec<u8> = kept.into_iter().flat_map(u64::to_be_bytes).collect();
        values.resize(64, 0);
        values
    }
}

/// What is available, which other units share, and what is used, which is the unit's own.
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
