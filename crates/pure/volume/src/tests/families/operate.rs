//! Thin volumes, snapshots and clones as operators use them.

use super::rig::*;
use crate::tests::disk::{GARBAGE, block_on};
use crate::tests::world::{TestPool, volume_id};
use crate::{CopyProgress, CopyRecord, Lock, MappedRun, PoolError, Provisioning, SnapshotPlan, SpaceEvent, ThinPlan};
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, IoErrorKind, Lba, Rope, Stable, View, Written};
use shard::yield_now;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

fn blocks(ranges: &[(u64, u64, Stamp)]) -> BTreeMap<u64, Stamp> {
    ranges.iter().flat_map(|&(from, count, stamp)| (from..from + count).map(move |block| (block, stamp))).collect()
}

fn create(pool: &TestPool, number: u64, size: u64) -> Rc<TestVolume> {
    block_on(pool.create_thin_volume(thin_plan(number, size))).unwrap()
}

#[test]
fn thin_volume_holds_what_was_written_and_zeros_elsewhere_also_when_found_again() {
    let (world, opened) = mirror();
    let volume = create(&opened.pool, 1, 1000);
    write(&volume, 3, 1, 7).unwrap();
    write(&volume, 100, 60, 8).unwrap();
    write(&volume, 110, 3, 9).unwrap();
    write(&volume, 999, 1, 10).unwrap();
    let expected = blocks(&[(3, 1, 7), (100, 60, 8), (110, 3, 9), (999, 1, 10)]);
    assert_eq!(contents(&volume), expected, "{GARBAGE:#x} was there");
    flush(&volume);
    assert_sound(&opened.pool);
    let (again, opened) = reopen(&world);
    assert_eq!(contents(&open(&opened.pool, 1)), expected);
    assert_sound(&opened.pool);
    assert!(!again.has_written(), "to open it writes nothing");
}

#[test]
fn thin_volume_takes_space_only_for_what_was_written_and_gives_it_back() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let before = pool.status().free_bytes;
    let volume = create(pool, 1, 1 << 24);
    assert!(before - pool.status().free_bytes <= 1 << 20, "one slab for the map");
    write(&volume, 5 * GRANULE, 20 * GRANULE, 1).unwrap();
    flush(&volume);
    let usage = |pool: &TestPool| pool.status().families[0].clone();
    assert_eq!(usage(pool).allocated_bytes, Some(20 << 16));
    assert_eq!(usage(pool).volumes[0].mapped_bytes, Some(20 << 16));
    discard(&volume, 6 * GRANULE, 18 * GRANULE);
    assert_eq!(contents(&volume), blocks(&[(5 * GRANULE, GRANULE, 1), (24 * GRANULE, GRANULE, 1)]));
    flush(&volume);
    assert_eq!(usage(pool).allocated_bytes, Some(2 << 16));
    discard(&volume, 0, 1 << 24);
    flush(&volume);
    assert!(run_maintenance(pool).1 >= 1);
    assert_eq!(usage(pool).data_bytes, 0);
    assert_sound(pool);
}

#[test]
fn parts_of_granules_that_are_discarded_read_as_zeros() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 100);
    write(&volume, 0, 100, 1).unwrap();
    discard(&volume, 10, 40);
    assert_eq!(contents(&volume), blocks(&[(0, 10, 1), (50, 50, 1)]));
    discard(&volume, 90, 10);
    assert_eq!(contents(&volume), blocks(&[(0, 10, 1), (50, 40, 1)]));
    assert_eq!(opened.pool.status().families[0].volumes[0].mapped_bytes, Some(4 << 16), "granules 0, 3, 4 and 5");
    assert_sound(&opened.pool);
}

