//! Cost of an array compared with the same load on its bare members, which are files in memory (`/dev/shm`) or on a
//! disk.
//!
//! `cargo run --release -p blockyard --example array_rates -- DIR [ROUNDS]`

use block::{BlockDevice, Blocks, Buf, Extent, Geometry, IoError, Lba, Rope, Stable, View, Written};
use futures_util::future::try_join_all;
use raid::{Array, FailureLog, Layout, Level, Options, Shape};
use shard::{DiskOptions, GroupCommit, Signal, World};
use std::cell::Cell;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use uring::Uring;

const BLOCK: usize = 4096;
const CHUNK_BYTES: u32 = 64 << 10;
const DEPTH: usize = 32;
/// Stripes written by full-stripe writes in one measurement.
const STRIPES: u32 = 1024;
const SPAN: Duration = Duration::from_millis(300);

type File = GroupCommit<Steady<<Uring as World>::Disk>>;
type Member = Rc<File>;

/// Disk whose volatile cache can be declared as non-volatile, like that of an SSD with power-loss protection.
struct Steady<D> {
    disk: D,
    volatile_cache: bool,
}

impl<D: BlockDevice> BlockDevice for Steady<D> {
    fn geometry(&self) -> Geometry {
        Geometry { volatile_cache: self.volatile_cache, discard_zeroes: false, ..self.disk.geometry() }
    }
    async fn read(&self, extent: Extent) -> Result<Rope, IoError> {
        self.disk.read(extent).await
    }
    async fn write(&self, start: Lba, data: View) -> Result<Written, IoError> {
        self.disk.write(start, data).await
    }
    async fn flush(&self, after: Written) -> Result<Stable, IoError> {
        if self.volatile_cache { self.disk.flush(after).await } else { Ok(Stable::attest()) }
    }
    async fn discard(&self, _: Extent) -> Result<Written, IoError> {
        // Discards are dropped: carried out, the files would have to allocate their pages again.
        Ok(Written::attest())
    }
}

struct NoFailures;

impl FailureLog for NoFailures {
    fn record(&self, _: u16, error: IoError) -> Pin<Box<dyn Future<Output = Result<Stable, IoError>>>> {
        Box::pin(async move { Err(error) })
    }
}

/// Load: size, direction and pattern of its commands.
#[derive(Clone, Copy)]
struct Load {
    blocks: u64,
    is_write: bool,
    is_random: bool,
    /// Full-stripe writes whose old content is dead.
    is_fresh: bool,
}

/// Subject of a measurement.
enum Subject {
    /// Bare members, as the lower bound: an array without checksums and locks.
    Bare(Vec<Member>, Level),
    Array(Rc<Array<Member>>),
}

impl Subject {
    /// Returns the number of batches written to the redo log.
    fn batches(&self) -> u64 {
        let Self::Array(array) = self else { return 0 };
        array.status().protection.as_ref().map_or(0, |protection| protection.batches)
    }

    /// Runs command number `n` to its end; written data is stable then.
    async fn run(&self, load: Load, n: u64, data: &View) -> Result<(), IoError> {
        match self {
            Self::Bare(members, level) => bare(members, *level, load, n, data).await,
            Self::Array(array) => {
                let at = load.place(n, array.geometry().blocks.0);
                if !load.is_write {
                    return array.read(Extent { start: at, len: Blocks(load.blocks) }).await.map(drop);
                }
                let written = match load.is_fresh {
                    true => array.write_unlogged(at, data.clone()).await?,
                    false => array.write(at, data.clone()).await?,
                };
                array.flush(written).await.map(drop)
            }
        }
    }
}

async fn bare(members: &[Member], level: Level, load: Load, n: u64, data: &View) -> Result<(), IoError> {
    let (first, count) = (n as usize, members.len());
    // RAID-6 members but P and Q hold data of a full stripe.
    let parts = if load.is_fresh { count as u64 - 2 } else { 1 };
    let each = Load { blocks: load.blocks / parts, ..load };
    let at = each.place(n / count as u64 * parts, members[0].geometry().blocks.0);
    if !load.is_write {
        return members[first % count].read(Extent { start: at, len: Blocks(load.blocks) }).await.map(drop);
    }
    let one = async |member: usize, data: View| {
        let member = &members[(first + member) % count];
        let written = member.write(at, data).await?;
        member.flush(written).await
    };
    if !load.is_fresh {
        let copies = if level == Level::Raid10 { 2 } else { 1 };
        return try_join_all((0..copies).map(|copy| one(copy, data.clone()))).await.map(drop);
    }
    let chunk = each.blocks as usize * BLOCK;
    let (mut p, mut q) = (Buf::recycled(chunk), Buf::recycled(chunk));
    let columns: Vec<Option<&[u8]>> = data.chunks(chunk).map(Some).collect();
    simd::parity::pq(&columns, &mut p, &mut q);
    let chunks = (0..parts as usize).map(|n| data.slice(n * chunk..(n + 1) * chunk)).chain([p.freeze(), q.freeze()]);
    try_join_all(chunks.enumerate().map(|(n, chunk)| one(n, chunk))).await.map(drop)
}

