//! Randomized run of two volumes on one shard.

use crate::rig::disk::{Disk, Event, Image, Journal};
use crate::rig::oracle::{Oracle, WriteId};
use crate::rig::{Random, Rig, Running, TestRuntime};
use crate::{
    CacheShard, CachedVolume, Check, Finding, Findings, Layer, LogId, LogOwner, Policy, ReadAhead, ReadCache,
    Scheduler, Share, VolumeId, WriteLog, WriteMemory, WritePolicy,
};
use block::{BlockDevice, Extent, IoError, IoErrorKind, Stable, Written};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

pub(crate) const BLOCK: usize = 512;
/// Size of a volume in blocks: 32 pages and a partial one.
pub(crate) const BLOCKS: u64 = 32 * 8 + 3;
pub(crate) const LOG: LogId = LogId(0xb10c);
pub(crate) const LOG_BYTES: u64 = 80 * 4096;

/// Parameters of a randomized run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) commands: usize,
    pub(crate) log: bool,
    pub(crate) errors: bool,
    pub(crate) log_fails: bool,
    /// Number of simulated power cuts.
    pub(crate) cuts: usize,
    /// Flip bits in memory.
    pub(crate) flips: bool,
    /// Command to repeat, on few blocks.
    pub(crate) repeated: Option<Repeated>,
}

/// Command that a run can consist mostly of.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Repeated {
    Discard,
    Flush,
    ChangePolicy,
}

impl Default for Plan {
    fn default() -> Self {
        Self { commands: 120, log: true, errors: false, log_fails: false, cuts: 12, flips: true, repeated: None }
    }
}

/// Owner of the log: the part of the pool's catalog that a log needs.
pub(crate) struct Owner(pub(crate) Journal);

impl LogOwner for Owner {
    fn abandon(&self, _: IoError, volumes: Vec<VolumeId>) -> LocalBoxFuture<'static, Result<Stable, IoError>> {
        let journal = self.0.clone();
        async move {
            journal.push(Event::Abandoned(volumes.iter().map(|volume| volume.0).collect()));
            Ok(Stable::attest())
        }
        .boxed_local()
    }

    fn all_destaged(&self) -> LocalBoxFuture<'static, ()> {
        let journal = self.0.clone();
        async move { journal.push(Event::Settled) }.boxed_local()
    }
}

type Volume = Rc<CachedVolume<Disk, TestRuntime>>;
type Outcome = Result<(), String>;

pub(crate) struct RandomizedRun {
    pub(crate) journal: Journal,
    /// Initial content of the disks: first the volumes', then the log's.
    pub(crate) begin: Vec<Image>,
    pub(crate) oracles: Vec<Rc<Oracle>>,
    pub(crate) log_block_bytes: u32,
}

struct Stage {
    rig: Rig,
    journal: Journal,
    random: Random,
    disks: Vec<Disk>,
    log_disk: Disk,
    volumes: Vec<Volume>,
    oracles: Vec<Rc<Oracle>>,
    running: Vec<Running<Outcome>>,
    plan: Plan,
    findings: Rc<RefCell<Vec<Finding>>>,
}

impl RandomizedRun {
    pub(crate) fn run(seed: u64, plan: &Plan) -> Result<Self, String> {
        let mut stage = Stage::new(seed, *plan);
        let begin = stage.disks.iter().chain([&stage.log_disk]).map(Disk::image).collect();
        let journal = stage.journal.clone();
        for _ in 0..plan.commands {
            stage.act()?;
        }
        stage.end()?;
        let log_block_bytes = stage.log_disk.geometry().block_bytes;
        Ok(Self { journal, begin, oracles: stage.oracles.clone(), log_block_bytes })
    }
}

