//! Service actions of PERSISTENT RESERVE OUT, and their effect on PERSISTENT RESERVE IN.

use super::*;
use crate::{Command, SenseKey, TaskTag};
use futures_util::FutureExt;
use std::pin::pin;

const PREEMPTED: (u8, u8) = (0x2A, 3);
const RELEASED: (u8, u8) = (0x2A, 4);
const UNREGISTERED: (u8, u8) = (0x2A, 5);

fn pointed(outcome: &Outcome) -> (u16, Option<u8>) {
    let sense = outcome.sense.as_deref().expect("CHECK CONDITION comes with sense");
    assert_eq!((sense.key, sense.code), (SenseKey::IllegalRequest, AdditionalSense(0x26, 0)));
    let field = sense.field.expect("26/00 points at a field");
    assert!(!field.in_cdb);
    (field.byte, field.bit)
}

#[test]
fn register_follows_the_table_of_keys() {
    let (unit, _) = shared_unit();
    // A nexus without a registration.
    done(&out(&unit, HOST, REGISTER, 0, (0, 0)));
    assert_eq!(keys(&unit), (0, vec![]), "nothing was done");
    conflicts(&out(&unit, HOST, REGISTER, 0, (5, 7)));
    conflicts(&out(&unit, HOST, REGISTER, 0, (5, 0)));
    done(&out(&unit, HOST, REGISTER, 0, (0, 7)));
    assert_eq!(keys(&unit), (1, vec![7]));
    // A nexus with a registration.
    conflicts(&out(&unit, HOST, REGISTER, 0, (0, 8)));
    conflicts(&out(&unit, HOST, REGISTER, 0, (6, 0)));
    done(&out(&unit, HOST, REGISTER, 0xFF, (7, 8)));
    assert_eq!(keys(&unit), (2, vec![8]));
    done(&out(&unit, OTHER, REGISTER, 0, (0, 8)));
    assert_eq!(keys(&unit), (3, vec![8, 8]), "two may have the same key");
    done(&out(&unit, HOST, REGISTER, 0, (8, 0)));
    assert_eq!(keys(&unit), (4, vec![8]));
    for nexus in [HOST, OTHER, THIRD] {
        assert_eq!(told(&unit, nexus), [], "nobody is told of registrations");
    }
}

#[test]
fn register_and_ignore_looks_at_no_key() {
    let (unit, _) = shared_unit();
    done(&out(&unit, HOST, REGISTER_AND_IGNORE, 0, (99, 0)));
    assert_eq!(keys(&unit), (0, vec![]));
    done(&out(&unit, HOST, REGISTER_AND_IGNORE, 0, (99, 1)));
    done(&out(&unit, HOST, REGISTER_AND_IGNORE, 0, (98, 2)));
    assert_eq!(keys(&unit), (2, vec![2]));
    done(&out(&unit, HOST, REGISTER_AND_IGNORE, 0, (97, 0)));
    assert_eq!(keys(&unit), (3, vec![]));
}

#[test]
fn reserve_takes_a_registration_and_its_key_and_is_repeated_without_effect() {
    let (unit, _) = shared_unit();
    conflicts(&out(&unit, HOST, RESERVE, 1, (0, 0)));
    register(&unit, HOST, 1);
    register(&unit, OTHER, 2);
    conflicts(&out(&unit, HOST, RESERVE, 1, (2, 0)));
    done(&out(&unit, HOST, RESERVE, 5, (1, 0)));
    done(&out(&unit, HOST, RESERVE, 5, (1, 0)));
    assert_eq!((held(&unit), keys(&unit).0), (Some((1, 5)), 2), "PRgeneration does not count it");
    conflicts(&out(&unit, HOST, RESERVE, 6, (1, 0)));
    conflicts(&out(&unit, OTHER, RESERVE, 5, (2, 0)));
    done(&out(&unit, HOST, RELEASE, 5, (1, 0)));
    assert_eq!(told(&unit, OTHER), [RELEASED]);
    done(&out(&unit, HOST, RESERVE, 7, (1, 0)));
    done(&out(&unit, OTHER, RESERVE, 7, (2, 0)));
    conflicts(&out(&unit, OTHER, RESERVE, 8, (2, 0)));
    assert_eq!(held(&unit), Some((0, 7)), "all hold it, with no key in particular");
}

