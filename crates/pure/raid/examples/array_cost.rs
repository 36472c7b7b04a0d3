//! Benchmark of the array's own cost per command, with members in memory.
//!
//! Run with `cargo run --release -p raid --example array_cost`.

#![expect(clippy::disallowed_types, reason = "a measurement reads the clock")]

use block::memory::Ram;
use block::{BlockDevice, Blocks, Buf, Extent, IoError, Lba, Stable, Written};
use raid::{Array, FailureLog, Layout, Level};
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

struct NoFailures;

impl FailureLog for NoFailures {
    fn record(&self, _: u16, error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        Box::pin(async move { Err(error) })
    }
}

/// Polls a future once: memory is ready at the first poll, and so is an array of it.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("memory never waits"),
    }
}

/// Nanoseconds per `command`: the best of five rounds.
fn cost(mut command: impl FnMut(u64)) -> u128 {
    const ROUND: u64 = 20_000;
    let round = |_| {
        let begin = Instant::now();
        (0..ROUND).for_each(&mut command);
        begin.elapsed().as_nanos() / u128::from(ROUND)
    };
    (0..5).map(round).min().unwrap_or_default()
}

fn main() {
    println!("{:<8} {:>8} {:>10} {:>11} {:>16}", "level", "members", "read 4 KiB", "write 4 KiB", "full stripe, MB/s");
    for (level, members) in
        [(Level::Raid0, 4), (Level::Raid1, 2), (Level::Raid5, 5), (Level::Raid6, 6), (Level::Raid10, 4)]
    {
        let layout = Layout::new(level, members, 64 << 10, Blocks(1024)).expect("a valid shape");
        let disks = (0..members).map(|_| Some(Ram::new(4096, Blocks(1024)))).collect();
        let array = Array::new(layout, disks, Rc::new(NoFailures)).expect("enough members");
        let blocks = layout.blocks().0;
        let block = Buf::zeroed(4096).freeze();
        let stripe = Buf::zeroed(layout.stripe_blocks() as usize * 4096).freeze();
        let written = |written: Result<Written, IoError>| drop(written.expect("memory never fails"));
        // The first pass faults in the members' memory.
        (0..layout.stripes()).for_each(|n| written(now(array.write(Lba(n * layout.stripe_blocks()), stripe.clone()))));
        let read = cost(|n| drop(now(array.read(Extent::new(n * 37 % blocks, 1))).expect("memory never fails")));
        let write = cost(|n| written(now(array.write(Lba(n * 37 % blocks), block.clone()))));
        let start = |n| Lba(n % layout.stripes() * layout.stripe_blocks());
        let full = cost(|n| written(now(array.write(start(n), stripe.clone()))));
        let speed = stripe.len() as u128 * 1000 / full.max(1);
        println!("{level:<8} {members:>8} {read:>7} ns {write:>8} ns {speed:>16}");
    }
}
