//! Checks of block commands that change data: UNMAP, COMPARE AND WRITE, WRITE SAME, and writes that must be refused.

use super::blocks::{BLOCKS_MAX, Disk, MISCOMPARE, OUT_OF_RANGE, accepted, cdb16, lba_status_of, number, refused};
use crate::{CheckResult, Finding, TestTarget, ensure};

/// Sense INVALID FIELD IN CDB.
const INVALID_FIELD: (u8, u8, u8) = (5, 0x24, 0);
/// Sense PARAMETER LIST LENGTH ERROR.
const LIST_LENGTH: (u8, u8, u8) = (5, 0x1a, 0);
const DEALLOCATED: u8 = 1;

/// Returns blocks that differ from each other and from the blocks of another seed.
fn content(disk: &Disk, seed: u8, blocks: u16) -> Vec<u8> {
    let block = disk.block_bytes as usize;
    (0..blocks as usize * block).map(|at| (at / block) as u8 ^ (at as u8).wrapping_mul(29) ^ seed).collect()
}

/// Writes the data from block `lba` on.
fn fill(disk: &mut Disk, lba: u64, data: &[u8]) -> CheckResult {
    let blocks = data.len() as u32 / disk.block_bytes;
    accepted("WRITE (16)", &disk.send(&cdb16(0x8a, 0, lba, blocks), data)?)
}

fn holds(disk: &mut Disk, lba: u64, data: &[u8], what: &str) -> CheckResult {
    let blocks = u16::try_from(data.len() as u32 / disk.block_bytes).unwrap_or(u16::MAX);
    let is = disk.read(lba, blocks)?;
    let at = is.iter().zip(data).position(|(is, due)| is != due).map(|at| at as u32 / disk.block_bytes);
    ensure(is == data, || format!("{what}: block {} holds something else", lba + u64::from(at.unwrap_or(0))))
}

pub(super) fn write_beyond(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let last = disk.blocks - 1;
    // The valid block holds known content, so that a write of it shows.
    let before = content(&disk, 0x11, 1);
    fill(&mut disk, last, &before)?;
    let data = content(&disk, 0x12, 2);
    refused("WRITE (16) across the last block", &disk.send(&cdb16(0x8a, 0, last, 2), &data)?, OUT_OF_RANGE)?;
    holds(&mut disk, last, &before, "a WRITE that was refused")
}

/// Builds the parameter list of an UNMAP with one descriptor.
fn unmap_list(lba: u64, blocks: u32) -> [u8; 24] {
    let mut list = [0; 24];
    // UNMAP DATA LENGTH and UNMAP BLOCK DESCRIPTOR DATA LENGTH.
    (list[1], list[3]) = (22, 16);
    list[8..16].copy_from_slice(&lba.to_be_bytes());
    list[16..20].copy_from_slice(&blocks.to_be_bytes());
    list
}

/// Builds an UNMAP CDB for a parameter list of `bytes`.
fn unmap_cdb(bytes: usize) -> [u8; 10] {
    [0x42, 0, 0, 0, 0, 0, 0, 0, bytes as u8, 0]
}

pub(super) fn unmap(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    // Detects a unit without UNMAP before anything is written.
    accepted("UNMAP of nothing", &disk.session.read(&unmap_cdb(0), 0)?)?;
    let before = content(&disk, 0x21, BLOCKS_MAX);
    fill(&mut disk, 0, &before)?;
    // Only the middle half is unmapped, so that changes outside the range are detected.
    let (from, blocks) = (BLOCKS_MAX / 4, BLOCKS_MAX / 2);
    let list = unmap_list(from.into(), blocks.into());
    accepted("UNMAP", &disk.send(&unmap_cdb(24), &list)?)?;
    let after = disk.read(0, BLOCKS_MAX)?;
    let deallocated = deallocated_of(&mut disk)?;
    let block = disk.block_bytes as usize;
    for (at, (is, was)) in (0_u16..).zip(after.chunks(block).zip(before.chunks(block))) {
        let is_zero = is.iter().all(|&byte| byte == 0);
        ensure(is == was || (from..from + blocks).contains(&at), || {
            format!("UNMAP of blocks {from} to {} has changed block {at}", from + blocks - 1)
        })?;
        // UNMAP is advisory: a block may keep its content. A block that changed must read as LBPRZ says.
        ensure(is == was || is_zero || !disk.unmapped_are_zeros, || {
            format!("LBPRZ is one, and block {at} reads neither as zeros nor as before")
        })?;
        ensure(is_zero || !disk.unmapped_are_zeros || !deallocated.contains(&u64::from(at)), || {
            format!("LBPRZ is one, block {at} is deallocated, and it does not read as zeros")
        })?;
    }
    Ok(())
}

/// Returns the deallocated blocks among the first `BLOCKS_MAX`; empty when the unit does not know GET LBA STATUS.
fn deallocated_of(disk: &mut Disk) -> CheckResult<Vec<u64>> {
    let told = match lba_status_of(disk, 0) {
        Err(Finding::Untried(_)) => return Ok(Vec::new()),
        told => told?,
    };
    let gone = told.into_iter().filter(|&(_, _, status)| status == DEALLOCATED);
    Ok(gone.flat_map(|(start, blocks, _)| start..start.saturating_add(blocks).min(BLOCKS_MAX.into())).collect())
}

pub(super) fn unmap_beyond(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let last = disk.blocks - 1;
    let before = content(&disk, 0x22, 1);
    fill(&mut disk, last, &before)?;
    for (name, lba, blocks) in [
        ("UNMAP across the last block", last, 2),
        ("UNMAP behind the last block", disk.blocks, 1),
        // The end of this range overflows 64 bits.
        ("UNMAP near 2^64", u64::MAX, 2),
    ] {
        refused(name, &disk.send(&unmap_cdb(24), &unmap_list(lba, blocks))?, OUT_OF_RANGE)?;
    }
    holds(&mut disk, last, &before, "an UNMAP that was refused")
}

