//! Several connections of one session: common command order, one window, and the effects of losing a connection.

use super::rig::*;
use crate::Negotiated;
use crate::pdu::{LogoutReason, Lun, TaskFunction, TaskFunctionOutcome as Outcome};
use crate::target::{CloseReason, Event, Response};

/// A session of two connections, the leading one (CID 1) in slot 0 and another (CID 2) in slot 1.
fn two() -> Rig {
    let mut rig = Rig::with(config(), Negotiated { connections_max: 4, ..negotiated() });
    assert_eq!(rig.join(2), Some(1));
    rig
}

/// The request, addressed to another unit.
fn on_unit(lun: Lun, request: &[u8]) -> Vec<u8> {
    [&request[..8], &lun.0.to_be_bytes(), &request[16..]].concat()
}

fn tags(events: Vec<Event>) -> Vec<u8> {
    let tag = |event| match event {
        Event::Command(command) => Some(command.cdb[0]),
        _ => None,
    };
    events.into_iter().filter_map(tag).collect()
}

#[test]
fn commands_of_all_connections_have_one_order() {
    let mut rig = two();
    rig.on(1).receive(&command(2, 2, reads(8), &[]));
    rig.on(0).receive(&command(3, 3, reads(8), &[]));
    assert!(rig.events().is_empty(), "command 1 has not come");
    rig.on(1).receive(&command(1, 1, reads(8), &[]));
    let tasks: Vec<_> = std::iter::repeat_with(|| rig.expect_command()).take(3).map(|c| (c.cdb[0], c.task)).collect();
    assert_eq!(tasks.iter().map(|(tag, _)| *tag).collect::<Vec<_>>(), [1, 2, 3]);
    for (_, task) in tasks {
        rig.respond(task, Response::default());
    }
    let said = (rig.on(0).said(), rig.on(1).said());
    let line = |tag: u8, stat: u8| format!("response {tag} status 0 stat {stat} underflow 8");
    assert_eq!(said, (vec![line(3, 1)], vec![line(1, 1), line(2, 2)]), "each where it came, with its own StatSN");
    rig.assert_idle();
}

#[test]
fn data_comes_where_its_command_came() {
    let mut rig = two();
    rig.on(1).receive(&command(1, 1, writes(100), &[]));
    let asked = rig.sent();
    let out = Out { tag: 1, transfer_tag: last_transfer_tag(&asked), lun: LUN, data_sn: 0, offset: 0, is_final: true };
    rig.on(0).receive(&data_out(out, &pattern(100)));
    let closed = |rig: &Rig| (rig.target.is_closed(0), rig.target.is_closed(1));
    assert_eq!(rig.said(), ["reject ProtocolError of 0x05"]);
    assert_eq!(closed(&rig), (true, false), "the one that broke the rule ends, and not the other");
    rig.on(1).receive(&data_out(out, &pattern(100)));
    let command = rig.expect_command();
    rig.respond(command.task, Response::default());
    assert_eq!(rig.said(), ["response 1 status 0 stat 1"]);
}

#[test]
fn session_takes_no_more_connections_than_were_agreed() {
    let mut rig = two();
    assert_eq!((rig.join(3), rig.join(4), rig.join(5)), (Some(2), Some(3), None));
    rig.on(1).receive(&logout(1, LogoutReason::CloseConnection, 2));
    assert_eq!(rig.said(), ["logout 9 Closed"]);
    assert_eq!(rig.join(5), Some(1), "its place is free again");
    assert!(rig.events().is_empty(), "the session goes on");
}

#[test]
fn connection_with_the_number_of_another_takes_its_place() {
    let mut rig = two();
    rig.on(1).receive(&command(1, 1, reads(8), &[]));
    let old = rig.expect_command();
    assert_eq!(rig.join(2), Some(2));
    assert!(rig.target.is_closed(1) && !rig.target.is_closed(2));
    rig.respond(old.task, Response::default());
    assert!(rig.said().is_empty(), "its tasks ended with it");
    rig.assert_idle();
}

#[test]
fn logout_closes_the_connection_that_it_names() {
    let mut rig = two();
    rig.on(0).receive(&logout(1, LogoutReason::CloseConnection, 7));
    rig.receive(&logout(2, LogoutReason::CloseConnection, 2));
    assert_eq!(rig.said(), ["logout 9 CidNotFound", "logout 9 Closed"]);
    assert!(rig.target.is_closed(1) && rig.events().is_empty());
    rig.receive(&logout(3, LogoutReason::CloseConnection, 1));
    assert_eq!(rig.said(), ["logout 9 Closed"]);
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::LoggedOut)]) && rig.target.is_over());
}

#[test]
fn logout_of_the_session_closes_all_connections() {
    let mut rig = two();
    rig.on(1).receive(&logout(1, LogoutReason::CloseSession, 0));
    assert_eq!(rig.said(), ["logout 9 Closed"]);
    assert!(rig.target.is_over());
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::LoggedOut)]));
}

