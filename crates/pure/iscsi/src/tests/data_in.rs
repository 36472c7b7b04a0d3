//! Reads: Data-In, phase collapse, residuals and sense data.

use super::rig::*;
use crate::pdu::{Ahs, CmdSn, InitiatorTaskTag, ScsiCommand, SegmentLengths, StatSn, TaskAttribute};
use crate::target::Response;
use crate::transmit::INLINE_BYTES_MAX;
use block::{Buf, Rope};

fn rope(len: usize) -> Rope {
    Buf::copy_of(&pattern(len)).into()
}

fn answer(shape: Shape, response: Response) -> Vec<String> {
    let mut rig = Rig::new();
    rig.command(7, shape, &[]);
    let task = rig.expect_command().task;
    rig.respond(task, response);
    rig.assert_idle();
    rig.said()
}

#[test]
fn small_read_is_one_pdu_with_its_status() {
    assert_eq!(answer(reads(512), Response::good(rope(512))), ["data-in 7 sn 0 at 0 len 512 F status 0 stat 1"]);
}

#[test]
fn read_is_cut_to_the_initiators_segments_and_bursts() {
    let expected = [
        "data-in 7 sn 0 at 0 len 1024",
        "data-in 7 sn 1 at 1024 len 1024",
        "data-in 7 sn 2 at 2048 len 1024",
        "data-in 7 sn 3 at 3072 len 1024 F",
        "data-in 7 sn 4 at 4096 len 904 F status 0 stat 1",
    ];
    assert_eq!(answer(reads(5000), Response::good(rope(5000))), expected);
}

#[test]
fn burst_ends_where_it_must_even_when_segments_do_not_divide_it() {
    let agreed = crate::Negotiated { peer_data_segment_bytes_max: 1500, ..negotiated() };
    let mut rig = Rig::with(config(), agreed);
    rig.command(7, reads(5000), &[]);
    let task = rig.expect_command().task;
    rig.respond(task, Response::good(rope(5000)));
    let expected = [
        "data-in 7 sn 0 at 0 len 1500",
        "data-in 7 sn 1 at 1500 len 1500",
        "data-in 7 sn 2 at 3000 len 1096 F",
        "data-in 7 sn 3 at 4096 len 904 F status 0 stat 1",
    ];
    assert_eq!(rig.said(), expected);
}

#[test]
fn residuals_are_right_in_each_case() {
    let given = |len| Response::good(rope(len));
    let asked = |bytes| Response { transfer_bytes: Some(bytes), ..Response::default() };
    let rows: [(Shape, Response, &[&str]); 11] = [
        (reads(1000), given(400), &["data-in 7 sn 0 at 0 len 400 F status 0 stat 1 underflow 600"]),
        (reads(400), given(1000), &["data-in 7 sn 0 at 0 len 400 F status 0 stat 1 overflow 600"]),
        (reads(0), given(512), &["response 7 status 0 stat 1 overflow 512"]),
        (reads(512), given(0), &["response 7 status 0 stat 1 underflow 512"]),
        (NONE, given(512), &["response 7 status 0 stat 1 overflow 512"]),
        (NONE, given(0), &["response 7 status 0 stat 1"]),
        (
            reads(512),
            Response { transfer_bytes: Some(1 << 40), ..given(512) },
            &["data-in 7 sn 0 at 0 len 512 F status 0 stat 1 overflow 4294967295"],
        ),
        (writes(0), asked(512), &["response 7 status 0 stat 1 overflow 512"]),
        (writes(0), given(512), &["response 7 status 0 stat 1"]),
        // In the wrong direction: none of the expected data is transferred.
        (
            reads(512),
            Response::check_condition(&[0x70, 5]),
            &["response 7 status 2 stat 1 underflow 512 sense [70, 5]"],
        ),
        (reads(512), asked(0), &["response 7 status 0 stat 1 underflow 512"]),
    ];
    for (shape, response, expected) in rows {
        assert_eq!(answer(shape, response), expected);
    }
    let mut rig = Rig::new();
    rig.command(7, writes(1000), &pattern(1000));
    let task = rig.expect_command().task;
    rig.respond(task, asked(512));
    assert_eq!(rig.said(), ["response 7 status 0 stat 1 underflow 488"]);
    rig.command(8, writes(512), &pattern(512));
    let task = rig.expect_command().task;
    rig.respond(task, Response { transfer_bytes: Some(0), ..given(512) });
    assert_eq!(rig.said(), ["response 8 status 0 stat 2 underflow 512"], "what is given to a write is not sent");
}

#[test]
fn sense_comes_in_a_response_of_its_own() {
    let response = Response { data_in: rope(100), transfer_bytes: None, ..Response::check_condition(&[0x70, 1]) };
    let expected = ["data-in 7 sn 0 at 0 len 100 F", "response 7 status 2 stat 1 underflow 412 sense [70, 1]"];
    assert_eq!(answer(reads(512), response), expected);
}

