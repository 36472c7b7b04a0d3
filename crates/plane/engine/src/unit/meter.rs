//! Counters of host commands: their number and their latency.

use crate::latency::Latencies;
use shard::{Time, World};
use std::cell::Cell;
use std::time::Duration;

/// Operation of a command, and the time when it was complete.
#[derive(Clone, Copy, Debug)]
pub struct CommandStart {
    /// SCSI operation code.
    pub operation_code: u8,
    /// Time when the command was received in full.
    pub began: Time,
}

/// Totals of host commands since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostLoad {
    /// Commands started.
    pub begun: u64,
    /// Commands completed.
    pub ended: u64,
    /// Sum of the latencies of the completed commands.
    pub took: Duration,
}

/// Counter for the commands of several units on one shard.
#[derive(Debug, Default)]
pub struct Meter {
    begun: Cell<u64>,
    ended: Cell<u64>,
    took_us: Cell<u64>,
}

/// A command in flight; counted as completed when it is dropped, whatever its outcome.
pub struct Metered<'a, W: World> {
    world: &'a W,
    meter: &'a Meter,
    latencies: &'a Latencies,
    clock: CommandStart,
}

impl Meter {
    /// Totals so far.
    pub fn load(&self) -> HostLoad {
        let took = Duration::from_micros(self.took_us.get());
        HostLoad { begun: self.begun.get(), ended: self.ended.get(), took }
    }

    /// Counts the start of a command. Its latency is recorded in `latencies` as well when it completes.
    pub fn begin<'a, W: World>(
        &'a self,
        world: &'a W,
        latencies: &'a Latencies,
        clock: CommandStart,
    ) -> Metered<'a, W> {
        self.count_begun();
        Metered { world, meter: self, latencies, clock }
    }

    /// Counts a command that started and completed.
    #[inline]
    pub fn pass(&self, latencies: &Latencies, clock: CommandStart, ended: Time) {
        self.count_begun();
        self.count_ended(latencies, clock, ended);
    }

    #[inline]
    fn count_begun(&self) {
        self.begun.set(self.begun.get() + 1);
    }

    #[inline]
    fn count_ended(&self, latencies: &Latencies, clock: CommandStart, ended: Time) {
        let us = ended.since_us(clock.began);
        latencies.record(clock.operation_code, us);
        // The difference of both totals is the number of commands in flight, which must never be negative.
        assert!(self.ended.get() < self.begun.get(), "a command ends once, after it began");
        self.ended.set(self.ended.get() + 1);
        self.took_us.set(self.took_us.get() + us);
    }
}

impl<W: World> Metered<'_, W> {
    /// Counts the completion of the command and returns its time.
    pub fn end(self) -> Time {
        let ended = self.world.now();
        self.meter.count_ended(self.latencies, self.clock, ended);
        // The drop handler would count the command a second time.
        std::mem::forget(self);
        ended
    }
}

impl<W: World> Drop for Metered<'_, W> {
    fn drop(&mut self) {
        // A dropped command counts as well: its host has waited until here.
        self.meter.count_ended(self.latencies, self.clock, self.world.now());
    }
}
