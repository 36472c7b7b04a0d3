//! One turn of a connection that speaks for itself: what waits is sent, what came is received.

use crate::load::{Content, Op};
use ::iscsi::{Gathered, shorten};
use anyhow::{Context as _, Result};
use block::Buf;
use shard::{Stream, Time, World};
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

/// Bytes that a session sends before others have their turn.
const SEND_BYTES: usize = 1 << 20;

/// What speaks over a stream, without doing any I/O.
pub(super) trait Machine {
    /// Adds slices of what waits to be sent.
    fn gather<'a>(&'a self, into: &mut Gathered<'a>);
    /// The first `len` bytes of those have been sent.
    fn handle_transmitted(&mut self, len: usize);
    /// True while something waits to be sent.
    fn wants_to_send(&self) -> bool;
    /// Where the next bytes belong.
    fn receive_into(&mut self) -> &mut [u8];
    /// `len` bytes are there.
    fn handle_received(&mut self, len: usize, now: Time);
    /// Nothing more will come.
    fn handle_peer_closed(&mut self);
}

/// A machine that carries commands.
pub(super) trait Carrier: Machine {
    /// The command goes out with the next turn.
    fn submit(&mut self, op: Op, content: Content) -> Result<()>;
    /// The next command that has ended, whether it ended well, and what it read where that is kept.
    ///
    /// *Errors*: the connection is over.
    fn poll_end(&mut self) -> Result<Option<(Op, bool, Option<Buf>)>>;
    /// True while a command that was submitted waits for a place in the target's window.
    fn is_held(&self) -> bool {
        false
    }
    /// Another connection of the session has perhaps heard of a wider window.
    fn handle_window_moved(&mut self) {}
}

/// Sends what waits, as far as the stream takes it. Who has sent so much that it is the others' turn is woken at once.
///
/// *Errors*: the connection broke.
fn send<S: Stream, M: Machine>(cx: &mut Context<'_>, stream: &S, machine: &mut M) -> io::Result<()> {
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
pub(super) fn exchange<W: World, M: Machine>(
    cx: &mut Context<'_>,
    world: &W,
    stream: &W::Stream,
    machine: &mut M,
) -> Result<bool> {
    send(cx, stream, machine).context("the connection broke")?;
    let into = machine.receive_into();
    if into.is_empty() {
        return Ok(true);
    }
    match stream.poll_read(cx, into) {
        Poll::Ready(read) => match read.context("the connection broke")? {
            0 => machine.handle_peer_closed(),
            len => machine.handle_received(len, world.now()),
        },
        Poll::Pending => return Ok(false),
    }
    Ok(true)
}

/// Sends what waits; returns when something was received, the peer is gone, or it is `until`.
pub(super) async fn turn<W: World, M: Machine>(
    world: &W,
    stream: &W::Stream,
    machine: &mut M,
    until: Option<Time>,
) -> Result<()> {
    let mut timer = pin!(until.map(|until| world.sleep_until(until)));
    poll_fn(|cx| {
        let moved = exchange(cx, world, stream, machine)?;
        let due = !moved && timer.as_mut().as_pin_mut().is_some_and(|timer| timer.poll(cx).is_ready());
        if moved || due { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}
