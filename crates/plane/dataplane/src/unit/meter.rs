//! What the commands of hosts meet: how many there are, and how long they take.

use super::Clock;
use crate::latency::Latencies;
use shard::{Time, World};
use std::cell::Cell;
use std::time::Duration;

/// What commands have met since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// Commands that have begun.
    pub begun: u64,
    /// Commands that have ended.
    pub ended: u64,
    /// How long these took, together.
    pub took: Duration,
}

/// Counts the commands of several units on one shard.
#[derive(Debug, Default)]
pub struct Meter(Cell<HostLoad>);

/// A command that is under way; dropped when it ends, however it ends.
pub struct Metered<'a, W: World> {
    world: &'a W,
    meter: &'a Meter,
    latencies: &'a Latencies,
    clock: Clock,
}

impl Meter {
    /// What commands have met so far.
    pub fn load(&self) -> HostLoad {
        self.0.get()
    }

    /// A command begins; how long it takes is counted among `latencies`, too.
    pub fn begin<'a, W: World>(&'a self, world: &'a W, latencies: &'a Latencies, clock: Clock) -> Metered<'a, W> {
        let load = self.0.get();
        self.0.set(HostLoad { begun: load.begun + 1, ..load });
        Metered { world, meter: self, latencies, clock }
    }
}

impl<W: World> Metered<'_, W> {
    /// The command has ended: says when.
    pub fn end(self) -> Time {
        let ended = self.world.now();
        self.count(ended);
        std::mem::forget(self);
        ended
    }

    fn count(&self, ended: Time) {
        let load = self.meter.0.get();
        let took = ended.since(self.clock.began);
        self.latencies.record(self.clock.operation_code, took);
        self.meter.0.set(HostLoad { ended: load.ended + 1, took: load.took + took, ..load });
    }
}

impl<W: World> Drop for Metered<'_, W> {
    fn drop(&mut self) {
        self.count(self.world.now());
    }
}
