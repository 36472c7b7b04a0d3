//! Everything beside commands: pings, text, logout, asynchronous messages, Rejects, silence.

use super::rig::*;
use crate::pdu::{AsyncEvent, LogoutReason};
use crate::target::{CloseReason, Event};
use crate::{Identity, Negotiated, SessionType, Violation};
use shard::Time;
use std::time::Duration;

pub(super) fn discovery() -> Negotiated {
    let identity = Identity { session_type: SessionType::Discovery, target_name: None, ..identity() };
    Negotiated { session_type: SessionType::Discovery, identity, ..negotiated() }
}

#[test]
fn ping_is_answered_with_its_own_data_as_far_as_the_initiator_takes_it() {
    let mut rig = Rig::new();
    rig.receive(&nop_out(5, 1, false, b"hello"));
    rig.receive(&nop_out(6, 2, true, &pattern(5000)));
    rig.receive(&nop_out(u32::MAX, 2, true, b"no answer wanted"));
    let sent = rig.sent();
    assert_eq!(pdus(&sent)[0].1, b"hello");
    let lines: Vec<_> = pdus(&sent).iter().map(|(header, data)| describe(header, data)).collect();
    assert_eq!(lines, ["pong 5 len 5 stat 1", "pong 6 len 1024 stat 2"]);
}

#[test]
fn silent_peer_is_pinged_and_then_left() {
    let mut rig = Rig::new();
    rig.command(1, NONE, &[]);
    rig.expect_command();
    let idle = rig.target.poll_timeout().expect("an open connection has a timer");
    assert_eq!(idle, Time(0) + Duration::from_secs(15));
    rig.target.handle_timeout(Time(idle.0 - 1));
    assert!(!rig.target.wants_to_send(0));
    rig.target.handle_timeout(idle);
    assert_eq!(rig.said(), ["ping max 4"]);
    let end = rig.target.poll_timeout().expect("an open connection has a timer");
    rig.target.handle_timeout(end);
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::PeerSilent)]));
    assert!(rig.target.is_over() && rig.target.poll_timeout().is_none());
}

#[test]
fn peer_that_says_anything_is_alive() {
    let mut rig = Rig::new();
    for _ in 0..5 {
        let due = rig.target.poll_timeout().expect("an open connection has a timer");
        rig.target.handle_timeout(due);
        assert_eq!(rig.said(), ["ping max 4"]);
        rig.now = Time(due.0 + 1);
        rig.receive(&nop_out(u32::MAX, 1, true, b""));
    }
    assert!(rig.events().is_empty());
}

#[test]
fn peer_that_sends_but_does_not_read_is_left() {
    let mut rig = Rig::new();
    for second in 0..40 {
        rig.now = Time(0) + Duration::from_secs(second);
        rig.receive(&nop_out(5, 1, true, b"x"));
        while let Some(due) = rig.target.poll_timeout().filter(|&due| due <= rig.now) {
            rig.target.handle_timeout(due);
        }
    }
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::OutputStuck)]));
}

#[test]
fn logout_ends_the_session_and_forgets_its_tasks() {
    for reason in [LogoutReason::CloseSession, LogoutReason::CloseConnection] {
        let mut rig = Rig::new();
        rig.receive(&logout(1, reason, 1));
        assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::LoggedOut)]));
        assert!(!rig.target.is_over(), "the answer waits to be sent");
        assert!(rig.target.receive_into(0).is_empty());
        assert_eq!(rig.said(), ["logout 9 Closed"]);
        assert!(rig.target.is_over());
    }
}

#[test]
fn logout_that_cannot_be_is_answered_and_the_session_goes_on() {
    for (reason, cid, outcome) in [
        (LogoutReason::CloseConnection, 2, "CidNotFound"),
        (LogoutReason::RemoveForRecovery, 1, "RecoveryNotSupported"),
    ] {
        let mut rig = Rig::new();
        rig.receive(&logout(1, reason, cid));
        assert_eq!(rig.said(), [format!("logout 9 {outcome}")]);
        assert!(rig.events().is_empty());
    }
}