#[test]
fn zeros_take_no_space_where_they_are_detected() {
    let (_, opened) = mirror();
    let plan = ThinPlan { zero_detection: true, ..thin_plan(1, 1000) };
    let volume = block_on(opened.pool.create_thin_volume(plan)).unwrap();
    write(&volume, 0, 500, 0).unwrap();
    write(&volume, 7, 1, 0).unwrap();
    let mapped = |pool: &TestPool| pool.status().families[0].volumes[0].mapped_bytes;
    assert_eq!(mapped(&opened.pool), Some(0));
    write(&volume, 0, 64, 1).unwrap();
    write(&volume, 16, 16, 0).unwrap();
    write(&volume, 32, 1, 0).unwrap();
    assert_eq!(mapped(&opened.pool), Some(3 << 16));
    assert_eq!(contents(&volume), blocks(&[(0, 16, 1), (33, 31, 1)]));
    assert_sound(&opened.pool);
}

#[test]
fn mapped_runs_tell_what_takes_space() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 10_000);
    write(&volume, 16, 40, 1).unwrap();
    write(&volume, 800, 1, 1).unwrap();
    let runs = |extent, most| block_on(volume.mapped(extent, most)).unwrap();
    let run = |start, len, mapped| MappedRun { extent: Extent::new(start, len), mapped };
    let all = [run(0, 16, false), run(16, 48, true), run(64, 736, false), run(800, 16, true), run(816, 9184, false)];
    assert_eq!(runs(Extent::new(0, 10_000), 99), all);
    assert_eq!(runs(Extent::new(0, 10_000), 2), all[..2]);
    assert_eq!(runs(Extent::new(20, 50), 9), [run(20, 44, true), run(64, 6, false)]);
    let first = block_on(volume.run(Extent::new(20, 50))).unwrap();
    assert_eq!((first.extent, first.mapped), (Extent::new(20, 44), true));
    let space = volume.space().unwrap();
    assert_eq!((space.mapped_bytes, space.granule_bytes), (4 << 16, 1 << 16));
    let free = opened.pool.status().free_bytes;
    assert_eq!(space.free_bytes, free + (1 << 20) - (4 << 16), "the pool's, and the rest of a slab");
}

#[test]
fn snapshot_stays_as_the_volume_was_and_cannot_be_written() {
    let (world, opened) = mirror();
    let volume = create(&opened.pool, 1, 1000);
    write(&volume, 0, 100, 1).unwrap();
    snapshot(&opened.pool, 1, 1).unwrap();
    write(&volume, 10, 1, 2).unwrap();
    discard(&volume, 48, 16);
    write(&volume, 500, 3, 3).unwrap();
    snapshot(&opened.pool, 2, 1).unwrap();
    write(&volume, 0, 32, 4).unwrap();
    let frozen = open_snapshot(&opened.pool, 1);
    assert_eq!(contents(&frozen), blocks(&[(0, 100, 1)]));
    assert_eq!(write(&frozen, 0, 1, 9).unwrap_err().kind, IoErrorKind::ReadOnly);
    assert!(frozen.is_read_only());
    flush(&volume);
    let (_, opened) = reopen(&world);
    assert_eq!(contents(&open_snapshot(&opened.pool, 1)), blocks(&[(0, 100, 1)]));
    let second = blocks(&[(0, 48, 1), (10, 1, 2), (64, 36, 1), (500, 3, 3)]);
    assert_eq!(contents(&open_snapshot(&opened.pool, 2)), second);
    assert_eq!(contents(&open(&opened.pool, 1)), second.into_iter().chain(blocks(&[(0, 32, 4)])).collect());
    assert_sound(&opened.pool);
}

