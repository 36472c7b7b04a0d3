//! Addition, growth and removal of groups, and the log group, as operators see them.

use super::disk::{PowerCut, Random, block_on};
use super::world::{DISK_BLOCKS, Opened, TestPool, World, disk_id, labelling, members, volume_id};
use crate::{
    GroupRole, LogRecord, LogState, MemberState, NewDisk, PoolError, Provisioning, ThinPlan, VolumePlan, probe,
};
use block::{BlockDevice, Blocks, Buf, Extent, Lba};
use uuid::Uuid;

fn one_group(disks: usize) -> (World, Opened) {
    let world = World::blank(disks);
    let opened = world.create(&[&[0, 1]]).unwrap();
    (world, opened)
}

fn create(pool: &TestPool, number: u64, size_bytes: u64) {
    let name = format!("v{number}");
    let plan =
        VolumePlan { id: volume_id(number), name, size_bytes, block_bytes: 512, stripe_unit_bytes: 0, created_at: 1 };
    block_on(pool.create_volume(plan)).unwrap();
}

fn filled(fill: u8) -> block::View {
    let mut data = Buf::zeroed(4096);
    data.fill(fill);
    data.freeze()
}

/// Pool of disks 0 and 1, a log on disks 2 and 3, and volume 1 in that log; the UUID returned is that of the
/// log.
fn written_back() -> (World, Opened, Uuid) {
    let (world, opened) = one_group(4);
    let (pool, id) = (&opened.pool, Uuid::from_u128(70));
    create(pool, 1, 1 << 20);
    block_on(pool.write_log().add_group(world.group(1, &[2, 3]).0, labelling())).unwrap();
    block_on(pool.write_log().set(id)).unwrap();
    block_on(pool.write_log().add_volume(id, volume_id(1))).unwrap();
    (world, opened, id)
}

fn thin_plan() -> ThinPlan {
    ThinPlan {
        id: volume_id(1),
        name: "thin".into(),
        size_bytes: 80 << 20,
        block_bytes: 4096,
        granule_bytes: 0,
        provisioning: Provisioning::Thin,
        zero_detection: false,
        encryption: None,
        created_at: 1,
    }
}

#[test]
fn group_of_a_log_that_comes_later_is_nothing_to_families_that_need_space() {
    let (world, opened) = one_group(4);
    let pool = &opened.pool;
    let thin = block_on(pool.create_thin_volume(thin_plan())).unwrap();
    assert_eq!(block_on(pool.write_log().add_group(world.group(1, &[2, 3]).0, labelling())), Ok(1));
    for slab in 0..32 {
        let _ = block_on(thin.write(Lba(slab * 256), filled(7))).unwrap();
    }
    assert_eq!(block_on(thin.read(Extent::new(31 * 256, 1))).unwrap().into_view()[..], filled(7)[..]);
}

#[test]
fn group_added_gives_its_slabs_to_new_volumes_and_to_open_families() {
    let (world, opened) = one_group(4);
    let pool = &opened.pool;
    let thin = block_on(pool.create_thin_volume(thin_plan())).unwrap();
    let (plan, device) = world.group(1, &[2, 3]);
    assert_eq!(block_on(pool.add_group(plan, device, labelling())), Ok(1));
    let status = pool.status();
    assert_eq!(status.bytes, 2 * (47 << 20));
    // More data than fits on the first group alone.
    for block in (0..80 * 256).step_by(16) {
        block_on(async {
            let written = thin.write(Lba(block), filled(block as u8 | 1)).await.unwrap();
            let _ = thin.flush(written).await.unwrap();
        });
    }
    assert!(pool.status().groups[1].free_slabs < 47 - 20, "the second group is in use");
    let again = World::of(world.images()).open().unwrap();
    let thin = block_on(again.pool.open_thin_volume(volume_id(1))).unwrap();
    for block in (0..80 * 256).step_by(160) {
        let data = block_on(thin.read(Extent::new(block, 1))).unwrap().into_view();
        assert_eq!(data[0], block as u8 | 1, "block {block}");
    }
}