pub(super) fn unmap_list_length(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    accepted("UNMAP of nothing", &disk.session.read(&unmap_cdb(0), 0)?)?;
    refused("UNMAP with a list of 4 bytes", &disk.send(&unmap_cdb(4), &[0, 2, 0, 0])?, LIST_LENGTH)
}

/// Builds a CDB of COMPARE AND WRITE for `blocks` blocks.
fn compare_and_write_cdb(lba: u64, blocks: u8) -> [u8; 16] {
    let mut cdb = cdb16(0x89, 0, lba, 0);
    cdb[13] = blocks;
    cdb
}

pub(super) fn compare_and_write(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let name = "COMPARE AND WRITE";
    let (old, new) = (content(&disk, 0x31, 3), content(&disk, 0x32, 3));
    let block = disk.block_bytes as usize;
    fill(&mut disk, 0, &old)?;
    // Only the middle block of three, so that writes to its neighbors are detected.
    let data = [&old[block..2 * block], &new[block..2 * block]].concat();
    accepted(name, &disk.send(&compare_and_write_cdb(1, 1), &data)?)?;
    let due = [&old[..block], &new[block..2 * block], &old[2 * block..]].concat();
    holds(&mut disk, 0, &due, name)?;
    // No blocks are no error, and nothing is compared or written (SBC-4).
    accepted("COMPARE AND WRITE of no blocks", &disk.session.read(&compare_and_write_cdb(1, 0), 0)?)
}

pub(super) fn compare_and_write_miscompare(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let stored = content(&disk, 0x33, 1);
    fill(&mut disk, 0, &stored)?;
    // Neither the first byte nor a word boundary: INFORMATION must count bytes.
    let (mut verify, at) = (stored.clone(), 7_usize);
    verify[at] ^= 0xff;
    let data = [&verify[..], &content(&disk, 0x34, 1)].concat();
    let done = disk.send(&compare_and_write_cdb(0, 1), &data)?;
    refused("COMPARE AND WRITE over other data", &done, MISCOMPARE)?;
    // SBC-4: INFORMATION is the offset of the first byte that differs.
    let information = done.sensed().and_then(|sensed| sensed.information);
    ensure(information == Some(at as u64), || {
        format!("byte {at} is the first that is not equal, and INFORMATION tells {information:?}")
    })?;
    holds(&mut disk, 0, &stored, "a COMPARE AND WRITE that found other data")
}

pub(super) fn compare_and_write_bounds(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let name = "COMPARE AND WRITE";
    let last = disk.blocks - 1;
    let stored = content(&disk, 0x35, 1);
    fill(&mut disk, last, &stored)?;
    let limits = disk.page(0xb0)?.ok_or(Finding::Untried("it has no page B0h".to_owned()))?;
    // MAXIMUM COMPARE AND WRITE LENGTH of the block limits page.
    let most = number(&limits, 5, 1) as u8;
    if most == 0 {
        return Err(Finding::Untried(format!("page B0h lets {name} name no blocks")));
    }
    // A target with a limit of one block refuses two for their number, which would hide the LBA check.
    if most > 1 {
        let data = [&stored[..], &stored, &stored, &stored].concat();
        refused(
            "COMPARE AND WRITE across the last block",
            &disk.send(&compare_and_write_cdb(last, 2), &data)?,
            OUT_OF_RANGE,
        )?;
    }
    let behind = [&stored[..], &stored].concat();
    let done = disk.send(&compare_and_write_cdb(disk.blocks, 1), &behind)?;
    refused("COMPARE AND WRITE behind the last block", &done, OUT_OF_RANGE)?;
    // With a limit of 255, the CDB can express no greater number.
    if let Some(more) = most.checked_add(1).filter(|&more| u64::from(more) < disk.blocks) {
        let data = vec![0; 2 * disk.bytes(more.into()) as usize];
        let done = disk.send(&compare_and_write_cdb(0, more), &data)?;
        refused("COMPARE AND WRITE of more than page B0h allows", &done, INVALID_FIELD)?;
    }
    holds(&mut disk, last, &stored, "a COMPARE AND WRITE that was refused")
}

pub(super) fn write_same(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let whole = content(&disk, 0x41, BLOCKS_MAX);
    fill(&mut disk, 0, &whole)?;
    let (block, pattern) = (disk.block_bytes as usize, content(&disk, 0x42, 1));
    // In the middle of the written blocks, so that writes outside of the range are detected.
    accepted("WRITE SAME (16)", &disk.send(&cdb16(0x93, 0, 2, 5), &pattern)?)?;
    let mut due = whole;
    due[2 * block..7 * block].chunks_mut(block).for_each(|one| one.copy_from_slice(&pattern));
    holds(&mut disk, 0, &due, "WRITE SAME (16) of blocks 2 to 6")
}

pub(super) fn write_same_beyond(aim: &TestTarget) -> CheckResult {
    let mut disk = Disk::of(aim)?;
    let last = disk.blocks - 1;
    let (before, pattern) = (content(&disk, 0x43, 1), content(&disk, 0x44, 1));
    fill(&mut disk, last, &before)?;
    let done = disk.send(&cdb16(0x93, 0, last, 2), &pattern)?;
    refused("WRITE SAME (16) across the last block", &done, OUT_OF_RANGE)?;
    holds(&mut disk, last, &before, "a WRITE SAME that was refused")
}
