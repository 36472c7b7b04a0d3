//! Recorded traffic, decoded: packets, then PDUs.

use crate::array::{OPEN, portal};
use crate::host::{Host, Login};
use crate::node::{Node, furnished};
use crate::{play, sessions_of};
use control::Summary;
use control::request::Record;
use etherparse::{SlicedPacket, TransportSlice};
use iscsi::pdu::{BHS_BYTES, Bhs, InitiatorPdu, Opcode, Residual, SegmentLengths, TargetPdu};
use model::{Recordable, Recordings, Size, Span, Wire, code};
use shard::World;
use sim::Sim;
use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

/// PDU without digests: header and data.
type Pdu = (Bhs, Vec<u8>);

/// Decodes the PDUs of one direction, which must be complete.
fn pdus(mut stream: &[u8]) -> Vec<Pdu> {
    let mut all = Vec::new();
    while let Some((header, behind)) = stream.split_first_chunk::<BHS_BYTES>() {
        let lengths = SegmentLengths::parse(header);
        let (data, after) = behind[lengths.ahs_bytes..].split_at(lengths.padded_data_bytes());
        all.push((*header, data[..lengths.data_bytes].to_vec()));
        stream = after;
    }
    assert!(stream.is_empty(), "{} bytes are left", stream.len());
    all
}

fn opcodes(pdus: &[Pdu]) -> Vec<Opcode> {
    pdus.iter().map(|(header, _)| Opcode::of(header).unwrap()).collect()
}

/// Returns the PDUs of both directions of all connections, in the order in which they were opened.
fn told(recordings: &Recordings) -> Vec<[Vec<Pdu>; 2]> {
    let mut streams: BTreeMap<_, [Vec<u8>; 2]> = BTreeMap::new();
    for piece in &recordings.pieces {
        let [heard, said] = streams.entry(piece.ends.initiator).or_default();
        if let Wire::Moved { from_initiator, bytes, .. } = &piece.what {
            if *from_initiator { heard } else { said }.extend(bytes);
        }
    }
    streams.into_values().map(|streams| streams.map(|stream| pdus(&stream))).collect()
}

/// Returns the whole file, when the recording has ended.
async fn file(node: &Node, asked: Record) -> Vec<u8> {
    let mut recording = node.control.sessions.record(asked).await.unwrap();
    let mut file = Vec::new();
    while let Some(bytes) = recording.next().await {
        file.extend(bytes);
    }
    file
}

/// Counts the PDUs in a file and the gaps between them, according to its packets.
fn pdus_in_file(file: &[u8]) -> (usize, usize) {
    let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let (mut at, mut gaps, mut streams) = (0, 0, BTreeMap::<_, (u32, Vec<u8>)>::new());
    while at < file.len() {
        if word(at) == 6 {
            let frame = &file[at + 28..at + 28 + word(at + 20) as usize];
            let Some(TransportSlice::Tcp(tcp)) = SlicedPacket::from_ethernet(frame).unwrap().transport else {
                panic!()
            };
            let sequence = tcp.sequence_number();
            let (next, stream) =
                streams.entry((tcp.source_port(), tcp.destination_port())).or_insert((sequence, Vec::new()));
            assert!(sequence >= *next, "{sequence} behind {next}");
            gaps += usize::from(sequence > *next);
            *next = sequence + tcp.payload().len() as u32 + u32::from(tcp.syn());
            stream.extend(tcp.payload());
        }
        at += word(at + 4) as usize;
    }
    (streams.values().map(|(_, stream)| pdus(stream).len()).sum(), gaps)
}