#[test]
fn group_whose_disk_dies_while_it_is_added_is_not_added() {
    let (world, opened) = one_group(5);
    let (plan, device) = world.group(1, &[2, 3]);
    world.disks[3].dead.set(true);
    let refused = block_on(opened.pool.add_group(plan, device, labelling())).unwrap_err();
    assert!(matches!(refused, PoolError::DiskFails { disk, .. } if disk == disk_id(3)), "{refused}");
    let status = opened.pool.status();
    assert_eq!((status.groups.len(), members(&opened.pool).len()), (1, 2));
    // The other disk is free again.
    let (plan, device) = world.group(1, &[2, 4]);
    assert_eq!(block_on(opened.pool.add_group(plan, device, labelling())), Ok(1));
    assert_eq!(World::of(world.images()).open().unwrap().pool.status().groups.len(), 2);
}

#[test]
fn group_of_disks_that_somebody_has_is_refused() {
    let (world, opened) = one_group(4);
    let other = World::of(vec![world.images()[0].clone()]);
    world.disks[2].scribble(0, &block_on(other.disks[0].read(Extent::new(0, 1))).unwrap().into_view());
    let (plan, device) = world.group(1, &[0, 3]);
    let refused = block_on(opened.pool.add_group(plan, device, labelling())).unwrap_err();
    assert_eq!(refused, PoolError::DiskKnown(disk_id(0)));
    world.disks[3].scribble(1024 + 56, &0xef53_u16.to_le_bytes());
    let (plan, device) = world.group(1, &[3]);
    let refused = block_on(opened.pool.add_group(plan, device, labelling())).unwrap_err();
    assert!(matches!(refused, PoolError::DiskForeign { .. }), "{refused}");
    assert_eq!(members(&opened.pool), [0, 1].map(|disk| (disk_id(disk), MemberState::InService)));
}

#[test]
fn group_grows_into_what_its_device_has_gained() {
    let world = World::blank(2);
    let (mut plan, groups) = world.plan(&[&[0, 1]]);
    let half = Blocks(20 * 256);
    plan.groups[0].member_blocks = half;
    groups[0].show(half);
    let pool = block_on(TestPool::create(plan, groups.clone())).unwrap();
    create(&pool, 1, 20 << 20);
    let all = crate::data_area(Blocks(DISK_BLOCKS)).unwrap().len;
    groups[0].show(all);
    assert_eq!(block_on(pool.grow_group(0, all)), Ok(27));
    block_on(pool.resize_volume(volume_id(1), 47 << 20)).unwrap();
    let again = World::of(world.images()).open().unwrap();
    assert_eq!(again.pool.status().groups[0].record.slabs, 47);
    assert_eq!(again.pool.status().groups[0].record.member_blocks, all);
    groups[0].show(half);
    assert!(block_on(pool.grow_group(0, all)).is_err(), "a group does not shrink");
    assert_eq!(block_on(pool.grow_group(1, all)), Err(PoolError::GroupUnknown(1)));
}

#[test]
fn member_is_added_behind_the_others_and_taken_back() {
    let (world, opened) = one_group(5);
    let pool = &opened.pool;
    let new = |disk: usize| NewDisk { id: disk_id(disk), device: world.disks[disk].clone() };
    let add = |group, disk| block_on(pool.members().add(group, new(disk), MemberState::InService, labelling()));
    assert_eq!(add(1, 2), Err(PoolError::GroupUnknown(1)));
    assert_eq!(add(0, 1), Err(PoolError::DiskKnown(disk_id(1))));
    world.disks[3].scribble(1024 + 56, &0xef53_u16.to_le_bytes());
    assert!(matches!(add(0, 3), Err(PoolError::DiskForeign { .. })));
    world.disks[4].dead.set(true);
    assert!(matches!(add(0, 4), Err(PoolError::DiskFails { .. })));
    assert_eq!(members(pool).len(), 2, "nothing has changed");
    assert_eq!(add(0, 2), Ok(2));
    let all = [0, 1, 2].map(|disk| (disk_id(disk), MemberState::InService));
    assert_eq!(members(pool), all);
    assert_eq!(members(&World::of(world.images()).open().unwrap().pool), all);
    assert_eq!(block_on(pool.members().remove_last(disk_id(1))), Err(PoolError::MemberUnknown(disk_id(1))));
    block_on(pool.members().remove_last(disk_id(2))).unwrap();
    assert_eq!(members(&World::of(world.images()).open().unwrap().pool), all[..2]);
    assert!(matches!(block_on(probe(&world.disks[2])).contents, crate::Contents::Blank));
}