#[test]
fn scope_and_type_are_looked_at_where_a_reservation_is_made_or_named() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    for action in [RESERVE, RELEASE] {
        for kind in 0..=0xFF_u8 {
            let outcome = out(&unit, HOST, action, kind, (1, 0));
            if ReservationType::of(kind).is_some() {
                done(&outcome);
                done(&out(&unit, HOST, RELEASE, kind, (1, 0)));
                continue;
            }
            let field = outcome.sense.as_deref().and_then(|sense| sense.field).expect("it points at a field");
            let bit = if kind >> 4 == 0 { 3 } else { 7 };
            assert_eq!((field.in_cdb, field.byte, field.bit), (true, 2, Some(bit)), "{kind:#x}");
        }
    }
    register(&unit, OTHER, 2);
    done(&out(&unit, HOST, PREEMPT, 0xFF, (1, 2)));
    done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
    assert_eq!(told(&unit, OTHER), [UNREGISTERED]);
    register(&unit, OTHER, 2);
    assert_eq!(sense(&out(&unit, OTHER, PREEMPT, 0x02, (2, 1))), (5, 0x24, 0));
    done(&out(&unit, HOST, CLEAR, 0xFF, (1, 0)));
}

#[test]
fn release_frees_what_the_holder_holds_and_tells_registrants_of_shared_types() {
    for kind in ReservationType::ALL {
        let (unit, _) = shared_unit();
        conflicts(&out(&unit, HOST, RELEASE, kind.code(), (0, 0)));
        register(&unit, HOST, 1);
        register(&unit, OTHER, 2);
        done(&out(&unit, HOST, RELEASE, kind.code(), (1, 0)));
        done(&out(&unit, HOST, RESERVE, kind.code(), (1, 0)));
        conflicts(&out(&unit, HOST, RELEASE, kind.code(), (2, 0)));
        let other_kind = if kind.code() == 1 { 3 } else { 1 };
        assert_eq!(sense(&out(&unit, HOST, RELEASE, other_kind, (1, 0))), (5, 0x26, 4));
        if !kind.is_held_by_all() {
            done(&out(&unit, OTHER, RELEASE, kind.code(), (2, 0)));
        }
        assert!(held(&unit).is_some(), "who does not hold it does not release it");
        done(&out(&unit, HOST, RELEASE, kind.code(), (1, 0)));
        assert_eq!((held(&unit), keys(&unit)), (None, (2, vec![1, 2])));
        let expected: &[(u8, u8)] = if kind.code() >= 5 { &[RELEASED] } else { &[] };
        assert_eq!((told(&unit, HOST), told(&unit, THIRD)), (vec![], vec![]));
        assert_eq!(told(&unit, OTHER), expected, "{kind:?}");
    }
}

#[test]
fn reservation_ends_with_the_registration_of_its_holder() {
    for kind in ReservationType::ALL {
        let (unit, _) = shared_unit();
        register(&unit, HOST, 1);
        register(&unit, OTHER, 2);
        done(&out(&unit, HOST, RESERVE, kind.code(), (1, 0)));
        done(&out(&unit, HOST, REGISTER, 0, (1, 0)));
        let stays = kind.is_held_by_all();
        assert_eq!(held(&unit), stays.then_some((0, kind.code())), "{kind:?}");
        let expected: &[(u8, u8)] = if matches!(kind.code(), 5 | 6) { &[RELEASED] } else { &[] };
        assert_eq!(told(&unit, OTHER), expected, "{kind:?}");
        done(&out(&unit, OTHER, REGISTER, 0, (2, 0)));
        assert_eq!((held(&unit), keys(&unit)), (None, (4, vec![])));
    }
}

#[test]
fn clear_takes_everything_and_tells_everybody_else_who_was_registered() {
    let (unit, _) = shared_unit();
    conflicts(&out(&unit, HOST, CLEAR, 0, (0, 0)));
    register(&unit, HOST, 1);
    register(&unit, OTHER, 2);
    done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
    conflicts(&out(&unit, OTHER, CLEAR, 0, (1, 0)));
    done(&out(&unit, OTHER, CLEAR, 0, (2, 0)));
    assert_eq!((held(&unit), keys(&unit)), (None, (3, vec![])));
    assert_eq!([told(&unit, HOST), told(&unit, OTHER), told(&unit, THIRD)], [vec![PREEMPTED], vec![], vec![]]);
}