impl Stage {
    fn new(seed: u64, plan: Plan) -> Self {
        let (rig, mut random) = (Rig::seeded(seed), Random(seed ^ 0x5eed));
        let journal = Journal::default();
        let runtime = &rig.runtime;
        let disks: Vec<Disk> =
            (0..2).map(|number| Disk::new(runtime, number, 512, BLOCKS * BLOCK as u64, &journal)).collect();
        let block_bytes = if random.one_in(2) { 512 } else { 4096 };
        let blank = Disk::new(runtime, 2, block_bytes, LOG_BYTES, &Journal::default());
        rig.run({
            let blank = blank.clone();
            async move { WriteLog::format(&blank, LOG).await.map(drop) }
        })
        .unwrap();
        let log_disk = Disk::with_image(runtime, 2, blank.geometry(), blank.image(), &journal);
        let owner = Rc::new(Owner(journal.clone()));
        let log = plan.log.then(|| {
            let (disk, runtime) = (log_disk.clone(), runtime.clone());
            rig.run(async move { WriteLog::open(disk, LOG, runtime, owner).await.unwrap().finish().await.unwrap() })
        });
        let findings = Rc::new(RefCell::new(Vec::new()));
        let hear = findings.clone();
        let found = Findings::new(move |finding| hear.borrow_mut().push(finding));
        let shard = CacheShard {
            runtime: runtime.clone(),
            reads: ReadCache::new(20 * (4096 + 256), found.clone()),
            writes: WriteMemory::new(24 << 10),
            log,
            scheduler: Scheduler::new(runtime.clone(), random.below(4) as usize),
            findings: found,
        };
        let policy = Policy { share: Share { check: Check::Every, ..Share::default() }, ..Policy::default() };
        let volume =
            |(number, disk): (u128, &Disk)| Rc::new(CachedVolume::new(&shard, VolumeId(number), disk.clone(), &policy));
        let volumes = (0..).zip(&disks).map(volume).collect();
        for disk in disks.iter().chain([&log_disk]) {
            disk.latency.set(Duration::from_micros(random.below(3) * 100));
        }
        let oracles = (0..2).map(|_| Rc::new(Oracle::new(BLOCK, &journal))).collect();
        Self { rig, journal, random, disks, log_disk, volumes, oracles, running: Vec::new(), plan, findings }
    }

    fn act(&mut self) -> Outcome {
        for _ in 0..self.random.below(6) {
            self.rig.step();
        }
        self.collect()?;
        while self.running.len() > 6 {
            if !self.rig.step() {
                return Err(format!("{} commands never end", self.running.len()));
            }
            self.collect()?;
        }
        let volume = self.random.below(2) as usize;
        if let Some(repeated) = self.plan.repeated.filter(|_| self.random.one_in(3)) {
            match repeated {
                Repeated::Discard => {
                    let extent = self.extent();
                    self.discard_at(volume, extent);
                    self.discard_at(volume, extent);
                    self.write_at(volume, extent);
                }
                Repeated::Flush => self.flush(volume),
                Repeated::ChangePolicy => self.change_policy(volume),
            }
            return Ok(());
        }
        match self.random.below(100) {
            0..30 => self.read(volume),
            30..64 => self.write(volume),
            64..72 => self.flush(volume),
            72..78 => self.discard(volume),
            78..82 => self.change_policy(volume),
            82..86 => self.abort(),
            86..90 => self.flip(volume),
            90..94 => self.fault(volume),
            94..97 => self.rig.pass(Duration::from_millis(self.random.below(1500))),
            _ => self.read_forward(volume),
        }
        Ok(())
    }

    fn collect(&mut self) -> Outcome {
        let mut wrong = Ok(());
        self.running.retain(|running| match running.result() {
            Some(outcome) => {
                wrong = std::mem::replace(&mut wrong, Ok(())).and(outcome);
                false
            }
            None => true,
        });
        wrong
    }

