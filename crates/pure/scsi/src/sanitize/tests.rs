use super::*;
use crate::rig::*;
use crate::{LogicalUnit, NexusId, Options, Outcome, PersistentState, Status, TaskManagement, TaskTag};
use block::IoErrorKind;
use futures_util::FutureExt;
use std::pin::pin;

struct Fixture {
    unit: LogicalUnit<Bench>,
    owner: Rc<Owner>,
    shelf: Rc<MemoryStore>,
}

fn ward() -> Fixture {
    ward_over(unit())
}

fn ward_over(unit: LogicalUnit<Bench>) -> Fixture {
    let (owner, shelf) = (Rc::new(Owner::default()), Rc::new(MemoryStore::default()));
    owner.admits.set(true);
    unit.device().bytes.borrow_mut().fill(b'x');
    Fixture { unit: unit.with_state_store(shelf.clone()).with_sanitizer(owner.clone()), owner, shelf }
}

const IMMED: u8 = 0x80;
const AUSE: u8 = 0x20;
const OVERWRITE: u8 = 0x01;
const BLOCK_ERASE: u8 = 0x02;
const CRYPTOGRAPHIC_ERASE: u8 = 0x03;
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const TEST_UNIT_READY: [u8; 6] = [0; 6];
const REQUEST_SENSE: [u8; 6] = [3, 0, 0, 0, 18, 0];

fn cdb(bits: u8, list_bytes: usize) -> [u8; 10] {
    let [high, low] = (list_bytes as u16).to_be_bytes();
    [0x48, bits, 0, 0, 0, 0, 0, high, low, 0]
}

fn list(bits: u8, pattern: &[u8]) -> Vec<u8> {
    [&[bits, 0], &(pattern.len() as u16).to_be_bytes()[..], pattern].concat()
}

/// Issues SANITIZE, OVERWRITE with IMMED.
fn overwrite(ward: &Fixture, bits: u8, pattern: &[u8]) -> Outcome {
    let list = list(bits, pattern);
    run(&ward.unit, HOST, &cdb(IMMED | OVERWRITE, list.len()), &list)
}

/// Returns the unit after power loss: a new one, restored from the stored state and the content of the disk.
fn restarted(ward: &Fixture) -> Fixture {
    let again = ward_over(unit());
    *again.unit.device().bytes.borrow_mut() = ward.unit.device().bytes.borrow().clone();
    again.unit.restore(PersistentState::parse(&ward.shelf.kept.borrow()).expect("it was kept"));
    again
}

#[test]
fn sanitize_overwrites_with_the_pattern_that_every_block_repeats() {
    for pattern in [&[0xAA; BLOCK][..], &[1, 2, 3], &[7]] {
        let ward = ward();
        good(overwrite(&ward, 1, pattern));
        assert_eq!(ward.owner.begun.get(), 1);
        now(ward.unit.carry_out_sanitize());
        let block: Vec<u8> = pattern.iter().copied().cycle().take(BLOCK).collect();
        assert!(blocks(&ward.unit, 0, BLOCKS).chunks(BLOCK).all(|found| found == block));
        assert!(ward.shelf.kept.borrow().is_empty());
        good(run(&ward.unit, HOST, &READ, &[]));
    }
}

#[test]
fn sanitize_inverts_the_pattern_between_passes_and_ends_with_it() {
    let ward = ward();
    good(overwrite(&ward, 0x80 | 2, &[0x0F]));
    // Each pass is one write here, because the disk is shorter than a piece. A flush precedes each store of the
    // progress.
    ops(&ward.unit);
    ward.unit.device().permits.set(2);
    let mut work = Box::pin(ward.unit.carry_out_sanitize());
    assert!(work.as_mut().now_or_never().is_none());
    assert!(blocks(&ward.unit, 0, BLOCKS).iter().all(|&byte| byte == 0xF0));
    ward.unit.device().permits.set(usize::MAX);
    now(work);
    assert!(blocks(&ward.unit, 0, BLOCKS).iter().all(|&byte| byte == 0x0F));
    assert_eq!(ops(&ward.unit), [Op::Write(0, BLOCKS), Op::Flush, Op::Write(0, BLOCKS), Op::Flush]);
}