#[test]
fn recording_of_an_address_begins_with_the_login_and_holds_every_pdu_but_no_proof() {
    play(31, async |sim, array| {
        let number = array.record(Recordable::From("10.0.0.1".parse().unwrap()), Duration::from_secs(9)).await.unwrap();
        let mut host = Host::login(sim, &Login::of("web", 0)).await;
        host.take_attention().await;
        for block in 0..5 {
            host.write(block, 0x40 + block as u8).await;
            assert_eq!(host.read(block).await, [0x40 + block as u8; 512]);
        }
        drop(host);
        Host::refused(sim, &Login { host: "stranger", ..Login::of(OPEN, 0) }).await;
        sim.sleep(Duration::from_secs(1)).await;
        let recordings = array.stop_recording(number).await;
        assert_eq!((recordings.is_over, recordings.lost), (true, 0));
        let ends = |what: Wire| recordings.pieces.iter().filter(|piece| piece.what == what).count();
        assert_eq!((ends(Wire::Opened), ends(Wire::Closed)), (2, 2));
        let [[theirs, ours], stranger] = &told(&recordings)[..] else { panic!("two connections") };
        let (logins, commands) = opcodes(theirs).into_iter().partition::<Vec<_>, _>(|it| *it == Opcode::LoginRequest);
        assert!(logins.len() >= 3 && commands == [Opcode::ScsiCommand; 11], "{logins:?} {commands:?}");
        assert!(theirs.iter().all(|(header, _)| InitiatorPdu::parse(header).is_ok()));
        assert!(ours.iter().all(|(header, _)| TargetPdu::parse(header).is_ok()));
        assert_eq!(
            (opcodes(&stranger[0]), opcodes(&stranger[1])),
            (vec![Opcode::LoginRequest], vec![Opcode::LoginResponse])
        );
        let read = ours.iter().filter(|(header, _)| Opcode::of(header) == Ok(Opcode::DataIn));
        assert_eq!(read.map(|(_, data)| data[0]).collect::<Vec<_>>(), [0x40, 0x41, 0x42, 0x43, 0x44]);
        for way in [theirs, ours] {
            let text: String = way.iter().map(|(_, data)| String::from_utf8_lossy(data).into_owned()).collect();
            let proof = text.split('\0').find_map(|pair| pair.strip_prefix("CHAP_R=0x")).unwrap();
            assert!(proof.len() >= 32 && proof.bytes().all(|digit| digit == b'0'), "{proof}");
        }
    });
}

#[test]
fn recording_of_a_session_has_all_of_its_connections_and_ends_with_it() {
    play(32, async |sim, array| {
        let login = Login::of(OPEN, 1);
        let mut first = Host::login(sim, &login).await;
        first.take_attention().await;
        let mut other = Host::login(sim, &Login::of(OPEN, 2)).await;
        other.take_attention().await;
        let id = sessions_of(array, &login.initiator()).await[0].id;
        let number = array.record(Recordable::Session(id), Duration::from_secs(9)).await.unwrap();
        first.write(3, 0x5a).await;
        other.write(9, 0x11).await;
        let mut second = first.another(&login, 1, 3, portal()).await.unwrap();
        assert_eq!(second.read(3).await, [0x5a; 512]);
        drop((first, second));
        while sessions_of(array, &login.initiator()).await.len() > 1 {}
        let recordings = array.next_recorded(number).await;
        assert!(recordings.is_over);
        let ways: Vec<_> = told(&recordings).iter().map(|ways| ways.each_ref().map(|way| opcodes(way))).collect();
        let [written, [asked, answered]] = &ways[..] else { panic!("two connections: {ways:?}") };
        assert_eq!(*written, [vec![Opcode::ScsiCommand], vec![Opcode::ScsiResponse]]);
        assert_eq!((&asked[..], answered.last()), (&[Opcode::ScsiCommand][..], Some(&Opcode::DataIn)), "{answered:?}");
        array.stop_recording(number).await;
    });
}

