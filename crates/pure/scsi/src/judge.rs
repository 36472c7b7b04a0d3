//! Validation of a CDB: operation, blocks and transfer lengths, or the sense of its refusal.
#![warn(clippy::arithmetic_side_effects)]

use crate::alua;
use crate::cdb::Cdb;
use crate::command::DataNeed;
use crate::copy;
use crate::medium::diagnostic::check_self_test;
use crate::operation::{Data, EJECT_BITS, Operation, OptionalFeatures, Verb};
use crate::request::Request;
use crate::reservation::check_list_length;
use crate::sanitize;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::shape::{Shape, WRITE_SAME_BLOCKS_MAX};
use block::Extent;

/// Computes the data transfer of a command from its CDB alone.
///
/// *Errors*: the sense of a command that cannot succeed. The caller need not solicit its data: it executes the command
/// without data, and the unit answers with this sense or with a condition that ranks before it (a unit attention).
pub fn judge(cdb: Cdb, shape: &Shape) -> Result<DataNeed, Sense> {
    let operation = Operation::find(cdb, shape.optional_features())?;
    // The order of the unit: write protection ranks before reserved bits and fields.
    if operation.writes() && shape.read_only {
        return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
    }
    request_of(operation, cdb, shape).map(|request| request.need)
}

/// Returns the largest data-out of a command for any unit with this block size. Data beyond it need not be solicited.
/// For callers that do not have the [`Shape`] of the unit.
#[must_use]
pub fn data_out_bytes_max(cdb: Cdb, block_bytes: u32) -> u64 {
    // An unknown operation takes no data.
    let Ok(operation) = Operation::find(cdb, OptionalFeatures::ALL) else { return 0 };
    if !operation.data.goes_out() {
        return 0;
    }
    let (_, blocks, _) = address_of(operation, cdb);
    // The address has no influence on the length, so the extent starts at block 0.
    let request = Request { operation, cdb, extent: Extent::new(0, blocks), need: DataNeed::default() };
    need_of(&request, block_bytes).data_out
}

/// Parses the CDB of `operation`.
///
/// *Errors*: 24/00 with a field pointer; 21/00 for blocks beyond the capacity.
#[inline]
pub(crate) fn request_of(operation: &'static Operation, cdb: Cdb, shape: &Shape) -> Result<Request, Sense> {
    // Reserved bits rank before the other fields: one AND over the whole CDB.
    operation.check_reserved(cdb)?;
    match operation.verb {
        Verb::Read | Verb::Write => transfer(operation, cdb, shape),
        _ => other(operation, cdb, shape),
    }
}

fn other(operation: &'static Operation, cdb: Cdb, shape: &Shape) -> Result<Request, Sense> {
    let extent = match operation.verb {
        Verb::WriteAtomic
        | Verb::WriteAndVerify
        | Verb::Verify
        | Verb::OrWrite
        | Verb::CompareAndWrite
        | Verb::PreFetch
        | Verb::SynchronizeCache
        | Verb::WriteSame => extent_of(operation, cdb, shape)?,
        Verb::GetLbaStatus => blocks_from(cdb.u64_at(2), shape)?,
        _ => Extent::default(),
    };
    let mut request = Request { operation, cdb, extent, need: DataNeed::default() };
    check_fields(&request, shape)?;
    request.need = need_of(&request, shape.block_bytes);
    Ok(request)
}

/// Parses a READ or WRITE: it transfers the blocks that it names and has no other field to check.
#[inline]
fn transfer(operation: &'static Operation, cdb: Cdb, shape: &Shape) -> Result<Request, Sense> {
    let (lba, blocks, blocks_at) = address_of(operation, cdb);
    // READ and WRITE of zero blocks at the end of the medium are valid.
    let extent = Extent::checked(lba, blocks).filter(|extent| extent.end().0 <= shape.blocks);
    let extent = extent.ok_or(Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE))?;
    if blocks > shape.transfer_blocks_max() {
        return Err(Sense::cdb_byte(blocks_at));
    }
    let bytes = extent.len.bytes(shape.block_bytes);
    let need = match operation.verb {
        Verb::Read => DataNeed { data_out: 0, data_in: bytes },
        _ => DataNeed { data_out: bytes, data_in: 0 },
    };
    Ok(Request { operation, cdb, extent, need })
}

fn check_fields(request: &Request, shape: &Shape) -> Result<(), Sense> {
    match request.operation.verb {
        // BYTCHK 10b is not assigned (SBC-4).
        Verb::Verify if request.byte_check() == 2 => Err(Sense::cdb_bit(1, 2)),
        Verb::WriteAndVerify if request.byte_check() > 1 => Err(Sense::cdb_bit(1, 2)),
        Verb::PersistentReserveOut => check_list_length(request.cdb),
        Verb::ExtendedCopy => copy::check_list_length(request.cdb),
        Verb::PopulateToken | Verb::WriteUsingToken => copy::check_ranges_length(request.cdb),
        Verb::Sanitize => sanitize::check_list_length(request.cdb, shape.block_bytes),
        Verb::SendDiagnostic => check_self_test(request.cdb),
        Verb::StartStopUnit if !shape.removable => check_no_eject(request.cdb),
        Verb::SetTargetPortGroups => alua::check_list_length(request.cdb),
        // ATOMIC BOUNDARY must be zero: with a boundary the parts of the write would be atomic, not the whole.
        Verb::WriteAtomic if request.cdb.u16_at(10) != 0 => Err(Sense::cdb_byte(10)),
        Verb::WriteSame if request.unmaps() && !shape.unmap => Err(Sense::cdb_bit(1, 3)),
        _ => Ok(()),
    }
}