#[test]
fn sanitize_with_a_list_that_lies_is_refused_and_begins_nothing() {
    let ward = ward();
    let block = vec![0_u8; BLOCK];
    for bytes in [0, 1, 3, 4, BLOCK + 5] {
        let list = vec![1; bytes];
        assert_eq!(pointed(&ward.unit, &cdb(OVERWRITE, bytes), &list), (7, None));
    }
    let sent = |list: &[u8]| pointed(&ward.unit, &cdb(OVERWRITE, list.len()), list);
    assert_eq!(sent(&list(0, &block)), (0, Some(4)), "no pass");
    assert_eq!(sent(&list(0x21, &block)), (0, Some(6)), "TEST");
    assert_eq!(sent(&[&[1, 0, 0, 0], &block[..]].concat()), (2, None), "no pattern");
    assert_eq!(sent(&[&[1, 0, 2, 1], &block[..]].concat()), (2, None), "longer than a block");
    assert_eq!(sent(&[1, 0, 0, 5, 1, 2, 3, 4]), (2, None), "longer than the list");
    assert_eq!(pointed(&ward.unit, &cdb(0x1F, 8), &[0; 8]), (8, Some(3)));
    for action in [0x00, 0x03, 0x04, 0x1E] {
        assert_eq!(pointed(&ward.unit, &cdb(action, 0), &[]), (1, Some(4)));
    }
    assert_eq!(pointed(&ward.unit, &cdb(0x40 | OVERWRITE, 5), &[1, 0, 0, 1, 0]), (1, Some(6)), "ZNR: no zones");
    assert_eq!(pointed(&ward.unit, &cdb(BLOCK_ERASE, 0), &[]), (1, Some(4)), "nothing can be unmapped");
    assert_eq!((ward.owner.begun.get(), ward.shelf.times.get()), (0, 0));
    assert_eq!(blocks(&ward.unit, 0, 1), [b'x'; BLOCK]);
}

#[test]
fn sanitize_is_known_where_the_unit_has_one_who_does_it() {
    let unit = LogicalUnit::new(Bench::new(BLOCK as u32, BLOCKS), identity(), Options::default());
    unit.attach(HOST, initiator(1), port(1));
    assert_eq!(refused(&unit, &TEST_UNIT_READY, &[]).0, 6);
    assert_eq!(refused(&unit, &cdb(OVERWRITE, 5), &[1, 0, 0, 1, 0]), (5, 0x20, 0));
    let supported =
        |unit: &LogicalUnit<Bench>, action| ask(unit, &[0xA3, 0x0C, 2, 0x48, 0, action, 0, 0, 0, 64, 0, 0])[1] & 7;
    let thin = ward_over(thin_unit(8, 64));
    for (unit, expected) in [(&unit, [1, 1, 1]), (&ward().unit, [3, 1, 3]), (&thin.unit, [3, 3, 3])] {
        assert_eq!([OVERWRITE, BLOCK_ERASE, 0x1F].map(|action| supported(unit, action)), expected);
    }
    let erasable = |unit: &LogicalUnit<Bench>| ask(unit, &[0x12, 1, 0xB1, 0, 64, 0])[7];
    assert_eq!((erasable(&unit), erasable(&thin.unit)), (0x00, 0x40), "WABEREQ");
}

