//! What the commands of hosts meet: how many there are, and how long they take.

use crate::latency::Latencies;
use shard::{Time, World};
use std::cell::Cell;
use std::time::Duration;

/// Which operation a command is, and when all of it was there.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The operation code.
    pub operation_code: u8,
    /// When it began.
    pub began: Time,
}

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
pub struct Meter {
    begun: Cell<u64>,
    ended: Cell<u64>,
    took_us: Cell<u64>,
}

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
        let took = Duration::from_micros(self.took_us.get());
        HostLoad { begun: self.begun.get(), ended: self.ended.get(), took }
    }

    /// A command begins; how long it takes is counted among `latencies`, too.
    pub fn begin<'a, W: World>(&'a self, world: &'a W, latencies: &'a Latencies, clock: Clock) -> Metered<'a, W> {
        self.count_begun();
        Metered { world, meter: self, latencies, clock }
    }

    /// A command has begun and ended.
    #[inline]
    pub fn pass(&self, latencies: &Latencies, clock: Clock, ended: Time) {
        self.count_begun();
        self.count_ended(latencies, clock, ended);
    }

    #[inline]
    fn count_begun(&self) {
        self.begun.set(self.begun.get() + 1);
    }

    #[inline]
    fn count_ended(&self, latencies: &Latencies, clock: Clock, ended: Time) {
        let us = ended.since_us(clock.began);
        latencies.record(clock.operation_code, us);
        assert!(self.ended.get() < self.begun.get(), "a command ends once, after it began");
        self.ended.set(self.ended.get() + 1);
        self.took_us.set(self.took_us.get() + us);
    }
}

impl<W: World> Metered<'_, W> {
    /// The command has ended: says when.
    pub fn end(self) -> Time {
        let ended = self.world.now();
        self.meter.count_ended(self.latencies, self.clock, ended);
        std::mem::forget(self);
        ended
    }
}

impl<W: World> Drop for Metered<'_, W> {
    fn drop(&mut self) {
        self.meter.count_ended(self.latencies, self.clock, self.world.now());
    }
}