#[test]
fn snapshots_that_are_deleted_give_back_what_nobody_else_sees() {
    let (world, opened) = mirror();
    let pool = &opened.pool;
    let volume = create(pool, 1, 1000);
    write(&volume, 0, 10 * GRANULE, 1).unwrap();
    snapshot(pool, 1, 1).unwrap();
    write(&volume, 0, 4 * GRANULE, 2).unwrap();
    snapshot(pool, 2, 1).unwrap();
    write(&volume, 2 * GRANULE, 4 * GRANULE, 3).unwrap();
    snapshot(pool, 3, 1).unwrap();
    let (first, third) = (contents(&open_snapshot(pool, 1)), contents(&open_snapshot(pool, 3)));
    let frees: Vec<_> = pool.status().families[0].volumes[0].snapshots.iter().map(|one| one.frees_bytes_min).collect();
    assert_eq!(frees, [Some(4 << 16), Some(2 << 16), Some(0)]);
    block_on(pool.delete_snapshot(snapshot_id(2), 0)).unwrap();
    assert_eq!(pool.gc_progress().len(), 1);
    assert_eq!(run_maintenance(pool).0, 2, "granules 2 and 3 of the second snapshot");
    assert!(pool.gc_progress().is_empty());
    assert_eq!((contents(&open_snapshot(pool, 1)), contents(&open_snapshot(pool, 3))), (first.clone(), third.clone()));
    assert_sound(pool);
    block_on(pool.delete_snapshot(snapshot_id(1), 0)).unwrap();
    block_on(pool.delete_snapshot(snapshot_id(3), 0)).unwrap();
    assert_eq!(run_maintenance(pool).0, 6);
    assert_eq!(pool.status().families[0].allocated_bytes, Some(10 << 16));
    assert_eq!(contents(&volume), third);
    assert_sound(pool);
    let (_, opened) = reopen(&world);
    assert_eq!(contents(&open(&opened.pool, 1)), third);
    assert_sound(&opened.pool);
}

#[test]
fn group_of_snapshots_is_there_as_a_whole_or_not_at_all() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let (one, two) = (create(pool, 1, 100), create(pool, 2, 100));
    write(&one, 0, 1, 1).unwrap();
    write(&two, 0, 1, 2).unwrap();
    let twice = [snapshot_plan(1, 1), SnapshotPlan { id: snapshot_id(1), ..snapshot_plan(2, 2) }];
    assert_eq!(block_on(pool.create_snapshots(&twice)), Err(PoolError::IdTaken(snapshot_id(1))));
    assert!(pool.status().families.iter().all(|family| family.volumes[0].snapshots.is_empty()));
    block_on(pool.create_snapshots(&[snapshot_plan(1, 1), snapshot_plan(2, 2)])).unwrap();
    write(&one, 0, 1, 3).unwrap();
    assert_eq!(contents(&open_snapshot(pool, 1)), blocks(&[(0, 1, 1)]));
    assert_eq!(contents(&open_snapshot(pool, 2)), blocks(&[(0, 1, 2)]));
    let sets: Vec<_> = pool.status().families.iter().map(|family| family.volumes[0].snapshots[0].set).collect();
    assert_eq!(sets, [snapshot_id(1); 2]);
    assert_eq!(snapshot(pool, 1, 1), Err(PoolError::SnapshotNameTaken("s1".into())));
}

#[test]
fn clone_shares_what_it_does_not_change_and_keeps_its_origin() {
    let (world, opened) = mirror();
    let pool = &opened.pool;
    let origin = create(pool, 1, 200);
    write(&origin, 0, 100, 1).unwrap();
    snapshot(pool, 1, 1).unwrap();
    let clone = block_on(pool.create_clone(clone_plan(2, 1))).unwrap();
    write(&origin, 0, 100, 2).unwrap();
    write(&clone, 20, 5, 3).unwrap();
    discard(&clone, 48, 16);
    let expected = blocks(&[(0, 48, 1), (20, 5, 3), (64, 36, 1)]);
    assert_eq!(contents(&clone), expected);
    snapshot(pool, 2, 2).unwrap();
    let deep = block_on(pool.create_clone(clone_plan(3, 2))).unwrap();
    write(&deep, 0, 1, 4).unwrap();
    assert_eq!(contents(&deep), expected.iter().map(|(&at, &stamp)| (at, stamp)).chain([(0, 4)]).collect());
    assert!(matches!(block_on(pool.delete_snapshot(snapshot_id(1), 0)), Err(PoolError::SnapshotCloned { .. })));
    assert_eq!(block_on(pool.delete_volume(volume_id(2))), Err(PoolError::HasSnapshots(1)));
    assert_sound(pool);
    block_on(pool.delete_volume(volume_id(3))).unwrap();
    assert_eq!(write(&deep, 0, 1, 9).unwrap_err().kind, IoErrorKind::Gone);
    assert_eq!(block_on(pool.delete_snapshot(snapshot_id(2), 0)), Err(PoolError::CloneDeleting("s2".into())));
    run_maintenance(pool);
    block_on(pool.delete_snapshot(snapshot_id(2), 0)).unwrap();
    block_on(pool.delete_volume(volume_id(2))).unwrap();
    run_maintenance(pool);
    block_on(pool.delete_snapshot(snapshot_id(1), 0)).unwrap();
    run_maintenance(pool);
    assert_sound(pool);
    flush(&origin);
    let (_, opened) = reopen(&world);
    assert_eq!(contents(&open(&opened.pool, 1)), blocks(&[(0, 100, 2)]));
    assert_eq!(opened.pool.status().families[0].volumes.len(), 1);
    block_on(opened.pool.delete_volume(volume_id(1))).unwrap();
    assert!(opened.pool.status().families.is_empty());
}

