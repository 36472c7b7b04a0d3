//! Benchmark of protection against a plain array and the bare members, all in memory, 32 commands at once.
//!
//! Run with `cargo run --release -p raid --example protected_cost`.

use block::memory::Ram;
use block::{BlockDevice, Blocks, Buf, Extent, IoError, Lba, Stable, View, Written};
use raid::{Array, FailureLog, Layout, Level, Options, Shape};
use shard::{Executor, yield_now};
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

const MEMBER_BLOCKS: u64 = 16 << 10;
const DEPTH: u64 = 32;
const ROUNDS: usize = 7;

struct NoFailures;

impl FailureLog for NoFailures {
    fn record(&self, _: u16, error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        Box::pin(async move { Err(error) })
    }
}

/// Member in memory.
fn ram() -> Rc<Ram> {
    Rc::new(Ram::new(4096, Blocks(MEMBER_BLOCKS)))
}

/// Runs `commands` instances of `one` at queue depth `DEPTH`; returns CPU nanoseconds per command, the best of some
/// rounds.
fn measure<F: Future<Output = ()> + 'static>(commands: u64, one: impl Fn(u64) -> F + Clone + 'static) -> f64 {
    let round = |_| {
        let executor = Executor::new(Box::new(|| {}));
        let next = Rc::new(Cell::new(0));
        for _ in 0..DEPTH {
            let (next, one) = (next.clone(), one.clone());
            executor.spawn(async move {
                while next.get() < commands {
                    let n = next.replace(next.get() + 1);
                    one(n).await;
                    // Hosts send the next command in another executor turn.
                    yield_now().await;
                }
            });
        }
        let begin = cpu_ns();
        while executor.task_count() > 0 {
            executor.run_ready();
        }
        (cpu_ns() - begin) as f64 / commands as f64
    };
    (0..ROUNDS).map(round).fold(f64::MAX, f64::min)
}

/// CPU time of this thread in nanoseconds, which other load on the machine does not change.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    stat.split(' ').next().and_then(|word| word.parse().ok()).expect("the first word is a number")
}

/// Runs a command to completion.
fn run<T: 'static>(command: impl Future<Output = T> + 'static) -> T {
    let (executor, result) = (Executor::new(Box::new(|| {})), Rc::new(Cell::new(None)));
    let tell = result.clone();
    executor.spawn(async move { tell.set(Some(command.await)) });
    while executor.task_count() > 0 {
        executor.run_ready();
    }
    result.take().expect("it has ended")
}

type Made = (Rc<Array<Rc<Ram>>>, Vec<Rc<Ram>>);

fn plain(level: Level, members: usize) -> Made {
    let disks: Vec<Rc<Ram>> = (0..members).map(|_| ram()).collect();
    let layout = Layout::new(level, members, 64 << 10, Blocks(MEMBER_BLOCKS)).expect("a valid shape");
    let array = Array::new(layout, disks.iter().cloned().map(Some).collect(), Rc::new(NoFailures));
    (Rc::new(array.expect("enough members")), disks)
}

fn protected(level: Level, members: usize) -> Made {
    let disks: Vec<Rc<Ram>> = (0..members).map(|_| ram()).collect();
    let shape = Shape::new([1; 16], level, members, 64 << 10, Blocks(MEMBER_BLOCKS));
    let own = disks.clone();
    let array = run(async move { Array::format(&shape, own, Rc::new(NoFailures), Options::default()).await });
    (Rc::new(array.expect("memory is well")), disks)
}

/// Writes everything once, so that memory is faulted in and all blocks have checksums.
fn fill(array: &Rc<Array<Rc<Ram>>>) {
    let stripe = array.stripe_blocks();
    let data = filled(stripe);
    for first in (0..array.geometry().blocks.0).step_by(stripe as usize) {
        let (array, data) = (array.clone(), data.clone());
        run(async move { drop(array.write_unlogged(Lba(first), data).await.expect("memory is well")) });
    }
    let array = array.clone();
    run(async move { drop(array.flush(Written::attest()).await.expect("memory is well")) });
}

