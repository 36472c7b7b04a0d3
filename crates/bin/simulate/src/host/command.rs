//! SCSI commands as bytes, and the meaning of their answers.

use block::{Buf, Rope};
use iscsi::initiator::{Command, Completion, DataIn};
use iscsi::pdu::{Lun, ServiceResponse, TaskAttribute};
use scsi::ParsedSense;
use smallvec::SmallVec;
use std::ops::Range;

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const TASK_SET_FULL: u8 = 0x28;
const TASK_ABORTED: u8 = 0x40;

/// Outcome of a command as the oracle must interpret it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// Nothing was done; a retry may succeed.
    NotNow,
    /// Nothing was done: the unit attention had priority.
    Attention(u8, u8),
    /// The stored blocks differ from the data.
    Miscompare,
    /// Nothing was done: the command is not possible.
    Refused(u8, u8),
    /// No space in the pool; some blocks may have been written.
    NoSpace,
    /// Medium or hardware error; something may have been done.
    Failed(u8, u8, u8),
    /// Aborted by task management; something may have been done.
    Aborted,
}

/// Returns the outcome of a completion.
pub(crate) fn verdict(completion: &Completion) -> Verdict {
    if completion.response != ServiceResponse::Completed {
        // Sense key Fh marks a failure without sense data.
        return Verdict::Failed(0xF, 0, 0);
    }
    match completion.status {
        GOOD => Verdict::Good,
        // With either status the command did not enter the task set (SAM-5).
        BUSY | TASK_SET_FULL => Verdict::NotNow,
        TASK_ABORTED => Verdict::Aborted,
        CHECK_CONDITION => sense_verdict(&completion.sense),
        status => Verdict::Failed(0xF, status, 0),
    }
}

fn sense_verdict(sense: &[u8]) -> Verdict {
    let (key, code, qualifier) = ParsedSense::parse(sense).map_or((0, 0, 0), |sensed| sensed.triple());
    match key {
        // BECOMING READY: the disks disappeared while the command ran, so something may have been done.
        0x2 if (code, qualifier) == (0x04, 0x01) => Verdict::Failed(key, code, qualifier),
        0x2 => Verdict::NotNow,
        // SPACE ALLOCATION FAILED WRITE PROTECT: the pool of a thin volume is full.
        0x7 if (code, qualifier) == (0x27, 0x07) => Verdict::NoSpace,
        // ILLEGAL REQUEST and DATA PROTECT.
        0x5 | 0x7 => Verdict::Refused(code, qualifier),
        0x6 => Verdict::Attention(code, qualifier),
        0xE => Verdict::Miscompare,
        _ => Verdict::Failed(key, code, qualifier),
    }
}

/// Builds TEST UNIT READY.
pub(crate) fn test_unit_ready(lun: Lun) -> Command {
    command(lun, &[0; 6], None, DataIn::None)
}

/// Reads the blocks of `range`.
pub(crate) fn read(lun: Lun, range: &Range<u64>, block_bytes: usize) -> Command {
    let bytes = (range.end - range.start) as usize * block_bytes;
    let into = DataIn::Into(Buf::recycled(bytes));
    match short_form(range, 0x28) {
        // The parity of the address selects the CDB length, so that both forms are exercised.
        Some(cdb) if range.start.is_multiple_of(2) => command(lun, &cdb, None, into),
        _ => command(lun, &long_form(range, 0x88, 0), None, into),
    }
}

/// Writes `data` to the blocks of `range`; with `verify`, by WRITE AND VERIFY.
pub(crate) fn write(lun: Lun, range: &Range<u64>, data: Rope, verify: bool) -> Command {
    let (short, long) = if verify { (0x2E, 0x8E) } else { (0x2A, 0x8A) };
    match short_form(range, short) {
        Some(cdb) if range.start.is_multiple_of(2) => command(lun, &cdb, Some(data), DataIn::None),
        _ => command(lun, &long_form(range, long, 0), Some(data), DataIn::None),
    }
}