#[test]
fn roll_back_brings_back_what_a_snapshot_holds_and_leaves_the_others() {
    let (world, opened) = mirror();
    let pool = &opened.pool;
    let volume = create(pool, 1, 300);
    write(&volume, 0, 64, 1).unwrap();
    snapshot(pool, 1, 1).unwrap();
    write(&volume, 16, 32, 2).unwrap();
    snapshot(pool, 2, 1).unwrap();
    write(&volume, 0, 100, 3).unwrap();
    let (first, second) = (contents(&open_snapshot(pool, 1)), contents(&open_snapshot(pool, 2)));
    block_on(pool.roll_back(snapshot_id(1))).unwrap();
    assert_eq!(contents(&volume), first);
    write(&volume, 5, 1, 4).unwrap();
    let now = contents(&volume);
    assert_eq!((contents(&open_snapshot(pool, 1)), contents(&open_snapshot(pool, 2))), (first.clone(), second.clone()));
    assert_sound(pool);
    run_maintenance(pool);
    assert_eq!(contents(&volume), now);
    assert_eq!(contents(&open_snapshot(pool, 2)), second);
    assert_sound(pool);
    block_on(pool.roll_back(snapshot_id(2))).unwrap();
    assert_eq!(contents(&volume), second);
    run_maintenance(pool);
    block_on(pool.delete_snapshot(snapshot_id(1), 0)).unwrap();
    block_on(pool.delete_snapshot(snapshot_id(2), 0)).unwrap();
    run_maintenance(pool);
    assert_eq!(contents(&volume), second);
    assert_eq!(pool.status().families[0].allocated_bytes, Some(4 << 16));
    flush(&volume);
    let (_, opened) = reopen(&world);
    assert_eq!(contents(&open(&opened.pool, 1)), second);
    assert_sound(&opened.pool);
}

#[test]
fn locked_snapshot_is_not_deleted_before_its_time() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    create(pool, 1, 100);
    let locked = SnapshotPlan { lock: Lock::Until(1000), ..snapshot_plan(1, 1) };
    block_on(pool.create_snapshots(&[locked])).unwrap();
    assert!(matches!(block_on(pool.delete_snapshot(snapshot_id(1), 999)), Err(PoolError::SnapshotLocked { .. })));
    assert!(block_on(pool.lock_snapshot(snapshot_id(1), Lock::Until(999))).is_err(), "locks only become longer");
    block_on(pool.lock_snapshot(snapshot_id(1), Lock::Until(2000))).unwrap();
    assert!(block_on(pool.delete_snapshot(snapshot_id(1), 1500)).is_err());
    block_on(pool.delete_snapshot(snapshot_id(1), 2000)).unwrap();
    snapshot(pool, 2, 1).unwrap();
    block_on(pool.lock_snapshot(snapshot_id(2), Lock::Permanent)).unwrap();
    assert!(block_on(pool.delete_snapshot(snapshot_id(2), u64::MAX - 1)).is_err());
}

