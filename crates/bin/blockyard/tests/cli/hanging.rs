//! The real daemon with a disk that neither answers nor fails, at every redundant level: hosts are served within a
//! bound, operators see the reason, and the disk returns by itself.

use crate::faulty::{FaultyDisk, Mood};
use crate::initiator::{Initiator, present};
use crate::serve::{Daemon, ask_line, end, good, start_with, wait_for, wait_for_end, wait_until_served};
use block::{BlockDevice, Buf, Lba, Written};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shard::{DiskOptions, World};
use std::cell::Cell;
use std::fs::File;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uring::Io;

const DISK_BYTES: u64 = 160 << 20;
/// Blocks of 512 bytes in one command.
const BLOCKS: u32 = 8;
/// Number of locations written, 64 KiB apart.
const PLACES: u64 = 64;
/// Bound of an administrator's command while a disk hangs: it may have to wait until the disk is given up.
const ORDER_MAX: Duration = Duration::from_secs(15);
const COMES_BACK: Duration = Duration::from_secs(90);

/// Returns the bounds of a write and of a read.
fn bounds(level: &str) -> (Duration, Duration) {
    match level {
        "raid6" => (Duration::from_secs(2), Duration::from_millis(1500)),
        _ => (Duration::from_secs(10), Duration::from_millis(1500)),
    }
}

/// Lets two of these tests run at a time: they mostly wait, but measure latencies.
fn turn() -> MutexGuard<'static, ()> {
    static LANES: [Mutex<()>; 2] = [Mutex::new(()), Mutex::new(())];
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    let lane = TAKEN.fetch_add(1, Ordering::Relaxed) % LANES.len();
    LANES[lane].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Host that writes, reads and remembers its data.
struct Load {
    host: Initiator,
    round: u64,
    write: Duration,
    read: Duration,
}

impl Load {
    fn new(dir: &Path, round: u64) -> Self {
        let mut host = Initiator::login(dir);
        host.be_patient(Duration::from_secs(60));
        Self { host, round, write: Duration::ZERO, read: Duration::ZERO }
    }

    fn fill(round: u64) -> u8 {
        (round % 251 + 1) as u8
    }

    fn place(round: u64) -> u64 {
        round * 5 % PLACES * 128
    }

