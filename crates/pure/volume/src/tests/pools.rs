//! Pools as operators use them.

use super::disk::{Event, GARBAGE, Image, SimDisk, block_on};
use super::world::{
    DISK_BLOCKS, Opened, SLAB_BLOCKS, TestPool, World, disk_id, members, one_is_enough, pool_id, volume_id,
};
use crate::layout::{DATA_START, HEAD_LABELS, SLOT_STARTS, tail_label};
use crate::{
    Contents, DiskState, Emulated512, MemberState, NewDisk, Pool, PoolError, PoolSpace, Volume, VolumePlan, probe,
};
use block::{BlockDevice, Blocks, Buf, Extent, IoErrorKind, Lba, View};
use futures_util::FutureExt;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};
use uuid::Uuid;

fn plan(number: u64, size_bytes: u64) -> VolumePlan {
    let (id, name) = (volume_id(number), format!("v{number}"));
    VolumePlan { id, name, size_bytes, block_bytes: 512, stripe_unit_bytes: 0, created_at: 1 }
}

fn filled(blocks: usize, fill: u8) -> View {
    let mut data = Buf::zeroed(blocks * 4096);
    data.fill(fill);
    data.freeze()
}

fn write<D: BlockDevice + 'static, G: BlockDevice>(volume: &Volume<D, G>, block: u64, blocks: usize, fill: u8) {
    block_on(async {
        let written = volume.write(Lba(block), filled(blocks, fill)).await.unwrap();
        let _ = volume.flush(written).await.unwrap();
    });
}

fn bytes_of(device: &impl BlockDevice, block: u64, blocks: u64) -> Vec<u8> {
    block_on(device.read(Extent::new(block, blocks))).unwrap().into_view().to_vec()
}

fn holds(device: &impl BlockDevice, block: u64, blocks: u64, fill: u8) -> bool {
    bytes_of(device, block, blocks).iter().all(|&byte| byte == fill)
}

fn two_groups() -> (World, Opened) {
    let world = World::blank(4);
    let opened = world.create(&[&[0, 1], &[2, 3]]).unwrap();
    (world, opened)
}

#[test]
fn pool_is_found_again_in_any_order_with_all_that_it_had() {
    let (world, opened) = two_groups();
    let volume = block_on(opened.pool.create_volume(plan(1, (5 << 20) + 512))).unwrap();
    write(&volume, 200, 300, 7);
    let before = opened.pool.status();
    let again = World::of(world.images());
    let opened = again.open_with(&[3, 0, 2, 1]).unwrap();
    assert_eq!(opened.pool.status(), before);
    let volume = block_on(opened.pool.open_volume(volume_id(1))).unwrap();
    assert_eq!(volume.size_bytes(), (5 << 20) + 512);
    assert_eq!(volume.geometry().blocks, Blocks(1281));
    assert!(holds(&*volume, 200, 300, 7) && holds(&*volume, 0, 200, 0) && holds(&*volume, 500, 781, 0));
}

#[test]
fn pool_stripes_a_volume_over_its_groups() {
    let (world, opened) = two_groups();
    let volume = block_on(opened.pool.create_volume(plan(1, 4 << 20))).unwrap();
    assert_eq!(volume.geometry().optimal_bytes, 128 << 10, "one turn of both groups");
    world.journal.borrow_mut().clear();
    write(&volume, 0, 64, 9);
    let mut data_on = [0; 4];
    for event in world.journal.borrow().iter() {
        if let Event::Write { disk, start, data } = event
            && *start >= DATA_START
            && data[0] == 9
        {
            data_on[*disk] += data.len() >> 12;
        }
    }
    assert_eq!(data_on, [32; 4]);
}

