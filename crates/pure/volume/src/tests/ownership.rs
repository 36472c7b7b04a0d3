//! Disks taken from a live owner: every sign of it, and what is no sign.

use super::disk::block_on;
use super::owner::{beat, found, node, owned};
use super::world::{World, disk_id};
use crate::owner::{Claims, PLACES, write_mark};
use crate::{FenceReason, Pool, PoolError};
use cluster::Claim;
use uuid::Uuid;

/// Creates a pool "other" on all disks of `world`, with force, as another node would.
fn take_by_force(world: &World) {
    let (mut plan, groups) = world.plan(&[&[0, 1], &[2, 3]]);
    (plan.id, plan.name, plan.force) = (Uuid::from_u128(2), "other".into(), true);
    let pool = block_on(Pool::create(plan, groups)).unwrap();
    block_on(pool.ownership().claim(&node(2), 200)).unwrap();
}

fn writes(world: &World) -> usize {
    world.journal.borrow().len()
}

#[test]
fn owner_whose_disks_become_another_pools_writes_nothing_more_to_them() {
    let (world, opened) = owned();
    assert_eq!(beat(&opened.pool), Ok(true));
    take_by_force(&world);
    let before = writes(&world);
    let Err(PoolError::Fenced(loss)) = beat(&opened.pool) else { panic!("it goes on") };
    assert!(matches!(&loss, FenceReason::OtherLabel { pool_name, .. } if pool_name == "other"), "{loss}");
    assert_eq!(opened.pool.ownership().fenced_by(), Some(loss));
    block_on(opened.pool.ownership().release());
    assert!(beat(&opened.pool).is_err());
    assert_eq!(writes(&world), before, "the new owner's disks are left alone");
}

#[test]
fn owner_whose_disks_become_another_pools_finds_that_out_before_a_commit_and_before_it_releases() {
    let (world, opened) = owned();
    take_by_force(&world);
    let before = writes(&world);
    let added = block_on(opened.pool.members().set_state(disk_id(0), crate::MemberState::Failed));
    assert_eq!(added, Err(PoolError::CatalogLost));
    assert_eq!(writes(&world), before);
    let (world, opened) = owned();
    take_by_force(&world);
    let before = writes(&world);
    block_on(opened.pool.ownership().release());
    assert!(opened.pool.ownership().fenced_by().is_some());
    assert_eq!(writes(&world), before);
}

#[test]
fn owner_is_fenced_by_one_mark_of_another_pool() {
    let (world, opened) = owned();
    let other = Claim { node: node(2).id, name: "node-2".into(), ..found(&world).owner().unwrap().clone() };
    block_on(write_mark(&*world.disks[3], Uuid::from_u128(2), disk_id(3), &other)).unwrap();
    let lost = FenceReason::OtherMark { disk: disk_id(3), node: "node-2".into() };
    assert_eq!(beat(&opened.pool), Err(PoolError::Fenced(lost)));
}

#[test]
fn owner_is_fenced_when_its_last_mark_is_missing_on_all_members_and_writes_it_anew_where_some_have_it() {
    let zeros = vec![0; 4 << 12];
    for lost in 0..16_usize {
        let (world, opened) = owned();
        assert_eq!(beat(&opened.pool), Ok(true));
        let before = writes(&world);
        let places = PLACES.start.0 * 4096;
        let lost: Vec<usize> = (0..4).filter(|disk| lost >> disk & 1 == 1).collect();
        lost.iter().for_each(|&disk| world.disks[disk].scribble(places, &zeros));
        if lost.len() == 4 {
            assert_eq!(beat(&opened.pool), Err(PoolError::Fenced(FenceReason::MarkMissing)));
            assert_eq!(writes(&world), before);
        } else {
            assert_eq!(beat(&opened.pool), Ok(true), "{lost:?}");
            assert_eq!(found(&world).marks.len(), 4, "{lost:?}: written anew");
            let mut mended = opened.pool.ownership().take_repaired_marks();
            mended.sort();
            assert_eq!(mended, lost.iter().map(|&disk| disk_id(disk)).collect::<Vec<_>>(), "and told");
            assert_eq!(
                (beat(&opened.pool), opened.pool.ownership().take_repaired_marks()),
                (Ok(true), vec![]),
                "they are whole"
            );
        }
    }
}

