//! Commands that name blocks.

use super::{BLOCK_BYTES, BLOCKS, Changes, Request, allocation, flags};
use lab::random::Random;

/// Operation with its CDBs of 6, 10, 12 and 16 bytes.
struct Verb {
    forms: &'static [(&'static str, u8, usize)],
    /// Bits of byte 1 to be set, known and unknown ones.
    flags: &'static [u8],
}

const DPO: u8 = 0x10;
const FUA: u8 = 0x08;
/// RDPROTECT, WRPROTECT or VRPROTECT, on units without protection information.
const PROTECT: u8 = 0x20;
const BYTCHK_LOW: u8 = 0x02;
const BYTCHK_HIGH: u8 = 0x04;
const IMMED: u8 = 0x02;

const READ: Verb = Verb {
    forms: &[("READ (6)", 0x08, 6), ("READ (10)", 0x28, 10), ("READ (12)", 0xA8, 12), ("READ (16)", 0x88, 16)],
    flags: &[DPO, FUA, PROTECT, 0x01],
};
const WRITE: Verb = Verb {
    forms: &[("WRITE (6)", 0x0A, 6), ("WRITE (10)", 0x2A, 10), ("WRITE (12)", 0xAA, 12), ("WRITE (16)", 0x8A, 16)],
    flags: &[DPO, FUA, PROTECT, 0x01],
};
const VERIFY: Verb = Verb {
    forms: &[("VERIFY (10)", 0x2F, 10), ("VERIFY (12)", 0xAF, 12), ("VERIFY (16)", 0x8F, 16)],
    flags: &[DPO, BYTCHK_LOW, BYTCHK_LOW, BYTCHK_HIGH, PROTECT],
};
const WRITE_AND_VERIFY: Verb = Verb {
    forms: &[
        ("WRITE AND VERIFY (10)", 0x2E, 10),
        ("WRITE AND VERIFY (12)", 0xAE, 12),
        ("WRITE AND VERIFY (16)", 0x8E, 16),
    ],
    flags: &[DPO, BYTCHK_LOW, BYTCHK_HIGH, PROTECT],
};
const OR_WRITE: Verb = Verb { forms: &[("ORWRITE (16)", 0x8B, 16)], flags: &[DPO, FUA, PROTECT] };
const PRE_FETCH: Verb =
    Verb { forms: &[("PRE-FETCH (10)", 0x34, 10), ("PRE-FETCH (16)", 0x90, 16)], flags: &[IMMED, FUA] };
const SYNCHRONIZE_CACHE: Verb =
    Verb { forms: &[("SYNCHRONIZE CACHE (10)", 0x35, 10), ("SYNCHRONIZE CACHE (16)", 0x91, 16)], flags: &[IMMED, FUA] };
const UNMAP: u8 = 0x08;
const ANCHOR: u8 = 0x10;
const NDOB: u8 = 0x01;
const WRITE_SAME: Verb = Verb {
    forms: &[("WRITE SAME (10)", 0x41, 10), ("WRITE SAME (16)", 0x93, 16)],
    flags: &[UNMAP, UNMAP, ANCHOR, NDOB, PROTECT],
};

pub(super) fn request(random: &mut Random) -> Request {
    match random.below(20) {
        0..=3 => write(random, &WRITE),
        4..=6 => read(random),
        7..=8 => verify(random),
        9 => write(random, &WRITE_AND_VERIFY),
        10 => write(random, &OR_WRITE),
        11..=12 => compare_and_write(random),
        13..=14 => write_same(random),
        15..=16 => unmap(random),
        17 => without_data(random, &PRE_FETCH),
        18 => without_data(random, &SYNCHRONIZE_CACHE),
        _ => lba_status(random),
    }
}

/// Builds a CDB of one of the lengths of `verb`, and returns the blocks that it names.
fn place(random: &mut Random, verb: &Verb, blocks_max: u64) -> (&'static str, Vec<u8>, u64, u64) {
    let (name, code, bytes) = verb.forms[random.below(verb.forms.len() as u64) as usize];
    let (lba, blocks) = (first_block(random), count(random, blocks_max));
    let mut cdb = vec![0; bytes];
    cdb[0] = code;
    match bytes {
        6 => {
            // The LBA of a 6-byte CDB has 21 bits; its upper bits share byte 1, so no flags follow.
            let lba = lba & 0x1F_FFFF;
            cdb[1..4].copy_from_slice(&(lba as u32).to_be_bytes()[1..]);
            cdb[4] = blocks as u8;
            // In the 6-byte commands a length of zero means 256 blocks (SBC-4 READ (6)).
            return (name, cdb, lba, if blocks == 0 { 256 } else { blocks });
        }
        10 => cdb[7..9].copy_from_slice(&(blocks as u16).to_be_bytes()),
        12 => cdb[6..10].copy_from_slice(&(blocks as u32).to_be_bytes()),
        _ => cdb[10..14].copy_from_slice(&(blocks as u32).to_be_bytes()),
    }
    cdb[1] = flags(random, verb.flags);
    let lba = put_lba(&mut cdb, lba);
    (name, cdb, lba, blocks)
}

