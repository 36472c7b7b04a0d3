//! Disk in memory with a given speed, on a virtual clock.

use block::memory::Ram;
use block::{BlockDevice, Blocks, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use shard::time::Timers;
use shard::{Executor, Spawn, Time};
use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Virtual clock, which advances only when nothing else can run.
#[derive(Clone)]
pub(crate) struct Clock {
    timers: Timers,
    now: Rc<Cell<Time>>,
    executor: Executor,
}

impl Default for Clock {
    fn default() -> Self {
        Self { timers: Timers::default(), now: Rc::default(), executor: Executor::new(Box::new(|| {})) }
    }
}

impl Clock {
    /// Spawns detached tasks.
    pub(crate) fn spawn(&self) -> Spawn {
        let executor = self.executor.clone();
        Rc::new(move |task| executor.spawn(task))
    }

    /// Runs `work` to completion; returns the virtual time it took.
    pub(crate) fn run<T: 'static>(&self, work: impl Future<Output = T> + 'static) -> (T, Duration) {
        let (result, begin) = (Rc::new(Cell::new(None)), self.now.get());
        let (tell, clock) = (result.clone(), self.clone());
        self.executor.spawn(async move { tell.set(Some((work.await, clock.now.get()))) });
        loop {
            while self.executor.run_one(|_| 0) {}
            if let Some((value, end)) = result.take() {
                return (value, end.since(begin));
            }
            self.now.set(self.timers.next().expect("what runs waits for a disk"));
            self.timers.fire(self.now.get());
        }
    }
}

/// Service time of an operation: exclusive use of the disk, then a latency that overlaps with others.
#[derive(Clone, Copy)]
pub(crate) struct Speed {
    pub bytes_per_second: u64,
    pub turn: Duration,
    pub latency: Duration,
    pub flush: Duration,
    pub volatile_cache: bool,
}

/// Enterprise SSD: 100,000 IOPS, 2 GB/s, 60 µs; its cache survives a power cut.
pub(crate) const SERVER_SSD: Speed = Speed {
    bytes_per_second: 2_000_000_000,
    turn: Duration::from_micros(10),
    latency: Duration::from_micros(60),
    flush: Duration::ZERO,
    volatile_cache: false,
};

/// Consumer SSD: half of that speed; durable writes need a flush, which takes a millisecond.
pub(crate) const DESKTOP_SSD: Speed = Speed {
    bytes_per_second: 500_000_000,
    turn: Duration::from_micros(20),
    latency: Duration::from_micros(100),
    flush: Duration::from_millis(1),
    volatile_cache: true,
};

pub(crate) struct Disk {
    ram: Ram,
    clock: Clock,
    speed: Speed,
    busy: Cell<Time>,
}

impl Disk {
    pub(crate) fn new(clock: &Clock, speed: Speed, blocks: u64) -> Rc<Self> {
        let ram = Ram::new(4096, Blocks(blocks));
        Rc::new(Self { ram, clock: clock.clone(), speed, busy: Cell::default() })
    }

    async fn work(&self, bytes: u64) {
        let moving = Duration::from_nanos(bytes * 1_000_000_000 / self.speed.bytes_per_second);
        let end = self.busy.get().max(self.clock.now.get()) + moving.max(self.speed.turn);
        self.busy.set(end);
        self.clock.timers.sleep_until(end + self.speed.latency).await;
    }
}

impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: self.speed.volatile_cache, ..self.ram.geometry() }
    }
    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.work(extent.len.bytes(4096)).await;
        self.ram.read(extent).await
    }
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.work(data.len() as u64).await;
        self.ram.write(start, data).await
    }
    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        if self.speed.volatile_cache {
            // The device does nothing else during a flush.
            let end = self.busy.get().max(self.clock.now.get()) + self.speed.flush;
            self.busy.set(end);
            self.clock.timers.sleep_until(end).await;
        }
        self.ram.flush(after).await
    }
    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        self.ram.discard(extent).await
    }
}
