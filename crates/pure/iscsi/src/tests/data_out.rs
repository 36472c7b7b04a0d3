//! Writes: immediate and unsolicited data, R2Ts, and all violations of their rules.

use super::rig::*;
use crate::pdu::{Lun, TargetTransferTag};
use crate::target::{CloseReason, Event, Gate, Response, Verdict, WaitGuard};
use crate::{Negotiated, Violation};

fn unsolicited(tag: u32, data_sn: u32, offset: u32, is_final: bool) -> Out {
    Out { tag, transfer_tag: TargetTransferTag::RESERVED, lun: LUN, data_sn, offset, is_final }
}

fn without_r2t() -> Negotiated {
    Negotiated { initial_r2t: false, ..negotiated() }
}

#[test]
fn write_with_all_its_data_immediate_is_handed_out_at_once() {
    let mut rig = Rig::new();
    rig.command(7, writes(1000), &pattern(1000));
    let command = rig.expect_command();
    assert_eq!((&command.data_out[..], command.expected_data_out_bytes), (&pattern(1000)[..], 1000));
    rig.respond(command.task, Response::default());
    assert_eq!(rig.said(), ["response 7 status 0 stat 1"]);
    rig.assert_idle();
}

#[test]
fn write_is_solicited_burst_by_burst_behind_its_immediate_data() {
    let mut rig = Rig::new();
    let data = pattern(10_000);
    rig.command(7, writes(10_000), &data[..1000]);
    let mut at = 1000;
    for (sn, len) in [(0, 4096), (1, 4096), (2, 808)] {
        let sent = rig.sent();
        let lines: Vec<_> = pdus(&sent).iter().map(|(header, data)| describe(header, data)).collect();
        assert_eq!(lines, [format!("r2t 7 sn {sn} at {at} len {len}")]);
        assert!(rig.events().is_empty());
        let transfer_tag = last_transfer_tag(&sent);
        let half = len / 2;
        let out = |data_sn, offset, is_final| Out { tag: 7, transfer_tag, lun: LUN, data_sn, offset, is_final };
        rig.receive(&data_out(out(0, at as u32, false), &data[at..at + half]));
        rig.receive(&data_out(out(1, (at + half) as u32, true), &data[at + half..at + len]));
        at += len;
    }
    assert_eq!(&rig.expect_command().data_out[..], &data[..]);
}

#[test]
fn write_has_as_many_r2ts_open_as_was_agreed() {
    let mut rig = Rig::with(config(), Negotiated { outstanding_r2t_max: 2, ..negotiated() });
    rig.command(7, writes(10_000), &[]);
    let sent = rig.sent();
    let lines: Vec<_> = pdus(&sent).iter().map(|(header, data)| describe(header, data)).collect();
    assert_eq!(lines, ["r2t 7 sn 0 at 0 len 4096", "r2t 7 sn 1 at 4096 len 4096"]);
    let Some((first, _)) = pdus(&sent).first().cloned() else { panic!("an R2T was sent") };
    let first_tag = last_transfer_tag(&first);
    assert_ne!(first_tag, last_transfer_tag(&sent));
    let out = Out { tag: 7, transfer_tag: first_tag, lun: LUN, data_sn: 0, offset: 0, is_final: true };
    rig.receive(&data_out(out, &pattern(4096)));
    assert_eq!(rig.said(), ["r2t 7 sn 2 at 8192 len 1808"]);
}

#[test]
fn write_takes_announced_data_and_solicits_what_is_missing() {
    let mut rig = Rig::with(config(), without_r2t());
    let data = pattern(3000);
    rig.command(7, Shape { is_final: false, ..writes(3000) }, &data[..500]);
    assert!(rig.said().is_empty(), "nothing is solicited while data is announced");
    rig.receive(&data_out(unsolicited(7, 0, 500, false), &data[500..1500]));
    rig.receive(&data_out(unsolicited(7, 1, 1500, true), &data[1500..2048]));
    let sent = rig.sent();
    let out = Out { transfer_tag: last_transfer_tag(&sent), ..unsolicited(7, 0, 2048, true) };
    rig.receive(&data_out(out, &data[2048..]));
    assert_eq!(&rig.expect_command().data_out[..], &data[..]);
}

