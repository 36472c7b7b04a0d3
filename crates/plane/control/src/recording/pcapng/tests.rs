use super::*;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};

fn recorded(ends: WireEnds, what: Wire) -> Recorded {
    Recorded { at_ns: 0x0102_0304_0506_0708, ends, what }
}

fn moved(from_initiator: bool, bytes_lost: u64, bytes: &[u8]) -> Wire {
    Wire::Moved { from_initiator, bytes_lost, bytes: bytes.to_vec() }
}

fn ends(initiator: &str, portal: &str) -> WireEnds {
    WireEnds { initiator: initiator.parse().expect("an address"), portal: portal.parse().expect("an address") }
}

/// Splits a file into the types and bodies of its blocks.
fn cut(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: &[u8]| u32::from_le_bytes(at[..4].try_into().expect("four bytes"));
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let len = word(&bytes[4..]) as usize;
        let (block, rest) = bytes.split_at(len);
        assert_eq!((word(&block[len - 4..]) as usize, len % 4), (len, 0));
        blocks.push((word(block), &block[8..len - 4]));
        bytes = rest;
    }
    blocks
}

/// Parses a packet with valid checksums: source port, sequence number, acknowledgment, payload and flags (SYN,
/// FIN, PSH).
fn packet(body: &[u8]) -> (u16, u32, u32, Vec<u8>, [bool; 3]) {
    let packet = SlicedPacket::from_ethernet(&body[20..]).expect("a packet");
    let Some(TransportSlice::Tcp(tcp)) = &packet.transport else { panic!("it is TCP") };
    let sum = match &packet.net {
        Some(NetSlice::Ipv4(ip)) => {
            assert_eq!(ip.header().to_header().calc_header_checksum(), ip.header().header_checksum());
            tcp.calc_checksum_ipv4(ip.header().source(), ip.header().destination())
        }
        Some(NetSlice::Ipv6(ip)) => tcp.calc_checksum_ipv6(ip.header().source(), ip.header().destination()),
        other => panic!("{other:?} is not IP"),
    };
    assert_eq!(sum.expect("short"), tcp.checksum());
    let flags = [tcp.syn(), tcp.fin(), tcp.psh()];
    (tcp.source_port(), tcp.sequence_number(), tcp.acknowledgment_number(), tcp.payload().to_vec(), flags)
}

#[test]
fn file_begins_and_ends_as_pcapng_asks() {
    let (file, blocks) = Pcapng::begin(1 << 20);
    let blocks = cut(&blocks);
    assert_eq!(blocks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [SECTION_HEADER, INTERFACE_DESCRIPTION]);
    assert_eq!(blocks[0].1[..8], [0x4d, 0x3c, 0x2b, 0x1a, 1, 0, 0, 0]);
    assert_eq!(blocks[1].1, [1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    let end = file.end(7, 3);
    assert_eq!((cut(&end)[0].0, end.len()), (INTERFACE_STATISTICS, Summary::BYTES));
    assert_eq!(Summary::of(&[&[9, 9][..], &end].concat()), Some(Summary { packets: 0, lost: 3 }));
    assert_eq!(Summary::of(&end[1..]), None);
    assert_eq!(Summary::of(&[0; Summary::BYTES]), None);
}

#[test]
fn connection_is_made_of_numbered_packets_with_right_checksums() {
    for ends in [ends("10.0.0.7:40000", "10.0.0.1:3260"), ends("[fd00::7]:40000", "[fd00::1]:3260")] {
        let mut file = Pcapng::begin(1 << 20).0;
        let mut blocks = file.blocks(&recorded(ends, Wire::Opened)).expect("room");
        blocks.extend(file.blocks(&recorded(ends, moved(true, 0, b"ask"))).expect("room"));
        blocks.extend(file.blocks(&recorded(ends, moved(false, 0, b"answer"))).expect("room"));
        blocks.extend(file.blocks(&recorded(ends, Wire::Closed)).expect("room"));
        let packets: Vec<_> = cut(&blocks).iter().map(|(_, body)| packet(body)).collect();
        let (nothing, syn, fin, psh, ack) =
            (Vec::new(), [true, false, false], [false, true, false], [false, false, true], [false; 3]);
        assert_eq!(
            packets,
            [
                (40000, 0, 0, nothing.clone(), syn),
                (3260, 0, 1, nothing.clone(), syn),
                (40000, 1, 1, nothing.clone(), ack),
                (40000, 1, 1, b"ask".to_vec(), psh),
                (3260, 1, 4, b"answer".to_vec(), psh),
                (3260, 7, 4, nothing, fin),
            ]
        );
        assert_eq!(cut(&blocks)[0].1[4..12], [0x04, 0x03, 0x02, 0x01, 0x08, 0x07, 0x06, 0x05], "the higher half first");
        assert_eq!(Summary::of(&file.end(0, 0)).map(|end| end.packets), Some(6));
    }
}

#[test]
fn what_was_lost_is_a_gap_and_what_is_long_is_cut() {
    let ends = ends("10.0.0.7:40000", "10.0.0.1:3260");
    let mut file = Pcapng::begin(1 << 20).0;
    let mut blocks = file.blocks(&recorded(ends, moved(false, 0, &[7; PAYLOAD_BYTES_MAX + 5]))).expect("room");
    blocks.extend(file.blocks(&recorded(ends, moved(false, 1000, b"x"))).expect("room"));
    let sizes = cut(&blocks)
        .into_iter()
        .map(|(_, body)| packet(body))
        .map(|(_, sequence, _, payload, _)| (sequence, payload.len()));
    let chunk = PAYLOAD_BYTES_MAX as u32;
    assert_eq!(sizes.collect::<Vec<_>>(), [(1, PAYLOAD_BYTES_MAX), (1 + chunk, 5), (1006 + chunk, 1)]);
}

#[test]
fn file_is_no_longer_than_it_may_be() {
    let ends = ends("10.0.0.7:40000", "10.0.0.1:3260");
    let (mut file, mut bytes) = Pcapng::begin(700);
    while let Some(blocks) = file.blocks(&recorded(ends, moved(true, 0, &[7; 16]))) {
        bytes.extend(blocks);
    }
    let end = file.end(0, 0);
    assert_eq!(Summary::of(&end).map(|end| end.packets), Some(cut(&bytes).len() as u64 - 2));
    assert!((600..=700).contains(&(bytes.len() + end.len())), "{} bytes", bytes.len() + end.len());
}
