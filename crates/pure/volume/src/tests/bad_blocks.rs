//! Damaged and unreadable blocks of labels, marks and catalogs: no more is lost than the block itself.

use super::disk::{Image, block_on};
use super::world::{DISK_BLOCKS, World, pool_id, volume_id};
use crate::assembly::Structure;
use crate::layout::{HEAD_LABELS, OWNER_PLACES, SLOT_STARTS, tail_label};
use crate::{Contents, DiskState, VolumePlan, probe};
use block::Blocks;

/// Images of the disks of a pool whose last commit created volume 1.
fn images(disks: usize) -> Vec<Image> {
    let world = World::blank(disks);
    let opened = world.create(&[&(0..disks).collect::<Vec<_>>()]).unwrap();
    let plan = VolumePlan {
        id: volume_id(1),
        name: "last".into(),
        size_bytes: 1 << 20,
        block_bytes: 512,
        stripe_unit_bytes: 0,
        created_at: 1,
    };
    block_on(opened.pool.create_volume(plan)).unwrap();
    world.images()
}

#[derive(Clone, Copy, Debug)]
enum Bad {
    Rotten,
    Unreadable,
}

impl Bad {
    fn strike(self, world: &World, block: u64) {
        for disk in &world.disks {
            match self {
                Self::Rotten => {
                    let byte = disk.block(block)[20] ^ 1;
                    disk.scribble(block * 4096 + 20, &[byte]);
                }
                Self::Unreadable => drop(disk.unreadable.borrow_mut().insert(block)),
            }
        }
    }
}

/// Catalogs of a disk: slot and generation.
fn catalogs(world: &World, disk: usize) -> Vec<(usize, u64)> {
    let Contents::Member(member) = block_on(probe(&*world.disks[disk])).contents else { panic!("it is a member") };
    member.catalogs.iter().map(|found| (found.slot, found.generation)).collect()
}

/// Header or body of either slot damaged, on one disk or at the same place of all: the last commit is found,
/// and is in both slots afterwards.
#[test]
fn pool_that_lost_one_slot_of_every_member_has_its_last_commit() {
    for disks in [1, 2] {
        let images = images(disks);
        for (bad, block) in SLOT_STARTS.iter().flat_map(|start| {
            [Bad::Rotten, Bad::Unreadable].into_iter().flat_map(move |bad| [(bad, *start), (bad, start + 1)])
        }) {
            let world = World::of(images.clone());
            bad.strike(&world, block);
            let opened = world.open().unwrap();
            let names: Vec<String> = opened.pool.status().volumes.into_iter().map(|volume| volume.name).collect();
            assert_eq!(names, ["last"], "{bad:?} {block} of {disks}");
            let generation = opened.pool.status().generation;
            for disk in 0..disks {
                assert_eq!(catalogs(&world, disk), [(0, generation), (1, generation)], "{bad:?} {block}");
            }
        }
    }
}

/// Unreadable block of labels or marks: the disk remains a member and has intact labels afterwards.
#[test]
fn member_with_an_unreadable_block_of_its_metadata_is_current() {
    let tail = tail_label(Blocks(DISK_BLOCKS));
    let places = [HEAD_LABELS[0], HEAD_LABELS[1], tail, 1, tail - 1, OWNER_PLACES.start.0];
    for block in places {
        let world = World::of(images(2));
        Bad::Unreadable.strike(&world, block);
        let survey = world.survey();
        let standings = survey.pools[0].groups[0].positions.iter().map(|position| position.state);
        assert_eq!(standings.collect::<Vec<_>>(), [DiskState::Current; 2], "block {block}");
        let damaged = survey.pools[0].damage().count();
        let is_label = HEAD_LABELS.contains(&block) || block == tail;
        assert_eq!(damaged, if is_label { 2 } else { 0 }, "block {block}");
        drop(world.open().unwrap());
        assert_eq!(world.survey().pools[0].damage().count(), 0);
    }
}

/// Disk of unknown content, which must not pass for blank.
#[test]
fn disk_without_a_label_whose_head_cannot_be_read_is_unreadable() {
    for block in [HEAD_LABELS[0], HEAD_LABELS[1], tail_label(Blocks(DISK_BLOCKS)), 3] {
        let world = World::blank(1);
        Bad::Unreadable.strike(&world, block);
        assert!(matches!(block_on(probe(&*world.disks[0])).contents, Contents::Unreadable(_)), "block {block}");
    }
}

/// Damaged slot: damage without a crash, but after a crash possibly that of the interrupted commit.
#[test]
fn one_slot_that_is_not_whole_is_damage_where_the_pool_was_released() {
    for released in [true, false] {
        let world = World::of(images(2));
        let opened = world.open().unwrap();
        block_on(opened.pool.ownership().claim(&super::owner::node(1), 1)).unwrap();
        if released {
            block_on(opened.pool.ownership().release());
        }
        drop(opened);
        Bad::Rotten.strike(&world, SLOT_STARTS[1]);
        let survey = world.survey();
        assert_eq!(survey.pools[0].catalog.pool, pool_id());
        let structures: Vec<_> = survey.pools[0].damage().map(|damage| damage.structure).collect();
        let expected = [Structure::Catalog { copies: 1 }; 2];
        assert_eq!(structures, expected[..if released { 2 } else { 0 }]);
    }
}