#[test]
fn preempt_of_the_holder_takes_its_reservation_and_every_registration_under_its_key() {
    for (before, after) in [(1, 1), (3, 6), (5, 5), (6, 8)] {
        let (unit, _) = shared_unit();
        register(&unit, HOST, 1);
        register(&unit, OTHER, 2);
        register(&unit, THIRD, 3);
        done(&out(&unit, HOST, RESERVE, before, (1, 0)));
        conflicts(&out(&unit, OTHER, PREEMPT, after, (1, 1)));
        done(&out(&unit, OTHER, PREEMPT, after, (2, 1)));
        assert_eq!(keys(&unit), (4, vec![2, 3]));
        assert_eq!(held(&unit), Some((if after == 8 { 0 } else { 2 }, after)));
        let changed: &[(u8, u8)] = if before == after { &[] } else { &[RELEASED] };
        assert_eq!((told(&unit, HOST), told(&unit, OTHER)), (vec![UNREGISTERED], vec![]));
        assert_eq!(told(&unit, THIRD), changed, "{before} to {after}");
    }
}

#[test]
fn preempt_of_others_takes_their_registrations_alone() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    register(&unit, OTHER, 2);
    register(&unit, THIRD, 2);
    conflicts(&out(&unit, HOST, PREEMPT, 1, (1, 9)));
    assert_eq!(pointed(&out(&unit, HOST, PREEMPT, 1, (1, 0))), (8, None));
    done(&out(&unit, HOST, RESERVE, 5, (1, 0)));
    assert_eq!(pointed(&out(&unit, OTHER, PREEMPT, 1, (2, 0))), (8, None));
    done(&out(&unit, HOST, PREEMPT, 3, (1, 2)));
    assert_eq!((held(&unit), keys(&unit)), (Some((1, 5)), (4, vec![1])), "type and holder stay");
    assert_eq!((told(&unit, OTHER), told(&unit, THIRD)), (vec![UNREGISTERED], vec![UNREGISTERED]));
    // Its own key, without a reservation.
    done(&out(&unit, HOST, RELEASE, 5, (1, 0)));
    done(&out(&unit, HOST, PREEMPT, 0, (1, 1)));
    assert_eq!((keys(&unit), told(&unit, HOST)), ((5, vec![]), vec![]));
}

#[test]
fn preempt_by_the_holder_itself_may_change_the_type() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    register(&unit, OTHER, 1);
    register(&unit, THIRD, 3);
    done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
    done(&out(&unit, HOST, PREEMPT, 5, (1, 1)));
    assert_eq!((held(&unit), keys(&unit).1), (Some((1, 5)), vec![1, 3]), "it keeps its own registration");
    assert_eq!(
        [told(&unit, HOST), told(&unit, OTHER), told(&unit, THIRD)],
        [vec![], vec![UNREGISTERED], vec![RELEASED]]
    );
}

#[test]
fn preempt_of_all_registrants_names_no_key() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    register(&unit, OTHER, 2);
    register(&unit, THIRD, 3);
    done(&out(&unit, HOST, RESERVE, 8, (1, 0)));
    done(&out(&unit, OTHER, PREEMPT, 1, (2, 3)));
    assert_eq!((held(&unit), keys(&unit).1, told(&unit, THIRD)), (Some((0, 8)), vec![1, 2], vec![UNREGISTERED]));
    register(&unit, THIRD, 3);
    done(&out(&unit, OTHER, PREEMPT, 1, (2, 0)));
    assert_eq!((held(&unit), keys(&unit).1), (Some((2, 1)), vec![2]));
    assert_eq!((told(&unit, HOST), told(&unit, THIRD)), (vec![UNREGISTERED], vec![UNREGISTERED]));
    done(&out(&unit, OTHER, CLEAR, 0, (2, 0)));
    // The last registration.
    register(&unit, HOST, 1);
    done(&out(&unit, HOST, RESERVE, 7, (1, 0)));
    done(&out(&unit, HOST, PREEMPT, 7, (1, 1)));
    assert_eq!((held(&unit), keys(&unit).1), (None, vec![]));
}