#[test]
fn initiator_that_is_asked_to_log_out_and_does_not_is_left() {
    let mut rig = Rig::new();
    rig.target.request_logout(Duration::from_secs(5), Time(0));
    assert_eq!(rig.said(), ["async LogoutRequested { within_s: 5 }"]);
    rig.receive(&nop_out(u32::MAX, 1, true, b""));
    rig.target.handle_timeout(Time(0) + Duration::from_secs(5));
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::LogoutOverdue)]));
}

#[test]
fn initiator_that_logs_out_as_asked_hears_that_it_may_come_back_at_once() {
    let mut rig = Rig::new();
    rig.target.request_logout(Duration::from_secs(5), Time(0));
    rig.said();
    rig.receive(&logout(1, LogoutReason::CloseSession, 1));
    assert_eq!(rig.said(), ["async SessionDropped { time2wait_s: 0, time2retain_s: 0 }", "logout 9 Closed"]);
    assert!(rig.target.is_over());
}

#[test]
fn initiator_that_is_cut_off_hears_that_it_may_come_back_at_once() {
    let mut rig = Rig::new();
    rig.target.announce_end(0);
    assert_eq!(rig.said(), ["async SessionDropped { time2wait_s: 0, time2retain_s: 0 }"]);
    assert!(!rig.target.is_over());
    rig.target.handle_peer_closed(0);
    assert!(rig.target.is_over());
    rig.target.announce_end(0);
    assert!(rig.said().is_empty());
}

#[test]
fn asynchronous_message_carries_its_sense() {
    let mut rig = Rig::new();
    rig.target.send_async(LUN, AsyncEvent::Scsi, &[0x70, 0, 6]);
    let (header, data) = pdus(&rig.sent()).remove(0);
    assert_eq!(describe(&header, &data), "async Scsi");
    assert_eq!(data, [0, 3, 0x70, 0, 6]);
}

#[test]
fn what_leaves_the_stream_whole_is_rejected_and_the_session_goes_on() {
    let mut rig = Rig::new();
    let mut unknown = [0; 48];
    unknown[0] = 0x1c;
    unknown[27] = 1;
    rig.receive(&unknown);
    let mut snack = [0; 48];
    snack[0] = 0x10;
    snack[1] = 0x80;
    rig.receive(&snack);
    assert_eq!(rig.said(), ["reject CommandNotSupported of 0x1c", "reject SnackReject of 0x10"]);
    rig.cmd_sn = 2;
    rig.command(1, NONE, &[]);
    rig.expect_command();
}

#[test]
fn what_breaks_the_format_ends_the_connection() {
    let logout_of_no_kind = [&[0x06, 0x87][..], &[0; 46]].concat();
    let login = [&[0x43, 0x87][..], &[0; 46]].concat();
    let target_opcode = [&[0x25, 0x80][..], &[0; 46]].concat();
    let too_long = [&[0x40, 0x80, 0, 0, 0, 0xff, 0xff, 0xff][..], &[0; 40]].concat();
    let ahs_on_a_ping = [&[0x40, 0x80, 0, 0, 1][..], &[0; 47]].concat();
    for (bytes, violation) in [
        (logout_of_no_kind, Violation::LogoutReasonUnknown),
        (login, Violation::LoginInFullFeature),
        (target_opcode, Violation::OpcodeOfTheOtherRole),
        (too_long, Violation::DataSegmentTooLong),
        (ahs_on_a_ping, Violation::AhsOutsideScsiCommand),
    ] {
        let mut rig = Rig::new();
        rig.receive(&bytes);
        let events = rig.events();
        assert!(
            matches!(events[..], [Event::Closed(CloseReason::Violation(found))] if found == violation),
            "{violation:?}: {events:?}"
        );
        assert!(rig.said()[0].starts_with("reject"));
        assert!(rig.target.is_over());
    }
}

