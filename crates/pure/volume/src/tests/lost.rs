//! Lost blocks: the list survives a restart and names the users of the blocks.

use super::disk::block_on;
use super::families::rig::{
    GRANULE, clone_plan, discard, flush, mirror, open, open_snapshot, reopen, run_maintenance, snapshot, snapshot_id,
    thin_plan, write,
};
use super::world::{Opened, volume_id};
use crate::catalog::{LOST_RUNS_MAX, LostRecord};
use crate::{BlockUser, BlockUses, PoolError, VolumePlan};
use block::{BlockDevice, Buf, Extent, Lba};
use std::collections::BTreeMap;

/// Users of the whole group among volumes and snapshots.
fn holders(opened: &Opened) -> BlockUses {
    let all = opened.groups[0].geometry().all();
    block_on(opened.pool.find_block_users(0, &[all], usize::MAX))
}

fn blocks_of(held: &BlockUses, holder: BlockUser) -> u64 {
    held.found.iter().filter(|one| one.user == holder).map(|one| one.extent.len.0).sum()
}

fn read(device: &impl BlockDevice, extent: Extent) -> Vec<u8> {
    block_on(device.read(extent)).unwrap().into_view().to_vec()
}

#[test]
fn holders_of_blocks_are_the_volumes_snapshots_and_clones_that_show_them() {
    let (_world, opened) = mirror();
    let pool = &opened.pool;
    block_on(pool.create_thin_volume(thin_plan(1, 8 * GRANULE))).unwrap();
    let volume = open(pool, 1);
    write(&volume, 0, 4 * GRANULE, 1).unwrap();
    flush(&volume);
    snapshot(pool, 1, 1).unwrap();
    block_on(pool.create_clone(clone_plan(2, 1))).unwrap();
    write(&volume, GRANULE, GRANULE, 2).unwrap();
    discard(&volume, 2 * GRANULE, GRANULE);
    flush(&volume);
    let held = holders(&opened);
    assert!(held.complete);
    let (live, shot, clone) =
        (BlockUser::Volume(volume_id(1)), BlockUser::Snapshot(snapshot_id(1)), BlockUser::Volume(volume_id(2)));
    assert_eq!([live, shot, clone].map(|one| blocks_of(&held, one)), [3 * GRANULE, 4 * GRANULE, 4 * GRANULE]);
    assert!(blocks_of(&held, BlockUser::Map(volume_id(1))) > 0, "the map lies there, too");
    for one in &held.found {
        let there = match one.user {
            BlockUser::Volume(id) if id == volume_id(1) => read(&*volume, one.extent),
            BlockUser::Volume(_) => read(&*open(pool, 2), one.extent),
            BlockUser::Snapshot(_) => read(&*open_snapshot(pool, 1), one.extent),
            BlockUser::Map(_) => continue,
        };
        assert_eq!(there, read(&*opened.groups[0], one.place), "{one:?}");
    }
    let shared = held.found.iter().find(|one| one.user == shot).unwrap().place;
    let few = block_on(pool.find_block_users(0, &[Extent { len: block::Blocks(1), ..shared }], 2));
    assert!(!few.complete && few.found.len() == 2, "{few:?}");
}

#[test]
fn blocks_of_a_deleted_volume_are_nobodys() {
    let (_world, opened) = mirror();
    block_on(opened.pool.create_thin_volume(thin_plan(1, 8 * GRANULE))).unwrap();
    write(&open(&opened.pool, 1), 0, GRANULE, 1).unwrap();
    assert_eq!(blocks_of(&holders(&opened), BlockUser::Volume(volume_id(1))), GRANULE);
    block_on(opened.pool.delete_volume(volume_id(1))).unwrap();
    assert_eq!(blocks_of(&holders(&opened), BlockUser::Volume(volume_id(1))), 0);
    run_maintenance(&opened.pool);
}

#[test]
fn holders_of_blocks_in_segments_are_found_over_all_columns() {
    let world = super::world::World::blank(4);
    let opened = world.create(&[&[0, 1], &[2, 3]]).unwrap();
    let (id, name) = (volume_id(1), "striped".into());
    let plan =
        VolumePlan { id, name, size_bytes: 8 << 20, block_bytes: 512, stripe_unit_bytes: 128 << 10, created_at: 1 };
    let volume = block_on(opened.pool.create_volume(plan)).unwrap();
    let blocks = (8 << 20) / 4096;
    let content: Vec<u8> = (0..blocks).flat_map(|block: u32| [block.to_le_bytes(); 1024].concat()).collect();
    let _ = block_on(volume.write(Lba(0), Buf::copy_of(&content).freeze())).unwrap();
    let mut found = 0;
    for (group, device) in (0..).zip(&opened.groups) {
        let held = block_on(opened.pool.find_block_users(group, &[device.geometry().all()], usize::MAX));
        for one in &held.found {
            assert_eq!(one.user, BlockUser::Volume(id));
            assert_eq!(read(&*volume, one.extent), read(&**device, one.place), "{one:?}");
            found += one.extent.len.0;
        }
    }
    assert_eq!(found, u64::from(blocks), "each block once");
}

#[test]
fn lost_blocks_are_listed_until_the_list_says_otherwise_also_after_a_restart() {
    let (world, opened) = mirror();
    assert_eq!(opened.pool.lost_blocks(), BTreeMap::new());
    let lost = LostRecord { runs: vec![Extent::new(3, 2), Extent::new(9, 1)], more: 5 };
    block_on(opened.pool.store_lost(0, lost.clone())).unwrap();
    assert_eq!(block_on(opened.pool.store_lost(7, lost.clone())), Err(PoolError::GroupUnknown(7)));
    let (world, opened) = reopen(&world);
    assert_eq!(opened.pool.lost_blocks(), [(0, lost)].into());
    block_on(opened.pool.store_lost(0, LostRecord::default())).unwrap();
    assert_eq!(reopen(&world).1.pool.lost_blocks(), BTreeMap::new());
}

#[test]
fn lost_blocks_beyond_those_that_are_named_are_counted() {
    let (world, opened) = mirror();
    let runs = (0..LOST_RUNS_MAX as u64 + 10).map(|run| Extent::new(10 * run, 3)).collect();
    block_on(opened.pool.store_lost(0, LostRecord { runs, more: 1 })).unwrap();
    let lost = reopen(&world).1.pool.lost_blocks().remove(&0).unwrap();
    assert_eq!((lost.runs.len(), lost.more), (LOST_RUNS_MAX, 31));
    assert_eq!(lost.blocks(), 3 * LOST_RUNS_MAX as u64 + 31);
    let forged = LostRecord { more: u64::MAX, ..lost };
    assert_eq!(forged.blocks(), u64::MAX, "a count from a disk may be any number");
}
