//! Raw TCP server without iSCSI: the upper bound of what a target can achieve on this machine.
//!
//! It moves as many bytes as iSCSI would, and does nothing else. By default it sends the same bytes again and again,
//! which stay in the processor's cache. With a memory it sends the addressed bytes and stores the received ones: the
//! upper bound of a target that keeps its data in memory. Run by `blockyard lab serve-bare`.

use crate::drive::{HEADER_BYTES, WRITE};
use anyhow::{Context, Result};
use iscsi::SendSlices;
use rustix::event::{Timespec, epoll};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsFd;

const RECEIVE_BYTES: usize = 256 << 10;
/// Minimum size of the send memory in bytes, the longest command.
const SEND_BYTES: usize = 4 << 20;
/// Maximum number of buffers in one call, as many as our target gathers.
const PIECES_MAX: usize = 128;
const LISTENER: u64 = 0;

/// Connection of a client.
struct Peer {
    stream: TcpStream,
    /// Bytes of an incomplete header.
    header: Vec<u8>,
    /// Bytes of a request's data that have not arrived yet.
    expected: usize,
    /// Address of those bytes in the memory.
    place: usize,
    /// Bytes of answers that have not been sent yet.
    owed: usize,
    /// Ranges of those bytes in the memory, in order; unused without a memory.
    pieces: VecDeque<Range<usize>>,
    /// True while the socket is registered for writability.
    blocked: bool,
}

/// Memory that answers are sent from.
struct Bytes {
    all: Vec<u8>,
    /// False if neither addresses nor received bytes matter.
    placed: bool,
}

impl Bytes {
    /// Returns the offset of `len` bytes at the address in the rest of `header`, clamped to the memory.
    fn place_of(&self, header: &[u8], len: usize) -> usize {
        let address = header.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        usize::try_from(address).unwrap_or(usize::MAX).min(self.all.len().saturating_sub(len))
    }
}

/// Serves until `listener` fails; `spin` polls without sleeping, `memory_bytes` adds an addressable memory.
///
/// *Errors*: no epoll, or no more connections.
pub fn serve(listener: &TcpListener, spin: bool, memory_bytes: Option<usize>) -> Result<()> {
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let mut received = vec![0; RECEIVE_BYTES];
    // Written once: pages that were never written are all the same zero page, which would stay in the cache.
    let all = vec![7; memory_bytes.unwrap_or(0).max(SEND_BYTES)];
    let mut bytes = Bytes { all, placed: memory_bytes.is_some() };
    // Keys are never used again, so a late event of a closed connection cannot reach a new one.
    let (mut peers, mut next) = (BTreeMap::new(), LISTENER + 1);
    // A timeout of zero makes `epoll_wait` return immediately; none blocks.
    let timeout = spin.then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        match epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for sockets"),
        }
        for event in &events {
            let key = event.data.u64();
            if key == LISTENER {
                accept(listener, &poll, &mut peers, &mut next)?;
                continue;
            }
            let Some(peer) = peers.get_mut(&key) else { continue };
            let alive = peer.turn(&mut received, &mut bytes);
            let blocked = peer.owed > 0;
            if !alive {
                // Closing the socket also removes it from the epoll set (epoll(7)).
                peers.remove(&key);
            // Re-registered only on a change: with data to send nothing is received, so that memory stays bounded.
            } else if blocked != peer.blocked {
                peer.blocked = blocked;
                let interest = if blocked { epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
                epoll::modify(&poll, &peer.stream, epoll::EventData::new_u64(key), interest)?;
            }
        }
    }
}

fn accept(listener: &TcpListener, poll: impl AsFd, peers: &mut BTreeMap<u64, Peer>, next: &mut u64) -> Result<()> {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error).context("no more connections"),
        };
        // A short answer must not wait for the acknowledgment of the one before it.
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        // The machine's default may be meant for long distances. Without cubic in the kernel, the default stays.
        let _ = rustix::net::sockopt::set_tcp_congestion(&stream, "cubic");
        epoll::add(&poll, &stream, epoll::EventData::new_u64(*next), epoll::EventFlags::IN)?;
        let (header, pieces) = (Vec::new(), VecDeque::new());
        peers.insert(*next, Peer { stream, header, expected: 0, place: 0, owed: 0, pieces, blocked: false });
        *next += 1;
    }
}