fn write(tag: u32, lba: u32) -> Command {
    Command { tag: TaskTag(tag), ..command(&cdb10(0x2A, 0, lba, 1), &[7; BLOCK]) }
}

fn preempt_and_abort(tag: u32, keys: (u64, u64)) -> Command {
    let list = list_of(keys.0, keys.1, 0, &[]);
    Command { tag: TaskTag(tag), ..command(&cdb_of(PREEMPT_AND_ABORT, 1, list.len()), &list) }
}

#[test]
fn preempt_and_abort_is_answered_when_the_tasks_of_the_preempted_have_ended() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    register(&unit, OTHER, 2);
    unit.device().permits.set(0);
    let mut preempted = pin!(unit.execute(OTHER, write(1, 0)));
    let mut bystander = pin!(unit.execute(THIRD, write(1, 1)));
    assert!(preempted.as_mut().now_or_never().is_none() && bystander.as_mut().now_or_never().is_none());
    let mut abort = pin!(unit.execute(HOST, preempt_and_abort(9, (1, 2))));
    assert!(abort.as_mut().now_or_never().is_none(), "the write may still land");
    unit.device().permits.set(usize::MAX);
    assert_eq!(preempted.now_or_never().expect("permits").status, Status::TaskAborted);
    done(&abort.now_or_never().expect("nothing runs any more"));
    done(&bystander.now_or_never().expect("permits"));
    assert_eq!(told(&unit, OTHER), [UNREGISTERED]);
}

#[test]
fn preempt_of_each_other_at_one_time_ends_and_one_of_them_wins() {
    let (unit, shelf) = shared_unit();
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 1, APTPL, &[])));
    done(&out_with(&unit, OTHER, REGISTER, 0, &list_of(0, 2, APTPL, &[])));
    shelf.waits.set(true);
    let mut one = pin!(unit.execute(HOST, preempt_and_abort(1, (1, 2))));
    let mut two = pin!(unit.execute(OTHER, preempt_and_abort(1, (2, 1))));
    assert!(one.as_mut().now_or_never().is_none() && two.as_mut().now_or_never().is_none());
    shelf.waits.set(false);
    assert!(one.as_mut().now_or_never().is_none(), "the other's is a task that has to end");
    assert_eq!(two.now_or_never().expect("it never began").status, Status::TaskAborted);
    done(&one.now_or_never().expect("nobody is waited for"));
    assert_eq!(keys(&unit).1, [1]);
}

#[test]
fn preempt_and_abort_of_the_own_key_ends_the_other_tasks_of_the_nexus() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    unit.device().permits.set(0);
    let mut own = pin!(unit.execute(HOST, write(1, 0)));
    assert!(own.as_mut().now_or_never().is_none());
    let mut abort = pin!(unit.execute(HOST, preempt_and_abort(2, (1, 1))));
    assert!(abort.as_mut().now_or_never().is_none());
    unit.device().permits.set(usize::MAX);
    assert_eq!(own.now_or_never().expect("permits").status, Status::Unanswered);
    done(&abort.now_or_never().expect("nothing else runs"));
}

#[test]
fn task_that_had_to_wait_is_held_against_the_reservation_that_is_there_when_it_begins() {
    for (kind, expected) in [(3, Status::ReservationConflict), (1, Status::Good)] {
        let (unit, _) = shared_unit();
        register(&unit, HOST, 1);
        unit.device().permits.set(0);
        let mut running = pin!(unit.execute(THIRD, write(1, 0)));
        assert!(running.as_mut().now_or_never().is_none());
        let read =
            Command { tag: TaskTag(2), attribute: TaskAttribute::Ordered, ..command(&cdb10(0x28, 0, 0, 1), &[]) };
        let mut waiting = pin!(unit.execute(THIRD, read));
        assert!(waiting.as_mut().now_or_never().is_none());
        let list = list_of(1, 0, 0, &[]);
        let reserve = command(&cdb_of(RESERVE, kind, list.len()), &list);
        let reserve = Command { attribute: TaskAttribute::HeadOfQueue, ..reserve };
        done(&now(unit.execute(HOST, reserve)));
        unit.device().permits.set(usize::MAX);
        done(&running.now_or_never().expect("it had begun before"));
        assert_eq!(waiting.now_or_never().expect("it may begin").status, expected);
    }
}

