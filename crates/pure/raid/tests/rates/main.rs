//! Throughput of arrays on simulated disks: exact, because the clock is virtual and CPU time is not counted.
//!
//! `cargo test -p raid --test rates -- --nocapture` prints the figures.

#![expect(clippy::single_range_in_vec_init, reason = "a rebuild takes a list of ranges, often of one")]

mod disk;

use block::{BlockDevice, Blocks, Buf, Extent, IoError, Lba, Stable, View, Written};
use disk::{Clock, DESKTOP_SSD, Disk, SERVER_SSD, Speed};
use futures_util::future::{join_all, try_join_all};
use raid::{Array, FailureLog, Level, Options, Progress, RebuildOwner, Rebuilt, Shape};
use shard::GroupCommit;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

const MEMBER_BLOCKS: u64 = 16 << 10;
const CHUNK_BYTES: u32 = 64 << 10;
const CHUNK_BLOCKS: u64 = CHUNK_BYTES as u64 / 4096;
const DEPTH: u64 = 32;

type Member = Rc<GroupCommit<Rc<Disk>>>;

struct Survivable;

impl FailureLog for Survivable {
    fn record(&self, _: u16, _: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        Box::pin(async { Ok(Stable::attest()) })
    }
}

struct Owner;

impl RebuildOwner for Owner {
    async fn pace(&mut self, _: Progress) {}

    async fn commit(&mut self, _: u16, flushed: Stable, _: &Rebuilt) -> Result<Stable, IoError> {
        Ok(flushed)
    }
}

fn members(clock: &Clock, speed: Speed, count: usize) -> Vec<Member> {
    (0..count).map(|_| member(clock, speed)).collect()
}

fn member(clock: &Clock, speed: Speed) -> Member {
    Rc::new(GroupCommit::new(Disk::new(clock, speed, MEMBER_BLOCKS)))
}

/// Creates a protected array with the log size of larger disks, so that checkpoints are as rare as there.
fn array(clock: &Clock, speed: Speed, level: Level, count: usize) -> Rc<Array<Member>> {
    let shape = Shape { ring_blocks: 4096, ..Shape::new([1; 16], level, count, CHUNK_BYTES, Blocks(MEMBER_BLOCKS)) };
    let members = members(clock, speed, count);
    let options = Options { spawn: Some(clock.spawn()), ..Options::default() };
    let made = clock.run(async move { Array::format(&shape, members, Rc::new(Survivable), options).await });
    Rc::new(made.0.expect("the disks are well"))
}

/// Writes every stripe.
fn fill(clock: &Clock, array: &Rc<Array<Member>>) {
    let (array, stripe) = (array.clone(), array.stripe_blocks());
    let data = noise(stripe);
    clock.run(async move {
        for at in (0..array.geometry().blocks.0).step_by(stripe as usize) {
            drop(array.write_unlogged(Lba(at), data.clone()).await.expect("the disks are well"));
        }
        drop(array.flush(Written::attest()).await.expect("the disks are well"));
    });
}