#[test]
fn volume_never_shows_what_was_on_its_slabs_before() {
    for discard_zeroes in [false, true] {
        let world = World::blank(2);
        world.disks.iter().for_each(|disk| disk.discard_zeroes.set(discard_zeroes));
        let opened = world.create(&[&[0, 1]]).unwrap();
        let first = block_on(opened.pool.create_volume(plan(1, 3 << 20))).unwrap();
        assert!(holds(&*first, 0, 768, 0));
        write(&first, 5, 1, 1);
        assert!(holds(&*first, 0, 5, 0) && holds(&*first, 6, 762, 0), "{GARBAGE:#x} was there");
        write(&first, 0, 768, 2);
        block_on(opened.pool.delete_volume(volume_id(1))).unwrap();
        let second = block_on(opened.pool.create_volume(plan(2, 3 << 20))).unwrap();
        assert!(holds(&*second, 0, 768, 0));
        write(&second, 300, 1, 3);
        assert!(holds(&*second, 0, 300, 0) && holds(&*second, 300, 1, 3) && holds(&*second, 301, 467, 0));
    }
}

#[test]
fn volume_discarded_reads_as_zeros_where_its_groups_do() {
    let world = World::blank(2);
    world.disks.iter().for_each(|disk| disk.discard_zeroes.set(true));
    let opened = world.create(&[&[0, 1]]).unwrap();
    let volume = block_on(opened.pool.create_volume(plan(1, 3 << 20))).unwrap();
    write(&volume, 0, 300, 2);
    let _ = block_on(volume.discard(Extent::new(10, 700))).unwrap();
    assert!(volume.geometry().discard_zeroes);
    assert!(holds(&*volume, 0, 10, 2) && holds(&*volume, 10, 758, 0));
}

#[test]
fn volume_makes_many_slabs_ready_at_once_where_that_is_cheap_and_one_elsewhere() {
    let world = World::blank(1);
    world.disks[0].discard_zeroes.set(true);
    let opened = world.create(&[&[0]]).unwrap();
    let volume = block_on(opened.pool.create_volume(plan(1, 8 << 20))).unwrap();
    write(&volume, 300, 1, 1);
    assert_eq!(volume.initialised(), (7, 8), "from the slab of block 300 on");
    let generation = opened.pool.status().generation;
    write(&volume, 2000, 1, 1);
    assert_eq!(opened.pool.status().generation, generation, "no commit for a slab that is ready");
    let world = World::blank(1);
    let opened = world.create(&[&[0]]).unwrap();
    let volume = block_on(opened.pool.create_volume(plan(1, 3 << 20))).unwrap();
    write(&volume, 300, 1, 1);
    assert_eq!(volume.initialised(), (1, 3));
    assert!(holds(&*volume, 300, 1, 1) && holds(&*volume, 301, 467, 0));
}

#[test]
fn volume_writes_to_one_new_slab_at_once_are_all_kept() {
    let world = World::blank(1);
    let opened = world.create(&[&[0]]).unwrap();
    let volume = block_on(opened.pool.create_volume(plan(1, 2 << 20))).unwrap();
    let writes = (0..20_u8).map(|n| volume.write(Lba(u64::from(n) * 25), filled(1, n + 1)));
    let done = block_on(futures_util::future::join_all(writes));
    assert!(done.iter().all(Result::is_ok));
    assert!((0..20).all(|n| holds(&*volume, u64::from(n) * 25, 1, n + 1)), "zeros were written over data");
    assert!(holds(&*volume, 1, 24, 0));
}

#[test]
fn volume_grows_while_it_is_open_and_refuses_to_shrink() {
    let (_world, opened) = two_groups();
    let volume = block_on(opened.pool.create_volume(plan(1, 1 << 20))).unwrap();
    write(&volume, 255, 1, 1);
    assert_eq!(block_on(volume.read(Extent::new(256, 1))).unwrap_err().kind, IoErrorKind::OutOfRange);
    block_on(opened.pool.resize_volume(volume_id(1), 40 << 20)).unwrap();
    assert_eq!(volume.geometry().blocks, Blocks(10240));
    assert!(holds(&*volume, 255, 1, 1) && holds(&*volume, 256, 9984, 0));
    let refused = block_on(opened.pool.resize_volume(volume_id(1), 1 << 20)).unwrap_err();
    assert_eq!(refused, PoolError::VolumeShrink { bytes: 40 << 20, asked_bytes: 1 << 20 });
    let refused = block_on(opened.pool.resize_volume(volume_id(1), 1 << 40)).unwrap_err();
    assert!(matches!(refused, PoolError::Full { .. }));
    assert_eq!(volume.size_bytes(), 40 << 20);
}