#[test]
fn log_group_has_no_slabs_and_goes_only_when_nobody_needs_it() {
    let (world, opened) = one_group(6);
    let pool = &opened.pool;
    create(pool, 1, 1 << 20);
    let id = Uuid::from_u128(70);
    assert_eq!(block_on(pool.write_log().set(id)), Err(PoolError::LogUnknown));
    assert_eq!(block_on(pool.write_log().add_group(world.group(1, &[2, 3]).0, labelling())), Ok(1));
    assert_eq!(block_on(pool.write_log().add_group(world.group(2, &[4]).0, labelling())), Err(PoolError::LogKnown));
    assert_eq!((pool.write_log().group(), pool.write_log().record(), pool.status().bytes), (Some(1), None, 47 << 20));
    assert!(pool.group(1).is_none(), "no volume lies there");
    block_on(pool.write_log().set(id)).unwrap();
    block_on(pool.write_log().add_volume(id, volume_id(1))).unwrap();
    assert_eq!(block_on(pool.write_log().add_volume(Uuid::from_u128(69), volume_id(1))), Err(PoolError::LogUnknown));
    assert_eq!(block_on(pool.write_log().add_volume(id, volume_id(2))), Err(PoolError::VolumeUnknown(volume_id(2))));
    assert_eq!(block_on(pool.write_log().remove_group()), Err(PoolError::LogInUse(1)));
    assert_eq!(block_on(pool.write_log().set(Uuid::from_u128(71))), Err(PoolError::LogInUse(1)));
    let record = LogRecord { group: 1, id, state: LogState::Live, volumes: vec![volume_id(1)] };
    assert_eq!(World::of(world.images()).open().unwrap().pool.write_log().record(), Some(record));
    block_on(pool.delete_volume(volume_id(1))).unwrap();
    assert_eq!(block_on(pool.write_log().remove_group()), Ok(vec![disk_id(2), disk_id(3)]));
    assert!(matches!(block_on(probe(&world.disks[2])).contents, crate::Contents::Blank));
    // The index of the group is not reused while the pool is open.
    let (plan, device) = world.group(3, &[2, 3]);
    assert_eq!(block_on(pool.add_group(plan, device, labelling())), Ok(2));
    create(pool, 2, 60 << 20);
    let again = World::of(world.images()).open().unwrap();
    let roles: Vec<GroupRole> = again.pool.status().groups.iter().map(|group| group.record.role).collect();
    assert_eq!(roles, [GroupRole::Data, GroupRole::Removed, GroupRole::Data]);
}

