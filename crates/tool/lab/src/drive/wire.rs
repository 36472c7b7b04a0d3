//! Turns of connections that carry a load: [`initiator::wire`], with this crate's errors.

use crate::load::{Content, Op};
use anyhow::{Context as _, Result};
use block::Buf;
pub(super) use initiator::wire::Machine;
use shard::{Time, World};
use std::task::Context;

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

/// As [`initiator::wire::exchange`].
///
/// *Errors*: the connection broke.
pub(super) fn exchange<W: World, M: Machine>(
    cx: &mut Context<'_>,
    world: &W,
    stream: &W::Stream,
    machine: &mut M,
) -> Result<bool> {
    initiator::wire::exchange(cx, world, stream, machine).context("the connection broke")
}

/// As [`initiator::wire::turn`].
///
/// *Errors*: the connection broke.
pub(super) async fn turn<W: World, M: Machine>(
    world: &W,
    stream: &W::Stream,
    machine: &mut M,
    until: Option<Time>,
) -> Result<()> {
    initiator::wire::turn(world, stream, machine, until).await.context("the connection broke")
}