impl Load {
    fn place(self, n: u64, blocks: u64) -> Lba {
        let places = blocks / self.blocks;
        let n = if self.is_random { n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 17 } else { n };
        Lba(n % places * self.blocks)
    }
}

/// Returns commands per second, and CPU microseconds of this process per command.
async fn rate(world: &Uring, subject: &Rc<Subject>, load: Load, seed: u64) -> (f64, f64) {
    let data = pattern(load.blocks);
    let (begin, cpu) = (world.now(), cpu_seconds());
    let (next, end, left) = (Rc::new(Cell::new(seed << 32)), begin + SPAN, Rc::new(Cell::new(DEPTH)));
    let ended = Rc::new(Signal::default());
    for _ in 0..DEPTH {
        let (own, subject, data) = (world.clone(), subject.clone(), data.clone());
        let (next, left, ended) = (next.clone(), left.clone(), ended.clone());
        world.spawn(async move {
            while own.now() < end {
                let n = next.replace(next.get() + 1);
                if load.is_fresh && n as u32 >= STRIPES {
                    break;
                }
                subject.run(load, n, &data).await.expect("the files are well");
            }
            left.set(left.get() - 1);
            ended.raise();
        });
    }
    ended.until(|| left.get() == 0).await;
    let done = (next.get() - (seed << 32)) as f64 - if load.is_fresh { DEPTH as f64 } else { 0.0 };
    (done / (world.now() - begin).as_secs_f64(), (cpu_seconds() - cpu) * 1e6 / done)
}

/// Returns the CPU time of all threads of this process, including kernel time.
fn cpu_seconds() -> f64 {
    let clock = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    clock.tv_sec as f64 + clock.tv_nsec as f64 / 1e9
}