#[test]
fn sanitize_under_way_is_told_with_its_progress_and_next_to_nothing_is_served() {
    let ward = ward();
    good(overwrite(&ward, 2, &[0]));
    for cdb in [&READ[..], &TEST_UNIT_READY, &[0x1B, 0, 0, 0, 1, 0], &[0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0], &cdb(0x1F, 0)]
    {
        for nexus in [HOST, OTHER] {
            assert_eq!(sense(&run(&ward.unit, nexus, cdb, &[0; BLOCK])), (2, 0x04, 0x1B));
        }
    }
    assert_eq!(sense(&overwrite(&ward, 1, &[0])), (2, 0x04, 0x1B));
    good(run(&ward.unit, OTHER, &[0x12, 0, 0, 0, 36, 0], &[]));
    good(run(&ward.unit, OTHER, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[]));
    assert_eq!(ask(&ward.unit, &REQUEST_SENSE)[..3], [0x70, 0, 2]);
    assert_eq!(ask(&ward.unit, &REQUEST_SENSE)[12..], [0x04, 0x1B, 0, 0x80, 0, 0]);
    ward.unit.device().permits.set(2);
    let mut work = Box::pin(ward.unit.carry_out_sanitize());
    assert!(work.as_mut().now_or_never().is_none());
    assert_eq!(ask(&ward.unit, &REQUEST_SENSE)[15..], [0x80, 0x80, 0], "one of two passes");
    let told = run(&ward.unit, OTHER, &TEST_UNIT_READY, &[]).sense.expect("it is told");
    assert_eq!(told.progress, Some(0x8000));
    ward.unit.device().permits.set(usize::MAX);
    now(work);
    good(run(&ward.unit, OTHER, &TEST_UNIT_READY, &[]));
    assert_eq!(ask(&ward.unit, &REQUEST_SENSE)[2], 0);
}

#[test]
fn sanitize_that_is_waited_for_is_answered_at_its_end_and_goes_on_when_it_is_aborted() {
    let ward = ward();
    let list = list(1, &[9]);
    let mut first = pin!(ward.unit.execute(HOST, command(&cdb(OVERWRITE, list.len()), &list)));
    assert!(first.as_mut().now_or_never().is_none());
    now(ward.unit.carry_out_sanitize());
    good(first.now_or_never().expect("it has ended"));
    for function in
        [TaskManagement::AbortTask(TaskTag(0)), TaskManagement::AbortTaskSet, TaskManagement::LogicalUnitReset]
    {
        let mut second = pin!(ward.unit.execute(HOST, command(&cdb(OVERWRITE, list.len()), &list)));
        assert!(second.as_mut().now_or_never().is_none());
        let mut ends = pin!(ward.unit.manage(HOST, function));
        assert!(ends.as_mut().now_or_never().is_none());
        assert_eq!(second.now_or_never().expect("it is waited for no more").status, Status::Unanswered);
        assert!(ends.now_or_never().is_some());
        assert!(ward.unit.is_being_sanitized());
        ward.unit.device().bytes.borrow_mut().fill(b'x');
        now(ward.unit.carry_out_sanitize());
        assert_eq!(blocks(&ward.unit, 0, 1), [9; BLOCK]);
    }
}

#[test]
fn sanitize_waits_for_what_has_begun_and_what_waits_behind_it_is_refused() {
    let ward = ward();
    ward.unit.device().permits.set(0);
    let mut read = pin!(ward.unit.execute(OTHER, command(&READ, &[])));
    assert!(read.as_mut().now_or_never().is_none());
    let list = list(1, &[9]);
    let mut sanitize = pin!(ward.unit.execute(HOST, command(&cdb(IMMED | OVERWRITE, list.len()), &list)));
    assert!(sanitize.as_mut().now_or_never().is_none());
    let mut late = pin!(ward.unit.execute(OTHER, command(&READ, &[])));
    assert!(late.as_mut().now_or_never().is_none());
    ward.unit.device().permits.set(1);
    good(read.now_or_never().expect("it may"));
    good(sanitize.now_or_never().expect("nobody is before it"));
    assert_eq!(sense(&late.now_or_never().expect("it is refused")), (2, 0x04, 0x1B));
}

#[test]
fn sanitize_goes_on_after_power_loss_from_where_it_was_kept() {
    let ward = ward();
    good(overwrite(&ward, 3, &[5]));
    // The first pass and its flush succeed; the next operation waits.
    ward.unit.device().permits.set(2);
    let mut work = Box::pin(ward.unit.carry_out_sanitize());
    assert!(work.as_mut().now_or_never().is_none());
    drop(work);
    let again = restarted(&ward);
    assert!(again.unit.is_being_sanitized());
    assert_eq!(sense(&run(&again.unit, OTHER, &READ, &[])), (2, 0x04, 0x1B));
    ops(&again.unit);
    now(again.unit.carry_out_sanitize());
    assert_eq!(
        ops(&again.unit),
        [Op::Write(0, BLOCKS), Op::Flush, Op::Write(0, BLOCKS), Op::Flush],
        "two passes of three"
    );
    assert!(again.shelf.kept.borrow().is_empty());
    good(run(&again.unit, OTHER, &READ, &[]));
}