#[test]
fn log_that_was_abandoned_names_who_lost_data_until_somebody_heard_it() {
    let (world, opened) = one_group(3);
    let (pool, id) = (&opened.pool, Uuid::from_u128(70));
    [1, 2, 3].into_iter().for_each(|number| create(pool, number, 1 << 20));
    block_on(pool.write_log().add_group(world.group(1, &[2]).0, labelling())).unwrap();
    block_on(pool.write_log().set(id)).unwrap();
    block_on(pool.write_log().add_volume(id, volume_id(1))).unwrap();
    let lost = vec![volume_id(3), volume_id(2), volume_id(2), volume_id(9)];
    block_on(pool.write_log().abort(id, lost)).unwrap();
    assert_eq!(
        block_on(pool.write_log().add_volume(id, volume_id(1))),
        Err(PoolError::LogUnknown),
        "it is never used again"
    );
    let again = World::of(world.images()).open().unwrap().pool;
    let log = again.write_log().record().unwrap();
    assert_eq!((log.state, log.volumes), (LogState::Abandoned, vec![volume_id(2), volume_id(3)]));
    block_on(again.write_log().remove_volume(volume_id(2))).unwrap();
    assert_eq!(block_on(again.write_log().set(Uuid::from_u128(71))), Err(PoolError::LogInUse(1)));
    block_on(again.write_log().mark_settled(id)).unwrap();
    block_on(again.write_log().set(Uuid::from_u128(71))).unwrap();
    assert_eq!(block_on(again.write_log().mark_settled(id)), Err(PoolError::LogUnknown));
}

#[test]
fn log_whose_disks_are_away_is_waited_for_and_there_again_whenever_the_power_went() {
    let (world, opened) = one_group(3);
    let (pool, id) = (&opened.pool, Uuid::from_u128(70));
    create(pool, 1, 1 << 20);
    block_on(pool.write_log().add_group(world.group(1, &[2]).0, labelling())).unwrap();
    block_on(pool.write_log().set(id)).unwrap();
    block_on(pool.write_log().add_volume(id, volume_id(1))).unwrap();
    let begin = world.images();
    let state = |opened: &Opened| (opened.pool.write_log().record().unwrap().state, members(&opened.pool)[2].1);
    let without = World::of(begin.clone());
    let opened = without.open_with(&[0, 1]).unwrap();
    assert_eq!(state(&opened), (LogState::Missing, MemberState::Missing));
    assert_eq!(block_on(opened.pool.write_log().add_volume(id, volume_id(1))), Err(PoolError::LogUnknown));
    assert_eq!(block_on(opened.pool.write_log().set(Uuid::from_u128(71))), Err(PoolError::LogInUse(1)));
    // Its disk is soon older than any that could be trusted.
    (2..5).for_each(|number| create(&opened.pool, number, 1 << 20));
    let (mut states, mut cut_again) = (0_u64, 0);
    let (mut power, mut random) = (PowerCut::of(begin), Random(3));
    for event in without.journal.borrow().iter() {
        power.push(event);
        power.each(&mut random, true, |images| {
            states += 1;
            let back = World::of(images.clone());
            assert_eq!(state(&back.open().unwrap()), (LogState::Live, MemberState::InService));
            if !states.is_multiple_of(8) {
                return;
            }
            let (mut power, mut random) = (PowerCut::of(images), Random(5));
            for event in back.journal.borrow().iter() {
                power.push(event);
                power.each(&mut random, false, |images| {
                    cut_again += 1;
                    let world = World::of(images);
                    assert_eq!(state(&world.open().unwrap()), (LogState::Live, MemberState::InService));
                    let again = World::of(world.images());
                    assert_eq!(state(&again.open().unwrap()), (LogState::Live, MemberState::InService));
                    assert!(!again.has_written(), "nothing is left to do");
                });
            }
        });
    }
    assert!(states > 100 && cut_again > 1000, "{states} states, {cut_again} cut again");
}

