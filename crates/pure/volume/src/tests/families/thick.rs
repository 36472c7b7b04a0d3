//! Thick volumes that are too large for their pool, slightly or by far.

use super::rig::*;
use crate::tests::disk::block_on;
use crate::tests::world::volume_id;
use crate::{ClonePlan, PoolError, Provisioning, SpaceEvent, ThinPlan, VolumePlan};

#[test]
fn thick_volume_that_is_a_little_too_large_is_refused_and_leaves_everything_as_it_was() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let _thin = block_on(pool.create_thin_volume(thin_plan(1, 1000))).unwrap();
    let free = pool.status().free_bytes;
    for more in 0..4 {
        let size = free / 4096 - more * GRANULE;
        let plan = ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(2, size) };
        assert!(matches!(block_on(pool.create_thin_volume(plan)), Err(PoolError::Full { .. })), "{more}");
        assert_eq!(pool.status().families.len(), 1);
        run_maintenance(pool);
        assert_eq!(pool.status().free_bytes, free, "{more}");
    }
}

/// Endless without the rule that a family short of space does not reclaim its own slabs.
#[test]
fn thick_volume_that_grows_by_a_little_more_than_there_is_is_refused_and_stays_as_it_was() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let plan = ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(1, 100 * GRANULE) };
    let volume = block_on(pool.create_thin_volume(plan)).unwrap();
    write(&volume, 0, 7, 1).unwrap();
    run_maintenance(pool);
    let (free, bytes) = (pool.status().free_bytes, 100 * GRANULE * 4096);
    // A volume that does not fit at all allocates nothing; one that fits without its map may have enlarged the
    // map once.
    for more in [1 << 20, 40, 30, 20, 1, 2, 3] {
        let refused = block_on(pool.resize_volume(volume_id(1), bytes + free + (more << 16)));
        assert!(matches!(refused, Err(PoolError::Full { .. })), "{more} granules more: {refused:?}");
        run_maintenance(pool);
        let lost = free - pool.status().free_bytes;
        assert_eq!((pool.space().free_bytes, pool.space().bytes), (pool.status().free_bytes, pool.status().bytes));
        assert!(if more >= 20 { lost == 0 } else { lost <= 8 << 20 }, "{more} granules more took {lost} bytes");
    }
    snapshot(pool, 1, 1).unwrap();
    let clone = ClonePlan { provisioning: Provisioning::Thick, ..clone_plan(2, 1) };
    let larger = thin_plan(3, free / 4096 - 192 * GRANULE);
    block_on(pool.create_thin_volume(ThinPlan { provisioning: Provisioning::Thick, ..larger })).unwrap();
    assert!(matches!(block_on(pool.create_clone(clone)), Err(PoolError::Full { .. })));
    assert_eq!(contents(&volume), (0..7).map(|block| (block, 1)).collect());
    assert_sound(pool);
}

/// Regression: events reported a full pool, and the refusal no free space, for a volume that never existed.
#[test]
fn thick_volume_that_is_refused_alarms_nobody_and_is_told_what_is_free() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let volume = ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(1, 100 * GRANULE) };
    block_on(pool.create_thin_volume(volume)).unwrap();
    snapshot(pool, 1, 1).unwrap();
    run_maintenance(pool);
    let heard = hear_of_space(pool, 600, 950);
    let free = pool.status().free_bytes;
    let large = free + (1 << 30);
    let plan = |number| ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(number, large / 4096) };
    let refused = [
        block_on(pool.create_thin_volume(plan(2))).map(drop),
        block_on(pool.create_thin_volume(plan(3))).map(drop),
        block_on(pool.resize_volume(volume_id(1), (100 * GRANULE) * 4096 + large)),
    ];
    for refused in refused {
        let Err(PoolError::Full { free_bytes, needed_bytes }) = refused else { panic!("{refused:?}") };
        assert_eq!(free_bytes, free);
        // The map of these tests has small nodes, is therefore large, and has two copies.
        assert!((large..large + large / 4).contains(&needed_bytes), "{needed_bytes} of {large}");
    }
    assert_eq!(*heard.borrow(), []);
    // A volume that exists and crosses a threshold still raises the event.
    block_on(pool.create_thin_volume(ThinPlan { size_bytes: free / 8192 * 4096, ..plan(2) })).unwrap();
    let status = pool.status();
    assert!(
        matches!(heard.borrow()[..], [SpaceEvent::Soft { .. }]),
        "{} of {}: {heard:?}",
        status.free_bytes,
        status.bytes
    );
}

