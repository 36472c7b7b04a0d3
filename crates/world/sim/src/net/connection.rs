//! One connection: two ends, and a pipe for each direction.

use super::Net;
use crate::core::Core;
use shard::Time;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A connection. Side 0 connected, side 1 accepted; pipe `n` carries what side `n` sends.
#[derive(Debug)]
pub(super) struct Connection {
    pub ends: [End; 2],
    pipes: [Pipe; 2],
}

#[derive(Debug)]
pub(super) struct End {
    pub node: usize,
    pub address: SocketAddr,
    is_open: bool,
    /// True after a power loss of the machine: it neither answers nor closes.
    has_vanished: bool,
    was_reset: bool,
}

#[derive(Debug, Default)]
struct Pipe {
    flying: VecDeque<Segment>,
    flying_bytes: usize,
    arrived: VecDeque<u8>,
    arrived_segments: usize,
    stalled_until: Time,
    /// True after a segment was answered by a reset: nothing behind it can arrive, as a stream has no gaps.
    is_broken: bool,
    has_ended: bool,
    end_sent: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

#[derive(Debug)]
struct Segment {
    arrives: Time,
    bytes: Vec<u8>,
    /// True for the end of the stream.
    is_end: bool,
}

impl End {
    pub(super) fn new(node: usize, address: SocketAddr) -> Self {
        Self { node, address, is_open: true, has_vanished: false, was_reset: false }
    }
}

impl Connection {
    pub(super) fn new(ends: [End; 2]) -> Self {
        Self { ends, pipes: Default::default() }
    }

    pub(super) fn drop_node(&mut self, node: usize) {
        for end in self.ends.iter_mut().filter(|end| end.node == node) {
            end.has_vanished = true;
        }
    }

