//! A pcapng file of TCP connections, as a sniffer would have written it: the payload is what was sent, the headers are made for it.
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

/// The most payload of one packet: an IP packet has 65,535 bytes.
const PAYLOAD_BYTES_MAX: usize = 32 << 10;
/// Addresses that nobody has, of the initiator and of ours.
const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
const HOPS: u8 = 64;
const WINDOW: u16 = u16::MAX;

const WHAT_IT_IS: &str = "The payload of TCP connections as the target received and sent it; Ethernet, IP and TCP headers were \
                          made for it. The digits of CHAP responses are zeros.";

/// Makes the blocks of one file.
pub(super) struct Pcapng {
    /// Of each connection the next sequence numbers, of the initiator and ours.
    connections: BTreeMap<(SocketAddr, SocketAddr), [u32; 2]>,
    packets: u64,
    bytes_left: u64,
}

/// What the end of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Packets in the file.
    pub packets: u64,
    /// Receives and sends that are not in it, because nobody took them in time.
    pub lost: u64,
}

/// One direction of a connection.
#[derive(Clone, Copy)]
enum Way {
    In = 0,
    Out = 1,
}

impl Summary {
    /// The bytes of the last block of a file.
    pub const BYTES: usize = 52;

    /// What a file says that ends with these bytes; nothing when it was cut short.
    #[must_use]
    pub fn of(end: &[u8]) -> Option<Self> {
        let block = end.last_chunk::<{ Self::BYTES }>()?;
        let number = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
        let summary = Self { packets: number(24)?, lost: number(36)? };
        // The time is not known, and is no matter.
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
    /// A file of so many bytes at most, and its first blocks.
    pub(super) fn begin(bytes_max: u64) -> (Self, Vec<u8>) {
        let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
        section.extend([1, 0, 0, 0]);
        section.extend((-1i64).to_le_bytes());
        option(&mut section, COMMENT, WHAT_IT_IS.as_bytes());
        option(&mut section, APPLICATION, concat!("Blockyard ", env!("CARGO_PKG_VERSION")).as_bytes());
        let mut interface = vec![1, 0, 0, 0, 0, 0, 0, 0];
        // Ten to the power of minus nine.
        option(&mut interface, TIME_RESOLUTION, &[9]);
        let mut blocks = block(SECTION_HEADER, section);
        blocks.extend(block(INTERFACE_DESCRIPTION, interface));
        let bytes_left = bytes_max.saturating_sub((blocks.len() + Summary::BYTES) as u64);
        (Self { connections: BTreeMap::new(), packets: 0, bytes_left }, blocks)
    }

    /// The blocks for what was recorded; none when the file would become too long.
    pub(super) fn blocks(&mut self, recorded: &Recorded) -> Option<Vec<u8>> {
        let packets = self.packets;
        let blocks = self.make(recorded);
        match self.bytes_left.checked_sub(blocks.len() as u64) {
            Some(left) => self.bytes_left = left,
            None => {
                self.packets = packets;
                return None;
            }
        }
        Some(blocks)
    }

    fn make(&mut self, recorded: &Recorded) -> Vec<u8> {
        let WireEnds { initiator, portal } = recorded.ends;
        let next = self.connections.entry((initiator, portal)).or_insert([1, 1]);
        let line = Line { initiator, portal, at_ns: recorded.at_ns };
        let mut blocks = Vec::new();
        match &recorded.what {
            Wire::Opened => {
                *next = [1, 1];
                line.packet(&mut blocks, Way::In, [0, 0], &[], |tcp| tcp.syn());
                line.packet(&mut blocks, Way::Out, [1, 0], &[], |tcp| tcp.syn().ack(1));
                line.packet(&mut blocks, Way::In, [1, 1], &[], |tcp| tcp.ack(1));
                self.packets += 3;
            }
            Wire::Moved { from_initiator, bytes_lost, bytes } => {
                let way = if *from_initiator { Way::In } else { Way::Out };
                let here = way as usize;
                // Sequence numbers wrap.
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
                line.packet(&mut blocks, Way::Out, next, &[], |tcp| tcp.ack(next[0]).fin());
                self.packets += 1;
                self.connections.remove(&(initiator, portal));
            }
        }
        blocks
    }

    /// The last block.
    pub(super) fn end(&self, at_ns: u64, lost: u64) -> Vec<u8> {
        Summary { packets: self.packets, lost }.block(at_ns)
    }
}

/// The ends of a packet, and its time.
struct Line {
    initiator: SocketAddr,
    portal: SocketAddr,
    at_ns: u64,
}

impl Line {
    /// Adds a packet with the next sequence numbers `next`.
    fn packet(
        &self,
        blocks: &mut Vec<u8>,
        way: Way,
        next: [u32; 2],
        payload: &[u8],
        flags: impl FnOnce(PacketBuilderStep<TcpHeader>) -> PacketBuilderStep<TcpHeader>,
    ) {
        let (from, to) = match way {
            Way::In => (self.initiator, self.portal),
            Way::Out => (self.portal, self.initiator),
        };
        let here = way as usize;
        let ethernet = PacketBuilder::ethernet2(MAC[here], MAC[1 - here]);
        let ip = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), HOPS),
            (from, to) => ethernet.ipv6(wide(from).octets(), wide(to).octets(), HOPS),
        };
        let tcp = flags(ip.tcp(from.port(), to.port(), next[here], WINDOW));
        let mut frame = Vec::with_capacity(tcp.size(payload.len()));
        tcp.write(&mut frame, payload).expect("a vector takes every packet that is not too long");
        let mut body = 0u32.to_le_bytes().to_vec();
        body.extend(time(self.at_ns));
        let len = u32::try_from(frame.len()).expect("packets are short").to_le_bytes();
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

/// A time as blocks have it: the higher half first.
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

/// The block; options, where it has some, end.
fn block(kind: u32, mut body: Vec<u8>) -> Vec<u8> {
    if kind != ENHANCED_PACKET {
        body.extend([0; 4]);
    }
    let len = u32::try_from(body.len() + 12).expect("blocks are short").to_le_bytes();
    let mut block = kind.to_le_bytes().to_vec();
    block.extend(len);
    block.extend(body);
    block.extend(len);
    block
}

#[cfg(test)]
mod tests;
