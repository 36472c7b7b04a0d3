//! The bare socket: a server that moves as many bytes as iSCSI would, and does nothing else. What a target could be at best.

use crate::drive::{HEADER_BYTES, WRITE};
use anyhow::{Context, Result};
use rustix::event::{Timespec, epoll};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;

const RECEIVE_BYTES: usize = 256 << 10;
/// What answers are sent from: any bytes.
const SEND_BYTES: usize = 4 << 20;
const LISTENER: u64 = 0;

struct Peer {
    stream: TcpStream,
    /// The bytes of a header that has not come whole.
    header: Vec<u8>,
    /// Bytes of a request's data that are still to come.
    expected: usize,
    /// Bytes of answers that are still to go.
    owed: usize,
    /// True while it is told when more can be sent.
    blocked: bool,
}

/// Serves until `listener` breaks; with `spin` it never sleeps.
///
/// *Errors*: no epoll, or no more connections.
pub fn serve(listener: &TcpListener, spin: bool) -> Result<()> {
    listener.set_nonblocking(true)?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    epoll::add(&poll, listener, epoll::EventData::new_u64(LISTENER), epoll::EventFlags::IN)?;
    let (mut received, answers) = (vec![0; RECEIVE_BYTES], vec![7; SEND_BYTES]);
    let (mut peers, mut next) = (BTreeMap::new(), LISTENER + 1);
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
            let alive = peer.turn(&mut received, &answers);
            let blocked = peer.owed > 0;
            if !alive {
                peers.remove(&key);
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
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        // The machine's default may be meant for long lines; where there is no cubic, it stays.
        let _ = rustix::net::sockopt::set_tcp_congestion(&stream, "cubic");
        epoll::add(&poll, &stream, epoll::EventData::new_u64(*next), epoll::EventFlags::IN)?;
        peers.insert(*next, Peer { stream, header: Vec::new(), expected: 0, owed: 0, blocked: false });
        *next += 1;
    }
}

impl Peer {
    /// Receives once and sends what is owed; false when the connection is over.
    fn turn(&mut self, received: &mut [u8], answers: &[u8]) -> bool {
        if self.owed == 0 {
            match self.stream.read(received) {
                Ok(0) => return false,
                Ok(len) => self.take(&received[..len]),
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        }
        while self.owed > 0 {
            match self.stream.write(&answers[..self.owed.min(answers.len())]) {
                Ok(len) => self.owed -= len,
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
        }
        true
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.expected.min(bytes.len());
            self.expected -= skipped;
            bytes = &bytes[skipped..];
            if skipped > 0 {
                self.owed += if self.expected == 0 { HEADER_BYTES } else { 0 };
                continue;
            }
            // Headers mostly come whole, and are read where they lie.
            if self.header.is_empty() && bytes.len() >= HEADER_BYTES {
                self.handle(bytes[0], [bytes[4], bytes[5], bytes[6], bytes[7]]);
                bytes = &bytes[HEADER_BYTES..];
                continue;
            }
            let missing = (HEADER_BYTES - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(&bytes[..missing]);
            bytes = &bytes[missing..];
            if self.header.len() == HEADER_BYTES {
                let header = &self.header;
                let (kind, len) = (header[0], [header[4], header[5], header[6], header[7]]);
                self.header.clear();
                self.handle(kind, len);
            }
        }
    }

    fn handle(&mut self, kind: u8, len: [u8; 4]) {
        let len = u32::from_be_bytes(len) as usize;
        match kind == WRITE {
            true => self.expected = len,
            false => self.owed += HEADER_BYTES + len,
        }
    }
}
