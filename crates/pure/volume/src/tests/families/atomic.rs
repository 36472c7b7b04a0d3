//! Atomic writes: after a power loss at any instant the blocks of each are all old or all new.

use super::crash::Script;
use super::rig::*;
use crate::Provisioning;
use crate::tests::disk::{Image, PowerCut, Random, block_on};
use crate::tests::world::World;
use block::{BlockDevice, Extent, IoErrorKind, Lba};
use std::collections::BTreeMap;

const BLOCKS: u64 = 96;
/// Maximum length that one log block of the tuning can record at any alignment.
const LONGEST: u64 = 2 * GRANULE;

type Content = BTreeMap<u64, Stamp>;

/// Sequence of atomic writes of a volume with flushes, snapshots and checkpoints between them; the content
/// after each, and the events at which it had to be stable.
struct Life {
    base: Vec<Image>,
    script: Script,
    held: Vec<Content>,
    stable: Vec<(usize, usize)>,
}

fn life(seed: u64) -> Life {
    let mut script = Script::begin(false);
    let base = script.world.images();
    script.create(1, BLOCKS, Provisioning::Thin);
    let created = script.world.journal.borrow().len();
    let volume = open(&script.opened.pool, 1);
    assert_eq!(u64::from(volume.atomic_bytes_max()), LONGEST * 4096);
    let mut random = Random(seed);
    let mut held = vec![Content::new()];
    let mut stable = vec![(created, 0)];
    for stamp in 1..30 {
        let blocks = 1 + random.below(LONGEST);
        let first = random.below(BLOCKS - blocks);
        block_on(volume.write_atomic(Lba(first), stamped(first, blocks, stamp))).map(drop).unwrap();
        let mut content = held.last().unwrap().clone();
        content.extend((first..first + blocks).map(|block| (block, stamp)));
        held.push(content);
        match random.below(5) {
            0 | 1 => flush(&volume),
            2 => snapshot(&script.opened.pool, u64::from(stamp), 1).unwrap(),
            3 => script.checkpoint(1),
            _ => continue,
        }
        stable.push((script.world.journal.borrow().len(), held.len() - 1));
    }
    Life { base, script, held, stable }
}

/// Cuts the power after every event: the content is that after some write, and no older than what was stable.
pub(super) fn whole_after_cuts(seed: u64) -> Result<(), String> {
    let Life { base, script, held, stable } = life(seed);
    let events = script.world.journal.borrow().clone();
    let (mut power, mut random) = (PowerCut::of(base), Random(seed));
    let mut told = Ok(());
    for (cut, event) in events.iter().enumerate() {
        power.push(event);
        if cut < stable[0].0 {
            continue;
        }
        let oldest = stable.iter().rev().find(|(at, _)| *at <= cut + 1).map_or(0, |(_, write)| *write);
        power.each(&mut random, true, |images| {
            if told.is_ok() {
                let found = found(images);
                let is_there = held[oldest..].contains(&found);
                told =
                    if is_there { Ok(()) } else { Err(format!("cut {cut}: {found:?} is no state from {oldest} on")) };
            }
        });
    }
    told
}

fn found(images: Vec<Image>) -> Content {
    let opened = World::of(images).open().unwrap();
    opened.pool.tune(TUNING);
    let found = contents(&open(&opened.pool, 1));
    assert_sound(&opened.pool);
    found
}

#[test]
fn atomic_write_is_old_or_new_as_a_whole_after_a_power_cut_at_any_instant() {
    for seed in 0..2 {
        whole_after_cuts(seed).unwrap();
    }
}

#[test]
fn atomic_write_that_is_too_long_or_finds_no_space_changes_nothing() {
    let (_, opened) = mirror();
    block_on(opened.pool.create_thin_volume(thin_plan(1, 1 << 20))).unwrap();
    let volume = open(&opened.pool, 1);
    write(&volume, 0, LONGEST, 1).unwrap();
    let too_long = block_on(volume.write_atomic(Lba(0), stamped(0, LONGEST + 1, 2))).map(drop);
    assert_eq!(too_long.map_err(|error| error.kind), Err(IoErrorKind::Unsupported));
    let mut at = 1000;
    while write(&volume, at, GRANULE, 3).is_ok() {
        at += GRANULE;
    }
    let full = block_on(volume.write_atomic(Lba(1), stamped(1, GRANULE, 2))).map(drop);
    assert_eq!(full.map_err(|error| error.kind), Err(IoErrorKind::NoSpace));
    let found = block_on(volume.read(Extent::new(0, LONGEST))).unwrap();
    assert!(found == stamped(0, LONGEST, 1)[..]);
    assert_sound(&opened.pool);
}