#[test]
fn register_and_move_gives_reservation_and_key_to_another_nexus() {
    for unregisters in [false, true] {
        let (unit, shelf) = shared_unit();
        shelf.ports.replace((1..=3).map(|number| (*port(number)).clone()).collect());
        let id = initiator(2).transport_id();
        let list = |key, new_key| move_list(key, new_key, if unregisters { 2 } else { 0 }, 2, &id);
        conflicts(&out_with(&unit, HOST, MOVE, 0, &list(0, 5)));
        register(&unit, HOST, 1);
        conflicts(&out_with(&unit, HOST, MOVE, 0, &list(1, 5)));
        done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
        conflicts(&out_with(&unit, HOST, MOVE, 0, &list(2, 5)));
        assert_eq!(pointed(&out_with(&unit, HOST, MOVE, 0, &list(1, 0))), (8, None));
        done(&out_with(&unit, HOST, MOVE, 0xFF, &list(1, 5)));
        assert_eq!(held(&unit), Some((5, 3)));
        assert_eq!(keys(&unit), (2, if unregisters { vec![5] } else { vec![1, 5] }));
        conflicts(&run(&unit, HOST, &cdb10(0x28, 0, 0, 1), &[]));
        done(&run(&unit, OTHER, &cdb10(0x28, 0, 0, 1), &[]));
        assert_eq!((told(&unit, HOST), told(&unit, OTHER)), (vec![], vec![]));
    }
}

#[test]
fn register_and_move_is_refused_to_oneself_to_ports_that_are_not_there_and_of_what_all_hold() {
    let (unit, shelf) = shared_unit();
    shelf.ports.replace((1..=3).map(|number| (*port(number)).clone()).collect());
    register(&unit, HOST, 1);
    done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
    let [own, other] = [1, 2].map(|number| initiator(number).transport_id());
    assert_eq!(pointed(&out_with(&unit, HOST, MOVE, 0, &move_list(1, 5, 0, 1, &own))), (24, None));
    assert_eq!(pointed(&out_with(&unit, HOST, MOVE, 0, &move_list(1, 5, 0, 4, &other))), (18, None));
    assert_eq!(pointed(&out_with(&unit, HOST, MOVE, 0, &move_list(1, 5, 0, 2, &[]))), (20, None));
    let two = [other.clone(), own].concat();
    assert_eq!(pointed(&out_with(&unit, HOST, MOVE, 0, &move_list(1, 5, 0, 2, &two))), (20, None));
    assert_eq!(sense(&out_with(&unit, HOST, MOVE, 0, &move_list(1, 5, 0, 2, &other)[..44])), (5, 0x1A, 0));
    done(&out(&unit, HOST, RELEASE, 3, (1, 0)));
    done(&out(&unit, HOST, RESERVE, 8, (1, 0)));
    conflicts(&out_with(&unit, HOST, MOVE, 0, &move_list(1, 5, 0, 2, &other)));
    assert_eq!(keys(&unit), (1, vec![1]));
}

#[test]
fn spec_i_pt_registers_others_too_or_nobody() {
    let (unit, shelf) = shared_unit();
    let ids: Vec<_> = (2..=4).map(|number| initiator(number).transport_id()).collect();
    let register_for = |ids: &[Vec<u8>], key| out_with(&unit, HOST, REGISTER, 0, &list_of(key, 7, SPEC_I_PT, ids));
    assert_eq!(pointed(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 0, SPEC_I_PT, &ids))), (20, Some(3)));
    let mut damaged = ids.clone();
    damaged[1][4] = 0xFF;
    assert_eq!(pointed(&register_for(&damaged, 0)), (28 + ids[0].len() as u16 + 4, None));
    assert_eq!(keys(&unit), (0, vec![]));
    for action in [RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_AND_ABORT, REGISTER_AND_IGNORE] {
        let list = &list_of(0, 7, SPEC_I_PT, &[])[..24];
        assert_eq!(pointed(&out_with(&unit, HOST, action, 1, list)), (20, Some(3)));
    }
    done(&register_for(&ids, 0));
    assert_eq!(keys(&unit), (1, vec![7; 4]));
    assert_eq!(pointed(&register_for(&ids, 7)), (20, Some(3)), "who is registered does not register others");
    // They are registered through the port of the command, before they ever log in.
    unit.attach(NexusId(5), initiator(4), port(1));
    assert_eq!(told(&unit, NexusId(5)), [(0x29, 0)]);
    done(&out(&unit, NexusId(5), RESERVE, 3, (7, 0)));
    conflicts(&run(&unit, OTHER, &cdb10(0x28, 0, 0, 1), &[]));
    assert_eq!(shelf.times.get(), 0, "nothing is kept that is not to be");
}