#[test]
fn large_payload_is_received_straight_into_the_commands_memory() {
    let limits = Negotiated { first_burst_bytes_max: 1 << 20, ..negotiated() };
    let mut rig = Rig::with(config(), limits);
    let data = pattern(200_000);
    let bytes = command(7, 1, writes(200_000), &data);
    rig.receive(&bytes[..100]);
    assert_eq!(rig.target.receive_into(0).len(), 200_000 - 52, "the rest of the payload, and nothing behind it");
    rig.receive(&bytes[100..]);
    assert_eq!(&rig.expect_command().data_out[..], &data[..]);
}

#[test]
fn receives_are_long_behind_small_pdus_and_short_behind_large_payloads() {
    let limits = Negotiated { first_burst_bytes_max: 1 << 20, ..negotiated() };
    let mut rig = Rig::with(config(), limits);
    rig.receive(&nop_out(u32::MAX, 1, true, &pattern(1000)).repeat(100));
    assert!(rig.target.receive_into(0).len() > 32 << 10, "one receive brings many PDUs");
    let bytes = command(7, 1, writes(200_000), &pattern(200_000));
    rig.receive(&bytes[..100]);
    rig.receive(&bytes[100..]);
    rig.expect_command();
    assert!(rig.target.receive_into(0).len() <= 4096, "so that the next payload can be placed, too");
}

#[test]
fn data_out_behind_a_hole_in_its_numbers_ends_the_command_and_not_the_connection() {
    let mut rig = Rig::new();
    rig.command(7, writes(8192), &[]);
    let transfer_tag = last_transfer_tag(&rig.sent());
    rig.receive(&data_out(
        Out { tag: 7, transfer_tag, lun: LUN, data_sn: 1, offset: 0, is_final: true },
        &pattern(4096),
    ));
    assert!(rig.events().is_empty(), "the command is not handed out");
    let said = rig.said();
    assert!(matches!(&said[..], [one] if one.contains("status 2 ") && one.contains("sense [70, 0, b,")), "{said:?}");
    assert!(!rig.target.is_over());
}

/// Each row violates one rule; the connection ends with a Reject of that rule.
#[test]
fn data_out_that_disagrees_with_its_r2t_ends_the_connection() {
    let right = |transfer_tag| Out { tag: 7, transfer_tag, lun: LUN, data_sn: 0, offset: 0, is_final: true };
    type Wrong = fn(Out) -> Out;
    let rows: [(Wrong, usize, Violation); 8] = [
        (|out| Out { offset: 1, ..out }, 4095, Violation::BufferOffsetWrong),
        (|out| Out { offset: 4096, ..out }, 4096, Violation::BufferOffsetWrong),
        (|out| out, 4100, Violation::SequenceTooLong),
        (|out| out, 4092, Violation::FinalBitWrong),
        (|out| Out { is_final: false, ..out }, 4096, Violation::FinalBitWrong),
        (|out| Out { lun: Lun(0), ..out }, 4096, Violation::LunOfTransferWrong),
        (
            |out| Out { transfer_tag: TargetTransferTag(out.transfer_tag.0 ^ 1), ..out },
            4096,
            Violation::TransferTagUnknown,
        ),
        (|out| Out { transfer_tag: TargetTransferTag::RESERVED, ..out }, 4096, Violation::UnexpectedUnsolicitedData),
    ];
    for (wrong, len, violation) in rows {
        let mut rig = Rig::new();
        rig.command(7, writes(8192), &[]);
        let out = right(last_transfer_tag(&rig.sent()));
        rig.receive(&data_out(wrong(out), &pattern(len)));
        let events = rig.events();
        assert!(
            matches!(events[..], [Event::Closed(CloseReason::Violation(found))] if found == violation),
            "{violation:?}: {events:?}"
        );
        assert_eq!(rig.said(), [format!("reject {:?} of 0x05", violation.reject_reason())]);
        assert!(rig.target.is_over());
    }
}