fn noise(blocks: u64) -> View {
    let mut buf = Buf::zeroed(blocks as usize * 4096);
    for (n, word) in buf.chunks_mut(8).enumerate() {
        word.copy_from_slice(&(n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    buf.freeze()
}

fn scatter(n: u64, blocks: u64) -> u64 {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17) % blocks
}

/// Commands per second at this queue depth.
fn rate<F: Future<Output = Result<(), IoError>>>(
    clock: &Clock,
    commands: u64,
    one: impl Fn(u64) -> F + 'static,
) -> f64 {
    let next = Cell::new(0);
    let ((), took) = clock.run(async move {
        let worker = async || {
            while next.get() < commands {
                one(next.replace(next.get() + 1)).await.expect("the disks are well");
            }
        };
        join_all((0..DEPTH).map(|_| worker())).await;
    });
    commands as f64 / took.as_secs_f64()
}

/// Random 4 KiB rates of the array, relative to those of its bare members.
fn small(level: Level, speed: Speed, is_write: bool) -> f64 {
    const COMMANDS: u64 = 20_000;
    let clock = Clock::default();
    let (alone, array, data) = (members(&clock, speed, 4), array(&clock, speed, level, 4), noise(1));
    fill(&clock, &array);
    let copies = if level == Level::Raid10 { 2 } else { 1 };
    let content = data.clone();
    let bare = rate(&clock, COMMANDS, move |n| {
        let (at, alone, data) = (Lba(scatter(n, MEMBER_BLOCKS)), alone.clone(), content.clone());
        async move {
            let first = scatter(n, 4) as usize;
            if !is_write {
                return alone[first].read(Extent { start: at, len: Blocks(1) }).await.map(drop);
            }
            let one = async |copy: usize| {
                let member = &alone[first / copies * copies + copy];
                member.flush(member.write(at, data.clone()).await?).await
            };
            try_join_all((0..copies).map(one)).await.map(drop)
        }
    });
    let own = rate(&clock, COMMANDS, move |n| {
        let (at, array, data) = (scatter(n, array.geometry().blocks.0), array.clone(), data.clone());
        async move {
            if is_write {
                array.flush(array.write(Lba(at), data).await?).await.map(drop)
            } else {
                array.read(Extent::new(at, 1)).await.map(drop)
            }
        }
    });
    println!("{level} 4 KiB {}: {own:.0} of {bare:.0}/s, {:.2}", if is_write { "writes" } else { "reads" }, own / bare);
    own / bare
}

#[test]
fn random_reads_are_as_fast_as_the_members() {
    for level in [Level::Raid0, Level::Raid10] {
        for speed in [SERVER_SSD, DESKTOP_SSD] {
            assert!(small(level, speed, false) > 0.85);
        }
    }
}

#[test]
fn random_writes_of_mirrors_wait_for_the_log_alone() {
    // Flushes are shared by batches, so the array is faster than its members with one write at a time.
    assert!(small(Level::Raid10, DESKTOP_SSD, true) > 1.2);
    assert!(small(Level::Raid10, SERVER_SSD, true) > 0.75);
}

#[test]
fn random_writes_without_redundancy_wait_for_log_and_place() {
    assert!(small(Level::Raid0, DESKTOP_SSD, true) > 1.4);
    assert!(small(Level::Raid0, SERVER_SSD, true) > 0.55);
}

#[test]
fn full_stripes_are_as_fast_as_the_members() {
    for speed in [SERVER_SSD, DESKTOP_SSD] {
        let clock = Clock::default();
        let (alone, array) = (members(&clock, speed, 10), array(&clock, speed, Level::Raid6, 10));
        let stripes = array.geometry().blocks.0 / array.stripe_blocks();
        let (stripe, chunk) = (noise(array.stripe_blocks()), noise(CHUNK_BLOCKS));
        let bare = rate(&clock, stripes, move |n| {
            let (alone, chunk) = (alone.clone(), chunk.clone());
            async move {
                let one = async |member: &Member| {
                    member.flush(member.write(Lba(n % stripes * CHUNK_BLOCKS), chunk.clone()).await?).await
                };
                try_join_all(alone.iter().map(one)).await.map(drop)
            }
        });
        let own = rate(&clock, stripes, move |n| {
            let (at, array, stripe) = (n % stripes * array.stripe_blocks(), array.clone(), stripe.clone());
            async move { array.flush(array.write_unlogged(Lba(at), stripe).await?).await.map(drop) }
        });
        println!("RAID-6 8+2, full stripes: {own:.0} of {bare:.0}/s, {:.2}", own / bare);
        // Where each write is flushed, a stripe waits for two more flushes.
        assert!(own / bare > if speed.volatile_cache { 0.7 } else { 0.8 });
    }
}

#[test]
fn rebuild_is_as_fast_as_the_slowest_member() {
    for (level, count) in [(Level::Raid1, 2), (Level::Raid5, 4), (Level::Raid6, 6), (Level::Raid10, 4)] {
        let (clock, speed) = (Clock::default(), DESKTOP_SSD);
        let array = array(&clock, speed, level, count);
        fill(&clock, &array);
        let (own, replacement, stripes) = (array.clone(), member(&clock, speed), array.layout().stripes());
        let (rebuilt, took) = clock.run(async move {
            own.fail(1).await.expect("spared");
            own.replace(1, replacement).expect("it has failed");
            own.rebuild(1, &[0..stripes], &mut Owner).await
        });
        assert_eq!(rebuilt.expect("the disks are well").stripes, stripes);
        let bytes = (stripes * u64::from(CHUNK_BYTES)) as f64;
        let share = bytes / took.as_secs_f64() / speed.bytes_per_second as f64;
        println!(
            "{level} rebuild: {:.0} MB/s, {share:.2} of what the replacement takes",
            bytes / took.as_secs_f64() / 1e6
        );
        assert!(share > 0.9, "{level}");
    }
}