#[test]
fn spec_i_pt_leaves_who_is_registered_as_it_is() {
    let (unit, _) = shared_unit();
    unit.attach(OTHER, initiator(2), port(1));
    assert_eq!(told(&unit, OTHER), [(0x29, 0)]);
    register(&unit, OTHER, 2);
    let ids = [initiator(2).transport_id()];
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 7, SPEC_I_PT, &ids)));
    assert_eq!(keys(&unit).1, [7, 2]);
}

#[test]
fn transport_id_of_an_initiator_means_its_only_port() {
    let (unit, _) = shared_unit();
    let mut id = vec![0x05, 0, 0, 0];
    id.extend_from_slice(initiator(2).name.as_bytes());
    id.resize((id.len() + 1).next_multiple_of(4), 0);
    id[3] = id.len() as u8 - 4;
    let register_for = |key| out_with(&unit, HOST, REGISTER, 0, &list_of(0, key, SPEC_I_PT, &[id.clone()]));
    let second = InitiatorPort { isid: [9; 6], ..initiator(2) };
    unit.attach(NexusId(5), second, port(2));
    assert_eq!(pointed(&register_for(7)), (28, None), "two ports are called so");
    unit.detach(NexusId(5));
    done(&register_for(7));
    assert_eq!(keys(&unit).1, [7, 7]);
    unit.detach(OTHER);
    done(&out(&unit, HOST, CLEAR, 0, (7, 0)));
    assert_eq!(pointed(&register_for(7)), (28, None), "nobody is called so");
}

#[test]
fn all_tg_pt_means_the_initiator_port_at_every_target_port() {
    let (unit, shelf) = shared_unit();
    shelf.ports.replace((1..=3).map(|number| (*port(number)).clone()).collect());
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 7, ALL_TG_PT, &[])));
    assert_eq!(keys(&unit), (1, vec![7; 3]));
    unit.attach(NexusId(5), initiator(1), port(2));
    assert_eq!(told(&unit, NexusId(5)), [(0x29, 0)]);
    conflicts(&out(&unit, NexusId(5), REGISTER, 0, (0, 8)));
    // Each of them is a separate registration.
    done(&out(&unit, NexusId(5), REGISTER, 0, (7, 8)));
    assert_eq!(keys(&unit).1, [7, 8, 7]);
    conflicts(&out_with(&unit, HOST, REGISTER, 0, &list_of(7, 9, ALL_TG_PT, &[])));
    assert_eq!(keys(&unit), (2, vec![7, 8, 7]), "one of them has another key, so nothing is changed");
    done(&out_with(&unit, HOST, REGISTER_AND_IGNORE, 0, &list_of(0, 9, ALL_TG_PT, &[])));
    assert_eq!(keys(&unit).1, [9; 3]);
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(9, 0, ALL_TG_PT, &[])));
    assert_eq!(keys(&unit).1, []);
    // With both bits: other initiator ports at every target port.
    let ids = [initiator(2).transport_id()];
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 7, ALL_TG_PT | SPEC_I_PT, &ids)));
    assert_eq!(keys(&unit).1, [7; 6]);
}

