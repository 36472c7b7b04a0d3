//! Labels and catalogs that are damaged while their pool is open.

use super::disk::block_on;
use super::world::{DISK_BLOCKS, World, disk_id, volume_id};
use crate::{DamagedMetadata, VolumePlan};

#[test]
fn members_whose_label_or_catalog_decayed_unseen_get_it_back_by_a_scrub() {
    const MIB: u64 = 1 << 20;
    let rot = [0xa5; 8192];
    // First label and both catalogs; all labels; one catalog; nothing.
    let cases = [vec![0, 2 * MIB, 6 * MIB], vec![0, MIB / 2, DISK_BLOCKS * 4096 - 4096], vec![6 * MIB], vec![]];
    for (case, places) in cases.iter().enumerate() {
        let world = World::blank(2);
        let opened = world.create(&[&[0, 1]]).unwrap();
        let plan = VolumePlan {
            id: volume_id(1),
            name: "v1".into(),
            size_bytes: 4 * MIB,
            block_bytes: 512,
            stripe_unit_bytes: 0,
            created_at: 1,
        };
        block_on(opened.pool.create_volume(plan)).unwrap();
        for &at in places {
            let bytes = if at > 8 * MIB { &rot[..4096] } else { &rot[..] };
            world.disks[1].scribble(at, bytes);
        }
        let decayed = |label, catalog| vec![(disk_id(1), DamagedMetadata { label, catalog })];
        let expected = [decayed(true, true), decayed(true, true), decayed(false, true), vec![]][case].clone();
        let scrub = || block_on(opened.pool.members().scrub(1_700_000_001, "blockyard 0.1.0")).unwrap();
        assert_eq!(scrub(), expected, "case {case}");
        assert_eq!(scrub(), vec![], "case {case}: it was written anew");
        // The disk alone carries the pool.
        let alone = World::of(vec![world.images().pop().unwrap()]);
        let found = alone.survey();
        assert_eq!(found.pools.len(), 1, "case {case}: {found:?}");
        assert_eq!(found.pools[0].catalog.volumes.len(), 1, "case {case}");
    }
}

#[test]
fn scrub_does_not_write_over_what_somebody_has_put_on_a_member() {
    let world = World::blank(2);
    let opened = world.create(&[&[0, 1]]).unwrap();
    let mut ext4 = [0; 2048];
    ext4[1024 + 0x38..1024 + 0x3a].copy_from_slice(&0xef53_u16.to_le_bytes());
    world.disks[1].scribble(0, &ext4);
    let before = world.journal.borrow().len();
    assert_eq!(block_on(opened.pool.members().scrub(0, "")).unwrap(), vec![]);
    assert_eq!(world.journal.borrow().len(), before);
}
