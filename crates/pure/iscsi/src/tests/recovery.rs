//! Error recovery levels 1 and 2 of a target: lost data is requested again, PDUs are retransmitted, tasks are
//! reassigned.

use super::rig::*;
use crate::Negotiated;
use crate::pdu::{
    DataSn, InitiatorTaskTag, LogoutReason, Lun, SegmentLengths, Snack, SnackType, StatSn, TargetTransferTag,
    TaskFunction, TaskManagementRequest,
};
use crate::target::{CloseReason, Event, Response};
use block::Buf;
use shard::Time;
use simd::crc32c::crc32c;
use std::time::Duration;

fn level(error_recovery_level: u8) -> Negotiated {
    Negotiated { error_recovery_level, connections_max: 4, time2retain_s: 20, ..negotiated() }
}

fn rig(error_recovery_level: u8) -> Rig {
    Rig::with(config(), level(error_recovery_level))
}

fn out(tag: u32, transfer_tag: TargetTransferTag, data_sn: u32, offset: u32, is_final: bool) -> Out {
    Out { tag, transfer_tag, lun: LUN, data_sn, offset, is_final }
}

pub(super) fn snack(kind: SnackType, tag: u32, beg_run: u32, run_length: u32) -> Vec<u8> {
    let header = Snack {
        kind,
        lun: Lun(0),
        initiator_task_tag: InitiatorTaskTag(tag),
        target_transfer_tag: if kind == SnackType::RData { TargetTransferTag(77) } else { TargetTransferTag::RESERVED },
        exp_stat_sn: StatSn(0),
        beg_run,
        run_length,
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths::NONE, &mut bytes);
    bytes.to_vec()
}

pub(super) fn reassign(tag: u32, cmd_sn: u32, referenced: u32, exp_data_sn: u32) -> Vec<u8> {
    let plain = manage(tag, cmd_sn, TaskFunction::TaskReassign, referenced, 0);
    let header = TaskManagementRequest::parse(plain.first_chunk().expect("a header")).expect("a request");
    let mut bytes = [0; 48];
    TaskManagementRequest { exp_data_sn: DataSn(exp_data_sn), ..header }.emit(SegmentLengths::NONE, &mut bytes);
    bytes.to_vec()
}

fn read_of(len: usize) -> Response {
    Response::good(Buf::copy_of(&pattern(len)).into())
}

/// A session at this level whose first command has read `len` bytes, with the PDUs sent for it.
fn answered(level: u8, len: u32) -> (Rig, Vec<String>) {
    let mut rig = rig(level);
    rig.command(1, reads(len), &[]);
    let task = rig.expect_command().task;
    rig.respond(task, read_of(len as usize));
    let said = rig.said();
    (rig, said)
}

#[test]
fn data_that_is_lost_is_asked_for_again_at_the_end_of_its_sequence() {
    let mut rig = rig(1);
    let data = pattern(4096);
    rig.command(1, writes(4096), &[]);
    let first = last_transfer_tag(&rig.sent());
    rig.receive(&data_out(out(1, first, 0, 0, false), &data[..1000]));
    // The second PDU is lost; the following ones are discarded.
    rig.receive(&data_out(out(1, first, 2, 2000, false), &data[2000..3000]));
    assert!(rig.said().is_empty());
    rig.receive(&data_out(out(1, first, 3, 3000, true), &data[3000..]));
    let asked = rig.sent();
    assert_eq!(describe(&pdus(&asked)[0].0, &[]), "r2t 1 sn 1 at 1000 len 3096");
    let second = last_transfer_tag(&asked);
    rig.receive(&data_out(out(1, first, 4, 0, true), &data[..1000]));
    rig.receive(&data_out(out(1, second, 0, 1000, false), &data[1000..2000]));
    rig.receive(&data_out(out(1, second, 0, 1000, false), &data[1000..2000]));
    rig.receive(&data_out(out(1, second, 1, 2000, true), &data[2000..]));
    let command = rig.expect_command();
    assert!(command.data_out[..] == data[..], "what came twice, and late answers to the first R2T, change nothing");
    rig.respond(command.task, Response::default());
    assert_eq!(rig.said(), ["response 1 status 0 stat 1"]);
    rig.assert_idle();
}