#[test]
fn discovery_session_does_nothing_but_discovery() {
    let mut rig = Rig::with(config(), discovery());
    rig.command(1, reads(10), &[]);
    rig.receive(&manage(2, 2, crate::pdu::TaskFunction::LogicalUnitReset, 0, 0));
    assert_eq!(rig.said(), ["reject ProtocolError of 0x01", "reject ProtocolError of 0x02"]);
    assert!(rig.events().is_empty());
}

#[test]
fn peer_that_goes_away_leaves_nothing_and_a_dropped_connection_neither() {
    for close in [|rig: &mut Rig| rig.target.handle_peer_closed(0), |rig: &mut Rig| rig.target.close()] {
        let mut rig = Rig::new();
        rig.command(1, writes(100_000), &pattern(1000));
        rig.command(2, NONE, &[]);
        let task = rig.expect_command().task;
        close(&mut rig);
        assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::PeerClosed | CloseReason::Dropped)]));
        rig.assert_idle();
        assert!(rig.target.is_over() && !rig.target.wants_to_send(0));
        rig.respond(task, crate::target::Response::default());
        rig.target.handle_received(0, 0, rig.now, &mut crate::target::OpenGate);
        assert!(rig.events().is_empty());
    }
}

#[test]
fn idle_connection_gives_its_buffers_back() {
    let mut rig = Rig::new();
    for _ in 0..20 {
        rig.receive(&nop_out(5, 1, true, &pattern(60_000)).repeat(10));
        rig.sent();
    }
    assert!(rig.target.buffer_bytes() > 64 << 10);
    let idle = rig.target.poll_timeout().expect("an open connection has a timer");
    rig.target.handle_timeout(idle);
    rig.sent();
    // Space for the next receive, and no more.
    rig.receive(&nop_out(6, 1, true, &pattern(32)));
    rig.sent();
    assert!(rig.target.buffer_bytes() <= 2 << 10, "{}", rig.target.buffer_bytes());
}

#[test]
fn answer_to_a_ping_of_the_target_is_not_answered() {
    let mut rig = Rig::new();
    let mut answer = nop_out(u32::MAX, 1, true, b"");
    answer[20..24].copy_from_slice(&1u32.to_be_bytes());
    rig.receive(&answer);
    assert!(rig.said().is_empty() && rig.events().is_empty());
    // A ping without a tag is immediate.
    rig.receive(&nop_out(u32::MAX, 1, false, b""));
    let violation = Violation::PingWithoutTagNotImmediate;
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::Violation(found))] if found == violation));
    assert_eq!(rig.said(), ["reject InvalidPduField of 0x00"]);
}

#[test]
fn padding_is_sent_as_zeros_and_not_looked_at() {
    let mut rig = Rig::new();
    let mut ping = nop_out(5, 1, false, b"hello");
    let len = ping.len();
    assert_eq!(len, 48 + 8);
    ping[len - 3..].copy_from_slice(&[0xff; 3]);
    rig.receive(&ping);
    assert_eq!(rig.sent()[48..], *b"hello\0\0\0");
}

#[test]
fn logout_is_answered_with_a_code_and_says_how_long_to_wait() {
    for (level, reason, cid, expected) in [
        (0, LogoutReason::CloseSession, 1, (0, 0, 0)),
        (0, LogoutReason::CloseConnection, 2, (1, 0, 0)),
        (0, LogoutReason::RemoveForRecovery, 1, (2, 0, 0)),
        (2, LogoutReason::RemoveForRecovery, 1, (0, 0, 20)),
    ] {
        let agreed = Negotiated { error_recovery_level: level, time2retain_s: 20, ..negotiated() };
        let mut rig = Rig::with(config(), agreed);
        rig.receive(&logout(1, reason, cid));
        let (header, _) = pdus(&rig.sent()).remove(0);
        let seconds = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        assert_eq!((header[2], seconds(40), seconds(42)), expected, "{reason:?} at level {level}");
    }
}