#[test]
fn volume_of_odd_size_is_shown_exactly_through_sectors() {
    let (_world, opened) = two_groups();
    let volume = block_on(opened.pool.create_volume(plan(1, 1001 * 512))).unwrap();
    let sectors = Emulated512::new(volume.clone());
    sectors.set_capacity(Blocks(volume.size_bytes() / 512));
    assert_eq!(sectors.geometry().blocks, Blocks(1001));
    let _ = block_on(sectors.write(Lba(1000), View::zeroed(512))).unwrap();
    assert!(block_on(sectors.write(Lba(1001), View::zeroed(512))).is_err());
}

#[test]
fn volume_deleted_while_open_is_gone_and_its_slabs_are_given_away_only_then() {
    let world = World::blank(1);
    let opened = world.create(&[&[0]]).unwrap();
    let volume = block_on(opened.pool.create_volume(plan(1, 1 << 20))).unwrap();
    let mut writing = Box::pin(volume.write(Lba(0), filled(1, 1)));
    assert!((&mut writing).now_or_never().is_none());
    let mut deleting = Box::pin(opened.pool.delete_volume(volume_id(1)));
    for _ in 0..50 {
        assert!((&mut deleting).now_or_never().is_none(), "a write is under way");
    }
    assert!(block_on(writing).is_ok());
    block_on(deleting).unwrap();
    assert_eq!(block_on(volume.read(Extent::new(0, 1))).unwrap_err().kind, IoErrorKind::Gone);
    assert_eq!(opened.pool.status().free_bytes, opened.pool.status().bytes);
}

#[test]
fn volume_plans_that_cannot_be_are_refused_and_change_nothing() {
    let (_world, opened) = two_groups();
    block_on(opened.pool.create_volume(plan(1, 1 << 20))).unwrap();
    let before = opened.pool.status();
    let refused = |plan| block_on(opened.pool.create_volume(plan)).map(drop).unwrap_err();
    let taken = VolumePlan { name: "v1".into(), ..plan(2, 1 << 20) };
    assert_eq!(refused(taken), PoolError::NameTaken("v1".into()));
    let known = VolumePlan { id: volume_id(1), ..plan(2, 1 << 20) };
    assert_eq!(refused(known), PoolError::IdTaken(volume_id(1)));
    assert_eq!(refused(VolumePlan { name: String::new(), ..plan(2, 512) }), PoolError::NameInvalid(String::new()));
    assert_eq!(refused(plan(2, 0)), PoolError::VolumeSize { bytes: 0, block_bytes: 512 });
    assert_eq!(refused(plan(2, 700)), PoolError::VolumeSize { bytes: 700, block_bytes: 512 });
    assert_eq!(refused(plan(2, (64 << 40) + 512)), PoolError::VolumeTooLarge { bytes: (64 << 40) + 512 });
    assert_eq!(refused(VolumePlan { block_bytes: 520, ..plan(2, 5200) }), PoolError::VolumeBlockSize(520));
    assert_eq!(refused(VolumePlan { stripe_unit_bytes: 100, ..plan(2, 512) }), PoolError::StripeUnit(100));
    assert!(matches!(refused(plan(2, 1 << 40)), PoolError::Full { free_bytes, .. } if free_bytes == before.free_bytes));
    assert_eq!(opened.pool.status(), before);
}

#[test]
fn pool_refuses_a_disk_on_which_somebody_has_something_to_lose() {
    let blank = World::blank(2);
    blank.disks[1].scribble(1080, b"\x53\xef");
    let refused = blank.create(&[&[0, 1]]).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "the disk holds an ext2, ext3 or ext4 file system; erase it, or force it");
    assert!(blank.journal.borrow().is_empty(), "nothing was written");
    let (world, _) = two_groups();
    world.journal.borrow_mut().clear();
    let refused = world.create(&[&[3, 2]]).map(drop).unwrap_err();
    assert!(matches!(refused, PoolError::DiskOfPool { pool, .. } if pool == pool_id()));
    assert!(world.journal.borrow().is_empty(), "nothing was written");
    let (mut plan, groups) = world.plan(&[&[2, 3]]);
    (plan.force, plan.id) = (true, Uuid::from_u128(2));
    block_on(Pool::create(plan, groups)).unwrap();
    let survey = world.survey();
    assert_eq!(survey.pools.len(), 2, "the two disks have left the first pool");
    assert!(survey.pools[0].groups[1].positions.iter().all(|position| position.state == DiskState::Missing));
}

