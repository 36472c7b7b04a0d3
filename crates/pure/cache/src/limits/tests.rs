use super::{Limited, Scheduler};
use crate::rig::disk::{Disk, Journal};
use crate::rig::{Rig, TestRuntime};
use crate::{Limits, Runtime};
use block::memory::Null;
use block::{BlockDevice, Blocks, Extent, Lba, View};
use futures_util::FutureExt;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

type Volume = Rc<Limited<Disk, TestRuntime>>;

struct Bench {
    rig: Rig,
    disk: Disk,
    scheduler: Scheduler<TestRuntime>,
}

impl Bench {
    /// Creates a disk of 400 MB/s, behind a scheduler of depth `depth`.
    fn new(depth: usize) -> Self {
        let rig = Rig::in_order();
        let disk = Disk::new(&rig.runtime, 0, 4096, 64 << 20, &Journal::default());
        disk.bytes_per_second.set(400_000_000);
        let scheduler = Scheduler::new(rig.runtime.clone(), depth);
        Self { rig, disk, scheduler }
    }

    fn volume(&self, limits: Limits) -> Volume {
        Rc::new(Limited::new(self.disk.clone(), self.rig.runtime.clone(), &self.scheduler, limits))
    }

    /// Starts `depth` readers of `blocks` blocks at a time that never stop; returns the count of their reads.
    fn read(&self, volume: &Volume, depth: usize, blocks: u64) -> Rc<Cell<u64>> {
        let count = Rc::new(Cell::new(0));
        for _ in 0..depth {
            let (volume, count) = (volume.clone(), count.clone());
            self.rig.runtime.spawn(async move {
                while volume.read(Extent::new(0, blocks)).await.is_ok() {
                    count.set(count.get() + 1);
                }
            });
        }
        count
    }
}

#[test]
fn volume_keeps_its_limits_and_applies_new_ones_at_once() {
    let bench = Bench::new(0);
    let volume = bench.volume(Limits { iops_max: 1000, ..Limits::default() });
    let count = bench.read(&volume, 16, 1);
    bench.rig.pass(Duration::from_secs(2));
    // Plus the burst of 100 ms.
    assert!((2000..=2120).contains(&count.get()), "{}", count.get());
    volume.set_limits(Limits { bytes_per_second_max: 40_960_000, ..Limits::default() });
    let before = count.get();
    bench.rig.pass(Duration::from_secs(1));
    assert!((10_000..=11_200).contains(&(count.get() - before)), "{}", count.get() - before);
    volume.set_limits(Limits { iops_max: 1, burst: Duration::ZERO, ..Limits::default() });
    bench.rig.pass(Duration::from_secs(1));
    volume.set_limits(Limits::default());
    let before = count.get();
    bench.rig.pass(Duration::from_millis(10));
    assert!(count.get() - before > 900, "who waited for the old limit goes on: {}", count.get() - before);
}

#[test]
fn volumes_that_compete_share_by_priority_and_not_by_depth() {
    let bench = Bench::new(4);
    let [low, high] = [100, 300].map(|priority| bench.volume(Limits { priority, ..Limits::default() }));
    let (few, many) = (bench.read(&high, 8, 2), bench.read(&low, 128, 2));
    bench.rig.pass(Duration::from_secs(1));
    let ratio = few.get() as f64 / many.get() as f64;
    assert!((2.7..3.3).contains(&ratio), "{ratio}");
}

/// Regression: virtual time was counted in 64 bits, which 128 TiB of small commands at the lowest priority exhaust.
#[test]
fn virtual_time_does_not_end() {
    let bench = Bench::new(4);
    let flow = bench.scheduler.join(&Limits { priority: 1, ..Limits::default() });
    for _ in 0..100 {
        let slot = bench.scheduler.enter(flow, u64::MAX / 2).now_or_never().expect("a slot is free");
        assert!(slot.is_some());
    }
    bench.scheduler.leave(flow);
}

#[test]
fn small_reads_beside_a_flood_of_large_ones_get_their_part() {
    let bench = Bench::new(4);
    let (small, flood) = (bench.volume(Limits::default()), bench.volume(Limits::default()));
    let (few, _) = (bench.read(&small, 2, 1), bench.read(&flood, 64, 64));
    bench.rig.pass(Duration::from_secs(1));
    // A fair half would be 49,000; a reader at queue depth 2 waits behind at most the four commands in flight.
    assert!(few.get() > 350, "{}", few.get());
}

#[test]
fn volume_with_a_guarantee_gets_it_beside_a_higher_priority() {
    let bench = Bench::new(2);
    let poor = bench.volume(Limits { priority: 1, iops_min: 5000, ..Limits::default() });
    let rich = bench.volume(Limits { priority: 1000, ..Limits::default() });
    let (few, many) = (bench.read(&poor, 8, 1), bench.read(&rich, 32, 4));
    bench.rig.pass(Duration::from_secs(1));
    assert!(few.get() >= 4900, "{}", few.get());
    assert!(many.get() > 10_000, "and no more than that: {} and {}", few.get(), many.get());
}

#[test]
fn volume_that_waits_for_its_own_limit_delays_nobody() {
    let alone = {
        let bench = Bench::new(4);
        let count = bench.read(&bench.volume(Limits::default()), 8, 1);
        bench.rig.pass(Duration::from_secs(1));
        count.get()
    };
    let bench = Bench::new(4);
    let slow = bench.volume(Limits { iops_max: 10, burst: Duration::ZERO, ..Limits::default() });
    let (count, _) = (bench.read(&bench.volume(Limits::default()), 8, 1), bench.read(&slow, 64, 1));
    bench.rig.pass(Duration::from_secs(1));
    assert!(count.get() > alone * 99 / 100, "{} of {alone}", count.get());
}

#[test]
fn dropped_command_leaves_the_queue() {
    let bench = Bench::new(1);
    let volume = bench.volume(Limits::default());
    let begin = || {
        let volume = volume.clone();
        bench.rig.begin(async move { volume.read(Extent::new(0, 1)).await.is_ok() })
    };
    let commands: Vec<_> = (0..10).map(|_| begin()).collect();
    bench.rig.settle();
    commands[..9].iter().for_each(|command| command.abort());
    while bench.rig.step() {}
    assert_eq!(commands[9].result(), Some(true));
    let last = begin();
    while bench.rig.step() {}
    assert_eq!(last.result(), Some(true));
}

#[test]
fn volume_that_may_have_to_wait_does_nothing_at_once() {
    let bench = Bench::new(0);
    let volume = |limits| {
        let memory = Null::new(4096, Blocks(16));
        Limited::new(memory, bench.rig.runtime.clone(), &bench.scheduler, limits)
    };
    let does = |volume: &Limited<Null, TestRuntime>| {
        let (one, data) = (Extent::new(0, 1), View::zeroed(4096));
        (volume.try_read(one).is_some(), volume.try_write(Lba(0), &data).is_some())
    };
    let free = volume(Limits::default());
    assert_eq!(does(&free), (true, true));
    assert_eq!(does(&volume(Limits { iops_max: 1000, ..Limits::default() })), (false, false));
    assert_eq!(does(&volume(Limits { bytes_per_second_max: 1 << 20, ..Limits::default() })), (false, false));
    bench.scheduler.set_depth(4);
    assert_eq!(does(&free), (false, false), "others may be before it");
}
