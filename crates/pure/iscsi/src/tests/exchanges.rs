//! Text exchanges: who ends them, their effects, and early ends.

use super::rig::*;
use super::sessions::discovery;
use crate::pdu::{CmdSn, InitiatorTaskTag, Lun, SegmentLengths, StatSn, TargetTransferTag, TextRequest};
use crate::target::{CloseReason, Event, SendTargets, TargetRecord};
use crate::{Negotiated, Violation};

/// The last request of an exchange, or one whose text continues.
pub(super) fn text(tag: u32, cmd_sn: u32, transfer_tag: TargetTransferTag, continues: bool, data: &[u8]) -> Vec<u8> {
    request(tag, cmd_sn, transfer_tag, (!continues, continues), data)
}

/// A complete request without the F bit: the initiator has more to ask.
fn open(tag: u32, cmd_sn: u32, transfer_tag: TargetTransferTag, data: &[u8]) -> Vec<u8> {
    request(tag, cmd_sn, transfer_tag, (false, false), data)
}

fn request(
    tag: u32,
    cmd_sn: u32,
    transfer_tag: TargetTransferTag,
    (is_final, continues): (bool, bool),
    data: &[u8],
) -> Vec<u8> {
    let header = TextRequest {
        immediate: false,
        is_final,
        continues,
        lun: Lun(0),
        initiator_task_tag: InitiatorTaskTag(tag),
        target_transfer_tag: transfer_tag,
        cmd_sn: CmdSn(cmd_sn),
        exp_stat_sn: StatSn(0),
    };
    let mut bytes = [0; 48];
    header.emit(SegmentLengths::data(data.len()), &mut bytes);
    pdu(bytes, data)
}

/// Returns text and transfer tag of the only PDU sent.
fn answer(rig: &mut Rig) -> (String, TargetTransferTag) {
    let (header, data) = pdus(&rig.sent()).remove(0);
    let tag = u32::from_be_bytes([header[20], header[21], header[22], header[23]]);
    (describe(&header, &data), TargetTransferTag(tag))
}

#[test]
fn targets_are_named_over_as_many_pdus_as_it_takes() {
    let mut rig = Rig::with(config(), Negotiated { peer_data_segment_bytes_max: 512, ..discovery() });
    rig.receive(&text(1, 1, TargetTransferTag::RESERVED, false, b"SendTargets=All\0"));
    let Some(Event::SendTargets { task, which: SendTargets::All }) = rig.target.poll_event() else {
        panic!("the question was due")
    };
    let target = |n: u32| TargetRecord {
        name: format!("iqn.2026-01.test:disk-{n}"),
        portals: vec![("10.0.0.1:3260".to_owned(), 1), ("[::1]:3261".to_owned(), 2)],
    };
    let targets: Vec<_> = (0..10).map(target).collect();
    rig.target.respond_targets(task, &targets);
    let mut all = Vec::new();
    for cmd_sn in 2..100 {
        let (header, data) = pdus(&rig.sent()).remove(0);
        all.extend_from_slice(&data);
        if header[1] & 0x80 != 0 {
            break;
        }
        assert_eq!(header[1] & 0x40, 0x40, "the text goes on");
        let tag = TargetTransferTag(u32::from_be_bytes(header[20..24].try_into().unwrap()));
        rig.receive(&text(1, cmd_sn, tag, false, b""));
    }
    let all = String::from_utf8(all).unwrap();
    assert_eq!(all.matches("TargetName=").count(), 10);
    let first = "TargetName=iqn.2026-01.test:disk-0\0TargetAddress=10.0.0.1:3260,1\0TargetAddress=[::1]:3261,2\0";
    assert!(all.starts_with(first), "{all}");
    rig.assert_idle();
}

