use super::*;
use crate::catalog::{GroupRole, MemberRecord, MemberState, PoolPhase, SLABS_MAX, VOLUME_BYTES_MAX};
use block::Blocks;
use proptest::prelude::*;
use uuid::Uuid;

fn groups(shapes: &[(u32, u32)]) -> Vec<GroupRecord> {
    let member = |disk| MemberRecord { disk: Uuid::from_u128(disk), state: MemberState::InService, since: 1 };
    let group = |(&(slab_blocks, slabs), number): (&(u32, u32), u128)| GroupRecord {
        id: Uuid::from_u128(50 + number),
        role: GroupRole::Data,
        level: 5,
        clean: true,
        protected: false,
        chunk_bytes: 65536,
        member_blocks: Blocks(u64::from(slab_blocks) * u64::from(slabs)),
        slab_blocks,
        slabs,
        members: vec![member(100 + number)],
    };
    shapes.iter().zip(0..).map(group).collect()
}

fn catalog(groups: Vec<GroupRecord>) -> Catalog {
    Catalog {
        pool: Uuid::from_u128(1),
        name: "tank".into(),
        phase: PoolPhase::Live,
        owner_epoch: 0,
        slab_bytes: 1 << 20,
        groups,
        volumes: Vec::new(),
        families: Vec::new(),
        log: None,
        reservations: Default::default(),
        scrub: None,
        lost: Default::default(),
        copies: Default::default(),
        written: None,
    }
}

fn volume(number: u128, blocks: u64, segments: Vec<Segment>) -> VolumeRecord {
    VolumeRecord {
        id: Uuid::from_u128(1000 + number),
        name: format!("v{number}"),
        size_bytes: blocks * 4096,
        block_bytes: 4096,
        stripe_unit_bytes: 0,
        created_at: 0,
        segments,
    }
}

#[test]
fn space_rows_go_over_all_groups_and_over_fewer_when_some_are_full() {
    let groups = groups(&[(256, 10), (256, 4)]);
    let units = Units::choose(0, &[1 << 16, 1 << 16], &groups).unwrap();
    let mut space = SpaceMap::of(&catalog(groups.clone()));
    let segments = space.take(&groups, &units, 10 * 256).unwrap();
    let shape: Vec<_> = segments.iter().map(|segment| (segment.rows, segment.columns.len(), segment.rounds)).collect();
    assert_eq!(shape, [(4, 2, 16), (2, 1, 1)]);
    assert_eq!(space.free_slabs().collect::<Vec<_>>(), [4, 0]);
}

#[test]
fn space_that_is_not_there_is_refused_with_what_is_free() {
    let groups = groups(&[(256, 3)]);
    let units = Units::choose(0, &[1 << 16], &groups).unwrap();
    let refused = SpaceMap::of(&catalog(groups.clone())).take(&groups, &units, 3 * 256 + 1);
    assert_eq!(refused, Err(PoolError::Full { free_bytes: 3 << 20, needed_bytes: (3 << 20) + 4096 }));
}

#[test]
fn space_units_are_whole_stripes_of_each_group() {
    let groups = groups(&[(4128, 9), (4096, 9)]);
    let stripes = [192 << 10, 256 << 10];
    assert_eq!(Units::choose(0, &stripes, &groups).unwrap().0, [48, 64]);
    assert_eq!(Units::choose(0, &[4096, 4096], &groups).unwrap().0, [16, 16], "a mirror's block is no turn");
    let wider = [256 << 10, 2 << 20];
    assert_eq!(Units::choose(0, &wider, &groups).unwrap().0, [48, 512], "a member more, and still no rest in a slab");
    assert_eq!(Units::choose(512 << 10, &stripes, &groups).unwrap().0, [128, 128]);
    assert_eq!(Units::choose(1000, &stripes, &groups).unwrap_err(), PoolError::StripeUnit(1000));
    assert_eq!(Units::choose(32 << 20, &stripes, &groups).unwrap_err(), PoolError::StripeUnit(32 << 20));
}

#[test]
fn space_of_a_volume_that_grows_in_place_stays_one_segment() {
    let mut catalog = catalog(groups(&[(256, 100), (256, 100)]));
    let units = Units::choose(0, &[1 << 16, 1 << 16], &catalog.groups).unwrap();
    let mut record = volume(1, 512, Vec::new());
    for _ in 0..5 {
        let segments = SpaceMap::of(&catalog).take(&catalog.groups, &units, 512).unwrap();
        record.append(segments);
        catalog.volumes = vec![record.clone()];
        assert_eq!(catalog.check(), Ok(()));
    }
    assert_eq!((record.segments.len(), record.segments[0].rows), (1, 5));
}

#[test]
fn space_of_the_largest_volume_is_one_segment() {
    let slab_blocks = 4096;
    let groups = groups(&[(slab_blocks, SLABS_MAX)]);
    let units = Units::choose(0, &[1 << 20], &groups).unwrap();
    let segments = SpaceMap::of(&catalog(groups.clone())).take(&groups, &units, VOLUME_BYTES_MAX / 4096).unwrap();
    assert_eq!((segments.len(), segments[0].rows), (1, SLABS_MAX));
    let mut catalog = catalog(groups);
    catalog.volumes.push(volume(1, VOLUME_BYTES_MAX / 4096, segments));
    assert_eq!(catalog.check(), Ok(()));
    assert!(catalog.emitted_bytes_max() < 1 << 20, "64 TiB take {} bytes", catalog.emitted_bytes_max());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn space_is_never_given_twice_and_comes_back(
        steps in prop::collection::vec((any::<bool>(), 1u64..3000), 1..40),
    ) {
        let mut catalog = catalog(groups(&[(256, 20), (264, 9), (256, 13)]));
        let units = Units::choose(0, &[1 << 16, 1 << 15, 1 << 17], &catalog.groups).unwrap();
        for (number, (delete, blocks)) in steps.into_iter().enumerate() {
            if delete && !catalog.volumes.is_empty() {
                let at = blocks as usize % catalog.volumes.len();
                catalog.volumes.remove(at);
            } else if let Ok(segments) = SpaceMap::of(&catalog).take(&catalog.groups, &units, blocks) {
                catalog.volumes.push(volume(number as u128, blocks, segments));
            }
            prop_assert_eq!(catalog.check(), Ok(()));
            let used: u32 = catalog
                .volumes
                .iter()
                .flat_map(|volume| &volume.segments)
                .map(|segment| segment.rows * segment.columns.len() as u32)
                .sum();
            prop_assert_eq!(used + SpaceMap::of(&catalog).free_slabs().sum::<u32>(), 42);
        }
    }
}
