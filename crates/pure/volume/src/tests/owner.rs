//! Two nodes and one set of disks: ownership, takeover and detection of its loss.

use super::disk::{Image, PowerCut, Random, block_on};
use super::world::{Opened, TestPool, World, disk_id, labelling, volume_id};
use crate::{AssembledPool, FenceReason, MemberState, PoolError, PoolRefusal, VolumePlan};
use block::{BlockDevice, Extent};
use cluster::{Claim, Node};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uuid::Uuid;

pub(super) fn node(number: u128) -> Node {
    Node {
        id: Uuid::from_u128(500 + number),
        name: format!("node-{number}"),
        boot_instance: Uuid::from_u128(600 + number),
        machine: Some(Uuid::from_u128(800 + number)),
    }
}

/// The same node after a reboot.
fn rebooted(number: u128) -> Node {
    Node { boot_instance: Uuid::from_u128(700 + number), ..node(number) }
}

/// Pool of two mirrors, created and owned by node 1.
pub(super) fn owned() -> (World, Opened) {
    let world = World::blank(4);
    let opened = world.create(&[&[0, 1], &[2, 3]]).unwrap();
    block_on(opened.pool.ownership().claim(&node(1), 100)).unwrap();
    (world, opened)
}

pub(super) fn found(world: &World) -> AssembledPool {
    world.survey().pools.remove(0)
}

pub(super) fn beat(pool: &TestPool) -> Result<bool, PoolError> {
    let held = Cell::new(false);
    block_on(pool.ownership().beat(|| held.set(true))).map(|()| held.get())
}

/// Takeover as the engine does it, with `meanwhile` during the observation time.
pub(super) fn take(world: &World, node: &Node, told: bool, meanwhile: impl FnOnce()) -> Result<TestPool, PoolError> {
    let first = found(world);
    let earlier = if first.must_be_watched(node) {
        meanwhile();
        Some(first)
    } else {
        None
    };
    let now = found(world);
    now.admit_owner(earlier.as_ref(), node, told)?;
    let own = block_on(now.claim(|probe| world.disks[probe].clone(), node, 200))?;
    let pool = world.open().expect("it was admitted").pool;
    block_on(pool.ownership().hold(own))?;
    Ok(pool)
}

fn plan(number: u64) -> VolumePlan {
    let name = format!("v{number}");
    VolumePlan {
        id: volume_id(number),
        name,
        size_bytes: 1 << 20,
        block_bytes: 512,
        stripe_unit_bytes: 0,
        created_at: 1,
    }
}

#[test]
fn pool_that_beats_is_refused_to_another_node_in_a_sentence_that_names_the_owner() {
    let (world, opened) = owned();
    let refused = take(&world, &node(2), true, || drop(beat(&opened.pool))).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "pool \"tank\" is in use by node node-1; export it there first");
    assert_eq!(beat(&opened.pool), Ok(true), "nobody has disturbed it");
}

#[test]
fn pool_of_a_silent_node_needs_to_be_told() {
    let (world, _opened) = owned();
    let refused = take(&world, &node(2), false, || {}).map(drop).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "pool \"tank\" was in use by node node-1, which did not let go of it and is silent now; if that node is surely \
         down, import the pool with --force"
    );
    let pool = take(&world, &node(2), true, || {}).unwrap();
    assert_eq!(found(&world).owner().map(|owner| (owner.node, owner.epoch)), Some((node(2).id, 2)));
    assert_eq!(found(&world).catalog.owner_epoch, 2);
    assert_eq!(beat(&pool), Ok(true));
}

#[test]
fn pool_that_was_released_is_anybodys_at_once() {
    let (world, opened) = owned();
    block_on(opened.pool.ownership().release());
    assert!(!found(&world).must_be_watched(&node(2)));
    assert!(take(&world, &node(2), false, || unreachable!("nobody watches")).is_ok());
    assert_eq!(beat(&opened.pool), Ok(false), "who has released has nothing to say");
    assert_eq!(found(&world).owner().map(|owner| owner.node), Some(node(2).id));
}