#[test]
fn pool_refuses_small_disks_and_contradicting_plans() {
    let world = World::blank(2);
    let small: Rc<SimDisk> = Rc::new(SimDisk::new(9, DISK_BLOCKS - 1, Image::default(), world.journal.clone()));
    let (mut plan, groups) = world.plan(&[&[0, 1]]);
    plan.groups[0].members[1].device = small;
    let refused = block_on(Pool::create(plan, groups)).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "the disk has 63.9 MiB, but a member needs at least 64 MiB");
    let (mut plan, groups) = world.plan(&[&[0, 1]]);
    plan.slab_bytes = 3 << 20;
    assert!(matches!(block_on(Pool::create(plan, groups)).map(drop), Err(PoolError::Plan(_))));
    let (mut plan, groups) = world.plan(&[&[0, 1]]);
    plan.groups[0].members[1].id = disk_id(0);
    let refused = block_on(Pool::create(plan, groups)).map(drop);
    assert_eq!(refused, Err(PoolError::Plan("one disk is in two places")));
    assert!(world.journal.borrow().is_empty(), "nothing was written");
}

#[test]
fn pool_destroyed_leaves_blank_disks_and_one_with_volumes_is_not() {
    let (world, opened) = two_groups();
    block_on(opened.pool.create_volume(plan(1, 1 << 20))).unwrap();
    assert_eq!(block_on(opened.pool.clone().destroy()), Err(PoolError::HasVolumes(1)));
    block_on(opened.pool.delete_volume(volume_id(1))).unwrap();
    block_on(opened.pool.clone().destroy()).unwrap();
    let survey = world.survey();
    assert!(survey.pools.is_empty() && survey.refused.len() == 4);
    assert!(block_on(opened.pool.create_volume(plan(2, 512))).is_err());
    world.create(&[&[0, 1, 2, 3]]).expect("the disks are free");
}

#[test]
fn label_copies_that_are_damaged_are_made_whole_again() {
    let (world, _) = two_groups();
    let tail = tail_label(Blocks(DISK_BLOCKS));
    for (disk, block) in [(0, HEAD_LABELS[0]), (1, HEAD_LABELS[1]), (2, tail)] {
        world.disks[disk].scribble(block * 4096 + 50, b"rot");
    }
    world.disks[3].scribble(0, &[0; 1 << 20]);
    world.open().unwrap();
    let again = World::of(world.images());
    again.open().unwrap();
    assert!(!again.has_written(), "everything is whole");
    let before: Vec<Vec<u8>> = two_groups().0.disks.iter().map(|disk| bytes_of(&**disk, 0, 256)).collect();
    let after: Vec<Vec<u8>> = again.disks.iter().map(|disk| bytes_of(&**disk, 0, 256)).collect();
    assert_eq!(before, after);
}

#[test]
fn disk_with_one_torn_label_between_zeros_is_blank_and_any_other_without_a_whole_label_is_damaged() {
    let tail = tail_label(Blocks(DISK_BLOCKS));
    let labels = [HEAD_LABELS[0], HEAD_LABELS[1], tail];
    let world = || two_groups().0;
    let tear = |world: &World, block: u64| world.disks[0].scribble(block * 4096 + 600, b"torn");
    let contents = |world: &World| block_on(probe(&*world.disks[0])).contents;
    for torn in labels {
        let world = world();
        tear(&world, torn);
        assert!(matches!(contents(&world), Contents::Member(_)), "two copies are whole");
        labels.iter().filter(|&&other| other != torn).for_each(|other| {
            world.disks[0].scribble(other * 4096, &[0; 4096]);
        });
        assert!(matches!(contents(&world), Contents::Blank), "its making or its end was interrupted");
        let other = labels.into_iter().find(|&other| other != torn).unwrap();
        world.disks[0].scribble(other * 4096 + 8, b"x");
        assert!(matches!(contents(&world), Contents::Damaged), "somebody has written over the others");
    }
    let world = world();
    labels.iter().for_each(|&label| tear(&world, label));
    assert!(matches!(contents(&world), Contents::Damaged));
}

