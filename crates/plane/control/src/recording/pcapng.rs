//! Writer of pcapng files of TCP connections. The payload is what was sent; the headers are synthesized around
//! it.
//!
//! *Source*: draft-ietf-opsawg-pcapng; link type 1 is Ethernet.

use etherparse::{PacketBuilder, PacketBuilderStep, TcpHeader};
use model::{Recorded, Wire, WireEnds};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const INTERFACE_STATISTICS: u32 = 5;

const COMMENT: u16 = 1;
const APPLICATION: u16 = 4;
const TIME_RESOLUTION: u16 = 9;
const PACKETS_RECEIVED: u16 = 4;
const PACKETS_DROPPED: u16 = 5;

/// Payload limit of one packet: an IP packet has at most 65,535 bytes.
const PAYLOAD_BYTES_MAX: usize = 32 << 10;
/// Locally administered MAC addresses of the initiator and of the array.
const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const HOPS: u8 = 64;
const WINDOW: u16 = u16::MAX;

const WHAT_IT_IS: &str = "The payload of TCP connections as the target received and sent it; Ethernet, IP and TCP headers were \
                          made for it. The digits of CHAP responses are zeros.";

/// Generator of the blocks of one file.
pub(super) struct Pcapng {
    /// Next TCP sequence numbers of each connection, of the initiator and of the array.
    connections: BTreeMap<(SocketAddr, SocketAddr), [u32; 2]>,
    packets: u64,
    bytes_left: u64,
}

/// Statistics from the end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Packets in the file.
    pub packets: u64,
    /// Receives and sends that are missing because they were not read in time.
    pub lost: u64,
}

/// Direction of a packet: from or to the initiator.
#[derive(Clone, Copy)]
enum Direction {
    In = 0,
    Out = 1,
}

impl Summary {
    /// Length of the last block of a file in bytes.
    pub const BYTES: usize = 52;

    /// Parses the statistics at the end of a file; `None` when it was cut short.
    #[must_use]
    pub fn of(end: &[u8]) -> Option<Self> {
        let block = end.last_chunk::<{ Self::BYTES }>()?;
        let number = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
        // Offsets of the counters: 20 bytes of header and time, then 4 bytes of header before each option
        // value.
        let summary = Self { packets: number(24)?, lost: number(36)? };
        // The time is unknown and irrelevant, so the block is compared without it.
        let mut same = summary.block(0);
        same[12..20].copy_from_slice(&block[12..20]);
        (same == block).then_some(summary)
    }

    fn block(self, at_ns: u64) -> Vec<u8> {
        let mut body = 0u32.to_le_bytes().to_vec();
        body.extend(time(at_ns));
        option(&mut body, PACKETS_RECEIVED, &self.packets.to_le_bytes());
        option(&mut body, PACKETS_DROPPED, &self.lost.to_le_bytes());
        block(INTERFACE_STATISTICS, body)
    }
}

impl Pcapng {
    /// Starts a file of at most `bytes_max`, and returns its first blocks.
    pub(super) fn begin(bytes_max: u64) -> (Self, Vec<u8>) {
        // Byte-order magic, version 1.0, unknown section length (-1).
        let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend((-1i64).to_le_bytes());
        option(&mut section, COMMENT, WHAT_IT_IS.as_bytes());
        option(&mut section, APPLICATION, concat!("Blockyard ", env!("CARGO_PKG_VERSION")).as_bytes());
        // Link type 1 (Ethernet), packets of any length.
        let mut interface = vec![1, 0, 0, 0, 0, 0, 0, 0];
        // Timestamps count in units of 10^-9 s.
        option(&mut interface, TIME_RESOLUTION, &[9]);
        let mut blocks = block(SECTION_HEADER, section);
        blocks.extend(block(INTERFACE_DESCRIPTION, interface));
        // Room for the last block is reserved, so a full file still ends with its statistics.
        let bytes_left = bytes_max.saturating_sub((blocks.len() + Summary::BYTES) as u64);
        (Self { connections: BTreeMap::new(), packets: 0, bytes_left }, blocks)
    }

    /// Returns the blocks for a recorded piece; `None` when the file would exceed its limit.
    pub(super) fn blocks(&mut self, recorded: &Recorded) -> Option<Vec<u8>> {
        let packets = self.packets;
        let blocks = self.make(recorded);
        match self.bytes_left.checked_sub(blocks.len() as u64) {
            Some(left) => self.bytes_left = left,
            None => {
                // The packets of a refused piece are not in the file.
                self.packets = packets;
                return None;
            }
        }
        Some(blocks)
    }