/// Fills the blocks of `range` with the block `data`, or with zeros when it is `None`.
pub(crate) fn write_same(lun: Lun, range: &Range<u64>, data: Option<Rope>, unmap: bool) -> Command {
    // Bit NDOB: the command has no data (SBC-4 WRITE SAME (16)).
    let flags = u8::from(data.is_none()) | if unmap { 0x08 } else { 0 };
    command(lun, &long_form(range, 0x93, flags), data, DataIn::None)
}

/// Writes the second half of `data` if the blocks of `range` hold the first half.
pub(crate) fn compare_and_write(lun: Lun, range: &Range<u64>, data: Rope) -> Command {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&range.start.to_be_bytes());
    cdb[13] = u8::try_from(range.end - range.start).expect("it names at most 255 blocks");
    command(lun, &cdb, Some(data), DataIn::None)
}

/// Unmaps the blocks of `extents`.
pub(crate) fn unmap(lun: Lun, extents: &[Range<u64>]) -> Command {
    let mut list = vec![0; 8 + 16 * extents.len()];
    let length = u16::try_from(list.len()).expect("a list is short");
    // UNMAP DATA LENGTH excludes its own two bytes, UNMAP BLOCK DESCRIPTOR DATA LENGTH the whole header.
    list[0..2].copy_from_slice(&(length - 2).to_be_bytes());
    list[2..4].copy_from_slice(&(length - 8).to_be_bytes());
    for (descriptor, extent) in list[8..].chunks_exact_mut(16).zip(extents) {
        descriptor[..8].copy_from_slice(&extent.start.to_be_bytes());
        descriptor[8..12].copy_from_slice(&blocks_of(extent).to_be_bytes());
    }
    let mut cdb = [0; 10];
    cdb[0] = 0x42;
    cdb[7..9].copy_from_slice(&length.to_be_bytes());
    command(lun, &cdb, Some(Buf::copy_of(&list).into()), DataIn::None)
}

/// Makes all acknowledged writes durable.
pub(crate) fn synchronize_cache(lun: Lun) -> Command {
    let mut cdb = [0; 10];
    cdb[0] = 0x35;
    command(lun, &cdb, None, DataIn::None)
}

/// Builds READ CAPACITY (16).
pub(crate) fn read_capacity(lun: Lun) -> Command {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9E, 0x10, 32);
    command(lun, &cdb, None, DataIn::Into(Buf::recycled(32)))
}

/// Returns the number of blocks and the block length from the data of READ CAPACITY (16).
pub(crate) fn capacity_in(data: &[u8]) -> Option<(u64, u32)> {
    // READ CAPACITY (16) reports the address of the last block, not the number of blocks (SBC-3).
    let last = u64::from_be_bytes(data.get(..8)?.try_into().ok()?);
    Some((last.checked_add(1)?, u32::from_be_bytes(data.get(8..12)?.try_into().ok()?)))
}

fn command(lun: Lun, cdb: &[u8], data_out: Option<Rope>, data_in: DataIn) -> Command {
    Command { lun, cdb: SmallVec::from_slice(cdb), attribute: TaskAttribute::Simple, data_out, data_in }
}

/// Returns the 10-byte CDB if it can represent the extent.
fn short_form(range: &Range<u64>, code: u8) -> Option<[u8; 10]> {
    let (start, blocks) = (u32::try_from(range.start).ok()?, u16::try_from(range.end - range.start).ok()?);
    let mut cdb = [0; 10];
    cdb[0] = code;
    cdb[2..6].copy_from_slice(&start.to_be_bytes());
    cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
    Some(cdb)
}

fn long_form(range: &Range<u64>, code: u8, flags: u8) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, flags);
    cdb[2..10].copy_from_slice(&range.start.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks_of(range).to_be_bytes());
    cdb
}

fn blocks_of(range: &Range<u64>) -> u32 {
    u32::try_from(range.end - range.start).expect("a command names less than 2^32 blocks")
}