#[test]
fn sanitize_that_is_stopped_goes_on_where_it_was() {
    let ward = ward();
    now(ward.unit.stop_sanitizing());
    good(overwrite(&ward, 3, &[5]));
    ward.unit.device().permits.set(1);
    let mut work = Box::pin(ward.unit.carry_out_sanitize());
    assert!(work.as_mut().now_or_never().is_none());
    let mut stop = pin!(ward.unit.stop_sanitizing());
    assert!(stop.as_mut().now_or_never().is_none());
    ward.unit.device().permits.set(usize::MAX);
    ops(&ward.unit);
    now(work);
    assert!(stop.now_or_never().is_some());
    assert_eq!(ops(&ward.unit), [Op::Flush, Op::Flush]);
    assert_eq!(sense(&run(&ward.unit, OTHER, &READ, &[])), (2, 0x04, 0x1B));
    now(ward.unit.carry_out_sanitize());
    assert_eq!(ops(&ward.unit), [Op::Write(0, BLOCKS), Op::Flush, Op::Write(0, BLOCKS), Op::Flush]);
    good(run(&ward.unit, OTHER, &READ, &[]));
}

#[test]
fn sanitize_that_cannot_be_kept_does_not_begin() {
    let ward = ward();
    for (why, expected) in [(StoreError::Full, (5, 0x55, 4)), (StoreError::Gone, (4, 0x44, 0))] {
        ward.shelf.refuses.set(Some(why));
        assert_eq!(sense(&overwrite(&ward, 1, &[5])), expected);
        good(run(&ward.unit, HOST, &READ, &[]));
    }
    assert_eq!(ward.owner.begun.get(), 0);
}