#[test]
fn bidirectional_command_has_both_residuals() {
    let ahs = Ahs { expected_read_bytes: Some(600), extended_cdb: Some(&[9; 16]) };
    let mut additional = Vec::new();
    ahs.emit(&mut additional);
    let header = ScsiCommand {
        immediate: false,
        is_final: true,
        read: true,
        write: true,
        attribute: TaskAttribute::Simple,
        lun: LUN,
        initiator_task_tag: InitiatorTaskTag(7),
        expected_data_transfer_bytes: 100,
        cmd_sn: CmdSn(1),
        exp_stat_sn: StatSn(0),
        cdb: [1; 16],
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths { ahs_bytes: additional.len(), data_bytes: 100 }, &mut bytes);
    let mut rig = Rig::new();
    rig.receive(&[&bytes[..], &additional, &pattern(100)].concat());
    let command = rig.expect_command();
    assert_eq!((command.cdb.len(), command.cdb[16], command.expected_data_in_bytes), (32, 9, 600));
    rig.respond(command.task, Response::good(rope(500)));
    let expected = ["data-in 7 sn 0 at 0 len 500 F", "response 7 status 0 stat 1 read underflow 100"];
    assert_eq!(rig.said(), expected);
}

#[test]
fn bidirectional_command_without_a_read_length_ends_the_connection() {
    let mut rig = Rig::new();
    rig.command(7, Shape { read: true, ..writes(10) }, &[]);
    assert!(format!("{:?}", rig.events()).contains("BidirectionalWithoutReadLength"));
}

#[test]
fn reader_that_does_not_read_costs_no_more_than_its_tasks() {
    let mut rig = Rig::with(config(), crate::Negotiated { peer_data_segment_bytes_max: 512, ..negotiated() });
    for tag in 0..4 {
        rig.command(tag, reads(64 << 20), &[]);
        let task = rig.expect_command().task;
        rig.respond(task, Response::good(Rope::from(Buf::zeroed(4 << 20))));
    }
    let queued = rig.target.queued_bytes();
    assert!(queued < (256 << 10) + INLINE_BYTES_MAX + 100, "{queued} bytes are copied for the wire");
    let sent = rig.sent().len();
    assert_eq!(sent, 4 * (4 << 20) / 512 * 560, "all of it arrives once the reader reads");
}

#[test]
fn echoes_that_nobody_reads_stop_the_receiving() {
    let mut rig = Rig::with(config(), crate::Negotiated { peer_data_segment_bytes_max: 1 << 20, ..negotiated() });
    for tag in 0..10_000 {
        rig.receive(&nop_out(tag, 1, true, &pattern(4000)));
    }
    assert!(rig.target.receive_into(0).is_empty());
    let queued = rig.target.queued_bytes();
    assert!(queued < 1 << 20, "{queued}");
    rig.sent();
    assert!(!rig.target.receive_into(0).is_empty());
}

#[test]
fn additional_headers_that_lie_end_the_connection() {
    for additional in [
        &[0, 200, 1, 0, 1, 2, 3, 4][..],                   // Longer than there is.
        &[0, 0, 1, 0],                                     // Shorter than the byte that is always counted.
        &[0, 3, 2, 0, 1, 2, 0, 0],                         // A read length of two bytes.
        &[0, 5, 9, 0, 1, 2, 3, 4],                         // No such type.
        &[0, 5, 2, 0, 0, 0, 0, 1, 0, 5, 2, 0, 0, 0, 0, 1], // Twice.
    ] {
        let mut bytes = command(7, 1, reads(10), &[]);
        bytes[4] = (additional.len() / 4) as u8;
        bytes.extend_from_slice(additional);
        let mut rig = Rig::new();
        rig.receive(&bytes);
        let events = format!("{:?}", rig.events());
        assert!(events.starts_with("[Closed(Violation(Ahs"), "{additional:?}: {events}");
        assert_eq!(rig.said(), ["reject InvalidPduField of 0x01"]);
    }
}

#[test]
fn response_counts_the_data_in_and_the_r2ts_before_it() {
    let exp_data_sn = |sent: &[u8]| {
        let (header, _) = pdus(sent).pop().expect("something was said");
        assert_eq!(header[0], 0x21, "a SCSI Response");
        u32::from_be_bytes([header[36], header[37], header[38], header[39]])
    };
    let mut rig = Rig::new();
    rig.command(7, reads(4000), &[]);
    let task = rig.expect_command().task;
    let failed = Response { data_in: rope(2000), transfer_bytes: None, ..Response::check_condition(&[0x70, 3]) };
    rig.respond(task, failed);
    assert_eq!(exp_data_sn(&rig.sent()), 2, "two Data-In of 1,024 bytes at most");
    rig.command(8, NONE, &[]);
    let task = rig.expect_command().task;
    rig.respond(task, Response::default());
    assert_eq!(exp_data_sn(&rig.sent()), 0);
    rig.command(9, writes(512), &[]);
    let transfer_tag = last_transfer_tag(&rig.sent());
    let out = Out { tag: 9, transfer_tag, lun: LUN, data_sn: 0, offset: 0, is_final: true };
    rig.receive(&data_out(out, &pattern(512)));
    let task = rig.expect_command().task;
    rig.respond(task, Response::default());
    assert_eq!(exp_data_sn(&rig.sent()), 1, "one R2T");
}
