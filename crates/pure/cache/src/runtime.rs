//! What the cache needs of the outside: a clock, and tasks beside the caller's.

use shard::time::Sleep;
use shard::{Time, World};
use std::future::Future;

/// The clock and the tasks of one shard. Every [`World`] is one; a test has its own.
pub trait Runtime: Clone + 'static {
    /// The monotonic clock.
    fn now(&self) -> Time;

    /// Is ready once the clock has reached `at`.
    fn sleep_until(&self, at: Time) -> Sleep;

    /// Runs `task` on this shard, beside the caller.
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
