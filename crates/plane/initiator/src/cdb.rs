//! Builders of the SCSI commands that a remote disk needs (SPC-4, SBC-4).
//!
//! Called by [`crate::disk`] and [`crate::fence`]. Nothing here decides when a command is sent.

use block::{Buf, Rope, View};
use iscsi::initiator::{Command, DataIn};
use iscsi::pdu::{Lun, TaskAttribute};
use smallvec::SmallVec;

/// CDB, padded with zeros to 16 bytes. The target takes the length from the operation code.
type Cdb = [u8; 16];

/// PERSISTENT RESERVE IN service actions (SPC-4, 6.15).
pub const READ_KEYS: u8 = 0;
/// READ RESERVATION.
pub const READ_RESERVATION: u8 = 1;
/// REPORT CAPABILITIES.
pub const REPORT_CAPABILITIES: u8 = 2;

/// Write Exclusive, All Registrants (SPC-4, table of persistent reservation types).
pub const WRITE_EXCLUSIVE_ALL_REGISTRANTS: u8 = 7;

/// PERSISTENT RESERVE OUT service actions (SPC-4, 6.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ReserveOut {
    /// RESERVE.
    Reserve = 1,
    /// PREEMPT AND ABORT.
    PreemptAndAbort = 5,
    /// REGISTER AND IGNORE EXISTING KEY.
    RegisterAndIgnore = 6,
}

fn command(lun: Lun, cdb: Cdb, data_out: Option<Rope>, data_in: DataIn) -> Command {
    Command { lun, cdb: SmallVec::from_buf(cdb), attribute: TaskAttribute::Simple, data_out, data_in }
}

fn into(bytes: usize) -> DataIn {
    DataIn::Into(Buf::zeroed(bytes))
}

/// TEST UNIT READY.
#[must_use]
pub fn test_unit_ready(lun: Lun) -> Command {
    command(lun, [0; 16], None, DataIn::None)
}

/// INQUIRY: standard data, or the VPD page `page`.
#[must_use]
pub fn inquiry(lun: Lun, page: Option<u8>) -> Command {
    // Also fits the one-byte allocation length of SPC-2.
    const BYTES: u16 = 252;
    // 0x12 is INQUIRY; byte 1 is EVPD.
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2]) = (0x12, u8::from(page.is_some()), page.unwrap_or(0));
    cdb[3..5].copy_from_slice(&BYTES.to_be_bytes());
    command(lun, cdb, None, into(BYTES.into()))
}

/// READ CAPACITY (16).
#[must_use]
pub fn read_capacity(lun: Lun) -> Command {
    let mut cdb = [0; 16];
    // SERVICE ACTION IN (16), service action 10h; byte 13 is the low byte of the allocation length.
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x10, 32);
    command(lun, cdb, None, into(32))
}

/// MODE SENSE (10) of the caching mode page, current values, without block descriptors.
#[must_use]
pub fn mode_sense_caching(lun: Lun) -> Command {
    let mut cdb = [0; 16];
    // Byte 1 is DBD (no block descriptors), byte 2 the caching page with page control 0 (current values).
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5a, 0x08, 0x08, 192);
    command(lun, cdb, None, into(192))
}

/// REPORT TARGET PORT GROUPS.
#[must_use]
pub fn report_target_port_groups(lun: Lun) -> Command {
    const BYTES: u32 = 4096;
    let mut cdb = [0; 16];
    // MAINTENANCE IN, service action 0Ah.
    (cdb[0], cdb[1]) = (0xa3, 0x0a);
    cdb[6..10].copy_from_slice(&BYTES.to_be_bytes());
    command(lun, cdb, None, into(BYTES as usize))
}

/// Returns a 16-byte CDB with an LBA and a number of blocks.
fn transfer(operation: u8, lba: u64, blocks: u32) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = operation;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// READ (16) of `blocks` blocks from `lba`, `bytes` in total.
#[must_use]
pub fn read(lun: Lun, lba: u64, blocks: u32, bytes: usize) -> Command {
    // Old bytes cannot leak: the caller takes the buffer only if the target has filled all of it.
    command(lun, transfer(0x88, lba, blocks), None, DataIn::Into(Buf::recycled(bytes)))
}

/// WRITE (16) of `data` from `lba`.
#[must_use]
pub fn write(lun: Lun, lba: u64, blocks: u32, data: View) -> Command {
    command(lun, transfer(0x8a, lba, blocks), Some(Rope::from(data)), DataIn::None)
}

/// SYNCHRONIZE CACHE (16) of the whole unit.
#[must_use]
pub fn synchronize_cache(lun: Lun) -> Command {
    // LBA 0 and length 0: the whole medium.
    command(lun, transfer(0x91, 0, 0), None, DataIn::None)
}

/// UNMAP of one range.
#[must_use]
pub fn unmap(lun: Lun, lba: u64, blocks: u32) -> Command {
    let mut cdb = [0; 16];
    // 0x42 is UNMAP; byte 8 is the low byte of the parameter list length.
    (cdb[0], cdb[8]) = (0x42, 24);
    let mut list = Buf::zeroed(24);
    // Parameter list: UNMAP DATA LENGTH 22, BLOCK DESCRIPTOR DATA LENGTH 16, then one descriptor (SBC-4, UNMAP).
    list[0..2].copy_from_slice(&22_u16.to_be_bytes());
    list[2..4].copy_from_slice(&16_u16.to_be_bytes());
    list[8..16].copy_from_slice(&lba.to_be_bytes());
    list[16..20].copy_from_slice(&blocks.to_be_bytes());
    command(lun, cdb, Some(Rope::from(list.freeze())), DataIn::None)
}

/// PERSISTENT RESERVE IN.
#[must_use]
pub fn reserve_in(lun: Lun, action: u8) -> Command {
    const BYTES: u16 = 4096;
    let mut cdb = [0; 16];
    // 0x5e is PERSISTENT RESERVE IN.
    (cdb[0], cdb[1]) = (0x5e, action);
    cdb[7..9].copy_from_slice(&BYTES.to_be_bytes());
    command(lun, cdb, None, into(BYTES.into()))
}

/// PERSISTENT RESERVE OUT of the type Write Exclusive, All Registrants.
///
/// *Shape*: `key` is the registered key of this nexus, `action_key` the one that is registered or preempted. With
/// `survives` a registration survives a power loss of the target (APTPL). *Source*: SPC-4, 6.16.
#[must_use]
pub fn reserve_out(lun: Lun, action: ReserveOut, key: u64, action_key: u64, survives: bool) -> Command {
    let mut cdb = [0; 16];
    // 0x5f is PERSISTENT RESERVE OUT; byte 8 is the low byte of the parameter list length.
    (cdb[0], cdb[1], cdb[8]) = (0x5f, action as u8, 24);
    // Scope and type are ignored by REGISTER AND IGNORE EXISTING KEY.
    if action != ReserveOut::RegisterAndIgnore {
        cdb[2] = WRITE_EXCLUSIVE_ALL_REGISTRANTS;
    }
    let mut list = Buf::zeroed(24);
    list[0..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    // APTPL, which only a registration sets.
    list[20] = u8::from(survives && action == ReserveOut::RegisterAndIgnore);
    command(lun, cdb, Some(Rope::from(list.freeze())), DataIn::None)
}