#[test]
fn logout_behind_a_hole_is_answered_on_its_own_connection_when_the_hole_closes() {
    let mut rig = two();
    rig.on(1).receive(&logout(2, LogoutReason::CloseConnection, 2));
    rig.on(0).receive(&command(3, 3, NONE, &[]));
    assert!(rig.on(1).said().is_empty());
    rig.on(0).receive(&command(1, 1, NONE, &[]));
    assert_eq!(rig.on(1).said(), ["logout 9 Closed"]);
    assert_eq!(tags(rig.events()), [1, 3], "what was held behind it has its turn, too");
}

#[test]
fn request_of_a_connection_that_is_lost_holds_up_nobody() {
    let mut rig = two();
    rig.on(1).receive(&logout(2, LogoutReason::CloseConnection, 2));
    rig.on(0).receive(&command(3, 3, NONE, &[]));
    rig.target.handle_peer_closed(1);
    rig.receive(&command(1, 1, NONE, &[]));
    assert_eq!(tags(rig.events()), [1, 3], "the logout between them is nobody's any more");
}

#[test]
fn nothing_new_begins_before_what_a_lost_connection_has_left_is_over() {
    let mut rig = two();
    rig.on(0).receive(&command(1, 1, writes(4), &pattern(4)));
    let old = rig.expect_command();
    rig.target.handle_peer_closed(0);
    // The initiator repeats it under the same tag, and sends another one at the same time.
    rig.on(1).receive(&command(1, 2, writes(4), &pattern(4)));
    rig.receive(&command(8, 3, Shape { immediate: true, ..NONE }, &[]));
    let events = rig.events();
    assert!(matches!(events[..], [Event::CommandsLost(LUN)]), "an old write could land behind the new one");
    rig.respond(old.task, Response::default());
    assert_eq!(tags(rig.events()), [8, 1]);
    assert!(rig.said().is_empty());
}

#[test]
fn units_whose_commands_ended_with_a_connection_are_told_before_anything_new() {
    let mut rig = two();
    rig.on(1).receive(&command(1, 1, reads(8), &[]));
    let (begun, other) = (rig.expect_command(), Lun(5 << 48));
    rig.receive(&[command(2, 2, writes(4000), &[]), on_unit(other, &command(3, 3, writes(4000), &[]))].concat());
    rig.target.handle_peer_closed(1);
    rig.on(0).receive(&command(4, 4, NONE, &[]));
    rig.respond(begun.task, Response::default());
    let [Event::CommandsLost(LUN), Event::CommandsLost(second), Event::Command(next)] = &rig.events()[..] else {
        panic!("one for each unit, and the command behind them")
    };
    assert_eq!((*second, next.cdb[0]), (other, 4));
}

#[test]
fn session_ends_with_its_last_connection() {
    let mut rig = two();
    rig.on(1).receive(&command(1, 1, writes(4000), &[]));
    rig.target.handle_peer_closed(1);
    assert_eq!(rig.target.holds(), (0, 0), "its task and memory are given back");
    assert!(matches!(rig.events()[..], [Event::CommandsLost(LUN)]));
    rig.on(0).receive(&command(2, 2, writes(4000), &[]));
    rig.target.handle_peer_closed(0);
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::PeerClosed)]) && rig.target.is_over());
}

/// A reset that completes on one connection while a response is in flight on the other.
fn reset_behind_an_answer() -> Rig {
    let mut rig = two();
    rig.on(1).receive(&command(1, 1, NONE, &[]));
    let done = rig.expect_command();
    rig.respond(done.task, Response::default());
    rig.on(0).receive(&manage(10, 2, TaskFunction::LogicalUnitReset, 0, 0));
    let request = rig.expect_task_management();
    rig.target.respond_task_management(request.task, Outcome::Complete);
    rig
}

#[test]
fn answer_to_a_reset_comes_behind_what_was_said_on_other_connections() {
    let mut rig = reset_behind_an_answer();
    assert!(rig.on(0).said().is_empty(), "the answer on the other connection may still be on its way");
    assert_eq!(rig.on(1).said(), ["response 1 status 0 stat 1", "ping max 5"]);
    rig.receive(&acknowledge(2));
    assert_eq!(rig.on(0).said(), ["task management 10 Complete stat 1"]);
}

#[test]
fn answer_to_a_reset_does_not_wait_for_a_connection_that_is_lost() {
    let mut rig = reset_behind_an_answer();
    rig.target.handle_peer_closed(1);
    assert_eq!(rig.on(0).said(), ["task management 10 Complete stat 1"]);
}

#[test]
fn immediate_reset_waits_for_commands_before_it_on_other_connections() {
    let mut rig = two();
    rig.on(0).receive(&manage(10, 2, TaskFunction::AbortTaskSet, 0, 0));
    assert!(rig.events().is_empty(), "command 1 is on its way");
    rig.on(1).receive(&command(1, 1, NONE, &[]));
    let events = rig.events();
    assert!(matches!(events[..], [Event::Command(_), Event::TaskManagement(_)]), "{events:?}");
}
