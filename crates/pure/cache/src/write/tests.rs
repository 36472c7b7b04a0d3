use crate::log::WriteLog;
use crate::rig::disk::{Disk, Image, Journal};
use crate::rig::{Random, Rig, Running, TestRuntime};
use crate::tests::randomized::Owner;
use crate::{Finding, Findings, Layer, LogId, Merged, Runtime, VolumeId, WriteBack, WriteMemory, WritePolicy};
use block::{BlockDevice, Buf, Extent, Geometry, IoError, IoErrorKind, Lba, Stable, View, Written};
use shard::GroupCommit;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

type Volume = WriteBack<Merged<Disk>, TestRuntime>;

struct Bench {
    rig: Rig,
    disk: Disk,
    log_disk: Disk,
    log: WriteLog,
    memory: WriteMemory,
    volume: Volume,
    findings: Rc<RefCell<Vec<Finding>>>,
}

impl Bench {
    /// Creates disks of 64 MiB with a latency of 100 µs, and a log of 16 MiB.
    fn new(policy: WritePolicy, memory_bytes: u64) -> Self {
        Self::with_log(policy, memory_bytes, true)
    }

    fn with_log(policy: WritePolicy, memory_bytes: u64, volatile: bool) -> Self {
        let rig = Rig::in_order();
        let journal = Journal::default();
        let disk = Disk::new(&rig.runtime, 0, 4096, 64 << 20, &journal);
        let shape = Disk::new(&rig.runtime, 1, 4096, 16 << 20, &journal).geometry();
        let shape = Geometry { volatile_cache: volatile, ..shape };
        let log_disk = Disk::with_image(&rig.runtime, 1, shape, Image::default(), &journal);
        let log = rig.run({
            let (disk, runtime, owner) = (log_disk.clone(), rig.runtime.clone(), Rc::new(Owner(journal)));
            async move {
                let _: Stable = WriteLog::format(&disk, LogId(1)).await.unwrap();
                WriteLog::open(disk, LogId(1), runtime, owner).await.unwrap().finish().await.unwrap()
            }
        });
        for disk in [&disk, &log_disk] {
            disk.bytes_per_second.set(1_000_000_000);
            disk.latency.set(Duration::from_micros(100));
        }
        let findings = Rc::new(RefCell::new(Vec::new()));
        let hear = findings.clone();
        let memory = WriteMemory::new(memory_bytes);
        let volume = WriteBack::new(
            VolumeId(0),
            Merged::new(disk.clone()),
            rig.runtime.clone(),
            &memory,
            Some(log.clone()),
            Findings::new(move |finding| hear.borrow_mut().push(finding)),
        );
        let bench = Self { rig, disk, log_disk, log, memory, volume, findings };
        bench.set_policy(policy).unwrap();
        bench.disk.writes.borrow_mut().clear();
        bench
    }

    fn set_policy(&self, policy: WritePolicy) -> Result<(), IoError> {
        let volume = self.volume.clone();
        self.rig.run(async move { volume.set_policy(policy).await })
    }

    fn begin(&self, start: u64, data: View) -> Running<Result<Written, IoError>> {
        let volume = self.volume.clone();
        self.rig.begin(async move { volume.write(Lba(start), data).await })
    }

    fn write(&self, start: u64, data: View) -> Result<Written, IoError> {
        let volume = self.volume.clone();
        self.rig.run(async move { volume.write(Lba(start), data).await })
    }

    fn flush(&self) -> Result<Stable, IoError> {
        let volume = self.volume.clone();
        self.rig.run(async move { volume.flush(Written::attest()).await })
    }

    fn read(&self, start: u64) -> Result<u8, IoError> {
        let volume = self.volume.clone();
        self.rig.run(async move { volume.read(Extent::new(start, 1)).await }).map(|rope| rope.into_view()[9])
    }

    fn discard(&self, extent: Extent) -> Running<Result<Written, IoError>> {
        let volume = self.volume.clone();
        self.rig.begin(async move { volume.discard(extent).await })
    }

