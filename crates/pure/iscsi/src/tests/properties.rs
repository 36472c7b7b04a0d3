//! Properties: the split of a stream does not matter, and no byte stream does harm.

use super::rig::*;
use crate::pdu::{CmdSn, StatSn, TargetTransferTag, TaskFunction, TaskFunctionOutcome};
use crate::target::{Event, Response};
use crate::{Negotiated, initiator};
use block::Buf;
use proptest::prelude::*;
use shard::Time;
use std::rc::Rc;

/// A session of requests that need no intermediate response: their content is known in advance.
fn script() -> Vec<u8> {
    let announced = Shape { is_final: false, ..writes(2000) };
    let unsolicited = |data_sn, offset, is_final| Out {
        tag: 3,
        transfer_tag: TargetTransferTag::RESERVED,
        lun: LUN,
        data_sn,
        offset,
        is_final,
    };
    [
        command(1, 1, reads(300), &[]),
        command(2, 2, writes(20_000), &pattern(20_000)),
        command(3, 3, announced, &pattern(100)),
        nop_out(50, 4, true, b"ping"),
        data_out(unsolicited(0, 100, false), &pattern(900)),
        data_out(unsolicited(1, 1000, true), &pattern(1000)),
        manage(60, 4, TaskFunction::AbortTask, 1, 1),
        command(4, 5, reads(3000), &[]),
        command(5, 4, NONE, &[]),
        nop_out(51, 6, false, &pattern(3000)),
    ]
    .concat()
}

fn generous() -> Rig {
    let agreed = Negotiated { initial_r2t: false, first_burst_bytes_max: 64 << 10, ..negotiated() };
    Rig::with(crate::target::Config { commands_max: 16, ..config() }, agreed)
}

/// A driver that answers at once: returns the events seen and the PDUs sent.
fn drive(rig: &mut Rig, seen: &mut Vec<String>, said: &mut Vec<u8>) {
    for event in rig.events() {
        seen.push(format!("{event:?}"));
        match event {
            Event::Command(command) => {
                let data = pattern(command.expected_data_in_bytes as usize % 10_000);
                rig.respond(command.task, Response::good(Buf::copy_of(&data).into()));
            }
            Event::TaskManagement(request) => {
                rig.target.respond_task_management(request.task, TaskFunctionOutcome::Complete);
            }
            Event::SendTargets { task, .. } => rig.target.respond_targets(task, &[]),
            Event::Login(_)
            | Event::Authenticated
            | Event::FullFeature(_)
            | Event::CommandsLost(_)
            | Event::Closed(_) => {}
        }
    }
    said.extend(rig.sent());
}

/// Runs the bytes in pieces of the given sizes; events are listed with data, but without memory addresses.
fn run(bytes: &[u8], cuts: &[usize]) -> (Vec<String>, Vec<u8>) {
    let mut rig = generous();
    let (mut seen, mut said) = (Vec::new(), Vec::new());
    let mut cuts = cuts.iter().cycle();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rest.len().min(*cuts.next().expect("endless")));
        rig.receive(now);
        drive(&mut rig, &mut seen, &mut said);
        rest = later;
    }
    (seen, said)
}