#[test]
fn pool_flushes_what_a_killed_daemon_left_before_it_writes_anything() {
    let (world, opened) = two_groups();
    {
        let mut creation = pin!(opened.pool.create_volume(plan(1, 1 << 20)));
        let mut cx = Context::from_waker(Waker::noop());
        let before = world.journal.borrow().len();
        while world.journal.borrow().len() < before + 4 {
            assert!(creation.as_mut().poll(&mut cx).is_pending());
        }
    }
    drop(opened);
    world.journal.borrow_mut().clear();
    let found = world.open().unwrap();
    assert_eq!(found.pool.status().volumes.len(), 1, "the commit was in every cache");
    block_on(found.pool.delete_volume(volume_id(1))).unwrap();
    let journal = world.journal.borrow();
    let flushed = journal.iter().map_while(|event| match event {
        Event::Flush { disk } => Some(*disk),
        Event::Write { .. } => None,
    });
    assert_eq!(flushed.collect::<BTreeSet<_>>().len(), 4);
}

#[test]
fn disk_that_somebody_partitioned_is_not_believed() {
    let (world, _) = two_groups();
    world.disks[1].scribble(510, b"\x55\xaa");
    let survey = world.survey();
    assert_eq!(survey.pools[0].groups[0].positions[1].state, DiskState::Overwritten);
    let opened = world.open().unwrap();
    assert_eq!(members(&opened.pool)[1], (disk_id(1), MemberState::Missing));
}

#[test]
fn member_that_failed_is_never_believed_again_and_its_replacement_is_filled() {
    let world = World::blank(3);
    let opened = world.create(&[&[0, 1]]).unwrap();
    let pool = &opened.pool;
    let replacement = |disk: usize| NewDisk { id: disk_id(disk), device: world.disks[disk].clone() };
    let replace =
        |lost: usize, by: usize| block_on(pool.members().replace(disk_id(lost), replacement(by), 1, "test", false));
    assert!(matches!(replace(1, 2), Err(PoolError::MemberState { is: "in service", .. })));
    assert_eq!(replace(7, 2), Err(PoolError::MemberUnknown(disk_id(7))));
    block_on(pool.members().set_state(disk_id(1), MemberState::Failed)).unwrap();
    let back = block_on(pool.members().set_state(disk_id(1), MemberState::InService));
    assert!(matches!(back, Err(PoolError::MemberState { is: "failed", asked: "in service", .. })));
    assert_eq!(world.survey().pools[0].groups[0].positions[1].state, DiskState::Failed);
    assert_eq!(replace(1, 2), Ok(()));
    let front = Blocks(512);
    block_on(pool.members().set_state(disk_id(2), MemberState::Rebuilding { front })).unwrap();
    let survey = World::of(world.images()).survey();
    assert_eq!(survey.pools[0].groups[0].positions[1].state, DiskState::Rebuilding { front });
    assert_eq!(survey.refused.len(), 1, "the old disk is nobody's");
    block_on(pool.members().set_state(disk_id(2), MemberState::InService)).unwrap();
    let reopened = world.open().unwrap();
    assert_eq!(members(&reopened.pool)[1], (disk_id(2), MemberState::InService));
}

#[test]
fn member_given_up_may_come_back_as_a_replacement_without_force() {
    let world = World::blank(2);
    let opened = world.create(&[&[0, 1]]).unwrap();
    block_on(opened.pool.members().set_state(disk_id(1), MemberState::Failed)).unwrap();
    let back = NewDisk { id: disk_id(5), device: world.disks[1].clone() };
    assert_eq!(block_on(opened.pool.members().replace(disk_id(1), back, 1, "test", false)), Ok(()));
    assert_eq!(members(&opened.pool)[1], (disk_id(5), MemberState::Rebuilding { front: Blocks(0) }));
}

