//! Fuzz target: single on-disk structures of arbitrary bytes, also under a correct checksum. A structure that is
//! accepted is equal after it is written and read again.
#![no_main]

mod image;

use image::{BLOCK, Image, seal};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((&kind, bytes)) = input.split_first() else { return };
    // The reservations of a unit, which a catalog stores unchanged.
    if kind & 1 == 1 {
        let _ = scsi::PersistentState::parse(bytes);
        return;
    }
    let mut image = Image::default();
    for (at, block) in (0..).zip(bytes.chunks(BLOCK)) {
        let mut whole = [0; BLOCK];
        whole[..block.len()].copy_from_slice(block);
        image.put(at, &whole);
    }
    // An anchor has three blocks.
    let blocks = bytes.len().div_ceil(BLOCK).max(3) as u64;
    if kind & 2 == 2 {
        (0..blocks).rev().for_each(|at| seal(&mut image, at));
    }
    let all: Vec<Vec<u8>> = (0..blocks).map(|at| image.block(at)).collect();
    let (first, whole) = (&all[0], all.concat());
    volume::fuzzing::mark(first);
    volume::fuzzing::head(first);
    volume::fuzzing::page(first);
    volume::fuzzing::bits(first);
    let from = first[40..46].iter().rev().fold(0, |from, &byte| from << 8 | u64::from(byte));
    volume::fuzzing::ring(&all, from, 0, 0);
    raid::fuzzing::anchor(&whole);
    raid::fuzzing::page(first);
    raid::fuzzing::batch(&whole);
});
