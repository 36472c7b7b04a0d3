//! Session with the raw TCP server: a 48-byte request is answered by 48 bytes and the data, or carries data and is
//! answered by 48 bytes.

use super::bundle::{Line, carry};
use super::wire::{Carrier, Machine};
use crate::load::{Content, Op, Source};
use ::iscsi::SendSlices;
use anyhow::{Context, Result, bail};
use block::{Buf, View};
use shard::{StreamOptions, Time, World};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;

/// Bytes of a request or answer without data, the size of an iSCSI basic header segment.
pub const HEADER_BYTES: usize = 48;
/// First byte of a read request; bytes 4 to 8 are the length, bytes 8 to 16 the address, big-endian.
pub const READ: u8 = 1;
/// First byte of a write request.
pub const WRITE: u8 = 2;
const RECEIVE_BYTES: usize = 256 << 10;

pub(super) struct Session<W: World> {
    stream: W::Stream,
    bytes: u64,
}

/// Protocol state of a session. Commands complete in the order in which they were sent.
struct Speaker {
    under_way: VecDeque<Op>,
    /// Headers to be sent, and the pieces of them and of the data that are left; the content of data does not matter.
    headers: Vec<u8>,
    waiting: VecDeque<Piece>,
    filler: View,
    received: Vec<u8>,
    /// Bytes received for the command at the front of `under_way`.
    come: usize,
    ended: VecDeque<Op>,
    lost: bool,
}

/// Range of bytes to be sent, of the headers or of the filler.
#[derive(Clone, Copy, Debug)]
struct Piece {
    header: bool,
    from: usize,
    to: usize,
}

impl<W: World> Session<W> {
    pub(super) async fn connect(world: &W, address: SocketAddr, bytes: u64) -> Result<Self> {
        let stream = world.connect(address, StreamOptions::default()).await;
        Ok(Self { stream: stream.with_context(|| format!("no connection to {address}"))?, bytes })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) async fn drive(&self, world: &W, source: &mut Source) -> Result<u64> {
        let mut speaker = Speaker {
            under_way: VecDeque::new(),
            headers: Vec::new(),
            waiting: VecDeque::new(),
            filler: View::zeroed(0),
            received: vec![0; RECEIVE_BYTES],
            come: 0,
            ended: VecDeque::new(),
            lost: false,
        };
        carry::<W, _>(world, &mut [Line { stream: &self.stream, carrier: &mut speaker }], source).await
    }
}

impl Machine for Speaker {
    fn gather<'a>(&'a self, into: &mut SendSlices<'a>) {
        // Further pieces follow in the next send.
        for piece in self.waiting.iter().take(64) {
            let all: &[u8] = if piece.header { &self.headers } else { &self.filler };
            into.push(IoSlice::new(&all[piece.from..piece.to]));
        }
    }

    fn handle_transmitted(&mut self, mut len: usize) {
        while let Some(piece) = self.waiting.front_mut().filter(|_| len > 0) {
            let left = piece.to - piece.from;
            if len < left {
                piece.from += len;
                return;
            }
            len -= left;
            self.waiting.pop_front();
        }
        // The buffer is reused; its offsets start at zero again.
        if self.waiting.is_empty() {
            self.headers.clear();
        }
    }

    fn wants_to_send(&self) -> bool {
        !self.waiting.is_empty()
    }

    fn receive_into(&mut self) -> &mut [u8] {
        if self.lost { &mut [] } else { &mut self.received }
    }

    fn handle_received(&mut self, len: usize, _: Time) {
        // Only lengths count: answers come in the order of the requests, and their content does not matter.
        self.come += len;
        while let Some(op) = self.under_way.front() {
            let answer = HEADER_BYTES + if op.write { 0 } else { op.bytes as usize };
            if self.come < answer {
                return;
            }
            self.come -= answer;
            self.ended.extend(self.under_way.pop_front());
        }
    }

    fn handle_peer_closed(&mut self) {
        self.lost = true;
    }
}

impl Carrier for Speaker {
    fn submit(&mut self, op: Op, content: Content) -> Result<()> {
        let from = self.headers.len();
        self.headers.resize(from + HEADER_BYTES, 0);
        let header = &mut self.headers[from..];
        header[0] = if op.write { WRITE } else { READ };
        header[4..8].copy_from_slice(&op.bytes.to_be_bytes());
        // Only a server with a memory looks at the address.
        header[8..16].copy_from_slice(&op.offset.to_be_bytes());
        let to = from + HEADER_BYTES;
        // Consecutive headers are sent as one piece.
        match self.waiting.back_mut() {
            Some(last) if last.header && last.to == from => last.to = to,
            _ => self.waiting.push_back(Piece { header: true, from, to }),
        }
        if let Content::Write(data) = content {
            // The content does not matter, so the longest buffer serves all writes.
            if data.len() > self.filler.len() {
                self.filler = data;
            }
            self.waiting.push_back(Piece { header: false, from: 0, to: op.bytes as usize });
        }
        self.under_way.push_back(op);
        Ok(())
    }

    fn poll_end(&mut self) -> Result<Option<(Op, bool, Option<Buf>)>> {
        if self.lost {
            bail!("the server is gone");
        }
        Ok(self.ended.pop_front().map(|op| (op, true, None)))
    }
}