    fn extent(&mut self) -> Extent {
        let hot = self.plan.repeated.is_some() || self.random.one_in(3);
        let start = self.random.below(if hot { 24 } else { BLOCKS });
        let len = match self.random.below(3) {
            0 => 8,
            1 => 1 + self.random.below(5),
            _ => 1 + self.random.below(40),
        };
        let start = if len == 8 { start / 8 * 8 } else { start };
        Extent::new(start, len.min(BLOCKS - start))
    }

    fn read(&mut self, volume: usize) {
        let extent = self.extent();
        self.read_at(volume, extent);
    }

    fn read_at(&mut self, at: usize, extent: Extent) {
        let (volume, oracle, errors) = (self.volumes[at].clone(), self.oracles[at].clone(), self.may_fail());
        self.running.push(self.rig.begin(async move {
            let begin = oracle.tick();
            let read = match volume.try_read(extent) {
                Some(read) => read,
                None => volume.read(extent).await,
            };
            match read {
                Ok(rope) => oracle.judge_read(extent, rope, begin),
                Err(_) if errors => Ok(()),
                Err(error) => Err(format!("read: {error}")),
            }
        }));
    }

    /// True when commands may fail in this run.
    fn may_fail(&self) -> bool {
        self.plan.errors
    }

    fn read_forward(&mut self, volume: usize) {
        let start = self.random.below(BLOCKS / 2);
        for step in 0..5 {
            self.read_at(volume, Extent::new(start + step * 8, 8));
            for _ in 0..self.random.below(8) {
                self.rig.step();
            }
        }
    }

    fn write(&mut self, volume: usize) {
        let extent = self.extent();
        // Sometimes a sequential stream, whose writes are merged.
        let parts = if self.random.one_in(3) { 1 + self.random.below(4) } else { 1 };
        for part in 0..parts {
            let start = extent.start.0 + part * extent.len.0;
            if start + extent.len.0 <= BLOCKS {
                self.write_at(volume, Extent::new(start, extent.len.0));
            }
        }
    }

    fn write_at(&mut self, at: usize, extent: Extent) {
        let (volume, oracle, errors) = (self.volumes[at].clone(), self.oracles[at].clone(), self.may_fail());
        let write_id = oracle.begin(extent, false);
        let data = oracle.data(write_id);
        let fresh = self.random.one_in(10);
        let ended = Ended { oracle: oracle.clone(), write_id, done: false };
        self.running.push(self.rig.begin(async move {
            let mut ended = ended;
            let before = volume.write_policy();
            let written = if fresh {
                volume.write_unlogged(extent.start, data).await
            } else {
                volume.write(extent.start, data).await
            };
            let back = before == WritePolicy::Back && volume.write_policy() == WritePolicy::Back;
            ended.end(&written, back && !volume.geometry().volatile_cache);
            allowed(written, errors, "write")
        }));
    }

    fn discard(&mut self, volume: usize) {
        let extent = self.extent();
        self.discard_at(volume, extent);
    }

    fn discard_at(&mut self, at: usize, extent: Extent) {
        let (volume, oracle, errors) = (self.volumes[at].clone(), self.oracles[at].clone(), self.may_fail());
        let write_id = oracle.begin(extent, true);
        let ended = Ended { oracle: oracle.clone(), write_id, done: false };
        self.running.push(self.rig.begin(async move {
            let mut ended = ended;
            let before = volume.write_policy();
            let written = volume.discard(extent).await;
            let back = before == WritePolicy::Back && volume.write_policy() == WritePolicy::Back;
            ended.end(&written, back && !volume.geometry().volatile_cache);
            allowed(written, errors, "discard")
        }));
    }

    fn flush(&mut self, at: usize) {
        let (volume, oracle, errors) = (self.volumes[at].clone(), self.oracles[at].clone(), self.may_fail());
        self.running.push(self.rig.begin(async move {
            let begin = oracle.tick();
            let flushed = volume.flush(Written::attest()).await;
            if flushed.is_ok() {
                oracle.flushed(begin);
            }
            allowed(flushed, errors, "flush")
        }));
    }