#[test]
fn volume_that_grows_shows_zeros_behind_its_old_end() {
    let (world, opened) = mirror();
    let pool = &opened.pool;
    let volume = create(pool, 1, 20);
    write(&volume, 0, 20, 1).unwrap();
    snapshot(pool, 1, 1).unwrap();
    block_on(pool.resize_volume(volume_id(1), 200 * 4096)).unwrap();
    assert_eq!(contents(&volume), blocks(&[(0, 20, 1)]));
    write(&volume, 150, 50, 2).unwrap();
    assert_eq!(open_snapshot(pool, 1).geometry().blocks.0, 20);
    flush(&volume);
    let (_, opened) = reopen(&world);
    assert_eq!(contents(&open(&opened.pool, 1)), blocks(&[(0, 20, 1), (150, 50, 2)]));
    assert!(matches!(block_on(opened.pool.resize_volume(volume_id(1), 4096)), Err(PoolError::VolumeShrink { .. })));
    assert_sound(&opened.pool);
}

/// Writes granule after granule until the pool is full; returns how many fit.
fn fill(volume: &TestVolume, from: u64) -> u64 {
    let all = volume.geometry().blocks.0 / GRANULE;
    for granule in from..all {
        match write(volume, granule * GRANULE, GRANULE, 1 + granule as u32) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind, IoErrorKind::NoSpace);
                return granule - from;
            }
        }
    }
    panic!("the volume is smaller than the pool");
}

#[test]
fn full_pool_refuses_writes_that_need_space_and_nothing_else() {
    let (world, opened) = mirror();
    let pool = &opened.pool;
    let events = hear_of_space(pool, 500, 900);
    let volume = create(pool, 1, 1 << 20);
    let fitted = fill(&volume, 0);
    assert!(fitted > 400, "only {fitted} granules");
    let kinds: Vec<u8> = events
        .borrow()
        .iter()
        .map(|event| match event {
            SpaceEvent::Soft { .. } => 1,
            SpaceEvent::Hard { .. } => 2,
            SpaceEvent::Relieved { .. } => 3,
            SpaceEvent::Exhausted { .. } => 4,
        })
        .collect();
    assert_eq!(kinds, [1, 2, 4]);
    let before = contents(&volume);
    assert_eq!(before.len() as u64, fitted * GRANULE);
    write(&volume, 3, 1, 77_000).unwrap();
    assert!(write(&volume, fitted * GRANULE - 1, 2, 99).is_err(), "a part of it is new");
    assert_eq!(contents(&volume).get(&(fitted * GRANULE - 1)), before.get(&(fitted * GRANULE - 1)), "nothing changed");
    // A snapshot needs no space; afterwards its content cannot be overwritten any more, but it can be unmapped.
    match snapshot(pool, 1, 1) {
        Ok(()) => {
            assert_eq!(write(&volume, 3, 1, 5).unwrap_err().kind, IoErrorKind::NoSpace);
            discard(&volume, 0, fitted / 2 * GRANULE);
            flush(&volume);
            assert_eq!(contents(&open_snapshot(pool, 1)).len(), before.len());
            block_on(pool.delete_snapshot(snapshot_id(1), 0)).unwrap();
        }
        Err(PoolError::Full { .. }) => discard(&volume, 0, fitted / 2 * GRANULE),
        Err(other) => panic!("{other}"),
    }
    flush(&volume);
    run_maintenance(pool);
    run_maintenance(pool);
    assert_sound(pool);
    assert!(fill(&volume, fitted) >= fitted / 2 - 64, "what was unmapped is there for others");
    flush(&volume);
    let (_, opened) = reopen(&world);
    assert_sound(&opened.pool);
    assert_eq!(contents(&open(&opened.pool, 1)), contents(&volume));
}