#[test]
fn pool_of_a_node_that_starts_again_is_its_own_at_once_on_its_seat_and_behind_a_watch_after_a_boot() {
    let (world, _) = owned();
    assert!(take(&world, &node(1), false, || unreachable!("nobody watches")).is_ok());
    let watched = Cell::new(false);
    assert!(take(&world, &rebooted(1), false, || watched.set(true)).is_ok());
    assert!(watched.get());
}

#[test]
fn pool_is_refused_to_a_second_daemon_of_the_same_node() {
    let (world, opened) = owned();
    let refused = take(&world, &rebooted(1), true, || drop(beat(&opened.pool))).map(drop).unwrap_err();
    assert_eq!(refused.to_string(), "pool \"tank\" is in use by another daemon of node node-1; stop that first");
}

#[test]
fn pool_taken_over_is_found_out_at_the_next_beat() {
    let (world, opened) = owned();
    let heard = Rc::new(RefCell::new(Vec::new()));
    let hear = heard.clone();
    opened.pool.ownership().on_fenced(move |by| hear.borrow_mut().push(by.to_string()));
    let pool = take(&world, &node(2), true, || {}).unwrap();
    assert_eq!(beat(&opened.pool), Err(PoolError::Fenced(FenceReason::Claimed { node: "node-2".into() })));
    assert_eq!(block_on(opened.pool.create_volume(plan(1))).map(drop), Err(PoolError::CatalogLost));
    assert_eq!(*heard.borrow(), ["node node-2 has claimed the pool"]);
    assert_eq!(beat(&pool), Ok(true), "the new owner goes on");
    block_on(pool.create_volume(plan(1))).unwrap();
    // A release by the previous owner has no effect.
    block_on(opened.pool.ownership().release());
    assert_eq!(found(&world).owner().map(|owner| (owner.node, owner.released)), Some((node(2).id, false)));
}

#[test]
fn pool_taken_over_is_found_out_at_the_next_commit_and_the_commit_is_not_made() {
    let (world, opened) = owned();
    let heard = Rc::new(Cell::new(0));
    let hear = heard.clone();
    opened.pool.ownership().on_fenced(move |_| hear.set(hear.get() + 1));
    let _pool = take(&world, &node(2), true, || {}).unwrap();
    let before = world.images();
    assert_eq!(block_on(opened.pool.create_volume(plan(1))).map(drop), Err(PoolError::CatalogLost));
    assert_eq!(
        (heard.get(), opened.pool.ownership().fenced_by()),
        (1, Some(FenceReason::Claimed { node: "node-2".into() }))
    );
    let slot = |image: &Image| {
        let world = World::of(vec![image.clone()]);
        let slots = crate::layout::SLOT_STARTS.map(|start| block_on(world.disks[0].read(Extent::new(start, 2))));
        slots.map(|data| data.unwrap().into_view().to_vec())
    };
    assert!(before.iter().zip(world.images()).all(|(old, new)| slot(old) == slot(&new)));
}

#[test]
fn owner_who_only_seemed_silent_and_who_takes_the_pool_both_stop() {
    let (world, opened) = owned();
    let first = found(&world);
    // The owner's mark moves after the last look and before the claim.
    let now = found(&world);
    now.admit_owner(Some(&first), &node(2), true).unwrap();
    assert_eq!(beat(&opened.pool), Ok(true));
    let refused = block_on(now.claim(|probe| world.disks[probe].clone(), &node(2), 200));
    assert_eq!(refused, Err(PoolError::Contested { node: "node-1".into() }));
    assert_eq!(beat(&opened.pool), Ok(true), "nothing was written yet");
}