#[test]
fn unsolicited_data_that_is_lost_is_asked_for_by_an_r2t() {
    let mut rig = Rig::with(config(), Negotiated { initial_r2t: false, ..level(1) });
    let data = pattern(2048);
    rig.command(1, Shape { is_final: false, ..writes(2048) }, &data[..512]);
    let none = TargetTransferTag::RESERVED;
    rig.receive(&data_out(out(1, none, 1, 1024, true), &data[1024..]));
    let asked = rig.sent();
    assert_eq!(describe(&pdus(&asked)[0].0, &[]), "r2t 1 sn 0 at 512 len 1536");
    rig.receive(&data_out(out(1, last_transfer_tag(&asked), 0, 512, true), &data[512..]));
    assert!(rig.expect_command().data_out[..] == data[..]);
}

#[test]
fn data_that_does_not_come_is_asked_for_again_after_a_while() {
    let mut rig = rig(1);
    rig.command(1, writes(100), &[]);
    let first = last_transfer_tag(&rig.sent());
    for _ in 0..2 {
        let due = rig.target.poll_timeout().expect("somebody looks");
        assert!(due <= Time(0) + Duration::from_secs(4));
        rig.target.handle_timeout(due);
    }
    let asked = rig.sent();
    assert_eq!(describe(&pdus(&asked)[0].0, &[]), "r2t 1 sn 1 at 0 len 100");
    assert_ne!(last_transfer_tag(&asked), first);
    rig.receive(&data_out(out(1, last_transfer_tag(&asked), 0, 0, true), &pattern(100)));
    assert!(rig.expect_command().data_out[..] == pattern(100)[..]);
}

#[test]
fn r2t_that_was_lost_is_sent_again_as_it_was() {
    let mut rig = rig(1);
    rig.command(1, writes(100), &[]);
    let first = rig.sent();
    rig.receive(&snack(SnackType::DataOrR2t, 1, 0, 1));
    assert_eq!(rig.sent(), first);
    rig.receive(&snack(SnackType::DataOrR2t, 1, 1, 0));
    assert_eq!(rig.said(), ["reject SnackReject of 0x10"], "there was no second one");
}

#[test]
fn data_in_is_sent_again_until_its_status_is_acknowledged() {
    let (mut rig, all) = answered(1, 3000);
    assert_eq!(all.len(), 3);
    rig.receive(&snack(SnackType::DataOrR2t, 1, 1, 1));
    assert_eq!(rig.said(), all[1..2]);
    rig.receive(&snack(SnackType::DataOrR2t, 1, 0, 0));
    assert_eq!(rig.said(), all, "the status has its number again");
    rig.receive(&snack(SnackType::DataOrR2t, 1, 3, 0));
    assert_eq!(rig.said(), ["reject SnackReject of 0x10"]);
    rig.receive(&acknowledge(2));
    rig.receive(&snack(SnackType::DataOrR2t, 1, 0, 0));
    assert_eq!(rig.said(), ["reject SnackReject of 0x10"]);
}

#[test]
fn status_acknowledged_from_the_future_or_the_past_is_kept_as_it_was() {
    let (mut rig, all) = answered(1, 3000);
    for expected in [3, 1000, 1 << 30, 1 << 31, u32::MAX, 0, 1] {
        rig.receive(&acknowledge(expected));
        rig.receive(&snack(SnackType::DataOrR2t, 1, 0, 0));
        assert_eq!(rig.said(), all, "ExpStatSN {expected}");
    }
}

#[test]
fn status_that_was_lost_is_sent_again_with_what_the_window_is_now() {
    let mut rig = rig(1);
    for tag in 1..=2 {
        rig.command(tag, NONE, &[]);
        let task = rig.expect_command().task;
        rig.respond(task, Response::check_condition(&[0x70, 0, 5]));
    }
    rig.receive(&nop_out(8, 3, false, b"ping"));
    let mut all = pdus(&rig.sent());
    rig.receive(&snack(SnackType::Status, u32::MAX, 1, 0));
    // ExpCmdSN and MaxCmdSN have advanced.
    all.iter_mut().for_each(|(header, _)| header[28..36].copy_from_slice(&[0, 0, 0, 4, 0, 0, 0, 7]));
    assert_eq!(pdus(&rig.sent()), all);
    rig.receive(&snack(SnackType::Status, u32::MAX, 2, 1));
    assert_eq!(pdus(&rig.sent()), all[1..2]);
    for (beg_run, run_length) in [(9, 1), (1, 5000), (0, 1), (u32::MAX, 0)] {
        rig.receive(&snack(SnackType::Status, u32::MAX, beg_run, run_length));
        assert_eq!(rig.said(), ["reject SnackReject of 0x10"], "{beg_run} {run_length}");
    }
}