#[test]
fn thick_volume_never_refuses_a_write_whatever_others_and_its_snapshots_take() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let plan = ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(1, 128 * GRANULE) };
    let thick = block_on(pool.create_thin_volume(plan)).unwrap();
    assert_eq!(pool.status().families[0].volumes[0].reserved_bytes, 128 << 16);
    write(&thick, 0, 100 * GRANULE, 1).unwrap();
    snapshot(pool, 1, 1).unwrap();
    let thin = create(pool, 2, 1 << 20);
    fill(&thin, 0);
    flush(&thin);
    assert!(matches!(snapshot(pool, 2, 1), Err(PoolError::Full { .. }) | Ok(())));
    for granule in 0..128 {
        write(&thick, granule * GRANULE + 3, 1, 2).unwrap();
        write(&thick, granule * GRANULE, GRANULE, 3).unwrap();
    }
    flush(&thick);
    discard(&thick, 0, 64 * GRANULE);
    write(&thick, 0, 128 * GRANULE, 4).unwrap();
    assert_sound(pool);
    assert_eq!(pool.status().families[0].volumes[0].reserved_bytes, 0);
    let too_large = ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(3, 1 << 20) };
    assert!(matches!(block_on(pool.create_thin_volume(too_large)), Err(PoolError::Full { .. })));
    assert_eq!(pool.status().families.len(), 2, "nothing half made is left");
}

#[test]
fn whole_stripes_are_written_fresh_and_moved_where_the_group_prefers_that() {
    let world = crate::tests::world::World::blank(2);
    world.disks.iter().for_each(|disk| disk.prefers_fresh.set(true));
    let opened = world.create(&[&[0, 1]]).unwrap();
    opened.pool.tune(TUNING);
    let volume = create(&opened.pool, 1, 1000);
    let torn = || {
        let journal = world.journal.borrow();
        let is_torn = |event: &&crate::tests::disk::Event| matches!(event, crate::tests::disk::Event::Write { data, .. } if data[0] == crate::tests::disk::TORN);
        journal.iter().filter(is_torn).count()
    };
    write(&volume, 0, 64, 1).unwrap();
    let first = torn();
    assert!(first >= 2, "on both disks");
    write(&volume, 16, 32, 2).unwrap();
    assert!(torn() > first, "a whole stripe was overwritten elsewhere");
    let second = torn();
    write(&volume, 20, 2, 3).unwrap();
    assert_eq!(torn(), second, "a part of one was overwritten in place");
    flush(&volume);
    assert_eq!(contents(&volume), blocks(&[(0, 64, 1), (16, 32, 2), (20, 2, 3)]));
    assert_eq!(opened.pool.status().families[0].allocated_bytes, Some(4 << 16));
    assert_sound(&opened.pool);
}

#[test]
fn writes_to_one_granule_at_once_are_all_kept() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 1000);
    for round in 0..3 {
        let writes =
            (0..40).map(|block| volume.write(block::Lba(block), stamped(block, 1, 100 * round + 1 + block as u32)));
        let written = block_on(futures_util::future::join_all(writes));
        assert!(written.into_iter().all(|written| written.is_ok()));
        snapshot(&opened.pool, u64::from(round), 1).unwrap();
    }
    assert_eq!(contents(&volume), (0..40).map(|block| (block, 201 + block as u32)).collect());
    assert_eq!(contents(&open_snapshot(&opened.pool, 0)), (0..40).map(|block| (block, 1 + block as u32)).collect());
    assert_sound(&opened.pool);
}

#[test]
fn write_that_is_dropped_half_way_leaves_no_leak() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 1000);
    for polls in 0..12 {
        let mut write = Box::pin(volume.write(block::Lba(8), stamped(8, 40, 5)));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        for _ in 0..polls {
            if write.as_mut().poll(&mut cx).is_ready() {
                write = Box::pin(volume.write(block::Lba(8), stamped(8, 40, 5)));
            }
        }
        drop(write);
        flush(&volume);
        assert_sound(&opened.pool);
    }
    let stamps: Vec<Stamp> = contents(&volume).into_values().collect();
    assert!(stamps.iter().all(|&stamp| stamp == 5));
}