#[test]
fn sanitize_keeps_what_hosts_have_reserved() {
    let ward = ward();
    let register: Vec<u8> = [&[0; 8][..], &7_u64.to_be_bytes(), &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
    good(run(&ward.unit, HOST, &[0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0], &register));
    good(overwrite(&ward, 1, &[5]));
    let again = restarted(&ward);
    assert_eq!(again.unit.reservations().registrations[0].key, 7);
    now(again.unit.carry_out_sanitize());
    let kept = PersistentState::parse(&again.shelf.kept.borrow()).expect("it was kept");
    assert_eq!((kept.sanitize, kept.reservations.registrations.len()), (State::Idle, 1));
}

#[test]
fn sanitize_that_failed_is_told_until_one_succeeds_or_failure_mode_may_be_left() {
    let exit = cdb(0x1F, 0);
    for exits in [false, true] {
        let ward = ward();
        good(run(&ward.unit, HOST, &exit, &[]));
        let list = list(1, &[5]);
        let bits = IMMED | OVERWRITE | if exits { AUSE } else { 0 };
        good(run(&ward.unit, HOST, &cdb(bits, list.len()), &list));
        ward.unit.device().failure.set(Some(IoErrorKind::Medium));
        now(ward.unit.carry_out_sanitize());
        ward.unit.device().failure.set(None);
        let ward = restarted(&ward);
        for nexus in [HOST, OTHER] {
            assert_eq!(sense(&run(&ward.unit, nexus, &READ, &[])), (3, 0x31, 3));
        }
        assert_eq!(ask(&ward.unit, &REQUEST_SENSE)[2], 3);
        if exits {
            good(run(&ward.unit, HOST, &exit, &[]));
        } else {
            assert_eq!(pointed(&ward.unit, &exit, &[]), (1, Some(4)));
            assert_eq!(pointed(&ward.unit, &cdb(IMMED | AUSE | OVERWRITE, list.len()), &list), (1, Some(5)));
            good(overwrite(&ward, 1, &[6]));
            now(ward.unit.carry_out_sanitize());
        }
        good(run(&ward.unit, OTHER, &READ, &[]));
        assert!(ward.shelf.kept.borrow().is_empty());
    }
}

#[test]
fn sanitize_that_is_waited_for_says_that_it_failed() {
    let ward = ward();
    let list = list(1, &[5]);
    let mut waits = pin!(ward.unit.execute(HOST, command(&cdb(OVERWRITE, list.len()), &list)));
    assert!(waits.as_mut().now_or_never().is_none());
    ward.unit.device().failure.set(Some(IoErrorKind::Gone));
    now(ward.unit.carry_out_sanitize());
    assert_eq!(sense(&waits.now_or_never().expect("it has ended")), (3, 0x31, 3));
}

#[test]
fn sanitize_is_refused_while_the_content_is_readable_elsewhere_or_may_not_be_written() {
    let ward = ward();
    ward.owner.admits.set(false);
    assert_eq!(sense(&overwrite(&ward, 1, &[5])), (5, 0x2C, 0));
    ward.owner.admits.set(true);
    ward.unit.set_read_only(HOST, true);
    assert_eq!(sense(&overwrite(&ward, 1, &[5])), (7, 0x27, 0));
    ward.unit.set_read_only(HOST, false);
    good(run(&ward.unit, OTHER, &[0x16, 0, 0, 0, 0, 0], &[]));
    assert_eq!(overwrite(&ward, 1, &[5]).status, Status::ReservationConflict);
    assert_eq!(ward.owner.begun.get(), 0);
}

#[test]
fn block_erase_writes_over_what_has_a_place_and_gives_all_of_it_back() {
    let ward = ward_over(thin_unit(8, 64));
    ward.unit.device().bytes.borrow_mut().fill(0);
    good(run(&ward.unit, HOST, &cdb10(0x2A, 0, 16, 1), &[1; BLOCK]));
    good(run(&ward.unit, HOST, &cdb10(0x2A, 0, 40, 1), &[1; BLOCK]));
    ops(&ward.unit);
    good(run(&ward.unit, HOST, &cdb(IMMED | BLOCK_ERASE, 0), &[]));
    now(ward.unit.carry_out_sanitize());
    let done = ops(&ward.unit);
    assert_eq!(done, [Op::Write(16, 8), Op::Write(40, 8), Op::Flush, Op::Discard(0, BLOCKS), Op::Flush]);
    assert_eq!(thin_of(&ward.unit).space(BLOCK as u32).mapped_bytes, 0);
    assert!(blocks(&ward.unit, 0, BLOCKS).iter().all(|&byte| byte == 0));
}

#[test]
fn overwrite_of_a_thin_unit_gives_back_zeros_and_wants_room_for_anything_else() {
    let ward = ward_over(thin_unit(8, 20));
    good(run(&ward.unit, HOST, &cdb10(0x2A, 0, 16, 1), &[1; BLOCK]));
    assert_eq!(sense(&overwrite(&ward, 1, &[5])), (7, 0x27, 7), "20 granules of 32");
    good(overwrite(&ward, 1, &[0]));
    now(ward.unit.carry_out_sanitize());
    assert_eq!(thin_of(&ward.unit).space(BLOCK as u32).mapped_bytes, 0);
}

#[test]
fn copies_from_and_to_a_unit_that_is_being_sanitized_fail() {
    let ward = ward();
    good(overwrite(&ward, 1, &[5]));
    let asker =
        crate::CopyPrincipal { nexus: NexusId(9), initiator: initiator(9), port: (*port(1)).clone(), read_only: false };
    let read = now(ward.unit.copy_read(&asker, block::Extent::new(0, 1)));
    assert_eq!(read.expect_err("nothing is read").code, AdditionalSense::SANITIZE_IN_PROGRESS);
}

#[test]
fn kept_bytes_that_are_not_ours_are_refused() {
    let ward = ward();
    good(overwrite(&ward, 1, &[5, 6]));
    let kept = ward.shelf.kept.borrow().clone();
    assert!(PersistentState::parse(&kept).is_ok());
    for cut in 1..kept.len() {
        assert!(PersistentState::parse(&kept[..cut]).is_err(), "{cut} bytes");
    }
    let with = |at: usize, byte: u8| {
        let mut kept = kept.clone();
        kept[at] = byte;
        PersistentState::parse(&kept).is_err()
    };
    assert!(with(0, 3) && with(1, 8) && with(2, 0x20) && with(2, 0) && with(3, 2));
}

/// Creates an encrypted thin unit.
fn keyed() -> Fixture {
    let ward = ward_over(thin_unit(8, 64));
    ward.owner.has_key.set(true);
    ward
}

#[test]
fn cryptographic_erase_is_known_where_there_is_a_key_to_lose() {
    let plain = ward_over(thin_unit(8, 64));
    assert_eq!(pointed(&plain.unit, &cdb(CRYPTOGRAPHIC_ERASE, 0), &[]), (1, Some(4)));
    assert_eq!(plain.owner.replaced.get(), 0);
    let supported = |unit: &LogicalUnit<Bench>| ask(unit, &[0xA3, 0x0C, 2, 0x48, 0, 3, 0, 0, 0, 64, 0, 0])[1] & 7;
    let erasable = |unit: &LogicalUnit<Bench>| ask(unit, &[0x12, 1, 0xB1, 0, 64, 0])[7];
    let keyed = keyed();
    assert_eq!((supported(&plain.unit), supported(&keyed.unit)), (1, 3));
    assert_eq!((erasable(&plain.unit), erasable(&keyed.unit)), (0x40, 0x50), "WABEREQ, WACEREQ");
    assert_eq!(
        pointed(&keyed.unit, &cdb(CRYPTOGRAPHIC_ERASE, 5), &[0; 5]),
        (8, Some(2)),
        "it has no list, and the field is reserved"
    );
}

#[test]
fn cryptographic_erase_loses_the_key_and_then_gives_all_of_it_back() {
    let ward = keyed();
    good(run(&ward.unit, HOST, &cdb(IMMED | CRYPTOGRAPHIC_ERASE, 0), &[]));
    assert_eq!(sense(&run(&ward.unit, OTHER, &READ, &[])), (2, 0x04, 0x1B));
    ops(&ward.unit);
    now(ward.unit.carry_out_sanitize());
    assert_eq!(ward.owner.replaced.get(), 1);
    let ops = ops(&ward.unit);
    assert!(!ops.iter().any(|op| matches!(op, Op::Write(..))), "nothing is written over: {ops:?}");
    assert!(ops.contains(&Op::Discard(0, BLOCKS)), "{ops:?}");
    good(run(&ward.unit, OTHER, &READ, &[]));
    assert!(ward.shelf.kept.borrow().is_empty());
}

#[test]
fn cryptographic_erase_that_was_cut_off_loses_the_key_again_after_power_loss() {
    let ward = keyed();
    good(run(&ward.unit, HOST, &cdb(IMMED | AUSE | CRYPTOGRAPHIC_ERASE, 0), &[]));
    let again = ward_over(thin_unit(8, 64));
    again.unit.restore(PersistentState::parse(&ward.shelf.kept.borrow()).expect("it was kept"));
    again.owner.has_key.set(true);
    assert_eq!(sense(&run(&again.unit, OTHER, &READ, &[])), (2, 0x04, 0x1B));
    // A key that cannot be replaced fails the operation and leaves the unit unchanged.
    again.owner.fails.set(Some(IoError::new(IoErrorKind::Medium, EVERYTHING)));
    now(again.unit.carry_out_sanitize());
    assert_eq!((again.owner.replaced.get(), sense(&run(&again.unit, OTHER, &READ, &[]))), (1, (3, 0x31, 3)));
    again.owner.fails.set(None);
    good(run(&again.unit, HOST, &cdb(IMMED | AUSE | CRYPTOGRAPHIC_ERASE, 0), &[]));
    now(again.unit.carry_out_sanitize());
    good(run(&again.unit, OTHER, &READ, &[]));
    assert_eq!(again.owner.replaced.get(), 2);
}

#[test]
fn cryptographic_erase_is_refused_while_others_need_the_key() {
    let ward = keyed();
    ward.owner.admits.set(false);
    assert_eq!(sense(&run(&ward.unit, HOST, &cdb(IMMED | CRYPTOGRAPHIC_ERASE, 0), &[])), (5, 0x2C, 0));
    assert_eq!((ward.owner.replaced.get(), ward.owner.begun.get()), (0, 0));
}
