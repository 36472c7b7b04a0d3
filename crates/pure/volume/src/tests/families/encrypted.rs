//! Encrypted volumes: content of the disks, access with and without the key, and the remains of a replaced key.

use super::rig::*;
use crate::layout::SLOT_STARTS;
use crate::tests::disk::{Image, PowerCut, Random, block_on};
use crate::tests::world::{Opened, TestPool, World, pool_key, volume_id};
use crate::{KeyError, NewKey, PoolError, PoolKey, ThinPlan};
use block::{BlockDevice, Extent};
use std::collections::BTreeMap;
use std::rc::Rc;

fn create(pool: &TestPool, number: u64, encryption: Option<NewKey>) -> Rc<TestVolume> {
    block_on(pool.create_thin_volume(ThinPlan { encryption, ..thin_plan(number, 1000) })).unwrap()
}

fn encrypted() -> (World, Opened, Rc<TestVolume>) {
    let (world, opened) = mirror();
    let volume = create(&opened.pool, 1, Some(new_key(1)));
    (world, opened, volume)
}

/// Sector of block `block` as `stamped` writes it.
fn sector(block: u64, stamp: Stamp) -> Vec<u8> {
    stamped(block, 1, stamp)[..512].to_vec()
}

fn lies_on(world: &World, bytes: &[u8]) -> bool {
    world.images().iter().any(|image| image.holds(bytes, 8))
}

/// Blocks of a device that carry a valid stamp.
fn readable(device: &TestVolume) -> BTreeMap<u64, Stamp> {
    let data = block_on(device.read(device.geometry().all())).unwrap().into_view();
    let whole = |(block, data): (u64, &[u8])| Some((block, *stamps_of(block, data).ok()?.first()?));
    (0..).zip(data.chunks_exact(4096)).filter_map(whole).filter(|(_, stamp)| *stamp != 0).collect()
}

#[test]
fn encrypted_volume_shows_nowhere_on_its_disks_what_was_written_and_a_plain_one_does() {
    let (world, opened, volume) = encrypted();
    write(&volume, 3, 50, 7).unwrap();
    flush(&volume);
    assert_eq!(contents(&volume).len(), 50);
    assert!(!lies_on(&world, &sector(20, 7)));
    let plain = create(&opened.pool, 2, None);
    write(&plain, 3, 50, 8).unwrap();
    flush(&plain);
    assert!(lies_on(&world, &sector(20, 8)), "the search finds what is there");
    let families = opened.pool.status().families;
    assert_eq!(families.iter().map(|family| family.volumes[0].is_encrypted).collect::<Vec<_>>(), [true, false]);
    assert_sound(&opened.pool);
}

#[test]
fn snapshots_and_clones_of_an_encrypted_volume_show_what_they_should_and_are_encrypted() {
    let (world, opened, volume) = encrypted();
    let pool = &opened.pool;
    write(&volume, 0, 64, 1).unwrap();
    snapshot(pool, 1, 1).unwrap();
    // Partial granules, whose remainder is copied.
    write(&volume, 5, 3, 2).unwrap();
    let clone = block_on(pool.create_clone(clone_plan(3, 1))).unwrap();
    write(&clone, 30, 4, 3).unwrap();
    discard(&clone, 40, 2);
    [&volume, &clone].iter().for_each(|volume| flush(volume));
    assert!([(20, 1), (6, 2), (31, 3)].iter().all(|&(block, stamp)| !lies_on(&world, &sector(block, stamp))));
    let (world, opened) = reopen(&world);
    assert!(!world.has_written());
    let all = |stamp| (0..64).map(move |block| (block, stamp));
    let mut expected: BTreeMap<u64, Stamp> = all(1).collect();
    assert_eq!(contents(&open_snapshot(&opened.pool, 1)), expected);
    expected.extend((5..8).map(|block| (block, 2)));
    assert_eq!(contents(&open(&opened.pool, 1)), expected);
    let mut expected: BTreeMap<u64, Stamp> = all(1).collect();
    expected.extend((30..34).map(|block| (block, 3)));
    expected.retain(|block, _| !(40..42).contains(block));
    assert_eq!(contents(&open(&opened.pool, 3)), expected);
    assert_sound(&opened.pool);
}