#[test]
fn log_that_is_back_while_its_pool_is_open_goes_on_and_is_lost_by_no_power_cut() {
    let (world, opened, id) = written_back();
    drop(opened);
    let away = World::of(world.images());
    let pool = away.open_with(&[0, 1]).unwrap().pool;
    // Its disks are soon older than any that could be trusted.
    (2..5).for_each(|number| create(&pool, number, 1 << 20));
    let begin = away.images();
    away.journal.borrow_mut().clear();
    let (live, in_service) = (LogState::Live, MemberState::InService);
    let log_of = |pool: &TestPool| (pool.write_log().record().unwrap().state, [members(pool)[2].1, members(pool)[3].1]);
    let found = |order: &[usize]| away.survey_of(order).pools.remove(0);
    let back =
        |order: &[usize]| block_on(pool.write_log().reattach(&found(order), |place| away.disks[order[place]].clone()));
    assert_eq!(back(&[0, 1]), Err(PoolError::LogUnknown), "nobody is back");
    assert_eq!(back(&[1, 3, 0, 2]), Ok(()));
    assert_eq!(log_of(&pool), (live, [in_service; 2]));
    block_on(pool.write_log().add_volume(id, volume_id(2))).unwrap();
    assert_eq!(back(&[0, 1, 2, 3]), Err(PoolError::LogUnknown), "it is not away");
    let mut states = 0;
    let (mut power, mut random) = (PowerCut::of(begin), Random(9));
    for event in away.journal.borrow().iter() {
        power.push(event);
        power.each(&mut random, true, |images| {
            states += 1;
            assert_eq!(log_of(&World::of(images).open().unwrap().pool), (live, [in_service; 2]));
        });
    }
    assert!(states > 50, "{states} states");
}

#[test]
fn disk_of_a_log_that_went_on_without_it_is_not_believed() {
    let (world, opened, _) = written_back();
    drop(opened);
    let pool = world.open_with(&[0, 1]).unwrap().pool;
    let found = world.survey_of(&[0, 1, 2]).pools.remove(0);
    block_on(pool.write_log().reattach(&found, |place| world.disks[place].clone())).unwrap();
    let log_of = |pool: &TestPool| (pool.write_log().record().unwrap().state, [members(pool)[2].1, members(pool)[3].1]);
    let alone = (LogState::Live, [MemberState::InService, MemberState::Missing]);
    assert_eq!(log_of(&pool), alone);
    assert_eq!(log_of(&world.open().unwrap().pool), alone);
}

#[test]
fn disk_of_a_log_that_was_given_up_before_the_log_went_away_is_not_believed() {
    let (world, opened, id) = written_back();
    block_on(opened.pool.members().set_state(disk_id(2), MemberState::Failed)).unwrap();
    let away = World::of(world.images());
    drop(away.open_with(&[0, 1]).unwrap());
    let found = |order: &[usize]| {
        let opened = World::of(away.images()).open_with(order).unwrap();
        let states: Vec<MemberState> = members(&opened.pool)[2..].iter().map(|(_, state)| *state).collect();
        (opened.pool.write_log().record().unwrap().state, states)
    };
    let (failed, missing) = (MemberState::Failed, MemberState::Missing);
    assert_eq!(found(&[0, 1, 2]), (LogState::Missing, vec![failed, missing]), "it lacks what came later");
    assert_eq!(found(&[0, 1, 2, 3]), (LogState::Live, vec![failed, MemberState::InService]));
    // The same after the pool was open without one disk, and the other one was lost later.
    let (world, opened) = one_group(4);
    let pool = &opened.pool;
    block_on(pool.write_log().add_group(world.group(1, &[2, 3]).0, labelling())).unwrap();
    block_on(pool.write_log().set(id)).unwrap();
    drop(world.open_with(&[0, 1, 3]).unwrap());
    drop(world.open_with(&[0, 1]).unwrap());
    let opened = world.open_with(&[0, 1, 2]).unwrap();
    assert_eq!(
        (opened.pool.write_log().record().unwrap().state, members(&opened.pool)[2].1),
        (LogState::Missing, missing)
    );
}

#[test]
fn log_that_is_lost_is_forgotten_when_an_operator_says_so() {
    let (world, ..) = written_back();
    let opened = world.open_with(&[0, 1, 2]).unwrap();
    assert_eq!(block_on(opened.pool.write_log().remove_group()), Err(PoolError::LogInUse(1)));
    assert_eq!(block_on(opened.pool.write_log().discard_group()), Ok(vec![disk_id(2), disk_id(3)]));
    let again = World::of(world.images()).open().unwrap().pool;
    assert_eq!((again.write_log().record(), again.write_log().group(), again.status().groups.len()), (None, None, 1));
}
