//! Exchange of a member for a copy of it.

use super::disk::{Event, PowerCut, Random, block_on};
use super::world::{Opened, World, disk_id, labelling, members};
use crate::{MemberState, NewDisk, PoolError};
use futures_util::FutureExt;
use std::cell::Cell;
use std::rc::Rc;
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

/// The member beside the one that is exchanged misses the commit before: the old member has it, and the pool serves on.
#[test]
fn member_is_exchanged_beside_one_that_misses_the_commit_before() {
    let world = World::blank(3);
    let opened = world.create(&[&[0, 1]]).unwrap();
    world.disks[1].dead.set(true);
    exchange(&world, &opened, 0, 2).unwrap();
    let expected = [(COPY, MemberState::InService), (disk_id(1), MemberState::Failed)];
    assert_eq!(members(&opened.pool), expected);
    let again = World::of(world.images());
    assert_eq!(members(&again.open().unwrap().pool), expected);
}

/// A member that cannot take a commit is not lost for that while it is exchanged.
#[test]
fn member_that_misses_the_commit_before_is_exchanged() {
    let world = World::blank(3);
    let opened = world.create(&[&[0, 1]]).unwrap();
    let heard = Rc::new(Cell::new(0));
    let hear = heard.clone();
    opened.pool.members().on_failed(move |_, _| hear.set(hear.get() + 1));
    world.disks[0].dead.set(true);
    exchange(&world, &opened, 0, 2).unwrap();
    assert_eq!(members(&opened.pool), [(COPY, MemberState::InService), (disk_id(1), MemberState::InService)]);
    assert_eq!(heard.get(), 0, "its array goes on with it until the copy has the place");
}

/// The copy is given up where it misses the commit before, and the old member keeps its place.
#[test]
fn copy_that_misses_the_commit_before_is_given_up() {
    let world = World::blank(3);
    let opened = world.create(&[&[0, 1]]).unwrap();
    let mut exchanged = Box::pin(async {
        let disk = NewDisk { id: COPY, device: world.disks[2].clone() };
        opened.pool.members().exchange(disk_id(0), disk, labelling()).await
    });
    let begun = world.journal.borrow().len();
    let labelled = |event: &Event| matches!(event, Event::Write { disk: 0 | 1, .. });
    while !world.journal.borrow()[begun..].iter().any(labelled) {
        assert!(exchanged.as_mut().now_or_never().is_none());
    }
    world.disks[2].dead.set(true);
    assert_eq!(block_on(exchanged), Err(PoolError::NotReached(COPY)));
    assert_eq!(members(&opened.pool), [(disk_id(0), MemberState::InService), (disk_id(1), MemberState::InService)]);
    assert!(block_on(opened.pool.members().set_state(disk_id(1), MemberState::Failed)).is_ok());
}

/// Regression: a new disk that missed the commit that names it was failed as the member, and a pool without redundancy
/// stopped.
#[test]
fn copy_that_misses_the_commit_that_names_it_costs_the_copy_alone() {
    for groups in [&[0, 1][..], &[0]] {
        let world = World::blank(3);
        drop(world.create(&[groups]).unwrap());
        let begin = world.images();
        let world = World::of(begin.clone());
        let opened = world.open().unwrap();
        let before = members(&opened.pool);
        let mut exchanged = Box::pin(async {
            let disk = NewDisk { id: COPY, device: world.disks[2].clone() };
            opened.pool.members().exchange(disk_id(0), disk, labelling()).await
        });
        while members(&opened.pool)[0].0 != COPY {
            assert!(exchanged.as_mut().now_or_never().is_none(), "it ends after the commit that names the copy");
        }
        world.disks[2].dead.set(true);
        assert_eq!(block_on(exchanged), Err(PoolError::NotReached(COPY)));
        assert_eq!(members(&opened.pool), before);
        exchange(&world, &opened, 0, 2).expect_err("the disk is dead");
        assert_eq!(members(&opened.pool), before, "the pool accepts changes");
        let mut power = PowerCut::of(begin);
        for event in world.journal.borrow().iter() {
            power.push(event);
            power.each(&mut Random(3), true, |images| {
                let opened = World::of(images).open().expect("it opens");
                assert_eq!(members(&opened.pool)[0].1, MemberState::InService);
            });
        }
    }
}

/// As above, with a member that misses every commit: it is beside the exchange, or exchanged.
#[test]
fn power_cut_amid_an_exchange_with_a_member_that_misses_commits_costs_that_member_alone() {
    for sick in [0, 1] {
        let world = World::blank(4);
        drop(world.create(&[&[0, 1, 2]]).unwrap());
        let begin = world.images();
        let world = World::of(begin.clone());
        let opened = world.open().unwrap();
        world.disks[sick].dead.set(true);
        exchange(&world, &opened, 0, 3).unwrap();
        let (mut power, mut random, mut seen) = (PowerCut::of(begin), Random(3), [false; 2]);
        for event in world.journal.borrow().iter() {
            power.push(event);
            power.each(&mut random, true, |images| {
                let opened = World::of(images).open().expect("it opens");
                let now = members(&opened.pool);
                let out: Vec<_> = now.iter().filter(|(_, state)| *state != MemberState::InService).collect();
                assert!(out.iter().all(|(id, _)| *id == disk_id(sick)), "{out:?}");
                seen[usize::from(now[0].0 == COPY)] = true;
            });
        }
        assert_eq!(seen, [true, true]);
    }
}