#[test]
fn data_behind_the_last_and_data_after_the_answer_do_no_harm() {
    let mut rig = Rig::new();
    rig.command(7, writes(100), &pattern(100));
    let task = rig.expect_command().task;
    rig.respond(task, Response::default());
    rig.receive(&data_out(unsolicited(7, 0, 100, true), &pattern(50)));
    assert_eq!(rig.said(), ["response 7 status 0 stat 1"]);
    assert!(rig.events().is_empty(), "the task has ended: its data is thrown away");
    rig.command(8, writes(100), &pattern(100));
    rig.receive(&data_out(unsolicited(8, 0, 100, true), &pattern(50)));
    assert_eq!(rig.said(), ["reject ProtocolError of 0x05"], "a living task knows that nothing is missing");
}

#[test]
fn unsolicited_data_beyond_what_was_agreed_ends_the_connection() {
    let no_immediate = Negotiated { immediate_data: false, ..negotiated() };
    let announced = Shape { is_final: false, ..writes(8192) };
    let rows = [
        (negotiated(), writes(8192), 2049, Violation::FirstBurstTooLong),
        (negotiated(), writes(100), 101, Violation::DataTooLong),
        (negotiated(), reads(100), 100, Violation::DataWithoutWrite),
        (negotiated(), announced, 0, Violation::UnexpectedUnsolicitedData),
        (no_immediate, writes(100), 100, Violation::UnexpectedImmediateData),
    ];
    for (negotiated, shape, len, violation) in rows {
        let mut rig = Rig::with(config(), negotiated);
        rig.command(7, shape, &pattern(len));
        assert!(
            matches!(rig.events()[..], [Event::Closed(CloseReason::Violation(found))] if found == violation),
            "{violation:?}"
        );
    }
    let mut rig = Rig::with(config(), without_r2t());
    rig.command(7, announced, &pattern(2000));
    rig.receive(&data_out(unsolicited(7, 0, 2000, true), &pattern(49)));
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::Violation(Violation::SequenceTooLong))]));
}

/// Gate that refuses everything with sense data.
struct Refuses;

impl Gate for Refuses {
    fn judge(&mut self, _: Lun, cdb: &[u8], out: u32, _: u32) -> Verdict {
        assert_eq!((cdb[0], out), (7, 8192));
        Verdict::Refuse(Response::check_condition(&[0x70, 0, 5]))
    }
}

/// Gate that gives every waiting command a share of this counter.
struct Counts(std::rc::Rc<()>);

impl Gate for Counts {
    fn judge(&mut self, _: Lun, _: &[u8], _: u32, _: u32) -> Verdict {
        Verdict::TAKE_ALL
    }

    fn begin_wait(&mut self, lun: Lun) -> Option<WaitGuard> {
        assert_eq!(lun, LUN);
        Some(Box::new(self.0.clone()))
    }
}

#[test]
fn enrolment_lives_as_long_as_a_command_waits_and_is_handed_out_with_it() {
    let shares = std::rc::Rc::new(());
    let (waiting, mut gate) = (|| std::rc::Rc::strong_count(&shares) - 2, Counts(shares.clone()));
    let mut rig = Rig::new();
    rig.receive_through(&command(1, rig.cmd_sn, writes(1000), &pattern(1000)), &mut gate);
    assert!(rig.expect_command().wait_guard.is_none(), "all of its data came with it");
    rig.receive_through(&command(2, rig.cmd_sn + 1, writes(4096), &[]), &mut gate);
    assert_eq!(waiting(), 1);
    let transfer_tag = last_transfer_tag(&rig.sent());
    let out = Out { tag: 2, transfer_tag, lun: LUN, data_sn: 0, offset: 0, is_final: true };
    rig.receive(&data_out(out, &pattern(4096)));
    let command_with_data = rig.expect_command();
    assert!(command_with_data.wait_guard.is_some_and(|enrolment| enrolment.is::<std::rc::Rc<()>>()));
    assert_eq!(waiting(), 0);
    rig.receive_through(&command(3, rig.cmd_sn + 2, writes(4096), &[]), &mut gate);
    assert_eq!(waiting(), 1);
    drop(rig);
    assert_eq!(waiting(), 0, "the connection is gone");
}

#[test]
fn refused_write_is_never_solicited() {
    let mut rig = Rig::new();
    rig.receive_through(&command(7, 1, writes(8192), &pattern(1000)), &mut Refuses);
    assert_eq!(rig.said(), ["response 7 status 2 stat 1 underflow 8192 sense [70, 0, 5]"]);
    assert!(rig.events().is_empty());
    rig.assert_idle();
}