    fn make(&mut self, recorded: &Recorded) -> Vec<u8> {
        let WireEnds { initiator, portal } = recorded.ends;
        // A connection that was open before the recording has no handshake here.
        let next = self.connections.entry((initiator, portal)).or_insert([1, 1]);
        let line = Endpoints { initiator, portal, at_ns: recorded.at_ns };
        let mut blocks = Vec::new();
        match &recorded.what {
            Wire::Opened => {
                // Only payload is recorded, so the three-way handshake is synthesized.
                // A SYN takes one sequence number, so the payload begins at 1 (RFC 9293 §3.4).
                *next = [1, 1];
                line.packet(&mut blocks, Direction::In, [0, 0], &[], |tcp| tcp.syn());
                line.packet(&mut blocks, Direction::Out, [1, 0], &[], |tcp| tcp.syn().ack(1));
                line.packet(&mut blocks, Direction::In, [1, 1], &[], |tcp| tcp.ack(1));
                self.packets += 3;
            }
            Wire::Moved { from_initiator, bytes_lost, bytes } => {
                let way = if *from_initiator { Direction::In } else { Direction::Out };
                let here = way as usize;
                // Lost bytes advance the sequence number, so Wireshark reports a gap. Sequence numbers wrap.
                next[here] = next[here].wrapping_add(*bytes_lost as u32);
                for payload in bytes.chunks(PAYLOAD_BYTES_MAX) {
                    let acknowledged = next[1 - here];
                    line.packet(&mut blocks, way, *next, payload, |tcp| tcp.ack(acknowledged).psh());
                    next[here] = next[here].wrapping_add(payload.len() as u32);
                    self.packets += 1;
                }
            }
            Wire::Closed => {
                let next = *next;
                line.packet(&mut blocks, Direction::Out, next, &[], |tcp| tcp.ack(next[0]).fin());
                self.packets += 1;
                // A later connection of the same ports starts anew.
                self.connections.remove(&(initiator, portal));
            }
        }
        blocks
    }

    /// Returns the last block of the file.
    pub(super) fn end(&self, at_ns: u64, lost: u64) -> Vec<u8> {
        Summary { packets: self.packets, lost }.block(at_ns)
    }
}

/// Endpoints of a packet, and its time.
struct Endpoints {
    initiator: SocketAddr,
    portal: SocketAddr,
    at_ns: u64,
}

impl Endpoints {
    /// Appends a packet with the next sequence numbers `next`.
    fn packet(
        &self,
        blocks: &mut Vec<u8>,
        way: Direction,
        next: [u32; 2],
        payload: &[u8],
        flags: impl FnOnce(PacketBuilderStep<TcpHeader>) -> PacketBuilderStep<TcpHeader>,
    ) {
        let (from, to) = match way {
            Direction::In => (self.initiator, self.portal),
            Direction::Out => (self.portal, self.initiator),
        };
        let here = way as usize;
        let ethernet = PacketBuilder::ethernet2(MAC[here], MAC[1 - here]);
        // Where only one side is IPv4, both are written as IPv6.
        let ip = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), HOPS),
            (from, to) => ethernet.ipv6(wide(from).octets(), wide(to).octets(), HOPS),
        };
        let tcp = flags(ip.tcp(from.port(), to.port(), next[here], WINDOW));
        let mut frame = Vec::with_capacity(tcp.size(payload.len()));
        tcp.write(&mut frame, payload).expect("a vector takes every packet that is not too long");
        // The index of the interface, which is the only one.
        let mut body = 0u32.to_le_bytes().to_vec();
        body.extend(time(self.at_ns));
        let len = u32::try_from(frame.len()).expect("packets are short").to_le_bytes();
        // Captured and original length: packets are never cut.
        body.extend([len, len].as_flattened());
        body.extend(frame);
        pad(&mut body);
        blocks.extend(block(ENHANCED_PACKET, body));
    }
}

fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// Encodes a timestamp as pcapng does: the upper half first.
fn time(at_ns: u64) -> [u8; 8] {
    at_ns.rotate_left(32).to_le_bytes()
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let len = u16::try_from(value.len()).expect("options are short");
    body.extend(code.to_le_bytes());
    body.extend(len.to_le_bytes());
    body.extend(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

/// Frames a block; every block but a packet has options, which are terminated here.
fn block(kind: u32, mut body: Vec<u8>) -> Vec<u8> {
    if kind != ENHANCED_PACKET {
        // Option code 0 with length 0 ends the options.
        body.extend([0; 4]);
    }
    let len = u32::try_from(body.len() + 12).expect("blocks are short").to_le_bytes();
    let mut block = kind.to_le_bytes().to_vec();
    block.extend(len);
    block.extend(body);
    // At both ends, so that readers can step backward.
    block.extend(len);
    block
}

#[cfg(test)]
mod tests;