#[test]
fn connection_closed_at_every_byte_leaves_nothing() {
    let script = script();
    for end in 0..script.len() {
        let mut rig = generous();
        rig.receive(&script[..end]);
        rig.target.handle_peer_closed(0);
        let events = rig.events();
        assert!(matches!(events.last(), Some(Event::Closed(_))), "{end}");
        assert_eq!(events.iter().filter(|event| matches!(event, Event::Closed(_))).count(), 1);
        rig.assert_idle();
        assert!(rig.target.buffer_bytes() < 8192);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_cut_of_the_stream_gives_the_same_events_and_answers(cuts in prop::collection::vec(1usize..3000, 1..30)) {
        // Responses that depend on the progress of the stream (a task aborted before or after its response) are
        // excluded by answering at the end only.
        let script = script();
        let collect = |cuts: &[usize]| {
            let mut rig = generous();
            let mut rest = &script[..];
            let mut cuts = cuts.iter().cycle();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(*cuts.next().expect("endless")));
                rig.receive(now);
                rest = later;
            }
            let events: Vec<String> = rig.events().iter().map(seen).collect();
            (events, rig.sent())
        };
        prop_assert_eq!(collect(&cuts), collect(&[usize::MAX]));
    }

    #[test]
    fn any_mutation_of_the_stream_does_no_harm(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cuts in prop::collection::vec(1usize..3000, 1..10),
    ) {
        let mut script = script();
        for (at, value) in changes {
            let at = at.index(script.len());
            script[at] = value;
        }
        let (seen, said) = run(&script, &cuts);
        prop_assert!(seen.len() < 100 && said.len() < 1 << 20);
    }

    #[test]
    fn any_headers_in_any_order_do_no_harm(
        headers in prop::collection::vec((any::<[u8; 48]>(), 0u8..8, any::<bool>()), 1..40),
    ) {
        const OPCODES: [u8; 8] = [0, 1, 2, 4, 5, 6, 0x10, 0x3f];
        let mut bytes = Vec::new();
        for (mut header, opcode, immediate) in headers {
            header[0] = OPCODES[usize::from(opcode)] | u8::from(immediate) << 6;
            // Small segments and numbers, so that most PDUs pass validation.
            header[4..7].fill(0);
            header[7] &= 0x1c;
            header[16..19].fill(0);
            header[19] &= 3;
            header[24..27].fill(0);
            header[27] &= 15;
            let data = vec![header[40]; usize::from(header[7])];
            bytes.extend(pdu(header, &data));
        }
        run(&bytes, &[usize::MAX]);
    }

    #[test]
    fn initiator_survives_any_bytes_of_a_target(
        headers in prop::collection::vec((any::<[u8; 48]>(), 0u8..10), 1..40), cut in 1usize..200,
    ) {
        const OPCODES: [u8; 10] = [0x20, 0x21, 0x22, 0x24, 0x25, 0x25, 0x26, 0x31, 0x32, 0x3f];
        let mut initiator = initiator::Connection::in_full_feature(
            Rc::new(initiator_config()),
            negotiated(),
            CmdSn(16),
            StatSn(1),
            Time(0),
        );
        for _ in 0..4 {
            let command = initiator::Command {
                lun: LUN,
                cdb: smallvec::SmallVec::from([0; 16]),
                attribute: crate::pdu::TaskAttribute::Simple,
                data_out: Some(Buf::zeroed(8192).into()),
                data_in: initiator::DataIn::Into(Buf::zeroed(20_000)),
            };
            initiator.submit(command).expect("full feature phase, and room");
        }
        let mut stat_sn = 1;
        let mut bytes = Vec::new();
        for (mut header, opcode) in headers {
            header[0] = OPCODES[usize::from(opcode)];
            header[4..6].fill(0);
            header[6] &= 0x3f;
            header[16..19].fill(0);
            header[19] &= 3;
            header[24..28].copy_from_slice(&u32::to_be_bytes(stat_sn));
            header[36..43].fill(0);
            header[44..46].fill(0);
            stat_sn += u32::from(header[47] & 1);
            let len = usize::from(u16::from_be_bytes([header[6], header[7]]));
            bytes.extend(pdu(header, &vec![7; len]));
        }
        for piece in bytes.chunks(cut) {
            let mut piece = piece;
            while !piece.is_empty() {
                let space = initiator.receive_into();
                if space.is_empty() {
                    break;
                }
                let len = space.len().min(piece.len());
                space[..len].copy_from_slice(&piece[..len]);
                initiator.handle_received(len, Time(0));
                piece = &piece[len..];
            }
            while initiator.poll_event().is_some() {}
        }
    }
}

fn seen(event: &Event) -> String {
    match event {
        Event::Command(command) => {
            let crc = simd::crc32c::crc32c(&command.data_out);
            format!("{:?} {} {crc:08x}", command.task, command.cdb[0])
        }
        other => format!("{other:?}"),
    }
}