#[test]
fn refused_write_is_answered_behind_the_data_that_it_announced() {
    let mut rig = Rig::with(config(), without_r2t());
    rig.receive_through(&command(7, 1, Shape { is_final: false, ..writes(8192) }, &pattern(1000)), &mut Refuses);
    assert!(rig.said().is_empty());
    rig.receive(&data_out(unsolicited(7, 0, 1000, true), &pattern(1048)));
    assert_eq!(rig.said(), ["response 7 status 2 stat 1 underflow 8192 sense [70, 0, 5]"]);
    rig.assert_idle();
}

/// Gate that forgoes all data.
struct Forgoes;

impl Gate for Forgoes {
    fn judge(&mut self, _: Lun, _: &[u8], _: u32, _: u32) -> Verdict {
        Verdict::ExecuteWithoutData
    }
}

#[test]
fn write_whose_data_is_forgone_is_handed_out_without_and_in_its_turn() {
    let mut rig = Rig::new();
    let first = rig.cmd_sn;
    rig.receive_through(&command(7, first + 1, writes(8192), &pattern(1000)), &mut Forgoes);
    assert!(rig.events().is_empty() && rig.said().is_empty(), "one before it has not come");
    rig.receive_through(&command(6, first, writes(8192), &[]), &mut Forgoes);
    let events = rig.events();
    let [Event::Command(one), Event::Command(two)] = &events[..] else { panic!("{events:?}") };
    for command in [one, two] {
        assert_eq!((command.data_out.len(), command.expected_data_out_bytes), (0, 8192));
    }
    assert!(rig.said().is_empty(), "nothing is asked for");
}

#[test]
fn write_whose_data_is_forgone_is_handed_out_behind_the_data_that_it_announced() {
    let mut rig = Rig::with(config(), without_r2t());
    rig.receive_through(&command(7, 1, Shape { is_final: false, ..writes(8192) }, &pattern(1000)), &mut Forgoes);
    assert!(rig.events().is_empty());
    rig.receive(&data_out(unsolicited(7, 0, 1000, true), &pattern(500)));
    assert_eq!(rig.expect_command().data_out.len(), 0);
    assert!(rig.said().is_empty(), "nothing is asked for");
}

/// Gate whose CDBs name this number of bytes.
struct Names(u32);

impl Gate for Names {
    fn judge(&mut self, _: Lun, _: &[u8], _: u32, _: u32) -> Verdict {
        Verdict::Take { bytes_max: self.0 }
    }
}

/// The residual counts the data that was not accepted, and the command leaves nothing behind.
fn answer_names(rig: &mut Rig, names: u32, line: &str) {
    let command = rig.expect_command();
    assert_eq!((&command.data_out[..], rig.said()), (&pattern(names as usize)[..], vec![]));
    rig.respond(command.task, Response { transfer_bytes: Some(names.into()), ..Response::default() });
    assert_eq!(rig.said(), [line]);
    rig.assert_idle();
}

#[test]
fn surplus_of_a_write_is_never_solicited() {
    let mut rig = Rig::new();
    let data = pattern(8192);
    rig.receive_through(&command(7, 1, writes(8192), &data[..1000]), &mut Names(6000));
    for (sn, from, to) in [(0, 1000, 5096), (1, 5096, 6000)] {
        let sent = rig.sent();
        let lines: Vec<_> = pdus(&sent).iter().map(|(header, data)| describe(header, data)).collect();
        assert_eq!(lines, [format!("r2t 7 sn {sn} at {from} len {}", to - from)]);
        let transfer_tag = last_transfer_tag(&sent);
        let out = Out { tag: 7, transfer_tag, lun: LUN, data_sn: 0, offset: from as u32, is_final: true };
        rig.receive(&data_out(out, &data[from..to]));
    }
    answer_names(&mut rig, 6000, "response 7 status 0 stat 1 underflow 2192");
}