#[test]
fn volume_that_crosses_both_thresholds_in_one_step_is_told_of_once() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let heard = hear_of_space(pool, 600, 800);
    // Thresholds apply to volumes that allocate on write.
    let _thin = block_on(pool.create_thin_volume(thin_plan(9, 1000))).unwrap();
    let bytes = pool.status().bytes;
    let others = |number: u64, part: u64| VolumePlan {
        id: volume_id(number),
        name: format!("v{number}"),
        size_bytes: (bytes / 10 * part) >> 20 << 20,
        block_bytes: 512,
        stripe_unit_bytes: 0,
        created_at: 1,
    };
    block_on(pool.create_volume(others(1, 9))).unwrap();
    assert!(matches!(heard.take()[..], [SpaceEvent::Hard { .. }]));
    block_on(pool.delete_volume(volume_id(1))).unwrap();
    assert!(matches!(heard.take()[..], [SpaceEvent::Relieved { .. }]));
    block_on(pool.create_volume(others(2, 7))).unwrap();
    assert!(matches!(heard.take()[..], [SpaceEvent::Soft { .. }]));
    block_on(pool.create_volume(others(3, 2))).unwrap();
    assert!(matches!(heard.take()[..], [SpaceEvent::Hard { .. }]));
}

/// Regression: a critical event announced refused writes although all volumes had their space.
#[test]
fn thresholds_are_told_of_only_where_a_volume_takes_space_later() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let heard = hear_of_space(pool, 500, 700);
    let free = pool.status().free_bytes;
    let plan = ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(1, free / 10 * 8 / 4096) };
    block_on(pool.create_thin_volume(plan)).unwrap();
    assert!(!pool.space().allocates_on_write);
    assert_eq!(heard.take(), []);
    // A thin volume beside it may run out of space; once it is deleted, none can.
    block_on(pool.create_thin_volume(thin_plan(2, 16))).unwrap();
    assert!(matches!(heard.take()[..], [SpaceEvent::Hard { .. }]));
    block_on(pool.delete_volume(volume_id(2))).unwrap();
    assert!(matches!(heard.take()[..], [SpaceEvent::Relieved { .. }]));
}

#[test]
fn thick_volume_with_a_snapshot_takes_space_later() {
    let (_, opened) = mirror();
    let pool = &opened.pool;
    let heard = hear_of_space(pool, 100, 0);
    let bytes = pool.status().bytes;
    let plan = ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(1, bytes / 8 / 4096) };
    block_on(pool.create_thin_volume(plan)).unwrap();
    assert_eq!(heard.take(), []);
    snapshot(pool, 1, 1).unwrap();
    assert!(matches!(heard.take()[..], [SpaceEvent::Soft { .. }]));
    block_on(pool.delete_snapshot(snapshot_id(1), 0)).unwrap();
    assert!(matches!(heard.take()[..], [SpaceEvent::Relieved { .. }]));
}

/// Regression: 16 MiB were reported free and 8 needed, although slabs are allocated whole and the map needs its
/// own.
#[test]
fn what_a_thick_volume_needs_is_what_a_pool_must_have_free_for_it() {
    for granules in [1, 16, 17, 100, 400] {
        let plan = ThinPlan { provisioning: Provisioning::Thick, ..thin_plan(1, granules * GRANULE) };
        let mut needed = None;
        let mut enough = None;
        // Fewer and fewer slabs are free.
        for taken in 0.. {
            let (_, opened) = mirror();
            let pool = &opened.pool;
            let free = pool.status().free_bytes - (taken << 20);
            if free == 0 {
                break;
            }
            if taken > 0 {
                let (id, name) = (volume_id(9), "v9".to_owned());
                let (size_bytes, block_bytes, stripe_unit_bytes) = (taken << 20, 512, 0);
                let others = VolumePlan { id, name, size_bytes, block_bytes, stripe_unit_bytes, created_at: 1 };
                block_on(pool.create_volume(others)).unwrap();
            }
            match block_on(pool.create_thin_volume(plan.clone())) {
                Ok(_) => enough = Some(free),
                Err(PoolError::Full { free_bytes, needed_bytes }) => {
                    assert_eq!(free_bytes, free);
                    assert!(free < needed_bytes, "{free} of {needed_bytes}");
                    assert_eq!(*needed.get_or_insert(needed_bytes), needed_bytes);
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert_eq!(needed, enough, "{granules} granules");
    }
}

#[test]
fn refusal_for_want_of_space_is_in_units() {
    let said = |free_bytes, needed_bytes| PoolError::Full { free_bytes, needed_bytes }.to_string();
    assert_eq!(said(0, 512), "the pool has 0 bytes free, but 512 bytes are needed");
    assert_eq!(said(3 << 29, 100 << 30), "the pool has 1.5 GiB free, but 100 GiB are needed");
    assert_eq!(said((3 << 20) - 1, (3 << 20) + 4096), "the pool has 2.9 MiB free, but 3.1 MiB are needed");
}
