//! Connection of the data plane, split into PDUs in both directions, so that a bug can alter them.

use super::BugState;
use super::wire::{Pdu, WireBug};
use shard::{Stream, StreamHandle};
use sim::SimStream;
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Upper bound of bytes that wait to be sent; beyond it a write waits as well.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// Connection with a bug, or without.
pub(crate) struct BuggyStream {
    inner: SimStream,
    /// State of the bug; `None` when it does not affect the wire.
    ways: Option<RefCell<PduFilter>>,
}

struct PduFilter {
    bend: WireBug,
    requests: Direction,
    responses: Direction,
    /// The data plane has closed its side.
    is_closed: bool,
}

/// Direction of the connection.
#[derive(Default)]
struct Direction {
    /// Received bytes of an incomplete PDU.
    begun: Vec<u8>,
    /// Bytes to be passed on.
    ready: Vec<u8>,
}

impl Direction {
    /// Removes the next complete PDU.
    fn take_pdu(&mut self) -> Option<Pdu> {
        // An incomplete PDU waits for the rest, since a bug alters whole PDUs.
        let bytes = Pdu::bytes_of(&self.begun).filter(|&bytes| bytes <= self.begun.len())?;
        let rest = self.begun.split_off(bytes);
        Some(Pdu(std::mem::replace(&mut self.begun, rest)))
    }

    /// Copies ready bytes into a buffer.
    fn give(&mut self, into: &mut [u8]) -> usize {
        let len = into.len().min(self.ready.len());
        into[..len].copy_from_slice(&self.ready[..len]);
        self.ready.drain(..len);
        len
    }
}

impl PduFilter {
    fn bend_requests(&mut self) {
        while let Some(pdu) = self.requests.take_pdu() {
            for pdu in self.bend.request(pdu) {
                self.requests.ready.extend(pdu.0);
            }
        }
    }

    fn bend_responses(&mut self) {
        while let Some(pdu) = self.responses.take_pdu() {
            for pdu in self.bend.response(pdu) {
                self.responses.ready.extend(pdu.0);
            }
        }
    }

    /// Sends ready bytes; pending when some are left.
    fn send(&mut self, inner: &SimStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.responses.ready.is_empty() {
            match inner.poll_write(cx, &[IoSlice::new(&self.responses.ready)]) {
                Poll::Ready(Ok(len)) => drop(self.responses.ready.drain(..len)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        // The closure waits until everything is sent, so that no answer is lost.
        Poll::Ready(if self.is_closed { inner.close_write() } else { Ok(()) })
    }
}

impl BuggyStream {
    pub(crate) fn new(inner: SimStream, plant: &Rc<BugState>) -> Self {
        let ways = plant.alters_wire().then(|| {
            let (requests, responses) = (Direction::default(), Direction::default());
            RefCell::new(PduFilter { bend: WireBug::new(plant), requests, responses, is_closed: false })
        });
        Self { inner, ways }
    }
}

impl Stream for BuggyStream {
    fn poll_read(&self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let Some(ways) = &self.ways else { return self.inner.poll_read(cx, into) };
        let ways = &mut *ways.borrow_mut();
        // No other caller sends the remaining bytes; the read itself reports an error of the connection.
        let _ = ways.send(&self.inner, cx);
        while ways.requests.ready.is_empty() {
            let mut chunk = vec![0; 64 << 10];
            match self.inner.poll_read(cx, &mut chunk) {
                Poll::Ready(Ok(len)) if len > 0 => ways.requests.begun.extend_from_slice(&chunk[..len]),
                // Pending, an error and the end of the connection pass through.
                read => return read,
            }
            ways.bend_requests();
        }
        Poll::Ready(Ok(ways.requests.give(into)))
    }

    fn poll_write(&self, cx: &mut Context<'_>, from: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let Some(ways) = &self.ways else { return self.inner.poll_write(cx, from) };
        let ways = &mut *ways.borrow_mut();
        if let Poll::Ready(Err(error)) = ways.send(&self.inner, cx) {
            return Poll::Ready(Err(error));
        }
        // `send` could not send everything, and has registered the waker.
        if ways.responses.ready.len() > WAITING_BYTES_MAX {
            return Poll::Pending;
        }
        from.iter().for_each(|slice| ways.responses.begun.extend_from_slice(slice));
        ways.bend_responses();
        // All bytes count as sent, although a PDU may be longer or shorter after the bug.
        let sent = from.iter().map(|slice| slice.len()).sum();
        match ways.send(&self.inner, cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Ready(Ok(sent)),
        }
    }

    fn close_write(&self) -> io::Result<()> {
        let Some(ways) = &self.ways else { return self.inner.close_write() };
        let ways = &mut *ways.borrow_mut();
        ways.is_closed = true;
        // With bytes left, `send` closes after the last one.
        if ways.responses.ready.is_empty() { self.inner.close_write() } else { Ok(()) }
    }

    fn local_address(&self) -> SocketAddr {
        self.inner.local_address()
    }

    fn peer_address(&self) -> SocketAddr {
        self.inner.peer_address()
    }

    fn into_handle(self) -> StreamHandle {
        // A connection moves to another shard before anything is read from it, so no bytes are lost here.
        self.inner.into_handle()
    }
}