    /// Content of a block after the daemon died now and the log was replayed.
    fn read_after_a_crash(&self, start: u64) -> u8 {
        let (rig, journal) = (Rig::in_order(), Journal::default());
        let [disk, log] = [(0, &self.disk), (1, &self.log_disk)]
            .map(|(number, disk)| Disk::with_image(&rig.runtime, number, disk.geometry(), disk.image(), &journal));
        let runtime = rig.runtime.clone();
        rig.run(async move {
            let mut recovery = WriteLog::open(log, LogId(1), runtime, Rc::new(Owner(journal))).await.unwrap();
            for volume in recovery.volumes() {
                assert_eq!(recovery.replay(volume, &disk).await.unwrap().lost, []);
            }
            disk.read(Extent::new(start, 1)).await.unwrap().into_view()[9]
        })
    }

    /// Throughput in MB/s of `bytes` written by `depth` writers, in writes of `step` bytes at the address that
    /// `place` returns.
    fn load(&self, bytes: u64, step: u64, depth: usize, place: impl Fn(u64) -> u64 + 'static) -> f64 {
        let begin = self.rig.runtime.now();
        let (next, place) = (Rc::new(RefCell::new(0)), Rc::new(place));
        let writers: Vec<_> = (0..depth)
            .map(|_| {
                let (volume, next, place) = (self.volume.clone(), next.clone(), place.clone());
                self.rig.begin(async move {
                    loop {
                        let number = next.replace_with(|number| *number + 1);
                        if number * step >= bytes {
                            return;
                        }
                        let data = View::zeroed(step as usize);
                        let _: Written = volume.write(Lba(place(number)), data).await.unwrap();
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| writer.result().is_none()) && next.borrow().saturating_mul(step) < bytes {
            assert!(self.rig.step());
        }
        bytes as f64 / 1e6 / (self.rig.runtime.now() - begin).as_secs_f64()
    }
}

fn filled(byte: u8, blocks: usize) -> View {
    let mut buf = Buf::zeroed(4096 * blocks);
    buf.fill(byte);
    buf.freeze()
}

#[test]
fn adjacent_writes_in_flight_are_merged_and_a_single_one_is_not_delayed() {
    let bench = Bench::new(WritePolicy::Through, 1 << 20);
    let writes: Vec<_> = (0..8).map(|n| bench.begin(n * 2, filled(n as u8, 2))).collect();
    bench.rig.settle();
    // The first one passes without delay: it continues no earlier write.
    assert_eq!(*bench.disk.writes.borrow(), [Extent::new(0, 2), Extent::new(2, 14)]);
    while bench.rig.step() {}
    assert!(writes.iter().all(|write| matches!(write.result(), Some(Ok(_)))));
    assert!((0..16).all(|block| bench.read(block) == Ok(block as u8 / 2)));
    assert_eq!(bench.volume.device().counters().merged, 7);
}

#[test]
fn failed_merged_write_is_an_error_for_each_caller_in_its_own_blocks() {
    let bench = Bench::new(WritePolicy::Through, 1 << 20);
    bench.disk.bad.borrow_mut().insert(9);
    let writes: Vec<_> = (0..8).map(|n| bench.begin(n * 2, filled(n as u8, 2))).collect();
    while bench.rig.step() {}
    let ends: Vec<_> = writes.iter().map(|write| write.result().unwrap().map(drop)).collect();
    assert!(ends[0].is_ok() && ends[1..].iter().all(Result::is_err));
    for (end, start) in ends[1..].iter().zip((2..).step_by(2)) {
        assert!(Extent::new(start, 2).contains(end.unwrap_err().extent));
    }
}

#[test]
fn flush_destages_earlier_writes_only() {
    let bench = Bench::new(WritePolicy::BackVolatile, 16 << 20);
    assert!(bench.volume.geometry().volatile_cache);
    for n in 0..4 {
        let _: Written = bench.write(n * 100, filled(1, 1)).unwrap();
    }
    assert!(bench.disk.writes.borrow().is_empty());
    let volume = bench.volume.clone();
    let flush = bench.rig.begin(async move { volume.flush(Written::attest()).await.is_ok() });
    bench.rig.settle();
    let _: Written = bench.write(5000, filled(2, 1)).unwrap();
    while flush.result().is_none() {
        assert!(bench.rig.step());
    }
    let mut written: Vec<u64> = bench.disk.writes.borrow().iter().map(|extent| extent.start.0).collect();
    written.sort_unstable();
    assert_eq!(written, [0, 100, 200, 300]);
    assert_eq!(bench.disk.flushes.get(), 2, "one when the policy was set, one now");
    bench.rig.pass(Duration::from_secs(2));
    assert_eq!(bench.disk.writes.borrow().last(), Some(&Extent::new(5000, 1)), "what is old goes below by itself");
}

#[test]
fn small_writes_are_destaged_as_whole_stripes_in_address_order() {
    let bench = Bench::new(WritePolicy::BackVolatile, 16 << 20);
    let mut places: Vec<u64> = (0..512).collect();
    let mut random = Random(5);
    (1..places.len()).rev().for_each(|at| places.swap(at, random.below(at as u64 + 1) as usize));
    for place in places {
        let _: Written = bench.write(place, filled(place as u8, 1)).unwrap();
    }
    let _: Stable = bench.flush().unwrap();
    let written = bench.disk.writes.borrow().clone();
    assert_eq!(written, [Extent::new(0, 256), Extent::new(256, 256)]);
    assert!((0..512).all(|block| bench.read(block) == Ok(block as u8)));
}

#[test]
fn writers_are_slowed_smoothly_and_never_stopped_when_the_memory_fills() {
    let bench = Bench::new(WritePolicy::BackVolatile, 4 << 20);
    bench.disk.bytes_per_second.set(100_000_000);
    let mut worst = Duration::ZERO;
    let begin = bench.rig.runtime.now();
    for n in 0..8192 {
        let before = bench.rig.runtime.now();
        let _: Written = bench.write(n * 7919 % 16384, filled(1, 1)).unwrap();
        if n > 3000 {
            worst = worst.max(bench.rig.runtime.now() - before);
        }
    }
    let elapsed = bench.rig.runtime.now() - begin;
    assert!(bench.memory.used_bytes() <= 4 << 20);
    // The disk takes 41 µs for 4 KiB; a writer must not wait for the whole memory to drain, which takes 42 ms.
    assert!(worst < Duration::from_millis(3), "{worst:?}");
    let disk_alone = Duration::from_secs_f64(f64::from(32 << 20) / 100e6);
    assert!(elapsed < disk_alone * 5 / 4, "{elapsed:?}, the disk alone {disk_alone:?}");
}

#[test]
fn block_refused_by_the_device_fails_alone() {
    let bench = Bench::new(WritePolicy::BackVolatile, 1 << 20);
    bench.disk.bad.borrow_mut().insert(7);
    for n in 0..16 {
        let _: Written = bench.write(n, filled(1, 1)).unwrap();
    }
    let error = bench.flush().unwrap_err();
    assert_eq!((error.kind, error.extent), (IoErrorKind::Medium, Extent::new(7, 1)));
    assert_eq!((bench.volume.counters().dirty_bytes, bench.read(7)), (4096, Ok(1)), "its content is not lost");
    bench.disk.bad.borrow_mut().clear();
    assert!(bench.flush().is_ok());
    assert_eq!(bench.volume.counters().dirty_bytes, 0);
}

#[test]
fn device_without_space_fails_the_next_write() {
    let bench = Bench::new(WritePolicy::BackVolatile, 1 << 20);
    bench.disk.fail_writes.set(Some(IoErrorKind::NoSpace));
    let _: Written = bench.write(1, filled(1, 1)).unwrap();
    assert!(bench.flush().is_err());
    assert_eq!(bench.write(2, filled(1, 1)).unwrap_err().kind, IoErrorKind::NoSpace);
    bench.disk.fail_writes.set(None);
    bench.rig.pass(Duration::from_secs(3));
    assert!(bench.write(2, filled(1, 1)).is_ok());
}

#[test]
fn dirty_block_that_changed_in_memory_never_reaches_disk_or_reader() {
    let bench = Bench::new(WritePolicy::BackVolatile, 1 << 20);
    let _: Written = bench.write(3, filled(1, 1)).unwrap();
    let _: Written = bench.write(4, filled(1, 1)).unwrap();
    assert!(bench.volume.flip_bit(Lba(3)));
    assert_eq!(bench.read(3).unwrap_err().kind, IoErrorKind::Medium);
    assert_eq!(bench.flush().unwrap_err().extent, Extent::new(3, 1));
    assert_eq!(*bench.disk.writes.borrow(), [Extent::new(4, 1)]);
    let lost = Finding { layer: Layer::WriteCache, volume: VolumeId(0), extent: Extent::new(3, 1), healed: false };
    assert_eq!(bench.findings.borrow().first(), Some(&lost));
    let _: Written = bench.write(3, filled(2, 1)).unwrap();
    assert!(bench.flush().is_ok());
    assert_eq!(bench.read(3), Ok(2));
}

#[test]
fn policy_through_takes_effect_after_destaging() {
    for policy in [WritePolicy::BackVolatile, WritePolicy::Back] {
        let bench = Bench::new(policy, 4 << 20);
        for n in 0..200 {
            let _: Written = bench.write(n * 3, filled(n as u8, 1)).unwrap();
        }
        bench.set_policy(WritePolicy::Through).unwrap();
        assert_eq!((bench.volume.counters().dirty_bytes, bench.volume.policy()), (0, WritePolicy::Through));
        bench.rig.pass(Duration::from_secs(1));
        assert_eq!(bench.log.counters().fill, 0, "the log is free again");
    }
}

#[test]
fn log_writes_at_the_rate_of_its_device_until_it_fills() {
    for volatile in [false, true] {
        let random = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
        let logged = Bench::with_log(WritePolicy::Back, 64 << 20, volatile).load(4 << 20, 4096, 32, random);
        // The same writers on the log's device alone; flushes are shared, as on any disk of a pool.
        let bench = Bench::with_log(WritePolicy::Through, 1 << 20, volatile);
        let disk = Rc::new(GroupCommit::new(bench.log_disk.clone()));
        let writer = |writer: u64| {
            let disk = disk.clone();
            bench.rig.begin(async move {
                for n in 0..32 {
                    let written = disk.write(Lba(writer * 32 + n), View::zeroed(4096)).await.unwrap();
                    if volatile {
                        let _: Stable = disk.flush(written).await.unwrap();
                    }
                }
            })
        };
        let begin = bench.rig.runtime.now();
        let writers: Vec<_> = (0..32).map(writer).collect();
        while bench.rig.step() {}
        assert!(writers.iter().all(|writer| writer.result().is_some()));
        let own = f64::from(4 << 20) / 1e6 / (bench.rig.runtime.now() - begin).as_secs_f64();
        println!("4 KiB at depth 32, volatile cache: {volatile}: log {logged:.0} MB/s, its device {own:.0} MB/s");
        assert!(logged > 0.75 * own, "{logged} of {own}");
    }
}

#[test]
fn stream_of_small_writes_is_as_fast_as_one_of_large_ones() {
    let speed = |policy, step: u64, depth| {
        let bench = Bench::new(policy, 8 << 20);
        bench.load(48 << 20, step, depth, move |number| number * step / 4096)
    };
    for policy in [WritePolicy::BackVolatile, WritePolicy::Through] {
        let (small, large) = (speed(policy, 8 << 10, 64), speed(policy, 128 << 10, 4));
        println!("{policy:?}: 8 KiB {small:.0} MB/s, 128 KiB {large:.0} MB/s with as many bytes in flight");
        assert!(small > 0.85 * large, "{policy:?}: {small} of {large}");
    }
}

#[test]
fn deleted_volume_frees_its_log_space() {
    let bench = Bench::new(WritePolicy::Back, 4 << 20);
    bench.disk.fail_writes.set(Some(IoErrorKind::NoSpace));
    for n in 0..20 {
        let _: Written = bench.write(n * 3, filled(n as u8, 1)).unwrap();
    }
    bench.rig.pass(Duration::from_secs(3));
    assert!(bench.set_policy(WritePolicy::Through).is_err(), "the device takes nothing");
    assert!(bench.log.counters().fill > 0);
    let volume = bench.volume.clone();
    bench.rig.run(async move { volume.discard_dirty().await });
    bench.rig.pass(Duration::from_secs(3));
    assert_eq!((bench.volume.counters().dirty_bytes, bench.log.counters().fill), (0, 0));
    assert_eq!(bench.memory.used_bytes(), 0);
}

#[test]
fn write_during_a_waiting_discard_is_logged_in_reader_order() {
    let bench = Bench::new(WritePolicy::Back, 1 << 20);
    let mut discards: Vec<_> = (0..2).map(|_| bench.discard(Extent::new(0, 8))).collect();
    let _: Written = bench.write(0, filled(2, 1)).unwrap();
    discards.retain(|discard| discard.result().is_none());
    assert!(!discards.is_empty(), "one of them waits for the other");
    while !discards.is_empty() {
        assert!(bench.rig.step());
        discards.retain(|discard| discard.result().is_none());
    }
    assert_eq!(bench.read(0), Ok(bench.read_after_a_crash(0)));
}

#[test]
fn log_that_failed_is_replaced_by_another_while_writes_go_through() {
    let bench = Bench::new(WritePolicy::Back, 4 << 20);
    let _: Written = bench.write(1, filled(1, 1)).unwrap();
    bench.log_disk.fail_writes.set(Some(IoErrorKind::Gone));
    let _: Written = bench.write(2, filled(2, 1)).unwrap();
    assert!(bench.log.has_failed());
    bench.set_policy(WritePolicy::Through).unwrap();
    assert_eq!(bench.set_policy(WritePolicy::Back).unwrap_err().kind, IoErrorKind::Unsupported);
    bench.log_disk.fail_writes.set(None);
    let (disk, runtime, volume) = (bench.log_disk.clone(), bench.rig.runtime.clone(), bench.volume.clone());
    let log = bench.rig.run(async move {
        let _: Stable = WriteLog::format(&disk, LogId(2)).await.unwrap();
        let owner = Rc::new(Owner(Journal::default()));
        let log = WriteLog::open(disk, LogId(2), runtime, owner).await.unwrap().finish().await.unwrap();
        volume.set_log(Some(log.clone())).await;
        log
    });
    bench.set_policy(WritePolicy::Back).unwrap();
    let _: Written = bench.write(3, filled(3, 1)).unwrap();
    assert_eq!((log.counters().records, bench.read(2), bench.read(3)), (1, Ok(2), Ok(3)));
}

#[test]
fn atomic_write_is_one_log_record_or_atomic_below() {
    for policy in [WritePolicy::Through, WritePolicy::Back, WritePolicy::BackVolatile] {
        let bench = Bench::new(policy, 8 << 20);
        let _ = bench.write(4, filled(1, 4)).unwrap();
        let volume = bench.volume.clone();
        let written = bench.rig.run(async move { volume.write_atomic(Lba(6), filled(2, 4)).await });
        let _ = written.unwrap();
        assert_eq!([4, 5, 6, 9].map(|block| bench.read(block).unwrap()), [1, 1, 2, 2], "{policy:?}");
        let _ = bench.flush().unwrap();
        bench.set_policy(WritePolicy::Through).unwrap();
        assert_eq!([4, 5, 6, 9].map(|block| bench.read(block).unwrap()), [1, 1, 2, 2], "{policy:?}");
        let below: &[Extent] = if policy == WritePolicy::Back { &[] } else { &[Extent::new(6, 4)] };
        assert_eq!(*bench.disk.atomic.borrow(), below, "{policy:?}");
        let volume = bench.volume.clone();
        let refused = bench.rig.run(async move { volume.write_atomic(Lba(0), filled(3, 17)).await });
        assert_eq!(refused.map(drop).map_err(|error| error.kind), Err(IoErrorKind::Unsupported));
    }
}