#[test]
fn member_that_cannot_take_a_commit_is_failed_and_its_array_told() {
    let world = World::blank(2);
    let opened = world.create(&[&[0, 1]]).unwrap();
    let mirror = opened.groups[0].clone();
    opened.pool.members().on_failed(move |disk, _| mirror.drop_member(if disk == disk_id(0) { 0 } else { 1 }));
    world.disks[0].dead.set(true);
    let volume = block_on(opened.pool.create_volume(plan(1, 1 << 20))).unwrap();
    assert_eq!(members(&opened.pool)[0], (disk_id(0), MemberState::Failed));
    write(&volume, 0, 1, 4);
    world.disks[0].dead.set(false);
    let reopened = world.open().unwrap();
    assert_eq!(members(&reopened.pool)[0], (disk_id(0), MemberState::Failed));
    let volume = block_on(reopened.pool.open_volume(volume_id(1))).unwrap();
    assert!(holds(&*volume, 0, 1, 4));
}

#[test]
fn member_that_fails_while_its_pool_is_opened_is_failed_only_where_its_group_can_spare_it() {
    for group in [&[0][..], &[0, 1]] {
        let world = World::blank(group.len());
        drop(world.create(&[group]).unwrap());
        let survey = world.survey();
        let (found, last) = (&survey.pools[0], group.len() - 1);
        let mirrors = world.mirrors(found, group);
        world.disks[last].dead.set(true);
        world.journal.borrow_mut().clear();
        let opened = block_on(Pool::open(found, |place| world.disks[place].clone(), mirrors, one_is_enough));
        if group.len() > 1 {
            let states = [(disk_id(0), MemberState::InService), (disk_id(1), MemberState::Failed)];
            assert_eq!(members(&opened.unwrap()), states);
            continue;
        }
        let refused = opened.map(drop).unwrap_err();
        assert!(matches!(refused, PoolError::DiskFails { disk, .. } if disk == disk_id(0)), "{refused}");
        assert!(!world.has_written());
        world.disks[last].dead.set(false);
        assert_eq!(members(&world.open().unwrap().pool), [(disk_id(0), MemberState::InService)]);
    }
}

#[test]
fn pool_that_can_commit_nowhere_stops_writes_and_keeps_reading() {
    let world = World::blank(1);
    let opened = world.create(&[&[0]]).unwrap();
    let volume = block_on(opened.pool.create_volume(plan(1, 2 << 20))).unwrap();
    write(&volume, 0, 1, 4);
    world.disks[0].dead.set(true);
    assert_eq!(block_on(opened.pool.create_volume(plan(2, 512))).map(drop), Err(PoolError::CatalogLost));
    world.disks[0].dead.set(false);
    assert!(holds(&*volume, 0, 1, 4));
    let refused = block_on(volume.write(Lba(300), filled(1, 5))).unwrap_err();
    assert_eq!(refused.kind, IoErrorKind::ReadOnly);
}

#[test]
fn group_is_dirty_from_its_first_write_until_it_is_marked_clean() {
    let (world, opened) = two_groups();
    let clean = |world: &World| -> Vec<bool> {
        let survey = World::of(world.images()).survey();
        survey.pools[0].catalog.groups.iter().map(|group| group.clean).collect()
    };
    let volume = block_on(opened.pool.create_volume(plan(1, 2 << 20))).unwrap();
    assert_eq!(clean(&world), [true, true]);
    write(&volume, 0, 1, 4);
    assert_eq!(clean(&world), [false, true], "only the group that was written");
    assert_eq!(block_on(opened.pool.mark_clean(0)), Ok(true));
    assert_eq!(clean(&world), [true, true]);
    write(&volume, 0, 1, 5);
    assert_eq!(clean(&world), [false, true]);
    assert_eq!(block_on(opened.pool.mark_clean(2)), Err(PoolError::GroupUnknown(2)));
}