#[test]
fn owner_goes_on_when_its_last_mark_decays_on_all_members() {
    let (world, opened) = owned();
    (0..3).for_each(|_| assert_eq!(beat(&opened.pool), Ok(true)));
    let last = found(&world).owner().unwrap().clone();
    let place = PLACES.start.0 + last.epoch % 2 * 2 + last.beat % 2;
    world.disks.iter().for_each(|disk| disk.scribble(place * 4096, &[0x55; 4096]));
    assert_eq!(beat(&opened.pool), Ok(true), "the mark before it is whole");
    assert_eq!(opened.pool.ownership().take_repaired_marks().len(), 4, "each is told");
}

#[test]
fn member_that_loses_each_of_its_marks_is_told_once() {
    let (world, opened) = owned();
    for round in 0..4 {
        assert_eq!(beat(&opened.pool), Ok(true));
        assert_eq!(opened.pool.ownership().take_repaired_marks().len(), usize::from(round == 1));
        world.disks[1].scribble(PLACES.start.0 * 4096, &[0x55; 4 << 12]);
    }
}

#[test]
fn owner_that_cannot_read_or_write_a_member_goes_on_with_the_others() {
    let (world, opened) = owned();
    assert_eq!(beat(&opened.pool), Ok(true));
    world.disks[1].dead.set(true);
    world.disks[2].scribble(PLACES.start.0 * 4096, &[0x55; 4 << 12]);
    assert_eq!(beat(&opened.pool), Ok(true));
    world.disks[1].dead.set(false);
    assert_eq!(beat(&opened.pool), Ok(true));
}

#[test]
fn scrub_does_not_write_over_the_label_of_another_pool() {
    let (world, opened) = owned();
    take_by_force(&world);
    let before = writes(&world);
    let _ = block_on(opened.pool.members().scrub(300, "blockyard"));
    assert_eq!(writes(&world), before);
}

#[test]
fn claims_of_a_living_owner_move_and_those_of_a_silent_or_released_one_do_not() {
    let (world, opened) = owned();
    let look = || block_on(Claims::on(&world.disks[1], None));
    let first = look();
    assert!(first.must_be_watched());
    assert_eq!(look().moved_since(&first), None);
    assert_eq!(beat(&opened.pool), Ok(true));
    assert_eq!(look().moved_since(&first).map(|mark| mark.claim.name.clone()).as_deref(), Some("node-1"));
    let own = block_on(Claims::on(&world.disks[1], Some(opened.pool.id())));
    assert!(!own.must_be_watched(), "a pool does not wait for itself");
    block_on(opened.pool.ownership().release());
    let released = look();
    assert!(!released.must_be_watched());
    assert_eq!(released.moved_since(&first), None);
}

#[test]
fn disk_that_is_wiped_has_no_mark_and_a_claim_clears_those_of_other_pools() {
    let (world, _opened) = owned();
    let _ = block_on(crate::wipe(&world.disks[0])).unwrap();
    assert_eq!(block_on(Claims::on(&world.disks[0], None)), Claims::default());
    // A mark that a stalled node writes after its disks were taken is ignored once the pool is claimed again.
    let (world, opened) = owned();
    block_on(opened.pool.ownership().release());
    let stale = Claim { node: node(2).id, ..found(&world).owner().unwrap().clone() };
    block_on(write_mark(&*world.disks[1], Uuid::from_u128(2), disk_id(1), &stale)).unwrap();
    let now = found(&world);
    let own = block_on(now.claim(|probe| world.disks[probe].clone(), &node(1), 200)).unwrap();
    let pool = world.open().unwrap().pool;
    block_on(pool.ownership().hold(own)).unwrap();
    assert_eq!(beat(&pool), Ok(true));
}