// Forced inline because every command comes through here: the second caller, which has no unit, must not turn this into
// a call for all others.
#[inline(always)]
fn need_of(request: &Request, block_bytes: u32) -> DataNeed {
    let (one, all) = (u64::from(block_bytes), request.extent.len.bytes(block_bytes));
    let (data_in, data_out) = match request.operation.data {
        Data::None => (0, 0),
        Data::Answer { at, bytes } => (number_at(request.cdb, at, bytes), 0),
        Data::FixedAnswer(bytes) => (u64::from(bytes), 0),
        Data::List { at, bytes } => (0, number_at(request.cdb, at, bytes)),
        Data::BlocksIn => (all, 0),
        Data::BlocksOut => (0, all),
        // COMPARE AND WRITE: the blocks to compare, followed by the blocks to write (SBC-4).
        Data::BlocksTwice => (0, all.saturating_mul(2)),
        Data::ByteCheck => match request.byte_check() {
            1 => (0, all),
            // BYTCHK 01b compares all blocks, 11b compares each with the same single block (SBC-4 VERIFY).
            3 if !request.extent.is_empty() => (0, one),
            _ => (0, 0),
        },
        // NDOB: the block to write is implied to be zero (SBC-4 WRITE SAME).
        Data::OneBlock if request.has_no_data_out() => (0, 0),
        Data::OneBlock => (0, one),
    };
    DataNeed { data_out, data_in }
}

/// Refuses the bits of START STOP UNIT that only a unit with a removable medium supports.
fn check_no_eject(cdb: Cdb) -> Result<(), Sense> {
    match cdb.u8_at(4) & EJECT_BITS {
        0 => Ok(()),
        // The pointer names the highest set bit; the byte has eight bits, so the index fits.
        bits => Err(Sense::cdb_bit(4, bits.ilog2() as u8)),
    }
}

fn number_at(cdb: Cdb, at: u32, bytes: u32) -> u64 {
    match bytes {
        1 => u64::from(cdb.u8_at(at)),
        2 => u64::from(cdb.u16_at(at)),
        _ => u64::from(cdb.u32_at(at)),
    }
}

/// Parses the blocks of a media access CDB and checks them against the capacity and the limit of one command.
fn extent_of(operation: &Operation, cdb: Cdb, shape: &Shape) -> Result<Extent, Sense> {
    let (lba, blocks, blocks_at) = address_of(operation, cdb);
    let out_of_range = Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE);
    // A command for zero blocks may start at the end of the medium, not beyond.
    let behind = shape.blocks.checked_sub(lba).ok_or(out_of_range)?;
    if blocks > behind {
        return Err(out_of_range);
    }
    let (blocks, blocks_max) = match operation.verb {
        // WSNZ is one: zero blocks is not taken as "up to the last block".
        Verb::WriteSame if blocks == 0 => return Err(Sense::cdb_byte(blocks_at)),
        Verb::WriteSame => (blocks, WRITE_SAME_BLOCKS_MAX),
        // A count of zero means all blocks up to the end of the medium (SBC-4 SYNCHRONIZE CACHE).
        Verb::SynchronizeCache if blocks == 0 => (behind, u64::MAX),
        Verb::SynchronizeCache | Verb::PreFetch => (blocks, u64::MAX),
        Verb::CompareAndWrite => (blocks, u64::from(shape.compare_blocks_max())),
        Verb::WriteAtomic => (blocks, u64::from(shape.atomic_blocks_max)),
        _ => (blocks, shape.transfer_blocks_max()),
    };
    // Limits of the Block Limits VPD page.
    if blocks > blocks_max {
        return Err(Sense::cdb_byte(blocks_at));
    }
    let extent = Extent::checked(lba, blocks).ok_or(out_of_range)?;
    assert!(extent.end().0 <= shape.blocks, "an admitted extent is on the unit");
    Ok(extent)
}

/// Returns all blocks from `lba` to the end, at least one.
fn blocks_from(lba: u64, shape: &Shape) -> Result<Extent, Sense> {
    let blocks = shape.blocks.checked_sub(lba).filter(|&blocks| blocks > 0);
    let extent = blocks.and_then(|blocks| Extent::checked(lba, blocks));
    extent.ok_or(Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE))
}

/// Returns the first block, the number of blocks, and the CDB byte where that number starts.
fn address_of(operation: &Operation, cdb: Cdb) -> (u64, u64, u16) {
    match operation.cdb_bytes {
        6 => {
            // Zero means 256 blocks in 6-byte CDBs only.
            let blocks = match cdb.u8_at(4) {
                0 => 256,
                blocks => u64::from(blocks),
            };
            // LOGICAL BLOCK ADDRESS has 21 bits in a 6-byte CDB.
            (u64::from(cdb.u24_at(1) & 0x1F_FFFF), blocks, 4)
        }
        10 => (u64::from(cdb.u32_at(2)), u64::from(cdb.u16_at(7)), 7),
        12 => (u64::from(cdb.u32_at(2)), u64::from(cdb.u32_at(6)), 6),
        _ if operation.verb == Verb::WriteAtomic => (cdb.u64_at(2), u64::from(cdb.u16_at(12)), 12),
        _ if operation.verb == Verb::CompareAndWrite => (cdb.u64_at(2), u64::from(cdb.u8_at(13)), 13),
        _ => (cdb.u64_at(2), u64::from(cdb.u32_at(10)), 10),
    }
}

#[cfg(test)]
mod tests;