    fn run(&mut self, span: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < span {
            let since = Instant::now();
            self.host.write(Self::place(self.round), BLOCKS, Self::fill(self.round)).expect("it is written");
            self.write = self.write.max(since.elapsed());
            self.round += 1;
            let since = Instant::now();
            self.verify(self.round.saturating_sub(12).max(1));
            self.read = self.read.max(since.elapsed());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Verifies the data written in this round.
    fn verify(&mut self, round: u64) {
        let round = round - 1;
        let read = self.host.read(Self::place(round), BLOCKS).expect("it is read");
        assert!(read.iter().all(|&byte| byte == Self::fill(round)), "round {round} has {}", read[0]);
    }

    fn verify_all(&mut self) {
        (self.round.saturating_sub(PLACES)..self.round).for_each(|round| self.verify(round + 1));
    }

    #[track_caller]
    fn expect_within(&mut self, level: &str, when: &str) {
        let (write, read) = bounds(level);
        println!("{level}, {when}: the longest write took {:?}, the longest read {:?}", self.write, self.read);
        assert!(self.write <= write, "{level}, {when}: a write took {:?}", self.write);
        assert!(self.read <= read, "{level}, {when}: a read took {:?}", self.read);
        (self.write, self.read) = Default::default();
    }
}

/// Returns the output of a command, which must succeed within a bound.
#[track_caller]
fn soon(dir: &Path, most: Duration, line: &str) -> String {
    let begun = Instant::now();
    let said = good(dir, line);
    assert!(begun.elapsed() <= most, "{line} took {:?}", begun.elapsed());
    said
}

fn pool(dir: &Path) -> Value {
    let said = soon(dir, Duration::from_secs(2), "pool show tank -o json");
    serde_json::from_str::<Value>(&said).expect("JSON")["pool"].clone()
}

fn states(dir: &Path) -> Vec<String> {
    let members = pool(dir)["groups"][0]["members"].as_array().expect("a list").clone();
    members.iter().map(|member| member["state"].as_str().expect("a word").to_owned()).collect()
}

#[track_caller]
fn wait_until_healthy(dir: &Path, when: &str) {
    let begun = Instant::now();
    while pool(dir)["state"] != "healthy" {
        assert!(begun.elapsed() < COMES_BACK, "{when}: {}", pool(dir));
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Creates a pool of this level with `tank/v`, whose second disk hangs on demand; none if there can be no such disk.
fn furnish(dir: &Path, level: &str, io: &str) -> Option<(Daemon, FaultyDisk)> {
    let faulty = FaultyDisk::new(dir, "faulty", DISK_BYTES)?;
    let daemon = start(dir, io);
    let count = if level == "raid1" { 2 } else { 4 };
    let names: Vec<String> = (0..count).map(|at| format!("d{at}")).collect();
    for name in names.iter().filter(|name| *name != "d1") {
        good(dir, &format!("disk add --name {name} --create {DISK_BYTES}B {name}.img"));
    }
    good(dir, &format!("disk add --name d1 {}", faulty.path()));
    good(dir, &format!("pool create tank --level {level} {}", names.join(" ")));
    good(dir, "volume create tank/v 8MiB");
    present(dir);
    Some((daemon, faulty))
}

fn start(dir: &Path, io: &str) -> Daemon {
    let daemon = start_with(dir, "test", &["--no-web", "--log", "warn", "--io", io]);
    wait_until_served(dir);
    daemon
}

fn serve_through_hangs(level: &str, io: &str) {
    let _turn = turn();
    let dir = tempfile::tempdir().expect("a folder");
    let dir = dir.path();
    let Some((mut daemon, faulty)) = furnish(dir, level, io) else { return };
    let mut load = Load::new(dir, 0);
    load.run(Duration::from_secs(1));

    // Under load. Administrators get answers meanwhile, with the reason.
    faulty.be(Mood::Hangs);
    load.run(Duration::from_secs(12));
    load.expect_within(level, "a member hangs");
    assert!(faulty.hanging() > 0, "nothing was asked of the disk");
    assert_eq!(states(dir)[1], "not_responding");
    for line in ["status", "alert active", "pool show tank", "doctor"] {
        let said = wait_for(dir, line, |said| said.contains("d1"));
        assert!(!said.contains("All good"), "{line}: {said}");
    }
    assert_eq!(ask_line(dir, "status --check").code, 7);
    faulty.be(Mood::Well);
    load.run(Duration::from_secs(1));
    wait_until_healthy(dir, "the disk answers again");
    load.verify_all();

    // Creating volumes, taking snapshots and first writes to rows of the volume.
    faulty.be(Mood::Hangs);
    soon(dir, ORDER_MAX, "volume create tank/w 4MiB");
    soon(dir, ORDER_MAX, "snapshot create tank/v@noon");
    load.run(Duration::from_secs(2));
    load.expect_within(level, "volumes are made");
    faulty.be(Mood::Well);
    wait_until_healthy(dir, "volumes were made");

    // Stop and start of the daemon.
    faulty.be(Mood::Hangs);
    load.run(Duration::from_millis(200));
    // The kernel may keep its threads until the disk answers.
    let id = Pid::from_raw(i32::try_from(daemon.0.id()).expect("a process id")).expect("not zero");
    kill_process(id, Signal::TERM).expect("it runs");
    assert!(wait_for_end(&mut daemon).success(), "{level}: it does not end well");
    let mut daemon = start(dir, io);
    wait_for(dir, "pool list", |said| said.contains("degraded"));
    let mut load = Load::new(dir, load.round);
    load.verify_all();
    load.run(Duration::from_secs(2));
    load.expect_within(level, "the daemon was started");
    faulty.be(Mood::Well);
    wait_until_healthy(dir, "the daemon was started");
    load.verify_all();

    // The administrator replaces the disk that hangs, and the replacement hangs during the rebuild.
    faulty.be(Mood::Hangs);
    load.run(Duration::from_millis(100));
    soon(dir, ORDER_MAX, "disk fail d1");
    load.run(Duration::from_secs(1));
    faulty.be(Mood::Well);
    let begun = Instant::now();
    while ask_line(dir, "disk replace d1 d1 --force").code != 0 {
        assert!(begun.elapsed() < COMES_BACK, "{level}: the disk does not take its place again");
        std::thread::sleep(Duration::from_millis(200));
    }
    faulty.be(Mood::Hangs);
    load.run(Duration::from_secs(11));
    // A member that is being rebuilt has the deadline of a member, regardless of the level.
    assert!(load.write <= Duration::from_secs(10), "{level}: a write took {:?} beside a rebuild", load.write);
    faulty.be(Mood::Well);
    wait_until_healthy(dir, "it was filled");
    load.verify_all();
    assert!(end(&mut daemon, Signal::TERM).success());
}

#[test]
fn raid6_is_served_while_a_member_hangs() {
    serve_through_hangs("raid6", "uring");
}

#[test]
fn raid1_is_served_while_a_member_hangs() {
    serve_through_hangs("raid1", "uring");
}

#[test]
fn raid5_is_served_while_a_member_hangs() {
    serve_through_hangs("raid5", "uring");
}

#[test]
fn raid10_is_served_by_threads_while_a_member_hangs() {
    serve_through_hangs("raid10", "threads");
}

/// Regression: a flush needs a thread or a ring worker, which a hanging disk took from all others.
#[test]
fn flushes_that_hang_on_one_disk_delay_no_other() {
    let _turn = turn();
    for io in [Io::Uring, Io::Threads] {
        let dir = tempfile::tempdir().expect("a folder");
        let Some(faulty) = FaultyDisk::new(dir.path(), "faulty", 16 << 20) else { return };
        let healthy = dir.path().join("healthy.img");
        File::create(&healthy).and_then(|file| file.set_len(16 << 20)).expect("a file");
        if io == Io::Uring && !uring::makes_ring() {
            println!("there is no io_uring here: not tried");
            continue;
        }
        let paths = [faulty.path().to_owned(), healthy.to_str().expect("UTF-8").to_owned()];
        let inside = Rc::new(faulty);
        let options = uring::Options { io, restricted: true, ..uring::Options::default() };
        let longest = uring::run(&options, async move |world: uring::Uring| {
            let options = DiskOptions { block_bytes: 4096, read_only: false };
            let hanging = Rc::new(world.open_disk(&paths[0], options).await.expect("a disk"));
            let healthy = world.open_disk(&paths[1], options).await.expect("a disk");
            inside.be(Mood::HangsOnFlush);
            let ended = Rc::new(Cell::new(0));
            for _ in 0..64 {
                let (disk, ended) = (hanging.clone(), ended.clone());
                world.spawn(async move {
                    let flushed = disk.flush(Written::attest()).await;
                    assert!(flushed.is_ok());
                    ended.set(ended.get() + 1);
                });
            }
            while inside.hanging() == 0 {
                world.sleep(Duration::from_millis(1)).await;
            }
            world.sleep(Duration::from_millis(200)).await;
            let mut longest = Duration::ZERO;
            for block in 0..100 {
                let begun = world.now();
                let written = healthy.write(Lba(block), Buf::zeroed(4096).freeze()).await.expect("it is well");
                let _ = healthy.flush(written).await.expect("it is well");
                longest = longest.max(world.now().since(begun));
            }
            assert_eq!(ended.get(), 0, "{io:?}: a flush that hangs has ended");
            inside.be(Mood::Well);
            while ended.get() < 64 {
                world.sleep(Duration::from_millis(1)).await;
            }
            longest
        });
        let longest = longest.expect("it runs");
        println!("{io:?}: beside 64 flushes that hang a write with its flush took {longest:?} at most");
        assert!(longest < Duration::from_secs(1), "{io:?}: {longest:?}");
    }
}