#[test]
fn two_nodes_that_claim_at_the_same_time_never_both_have_the_pool() {
    let mut won = [0; 3];
    for seed in 0..200 {
        let (world, opened) = owned();
        block_on(opened.pool.ownership().release());
        let now = found(&world);
        let mut random = Random(seed);
        let claim = |number| {
            let (world, now) = (&world, &now);
            async move { now.claim(|probe| world.disks[probe].clone(), &node(number), 200).await }
        };
        let mut claims = [2, 3].map(|number| Some(Box::pin(claim(number))));
        let mut got: Vec<(usize, Claim)> = Vec::new();
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        while claims.iter().any(Option::is_some) {
            let at = random.below(2) as usize;
            let polled = claims[at].as_mut().map(|claim| claim.as_mut().poll(&mut cx));
            if let Some(std::task::Poll::Ready(outcome)) = polled {
                claims[at] = None;
                got.extend(outcome.ok().map(|own| (at, own)));
            }
        }
        // Each waits one heartbeat before it writes; the one that still owns the pool then may write.
        let pools: Vec<TestPool> = got.iter().map(|_| world.open().unwrap().pool).collect();
        let held =
            pools.iter().zip(got).filter(|(pool, (_, own))| block_on(pool.ownership().hold(own.clone())).is_ok());
        let held: Vec<&TestPool> = held.map(|(pool, _)| pool).collect();
        let holders = held.iter().filter(|pool| beat(pool) == Ok(true)).count();
        won[holders] += 1;
    }
    assert_eq!(won[2], 0, "{won:?}");
    assert!(won[1] > 0, "{won:?}");
}

#[test]
fn marks_that_disagree_or_cannot_be_read_do_not_hide_the_owner() {
    let (world, opened) = owned();
    let stale = world.disks[1].image();
    beat(&opened.pool).unwrap();
    beat(&opened.pool).unwrap();
    let newest = found(&world).owner().cloned();
    // One disk is in its state before the last beats, another has lost its marks.
    let mut images = world.images();
    images[1] = stale;
    let again = World::of(images);
    again.disks[2].scribble(1 << 20, &[0x55; 16384]);
    assert_eq!(found(&again).owner().cloned(), newest);
    assert!(found(&again).must_be_watched(&node(2)));
    // A member that was given up hours ago has an older claim.
    let old = World::of(world.images());
    block_on(opened.pool.members().set_state(disk_id(0), MemberState::Failed)).unwrap();
    block_on(opened.pool.ownership().release());
    let mut images = world.images();
    images[0] = old.images()[0].clone();
    let again = World::of(images);
    let pool = take(&again, &node(2), false, || unreachable!("it was released")).unwrap();
    assert_eq!(beat(&pool), Ok(true), "what a disk says that takes no part is not asked");
}

#[test]
fn beat_is_held_only_when_every_group_has_a_member_that_says_so() {
    let (world, opened) = owned();
    world.disks[0].dead.set(true);
    assert_eq!(beat(&opened.pool), Ok(true));
    world.disks[1].dead.set(true);
    assert_eq!(beat(&opened.pool), Ok(false));
}

#[test]
fn member_that_joins_later_says_whose_the_pool_is_from_the_next_beat_on() {
    let world = World::blank(4);
    let opened = world.create(&[&[0, 1]]).unwrap();
    block_on(opened.pool.ownership().claim(&node(1), 100)).unwrap();
    let (plan, device) = world.group(1, &[2, 3]);
    block_on(opened.pool.add_group(plan, device, labelling())).unwrap();
    assert_eq!(beat(&opened.pool), Ok(true));
    assert_eq!(found(&world).marks.len(), 4);
}

#[test]
fn pool_that_never_was_claimed_is_anybodys() {
    let world = World::blank(2);
    world.create(&[&[0, 1]]).unwrap();
    assert_eq!(found(&world).owner(), None);
    assert!(take(&world, &node(2), false, || unreachable!("there is nobody to watch")).is_ok());
}

#[test]
fn refusals_of_owners_are_told_apart() {
    let (world, _) = owned();
    let now = found(&world);
    let silent = now.admit_owner(Some(&now), &node(2), false);
    assert!(matches!(silent, Err(PoolRefusal::NotReleased { .. })));
    assert!(matches!(now.admit_owner(None, &node(2), true), Err(PoolRefusal::Owned { is_us: false, .. })));
}

