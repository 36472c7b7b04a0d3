//! Fuzz target: protected arrays with damaged or forged metadata blocks and a live log. They open or are refused,
//! serve, scrub and close.
//!
//! Decay on one member of a level that tolerates it loses nothing; otherwise every block reads correctly or is an
//! error.
#![no_main]

mod disk;
mod image;
mod no_failures;

use block::{BlockDevice, Blocks, Buf, Extent, Lba, Stable, Written};
use disk::{Change, Disk, now, pattern, structured};
use image::{BLOCK, Image};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use no_failures::NoFailures;
use raid::{Array, Level, Options, Repair, Shape};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Blocks of each member: the smallest number with room for a log of the smallest size.
const MEMBER_BLOCKS: u64 = 4096;
/// Number of blocks that are written.
const WRITTEN: u64 = 48;
const SHAPES: [(Level, usize); 5] =
    [(Level::Raid0, 2), (Level::Raid1, 2), (Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid10, 4)];

#[derive(Arbitrary, Debug)]
struct Input {
    level: u8,
    clean: bool,
    accept_log_loss: bool,
    blocks_are_atomic: bool,
    /// Member that is missing.
    absent: Option<u8>,
    changes: Vec<Change>,
}

/// Array that was written, with the content of its members.
struct Base {
    shape: Shape,
    images: Vec<(Image, Vec<u64>)>,
}

impl Base {
    fn new(level: Level, members: usize, blocks_are_atomic: bool, clean: bool) -> Self {
        let shape = Shape::new([7; 16], level, members, 16 << 10, Blocks(MEMBER_BLOCKS));
        let disks: Vec<Rc<Disk>> = (0..members).map(|_| Disk::new(MEMBER_BLOCKS, Image::default())).collect();
        let options = Options { blocks_are_atomic, ..Options::default() };
        let array = now(Array::format(&shape, disks.clone(), Rc::new(NoFailures), options)).expect("new members");
        for version in 1..=2 {
            for block in (0..WRITTEN).step_by(usize::from(version)) {
                let data = Buf::copy_of(&pattern(block, version)).freeze();
                let _: Written = now(array.write(Lba(block), data)).expect("members of memory");
            }
            if version == 1 || clean {
                let _: Stable = now(array.checkpoint()).expect("members of memory");
            }
        }
        let _: Stable = now(array.flush(Written::attest())).expect("members of memory");
        Self { shape, images: disks.iter().map(|disk| structured(disk.image.take())).collect() }
    }

    fn version(block: u64) -> u8 {
        if block.is_multiple_of(2) { 2 } else { 1 }
    }
}

thread_local! {
    /// Arrays by level, then by atomicity of blocks, then by whether the log was empty at the end.
    static BASES: Vec<Base> = SHAPES
        .iter()
        .flat_map(|&(level, members)| {
            [(false, false), (false, true), (true, false), (true, true)]
                .map(|(atomic, clean)| Base::new(level, members, atomic, clean))
        })
        .collect();
}

fuzz_target!(|input: Input| {
    let shape = usize::from(input.level) % SHAPES.len();
    let number = shape * 4 + usize::from(input.blocks_are_atomic) * 2 + usize::from(input.clean);
    BASES.with(|bases| play(&input, &bases[number]));
});

fn play(input: &Input, base: &Base) {
    let disks: Vec<Rc<Disk>> = base.images.iter().map(|(image, _)| Disk::new(MEMBER_BLOCKS, image.clone())).collect();
    let changes = &input.changes[..input.changes.len().min(8)];
    let mut lost: BTreeSet<usize> = changes.iter().map(|change| change.strike(&disks, &base.images)).collect();
    let absent = input.absent.map(|member| usize::from(member) % disks.len());
    lost.extend(absent);
    let decays = changes.iter().all(|change| change.kind.is_decay());
    let tolerated = base.shape.layout().expect("a valid shape").level().tolerates(base.shape.members as u16);
    let is_borne = decays && lost.len() <= usize::from(tolerated);
    let members = disks.iter().enumerate().map(|(member, disk)| (Some(member) != absent).then(|| disk.clone()));
    let options = Options {
        blocks_are_atomic: input.blocks_are_atomic,
        accept_log_loss: input.accept_log_loss,
        ..Options::default()
    };
    let (array, opened) = match now(Array::open(&base.shape, members.collect(), Rc::new(NoFailures), options)) {
        Ok(opened) => opened,
        Err(error) => return assert!(!is_borne, "refused, which is borne: {error}"),
    };
    assert!(!is_borne || opened.lost_batches.is_empty(), "a hole that is borne: {:?}", opened.lost_batches);
    let accepted = !opened.lost_batches.is_empty();
    for block in 0..WRITTEN {
        match now(array.read(Extent::new(block, 1))) {
            Ok(data) => {
                let expected = pattern(block, Base::version(block));
                let is_right = *data.into_view() == expected;
                // Forged checksums and an accepted loss permit any content. A single decayed block is always detected.
                let single = decays && changes.len() <= 1;
                assert!(is_right || !(is_borne || single) || accepted, "block {block} is another");
            }
            Err(error) => assert!(!is_borne, "block {block} is lost, which is borne: {error}"),
        }
    }
    let data = Buf::copy_of(&[9; BLOCK]).freeze();
    let written = now(array.write(Lba(3), data.clone()));
    let _ = now(array.scrub(0..array.layout().stripes(), Repair::Heal, async |_| {}));
    if written.is_ok() && now(array.flush(Written::attest())).is_ok() && is_borne {
        let read = now(array.read(Extent::new(3, 1))).expect("it was just written");
        assert!(*read.into_view() == *data);
    }
    let _ = now(array.close());
}