#[test]
fn group_is_not_marked_clean_while_somebody_writes() {
    let world = World::blank(1);
    let opened = world.create(&[&[0]]).unwrap();
    let volume = block_on(opened.pool.create_volume(plan(1, 2 << 20))).unwrap();
    write(&volume, 0, 1, 4);
    let mut writing = Box::pin(volume.write(Lba(0), filled(1, 1)));
    assert!((&mut writing).now_or_never().is_none());
    assert_eq!(block_on(opened.pool.mark_clean(0)), Ok(false));
    assert!(block_on(writing).is_ok());
    let mut cleaning = Box::pin(opened.pool.mark_clean(0));
    assert!((&mut cleaning).now_or_never().is_none(), "it flushes first");
    write(&volume, 0, 1, 2);
    assert_eq!(block_on(cleaning), Ok(false), "a write came meanwhile");
    assert_eq!(block_on(opened.pool.mark_clean(0)), Ok(true));
}

#[test]
fn slots_of_another_pool_left_on_a_disk_are_not_read() {
    let (world, _) = two_groups();
    let other = bytes_of(&*world.disks[0], SLOT_STARTS[0], 2);
    world.disks[1].scribble(SLOT_STARTS[0] * 4096, &other);
    let survey = world.survey();
    assert_eq!(survey.pools[0].groups[0].positions[1].state, DiskState::Current, "its other slot has the commit");
    world.disks[1].scribble(SLOT_STARTS[1] * 4096, &other);
    assert_eq!(world.survey().pools[0].groups[0].positions[1].state, DiskState::Stale);
}

/// Action of an operator or a host.
#[derive(Clone, Debug)]
enum Step {
    Create { number: u64, mebibytes: u64, sectors: u64 },
    Resize { number: u64, mebibytes: u64 },
    Delete { number: u64 },
    Write { number: u64, at: u64, blocks: u64, fill: u8 },
    Discard { number: u64, at: u64, blocks: u64 },
    Clean { group: u16 },
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0_u64..4;
    prop_oneof![
        2 => (number.clone(), 0u64..20, 0u64..2000)
            .prop_map(|(number, mebibytes, sectors)| Step::Create { number, mebibytes, sectors }),
        1 => (number.clone(), 0u64..30).prop_map(|(number, mebibytes)| Step::Resize { number, mebibytes }),
        1 => number.clone().prop_map(|number| Step::Delete { number }),
        6 => (number.clone(), any::<u64>(), 1u64..80, 1u8..250)
            .prop_map(|(number, at, blocks, fill)| Step::Write { number, at, blocks, fill }),
        1 => (number, any::<u64>(), 1u64..900).prop_map(|(number, at, blocks)| Step::Discard { number, at, blocks }),
        1 => (0u16..2).prop_map(|group| Step::Clean { group }),
        1 => Just(Step::Reopen),
    ]
}

/// Pool and its expected state: size of each volume and the byte that fills each of its blocks.
struct Model {
    world: World,
    pool: TestPool,
    volumes: BTreeMap<u64, (u64, Vec<u8>)>,
}