#[test]
fn mark_that_decays_between_two_looks_is_no_sign_of_life() {
    for rotten in 0..4 {
        let (world, opened) = owned();
        (0..3).for_each(|_| assert_eq!(beat(&opened.pool), Ok(true)));
        drop(opened);
        let place = (crate::owner::PLACES.start.0 + rotten) * 4096;
        let taken = take(&world, &node(2), true, || world.disks[0].scribble(place, &[0x55; 4096]));
        assert!(taken.is_ok(), "place {rotten}: {:?}", taken.err());
    }
}

/// At every instant the disks have the last acknowledged claim or the one in progress, and no other.
#[test]
fn owner_survives_a_power_cut_at_any_instant() {
    let world = World::blank(3);
    let pool = world.create(&[&[0, 1, 2]]).unwrap().pool;
    let mut steps: Vec<(usize, Option<(Uuid, bool)>)> = Vec::new();
    let mut step = |acknowledged| steps.push((world.journal.borrow().len(), acknowledged));
    step(None);
    block_on(pool.ownership().claim(&node(1), 1)).unwrap();
    step(Some((node(1).id, false)));
    (0..3).for_each(|_| assert_eq!(beat(&pool), Ok(true)));
    step(Some((node(1).id, false)));
    let pool = take(&world, &node(2), true, || {}).unwrap();
    step(Some((node(2).id, false)));
    (0..2).for_each(|_| assert_eq!(beat(&pool), Ok(true)));
    step(Some((node(2).id, false)));
    block_on(pool.ownership().release());
    step(Some((node(2).id, true)));
    take(&world, &node(1), false, || {}).unwrap();
    step(Some((node(1).id, false)));
    let (mut power, mut random, mut states) = (PowerCut::of(vec![Image::default(); 3]), Random(6), 0);
    for (cut, event) in world.journal.borrow().iter().enumerate() {
        power.push(event);
        let Some(at) = steps.iter().rposition(|(count, _)| *count <= cut + 1) else { continue };
        let may = [steps[at].1, steps.get(at + 1).map_or(steps[at].1, |step| step.1)];
        power.each(&mut random, true, |images| {
            states += 1;
            let world = World::of(images);
            let told = found(&world).owner().map(|owner| (owner.node, owner.released));
            assert!(may.contains(&told), "cut {cut}: {told:?}, not one of {may:?}");
            let whoever = take(&world, &node(3), true, || {});
            assert!(whoever.is_ok_and(|pool| beat(&pool) == Ok(true)), "cut {cut}: nobody can have it");
        });
    }
    assert!(states > 1000, "{states} states");
}

/// A torn or damaged copy is ignored, and the previous one is found.
#[test]
fn copies_of_the_state_are_kept_in_two_places_of_each_member_and_a_damaged_one_is_none() {
    let (world, opened) = owned();
    // Several changes go into one copy, so versions need not alternate in parity.
    for number in [2, 4, 6] {
        assert_eq!(block_on(opened.pool.ownership().store_state_copy(number, format!("state {number}").as_bytes())), 4);
    }
    let area = || {
        let (at, blocks) = (crate::STATE_COPIES_AT / 4096, crate::STATE_COPIES_BYTES as u64 / 4096);
        block_on(world.disks[2].read(Extent::new(at, blocks))).unwrap().into_view().to_vec()
    };
    let whole = area();
    let copies = crate::state_copies(&whole);
    let said: Vec<_> = copies.iter().map(|copy| (copy.number, copy.bytes.as_slice(), copy.disk)).collect();
    assert_eq!(said, [(6, b"state 6".as_slice(), disk_id(2)), (4, b"state 4", disk_id(2))]);
    for bit in (0..64 * 8).chain(4096 * 8..(4096 + 7) * 8) {
        let mut changed = whole.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let left: Vec<u64> = crate::state_copies(&changed).iter().map(|copy| copy.number).collect();
        assert_eq!(left, [4], "bit {bit}");
    }
    assert_eq!(crate::state_copies(&whole[..5000]).len(), 1);
    assert_eq!(crate::state_copies(&[]), []);
}