#[test]
fn copy_shows_what_the_snapshot_shows_in_another_pool_and_keeps_its_holes() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 1000);
    write(&volume, 3, 100, 1).unwrap();
    write(&volume, 900, 3, 2).unwrap();
    snapshot(&opened.pool, 1, 1).unwrap();
    write(&volume, 50, 1, 3).unwrap();
    let (world, other) = mirror();
    let target = create(&other.pool, 7, 1000);
    let source = open_snapshot(&opened.pool, 1);
    let mut heard = Vec::new();
    let progress = async |copied: CopyProgress| {
        heard.push(copied.scanned_bytes);
        true
    };
    let copied = block_on(source.copy_to(&*target, Blocks(0), progress));
    assert_eq!(copied.unwrap().bytes, 8 << 16);
    assert!(heard.is_sorted() && heard.last() == Some(&(1000 * 4096)));
    let (_, again) = reopen(&world);
    assert_eq!(contents(&open(&again.pool, 7)), contents(&source));
    assert_eq!(again.pool.status().families[0].volumes[0].mapped_bytes, Some(8 << 16));
    let small = create(&other.pool, 8, 10);
    assert_eq!(block_on(source.copy_to(&*small, Blocks(0), async |_| true)).unwrap_err().kind, IoErrorKind::OutOfRange);
}

/// Device that counts the writes in flight.
struct Busy<D> {
    device: D,
    writes: Cell<usize>,
    most: Cell<usize>,
    /// Number of executor turns that a write takes, given the number of writes in flight and its block.
    yields: fn(usize, Lba) -> usize,
}

impl<D: BlockDevice> BlockDevice for Busy<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.device.read(extent).await
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.writes.set(self.writes.get() + 1);
        self.most.set(self.most.get().max(self.writes.get()));
        for _ in 0..(self.yields)(self.writes.get(), start) {
            yield_now().await;
        }
        self.writes.set(self.writes.get() - 1);
        self.device.write(start, data).await
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        assert_eq!(self.writes.get(), 0, "everything has ended before it is made stable");
        self.device.flush(after).await
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.device.discard(extent).await
    }
}

#[test]
fn copy_has_a_few_pieces_under_way_and_ends_with_the_one_that_was_told_last_when_it_is_stopped() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 4000);
    write(&volume, 0, 3900, 1).unwrap();
    let (_, other) = mirror();
    let busy = |number| {
        // Later writes overtake earlier ones.
        let yields = |writes, _| writes % 3;
        Busy { device: create(&other.pool, number, 4000), writes: Cell::new(0), most: Cell::new(0), yields }
    };
    let target = busy(7);
    assert_eq!(block_on(volume.copy_to(&target, Blocks(0), async |_| true)).unwrap().scanned_bytes, 4000 * 4096);
    assert!((2..=8).contains(&target.most.get()), "{} at once", target.most.get());
    assert_eq!(contents(&target.device), contents(&volume));
    let stopped = busy(8);
    let copied =
        block_on(volume.copy_to(&stopped, Blocks(0), async |copied: CopyProgress| copied.bytes < 3 << 20)).unwrap();
    assert_eq!(copied.bytes, 3 << 20);
    let found = contents(&stopped.device);
    assert!((0..3 << 8).all(|block| found.get(&block) == Some(&1)), "what was told is there");
}

#[test]
fn pieces_of_a_copy_end_while_whoever_hears_of_it_takes_his_time() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 4000);
    write(&volume, 0, 3900, 1).unwrap();
    let (_, other) = mirror();
    let yields = |_, start: Lba| start.0 as usize / 40;
    let target = Busy { device: create(&other.pool, 7, 4000), writes: Cell::new(0), most: Cell::new(0), yields };
    let progress = async |_: CopyProgress| {
        for _ in 0..500 {
            yield_now().await;
        }
        assert_eq!(target.writes.get(), 0, "what was begun has ended");
        true
    };
    assert_eq!(block_on(volume.copy_to(&target, Blocks(0), progress)).unwrap().bytes, 61 << 18);
    assert_eq!(contents(&target.device), contents(&volume));
}