    fn is_over(&self) -> bool {
        self.ends.iter().all(|end| !end.is_open)
    }
}

/// Reads bytes that have arrived at `side`.
pub(super) fn poll_read(
    core: &Rc<Core>,
    id: u64,
    side: usize,
    cx: &mut Context<'_>,
    into: &mut [u8],
) -> Poll<io::Result<usize>> {
    let net = &mut *core.net.borrow_mut();
    let Net { connections, random, faults, counts, .. } = net;
    let Some(connection) = connections.get_mut(&id) else { return reset_error() };
    if connection.ends[side].was_reset {
        return reset_error();
    }
    let pipe = &mut connection.pipes[1 - side];
    let mut count = pipe.arrived.len().min(into.len());
    if count == 0 {
        if pipe.has_ended || into.is_empty() {
            return Poll::Ready(Ok(0));
        }
        pipe.reader = Some(cx.waker().clone());
        return Poll::Pending;
    }
    // A short read although more is there: TCP gives no message boundaries.
    if count > 1 && random.chance(faults.short_per_million) {
        counts.shorts += 1;
        count = 1 + random.index(count - 1);
    } else if pipe.arrived_segments > 1 {
        counts.merges += 1;
    }
    for (to, from) in into.iter_mut().zip(pipe.arrived.drain(..count)) {
        *to = from;
    }
    if pipe.arrived.is_empty() {
        pipe.arrived_segments = 0;
    }
    // Reading frees buffer space, for which the sender may wait.
    if let Some(writer) = pipe.writer.take() {
        writer.wake();
    }
    core.record("read", id * 2 + side as u64, count as u64);
    Poll::Ready(Ok(count))
}

/// Sends from `side` as much as fits.
pub(super) fn poll_write(
    core: &Rc<Core>,
    id: u64,
    side: usize,
    cx: &mut Context<'_>,
    from: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let net = &mut *core.net.borrow_mut();
    let Some(connection) = net.connections.get_mut(&id) else { return reset_error() };
    if connection.ends[side].was_reset {
        return reset_error();
    }
    let pipe = &mut connection.pipes[side];
    if pipe.end_sent {
        return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
    }
    // The sender's and the receiver's buffer count as one.
    let held = pipe.flying_bytes + pipe.arrived.len();
    let asked: usize = from.iter().map(|piece| piece.len()).sum();
    // At least one byte: an empty buffer would never accept data.
    let mut count = asked.min(net.faults.buffer_bytes.max(1).saturating_sub(held));
    if count == 0 && asked > 0 {
        pipe.writer = Some(cx.waker().clone());
        return Poll::Pending;
    }
    // A partial write although more would fit: senders have to continue from any byte.
    if count > 1 && net.random.chance(net.faults.short_per_million) {
        net.counts.shorts += 1;
        count = 1 + net.random.index(count - 1);
    }
    let mut bytes: Vec<u8> = Vec::with_capacity(count);
    for piece in from {
        let here = piece.len().min(count - bytes.len());
        bytes.extend_from_slice(&piece[..here]);
    }
    core.record("write", id * 2 + side as u64, count as u64);
    send(core, net, id, side, bytes);
    Poll::Ready(Ok(count))
}

/// Sends `bytes`, possibly split into segments; the profile may reset or stall the connection instead.
fn send(core: &Rc<Core>, net: &mut Net, id: u64, side: usize, mut bytes: Vec<u8>) {
    let now = core.now.get();
    let Some(connection) = net.connections.get_mut(&id) else { return };
    // Lost silently, until the reset arrives.
    if connection.pipes[side].is_broken {
        return;
    }
    if net.random.chance(net.faults.reset_per_million) {
        net.counts.resets += 1;
        connection.pipes[side].is_broken = true;
        // Both ends learn of it, each after a delay of its own.
        for side in [0, 1] {
            let at = now + net.delay();
            core.schedule(at, Box::new(move |core| reset(core, id, side)));
        }
        return;
    }
    if net.random.chance(net.faults.stall_per_million) {
        net.counts.stalls += 1;
        let until = now + net.random.duration(&net.faults.stall);
        if let Some(connection) = net.connections.get_mut(&id) {
            connection.pipes[side].stalled_until = until;
        }
    }
    let mut pieces = Vec::new();
    // Receivers must not rely on the boundaries of writes.
    while bytes.len() > 1 && net.random.chance(net.faults.split_per_million) {
        let rest = bytes.split_off(1 + net.random.index(bytes.len() - 1));
        pieces.push(std::mem::replace(&mut bytes, rest));
    }
    if !pieces.is_empty() {
        net.counts.splits += 1;
    }
    pieces.push(bytes);
    for bytes in pieces {
        enqueue(core, net, id, side, bytes, false);
    }
}

fn enqueue(core: &Rc<Core>, net: &mut Net, id: u64, side: usize, bytes: Vec<u8>, is_end: bool) {
    let delay = net.delay();
    let Some(connection) = net.connections.get_mut(&id) else { return };
    let pipe = &mut connection.pipes[side];
    if pipe.is_broken {
        return;
    }
    // A segment that arrives early waits behind the earlier ones until they are due: a stream is never reordered.
    let arrives = core.now.get() + delay;
    pipe.flying_bytes += bytes.len();
    pipe.flying.push_back(Segment { arrives, bytes, is_end });
    core.schedule(arrives, Box::new(move |core| deliver(core, id, side)));
}

/// Delivers the segments of `side` that are due, unless the path is cut or stalled.
pub(super) fn deliver(core: &Rc<Core>, id: u64, side: usize) {
    let mut net = core.net.borrow_mut();
    let Some(connection) = net.connections.get(&id) else { return };
    let now = core.now.get();
    let [from, to] = [&connection.ends[side], &connection.ends[1 - side]];
    let is_cut = net.is_cut(from.address.ip(), to.address.ip());
    let receiver_is_down = !core.nodes.borrow()[to.node].is_up.get();
    let (to_vanished, to_open) = (to.has_vanished, to.is_open);
    let stalled_until = connection.pipes[side].stalled_until;
    // Held back, not lost: `heal` and `boot` attempt the delivery again.
    // A sender that lost its power is different: nothing sends its segments again.
    if is_cut || receiver_is_down || from.has_vanished {
        return;
    }
    if stalled_until > now {
        core.schedule(stalled_until, Box::new(move |core| deliver(core, id, side)));
        return;
    }
    let Net { connections, counts, .. } = &mut *net;
    let Some(connection) = connections.get_mut(&id) else { return };
    let pipe = &mut connection.pipes[side];
    let mut unheard = false;
    // In order of sending: a segment that is due waits behind one that is not.
    while pipe.flying.front().is_some_and(|segment| segment.arrives <= now) {
        let Some(segment) = pipe.flying.pop_front() else { break };
        pipe.flying_bytes -= segment.bytes.len();
        core.record("deliver", id * 2 + side as u64, segment.bytes.len() as u64);
        if to_vanished || !to_open {
            // Data is answered with a reset; an end of stream alone is not, unless the machine has restarted.
            unheard |= !segment.bytes.is_empty() || to_vanished;
            continue;
        }
        counts.segments += 1;
        pipe.arrived_segments += 1;
        pipe.arrived.extend(segment.bytes);
        pipe.has_ended |= segment.is_end;
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
    }
    if unheard {
        // The receiver does not know the connection (any more): the sender gets a reset.
        let at = now + net.delay();
        core.schedule(at, Box::new(move |core| reset(core, id, side)));
    }
}

/// Resets the connection as seen by `side`.
pub(super) fn reset(core: &Rc<Core>, id: u64, side: usize) {
    let mut net = core.net.borrow_mut();
    let Some(connection) = net.connections.get_mut(&id) else { return };
    core.record("reset", id * 2 + side as u64, 0);
    // Only this end: the other one gets a reset of its own, or is closed.
    connection.ends[side].was_reset = true;
    // This end may wait on both pipes; a waiter of the other end is woken in vain.
    for pipe in &mut connection.pipes {
        for waker in [pipe.reader.take(), pipe.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }
    if connection.is_over() {
        net.connections.remove(&id);
    }
}

/// Ends the sending direction of `side`.
pub(super) fn close_write(core: &Rc<Core>, id: u64, side: usize) -> io::Result<()> {
    let mut net = core.net.borrow_mut();
    let connection = net.connections.get_mut(&id).filter(|connection| !connection.ends[side].was_reset);
    let Some(connection) = connection else { return Err(ErrorKind::NotConnected.into()) };
    // Repeated calls have no effect.
    if !std::mem::replace(&mut connection.pipes[side].end_sent, true) {
        enqueue(core, &mut net, id, side, Vec::new(), true);
    }
    Ok(())
}

/// Closes `side`: the peer reads the end of the stream, or is reset when it sent bytes that were never read.
pub(super) fn close(core: &Rc<Core>, id: u64, side: usize) {
    let mut net = core.net.borrow_mut();
    let Some(connection) = net.connections.get_mut(&id) else { return };
    core.record("close", id * 2 + side as u64, 0);
    let silent = connection.ends[side].has_vanished || connection.ends[side].was_reset;
    let unread = !connection.pipes[1 - side].arrived.is_empty();
    connection.ends[side].is_open = false;
    // With both ends closed nobody can observe what is still in flight.
    if connection.is_over() {
        net.connections.remove(&id);
        return;
    }
    // A machine without power and a connection that was reset send nothing.
    if silent {
        return;
    }
    // Closing with unread data sends a reset instead of an end of stream (RFC 1122 §4.2.2.13).
    if unread {
        let at = core.now.get() + net.delay();
        core.schedule(at, Box::new(move |core| reset(core, id, 1 - side)));
    } else if !std::mem::replace(&mut connection.pipes[side].end_sent, true) {
        enqueue(core, &mut net, id, side, Vec::new(), true);
    }
}

fn reset_error<T>() -> Poll<io::Result<T>> {
    Poll::Ready(Err(ErrorKind::ConnectionReset.into()))
}