#[test]
fn surplus_of_a_write_that_comes_unasked_is_thrown_away() {
    let mut rig = Rig::new();
    rig.receive_through(&command(7, 1, writes(8192), &pattern(2000)), &mut Names(512));
    answer_names(&mut rig, 512, "response 7 status 0 stat 1 underflow 7680");
    // Announced data may end anywhere: before the first burst does, or behind all accepted data.
    for (names, ends) in [(512, 900), (512, 2048), (1500, 1500), (1500, 1999)] {
        let mut rig = Rig::with(config(), without_r2t());
        let announced = Shape { is_final: false, ..writes(8192) };
        rig.receive_through(&command(7, 1, announced, &pattern(700)), &mut Names(names));
        assert!(rig.events().is_empty(), "what is announced is waited for");
        rig.receive(&data_out(unsolicited(7, 0, 700, true), &pattern(ends)[700..]));
        answer_names(&mut rig, names, &format!("response 7 status 0 stat 1 underflow {}", 8192 - names));
    }
    let mut rig = Rig::with(config(), without_r2t());
    rig.receive_through(&command(7, 1, Shape { is_final: false, ..writes(8192) }, &[]), &mut Names(1500));
    rig.receive(&data_out(unsolicited(7, 0, 0, true), &pattern(1000)));
    assert_eq!(rig.said(), ["r2t 7 sn 0 at 1000 len 500"], "what came is too little for the CDB");
}

#[test]
fn surplus_of_a_write_counts_for_no_memory() {
    let config = crate::target::Config { data_out_held_bytes_max: 10_000, ..config() };
    let mut rig = Rig::with(config, negotiated());
    for tag in 1..=2 {
        rig.receive_through(&command(tag, tag, writes(9000), &[]), &mut Names(4096));
        assert_eq!(rig.said(), [format!("r2t {tag} sn 0 at 0 len 4096")]);
    }
    rig.receive_through(&command(3, 3, writes(9000), &[]), &mut Names(4096));
    assert_eq!(rig.said(), ["response 3 status 40 stat 1 underflow 9000"]);
}

#[test]
fn write_abandoned_half_way_a_thousand_times_leaves_nothing() {
    use crate::pdu::TaskFunction;
    let mut rig = Rig::new();
    for round in 0..1000 {
        rig.command(round * 2, writes(1 << 20), &pattern(500));
        let transfer_tag = last_transfer_tag(&rig.sent());
        rig.receive(&manage(round * 2 + 1, rig.cmd_sn, TaskFunction::AbortTask, round * 2, rig.cmd_sn - 1));
        let said = rig.said();
        assert!(said[0].contains("Complete"), "{said:?}");
        rig.assert_idle();
        let late = Out { tag: round * 2, transfer_tag, lun: LUN, data_sn: 0, offset: 500, is_final: true };
        rig.receive(&data_out(late, &pattern(4096)));
        assert!(rig.events().is_empty() && rig.said().is_empty(), "late data is thrown away");
    }
}

#[test]
fn command_that_would_pass_the_memory_of_the_connection_finds_the_task_set_full() {
    let config = crate::target::Config { data_out_held_bytes_max: 10_000, ..config() };
    let mut rig = Rig::with(config, negotiated());
    rig.command(1, writes(9000), &[]);
    assert_eq!(rig.said(), ["r2t 1 sn 0 at 0 len 4096"]);
    rig.command(2, writes(2000), &pattern(2000));
    assert_eq!(rig.said(), ["response 2 status 40 stat 1 underflow 2000"]);
    rig.command(3, writes(1000), &pattern(1000));
    assert_eq!(rig.expect_command().data_out.len(), 1000);
}

#[test]
fn command_gets_no_more_data_than_the_configuration_allows() {
    let config = crate::target::Config { data_out_bytes_max: 4096, ..config() };
    let mut rig = Rig::with(config, negotiated());
    rig.command(1, writes(u32::MAX), &[]);
    let sent = rig.sent();
    let transfer_tag = last_transfer_tag(&sent);
    let out = Out { tag: 1, transfer_tag, lun: LUN, data_sn: 0, offset: 0, is_final: true };
    rig.receive(&data_out(out, &pattern(4096)));
    let command = rig.expect_command();
    assert_eq!((command.data_out.len(), command.expected_data_out_bytes), (4096, u32::MAX));
}
