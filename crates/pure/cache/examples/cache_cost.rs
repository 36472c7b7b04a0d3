//! Benchmark of a read of 8 KiB from the read cache against a RAM disk.
//!
//! Run with `cargo run --release -p cache --example cache_cost`.

#![expect(clippy::disallowed_types, reason = "a measurement reads the clock")]

use block::memory::Ram;
use block::{BlockDevice, Blocks, Extent, Lba, Rope, View, Written};
use cache::{
    CacheShard, Cached, CachedVolume, Check, Findings, Limited, Limits, Policy, ReadAhead, ReadCache, Runtime,
    Scheduler, Share, VolumeId, WriteMemory,
};
use shard::Time;
use shard::time::{Sleep, Timers};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

const BYTES: u64 = 1 << 30;
const READS: u64 = 5_000;
const ROUNDS: usize = 120;

/// Runtime without time or tasks: nothing waits in this benchmark.
#[derive(Clone)]
struct NoTime;

impl Runtime for NoTime {
    fn now(&self) -> Time {
        Time(0)
    }

    fn sleep_until(&self, at: Time) -> Sleep {
        Timers::default().sleep_until(at)
    }

    fn spawn(&self, _: impl Future<Output = ()> + 'static) {
        unreachable!("random reads are not read ahead")
    }
}

fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("memory never waits"),
    }
}

/// Variant of reading, and the cost of a read in each round.
struct Row {
    name: String,
    round: Box<dyn FnMut(bool) -> u128>,
    found: Vec<u128>,
    copied: Vec<u128>,
}

impl Row {
    fn of(name: &str, device: impl BlockDevice + 'static) -> Self {
        let (mut state, mut out) = (1_u64, vec![0; 8192]);
        // The bytes are read as by a send to a socket, or not at all.
        let round = move |copied: bool| {
            let begin = Instant::now();
            for _ in 0..READS {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = (state >> 33) % (BYTES / 8192) * 2;
                let rope: Rope = now(device.read(Extent::new(place, 2))).expect("memory never fails");
                if copied {
                    rope.copy_to(&mut out);
                }
            }
            begin.elapsed().as_nanos() / u128::from(READS)
        };
        Self { name: name.to_owned(), round: Box::new(round), found: Vec::new(), copied: Vec::new() }
    }
}

/// Lower quartile of the costs: excludes noise from other work on the machine.
fn quiet(costs: &mut [u128]) -> u128 {
    costs.sort_unstable();
    costs[costs.len() / 4]
}

fn filled() -> Ram {
    let ram = Ram::new(4096, Blocks(BYTES / 4096));
    let data = View::zeroed(1 << 20);
    for at in (0..BYTES / 4096).step_by(256) {
        let _: Written = now(ram.write(Lba(at), data.clone())).expect("memory never fails");
    }
    ram
}

fn main() {
    let findings = Findings::new(|finding| eprintln!("{finding:?}"));
    let scheduler = Scheduler::new(NoTime, 0);
    let mut rows = vec![Row::of("RAM disk", filled())];
    rows.push(Row::of("RAM disk, no limits set", Limited::new(filled(), NoTime, &scheduler, Limits::default())));
    for (name, check, unit) in [
        ("cached in 8 KiB, every hit checked", Check::Every, 2),
        ("cached in 8 KiB, none checked", Check::Off, 2),
        ("cached in 64 KiB, every hit checked", Check::Every, 16),
    ] {
        let cache = ReadCache::new(BYTES / 2 * 3, findings.clone());
        let share = Share { check, ..Share::default() };
        let volume = Cached::new(&cache, VolumeId(1), filled(), NoTime, share, ReadAhead::Off);
        for at in (0..BYTES / 4096).step_by(unit) {
            drop(now(volume.read(Extent::new(at, unit as u64))).expect("memory never fails"));
        }
        rows.push(Row::of(name, volume));
    }
    rows.push(Row::of("all sleeves, the defaults, in 8 KiB", policed(scheduler, findings)));
    for _ in 0..ROUNDS {
        for row in &mut rows {
            row.found.push((row.round)(false));
            row.copied.push((row.round)(true));
        }
    }
    println!("{:<40} {:>9} {:>13}", "8 KiB random reads of 1 GiB", "found", "and copied");
    for row in &mut rows {
        println!("{:<40} {:>6} ns {:>10} ns", row.name, quiet(&mut row.found), quiet(&mut row.copied));
    }
}

/// Volume with all layers, cached completely.
fn policed(scheduler: Scheduler<NoTime>, findings: Findings) -> CachedVolume<Ram, NoTime> {
    let shard = CacheShard {
        runtime: NoTime,
        reads: ReadCache::new(BYTES / 2 * 3, findings.clone()),
        writes: WriteMemory::new(1 << 20),
        log: None,
        scheduler,
        findings,
    };
    let off = Policy { read_ahead: ReadAhead::Off, ..Policy::default() };
    let volume = CachedVolume::new(&shard, VolumeId(1), filled(), &off);
    for at in (0..BYTES / 4096).step_by(2) {
        drop(now(volume.read(Extent::new(at, 2))).expect("memory never fails"));
    }
    now(volume.set_policy(&Policy::default())).expect("the write policy stays");
    volume
}