impl Peer {
    /// Receives once and sends pending data; returns false if the connection is over.
    fn turn(&mut self, received: &mut [u8], bytes: &mut Bytes) -> bool {
        // Nothing is read while answers are pending: a client that does not read cannot make the server buffer more.
        if self.owed == 0 {
            match self.stream.read(received) {
                Ok(0) => return false,
                Ok(len) => self.take(&received[..len], bytes),
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        }
        while self.owed > 0 {
            match self.send(bytes) {
                Ok(len) => self.owed -= len,
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        }
        true
    }

    fn send(&mut self, bytes: &Bytes) -> std::io::Result<usize> {
        if !bytes.placed {
            // Without addresses any bytes do, also the same ones again and again.
            return self.stream.write(&bytes.all[..self.owed.min(bytes.all.len())]);
        }
        let pieces = self.pieces.iter().take(PIECES_MAX);
        let slices: SendSlices<'_> = pieces.map(|piece| IoSlice::new(&bytes.all[piece.clone()])).collect();
        let sent = self.stream.write_vectored(&slices)?;
        let mut left = sent;
        // A partial send leaves the rest of a piece at the front.
        while let Some(piece) = self.pieces.front_mut().filter(|_| left > 0) {
            let here = left.min(piece.len());
            piece.start += here;
            left -= here;
            if piece.start == piece.end {
                self.pieces.pop_front();
            }
        }
        Ok(sent)
    }

    fn take(&mut self, mut come: &[u8], bytes: &mut Bytes) {
        while !come.is_empty() {
            // The rest of a write's data comes before the next header.
            let (data, rest) = come.split_at(self.expected.min(come.len()));
            if !data.is_empty() {
                self.keep(data, bytes);
                come = rest;
                continue;
            }
            // Headers mostly arrive complete, and are then read in place.
            if let Some((header, rest)) = come.split_first_chunk().filter(|_| self.header.is_empty()) {
                self.handle(header, bytes);
                come = rest;
                continue;
            }
            let (part, rest) = come.split_at((HEADER_BYTES - self.header.len()).min(come.len()));
            self.header.extend_from_slice(part);
            come = rest;
            if let Some(&header) = self.header.first_chunk() {
                self.header.clear();
                self.handle(&header, bytes);
            }
        }
    }

    fn keep(&mut self, data: &[u8], bytes: &mut Bytes) {
        if bytes.placed {
            // `place_of` has left space for the whole transfer, so the range is within the memory.
            bytes.all[self.place..self.place + data.len()].copy_from_slice(data);
            self.place += data.len();
        }
        self.expected -= data.len();
        if self.expected == 0 {
            // The answer to a write is a header alone.
            self.owe(0..HEADER_BYTES, bytes);
        }
    }

    fn handle(&mut self, header: &[u8; HEADER_BYTES], bytes: &Bytes) {
        let [kind, _, _, _, a, b, c, d, ref place @ ..] = *header;
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        // Without a memory every read has the same bytes, which stay in the processor's cache.
        let place = if bytes.placed { bytes.place_of(place, len) } else { 0 };
        // A write is answered when all of its data has arrived, a read at once.
        if kind == WRITE {
            (self.expected, self.place) = (len, place);
            return;
        }
        // The client looks only at the length of a header, so any bytes of the memory serve as one.
        self.owe(0..HEADER_BYTES, bytes);
        self.owe(place..place + len, bytes);
    }

    fn owe(&mut self, piece: Range<usize>, bytes: &Bytes) {
        self.owed += piece.len();
        if bytes.placed {
            self.pieces.push_back(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::READ;

    fn request(kind: u8, len: u32, address: u64) -> Vec<u8> {
        let mut header = vec![0; HEADER_BYTES];
        header[0] = kind;
        header[4..8].copy_from_slice(&len.to_be_bytes());
        header[8..16].copy_from_slice(&address.to_be_bytes());
        header
    }

    #[test]
    fn bare_memory_gives_back_what_was_kept_where_it_was_kept() {
        const MIB: u64 = 1 << 20;
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || serve(&listener, false, Some(8 << 20)));
        let mut stream = TcpStream::connect(address).expect("somebody listens");
        let data: Vec<u8> = (0..MIB as u32).flat_map(u32::to_le_bytes).take(MIB as usize).collect();
        let mut answer = vec![0; HEADER_BYTES];
        stream.write_all(&request(WRITE, MIB as u32, 5 * MIB)).expect("sent");
        stream.write_all(&data).expect("sent");
        stream.read_exact(&mut answer).expect("answered");
        // A request beyond the end is served at the end.
        for (from, expected) in [(5 * MIB, &data[..4096]), (5 * MIB + 512, &data[512..4608]), (100 * MIB, &[7; 4096])] {
            stream.write_all(&request(READ, 4096, from)).expect("sent");
            let mut answer = vec![0; HEADER_BYTES + 4096];
            stream.read_exact(&mut answer).expect("answered");
            assert!(answer[HEADER_BYTES..] == *expected, "at {from}");
        }
    }
}