#[test]
fn normal_session_learns_of_its_own_target_only() {
    let mut rig = Rig::new();
    rig.receive(&text(1, 1, TargetTransferTag::RESERVED, false, b"SendTargets=All\0"));
    rig.receive(&text(2, 2, TargetTransferTag::RESERVED, false, b"SendTargets=iqn.2026-01.test:other\0"));
    assert_eq!(rig.said(), ["text 1 F: SendTargets=Reject", "text 2 F: SendTargets=Reject"]);
    let questions = [
        (3, &b"SendTargets=\0"[..]),
        (4, b"SendTargets=iqn.2026-01.test:disk\0"),
        (5, b"SendTargets=iqn.2026-01.TEST:Disk\0"),
    ];
    for (tag, question) in questions {
        rig.receive(&text(tag, tag, TargetTransferTag::RESERVED, false, question));
        let own = SendTargets::Named("iqn.2026-01.test:disk".to_owned());
        let Some(Event::SendTargets { which, .. }) = rig.target.poll_event() else { panic!("the question was due") };
        assert_eq!(which, own);
    }
}

#[test]
fn text_may_come_in_parts_and_unknown_keys_are_not_understood() {
    let mut rig = Rig::new();
    rig.receive(&text(1, 1, TargetTransferTag::RESERVED, true, b"X-unkn"));
    let (header, data) = pdus(&rig.sent()).remove(0);
    assert_eq!((describe(&header, &data), header[1]), ("text 1: ".to_owned(), 0));
    let tag = TargetTransferTag(u32::from_be_bytes(header[20..24].try_into().unwrap()));
    rig.receive(&text(1, 2, tag, false, b"own=1\0MaxRecvDataSegmentLength=2048\0MaxBurstLength=512\0"));
    assert_eq!(rig.said(), ["text 1 F: X-unknown=NotUnderstood MaxBurstLength=Reject"]);
    rig.receive(&nop_out(5, 3, true, &pattern(5000)));
    assert_eq!(rig.said(), ["pong 5 len 2048 stat 3"], "the new MaxRecvDataSegmentLength holds");
}

#[test]
fn text_without_end_and_text_of_no_exchange_end_the_connection() {
    let mut rig = Rig::new();
    let mut tag = TargetTransferTag::RESERVED;
    for cmd_sn in 1..100 {
        rig.receive(&text(1, cmd_sn, tag, true, &[b'A'; 4096]));
        let Some((header, _)) = pdus(&rig.sent()).pop() else { break };
        tag = TargetTransferTag(u32::from_be_bytes(header[20..24].try_into().unwrap()));
    }
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::Violation(Violation::TextTooLong))]));
    let mut rig = Rig::new();
    rig.receive(&text(1, 1, TargetTransferTag(5), false, b""));
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::Violation(Violation::TransferTagUnknown))]));
}

#[test]
fn exchange_ends_when_the_initiator_says_so() {
    let mut rig = Rig::new();
    rig.receive(&open(1, 1, TargetTransferTag::RESERVED, b"X-one=1\0"));
    let (said, tag) = answer(&mut rig);
    assert_eq!(said, "text 1: X-one=NotUnderstood");
    assert!(!tag.is_reserved(), "there is a tag to go on with");
    rig.receive(&open(1, 2, tag, b"X-two=2\0"));
    assert_eq!(answer(&mut rig), ("text 1: X-two=NotUnderstood".to_owned(), tag));
    rig.receive(&text(1, 3, tag, false, b""));
    assert_eq!(answer(&mut rig), ("text 1 F: ".to_owned(), TargetTransferTag::RESERVED));
    rig.assert_idle();
}

#[test]
fn targets_are_named_before_the_initiator_ends_the_exchange() {
    let mut rig = Rig::with(config(), discovery());
    rig.receive(&open(1, 1, TargetTransferTag::RESERVED, b"SendTargets=All\0"));
    let Some(Event::SendTargets { task, .. }) = rig.target.poll_event() else { panic!("the question was due") };
    rig.target.respond_targets(task, &[]);
    let (said, tag) = answer(&mut rig);
    assert_eq!((said.as_str(), tag.is_reserved()), ("text 1: ", false));
    rig.receive(&text(1, 2, tag, false, b""));
    assert_eq!(answer(&mut rig), ("text 1 F: ".to_owned(), TargetTransferTag::RESERVED));
}

