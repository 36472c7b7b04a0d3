//! Exchange of a member for a copy of it.

use super::disk::{PowerCut, Random, block_on};
use super::world::{Opened, World, disk_id, labelling, members};
use crate::{MemberState, NewDisk, PoolError};
use uuid::Uuid;

const COPY: Uuid = Uuid::from_u128(77);

fn exchange(world: &World, opened: &Opened, old: usize, new: usize) -> Result<(), PoolError> {
    let disk = NewDisk { id: COPY, device: world.disks[new].clone() };
    block_on(opened.pool.members().exchange(disk_id(old), disk, labelling()))
}

#[test]
fn exchanged_member_is_in_service_under_its_own_identity_and_the_old_one_is_none() {
    let world = World::blank(3);
    let opened = world.create(&[&[0, 1]]).unwrap();
    assert!(exchange(&world, &opened, 0, 1).is_err(), "a member is nobody's copy");
    exchange(&world, &opened, 0, 2).unwrap();
    let expected = [(COPY, MemberState::InService), (disk_id(1), MemberState::InService)];
    assert_eq!(members(&opened.pool), expected);
    assert_eq!(exchange(&world, &opened, 0, 2), Err(PoolError::MemberUnknown(disk_id(0))));
    let again = World::of(world.images());
    assert_eq!(members(&again.open().unwrap().pool), expected);
}

/// Regression: no member took the commit before the exchange, and the pool stopped accepting changes.
#[test]
fn only_member_that_serves_is_exchanged() {
    for groups in [&[0][..], &[0, 2]] {
        let world = World::blank(3);
        let opened = world.create(&[groups]).unwrap();
        if groups.len() > 1 {
            block_on(opened.pool.members().set_state(disk_id(2), MemberState::Failed)).unwrap();
        }
        exchange(&world, &opened, 0, 1).unwrap();
        assert_eq!(members(&opened.pool)[0], (COPY, MemberState::InService));
        let again = World::of(world.images());
        assert_eq!(members(&again.open().unwrap().pool)[0], (COPY, MemberState::InService));
    }
}

#[test]
fn member_that_does_not_serve_is_not_exchanged() {
    let world = World::blank(3);
    let opened = world.create(&[&[0, 1]]).unwrap();
    block_on(opened.pool.members().set_state(disk_id(0), MemberState::Failed)).unwrap();
    assert!(matches!(exchange(&world, &opened, 0, 2), Err(PoolError::MemberState { .. })));
}

/// Power loss at any instant: the old disk or the new one is in the position, and the pool is intact.
#[test]
fn power_cut_amid_an_exchange_leaves_one_of_the_two_in_the_place() {
    let world = World::blank(3);
    let opened = world.create(&[&[0, 1]]).unwrap();
    drop(opened);
    let begin = world.images();
    let world = World::of(begin.clone());
    let opened = world.open().unwrap();
    exchange(&world, &opened, 0, 2).unwrap();
    let (mut power, mut random, mut seen) = (PowerCut::of(begin), Random(3), [false; 2]);
    for event in world.journal.borrow().iter() {
        power.push(event);
        power.each(&mut random, true, |images| {
            let opened = World::of(images).open().expect("it opens");
            let (id, state) = members(&opened.pool)[0];
            assert_eq!(state, MemberState::InService);
            seen[usize::from(id == COPY)] = true;
        });
    }
    assert_eq!(seen, [true, true]);
}
