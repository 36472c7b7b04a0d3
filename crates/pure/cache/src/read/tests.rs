use crate::rig::disk::{Disk, Journal};
use crate::rig::{Random, Rig, TestRuntime};
use crate::{Cached, Finding, Findings, Layer, ReadAhead, ReadCache, Share, VolumeId};
use block::{BlockDevice, Buf, Extent, IoError, Lba, Rope, View, Written};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

type Volume = Cached<Disk, TestRuntime>;

struct Bench {
    rig: Rig,
    disk: Disk,
    cache: ReadCache,
    volume: Volume,
    findings: Rc<RefCell<Vec<Finding>>>,
}

impl Bench {
    /// Creates a disk of `disk_bytes` with a latency of up to 100 µs, cached in `cache_bytes`.
    fn new(disk_bytes: u64, cache_bytes: u64, read_ahead: ReadAhead) -> Self {
        let rig = Rig::in_order();
        let disk = Disk::new(&rig.runtime, 0, 4096, disk_bytes, &Journal::default());
        disk.latency.set(Duration::from_micros(100));
        let findings = Rc::new(RefCell::new(Vec::new()));
        let hear = findings.clone();
        let cache = ReadCache::new(cache_bytes, Findings::new(move |finding| hear.borrow_mut().push(finding)));
        let volume = Cached::new(&cache, VolumeId(1), disk.clone(), rig.runtime.clone(), Share::default(), read_ahead);
        Self { rig, disk, cache, volume, findings }
    }

    fn read(&self, start: u64, blocks: u64) -> Result<Rope, IoError> {
        let volume = self.volume.clone();
        let extent = Extent::new(start, blocks);
        self.rig.run(async move {
            match volume.try_read(extent) {
                Some(read) => read,
                None => volume.read(extent).await,
            }
        })
    }

    fn write(&self, start: u64, data: View) {
        let volume = self.volume.clone();
        let _: Written = self.rig.run(async move { volume.write(Lba(start), data).await }).unwrap();
    }

    /// Throughput in MB/s of a sequential read of `bytes`, `step` bytes at a time.
    fn stream(&self, bytes: u64, step: u64) -> f64 {
        let begin = crate::Runtime::now(&self.rig.runtime);
        for at in (0..bytes / 4096).step_by((step / 4096) as usize) {
            self.read(at, step / 4096).unwrap();
        }
        bytes as f64 / 1e6 / (crate::Runtime::now(&self.rig.runtime) - begin).as_secs_f64()
    }
}

fn filled(byte: u8) -> View {
    let mut buf = Buf::zeroed(4096);
    buf.fill(byte);
    buf.freeze()
}

#[test]
fn read_that_misses_is_fetched_once_however_many_ask() {
    let bench = Bench::new(1 << 20, 1 << 20, ReadAhead::Off);
    let asked: Vec<_> = (0..20)
        .map(|_| {
            let volume = bench.volume.clone();
            bench.rig.begin(async move { volume.read(Extent::new(3, 2)).await.is_ok() })
        })
        .collect();
    while bench.rig.step() {}
    assert!(asked.iter().all(|one| one.result() == Some(true)));
    assert_eq!((bench.disk.reads.get(), bench.volume.counters().joined), (1, 19));
}

#[test]
fn read_whose_leader_is_dropped_is_fetched_by_another() {
    let bench = Bench::new(1 << 20, 1 << 20, ReadAhead::Off);
    let begin = || {
        let volume = bench.volume.clone();
        bench.rig.begin(async move { volume.read(Extent::new(3, 2)).await.map(|rope| rope.len()) })
    };
    let (leader, other) = (begin(), begin());
    bench.rig.settle();
    leader.abort();
    while bench.rig.step() {}
    assert_eq!(other.result(), Some(Ok(8192)));
}

#[test]
fn hit_shares_memory_and_does_not_touch_the_disk() {
    let bench = Bench::new(1 << 20, 1 << 20, ReadAhead::Off);
    bench.read(8, 2).unwrap();
    let (first, second) = (bench.read(8, 2).unwrap(), bench.read(8, 2).unwrap());
    let place = |rope: &Rope| rope.parts().map(|part| part.as_ptr()).collect::<Vec<_>>();
    assert_eq!(place(&first), place(&second));
    assert_eq!((place(&first).len(), bench.disk.reads.get()), (1, 1));
}

#[test]
fn block_that_changed_in_memory_is_read_again_and_reported() {
    let bench = Bench::new(1 << 20, 1 << 20, ReadAhead::Off);
    bench.write(5, filled(9));
    bench.read(4, 4).unwrap();
    assert!(bench.volume.flip_bit(5));
    assert!(bench.read(4, 4).unwrap().slice(4096..8192) == [9; 4096][..]);
    let finding = Finding { layer: Layer::Cache, volume: VolumeId(1), extent: Extent::new(5, 1), healed: true };
    assert_eq!(*bench.findings.borrow(), [finding]);
    assert_eq!(bench.volume.counters().mismatches, 1);
}