#[test]
fn data_is_cut_anew_where_the_initiator_takes_other_lengths_now() {
    let (mut rig, _) = answered(1, 1500);
    rig.receive(&super::exchanges::text(5, 2, TargetTransferTag::RESERVED, false, b"MaxRecvDataSegmentLength=512\0"));
    rig.sent();
    rig.receive(&snack(SnackType::RData, 1, 0, 0));
    let sent = rig.sent();
    let said: Vec<_> = pdus(&sent).iter().map(|(header, data)| describe(header, data)).collect();
    let expected = [
        "data-in 1 sn 0 at 0 len 512",
        "data-in 1 sn 1 at 512 len 512",
        "data-in 1 sn 2 at 1024 len 476 F",
        "response 1 status 0 stat 1",
    ];
    assert_eq!(said, expected);
    assert_eq!(pdus(&sent)[3].0[20..24], [0, 0, 0, 77], "the response names the SNACK");
}

#[test]
fn acknowledgement_of_data_that_nobody_asked_for_is_rejected() {
    let mut rig = rig(1);
    rig.receive(&snack(SnackType::DataAck, u32::MAX, 1, 0));
    assert_eq!(rig.said(), ["reject InvalidDataAck of 0x10"]);
    let mut plain = Rig::new();
    plain.receive(&snack(SnackType::Status, u32::MAX, 1, 0));
    assert_eq!(plain.said(), ["reject SnackReject of 0x10"], "level 0 has nothing to send again");
}

/// Returns a PDU with both digests.
pub(super) fn digested(header: &[u8], data: &[u8]) -> Vec<u8> {
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(&crc32c(header).to_le_bytes());
    if !data.is_empty() {
        let from = bytes.len();
        bytes.extend_from_slice(data);
        bytes.resize(from + data.len().next_multiple_of(4), 0);
        let digest = crc32c(&bytes[from..]).to_le_bytes();
        bytes.extend_from_slice(&digest);
    }
    bytes
}

fn with_digests(plain: &[u8]) -> Vec<u8> {
    let len = SegmentLengths::parse(plain.first_chunk().expect("a header")).data_bytes;
    digested(&plain[..48], &plain[48..48 + len])
}

fn damaged(mut bytes: Vec<u8>, at: usize) -> Vec<u8> {
    bytes[at] ^= 0x10;
    bytes
}

#[test]
fn request_with_a_wrong_header_digest_is_dropped_and_taken_when_it_comes_again() {
    let mut rig = Rig::with(config(), Negotiated { header_digest: true, data_digest: true, ..level(1) });
    let request = with_digests(&command(1, 1, writes(600), &pattern(600)));
    rig.receive(&damaged(request.clone(), 20));
    rig.receive(&with_digests(&command(2, 2, NONE, &[])));
    assert!(rig.events().is_empty() && rig.sent().is_empty(), "nothing is said, and number 1 is missing");
    rig.receive(&request);
    let events = rig.events();
    assert_eq!(events.len(), 2);
    let two = [damaged(request.clone(), 20), damaged(request, 20)].concat();
    rig.receive(&two);
    let violation = crate::Violation::HeaderDigestWrong;
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::Violation(found))] if found == violation));
}