#[test]
fn what_an_exchange_declares_holds_when_it_is_over_and_not_before() {
    let mut rig = Rig::new();
    let declared = b"MaxRecvDataSegmentLength=2048\0";
    rig.receive(&open(1, 1, TargetTransferTag::RESERVED, declared));
    let (_, tag) = answer(&mut rig);
    rig.receive(&nop_out(5, 2, true, &pattern(5000)));
    assert_eq!(rig.said(), ["pong 5 len 1024 stat 2"]);
    // A new exchange ends the previous one, with its declarations.
    rig.receive(&text(2, 2, TargetTransferTag::RESERVED, false, b"X-one=1\0"));
    assert_eq!(rig.said(), ["text 2 F: X-one=NotUnderstood"]);
    rig.receive(&nop_out(5, 3, true, &pattern(5000)));
    assert_eq!(rig.said(), ["pong 5 len 1024 stat 4"]);
    rig.receive(&text(1, 3, tag, false, b""));
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::Violation(Violation::TransferTagUnknown))]));

    let mut rig = Rig::new();
    rig.receive(&open(1, 1, TargetTransferTag::RESERVED, declared));
    let (_, tag) = answer(&mut rig);
    rig.receive(&text(1, 2, tag, false, b""));
    assert_eq!(rig.said(), ["text 1 F: "]);
    rig.receive(&nop_out(5, 3, true, &pattern(5000)));
    assert_eq!(rig.said(), ["pong 5 len 2048 stat 3"]);
}

#[test]
fn same_tag_without_a_transfer_tag_begins_anew() {
    let mut rig = Rig::new();
    rig.receive(&text(1, 1, TargetTransferTag::RESERVED, true, b"X-half"));
    rig.sent();
    rig.receive(&text(1, 2, TargetTransferTag::RESERVED, false, b"X-whole=1\0"));
    assert_eq!(rig.said(), ["text 1 F: X-whole=NotUnderstood"]);
    rig.assert_idle();
}

#[test]
fn exchange_that_fails_ends_alone_and_changes_nothing() {
    let twice = b"MaxRecvDataSegmentLength=2048\0X-one=1\0X-one=2\0";
    let mut rig = Rig::new();
    rig.receive(&text(1, 1, TargetTransferTag::RESERVED, false, twice));
    assert_eq!(rig.said(), ["reject ProtocolError of 0x04"]);
    rig.assert_idle();
    rig.receive(&nop_out(5, 2, false, &pattern(5000)));
    assert_eq!(rig.said(), ["pong 5 len 1024 stat 2"], "its number counts, and nothing is changed");
    rig.receive(&open(1, 3, TargetTransferTag::RESERVED, b"X-one=1\0"));
    let (_, tag) = answer(&mut rig);
    rig.receive(&text(1, 4, tag, false, b"X-one=1\0"));
    assert_eq!(rig.said(), ["reject ProtocolError of 0x04"], "in another request, too");
    assert!(rig.events().is_empty());
}

#[test]
fn text_while_the_answer_goes_on_ends_the_exchange() {
    let mut rig = Rig::with(config(), Negotiated { peer_data_segment_bytes_max: 512, ..negotiated() });
    let keys: Vec<u8> = (0..40).flat_map(|n| format!("X-key{n}=1\0").into_bytes()).collect();
    rig.receive(&text(1, 1, TargetTransferTag::RESERVED, false, &keys));
    let (said, tag) = answer(&mut rig);
    assert!(said.starts_with("text 1 C: X-key0=NotUnderstood"), "{said}");
    rig.receive(&text(1, 2, tag, false, b"X-more=1\0"));
    assert_eq!(rig.said(), ["reject ProtocolError of 0x04"]);
    rig.assert_idle();
}

#[test]
fn exchange_that_has_no_end_is_bounded() {
    let mut rig = Rig::new();
    let mut tag = TargetTransferTag::RESERVED;
    for n in 1..300 {
        rig.receive(&open(1, n, tag, format!("X-key{n}=1\0").as_bytes()));
        let sent = rig.sent();
        let Some((header, _)) = pdus(&sent).pop().filter(|_| n <= 256) else { break };
        tag = TargetTransferTag(u32::from_be_bytes([header[20], header[21], header[22], header[23]]));
    }
    assert!(matches!(rig.events()[..], [Event::Closed(CloseReason::Violation(Violation::TooManyKeys))]));
}