fn filled(blocks: u64) -> View {
    let mut buf = Buf::zeroed(blocks as usize * 4096);
    for (n, word) in buf.chunks_mut(8).enumerate() {
        word.copy_from_slice(&(n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    buf.freeze()
}

fn scatter(n: u64, blocks: u64) -> u64 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17) % blocks
}

fn small(level: Level, members: usize, copies: u64) {
    const COMMANDS: u64 = 100_000;
    let data = filled(1);
    let cost = |made: &Made, is_write: bool| {
        let (array, blocks, data) = (made.0.clone(), made.0.geometry().blocks.0, data.clone());
        measure(COMMANDS, move |n| {
            let (array, data, at) = (array.clone(), data.clone(), scatter(n, blocks));
            async move {
                if is_write {
                    drop(array.write(Lba(at), data).await.expect("memory is well"));
                } else {
                    drop(array.read(Extent::new(at, 1)).await.expect("memory is well"));
                }
            }
        })
    };
    let (bare_disks, made) = (plain(level, members), protected(level, members));
    fill(&bare_disks.0);
    fill(&made.0);
    for is_write in [false, true] {
        let (disks, bytes) = (bare_disks.1.clone(), data.clone());
        let bare = measure(COMMANDS, move |n| {
            let (disks, data, at) = (disks.clone(), bytes.clone(), scatter(n, MEMBER_BLOCKS));
            async move {
                let first = scatter(n, disks.len() as u64);
                for copy in 0..if is_write { copies } else { 1 } {
                    let disk = &disks[((first + copy) % disks.len() as u64) as usize];
                    if is_write {
                        drop(disk.write(Lba(at), data.clone()).await.expect("memory is well"));
                    } else {
                        drop(disk.read(Extent::new(at, 1)).await.expect("memory is well"));
                    }
                }
            }
        });
        let (plain, protected) = (cost(&bare_disks, is_write), cost(&made, is_write));
        let what = if is_write { "write" } else { "read" };
        println!(
            "{level:<8} {what:<6} {bare:>7.0} {plain:>7.0} {protected:>9.0} {:>11.2} {:>10.2}",
            protected / plain,
            protected / bare
        );
    }
}

fn stripes(level: Level, data: usize, parity: usize) {
    const COMMANDS: u64 = 3_000;
    let members = data + parity;
    let (plain, made) = (plain(level, members), protected(level, members));
    fill(&plain.0);
    fill(&made.0);
    let stripe = made.0.stripe_blocks();
    let bytes = filled(stripe);
    let cost = |made: &Made, forget: bool| {
        let (array, data, stripes) = (made.0.clone(), bytes.clone(), made.0.geometry().blocks.0 / stripe);
        measure(COMMANDS, move |n| {
            let (array, data, first) = (array.clone(), data.clone(), n % stripes * stripe);
            async move {
                drop(array.write_unlogged(Lba(first), data).await.expect("memory is well"));
                if n % 64 == 63 {
                    drop(array.flush(Written::attest()).await.expect("memory is well"));
                }
                if forget {
                    // Models a volume that discards stripes it has given up.
                    drop(array.discard(Extent::new((first + 16 * stripe) % (stripes * stripe), stripe)).await);
                }
            }
        })
    };
    let disks = plain.1.clone();
    let chunks = bytes.clone();
    let bound = measure(COMMANDS, move |n| {
        let (disks, chunks) = (disks.clone(), chunks.clone());
        async move {
            let (mut p, mut q) = (Buf::recycled(64 << 10), Buf::recycled(64 << 10));
            let columns: Vec<Option<&[u8]>> = chunks.chunks(64 << 10).map(Some).collect();
            simd::parity::pq(&columns, &mut p, &mut q);
            let parities = [p.freeze(), q.freeze()];
            let chunk = |at: usize| chunks.slice(at * (64 << 10)..(at + 1) * (64 << 10));
            let all = (0..chunks.len() >> 16).map(chunk).chain(parities);
            for (disk, chunk) in disks.iter().zip(all) {
                drop(disk.write(Lba(n % 60 * 16), chunk).await.expect("memory is well"));
            }
        }
    });
    let plain = cost(&plain, false);
    for (what, forget) in [("stripe, as it is", false), ("stripe, unwritten", true)] {
        let protected = cost(&made, forget);
        println!(
            "{level} {data}+{parity} {what}: P+Q and copying {:.1} GB/s, plain {:.1}, protected {:.1}: {:.2} of the bound",
            bytes.len() as f64 / bound,
            bytes.len() as f64 / plain,
            bytes.len() as f64 / protected,
            bound / protected
        );
    }
}

fn main() {
    println!("4 KiB at random, {DEPTH} at once, ns of CPU per command");
    println!(
        "{:<8} {:<6} {:>7} {:>7} {:>9} {:>11} {:>10}",
        "level", "", "bare", "plain", "protected", "to plain", "to bare"
    );
    small(Level::Raid0, 4, 1);
    small(Level::Raid10, 4, 2);
    small(Level::Raid5, 5, 2);
    small(Level::Raid6, 6, 3);
    stripes(Level::Raid6, 8, 2);
}