#[test]
fn full_status_names_every_registration_and_says_its_whole_length_when_cut() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 0x0102_0304_0506_0708);
    register(&unit, OTHER, 2);
    done(&out(&unit, OTHER, RESERVE, 6, (2, 0)));
    let data = report(&unit, 3, 4096);
    let ids = [1, 2].map(|number| initiator(number).transport_id());
    let mut expected = vec![0, 0, 0, 2];
    expected.extend((2 * 24 + ids.concat().len() as u32).to_be_bytes());
    expected.extend([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, ids[0].len() as u8]);
    expected.extend(&ids[0]);
    expected.extend([0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 2, 0, 0, 0, ids[1].len() as u8]);
    expected.extend(&ids[1]);
    assert_eq!(data, expected);
    for allocation in 0..expected.len() {
        for action in 0..=3 {
            let whole = report(&unit, action, u16::MAX);
            let cut = report(&unit, action, allocation as u16);
            assert_eq!(cut[..], whole[..allocation.min(whole.len())], "action {action}");
        }
    }
}

#[test]
fn capabilities_say_what_is_served() {
    let (unit, _) = shared_unit();
    assert_eq!(report(&unit, 2, 64), [0, 8, 0x1D, 0xB0, 0xEA, 0x01, 0, 0]);
    done(&out_with(&unit, HOST, REGISTER, 0, &list_of(0, 1, APTPL, &[])));
    assert_eq!(report(&unit, 2, 64)[3], 0xB1, "persistence is activated");
    register(&unit, HOST, 1);
    assert_eq!(report(&unit, 2, 64)[3], 0xB0, "the last APTPL bit counts");
    let forgetful = crate::rig::unit();
    assert_eq!(report(&forgetful, 2, 64)[2], 0x1C);
    assert_eq!(pointed(&out_with(&forgetful, HOST, REGISTER, 0, &list_of(0, 1, APTPL, &[]))), (20, Some(0)));
    let ids = initiator(2).transport_id();
    register(&forgetful, HOST, 1);
    done(&out(&forgetful, HOST, RESERVE, 1, (1, 0)));
    assert_eq!(pointed(&out_with(&forgetful, HOST, MOVE, 0, &move_list(1, 2, 1, 1, &ids))), (17, Some(0)));
    for action in 4..0x20 {
        assert_eq!(crate::rig::pointed(&unit, &[0x5E, action, 0, 0, 0, 0, 0, 0, 64, 0], &[]), (1, Some(4)));
    }
}

#[test]
fn nexus_that_may_not_write_changes_no_reservation_and_reads_all() {
    let (unit, _) = shared_unit();
    unit.set_read_only(OTHER, true);
    assert_eq!(sense(&out(&unit, OTHER, REGISTER, 0, (0, 1))), (7, 0x27, 0));
    assert_eq!(sense(&run(&unit, OTHER, &[0x16, 0, 0, 0, 0, 0], &[])), (7, 0x27, 0));
    done(&run(&unit, OTHER, &[0x5E, 0, 0, 0, 0, 0, 0, 0, 64, 0], &[]));
    assert_eq!(keys(&unit), (0, vec![]));
}

#[test]
fn registration_outlives_its_session_and_waits_for_the_same_ports() {
    let (unit, _) = shared_unit();
    register(&unit, HOST, 1);
    done(&out(&unit, HOST, RESERVE, 3, (1, 0)));
    unit.detach(HOST);
    conflicts(&run(&unit, OTHER, &cdb10(0x28, 0, 0, 1), &[]));
    // Another session of the same initiator, through another port or with another ISID, is another nexus.
    for (nexus, who, through) in
        [(5, initiator(1), port(2)), (6, InitiatorPort { isid: [1; 6], ..initiator(1) }, port(1))]
    {
        unit.attach(NexusId(nexus), who, through);
        assert_eq!(told(&unit, NexusId(nexus)), [(0x29, 0)]);
        conflicts(&run(&unit, NexusId(nexus), &cdb10(0x28, 0, 0, 1), &[]));
    }
    unit.attach(NexusId(7), initiator(1), port(1));
    assert_eq!(told(&unit, NexusId(7)), [(0x29, 0)]);
    done(&run(&unit, NexusId(7), &cdb10(0x28, 0, 0, 1), &[]));
    now(unit.manage(OTHER, crate::TaskManagement::LogicalUnitReset));
    told(&unit, OTHER);
    conflicts(&run(&unit, OTHER, &cdb10(0x28, 0, 0, 1), &[]));
}
