use super::*;
use crate::catalog::{GroupRecord, GroupRole, MemberRecord, PoolPhase};
use crate::tests::disk::{Event, Image, Journal, SimDisk, block_on};
use block::Blocks;
use shard::NO_SPACE_PAUSES;
use std::cell::RefCell as Cell;
use std::pin::pin;

fn store(disks: u128) -> (Store<SimDisk>, Vec<Rc<SimDisk>>, Journal) {
    let journal = Journal::default();
    let id = Uuid::from_u128;
    let member = |disk| MemberRecord { disk: id(100 + disk), state: MemberState::InService, since: 1 };
    let catalog = Catalog {
        pool: id(1),
        name: "tank".into(),
        phase: PoolPhase::Live,
        owner_epoch: 0,
        slab_bytes: 1 << 20,
        groups: vec![GroupRecord {
            id: id(50),
            role: GroupRole::Data,
            level: 1,
            clean: true,
            protected: false,
            chunk_bytes: 65536,
            member_blocks: Blocks(4096),
            slab_blocks: 256,
            slabs: 16,
            members: (0..disks).map(member).collect(),
        }],
        volumes: Vec::new(),
        families: Vec::new(),
        log: None,
        reservations: Default::default(),
        scrub: None,
        lost: Default::default(),
        copies: Default::default(),
        written: None,
    };
    let disk = |number: u128| SimDisk::new(number as usize, 16384, Image::default(), journal.clone());
    let disks: Vec<Rc<SimDisk>> = (0..disks).map(|number| Rc::new(disk(number).delayed())).collect();
    let pairs = disks.iter().zip(100..).map(|(disk, number)| (id(number), disk.clone())).collect();
    (Store::new(catalog, 5, pairs), disks, journal)
}

fn raise_epoch(store: &Store<SimDisk>) -> Change {
    let raised = store.change(|catalog| {
        catalog.owner_epoch += 1;
        Ok(())
    });
    raised.expect("the store takes changes").1
}

fn writes(journal: &Journal) -> usize {
    journal.borrow().iter().filter(|event| matches!(event, Event::Write { .. })).count()
}

#[test]
fn commit_is_shared_by_all_changes_that_wait_for_it() {
    let (store, _, journal) = store(2);
    let first = raise_epoch(&store);
    let mut leader = pin!(store.committed(first));
    assert!((&mut leader).now_or_never().is_none());
    let later: Vec<Change> = (0..8).map(|_| raise_epoch(&store)).collect();
    let all = futures_util::future::join_all(later.into_iter().map(|change| store.committed(change)));
    assert!(block_on(all).iter().all(Result::is_ok));
    assert_eq!(block_on(leader), Ok(()));
    assert_eq!(store.generation(), 7, "one commit for the first, one for the eight that came meanwhile");
    assert_eq!(writes(&journal), 8);
}

#[test]
fn commit_goes_on_when_the_one_who_asked_for_it_is_dropped() {
    let (store, _, journal) = store(2);
    let first = raise_epoch(&store);
    let mut leader = Box::pin(store.committed(first));
    assert!((&mut leader).now_or_never().is_none());
    let second = raise_epoch(&store);
    let mut waiter = pin!(store.committed(second));
    assert!((&mut waiter).now_or_never().is_none());
    drop(leader);
    assert_eq!(block_on(waiter), Ok(()));
    assert_eq!(store.generation(), 7);
    let slots: Vec<u64> = journal
        .borrow()
        .iter()
        .filter_map(|event| match event {
            Event::Write { start, .. } => Some(*start),
            Event::Flush { .. } => None,
        })
        .collect();
    let [first, second] = SLOT_STARTS;
    assert_eq!(slots, [first, first, second, second, first, first, second, second]);
}

#[test]
fn commit_that_nobody_waits_for_any_more_ends_by_itself() {
    let (store, _, journal) = store(2);
    let executor = Rc::new(shard::Executor::new(Box::new(|| {})));
    let starts = executor.clone();
    store.spawner().set(Rc::new(move |task| starts.spawn(task)));
    let change = raise_epoch(&store);
    let mut leader = Box::pin(store.committed(change));
    assert!((&mut leader).now_or_never().is_none());
    drop(leader);
    for _ in 0..100 {
        executor.run_ready();
    }
    assert_eq!((executor.task_count(), writes(&journal)), (0, 4));
    assert_eq!(store.committed(change).now_or_never(), Some(Ok(())));
}

