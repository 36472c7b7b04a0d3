//! Checks of read-only block commands: READ CAPACITY, READ, VERIFY, GET LBA STATUS.

use super::data::BLOCK_BYTES_MAX;
use super::writes::send_whole;
use crate::session::{CommandResult, Session};
use crate::{CheckResult, Finding, TestTarget, ensure};

/// Sense LOGICAL BLOCK ADDRESS OUT OF RANGE: key, additional sense code, qualifier.
pub(super) const OUT_OF_RANGE: (u8, u8, u8) = (5, 0x21, 0);
/// Sense MISCOMPARE DURING VERIFY OPERATION.
pub(super) const MISCOMPARE: (u8, u8, u8) = (0xe, 0x1d, 0);
/// Sense INVALID COMMAND OPERATION CODE.
const UNKNOWN: (u8, u8, u8) = (5, 0x20, 0);
/// Upper bound of blocks that a block check writes.
pub(super) const BLOCKS_MAX: u16 = 16;

/// Session with a disk, and the geometry of the disk.
pub(super) struct Disk {
    pub(super) session: Session,
    pub(super) blocks: u64,
    pub(super) block_bytes: u32,
    /// LBPRZ: unmapped blocks read as zeros.
    pub(super) unmapped_are_zeros: bool,
}

impl Disk {
    /// Logs in and reads the geometry.
    ///
    /// *Errors*: the unit is not a disk of at least 64 KiB and 64 blocks.
    pub(super) fn of(aim: &TestTarget) -> CheckResult<Self> {
        let mut session = Session::login(aim, |_| {})?;
        session.ready()?;
        let done = session.read(&CAPACITY_16, 32)?;
        accepted("READ CAPACITY (16)", &done)?;
        let (last, block_bytes) = (number(&done.data, 0, 8), number(&done.data, 8, 4));
        let (blocks, block_bytes) = (last.saturating_add(1), u32::try_from(block_bytes).unwrap_or(0));
        // The length is the target's claim, and the checks allocate multiples of it.
        let is_block = block_bytes.is_power_of_two() && block_bytes <= BLOCK_BYTES_MAX;
        if !is_block || blocks < 64 || blocks.saturating_mul(block_bytes.into()) < 64 << 10 {
            return Err(Finding::Untried("the unit is no disk of 64 KiB and 64 blocks".to_owned()));
        }
        // LBPRZ is bit 6 of byte 14, below LBPME (SBC-4 READ CAPACITY (16)).
        let unmapped_are_zeros = done.data.get(14).is_some_and(|byte| byte & 0x40 != 0);
        Ok(Self { session, blocks, block_bytes, unmapped_are_zeros })
    }

    /// Converts blocks to bytes.
    pub(super) fn bytes(&self, blocks: u16) -> u32 {
        u32::from(blocks) * self.block_bytes
    }

    /// Reads blocks with READ (16).
    pub(super) fn read(&mut self, lba: u64, blocks: u16) -> CheckResult<Vec<u8>> {
        let bytes = self.bytes(blocks);
        let done = self.session.read(&cdb16(0x88, 0, lba, blocks.into()), bytes)?;
        accepted("READ (16)", &done)?;
        // GOOD with an underflow is consistent, but the callers compare whole blocks.
        ensure(done.data.len() == bytes as usize, || {
            format!("{} bytes of {bytes} came of READ (16)", done.data.len())
        })?;
        Ok(done.data)
    }

    /// Sends a command with all of its data.
    pub(super) fn send(&mut self, cdb: &[u8], data: &[u8]) -> CheckResult<CommandResult> {
        send_whole(&mut self.session, cdb, data)
    }

    /// Reads a VPD page of up to 1024 bytes; `None` when the unit does not have it.
    pub(super) fn page(&mut self, page: u8) -> CheckResult<Option<Vec<u8>>> {
        let done = self.session.read(&[0x12, 1, page, 4, 0, 0], 1024)?;
        Ok((done.status == 0).then_some(done.data))
    }
}

const CAPACITY_16: [u8; 16] = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];

/// Builds a CDB of 16 bytes with an LBA and a block count of 32 bits.
pub(super) fn cdb16(operation_code: u8, flags: u8, lba: u64, count: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (operation_code, flags);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&count.to_be_bytes());
    cdb
}

/// Decodes a big-endian number; missing bytes count as zero.
pub(super) fn number(data: &[u8], at: usize, len: usize) -> u64 {
    (at..at + len).fold(0, |number, at| number << 8 | u64::from(data.get(at).copied().unwrap_or(0)))
}

fn told(done: &CommandResult) -> String {
    // Sense data is valid only with CHECK CONDITION.
    match done.sensed().filter(|_| done.status == 2).map(|sensed| sensed.triple()) {
        Some((key, code, qualifier)) => format!("sense {key:x}/{code:02x}/{qualifier:02x}"),
        None => format!("status {:#04x}", done.status),
    }
}

/// Checks that the command ended GOOD; an unknown operation code makes the check not testable.
pub(super) fn accepted(name: &str, done: &CommandResult) -> CheckResult {
    is_known(name, done)?;
    ensure(done.status == 0, || format!("{name} ended with {}", told(done)))
}

/// Checks that the command failed with this sense and returned no data.
pub(super) fn refused(name: &str, done: &CommandResult, with: (u8, u8, u8)) -> CheckResult {
    is_known(name, done)?;
    let sensed = done.sensed().filter(|_| done.status == 2).map(|sensed| sensed.triple());
    ensure(sensed == Some(with), || {
        let (key, code, qualifier) = with;
        format!("{name}: sense {key:x}/{code:02x}/{qualifier:02x} is due, and it ended with {}", told(done))
    })?;
    ensure(done.data.is_empty(), || format!("{name} was refused, and {} bytes came all the same", done.data.len()))
}

