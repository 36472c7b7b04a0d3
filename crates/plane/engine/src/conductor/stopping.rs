//! The end of the data plane: sessions, copies and pools, each within a bound.
//!
//! What does not end within its bound is named in the log, and the rest is ended without it: a command that waits for a disk
//! that never answers must not keep the daemon. Nothing that was acknowledged is lost by that; what is not closed cleanly is
//! recovered when it is opened again.

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

/// How long sessions may take to end what is under way when the daemon stops.
const SESSIONS_MAX: Duration = Duration::from_secs(10);
/// How long copies may take.
const COPIES_MAX: Duration = Duration::from_secs(5);
/// How long pools that are being opened may take: a watch of the marks of other nodes, and time to let go of the pool.
const OPENINGS_MAX: Duration = WATCH.saturating_add(Duration::from_secs(4));
/// How long all pools together may take to be closed.
const POOLS_MAX: Duration = Duration::from_secs(15);
/// How long remote disks may take to unregister and log out.
const REMOTES_MAX: Duration = Duration::from_secs(5);
/// Commands that are named; the others are counted.
const NAMED_MAX: usize = 20;

impl<W: World> Conductor<W> {
    /// The data plane serves nobody any more.
    ///
    /// *Errors*: `STOP_INCOMPLETE` when something did not end in its time; the log says what.
    pub(super) async fn stop(&self) -> Result<Report, Refusal> {
        if self.stopped.replace(true) {
            return Ok(Report::Done);
        }
        self.front.close_portals();
        let mut unended = Vec::new();
        if self.within(SESSIONS_MAX, self.front.end_sessions()).await.is_none() {
            let tasks = self.front.tasks().await;
            tasks.iter().take(NAMED_MAX).for_each(tell_of);
            tracing::warn!(
                commands = tasks.len(),
                "some sessions have commands that do not end; stopping without them"
            );
            // Commands of a session that has lost its connections are nobody's any more, and still under way.
            unended.push(match tasks.len() {
                0 => "commands of sessions that have ended".to_owned(),
                1 => "a command".to_owned(),
                count => format!("{count} commands"),
            });
        }
        if self.within(COPIES_MAX, self.copies.end()).await.is_none() {
            tracing::warn!("some copies do not end; what they leave is cleared away when their pools are opened");
            unended.push("copies of volumes".to_owned());
        }
        if self.within(OPENINGS_MAX, self.openings.all_ended()).await.is_none() {
            tracing::warn!("some pools are still being opened; stopping without them");
            unended.push("pools that are being opened".to_owned());
        }
        self.close_pools(&mut unended).await;
        if self.within(REMOTES_MAX, close_remotes(&self.shard)).await.is_none() {
            tracing::warn!(
                "targets of remote disks do not answer; keys stay registered, and are replaced at the next start"
            );
        }
        if unended.is_empty() {
            return Ok(Report::Done);
        }
        let message = format!("not everything ended in its time: {}", unended.join(", "));
        let hint =
            "the log names what waits and for which disk; pools that were not closed are recovered at the next start";
        Err(Refusal::new(code::STOP_INCOMPLETE, message, hint))
    }

    async fn close_pools(&self, unended: &mut Vec<String>) {
        let end = self.shard.world.now() + POOLS_MAX;
        let pools: Vec<(Name, PoolHome)> =
            self.pools.borrow().iter().map(|(name, &home)| (name.clone(), home)).collect();
        for (name, PoolHome { home, .. }) in pools {
            let pool = name.clone();
            let closing = self.shard.call(home, move |shard| crate::pool::close(shard, pool));
            match self.within(end.since(self.shard.world.now()), closing).await {
                Some(Some(Err(refusal))) => {
                    let what = "the pool was not closed cleanly; it is resynced when it is opened";
                    tracing::warn!(pool = %name, %refusal, "{what}");
                }
                Some(_) => {}
                None => {
                    let step = self.closing_step(&name, home).await;
                    tracing::warn!(pool = %name, waits_for = step, "the pool does not end; stopping without it");
                    unended.push(format!("pool {name} ({step})"));
                }
            }
        }
    }

    /// What the closing of the pool waits for, as far as its shard can say.
    async fn closing_step(&self, name: &Name, home: usize) -> &'static str {
        let pool = name.clone();
        let asked = self.shard.call(home, move |shard| async move { crate::pool::closing_step(&shard, &pool) });
        let answer = self.within(Duration::from_secs(1), asked).await;
        answer.flatten().flatten().unwrap_or("its shard, which does not answer")
    }

    async fn within<T>(&self, most: Duration, work: impl Future<Output = T>) -> Option<T> {
        match select(pin!(work), pin!(self.shard.world.sleep(most))).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}

/// The remote disks of all shards have unregistered their keys and logged out.
async fn close_remotes<W: World>(shard: &Rc<ShardContext<W>>) {
    for home in 0..shard.limits.shards {
        shard.call(home, |shard| async move { shard.remotes.all_closed().await }).await;
    }
}

/// Names a command that does not end, and what it waits for.
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
        "a command does not end"
    );
}
