//! A sleeve over a disk that counts what it does.

use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use model::DiskCounters;
use model::histogram::{BUCKETS, bucket_of};
use shard::Time;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A device that counts.
pub struct Counted<D> {
    device: D,
    now: Box<dyn Fn() -> Time>,
    counters: Cell<DiskCounters>,
    /// Operations under way, and since when that number is so.
    under_way: Cell<(u32, Time)>,
    /// How many of them began in which tick, oldest first; the first is not zero.
    begun: RefCell<VecDeque<(u64, u32)>>,
    /// How many reads, and how many other operations, took how long; older ones count less.
    latencies: [RefCell<Latencies>; 2],
}

/// Counts of operations, by the bucket of their latency in microseconds.
type Latencies = Box<[u32; BUCKETS]>;

/// With so many operations in a bucket all counts are halved.
const LATENCIES_MAX: u32 = 1 << 16;

/// An operation under way, until this is dropped: on which disk, when it began, and whether it reads.
struct Flight<'a, D> {
    disk: &'a Counted<D>,
    began: Time,
    reads: bool,
}

/// A tick has 2^28 ns, a quarter of a second: fine enough for who asks what hangs.
const TICK_BITS: u32 = 28;

impl<D> Counted<D> {
    /// The device, with nothing counted yet; `now` tells the time.
    pub fn new(device: D, now: impl Fn() -> Time + 'static) -> Self {
        let since = now();
        let (counters, begun) = Default::default();
        let latencies = [(); 2].map(|()| RefCell::new(Box::new([0; BUCKETS])));
        Self { device, now: Box::new(now), counters, under_way: Cell::new((0, since)), begun, latencies }
    }

    /// The device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// What was counted so far.
    pub fn counters(&self) -> DiskCounters {
        self.advance();
        DiskCounters { oldest_ns: self.oldest_ns(), ..self.counters.get() }
    }

    /// Operations that have no answer yet.
    pub fn under_way(&self) -> u32 {
        self.under_way.get().0
    }

    /// Counts the time since it was last counted. Operations under way: as many as then.
    fn advance(&self) -> u32 {
        let ((count, since), now) = (self.under_way.get(), (self.now)());
        if count > 0 {
            let mut counters = self.counters.get();
            let passed = now.since(since).as_nanos() as u64;
            counters.busy_ns += passed;
            counters.waited_ns += passed * u64::from(count);
            self.counters.set(counters);
        }
        self.under_way.set((count, now));
        count
    }

    /// For how long at least the oldest operation has been under way.
    fn oldest_ns(&self) -> u64 {
        let now = self.under_way.get().1.0;
        self.begun.borrow().front().map_or(0, |(tick, _)| now.saturating_sub((tick + 1) << TICK_BITS))
    }

    /// The latency that one read in a thousand exceeds; zero while that is not known.
    pub fn usual_read_latency(&self) -> Duration {
        self.latency(true, 999)
    }

    /// The latency of reads, or of all others, that so many in a thousand do not exceed; zero where there were too few to tell.
    pub fn latency(&self, reads: bool, per_mille: u64) -> Duration {
        let counts = self.latencies[usize::from(reads)].borrow();
        // The part that exceeds it has to have had a chance to be there.
        if u64::from(counts.iter().sum::<u32>()) * (1_000 - per_mille) < 1_000 {
            return Duration::ZERO;
        }
        let histogram = model::Histogram::new(counts.iter().map(|&count| u64::from(count)));
        Duration::from_micros(histogram.within_us(per_mille))
    }

    fn note_latency(&self, took: Duration, reads: bool) {
        let mut counts = self.latencies[usize::from(reads)].borrow_mut();
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = &mut counts[bucket_of(us)];
        *bucket += 1;
        if *bucket >= LATENCIES_MAX {
            counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    fn begin(&self, reads: bool) -> Flight<'_, D> {
        let count = self.advance() + 1;
        let (_, now) = self.under_way.get();
        self.under_way.set((count, now));
        let tick = now.0 >> TICK_BITS;
        let mut begun = self.begun.borrow_mut();
        match begun.back_mut().filter(|(last, _)| *last == tick) {
            Some((_, count)) => *count += 1,
            None => begun.push_back((tick, 1)),
        }
        Flight { disk: self, began: now, reads }
    }

    fn end(&self, tick: u64) {
        let mut begun = self.begun.borrow_mut();
        if let Some((_, count)) = begun.iter_mut().rev().find(|(began, _)| *began == tick) {
            assert!(*count > 0, "an operation ends once, in the tick in which it began");
            *count -= 1;
        }
        while begun.front().is_some_and(|(_, count)| *count == 0) {
            begun.pop_front();
        }
    }

    fn count_write(&self, result: Result<Written, IoError>, bytes: usize) -> Result<Written, IoError> {
        self.count(result, |counters, _| {
            counters.writes += 1;
            counters.written_bytes += bytes as u64;
        })
    }

    fn count<T>(&self, result: Result<T, IoError>, add: impl FnOnce(&mut DiskCounters, &T)) -> Result<T, IoError> {
        let mut counters = self.counters.get();
        match &result {
            Ok(done) => add(&mut counters, done),
            Err(_) => counters.errors += 1,
        }
        self.counters.set(counters);
        result
    }
}

impl<D> Drop for Flight<'_, D> {
    fn drop(&mut self) {
        let under_way = self.disk.advance();
        assert!(under_way > 0, "an operation that ends was under way");
        let (_, now) = self.disk.under_way.get();
        self.disk.under_way.set((under_way - 1, now));
        self.disk.end(self.began.0 >> TICK_BITS);
        self.disk.note_latency(now.since(self.began), self.reads);
    }
}