/// Data beyond the CDB's length is the residual and is not solicited, wherever the unit has its home shard, and without
/// a unit.
#[test]
fn surplus_of_a_write_is_not_asked_for() {
    const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    const VERIFY_WITHOUT_DATA: [u8; 10] = [0x2f, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    const WRITE_SAME_WITHOUT_DATA: [u8; 16] = [0x93, 1, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0];
    play(36, async |sim, array| {
        let mut host = Host::login(sim, &Login { unasked: false, ..Login::of(OPEN, 1) }).await;
        for lun in [0, 1] {
            host.address(lun);
            host.take_attention().await;
        }
        let id = array.sessions().await[0].id;
        let rows = [(&WRITE[..], 512), (&VERIFY_WITHOUT_DATA, 0), (&WRITE_SAME_WITHOUT_DATA, 0)];
        for (lun, (cdb, takes)) in [0, 1, 77].into_iter().flat_map(|lun| rows.map(|row| (lun, row))) {
            let (status, takes) = if lun == 77 { (2, 0) } else { (0, takes) };
            let number = array.record(Recordable::Session(id), Duration::from_secs(9)).await.unwrap();
            host.address(lun);
            let answer = host.residual_of_data(cdb, &[0x77; 8192]).await;
            assert_eq!(answer, (status, Residual::Underflow(8192 - takes)), "unit {lun}, {cdb:x?}");
            let [[_, ours]] = &told(&array.stop_recording(number).await)[..] else { panic!("one connection") };
            let asked: Vec<_> = ours.iter().filter_map(|(header, _)| asked_for(header)).collect();
            assert_eq!(asked, if takes > 0 { vec![(0, takes)] } else { vec![] }, "unit {lun}, {cdb:x?}");
        }
        for lun in [0, 1] {
            host.address(lun);
            assert_eq!(host.read(0).await, [0x77; 512]);
        }
    });
}

/// Returns offset and length of an R2T.
fn asked_for(header: &Bhs) -> Option<(u32, u32)> {
    match TargetPdu::parse(header) {
        Ok(TargetPdu::R2t(r2t)) => Some((r2t.buffer_offset_bytes, r2t.desired_data_transfer_bytes)),
        _ => None,
    }
}

#[test]
fn recordings_have_a_bound_and_end_in_time() {
    play(33, async |sim, array| {
        let all = Recordable::From("0.0.0.0/0".parse().unwrap());
        let (begun, mut numbers) = (sim.now(), Vec::new());
        let refused = loop {
            match array.record(all, Duration::from_secs(2)).await {
                Ok(number) => numbers.push(number),
                Err(refusal) => break refusal,
            }
        };
        assert_eq!((numbers.len(), refused.code), (4, code::LIMIT_REACHED));
        assert_eq!(
            array.record(Recordable::Session(99), Duration::ZERO).await.unwrap_err().code,
            code::SESSION_UNKNOWN
        );
        assert_eq!(array.next_recorded(numbers[0]).await, Recordings { is_over: true, ..Recordings::default() });
        assert_eq!(sim.now().since(begun).as_secs(), 2);
        array.stop_recording(numbers[0]).await;
        assert!(array.record(all, Duration::ZERO).await.is_ok(), "there is room for another");
    });
}

/// A recording that is not fetched blocks no host, and continues with a complete PDU.
#[test]
fn recording_that_nobody_reads_loses_what_it_cannot_hold_and_goes_on() {
    Sim::new(34).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 1).await;
        let id = node.control.sessions.list().await.unwrap()[0].id;
        let mut recording =
            node.control.sessions.record(Record { session: Some(id), ..Record::default() }).await.unwrap();
        let mut file = recording.next().await.unwrap();
        for _ in 0..13_000 {
            host.read(0).await;
        }
        file.extend(recording.next().await.unwrap());
        for _ in 0..100 {
            host.read(0).await;
        }
        while let Some(bytes) = recording.next().await {
            file.extend(bytes);
        }
        let summary = Summary::of(&file).unwrap();
        assert!(summary.lost > 1000 && summary.packets > 8000, "{summary:?}");
        let (pdus, gaps) = pdus_in_file(&file);
        assert!(gaps == 2 && pdus > 8200, "each direction goes on: {gaps} gaps, {pdus} PDUs");
    });
}

#[test]
fn file_of_a_recording_is_whole_and_other_people_understand_it() {
    Sim::new(35).run(async move |sim| {
        let (node, mut host) = furnished(&sim, 2).await;
        let hosts = sim.clone();
        sim.spawn(async move {
            for block in 0..9 {
                host.write(block, 7).await;
                host.read(block).await;
            }
            let mut again = Host::login(&hosts, &Login::of(OPEN, 3)).await;
            again.take_attention().await;
            hosts.sleep(Duration::from_secs(5)).await;
        });
        let from = Some("10.0.0.1".parse().unwrap());
        let time = Some(Span::from_millis(4000));
        let whole = file(&node, Record { from, time, ..Record::default() }).await;
        assert_eq!(Summary::of(&whole).unwrap().lost, 0);
        let (pdus, gaps) = pdus_in_file(&whole);
        assert!(pdus > 40 && gaps == 0, "{pdus} PDUs, {gaps} gaps");
        understood_by_tshark(&whole, pdus);
        let short = Record { from, bytes_max: Some(Size::new(2000)), time, ..Record::default() };
        let short = file(&node, short).await;
        assert!(short.len() <= 2000 && Summary::of(&short).is_some());
    });
}

/// Requires that tshark, if installed, finds these PDUs without errors.
fn understood_by_tshark(file: &[u8], pdus: usize) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("it.pcapng");
    std::fs::write(&path, file).unwrap();
    let run = |arguments: &[&str]| {
        let output = Command::new("tshark")
            .arg("-r")
            .arg(&path)
            .args(["-o", "tcp.check_checksum:TRUE"])
            .args(arguments)
            .output();
        output.ok().map(|output| String::from_utf8(output.stdout).unwrap())
    };
    let Some(opcodes) = run(&["-T", "fields", "-E", "occurrence=a", "-e", "iscsi.opcode"]) else {
        return eprintln!("tshark is not installed: nobody else has looked at the file");
    };
    assert_eq!(opcodes.split_whitespace().flat_map(|line| line.split(',')).count(), pdus, "{opcodes}");
    let wrong = "_ws.malformed || tcp.analysis.flags || tcp.checksum.status == Bad || _ws.expert.severity >= error";
    assert_eq!(run(&["-Y", wrong]).unwrap(), "");
}
