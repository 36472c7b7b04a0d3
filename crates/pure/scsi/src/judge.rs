//! A CDB is judged: its operation, its blocks, what it moves, or why it is refused.
#![warn(clippy::arithmetic_side_effects)]

use crate::alua;
use crate::cdb::Cdb;
use crate::command::DataNeed;
use crate::copy;
use crate::medium::diagnostic::check_self_test;
use crate::operation::{Data, EJECT_BITS, Offered, Operation, Verb};
use crate::request::Request;
use crate::reservation::check_list_length;
use crate::sanitize;
use crate::sense::{AdditionalSense, Sense, SenseKey};
use crate::shape::{Shape, WRITE_SAME_BLOCKS_MAX};
use block::Extent;

/// Says what a command is about to move, from its CDB alone.
///
/// *Errors*: the sense of a command that cannot be done. Its data need not be waited for: it is
/// executed without data, and answered with this sense or with what ranks before it (a unit attention).
pub fn judge(cdb: Cdb, shape: &Shape) -> Result<DataNeed, Sense> {
    let operation = Operation::find(cdb, shape.offered())?;
    if operation.writes() && shape.read_only {
        return Err(Sense::new(SenseKey::DataProtect, AdditionalSense::WRITE_PROTECTED));
    }
    request_of(operation, cdb, shape).map(|request| request.need)
}

/// The most data that a command takes whatever its unit is like, but for the size of its blocks: what an initiator has beyond
/// that need not be asked for. For who has not the [`Shape`] at hand.
#[must_use]
pub fn data_out_bytes_max(cdb: Cdb, block_bytes: u32) -> u64 {
    let Ok(operation) = Operation::find(cdb, Offered::ALL) else { return 0 };
    if !operation.data.goes_out() {
        return 0;
    }
    let (_, blocks, _) = address_of(operation, cdb);
    let request = Request { operation, cdb, extent: Extent::new(0, blocks), need: DataNeed::default() };
    need_of(&request, block_bytes).data_out
}

/// Reads the CDB of `operation`.
///
/// *Errors*: 24/00 with a field pointer; 21/00 for blocks that the unit does not have.
#[inline]
pub(crate) fn request_of(operation: &'static Operation, cdb: Cdb, shape: &Shape) -> Result<Request, Sense> {
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

/// A READ or WRITE: it moves the blocks that it names, and has no other field.
#[inline]
fn transfer(operation: &'static Operation, cdb: Cdb, shape: &Shape) -> Result<Request, Sense> {
    let (lba, blocks, blocks_at) = address_of(operation, cdb);
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
        Verb::Verify if request.byte_check() == 2 => Err(Sense::cdb_bit(1, 2)),
        Verb::WriteAndVerify if request.byte_check() > 1 => Err(Sense::cdb_bit(1, 2)),
        Verb::PersistentReserveOut => check_list_length(request.cdb),
        Verb::ExtendedCopy => copy::check_list_length(request.cdb),
        Verb::PopulateToken | Verb::WriteUsingToken => copy::check_ranges_length(request.cdb),
        Verb::Sanitize => sanitize::check_list_length(request.cdb, shape.block_bytes),
        Verb::SendDiagnostic => check_self_test(request.cdb),
        Verb::StartStopUnit if !shape.removable => check_no_eject(request.cdb),
        Verb::SetTargetPortGroups => alua::check_list_length(request.cdb),
        // Only a write without boundaries is whole.
        Verb::WriteAtomic if request.cdb.u16_at(10) != 0 => Err(Sense::cdb_byte(10)),
        Verb::WriteSame if request.unmaps() && !shape.unmap => Err(Sense::cdb_bit(1, 3)),
        _ => Ok(()),
    }
}

// Every command is judged: the one that asks without a unit must not cost the others a call.
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
        Data::BlocksTwice => (0, all.saturating_mul(2)),
        Data::ByteCheck => match request.byte_check() {
            1 => (0, all),
            3 if !request.extent.is_empty() => (0, one),
            _ => (0, 0),
        },
        Data::OneBlock if request.has_no_data_out() => (0, 0),
        Data::OneBlock => (0, one),
    };
    DataNeed { data_out, data_in }
}

/// Refuses what only a unit with a removable medium understands of START STOP UNIT.
fn check_no_eject(cdb: Cdb) -> Result<(), Sense> {
    match cdb.u8_at(4) & EJECT_BITS {
        0 => Ok(()),
        // The highest bit of those that are set; of eight, so it fits.
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

/// Reads the blocks that a media CDB names, and admits only what the unit has and one command may name.
fn extent_of(operation: &Operation, cdb: Cdb, shape: &Shape) -> Result<Extent, Sense> {
    let (lba, blocks, blocks_at) = address_of(operation, cdb);
    let out_of_range = Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE);
    // A command for no blocks may stand at the very end, not behind it.
    let behind = shape.blocks.checked_sub(lba).ok_or(out_of_range)?;
    if blocks > behind {
        return Err(out_of_range);
    }
    let (blocks, blocks_max) = match operation.verb {
        // WSNZ: no count does not mean all blocks to the end.
        Verb::WriteSame if blocks == 0 => return Err(Sense::cdb_byte(blocks_at)),
        Verb::WriteSame => (blocks, WRITE_SAME_BLOCKS_MAX),
        Verb::SynchronizeCache if blocks == 0 => (behind, u64::MAX),
        Verb::SynchronizeCache | Verb::PreFetch => (blocks, u64::MAX),
        Verb::CompareAndWrite => (blocks, u64::from(shape.compare_blocks_max())),
        Verb::WriteAtomic => (blocks, u64::from(shape.atomic_blocks_max)),
        _ => (blocks, shape.transfer_blocks_max()),
    };
    if blocks > blocks_max {
        return Err(Sense::cdb_byte(blocks_at));
    }
    let extent = Extent::checked(lba, blocks).ok_or(out_of_range)?;
    assert!(extent.end().0 <= shape.blocks, "an admitted extent is on the unit");
    Ok(extent)
}

/// All blocks from `lba` on, of which there is at least one.
fn blocks_from(lba: u64, shape: &Shape) -> Result<Extent, Sense> {
    let blocks = shape.blocks.checked_sub(lba).filter(|&blocks| blocks > 0);
    let extent = blocks.and_then(|blocks| Extent::checked(lba, blocks));
    extent.ok_or(Sense::illegal(AdditionalSense::LBA_OUT_OF_RANGE))
}

/// The first block, the number of blocks, and the byte where that number begins.
fn address_of(operation: &Operation, cdb: Cdb) -> (u64, u64, u16) {
    match operation.cdb_bytes {
        6 => {
            // A length of zero means 256 blocks here, and nowhere else.
            let blocks = match cdb.u8_at(4) {
                0 => 256,
                blocks => u64::from(blocks),
            };
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