#[test]
fn data_with_a_wrong_digest_is_rejected_and_asked_for_again() {
    // Small PDUs are parsed in the buffer, large ones are received into their destination.
    for bytes in [4000u32, 40_000] {
        let agreed = Negotiated { header_digest: true, data_digest: true, burst_bytes_max: 1 << 20, ..level(1) };
        let mut rig = Rig::with(config(), agreed);
        let data = pattern(bytes as usize);
        rig.receive(&with_digests(&command(1, 1, writes(bytes), &[])));
        let tag = |sent: &[u8]| TargetTransferTag(u32::from_be_bytes(*sent[20..].first_chunk().expect("an R2T")));
        let first = tag(&rig.sent());
        let answer = with_digests(&data_out(out(1, first, 0, 0, true), &data));
        rig.receive(&damaged(answer, 100));
        let said = rig.sent();
        assert_eq!((said[0] & 0x3f, said[2]), (0x3f, 0x02), "a Reject for its data digest");
        let second = tag(&said[said.len() - 52..]);
        rig.receive(&with_digests(&data_out(out(1, second, 0, 0, true), &data)));
        assert!(rig.expect_command().data_out[..] == data[..], "{bytes}");
    }
}

#[test]
fn damaged_data_of_a_sequence_that_is_not_due_is_rejected_and_changes_nothing() {
    let agreed = Negotiated { header_digest: true, data_digest: true, initial_r2t: false, ..level(1) };
    let rejected_only = |sent: &[u8]| assert_eq!((sent[0] & 0x3f, sent[2], sent.len()), (0x3f, 0x02, 104));
    let none = TargetTransferTag::RESERVED;
    let data = pattern(4096);

    // Solicited, while unsolicited data is announced: the tag is that of the next R2T.
    let mut rig = Rig::with(config(), agreed.clone());
    rig.receive(&with_digests(&command(1, 1, Shape { is_final: false, ..writes(4096) }, &[])));
    rig.receive(&damaged(with_digests(&data_out(out(1, TargetTransferTag(0), 0, 0, true), &data[..2048])), 100));
    rejected_only(&rig.sent());
    rig.receive(&with_digests(&data_out(out(1, none, 0, 0, true), &data[..2048])));
    let asked = TargetTransferTag(u32::from_be_bytes(*rig.sent()[20..].first_chunk().expect("an R2T")));
    assert_eq!(asked, TargetTransferTag(0), "what the damaged one guessed");

    // Unsolicited, while an R2T is outstanding.
    rig.receive(&damaged(with_digests(&data_out(out(1, none, 0, 2048, true), &data[2048..])), 100));
    rejected_only(&rig.sent());
    rig.receive(&with_digests(&data_out(out(1, asked, 0, 2048, true), &data[2048..])));
    assert!(rig.expect_command().data_out[..] == data[..]);
}

#[test]
fn request_with_wrong_data_is_rejected_and_its_number_is_still_due() {
    let mut rig = Rig::with(config(), Negotiated { header_digest: true, data_digest: true, ..level(1) });
    let request = with_digests(&command(1, 1, writes(600), &pattern(600)));
    rig.receive(&damaged(request.clone(), 100));
    assert_eq!(rig.sent()[2], 0x02, "a Reject for its data digest");
    rig.receive(&request);
    assert!(rig.expect_command().data_out[..] == pattern(600)[..]);
}

#[test]
fn command_that_the_driver_has_is_answered_where_it_was_moved() {
    let mut rig = rig(2);
    rig.command(1, reads(8), &[]);
    let task = rig.expect_command().task;
    rig.target.handle_peer_closed(0);
    assert!(rig.events().is_empty() && rig.target.is_closed(0), "the session waits");
    assert_eq!(rig.join(1), Some(1), "under the same number");
    rig.respond(task, read_of(8));
    assert!(rig.said().is_empty(), "nobody has asked for it here");
    rig.receive(&reassign(9, 2, 1, 0));
    assert_eq!(rig.said(), ["task management 9 Complete stat 1", "data-in 1 sn 0 at 0 len 8 F status 0 stat 2"]);
    rig.receive(&reassign(9, 2, 1, 0));
    assert_eq!(rig.said(), ["task management 9 TaskDoesNotExist stat 3"]);
    rig.assert_idle();
}