impl Model {
    fn take(&mut self, step: Step) {
        match step {
            Step::Create { number, mebibytes, sectors } => {
                let bytes = (mebibytes << 20) + sectors * 512;
                let made = block_on(self.pool.create_volume(plan(number, bytes)));
                let free = self.pool.status().free_bytes;
                match made {
                    Ok(_) => {
                        let blocks = vec![0; bytes.div_ceil(4096) as usize];
                        assert!(self.volumes.insert(number, (bytes, blocks)).is_none());
                    }
                    Err(PoolError::NameTaken(_)) => assert!(self.volumes.contains_key(&number)),
                    Err(PoolError::VolumeSize { .. }) => assert_eq!(bytes, 0),
                    Err(PoolError::Full { .. }) => assert!(free < bytes),
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Resize { number, mebibytes } => {
                let bytes = mebibytes << 20;
                let done = block_on(self.pool.resize_volume(volume_id(number), bytes));
                match (done, self.volumes.get_mut(&number)) {
                    (Ok(()), Some((size, blocks))) => {
                        *size = bytes;
                        blocks.resize(bytes.div_ceil(4096) as usize, 0);
                    }
                    (Err(PoolError::VolumeUnknown(_)), None) => {}
                    (Err(PoolError::VolumeShrink { .. }), Some((size, _))) => assert!(bytes < *size),
                    (Err(PoolError::VolumeSize { .. } | PoolError::Full { .. }), Some(_)) => {}
                    (done, _) => panic!("{done:?}"),
                }
            }
            Step::Delete { number } => {
                let done = block_on(self.pool.delete_volume(volume_id(number)));
                assert_eq!(done.is_ok(), self.volumes.remove(&number).is_some());
            }
            Step::Write { number, at, blocks, fill } => {
                let Some((_, model)) = self.volumes.get_mut(&number) else { return };
                let at = at % model.len() as u64;
                let blocks = blocks.min(model.len() as u64 - at);
                let volume = block_on(self.pool.open_volume(volume_id(number))).unwrap();
                write(&volume, at, blocks as usize, fill);
                model[at as usize..(at + blocks) as usize].fill(fill);
            }
            Step::Discard { number, at, blocks } => {
                let Some((_, model)) = self.volumes.get_mut(&number) else { return };
                let at = at % model.len() as u64;
                let blocks = blocks.min(model.len() as u64 - at);
                let volume = block_on(self.pool.open_volume(volume_id(number))).unwrap();
                let _ = block_on(volume.discard(Extent::new(at, blocks))).unwrap();
                model[at as usize..(at + blocks) as usize].fill(0);
            }
            Step::Clean { group } => assert_eq!(block_on(self.pool.mark_clean(group)), Ok(true)),
            Step::Reopen => {
                self.world = World::of(self.world.images());
                self.world.disks.iter().for_each(|disk| disk.discard_zeroes.set(true));
                self.pool = self.world.open().unwrap().pool;
            }
        }
    }

    fn check(&self) {
        let status = self.pool.status();
        let sizes: BTreeMap<Uuid, u64> = status.volumes.iter().map(|volume| (volume.id, volume.size_bytes)).collect();
        let expected: BTreeMap<Uuid, u64> = self.volumes.iter().map(|(n, (size, _))| (volume_id(*n), *size)).collect();
        assert_eq!(sizes, expected);
        let used: u64 = status.volumes.iter().map(|volume| volume.allocated_bytes).sum();
        assert_eq!(status.bytes - status.free_bytes, used);
        let volumes = status.volumes.len() + status.families.iter().map(|family| family.volumes.len()).sum::<usize>();
        let mut mapped = status.families.iter().flat_map(|family| &family.volumes);
        let is_later =
            |one: &crate::ThinStatus| one.provisioning == crate::Provisioning::Thin || !one.snapshots.is_empty();
        let is_taken_later = mapped.any(is_later);
        let space = PoolSpace {
            bytes: status.bytes,
            free_bytes: status.free_bytes,
            volumes,
            allocates_on_write: is_taken_later,
        };
        assert_eq!(self.pool.space(), space);
        for (&number, (_, model)) in &self.volumes {
            let volume = block_on(self.pool.open_volume(volume_id(number))).unwrap();
            let found = bytes_of(&*volume, 0, model.len() as u64);
            let same = found.chunks(4096).zip(model).all(|(block, &fill)| block == [fill; 4096]);
            assert!(same, "volume {number} does not hold what was written");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn pool_does_what_its_model_does(steps in prop::collection::vec(step(), 1..30)) {
        let world = World::blank(3);
        world.disks.iter().for_each(|disk| disk.discard_zeroes.set(true));
        let pool = world.create(&[&[0, 1], &[2]]).unwrap().pool;
        let mut model = Model { world, pool, volumes: BTreeMap::new() };
        for step in steps {
            model.take(step);
        }
        model.check();
        model.take(Step::Reopen);
        model.check();
        prop_assert_eq!(SLAB_BLOCKS, u64::from(model.pool.status().groups[0].record.slab_blocks));
    }
}