fn is_known(name: &str, done: &CommandResult) -> CheckResult {
    if done.status == 2 && done.sensed().is_some_and(|sensed| sensed.triple() == UNKNOWN) {
        return Err(Finding::Untried(format!("it does not know {name}")));
    }
    Ok(())
}

pub(super) fn capacity(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let short = disk.session.read(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8)?;
    accepted("READ CAPACITY (10)", &short)?;
    // READ CAPACITY (10) reports FFFFFFFFh for a larger unit (SBC-4).
    let last = disk.blocks - 1;
    let due = (last.min(u32::MAX.into()), u64::from(disk.block_bytes));
    let is = (number(&short.data, 0, 4), number(&short.data, 4, 4));
    ensure(is == due, || format!("READ CAPACITY (10) tells {is:?}, and (16) {due:?}: the last block and its bytes"))?;
    // Both forms may report the same wrong capacity: only a read shows that the last block exists.
    disk.read(last, 1).map(drop)
}

pub(super) fn read_beyond(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let (blocks, two) = (disk.blocks, disk.bytes(2));
    // The second read begins with a valid block, and must be refused as a whole.
    for (name, lba) in [("READ (16) behind the last block", blocks), ("READ (16) across the last block", blocks - 1)] {
        refused(name, &disk.session.read(&cdb16(0x88, 0, lba, 2), two)?, OUT_OF_RANGE)?;
    }
    Ok(())
}

pub(super) fn verify(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let name = "VERIFY (16)";
    // Without BYTCHK, VERIFY has no data (SBC-4).
    accepted(name, &disk.session.read(&cdb16(0x8f, 0, 0, 4), 0)?)?;
    refused(name, &disk.session.read(&cdb16(0x8f, 0, disk.blocks - 1, 2), 0)?, OUT_OF_RANGE)
}

/// Checks VERIFY with BYTCHK 1: the data is compared with the stored data, and nothing is written.
pub(super) fn verify_compares(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let (name, byte_check) = ("VERIFY (16) with BYTCHK", 0x02);
    // Equal data must pass first: otherwise a target that answers MISCOMPARE always would pass the check.
    let stored = disk.read(0, 4)?;
    let cdb = cdb16(0x8f, byte_check, 0, 4);
    let done = disk.send(&cdb, &stored)?;
    // INVALID FIELD IN CDB: the target does not know this value of BYTCHK.
    if done.status == 2 && done.sensed().is_some_and(|sensed| sensed.triple() == (5, 0x24, 0)) {
        return Err(Finding::Untried("it knows no BYTCHK".to_owned()));
    }
    accepted(name, &done)?;
    let mut other = stored.clone();
    // The last byte differs, so the target must compare all blocks.
    let at = other.len() - 1;
    other[at] ^= 1;
    refused("VERIFY (16) of other data", &disk.send(&cdb, &other)?, MISCOMPARE)?;
    // With BYTCHK the data is only compared (SBC-4 VERIFY (16)).
    ensure(disk.read(0, 4)? == stored, || "VERIFY has written".to_owned())
}

/// Returns the descriptors of GET LBA STATUS (16) from block `lba` on: first block, number of blocks and PROVISIONING
/// STATUS of each.
pub(super) fn lba_status_of(disk: &mut Disk, lba: u64) -> CheckResult<Vec<(u64, u64, u8)>> {
    // In this command, the last number is the allocation length instead of a count of blocks.
    let done = disk.session.read(&cdb16(0x9e, 0x12, lba, 512), 512)?;
    accepted("GET LBA STATUS (16)", &done)?;
    // PARAMETER DATA LENGTH does not count its own four bytes.
    let length = 4 + number(&done.data, 0, 4);
    ensure(length >= 24 && (length - 8).is_multiple_of(16), || {
        format!("PARAMETER DATA LENGTH is {}: not the four bytes behind it and descriptors of 16", length - 4)
    })?;
    // PARAMETER DATA LENGTH counts all descriptors, also those that the allocation length cuts off.
    let list = done.data.get(8..).unwrap_or_default().chunks_exact(16).take(((length - 8) / 16) as usize);
    Ok(list.map(|one| (number(one, 0, 8), number(one, 8, 4), one[12] & 0x0f)).collect())
}

pub(super) fn lba_status(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    // Also a block in the middle of an extent: the first descriptor may then begin before it.
    for from in [0, 3] {
        let list = lba_status_of(&mut disk, from)?;
        let mut due = from;
        for (number, &(start, blocks, status)) in list.iter().enumerate() {
            // The first descriptor may begin before the requested block, but must contain it.
            let begins = start == due || (number == 0 && start < due && start.saturating_add(blocks) > due);
            ensure(begins && blocks > 0, || {
                format!("a descriptor of {blocks} blocks begins at {start}, and {due} is due")
            })?;
            ensure(status <= 4, || format!("PROVISIONING STATUS is {status:x}h, which means nothing"))?;
            due = start.saturating_add(blocks);
        }
        ensure(due <= disk.blocks, || format!("descriptors end at block {due} of {}", disk.blocks))?;
    }
    let beyond = disk.session.read(&cdb16(0x9e, 0x12, disk.blocks, 512), 512)?;
    refused("GET LBA STATUS (16) behind the last block", &beyond, OUT_OF_RANGE)
}
