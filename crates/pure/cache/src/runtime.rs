//! Runtime services that the cache needs: a clock, and a task spawner.

use shard::time::Sleep;
use shard::{Time, World};
use std::future::Future;

/// Clock and task spawner of one shard. Every [`World`] is one; tests have their own.
pub trait Runtime: Clone + 'static {
    /// Current time of the monotonic clock.
    fn now(&self) -> Time;

    /// Sleeps until the clock has reached `at`.
    fn sleep_until(&self, at: Time) -> Sleep;

    /// Spawns a detached task on this shard.
    fn spawn(&self, task: impl Future<Output = ()> + 'static);
}

impl<W: World> Runtime for W {
    fn now(&self) -> Time {
        World::now(self)
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        World::sleep_until(self, at)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        World::spawn(self, task);
    }
}