#[test]
fn copy_continues_at_the_block_that_is_next() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 1000);
    write(&volume, 0, 512, 1).unwrap();
    write(&volume, 704, 96, 2).unwrap();
    let target = create(&opened.pool, 2, 1000);
    let copied = block_on(volume.copy_to(&*target, Blocks(448), async |_| true)).unwrap();
    assert_eq!((copied.bytes, copied.scanned_bytes), (160 * 4096, 1000 * 4096));
    assert_eq!(contents(&target), blocks(&[(448, 64, 1), (704, 96, 2)]));
    assert_eq!(block_on(volume.copy_to(&*target, Blocks(1000), async |_| true)).unwrap().bytes, 0);
    let beyond = block_on(volume.copy_to(&*target, Blocks(1001), async |_| true));
    assert_eq!(beyond.unwrap_err().kind, IoErrorKind::OutOfRange, "a copy of nothing is not whole");
}

#[test]
fn volume_that_is_copied_to_is_partial_until_it_is_whole() {
    let (world, opened) = mirror();
    let partial = |pool: &TestPool| pool.status().families[0].volumes[0].is_partial;
    let (source_pool, snapshot) = (volume_id(70), volume_id(71));
    let source = "a source of 29 bytes, in words".to_owned();
    let copy = CopyRecord { source_pool, snapshot, made: true, source, next: Blocks(0), copied_bytes: 0 };
    let volume = block_on(opened.pool.create_partial_volume(thin_plan(1, 100), copy.clone())).unwrap();
    write(&volume, 3, 10, 1).unwrap();
    flush(&volume);
    let (_, found) = reopen(&world);
    assert!(partial(&found.pool), "after a crash, too");
    assert_eq!(found.pool.unfinished_copies(), BTreeMap::from([(volume_id(1), copy.clone())]));
    block_on(opened.pool.store_copied(volume_id(1), Blocks(13), 10 * 4096)).unwrap();
    let (_, found) = reopen(&world);
    let further = CopyRecord { next: Blocks(13), copied_bytes: 10 * 4096, ..copy };
    assert_eq!(found.pool.unfinished_copies(), BTreeMap::from([(volume_id(1), further)]));
    assert!(block_on(opened.pool.dump()).unwrap().contains("copy of a source of 29 bytes"));
    block_on(opened.pool.complete_volume(volume_id(1))).unwrap();
    let over = block_on(opened.pool.store_copied(volume_id(1), Blocks(14), 0));
    assert_eq!(over, Err(PoolError::VolumeUnknown(volume_id(1))));
    let (_, found) = reopen(&world);
    assert!(!partial(&found.pool) && found.pool.unfinished_copies().is_empty());
    assert_eq!(contents(&open(&found.pool, 1)), blocks(&[(3, 10, 1)]));
    let unknown = block_on(opened.pool.complete_volume(volume_id(2)));
    assert_eq!(unknown, Err(PoolError::VolumeUnknown(volume_id(2))));
}

#[test]
fn repair_frees_what_leaked_and_counts_again() {
    let (world, opened) = mirror();
    let volume = create(&opened.pool, 1, 1000);
    write(&volume, 0, 100, 1).unwrap();
    flush(&volume);
    let family = opened.pool.open_family(volume_id(1)).unwrap();
    family.spoil();
    let found = block_on(opened.pool.check()).unwrap().findings;
    let kinds: std::collections::BTreeSet<_> = found.iter().map(|finding| finding.kind).collect();
    use crate::FindingKind::{Count, Leak, UsedMarkedFree};
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), [Leak, UsedMarkedFree, Count], "{found:?}");
    assert_eq!(block_on(opened.pool.repair(false)).unwrap().findings, found);
    assert_sound(&opened.pool);
    let (_, again) = reopen(&world);
    assert_sound(&again.pool);
    assert_eq!(contents(&open(&again.pool, 1)), blocks(&[(0, 100, 1)]));
}

#[test]
fn dump_names_volumes_snapshots_and_places() {
    let (_, opened) = mirror();
    let volume = create(&opened.pool, 1, 1000);
    write(&volume, 0, 20, 1).unwrap();
    snapshot(&opened.pool, 1, 1).unwrap();
    discard(&volume, 0, 16);
    let text = block_on(opened.pool.dump()).unwrap();
    for told in ["volume 0 granule 1 epoch 1: group 0 slab 1 granule 1", "volume 0 granule 0 epoch 2: hole", "\"s1\""] {
        assert!(text.contains(told), "{told} is not in {text}");
    }
}