#[test]
fn commit_that_misses_a_disk_fails_it_on_the_others_before_it_is_done() {
    let (store, disks, _) = store(3);
    let heard = Rc::new(Cell::new(Vec::new()));
    let hear = heard.clone();
    store.on_failed(Rc::new(move |disk, _| hear.borrow_mut().push(disk)));
    disks[1].dead.set(true);
    let change = raise_epoch(&store);
    assert_eq!(block_on(store.committed(change)), Ok(()));
    assert_eq!(store.generation(), 7);
    assert_eq!(*heard.borrow(), [Uuid::from_u128(101)]);
    let member = store.with_catalog(|catalog| *catalog.member(Uuid::from_u128(101)).expect("it is there"));
    assert_eq!((member.state, member.since), (MemberState::Failed, 7));
}

/// Redundancy of the groups: a mirror of three serves with two members, a stripe of two needs both.
#[test]
fn commit_that_misses_a_disk_which_its_group_cannot_spare_fails_nobody() {
    for (disks, is_lost) in [(3, false), (2, true)] {
        let (store, handles, journal) = store(disks);
        store.set_tolerance(Rc::new(|_, present| present.iter().filter(|there| **there).count() >= 2));
        let heard = Rc::new(Cell::new(0));
        let hear = heard.clone();
        store.on_failed(Rc::new(move |_, _| *hear.borrow_mut() += 1));
        handles[1].dead.set(true);
        let change = raise_epoch(&store);
        let expected = if is_lost { Err(PoolError::CatalogLost) } else { Ok(()) };
        assert_eq!(block_on(store.committed(change)), expected);
        let member = store.with_catalog(|catalog| *catalog.member(Uuid::from_u128(101)).expect("it is there"));
        assert_eq!(member.state == MemberState::InService, is_lost, "of {disks}");
        assert_eq!(*heard.borrow(), 1, "its array hears of it all the same");
        let before = writes(&journal);
        assert_eq!(store.change(|_| Ok(())).is_err(), is_lost);
        assert!(!is_lost || writes(&journal) == before);
    }
}

/// Retries: a disk that is temporarily out of space has no effect; one that stays so is marked failed after
/// five more attempts.
#[test]
fn disk_that_refuses_for_want_of_space_is_asked_again() {
    for (refusals, state) in [(5, MemberState::InService), (6, MemberState::Failed)] {
        let (store, disks, _) = store(3);
        let waited = Rc::new(Cell::new(Vec::new()));
        let wait = waited.clone();
        store.set_retry(Rc::new(move |duration| {
            wait.borrow_mut().push(duration);
            Box::pin(std::future::ready(()))
        }));
        disks[1].full.set(refusals);
        let change = raise_epoch(&store);
        assert_eq!(block_on(store.committed(change)), Ok(()));
        let member = store.with_catalog(|catalog| *catalog.member(Uuid::from_u128(101)).expect("it is there"));
        assert_eq!(member.state, state, "after {refusals} refusals");
        assert_eq!(*waited.borrow(), NO_SPACE_PAUSES);
    }
}

/// Power loss in the second attempt, while a slot is rewritten: the commit is found intact in the first slot.
#[test]
fn slot_that_has_the_commit_is_not_written_again_when_the_other_is_refused() {
    let (store, disks, journal) = store(1);
    store.set_retry(Rc::new(|_| Box::pin(std::future::ready(()))));
    let change = raise_epoch(&store);
    let mut commit = pin!(store.committed(change));
    while writes(&journal) == 0 {
        assert!((&mut commit).now_or_never().is_none());
    }
    disks[0].full.set(2);
    assert_eq!(block_on(commit), Ok(()));
    assert_eq!((disks[0].full.get(), writes(&journal)), (0, 2));
}

#[test]
fn late_error_of_a_disk_that_was_let_go_does_not_fail_the_one_in_its_place() {
    let (store, disks, journal) = store(3);
    let change = raise_epoch(&store);
    let mut commit = pin!(store.committed(change));
    assert!((&mut commit).now_or_never().is_none());
    disks[1].dead.set(true);
    let lost = Uuid::from_u128(101);
    store.detach(lost);
    store.attach(lost, Rc::new(SimDisk::new(1, 16384, Image::default(), journal)));
    assert_eq!(block_on(commit), Ok(()));
    let change = raise_epoch(&store);
    assert_eq!(block_on(store.committed(change)), Ok(()));
    let state = store.with_catalog(|catalog| catalog.member(lost).map(|member| member.state));
    assert_eq!(state, Some(MemberState::InService));
}

#[test]
fn commit_that_reaches_no_disk_is_the_last() {
    let (store, disks, _) = store(2);
    disks.iter().for_each(|disk| disk.dead.set(true));
    let change = raise_epoch(&store);
    assert_eq!(block_on(store.committed(change)), Err(PoolError::CatalogLost));
    disks.iter().for_each(|disk| disk.dead.set(false));
    assert_eq!(store.change(|_| Ok(())).map(drop), Err(PoolError::CatalogLost), "nobody knows what is on the disks");
}
