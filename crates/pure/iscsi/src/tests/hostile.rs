//! Hostile PDUs in full feature phase.

use super::rig::*;
use crate::pdu::TaskFunction;
use crate::target::{CloseReason, Event, Response};
use crate::{Negotiated, Violation};
use shard::Time;
use std::time::Duration;

const SCSI_COMMAND: u8 = 0x01;
const OF_TARGETS: u8 = 0x20;

/// Header without data: every tag is 7, every length zero, every transfer tag reserved.
fn bare(first: u8, flags: u8) -> [u8; 48] {
    let mut header = [0; 48];
    (header[0], header[1]) = (first, flags);
    header[19] = 7;
    header[20..24].fill(0xff);
    header[27] = 1;
    header
}

#[test]
fn every_opcode_with_every_flag_and_no_data_is_answered_or_ends_the_connection() {
    for first in 0..0x80 {
        for flags in 0..=u8::MAX {
            let mut rig = Rig::new();
            rig.receive(&bare(first, flags));
            let (events, said) = (rig.events(), rig.said());
            let closed = events.iter().any(|event| matches!(event, Event::Closed(_)));
            let case = format!("{first:02x} {flags:02x}: {events:?} {said:?}");
            assert!(events.len() <= 1 && said.len() <= 1, "{case}");
            let opcode = first & 0x3f;
            assert!(opcode == SCSI_COMMAND || !events.iter().any(|event| matches!(event, Event::Command(_))), "{case}");
            if opcode >= OF_TARGETS {
                assert!(closed || said.iter().all(|line| line.starts_with("reject")) && !said.is_empty(), "{case}");
            }
            assert_eq!(closed, rig.target.is_over(), "{case}");
            if closed {
                rig.assert_idle();
                continue;
            }
            rig.receive(&nop_out(8, 1, true, b"still there"));
            assert_eq!(rig.said().last().map(|line| &line[..6]), Some("pong 8"), "{case}");
        }
    }
}

#[test]
fn peer_that_stalls_within_a_pdu_is_left_and_leaves_nothing() {
    let agreed = Negotiated { first_burst_bytes_max: 64 << 10, ..negotiated() };
    let whole = command(1, 1, writes(50_000), &pattern(50_000));
    for end in [1, 47, 48, 49, 4000, 49_999] {
        let mut rig = Rig::with(config(), agreed.clone());
        rig.receive(&whole[..end]);
        while let Some(due) = rig.target.poll_timeout() {
            assert!(due <= Time(0) + Duration::from_secs(60), "{end} bytes: it is waited for until {due:?}");
            rig.target.handle_timeout(due);
            rig.sent();
        }
        assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::PeerSilent)]), "{end} bytes");
        rig.assert_idle();
    }
}

#[test]
fn text_that_goes_on_without_any_text_ends_the_connection() {
    let mut rig = Rig::new();
    rig.receive(&super::exchanges::text(1, 1, crate::pdu::TargetTransferTag::RESERVED, true, b""));
    let events = rig.events();
    let expected = CloseReason::Violation(Violation::ContinuesWithoutText);
    assert!(matches!(&events[..], [Event::Closed(reason)] if *reason == expected), "{events:?}");
}

#[test]
fn tag_of_a_finished_task_names_nothing_until_it_is_used_again() {
    let mut rig = Rig::new();
    for round in 1..100 {
        rig.command(7, reads(10), &[]);
        let task = rig.expect_command().task;
        rig.respond(task, Response::default());
        rig.sent();
        rig.receive(&manage(8, round + 1, TaskFunction::AbortTask, 7, round));
        assert!(rig.said()[0].contains("TaskDoesNotExist"));
        rig.respond(task, Response::good(block::Buf::zeroed(10).into()));
        assert!(rig.said().is_empty(), "a second answer to a task is none");
        rig.assert_idle();
    }
}
