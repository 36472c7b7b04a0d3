//! Stored reservations: kept as long as their volume exists, and bounded.

use super::disk::block_on;
use super::world::{Opened, World, volume_id};
use crate::catalog::RESERVATIONS_BYTES_MAX;
use crate::{PoolError, Provisioning, ThinPlan, VolumePlan};

/// Pool with a volume of each kind: 1 segmented, 2 thin.
fn pool() -> (World, Opened) {
    let world = World::blank(2);
    let opened = world.create(&[&[0, 1]]).expect("the disks are blank");
    make_segments(&opened);
    let plan = ThinPlan {
        id: volume_id(2),
        name: "mapped".into(),
        size_bytes: 1 << 20,
        block_bytes: 4096,
        granule_bytes: 0,
        provisioning: Provisioning::Thin,
        zero_detection: false,
        encryption: None,
        created_at: 1,
    };
    block_on(opened.pool.create_thin_volume(plan)).expect("there is room");
    (world, opened)
}

fn make_segments(opened: &Opened) {
    let (id, name) = (volume_id(1), "segments".into());
    let plan = VolumePlan { id, name, size_bytes: 1 << 20, block_bytes: 512, stripe_unit_bytes: 0, created_at: 1 };
    block_on(opened.pool.create_volume(plan)).expect("there is room");
}

fn keep(opened: &Opened, volume: u64, kept: Vec<u8>) -> Result<(), PoolError> {
    block_on(opened.pool.store_reservations(volume_id(volume), kept))
}

#[test]
fn reservations_are_found_again_and_go_with_their_volume() {
    let (world, opened) = pool();
    for volume in [1, 2] {
        assert_eq!(opened.pool.reservations(volume_id(volume)), []);
        keep(&opened, volume, vec![volume as u8; 100]).unwrap();
    }
    assert_eq!(keep(&opened, 3, vec![3]), Err(PoolError::VolumeUnknown(volume_id(3))));
    let again = world.open().expect("the disks are whole");
    for volume in [1, 2] {
        assert_eq!(again.pool.reservations(volume_id(volume)), vec![volume as u8; 100]);
        block_on(again.pool.delete_volume(volume_id(volume))).unwrap();
        assert_eq!(keep(&again, volume, vec![1]), Err(PoolError::VolumeUnknown(volume_id(volume))));
    }
    make_segments(&again);
    assert_eq!(again.pool.reservations(volume_id(1)), [], "another volume of the same identity");
}

#[test]
fn reservations_are_bounded_over_all_volumes_and_less_always_fits() {
    let (world, opened) = pool();
    keep(&opened, 1, vec![1; RESERVATIONS_BYTES_MAX - 10]).unwrap();
    keep(&opened, 2, vec![2; 10]).unwrap();
    assert_eq!(keep(&opened, 2, vec![3; 11]), Err(PoolError::CatalogFull));
    assert_eq!(opened.pool.reservations(volume_id(2)), [2; 10], "nothing has changed");
    keep(&opened, 2, vec![4; 9]).unwrap();
    keep(&opened, 1, Vec::new()).unwrap();
    keep(&opened, 2, vec![5; 11]).unwrap();
    let again = world.open().expect("the disks are whole");
    assert_eq!(again.pool.reservations(volume_id(2)), [5; 11]);
    assert_eq!(again.pool.reservations(volume_id(1)), []);
}
