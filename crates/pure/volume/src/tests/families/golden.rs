//! Golden disk with a family, written by the first version with families and kept forever: today's code must
//! open it.
//!
//! A golden disk is a list of its written blocks: the number of the block (8 bytes, little-endian), then the
//! block.

use super::rig::*;
use crate::family::Tuning;
use crate::slot::Header;
use crate::tests::disk::{GARBAGE, Image, SimDisk, block_on};
use crate::tests::world::{DISK_BLOCKS, Opened, World, volume_id};
use crate::{Lock, Provisioning, ThinPlan};
use block::{BlockDevice, Extent};
use std::collections::BTreeMap;
use std::path::PathBuf;

const RECORD: usize = 8 + 4096;
const TUNING: Tuning = Tuning { log_blocks: 8, ..super::rig::TUNING };

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1-families/disk-0.bin")
}

fn golden_world() -> World {
    let world = World::of(vec![Image::default()]);
    let bytes = std::fs::read(path()).expect("the golden disk is part of the source");
    for record in bytes.chunks_exact(RECORD) {
        let (block, content) = record.split_at(8);
        world.disks[0].scribble(u64::from_le_bytes(block.try_into().unwrap()) * 4096, content);
    }
    world
}

/// Pool made by today's code with the history of the golden disk.
fn made_today() -> World {
    let world = World::blank(1);
    let Opened { pool, .. } = world.create(&[&[0]]).unwrap();
    pool.tune(TUNING);
    let plan = |number, provisioning| ThinPlan {
        granule_bytes: 16 << 10,
        provisioning,
        encryption: None,
        ..thin_plan(number, 100)
    };
    let thin = block_on(pool.create_thin_volume(plan(1, Provisioning::Thin))).unwrap();
    write(&thin, 0, 8, 1).unwrap();
    block_on(pool.create_snapshots(&[snapshot_plan(1, 1)])).unwrap();
    block_on(pool.lock_snapshot(snapshot_id(1), Lock::Until(5000))).unwrap();
    write(&thin, 1, 1, 2).unwrap();
    let clone = block_on(pool.create_clone(clone_plan(2, 1))).unwrap();
    write(&clone, 4, 2, 3).unwrap();
    flush(&clone);
    block_on(pool.open_family(volume_id(1)).unwrap().checkpoint()).unwrap();
    block_on(pool.roll_back(snapshot_id(1))).unwrap();
    discard(&thin, 4, 4);
    write(&thin, 60, 1, 4).unwrap();
    flush(&thin);
    let thick = block_on(pool.create_thin_volume(plan(3, Provisioning::Thick))).unwrap();
    write(&thick, 9, 1, 5).unwrap();
    flush(&thick);
    world
}

/// Records of a golden disk: its blocks, except those without our data.
fn records(disk: &SimDisk) -> Vec<u8> {
    let mut records = Vec::new();
    for block in 0..DISK_BLOCKS {
        let content = block_on(disk.read(Extent::new(block, 1))).unwrap().into_view();
        let data = crate::layout::DATA_START..DISK_BLOCKS - crate::layout::TAIL_BLOCKS;
        let nothing = if data.contains(&block) { GARBAGE } else { 0 };
        if !content.iter().all(|&byte| byte == nothing) {
            records.extend_from_slice(&block.to_le_bytes());
            records.extend_from_slice(&content);
        }
    }
    records
}

fn expect_contents(opened: &Opened) {
    let pool = &opened.pool;
    let stamps = |ranges: &[(u64, u64, Stamp)]| -> BTreeMap<u64, Stamp> {
        ranges.iter().flat_map(|&(from, count, stamp)| (from..from + count).map(move |block| (block, stamp))).collect()
    };
    assert_eq!(contents(&open_snapshot(pool, 1)), stamps(&[(0, 8, 1)]));
    assert_eq!(contents(&open(pool, 1)), stamps(&[(0, 4, 1), (60, 1, 4)]));
    assert_eq!(contents(&open(pool, 2)), stamps(&[(0, 4, 1), (4, 2, 3), (6, 2, 1)]));
    assert_eq!(contents(&open(pool, 3)), stamps(&[(9, 1, 5)]));
    let families = pool.status().families;
    let thick = &families[1].volumes[0];
    assert_eq!((thick.provisioning, thick.reserved_bytes), (Provisioning::Thick, 24 * (16 << 10)));
    let snapshot = &families[0].volumes[0].snapshots[0];
    assert_eq!((snapshot.lock, snapshot.is_cloned), (Lock::Until(5000), true));
    assert_eq!(families[0].volumes[1].clone_of, Some(snapshot_id(1)));
    assert!(families[0].volumes[0].is_cleaning);
}

#[test]
fn golden_disk_with_families_is_opened() {
    let world = golden_world();
    let opened = world.open().unwrap();
    expect_contents(&opened);
    assert_sound(&opened.pool);
    run_maintenance(&opened.pool);
    assert_sound(&opened.pool);
}

/// With `GOLDEN=write` the disk is written, once for each format.
#[test]
fn golden_disk_with_families_is_what_the_same_history_leaves_today() {
    let today = records(&made_today().disks[0]);
    if std::env::var("GOLDEN").is_ok_and(|what| what == "write") {
        std::fs::create_dir_all(path().parent().unwrap()).unwrap();
        std::fs::write(path(), &today).unwrap();
    }
    let kept = std::fs::read(path()).expect("the golden disk is part of the source");
    assert!(today == kept, "the format is another; that needs a new version and a new golden disk");
}

#[test]
fn golden_disk_with_families_asks_older_programs_to_leave_it_alone() {
    let world = golden_world();
    let slots = crate::layout::SLOT_STARTS.map(|start| {
        let block = block_on(world.disks[0].read(Extent::new(start, 1))).unwrap().into_view();
        Header::parse(&block).unwrap().features.incompat
    });
    assert_eq!(slots, [crate::label::FAMILIES; 2]);
}