#[test]
fn encrypted_volume_without_its_pool_key_says_so_and_leaves_the_others_alone() {
    let (world, opened, volume) = encrypted();
    write(&volume, 3, 5, 7).unwrap();
    flush(&volume);
    snapshot(&opened.pool, 1, 1).unwrap();
    let plain = create(&opened.pool, 2, None);
    write(&plain, 3, 5, 8).unwrap();
    flush(&plain);
    let (_, again) = reopen(&world);
    let other = PoolKey::of([9; 32]);
    again.pool.set_key(other.clone());
    let refused = PoolError::Key(KeyError::Other { wanted: pool_key().id(), have: other.id() });
    let refusal = |error: PoolError| assert_eq!(error, refused);
    refusal(block_on(again.pool.open_thin_volume(volume_id(1))).err().unwrap());
    refusal(block_on(again.pool.open_snapshot(snapshot_id(1))).err().unwrap());
    refusal(block_on(again.pool.create_clone(clone_plan(3, 1))).err().unwrap());
    assert!(refused.to_string().contains(&pool_key().id().to_string()), "{refused}");
    assert_eq!(contents(&open(&again.pool, 2)).len(), 5);
    run_maintenance(&again.pool);
    assert_sound(&again.pool);
    // With the key the data is readable again.
    again.pool.set_key(pool_key());
    assert_eq!(contents(&open(&again.pool, 1)).len(), 5);
}

/// Regression: the volume would be lost once the key of the others is set again.
#[test]
fn volume_under_a_second_key_is_refused_while_others_need_the_first() {
    let (world, opened, _) = encrypted();
    let (_, again) = reopen(&world);
    let own = PoolKey::of([9; 32]);
    let plan = |id| ThinPlan { encryption: Some(new_key(2)), ..thin_plan(id, 1000) };
    again.pool.set_key(own.clone());
    let refused = block_on(again.pool.create_thin_volume(plan(7))).err().expect("refused");
    assert_eq!(refused, PoolError::SecondKey { wanted: pool_key().id(), own: own.id() });
    block_on(again.pool.rewrap_keys(&pool_key(), || [1; 24])).expect("rewrapped");
    assert!(block_on(again.pool.create_thin_volume(plan(7))).is_ok());
    drop(opened);
}

#[test]
fn keys_that_another_node_wrapped_are_wrapped_anew_by_who_has_its_pool_key() {
    let (world, opened, volume) = encrypted();
    write(&volume, 3, 5, 7).unwrap();
    flush(&volume);
    let (_, again) = reopen(&world);
    let own = PoolKey::of([9; 32]);
    again.pool.set_key(own.clone());
    assert_eq!(again.pool.keys_wanted(), [pool_key().id()]);
    assert_eq!(
        block_on(again.pool.rewrap_keys(&PoolKey::of([8; 32]), || [1; 24])),
        Ok(0),
        "nothing is wrapped with that"
    );
    assert_eq!(block_on(again.pool.rewrap_keys(&pool_key(), || [1; 24])), Ok(1));
    assert_eq!(again.pool.keys_wanted(), [own.id()]);
    assert_eq!(contents(&open(&again.pool, 1)).len(), 5);
    drop(opened);
}

#[test]
fn key_is_replaced_only_where_nothing_else_is_lost_with_it() {
    let (_, opened, volume) = encrypted();
    let pool = &opened.pool;
    write(&volume, 0, 64, 1).unwrap();
    let replace = |number| block_on(pool.replace_key(volume_id(number), &new_key(77)));
    create(pool, 2, None);
    assert_eq!(replace(2), Err(PoolError::NotEncrypted));
    assert_eq!(replace(9), Err(PoolError::VolumeUnknown(volume_id(9))));
    snapshot(pool, 1, 1).unwrap();
    assert_eq!(replace(1), Err(PoolError::KeyShared(1)));
    block_on(pool.create_clone(clone_plan(3, 1))).unwrap();
    assert_eq!(replace(3), Err(PoolError::KeyShared(2)));
    assert_eq!(contents(&volume).len(), 64, "a refusal changes nothing");
    block_on(pool.delete_volume(volume_id(3))).unwrap();
    run_maintenance(pool);
    block_on(pool.delete_snapshot(snapshot_id(1), 0)).unwrap();
    assert_eq!(replace(1), Ok(()));
    assert!(readable(&volume).is_empty());
}