/// Stores the LBA, truncated to the size of the field, and returns it.
fn put_lba(cdb: &mut [u8], lba: u64) -> u64 {
    if cdb.len() == 16 {
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        lba
    } else {
        cdb[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
        lba & 0xFFFF_FFFF
    }
}

/// Returns a block that is mostly among the first ones, so that commands overlap, and otherwise near the end.
fn first_block(random: &mut Random) -> u64 {
    match random.below(32) {
        0..=23 => random.below(192),
        24..=28 => BLOCKS - 1 - random.below(16),
        29 => BLOCKS + random.below(3),
        30 => [u64::from(u32::MAX), 1 << 32, u64::MAX][random.below(3) as usize],
        _ => random.below(BLOCKS),
    }
}

fn count(random: &mut Random, most: u64) -> u64 {
    match random.below(12) {
        0 => 0,
        1 => most,
        2..=4 => 1,
        _ => 1 + random.below(8.min(most)),
    }
}

/// Returns one of four contents of a block, two of which depend on its address.
fn content(random: &mut Random, lba: u64, blocks: u64) -> Vec<u8> {
    let mut data = Vec::with_capacity((blocks * u64::from(BLOCK_BYTES)) as usize);
    let kind = random.below(4);
    for block in lba..lba.saturating_add(blocks) {
        let kind = if random.one_in(8) { random.below(4) } else { kind };
        let stamp = (block as u8) ^ 0x5A;
        let byte = [0, 0xFF, stamp, stamp.rotate_left(3) | 1][kind as usize];
        data.resize(data.len() + BLOCK_BYTES as usize, byte);
    }
    // Blocks behind the end of the address space.
    data.resize((blocks * u64::from(BLOCK_BYTES)) as usize, 0);
    data
}

fn read(random: &mut Random) -> Request {
    let (name, cdb, lba, blocks) = place(random, &READ, 64);
    Request::new(name, &cdb).naming(lba, blocks).reading(blocks as u32 * BLOCK_BYTES)
}

fn write(random: &mut Random, verb: &Verb) -> Request {
    let (name, cdb, lba, blocks) = place(random, verb, 64);
    Request::new(name, &cdb).naming(lba, blocks).writing(content(random, lba, blocks)).changing(Changes::Blocks)
}

fn verify(random: &mut Random) -> Request {
    let (name, cdb, lba, blocks) = place(random, &VERIFY, 32);
    let request = Request::new(name, &cdb).naming(lba, blocks);
    match (cdb[1] & (BYTCHK_LOW | BYTCHK_HIGH)) >> 1 {
        0 => request,
        // BYTCHK 11b compares every block with a single one (SBC-3 VERIFY).
        3 => request.writing(content(random, lba, blocks.min(1))),
        _ => request.writing(content(random, lba, blocks)),
    }
}

fn compare_and_write(random: &mut Random) -> Request {
    let (lba, blocks) = (first_block(random), random.below(4));
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x89, flags(random, &[DPO, FUA, PROTECT, 0x01]), blocks as u8);
    put_lba(&mut cdb, lba);
    let mut data = content(random, lba, blocks);
    // The blocks to compare with come first, then the blocks to write (SBC-3 COMPARE AND WRITE).
    data.extend(content(random, lba, blocks));
    Request::new("COMPARE AND WRITE", &cdb).naming(lba, blocks).writing(data).changing(Changes::Blocks)
}

fn write_same(random: &mut Random) -> Request {
    let (name, cdb, lba, blocks) = place(random, &WRITE_SAME, 128);
    // Only WRITE SAME (16) has NDOB.
    let has_data = cdb.len() == 10 || cdb[1] & NDOB == 0;
    let data = if has_data { content(random, lba, 1) } else { Vec::new() };
    Request::new(name, &cdb).naming(lba, blocks).writing(data).changing(Changes::Blocks)
}

fn unmap(random: &mut Random) -> Request {
    let descriptors = random.below(4);
    let extents: Vec<(u64, u64)> = (0..descriptors).map(|_| (first_block(random), count(random, 128))).collect();
    let mut list = vec![0; 8];
    for (lba, blocks) in &extents {
        list.extend(lba.to_be_bytes());
        list.extend((*blocks as u32).to_be_bytes());
        list.extend([0; 4]);
    }
    // One of the three lengths may be inconsistent with the others.
    // UNMAP DATA LENGTH counts all bytes after itself, UNMAP BLOCK DESCRIPTOR DATA LENGTH those after the header.
    let mut lengths = [list.len() - 2, list.len() - 8, list.len()];
    if random.one_in(8) {
        let which = random.below(3) as usize;
        lengths[which] = random.below(40) as usize;
    }
    list[..2].copy_from_slice(&(lengths[0] as u16).to_be_bytes());
    list[2..4].copy_from_slice(&(lengths[1] as u16).to_be_bytes());
    list.resize(lengths[2], 0);
    let mut cdb = vec![0x42, flags(random, &[0x01]), 0, 0, 0, 0, 0, 0, 0, 0];
    cdb[7..9].copy_from_slice(&(list.len() as u16).to_be_bytes());
    Request { extents, ..Request::new("UNMAP", &cdb).writing(list).changing(Changes::Blocks) }
}

fn without_data(random: &mut Random, verb: &Verb) -> Request {
    let (name, cdb, lba, blocks) = place(random, verb, 64);
    Request::new(name, &cdb).naming(lba, blocks)
}

fn lba_status(random: &mut Random) -> Request {
    let (lba, bytes) = (first_block(random), allocation(random, 24 + 16 * 8));
    let mut cdb = vec![0; 16];
    (cdb[0], cdb[1]) = (0x9E, 0x12);
    put_lba(&mut cdb, lba);
    cdb[10..14].copy_from_slice(&bytes.to_be_bytes());
    Request::new("GET LBA STATUS", &cdb).naming(lba, 1).reading(bytes)
}