#[test]
fn error_is_not_cached_and_names_the_reader_s_own_blocks() {
    let bench = Bench::new(1 << 20, 1 << 20, ReadAhead::Off);
    bench.disk.bad.borrow_mut().insert(6);
    assert!(bench.read(4, 4).is_err());
    let (volume, beside) = (bench.volume.clone(), bench.volume.clone());
    let bad = bench.rig.begin(async move { volume.read(Extent::new(4, 4)).await.is_ok() });
    let good = bench.rig.begin(async move { beside.read(Extent::new(4, 2)).await.is_ok() });
    while bench.rig.step() {}
    assert_eq!((bad.result(), good.result()), (Some(false), Some(true)), "who joins hears of his own blocks only");
    bench.disk.bad.borrow_mut().clear();
    assert!(bench.read(4, 4).is_ok());
}

#[test]
fn scan_of_ten_times_the_cache_leaves_the_hot_set_in_it() {
    let (cache_bytes, hot_pages) = (4 << 20, 512);
    for read_ahead in [ReadAhead::Off, ReadAhead::Adaptive] {
        let bench = Bench::new(64 << 20, cache_bytes, read_ahead);
        let mut random = Random(3);
        let mut read_hot = || bench.read(random.below(hot_pages), 1).unwrap();
        (0..6000).for_each(|_| drop(read_hot()));
        let mut before = bench.volume.counters();
        let (mut hits, mut asked) = (0, 0);
        for at in (2048..2048 + 10 * cache_bytes / 4096).step_by(2) {
            bench.read(at, 2).unwrap();
            before = bench.volume.counters();
            read_hot();
            hits += bench.volume.counters().hit_pages - before.hit_pages;
            asked += 1;
        }
        let rate = hits as f64 / f64::from(asked);
        assert!(rate > 0.95, "{rate} with {read_ahead:?}, {before:?}");
    }
}

#[test]
fn volume_with_a_larger_share_keeps_more_and_no_volume_passes_its_limit() {
    let bench = Bench::new(16 << 20, 4 << 20, ReadAhead::Off);
    let other = Cached::new(
        &bench.cache,
        VolumeId(2),
        bench.disk.clone(),
        bench.rig.runtime.clone(),
        Share { weight: 300, ..Share::default() },
        ReadAhead::Off,
    );
    for at in 0..4096 {
        bench.read(at, 1).unwrap();
        let other = other.clone();
        let _: Rope = bench.rig.run(async move { other.read(Extent::new(at, 1)).await }).unwrap();
    }
    let used = |volume: &Volume| volume.counters().used_bytes as f64 / f64::from(4 << 20);
    assert!((0.2..0.3).contains(&used(&bench.volume)), "{}", used(&bench.volume));
    assert!((0.7..0.8).contains(&used(&other)), "{}", used(&other));
    other.set_share(Share { bytes_max: Some(1 << 20), ..Share::default() });
    assert!(used(&other) <= 0.25);
    bench.cache.set_bytes_max(1 << 20);
    assert!(bench.cache.used_bytes() <= 1 << 20);
    bench.cache.clear();
    assert_eq!(bench.cache.used_bytes(), 0);
}

#[test]
fn pages_written_again_and_again_take_no_more_memory() {
    let bench = Bench::new(1 << 20, 4 << 20, ReadAhead::Off);
    bench.read(0, 64).unwrap();
    let used = bench.cache.used_bytes();
    (0..5000).for_each(|n| bench.write(n % 64, filled(n as u8)));
    assert!(bench.cache.used_bytes() < used + 64 * 256, "{} of {used}", bench.cache.used_bytes());
    // The last write of block 9 was number 4937.
    assert!(bench.read(9, 1).unwrap() == [4937_u64 as u8; 4096][..]);
    assert_eq!(bench.disk.reads.get(), 1, "what was cached and is written stays cached");
}

#[test]
fn stream_of_8_kib_is_as_fast_as_one_of_128_kib() {
    for read_ahead in [ReadAhead::Adaptive, ReadAhead::Fixed { bytes: 1 << 20 }] {
        let speed = |step| {
            let bench = Bench::new(64 << 20, 16 << 20, read_ahead);
            bench.disk.bytes_per_second.set(2_000_000_000);
            bench.stream(32 << 20, step)
        };
        let plain = {
            let bench = Bench::new(64 << 20, 16 << 20, ReadAhead::Off);
            bench.disk.bytes_per_second.set(2_000_000_000);
            bench.stream(32 << 20, 128 << 10)
        };
        let (small, large) = (speed(8 << 10), speed(128 << 10));
        println!("{read_ahead:?}: 8 KiB {small:.0} MB/s, 128 KiB {large:.0} MB/s, 128 KiB without {plain:.0} MB/s");
        assert!(small > 0.85 * large && small > 0.85 * plain, "{small} of {large}, {plain} without");
    }
}