    fn change_policy(&mut self, at: usize) {
        let write = match self.random.below(4) {
            0 => WritePolicy::Through,
            1 => WritePolicy::BackVolatile,
            _ => WritePolicy::Back,
        };
        let read_ahead = match self.random.below(3) {
            0 => ReadAhead::Off,
            1 => ReadAhead::Fixed { bytes: 16 << 10 },
            _ => ReadAhead::Adaptive,
        };
        let share = Share { weight: self.random.below(3) as u32 * 50, ..Share::default() };
        let limits = crate::Limits { iops_max: self.random.below(2) * 3000, ..crate::Limits::default() };
        let policy = Policy { write, read_ahead, share, limits };
        let (volume, oracle) = (self.volumes[at].clone(), self.oracles[at].clone());
        self.running.push(self.rig.begin(async move {
            let begin = oracle.tick();
            let old = volume.write_policy();
            if volume.set_policy(&policy).await.is_ok() && old != write && volume.write_policy() == write {
                oracle.flushed(begin);
            }
            Ok(())
        }));
    }

    fn abort(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.random.below(self.running.len() as u64) as usize;
        self.running.swap_remove(at).abort();
    }

    fn flip(&mut self, volume: usize) {
        let page = self.random.below(BLOCKS / 8);
        if !self.plan.flips || !self.volumes[volume].flip_cached_bit(page) {
            return;
        }
        self.read_at(volume, Extent::new(page * 8, 8));
        self.rig.settle();
        let is_reported =
            |finding: &&Finding| finding.layer == Layer::Cache && finding.volume == VolumeId(volume as u128);
        let reported = self.findings.borrow().iter().filter(is_reported).count() as u64;
        assert_eq!(self.volumes[volume].counters().reads.mismatches, reported, "every mismatch is reported");
    }

    fn fault(&mut self, volume: usize) {
        if self.plan.log_fails && self.random.one_in(3) {
            self.log_disk.fail_writes.set(Some(IoErrorKind::Gone));
        }
        if self.plan.errors {
            let disk = &self.disks[volume];
            match self.random.below(4) {
                0 => disk.fail_writes.set(Some(IoErrorKind::NoSpace)),
                1 => disk.fail_writes.set(None),
                2 => drop(disk.bad.borrow_mut().insert(self.random.below(BLOCKS))),
                _ => disk.bad.borrow_mut().clear(),
            }
        }
    }

    /// Repairs the disks, waits for all commands, and reads everything.
    fn end(&mut self) -> Outcome {
        for disk in &self.disks {
            disk.fail_writes.set(None);
            disk.bad.borrow_mut().clear();
        }
        for _ in 0..200_000 {
            self.collect()?;
            if self.running.is_empty() || !self.rig.step() {
                break;
            }
        }
        if !self.running.is_empty() {
            return Err(format!("{} commands never end", self.running.len()));
        }
        for at in 0..self.volumes.len() {
            self.read_at(at, Extent::new(0, BLOCKS));
            self.flush(at);
        }
        while !self.running.is_empty() && self.rig.step() {
            self.collect()?;
        }
        if self.running.is_empty() { Ok(()) } else { Err("the last reads never end".into()) }
    }
}

fn allowed<T>(result: Result<T, IoError>, errors: bool, what: &str) -> Outcome {
    match result {
        Err(error) if !errors => Err(format!("{what}: {error}")),
        _ => Ok(()),
    }
}

/// Write whose end is reported to the oracle, also when it is dropped.
struct Ended {
    oracle: Rc<Oracle>,
    write_id: WriteId,
    done: bool,
}

impl Ended {
    fn end<T>(&mut self, result: &Result<T, IoError>, durable: bool) {
        self.done = true;
        self.oracle.end(self.write_id, result.is_ok(), durable && result.is_ok());
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        if !self.done {
            self.oracle.end(self.write_id, false, false);
        }
    }
}
