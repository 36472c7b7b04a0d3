//! Device layer that counts the operations of a disk and measures their latency.
//!
//! Lies above each member disk ([`crate::array::Disk`]); read by the watchdog, by `disk list` and by reports of pools.

use block::{BlockDevice, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use model::DiskCounters;
use model::histogram::{BUCKETS, bucket_of};
use shard::Time;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// A device with counters.
pub struct Counted<D> {
    device: D,
    now: Box<dyn Fn() -> Time>,
    counters: Cell<DiskCounters>,
    /// Operations in flight, and the time of the last change of that number.
    under_way: Cell<(u32, Time)>,
    /// Operations in flight by the tick in which they started, oldest first; the first count is not zero.
    begun: RefCell<VecDeque<(u64, u32)>>,
    /// Latencies of reads and of all other operations; older ones count less.
    latencies: [RefCell<Latencies>; 2],
}

/// Number of operations by latency bucket (microseconds).
type Latencies = Box<[u32; BUCKETS]>;

/// Count of a bucket at which all counts are halved, so that older operations lose weight.
const LATENCIES_MAX: u32 = 1 << 16;

/// Operation in flight until it is dropped: its disk, its start, and whether it is a read.
struct InFlight<'a, D> {
    disk: &'a Counted<D>,
    began: Time,
    reads: bool,
}

/// Length of a tick: 2^28 ns, a quarter of a second. Fine enough to find an operation that hangs.
const TICK_BITS: u32 = 28;

impl<D> Counted<D> {
    /// Creates a device with all counters at zero; `now` is its clock.
    pub fn new(device: D, now: impl Fn() -> Time + 'static) -> Self {
        let since = now();
        let (counters, begun) = Default::default();
        let latencies = [(); 2].map(|()| RefCell::new(Box::new([0; BUCKETS])));
        Self { device, now: Box::new(now), counters, under_way: Cell::new((0, since)), begun, latencies }
    }

    /// Device below.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Counters up to now.
    pub fn counters(&self) -> DiskCounters {
        self.advance();
        DiskCounters { oldest_ns: self.oldest_ns(), ..self.counters.get() }
    }

    /// Operations in flight.
    pub fn under_way(&self) -> u32 {
        self.under_way.get().0
    }

    /// Adds the time since the last call to the busy and waiting times. Returns the operations in flight.
    fn advance(&self) -> u32 {
        let ((count, since), now) = (self.under_way.get(), (self.now)());
        if count > 0 {
            // Busy time runs once, waiting time once for each operation in flight: their ratio is the mean queue depth.
            let mut counters = self.counters.get();
            let passed = now.since(since).as_nanos() as u64;
            counters.busy_ns += passed;
            counters.waited_ns += passed * u64::from(count);
            self.counters.set(counters);
        }
        self.under_way.set((count, now));
        count
    }

    /// Lower bound of the age of the oldest operation in flight, in nanoseconds.
    fn oldest_ns(&self) -> u64 {
        let now = self.under_way.get().1.0;
        // The oldest operation started before the end of its tick, hence the lower bound.
        self.begun.borrow().front().map_or(0, |(tick, _)| now.saturating_sub((tick + 1) << TICK_BITS))
    }

    /// Read latency at p99.9; zero while too few reads were measured.
    pub fn usual_read_latency(&self) -> Duration {
        self.latency(true, 999)
    }

    /// Latency at `per_mille` of reads, or of all other operations; zero while too few were measured.
    pub fn latency(&self, reads: bool, per_mille: u64) -> Duration {
        // Index 1 holds reads, index 0 all other operations.
        let counts = self.latencies[usize::from(reads)].borrow();
        // At least one sample is expected above the percentile; with fewer samples the value says nothing.
        if u64::from(counts.iter().sum::<u32>()) * (1_000 - per_mille) < 1_000 {
            return Duration::ZERO;
        }
        let histogram = model::Histogram::new(counts.iter().map(|&count| u64::from(count)));
        Duration::from_micros(histogram.within_us(per_mille))
    }

    fn note_latency(&self, took: Duration, reads: bool) {
        let mut counts = self.latencies[usize::from(reads)].borrow_mut();
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // `bucket_of` puts every latency into one of `BUCKETS`, so the index exists.
        let bucket = &mut counts[bucket_of(us)];
        *bucket += 1;
        // Halving all buckets keeps their proportions and lets recent operations dominate.
        if *bucket >= LATENCIES_MAX {
            counts.iter_mut().for_each(|count| *count /= 2);
        }
    }

    fn begin(&self, reads: bool) -> InFlight<'_, D> {
        let count = self.advance() + 1;
        let (_, now) = self.under_way.get();
        self.under_way.set((count, now));
        let tick = now.0 >> TICK_BITS;
        // One entry for each tick instead of one for each operation bounds the queue by time, not by queue depth.
        let mut begun = self.begun.borrow_mut();
        match begun.back_mut().filter(|(last, _)| *last == tick) {
            Some((_, count)) => *count += 1,
            None => begun.push_back((tick, 1)),
        }
        InFlight { disk: self, began: now, reads }
    }

    fn end(&self, tick: u64) {
        let mut begun = self.begun.borrow_mut();
        // An operation that ends is most often among the newest, so the search runs backward.
        if let Some((_, count)) = begun.iter_mut().rev().find(|(began, _)| *began == tick) {
            assert!(*count > 0, "an operation ends once, in the tick in which it began");
            *count -= 1;
        }
        // The front must not be empty: `oldest_ns` takes it for the oldest operation.
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
            // An error counts once, whatever the operation.
            Err(_) => counters.errors += 1,
        }
        self.counters.set(counters);
        result
    }
}

impl<D> Drop for InFlight<'_, D> {
    fn drop(&mut self) {
        // Dropped futures are counted as well: an interrupted operation has occupied the disk.
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
        // The guard lives until the result is there, so a dropped future still ends the operation.
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

    async fn write_unlogged(&self, start: Lba, data: View) -> Result<Written, IoError> {
        let (_flight, bytes) = (self.begin(false), data.len());
        self.count_write(self.device.write_unlogged(start, data).await, bytes)
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

    /// Clock that advances by a microsecond at each reading.
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