/// Checks that the replaced key is on no disk.
pub(super) fn old_key_is_nowhere() -> Result<(), String> {
    let (world, opened, volume) = encrypted();
    write(&volume, 3, 50, 7).unwrap();
    flush(&volume);
    let old = pool_key().wrap(volume_id(1), &new_key(1));
    // Remains of a longer catalog behind the current one.
    let ends = world.disks.iter().flat_map(|disk| SLOT_STARTS.map(|start| (disk, (start + 9) * 4096)));
    ends.for_each(|(disk, at)| disk.scribble(at, &old.sealed));
    assert!(lies_on(&world, &old.sealed), "the search finds what is there");
    block_on(opened.pool.replace_key(volume_id(1), &new_key(77))).map_err(|error| error.to_string())?;
    if lies_on(&world, &old.sealed) {
        return Err("the key that was replaced is still there".to_owned());
    }
    if !readable(&volume).is_empty() {
        return Err("what was erased can be read".to_owned());
    }
    let new = pool_key().wrap(volume_id(1), &new_key(77));
    if lies_on(&world, &new.sealed) { Ok(()) } else { Err("the new key is not kept".to_owned()) }
}

#[test]
fn key_that_was_replaced_is_left_on_no_disk() {
    old_key_is_nowhere().unwrap();
}

#[test]
fn volume_whose_key_was_replaced_is_as_new_once_it_is_discarded() {
    let (world, opened, volume) = encrypted();
    write(&volume, 3, 50, 7).unwrap();
    block_on(opened.pool.replace_key(volume_id(1), &new_key(77))).unwrap();
    discard(&volume, 0, 1000);
    assert!(contents(&volume).is_empty());
    write(&volume, 5, 20, 8).unwrap();
    flush(&volume);
    let (_, again) = reopen(&world);
    assert_eq!(contents(&open(&again.pool, 1)), (5..25).map(|block| (block, 8)).collect());
    assert_sound(&again.pool);
}

#[test]
fn power_that_goes_while_a_key_is_replaced_leaves_the_old_one_or_the_new() {
    let (world, opened, volume) = encrypted();
    write(&volume, 3, 5, 7).unwrap();
    flush(&volume);
    let base: Vec<Image> = world.images();
    world.journal.borrow_mut().clear();
    block_on(opened.pool.replace_key(volume_id(1), &new_key(77))).unwrap();
    let events = world.journal.borrow().clone();
    let (mut power, mut random) = (PowerCut::of(base), Random(3));
    let (mut old, mut new) = (0, 0);
    let before = (3..8).map(|block| (block, 7)).collect::<BTreeMap<u64, Stamp>>();
    for (at, event) in events.iter().enumerate() {
        power.push(event);
        power.each(&mut random, false, |images| {
            let again = World::of(images).open().unwrap();
            let volume = open(&again.pool, 1);
            let data = block_on(volume.read(Extent::new(3, 5))).unwrap();
            match readable(&volume) {
                found if found == before => old += 1,
                found if found.is_empty() => {
                    assert!(data.parts().any(|part| part.iter().any(|&byte| byte != 0)), "garbage, not zeros");
                    new += 1;
                }
                found => panic!("a mixture of keys behind event {at}: {found:?}"),
            }
            // An interrupted replacement is repeated.
            block_on(again.pool.replace_key(volume_id(1), &new_key(78))).unwrap();
            assert!(readable(&open(&again.pool, 1)).is_empty());
        });
    }
    assert!(old > 0 && new > 0, "{old} old and {new} new ones");
}
