//! One turn of a connection: what waits is sent, what came is received.
//!
//! Called by every driver of a protocol machine: [`crate::login`], [`crate::session`], the lab's loads. It must never
//! look into what it moves, and never wait while the peer has something to say.

use iscsi::initiator::Connection;
use iscsi::{Gathered, shorten};
use shard::{Stream, Time, World};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

/// Bytes that a connection sends before others have their turn.
const SEND_BYTES: usize = 1 << 20;

/// A protocol machine that speaks over a stream and does no I/O itself.
pub trait Machine {
    /// Adds slices of what waits to be sent.
    fn gather<'a>(&'a self, into: &mut Gathered<'a>);
    /// The first `len` bytes of those have been sent.
    fn handle_transmitted(&mut self, len: usize);
    /// True while something waits to be sent.
    fn wants_to_send(&self) -> bool;
    /// Where the next bytes belong; empty once the machine takes no more.
    fn receive_into(&mut self) -> &mut [u8];
    /// `len` bytes are there.
    fn handle_received(&mut self, len: usize, now: Time);
    /// The peer sends nothing more.
    fn handle_peer_closed(&mut self);
}

impl Machine for Connection {
    fn gather<'a>(&'a self, into: &mut Gathered<'a>) {
        Self::gather(self, into);
    }

    fn handle_transmitted(&mut self, len: usize) {
        Self::handle_transmitted(self, len);
    }

    fn wants_to_send(&self) -> bool {
        Self::wants_to_send(self)
    }

    fn receive_into(&mut self) -> &mut [u8] {
        Self::receive_into(self)
    }

    fn handle_received(&mut self, len: usize, now: Time) {
        Self::handle_received(self, len, now);
    }

    fn handle_peer_closed(&mut self) {
        Self::handle_peer_closed(self);
    }
}

/// Sends what waits, as far as the stream takes it. A task that has sent its share is woken at once, behind the others.
///
/// *Errors*: the connection broke.
pub fn send<S: Stream, M: Machine>(cx: &mut Context<'_>, stream: &S, machine: &mut M) -> io::Result<()> {
    let mut room = SEND_BYTES;
    while machine.wants_to_send() {
        if room == 0 {
            cx.waker().wake_by_ref();
            break;
        }
        let mut slices = Gathered::new();
        machine.gather(&mut slices);
        shorten(&mut slices, room);
        let sent = stream.poll_write(cx, &slices);
        drop(slices);
        let Poll::Ready(sent) = sent else { break };
        let len = sent?;
        machine.handle_transmitted(len);
        room = room.saturating_sub(len);
    }
    Ok(())
}

/// Sends what waits and takes what is there; true when something was received, or nothing more will come.
///
/// *Errors*: the connection broke.
pub fn exchange<W: World, M: Machine>(
    cx: &mut Context<'_>,
    world: &W,
    stream: &W::Stream,
    machine: &mut M,
) -> io::Result<bool> {
    send(cx, stream, machine)?;
    let into = machine.receive_into();
    if into.is_empty() {
        return Ok(true);
    }
    match stream.poll_read(cx, into) {
        Poll::Ready(read) => match read? {
            0 => machine.handle_peer_closed(),
            len => machine.handle_received(len, world.now()),
        },
        Poll::Pending => return Ok(false),
    }
    Ok(true)
}

/// Sends what waits; returns when something was received, the peer has closed, or the clock has reached `until`.
///
/// *Errors*: the connection broke.
pub async fn turn<W: World, M: Machine>(
    world: &W,
    stream: &W::Stream,
    machine: &mut M,
    until: Option<Time>,
) -> io::Result<()> {
    let mut timer = pin!(until.map(|until| world.sleep_until(until)));
    poll_fn(|cx| {
        let moved = exchange(cx, world, stream, machine)?;
        let due = !moved && timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
        if moved || due { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}