fn pattern(blocks: u64) -> View {
    let mut buf = Buf::zeroed(blocks as usize * BLOCK);
    for (n, word) in buf.chunks_mut(8).enumerate() {
        word.copy_from_slice(&(n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    }
    buf.freeze()
}

/// Creates the member files and writes them completely.
async fn members(world: &Uring, dir: &Path, count: usize, blocks: u64, volatile_cache: bool) -> Vec<Member> {
    let mut members = Vec::new();
    for n in 0..count {
        let path = dir.join(format!("member{n}"));
        std::fs::File::create(&path).and_then(|file| file.set_len(blocks * BLOCK as u64)).expect("there is room");
        let options = DiskOptions { block_bytes: BLOCK as u32, read_only: false };
        let disk = world.open_disk(&path.to_string_lossy(), options).await.expect("it was just made");
        std::fs::remove_file(&path).expect("it was just made");
        // Written once, so that no measurement includes the allocation of pages.
        let zeros = Buf::zeroed(1 << 20).freeze();
        for at in (0..blocks).step_by(256) {
            drop(disk.write(Lba(at), zeros.clone()).await.expect("there is room"));
        }
        members.push(Rc::new(GroupCommit::new(Steady { disk, volatile_cache })));
    }
    members
}

/// Returns the bare members and two arrays, each on files of its own with every block written.
async fn subjects(
    world: &Uring,
    dir: &Path,
    (level, count): (Level, usize),
    blocks: u64,
    volatile: bool,
) -> [Rc<Subject>; 3] {
    let alone = members(world, dir, count, blocks, volatile).await;
    let layout = Layout::new(level, count, CHUNK_BYTES, Blocks(blocks)).expect("a valid shape");
    let some = members(world, dir, count, blocks, volatile).await.into_iter().map(Some).collect();
    let plain = Rc::new(Array::new(layout, some, Rc::new(NoFailures)).expect("enough members"));
    // Log size of an 8 GiB member: with the smaller log of these files, checkpoints would dominate.
    let shape = Shape { ring_blocks: 8192, ..Shape::new([1; 16], level, count, CHUNK_BYTES, Blocks(blocks)) };
    let all = members(world, dir, count, blocks, volatile).await;
    let own = world.clone();
    let options = Options { spawn: Some(Rc::new(move |task| own.spawn(task))), ..Options::default() };
    let protected = Array::format(&shape, all, Rc::new(NoFailures), options).await;
    let protected = Rc::new(protected.expect("the files are well"));
    for array in [&plain, &protected] {
        let stripe = array.stripe_blocks();
        let data = pattern(stripe);
        for at in (0..array.geometry().blocks.0).step_by(stripe as usize) {
            drop(array.write_unlogged(Lba(at), data.clone()).await.expect("the files are well"));
        }
        drop(array.flush(Written::attest()).await.expect("the files are well"));
        let driven = array.clone();
        world.spawn(async move { driven.drive().await });
    }
    [Subject::Bare(alone, level), Subject::Array(plain), Subject::Array(protected)].map(Rc::new)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures one row: the three subjects in turn, `rounds` times.
async fn row(world: &Uring, name: &str, subjects: &[Rc<Subject>], load: Load, rounds: u64) {
    if !std::env::args().nth(3).is_none_or(|only| name.contains(&only)) {
        return;
    }
    let mut all: Vec<Vec<(f64, f64)>> = vec![Vec::new(); subjects.len()];
    let batches = subjects[2].batches();
    // Alternating, so that a slow phase of the machine affects all subjects.
    for round in 0..rounds {
        for (subject, figures) in subjects.iter().zip(&mut all) {
            if let (Subject::Array(array), true) = (&**subject, load.is_fresh) {
                // A volume also discards stripes before it writes them anew.
                drop(array.discard(array.geometry().all()).await.expect("the files are well"));
            }
            figures.push(rate(world, subject, load, round).await);
        }
    }
    let ratio = |of: usize, to: usize| median(all[of].iter().zip(&all[to]).map(|(a, b)| a.0 / b.0).collect());
    let cpu = |of: usize| median(all[of].iter().map(|figures| figures.1).collect());
    let commands: f64 = all[2].iter().map(|figures| figures.0 * SPAN.as_secs_f64()).sum();
    let batches = (subjects[2].batches() - batches) as f64;
    println!(
        "{name:<32} {:>8.0} {:>6.2} {:>6.2} {:>7.2}   {:>6.2} {:>6.2} {:>6.2} {:>8.1}",
        median(all[0].iter().map(|figures| figures.0).collect()),
        ratio(1, 0),
        ratio(2, 0),
        ratio(2, 1),
        cpu(0),
        cpu(1),
        cpu(2),
        if load.is_write { commands / batches } else { 0.0 }
    );
}

async fn table(world: Uring, dir: PathBuf, rounds: u64, volatile: bool) {
    const BLOCKS: u64 = 32 << 10;
    let small = |is_write| Load { blocks: 1, is_write, is_random: true, is_fresh: false };
    let long = |is_write| Load { blocks: 32, is_write, is_random: false, is_fresh: false };
    for level in [Level::Raid0, Level::Raid10] {
        let subjects = subjects(&world, &dir, (level, 4), BLOCKS, volatile).await;
        for (what, load) in [
            ("4 KiB random read", small(false)),
            ("4 KiB random write", small(true)),
            ("128 KiB sequential read", long(false)),
            ("128 KiB sequential write", long(true)),
        ] {
            row(&world, &format!("{level} {what}"), &subjects, load, rounds).await;
        }
    }
    let subjects = subjects(&world, &dir, (Level::Raid6, 10), BLOCKS, volatile).await;
    let stripes =
        Load { blocks: 8 * u64::from(CHUNK_BYTES) / BLOCK as u64, is_write: true, is_random: false, is_fresh: true };
    row(&world, "RAID-6 8+2 full stripes", &subjects, stripes, rounds).await;
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let dir = PathBuf::from(arguments.next().expect("a directory for the files"));
    let rounds = arguments.next().map_or(9, |text| text.parse().expect("a number of rounds"));
    for volatile in [false, true] {
        println!("members {}", if volatile { "that have to be flushed" } else { "without a volatile cache" });
        println!(
            "{:<32} {:>8} {:>6} {:>6} {:>7}   {:>20} {:>8}",
            "", "bare/s", "plain", "prot.", "/plain", "CPU us a command", "a batch"
        );
        let dir = dir.clone();
        let main = async move |world| table(world, dir, rounds, volatile).await;
        uring::run(&uring::Options::default(), main).expect("a shard");
    }
}