impl<D: fmt::Debug> fmt::Debug for Counted<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted")
            .field("device", &self.device)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl<D: BlockDevice> BlockDevice for Counted<D> {
    fn geometry(&self) -> Geometry {
        self.device.geometry()
    }

    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        let _flight = self.begin(true);
        self.count(self.device.read(extent).await, |counters, data| {
            counters.reads += 1;
            counters.read_bytes += data.len() as u64;
        })
    }

    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let (_flight, bytes) = (self.begin(false), data.len());
        self.count_write(self.device.write(start, data).await, bytes)
    }

    async fn write_fresh(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let (_flight, bytes) = (self.begin(false), data.len());
        self.count_write(self.device.write_fresh(start, data).await, bytes)
    }

    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        let _flight = self.begin(false);
        self.count(self.device.flush(after).await, |counters, _| counters.flushes += 1)
    }

    async fn discard(&self, extent: Extent) -> Result<Written, IoError> {
        let _flight = self.begin(false);
        self.count(self.device.discard(extent).await, |_, _| ())
    }

    async fn reserve(&self, extent: Extent) -> Result<(), IoError> {
        self.device.reserve(extent).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::Blocks;
    use block::memory::Ram;
    use futures_util::FutureExt;
    use std::rc::Rc;

    /// A clock that goes on by a microsecond whenever somebody looks at it.
    fn ticking() -> impl Fn() -> Time {
        let ticks = Cell::new(0);
        move || {
            ticks.set(ticks.get() + 1_000);
            Time(ticks.get())
        }
    }

    #[test]
    fn counted_tells_what_was_done_and_what_failed() {
        let device = Counted::new(Ram::new(4096, Blocks(4)), || Time(0));
        let written = device.write(Lba(0), View::zeroed(8192)).now_or_never().expect("RAM is ready").expect("in range");
        let _stable = device.flush(written).now_or_never().expect("RAM is ready").expect("RAM keeps it");
        let _data = device.read(Extent::new(0, 1)).now_or_never().expect("RAM is ready").expect("in range");
        assert!(device.read(Extent::new(9, 1)).now_or_never().expect("RAM is ready").is_err());
        let counted = DiskCounters {
            reads: 1,
            writes: 1,
            flushes: 1,
            read_bytes: 4096,
            written_bytes: 8192,
            errors: 1,
            ..DiskCounters::default()
        };
        assert_eq!(device.counters(), counted);
    }

    #[test]
    fn time_of_two_operations_at_once_is_busy_once_and_waited_twice() {
        let device = Counted::new(Ram::new(4096, Blocks(4)), ticking());
        let times = || (device.counters().busy_ns, device.counters().waited_ns);
        assert_eq!(times(), (0, 0));
        let first = device.begin(false);
        let second = device.begin(false);
        drop(first);
        drop(second);
        assert_eq!(times(), (3_000, 4_000), "one tick alone, one together, one alone");
        assert_eq!(times(), (3_000, 4_000), "an idle disk is not busy");
        let _abandoned = device.begin(false);
        assert_eq!(device.counters().busy_ns, 4_000, "what is still under way counts");
    }

    #[test]
    fn oldest_operation_is_told_however_many_end_before_it() {
        let now = Rc::new(Cell::new(0));
        let clock = now.clone();
        let device = Counted::new(Ram::new(4096, Blocks(4)), move || Time(clock.get()));
        let oldest_ms = || device.counters().oldest_ns / 1_000_000;
        let hangs = device.begin(false);
        for _ in 0..100 {
            now.set(now.get() + 100_000_000);
            drop(device.begin(false));
        }
        assert!((9_700..=10_000).contains(&oldest_ms()), "{} ms", oldest_ms());
        let _later = device.begin(false);
        now.set(now.get() + 1_000_000_000);
        drop(hangs);
        assert!((700..=1_000).contains(&oldest_ms()), "{} ms", oldest_ms());
    }
}
