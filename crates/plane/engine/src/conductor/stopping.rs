//! Stop of the engine: sessions, copies, openings and pools, each with a timeout.
//!
//! What does not end in time is named in the log, and the stop continues without it: a command that waits for a disk
//! that never answers must not keep the daemon alive. No acknowledged data is lost by that; what was not closed cleanly
//! is recovered at the next opening.

use super::{Conductor, PoolHome};
use crate::shard_context::ShardContext;
use cluster::WATCH;
use futures_util::future::{Either, select};
use model::{Name, Refusal, Report, TaskReport, code};
use shard::World;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// Timeout for sessions to complete their commands.
const SESSIONS_MAX: Duration = Duration::from_secs(10);
/// Timeout for copies.
const COPIES_MAX: Duration = Duration::from_secs(5);
/// Timeout for pools that are being opened: one watch of the marks of other nodes, and time to release the pool.
const OPENINGS_MAX: Duration = WATCH.saturating_add(Duration::from_secs(4));
/// Timeout for closing all pools together.
const POOLS_MAX: Duration = Duration::from_secs(15);
/// Timeout for remote disks to unregister and log out.
const REMOTES_MAX: Duration = Duration::from_secs(5);
/// Commands that are named in the log; others are only counted.
const NAMED_MAX: usize = 20;

impl<W: World> Conductor<W> {
    /// Stops the engine: it serves nothing any more.
    ///
    /// *Errors*: `STOP_INCOMPLETE` if something did not end in time; the log has the details.
    pub(super) async fn stop(&self) -> Result<Report, Refusal> {
        // Set first: from here on no change and no opening starts.
        if self.stopped.replace(true) {
            return Ok(Report::Done);
        }
        // Order: no new sessions, then no commands, then no background copies, and the pools last.
        self.front.close_portals();
        let mut unended = Vec::new();
        if self.within(SESSIONS_MAX, self.front.end_sessions()).await.is_none() {
            let tasks = self.front.tasks().await;
            tasks.iter().take(NAMED_MAX).for_each(tell_of);
            tracing::warn!(commands = tasks.len(), "commands of some sessions do not complete; stopping without them");
            // Commands of a session that has lost its connections are listed nowhere but still in flight.
            unended.push(match tasks.len() {
                0 => "commands of sessions that have ended".to_owned(),
                1 => "a command".to_owned(),
                count => format!("{count} commands"),
            });
        }
        if self.within(COPIES_MAX, self.copies.end()).await.is_none() {
            tracing::warn!("some copies do not stop; their partial results are removed when their pools are opened");
            unended.push("copies of volumes".to_owned());
        }
        if self.within(OPENINGS_MAX, self.openings.all_ended()).await.is_none() {
            tracing::warn!("some pools are still being opened; stopping without them");
            unended.push("pools that are being opened".to_owned());
        }
        self.close_pools(&mut unended).await;
        if self.within(REMOTES_MAX, close_remotes(&self.shard)).await.is_none() {
            tracing::warn!(
                "targets of remote disks do not respond; reservation keys stay registered and are replaced at the \
                 next start"
            );
        }
        if unended.is_empty() {
            return Ok(Report::Done);
        }
        let message = format!("shutdown timed out: {}", unended.join(", "));
        let hint = "the log names each waiting operation and its disk; pools that were not closed are recovered at the \
             next start";
        Err(Refusal::new(code::STOP_INCOMPLETE, message, hint))
    }

    async fn close_pools(&self, unended: &mut Vec<String>) {
        // One deadline for all pools, so that many pools do not add up.
        let end = self.shard.world.now() + POOLS_MAX;
        // A copy of the table: the borrow must not last across the awaits.
        let pools: Vec<(Name, PoolHome)> =
            self.pools.borrow().iter().map(|(name, &home)| (name.clone(), home)).collect();
        for (name, PoolHome { home, .. }) in pools {
            let pool = name.clone();
            let closing = self.shard.call(home, move |shard| crate::pool::close(shard, pool));
            // Zero after the deadline: each further pool is still told to close, but not waited for.
            match self.within(end.since(self.shard.world.now()), closing).await {
                Some(Some(Err(refusal))) => {
                    let what = "the pool was not closed cleanly; it is resynced when it is opened";
                    tracing::warn!(pool = %name, %refusal, "{what}");
                }
                Some(_) => {}
                None => {
                    let step = self.closing_step(&name, home).await;
                    tracing::warn!(pool = %name, waits_for = step, "the pool does not close; stopping without it");
                    unended.push(format!("pool {name} ({step})"));
                }
            }
        }
    }

    /// Present step of closing the pool, if its shard answers.
    async fn closing_step(&self, name: &Name, home: usize) -> &'static str {
        let pool = name.clone();
        let asked = self.shard.call(home, move |shard| async move { crate::pool::closing_step(&shard, &pool) });
        let answer = self.within(Duration::from_secs(1), asked).await;
        answer.flatten().flatten().unwrap_or("its shard, which does not respond")
    }

    async fn within<T>(&self, most: Duration, work: impl Future<Output = T>) -> Option<T> {
        // Only the wait ends at the timeout; work on other shards goes on.
        match select(pin!(work), pin!(self.shard.world.sleep(most))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}

/// Closes the remote disks of all shards: keys are unregistered and sessions logged out.
async fn close_remotes<W: World>(shard: &Rc<ShardContext<W>>) {
    for home in 0..shard.limits.shards {
        shard.call(home, |shard| async move { shard.remotes.all_closed().await }).await;
    }
}

/// Logs a command that does not end, and what it waits for.
fn tell_of(task: &TaskReport) {
    let volume = task.volume.as_ref().map(ToString::to_string).unwrap_or_default();
    tracing::warn!(
        session = task.session,
        initiator = task.initiator,
        volume,
        tag = task.tag,
        operation_code = task.operation_code,
        waited_ms = task.waited_ms,
        waits_for = task.waits_for(),
        "a command does not complete"
    );
}
