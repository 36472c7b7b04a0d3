//! Golden disks of every format version, kept forever: today's code must open them.
//!
//! A golden disk is a list of its nonzero blocks: the number of the block (8 bytes, little-endian), then the
//! block.

use super::disk::{GARBAGE, Image, SimDisk, block_on};
use super::world::{DISK_BLOCKS, Opened, World, disk_id, members, pool_id, volume_id};
use crate::layout::{HEAD_LABELS, SLOT_STARTS, tail_label};
use crate::slot::Header;
use crate::{Catalog, Label, MemberState, VolumePlan};
use block::{BlockDevice, Blocks, Buf, Extent, Lba};
use std::path::PathBuf;

const RECORD: usize = 8 + 4096;

fn path(disk: usize) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1");
    folder.join(format!("disk-{disk}.bin"))
}

fn golden_world() -> World {
    let world = World::of(vec![Image::default(); 2]);
    for (number, disk) in world.disks.iter().enumerate() {
        let bytes = std::fs::read(path(number)).expect("golden disks are part of the source");
        for record in bytes.chunks_exact(RECORD) {
            let (block, content) = record.split_at(8);
            disk.scribble(u64::from_le_bytes(block.try_into().unwrap()) * 4096, content);
        }
    }
    world
}

fn expect_contents(opened: &Opened) {
    let status = opened.pool.status();
    assert_eq!((status.id, status.name.as_str(), status.generation), (pool_id(), "tank", 7));
    let group = &status.groups[0].record;
    assert_eq!((group.level, group.chunk_bytes, group.slab_blocks, group.slabs), (1, 65536, 256, 47));
    assert!(!group.clean);
    assert_eq!(members(&opened.pool), [0, 1].map(|disk| (disk_id(disk), MemberState::InService)));
    let shapes: Vec<_> =
        status.volumes.iter().map(|volume| (&volume.name[..], volume.size_bytes, volume.block_bytes)).collect();
    assert_eq!(shapes, [("alpha", (2 << 20) + 512, 512), ("beta", 1 << 20, 4096)]);
    let volume = block_on(opened.pool.open_volume(volume_id(1))).unwrap();
    let data = block_on(volume.read(Extent::new(300, 1))).unwrap().into_view();
    assert!(data.iter().all(|&byte| byte == 0x5a));
    assert_eq!(volume.initialised(), (1, 3));
}

#[test]
fn golden_disks_of_version_1_are_opened() {
    expect_contents(&golden_world().open().unwrap());
}

#[test]
fn golden_disks_of_version_1_are_what_is_written_today() {
    let world = golden_world();
    for disk in &world.disks {
        let read = |block: u64, blocks: u64| block_on(disk.read(Extent::new(block, blocks))).unwrap().into_view();
        let copies = [HEAD_LABELS[0], HEAD_LABELS[1], tail_label(Blocks(DISK_BLOCKS))];
        for (copy, block) in (0_u8..).zip(copies) {
            let bytes = read(block, 1);
            assert_eq!(Label::parse(&bytes).unwrap().emit(copy)[..], bytes[..]);
        }
        for start in SLOT_STARTS {
            let header = Header::parse(&read(start, 1)).unwrap();
            let body = read(start + 1, 1).slice(..header.body_bytes);
            assert!(header.matches(&body));
            assert_eq!(Catalog::parse(&body).unwrap().emit()[..], body[..]);
            let again = crate::slot::emit(header.pool, header.disk, header.generation, &body, false);
            assert_eq!(again[..], read(start, 2)[..]);
        }
    }
}

/// Pool made by today's code with the history of the golden disks.
fn made_today() -> World {
    let world = World::blank(2);
    let opened = world.create(&[&[0, 1]]).unwrap();
    let plan = |number: u64, name: &str, size_bytes, block_bytes| VolumePlan {
        id: volume_id(number),
        name: name.into(),
        size_bytes,
        block_bytes,
        stripe_unit_bytes: 0,
        created_at: 1_700_000_001,
    };
    let volume = block_on(opened.pool.create_volume(plan(1, "alpha", (2 << 20) + 512, 512))).unwrap();
    block_on(opened.pool.create_volume(plan(2, "beta", 1 << 20, 4096))).unwrap();
    let mut data = Buf::zeroed(4096);
    data.fill(0x5a);
    let _ = block_on(volume.write(Lba(300), data.freeze())).unwrap();
    block_on(opened.pool.members().set_state(disk_id(1), MemberState::InService)).unwrap();
    world
}

/// Records of a golden disk: its blocks, except those without our data.
fn records(disk: &SimDisk) -> Vec<u8> {
    let mut records = Vec::new();
    for block in 0..DISK_BLOCKS {
        let content = block_on(disk.read(Extent::new(block, 1))).unwrap().into_view();
        if !content.iter().all(|&byte| byte == 0 || byte == GARBAGE) {
            records.extend_from_slice(&block.to_le_bytes());
            records.extend_from_slice(&content);
        }
    }
    records
}

/// With `GOLDEN=write` the disks are written, once for each format.
#[test]
fn golden_disks_of_version_1_are_what_the_same_history_leaves_today() {
    for (number, disk) in made_today().disks.iter().enumerate() {
        if std::env::var("GOLDEN").is_ok_and(|what| what == "write") {
            std::fs::write(path(number), records(disk)).unwrap();
        }
        let kept = std::fs::read(path(number)).expect("golden disks are part of the source");
        assert!(
            records(disk) == kept,
            "disk {number} has another format; that needs a new version and new golden disks"
        );
    }
}