#[test]
fn write_goes_on_where_it_was_when_it_is_moved() {
    let mut rig = rig(2);
    let data = pattern(4096);
    rig.command(1, writes(4096), &[]);
    let first = last_transfer_tag(&rig.sent());
    rig.receive(&data_out(out(1, first, 0, 0, false), &data[..1000]));
    // Half a PDU, whose destination is the buffer of the command.
    let half = data_out(out(1, first, 1, 1000, true), &data[1000..]);
    rig.receive(&half[..2000]);
    rig.join(2);
    rig.receive(&reassign(9, 2, 1, 0));
    assert_eq!(rig.said(), ["task management 9 TaskStillAllegiant stat 1"]);
    rig.receive(&logout(2, LogoutReason::RemoveForRecovery, 1));
    let sent = rig.sent();
    assert_eq!(describe(&pdus(&sent)[0].0, &[]), "logout 9 Closed");
    assert_eq!(sent[40..44], [0, 0, 0, 20], "how long its tasks wait");
    rig.receive(&reassign(9, 3, 1, 0));
    let asked = rig.sent();
    let said: Vec<_> = pdus(&asked).iter().map(|(header, data)| describe(header, data)).collect();
    assert_eq!(said, ["task management 9 Complete stat 3", "r2t 1 sn 1 at 1000 len 3096"]);
    rig.receive(&data_out(out(1, last_transfer_tag(&asked), 0, 1000, true), &data[1000..]));
    assert!(rig.expect_command().data_out[..] == data[..]);
}

#[test]
fn answer_that_was_sent_and_may_be_lost_is_sent_again_where_it_is_moved() {
    let (mut rig, _) = answered(2, 3000);
    rig.target.handle_peer_closed(0);
    rig.join(5);
    rig.receive(&reassign(9, 2, 1, 2));
    let expected = ["task management 9 Complete stat 1", "data-in 1 sn 2 at 2048 len 952 F status 0 stat 2"];
    assert_eq!(rig.said(), expected, "what the initiator has is not sent again");
}

#[test]
fn initiator_that_says_it_has_more_than_was_sent_gets_the_status() {
    let (mut rig, _) = answered(2, 3000);
    rig.target.handle_peer_closed(0);
    rig.join(5);
    rig.receive(&reassign(9, 2, 1, u32::MAX));
    assert_eq!(rig.said(), ["task management 9 Complete stat 1", "response 1 status 0 stat 2"]);
}

#[test]
fn number_of_a_connection_names_the_one_that_has_it_now() {
    let mut rig = rig(2);
    rig.target.handle_peer_closed(0);
    assert_eq!((rig.join(1), rig.join(1)), (Some(1), Some(2)));
    assert!(rig.target.is_closed(1) && !rig.target.is_closed(2), "each takes the place of the one before");
    rig.receive(&logout(1, LogoutReason::CloseConnection, 1));
    assert_eq!(rig.said(), ["logout 9 Closed"]);
    assert!(rig.target.is_closed(2));
}

#[test]
fn tasks_of_a_lost_connection_end_when_their_time_is_over() {
    let mut rig = rig(2);
    rig.join(2);
    rig.on(0).receive(&command(1, 1, writes(100), &[]));
    rig.target.handle_peer_closed(0);
    assert_eq!(rig.target.holds(), (1, 100));
    while rig.target.holds() != (0, 0) {
        let due = rig.target.poll_timeout().expect("its time is counted");
        assert!(due <= Time(0) + Duration::from_secs(20));
        rig.target.handle_timeout(due);
    }
    rig.on(1).receive(&reassign(9, 2, 1, 0));
    assert_eq!(rig.said().last().map(String::as_str), Some("task management 9 TaskDoesNotExist stat 1"));
}

#[test]
fn session_without_connections_ends_when_its_time_is_over() {
    let mut rig = rig(2);
    rig.target.handle_peer_closed(0);
    assert!(rig.events().is_empty() && rig.target.is_closed(0) && !rig.target.is_over());
    while let Some(due) = rig.target.poll_timeout() {
        rig.target.handle_timeout(due);
    }
    assert!(matches!(rig.events()[..], [Event::Closed(_)]) && rig.target.is_over());
}

#[test]
fn below_level_2_no_task_is_moved() {
    let mut rig = rig(1);
    rig.join(2);
    rig.on(0).receive(&command(1, 1, reads(8), &[]));
    rig.on(1).receive(&reassign(9, 2, 1, 0));
    rig.receive(&logout(2, LogoutReason::RemoveForRecovery, 1));
    let expected = ["task management 9 ReassignmentNotSupported stat 1", "logout 9 RecoveryNotSupported"];
    assert_eq!(rig.said(), expected);
}
