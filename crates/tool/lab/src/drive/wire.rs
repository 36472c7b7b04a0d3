//! Exchange of data with connections that carry a load: [`initiator::wire`] with this crate's errors.

use crate::load::{Content, Op};
use anyhow::{Context as _, Result};
use block::Buf;
pub(super) use initiator::wire::Machine;
use shard::{Time, World};
use std::task::Context;

/// Protocol machine that carries commands.
pub(super) trait Carrier: Machine {
    /// Queues a command for the next exchange.
    fn submit(&mut self, op: Op, content: Content) -> Result<()>;
    /// Returns the next completed command, its success, and its data if that is kept.
    ///
    /// *Errors*: the connection is over.
    fn poll_end(&mut self) -> Result<Option<(Op, bool, Option<Buf>)>>;
    /// Returns true while a submitted command waits for the target's command window.
    fn is_held(&self) -> bool {
        // Only iSCSI sessions have a command window.
        false
    }
    /// Reacts to a window that may have widened on another connection of the session.
    fn handle_window_moved(&mut self) {}
}

/// Exchanges data like [`initiator::wire::exchange`].
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

/// Waits for progress like [`initiator::wire::turn`].
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
