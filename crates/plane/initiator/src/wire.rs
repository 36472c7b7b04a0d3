//! I/O turn of a connection: sends queued output and receives available input.
//!
//! Called by every driver of a protocol machine: [`crate::login`], [`crate::session`], the lab's loads. It must never
//! inspect the data that it moves, and never block on sending while input is available.

use iscsi::initiator::Connection;
use iscsi::{SendSlices, shorten};
use shard::{Stream, Time, World};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

/// Quantum of bytes that a connection sends before other tasks run.
const SEND_BYTES: usize = 1 << 20;

/// Protocol machine without I/O of its own.
pub trait Machine {
    /// Appends slices of the queued output.
    fn gather<'a>(&'a self, into: &mut SendSlices<'a>);
    /// Records that the first `len` bytes of the output have been sent.
    fn handle_transmitted(&mut self, len: usize);
    /// True while output is queued.
    fn wants_to_send(&self) -> bool;
    /// Returns the buffer for the next input; empty once the machine accepts no more.
    fn receive_into(&mut self) -> &mut [u8];
    /// Records that `len` bytes of input have been received.
    fn handle_received(&mut self, len: usize, now: Time);
    /// Records that the peer has closed its sending side.
    fn handle_peer_closed(&mut self);
}

impl Machine for Connection {
    fn gather<'a>(&'a self, into: &mut SendSlices<'a>) {
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

/// Sends queued output, as much as the stream accepts. A task that has used its quantum yields, and is woken again
/// after the others.
///
/// *Errors*: the connection broke.
pub fn send<S: Stream, M: Machine>(cx: &mut Context<'_>, stream: &S, machine: &mut M) -> io::Result<()> {
    let mut room = SEND_BYTES;
    while machine.wants_to_send() {
        if room == 0 {
            // Yields, so that one connection does not occupy the thread.
            cx.waker().wake_by_ref();
            break;
        }
        let mut slices = SendSlices::new();
        machine.gather(&mut slices);
        shorten(&mut slices, room);
        let sent = stream.poll_write(cx, &slices);
        // The slices borrow the machine, which records the transfer next.
        drop(slices);
        let Poll::Ready(sent) = sent else { break };
        let len = sent?;
        machine.handle_transmitted(len);
        room = room.saturating_sub(len);
    }
    Ok(())
}

/// Sends queued output and receives available input. Returns true when something was received, or no more input can
/// come.
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
        // The machine has ended: the caller has to handle its events.
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

/// Sends queued output until something was received, the peer has closed, or the clock has reached `until`.
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
        // Polled whenever nothing moved, so that the timer can wake this task.
        let due = !moved && timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
        if moved || due { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}
