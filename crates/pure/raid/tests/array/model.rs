//! Random commands, failures, replacements, rebuilds and power cuts on every level, against a flat model of the
//! permitted content of each block.

use crate::bench::{Bench, Owner, noise};
use crate::disk::{BLOCK, Disk};
use block::{BlockDevice, Extent, View};
use futures_util::future::{Either, select};
use proptest::prelude::*;
use raid::geometry::MemberSet;
use raid::{Level, MemberState};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

const CHUNK_BLOCKS: u32 = 2;
const STRIPES: u64 = 9;

/// Pseudo-random numbers; the seed determines the whole test.
#[derive(Clone)]
struct Dice(Rc<RefCell<u64>>);

impl Dice {
    fn roll(&self, sides: u64) -> u64 {
        let mut state = self.0.borrow_mut();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % sides
    }

    fn extent(&self, blocks: u64) -> Extent {
        let start = self.roll(blocks);
        let len = 1 + self.roll(if self.roll(4) == 0 { blocks - start } else { (blocks - start).min(5) });
        Extent::new(start, len)
    }
}

/// Permitted contents of a block: names of writes, 0 for never written.
type Names = BTreeSet<u64>;

struct Model {
    bench: Bench,
    dice: Dice,
    /// Permitted content of each block, several while commands run.
    now: Rc<RefCell<Vec<Names>>>,
    /// Permitted content of each block after a power cut.
    after_cut: Vec<Names>,
    next_name: u64,
}

/// Content of block `lba` as written under `name`.
fn content(name: u64, lba: u64) -> View {
    if name == 0 { View::zeroed(BLOCK) } else { noise(name << 20 | lba, 1) }
}

/// Names of the blocks found from block `start` on, each of which must be one of `names`.
fn recognise(start: u64, found: &[u8], names: &[Names]) -> Vec<Names> {
    let one = |(lba, (found, names)): (u64, (&[u8], &Names))| {
        let name = names.iter().copied().find(|&name| *content(name, lba) == *found);
        Names::from([name.unwrap_or_else(|| panic!("block {lba} holds none of {names:?}"))])
    };
    (start..).zip(found.chunks(BLOCK).zip(names)).map(one).collect()
}

async fn others_run(mut times: u64) {
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        times = times.saturating_sub(1);
        if times == 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

impl Model {
    fn new(level: Level, members: usize, seed: u64) -> Self {
        let bench = Bench::new(level, members, CHUNK_BLOCKS, STRIPES);
        let blocks = bench.layout().blocks().0 as usize;
        let zeros = vec![Names::from([0]); blocks];
        let dice = Dice(Rc::new(RefCell::new(seed)));
        Self { bench, dice, now: Rc::new(RefCell::new(zeros.clone())), after_cut: zeros, next_name: 1 }
    }

    fn blocks(&self) -> u64 {
        self.after_cut.len() as u64
    }

    /// Members that do not hold everything, or are about to fail.
    fn lost(&self) -> MemberSet {
        let lost = |member: &u16| {
            let disk = self.bench.disk(*member);
            let in_service = self.bench.state(*member) == MemberState::InService;
            !in_service
                || disk.gone.get()
                || disk.doomed.get()
                || !disk.bad.borrow().is_empty()
                || !disk.stuck.borrow().is_empty()
        };
        (0..self.bench.layout().members()).filter(lost).collect()
    }

    /// Chooses a member whose loss the array survives, beside those lost already.
    fn victim(&self) -> Option<u16> {
        let (layout, lost) = (self.bench.layout(), self.lost());
        let spared = |&member: &u16| !lost.contains(member) && layout.survives(lost.with(member));
        let all: Vec<u16> = (0..layout.members()).filter(spared).collect();
        (!all.is_empty()).then(|| all[self.dice.roll(all.len() as u64) as usize])
    }

    fn new_write(&mut self) -> (Extent, View) {
        let extent = self.dice.extent(self.blocks());
        let name = self.next_name;
        self.next_name += 1;
        let mut data = block::Buf::zeroed(extent.len.0 as usize * BLOCK);
        for (n, block) in (0..).zip(data.chunks_mut(BLOCK)) {
            let lba = extent.start.0 + n;
            block.copy_from_slice(&content(name, lba));
            self.now.borrow_mut()[lba as usize].insert(name);
            self.after_cut[lba as usize].insert(name);
        }
        (extent, data.freeze())
    }

    /// Starts one random command. Its expected result is asserted where it ends.
    fn begin(&mut self) {
        let (array, dice) = (self.bench.array.clone(), self.dice.clone());
        match self.dice.roll(14) {
            0..=5 => {
                let (extent, data) = self.new_write();
                self.bench.begin(async move {
                    let _ = array.write(extent.start, data).await.expect("no more is lost than can be");
                });
            }
            6..=7 => {
                let (extent, now) = (self.dice.extent(self.blocks()), self.now.clone());
                self.bench.begin(async move {
                    let rope = array.read(extent).await.expect("no more is lost than can be");
                    assert_eq!(rope.len() as u64, extent.len.0 * BLOCK as u64);
                    let names = &now.borrow()[extent.start.0 as usize..extent.end().0 as usize];
                    recognise(extent.start.0, &rope.into_view(), names);
                });
            }
            8 => {
                let (extent, data) = self.new_write();
                self.bench.begin(async move {
                    let patience = others_run(dice.roll(12));
                    match select(Box::pin(array.write(extent.start, data)), Box::pin(patience)).await {
                        Either::Left((written, _)) => drop(written.expect("no more is lost than can be")),
                        Either::Right((_, dropped)) => drop(dropped),
                    }
                });
            }
            9 => drop(self.bench.begin(async move {
                let _ = array.flush(block::Written::attest()).await.expect("no more is lost than can be");
            })),
            10..=11 => self.begin_fault(),
            _ => self.begin_rebuild(),
        }
    }

    fn begin_fault(&mut self) {
        let Some(member) = self.victim() else { return };
        let (array, disk, dice) = (self.bench.array.clone(), self.bench.disk(member), self.dice.clone());
        let block = self.dice.roll(STRIPES * u64::from(CHUNK_BLOCKS));
        let kind = self.dice.roll(5);
        // Noted at once, so that the next member to fail is chosen beside this one.
        match kind {
            0 => disk.gone.set(true),
            1 => _ = disk.bad.borrow_mut().insert(block),
            2 => _ = disk.stuck.borrow_mut().insert(block),
            3 => disk.flush_fails.set(true),
            _ => {}
        }
        if kind >= 3 {
            disk.doomed.set(true);
            self.bench.begin(async move {
                others_run(dice.roll(8)).await;
                array
                    .fail(member)
                    .await
                    .or_else(|error| match error {
                        raid::FailError::NotInService(_) => Ok(()),
                        other => Err(other),
                    })
                    .expect("the victim is spared");
            });
        }
    }

    fn begin_rebuild(&mut self) {
        let failed = |&member: &u16| self.bench.state(member) == MemberState::Failed;
        let all: Vec<u16> = (0..self.bench.layout().members()).filter(failed).collect();
        let Some(&member) = all.first() else { return };
        self.bench.replace(member);
        self.bench.disk(member).yields.set(self.dice.roll(3) as u32);
        let (array, log) = (self.bench.array.clone(), self.bench.log.clone());
        self.bench.begin(async move {
            let rebuilt = array.rebuild(member, &[0..STRIPES], &mut Owner(log)).await;
            assert_eq!(rebuilt.expect("the others hold everything").unreadable, []);
        });
    }

    /// Runs several commands concurrently, in an order that the random numbers choose, until all have ended.
    fn round(&mut self) {
        for disk in self.bench.disks.borrow().iter() {
            disk.yields.set(self.dice.roll(4) as u32);
        }
        for _ in 0..1 + self.dice.roll(6) {
            self.begin();
        }
        let dice = self.dice.clone();
        while self.bench.executor.run_one(|woken| dice.roll(woken as u64) as usize) {}
        assert_eq!(self.bench.executor.task_count(), 0, "every command ends");
    }

    /// Checks parity and mirrors, and the content of each block.
    fn judge(&mut self) {
        // The check takes every lock, so commands that were dropped end before it.
        assert_eq!(self.bench.mismatches(), 0);
        let all = self.bench.read(Extent::new(0, self.blocks())).expect("no more is lost than can be");
        let mut now = self.now.borrow_mut();
        *now = recognise(0, &all, &now);
    }

    /// Flushes while nothing else runs: the present content survives a power cut.
    fn flush(&mut self) {
        let _ = self.bench.flush().expect("no more is lost than can be");
        self.after_cut.clone_from(&self.now.borrow());
    }

    /// Cuts the power: every disk loses some of its unflushed writes. Then the array is assembled as the log says,
    /// and resynced.
    fn cut_power(&mut self) {
        let rebuilding = |state| matches!(state, MemberState::Rebuilding { .. });
        if self.bench.status().members.iter().any(|member| rebuilding(member.state)) {
            return;
        }
        if !self.lost().is_empty() {
            // A write cut before its flush can cost a degraded stripe: the write hole.
            self.flush();
        }
        let dice = self.dice.clone();
        let disks: Vec<Disk> = self.bench.disks.borrow().clone();
        disks.iter().for_each(|disk| disk.cut_power(|| dice.roll(2) == 0));
        let failed = self.bench.log.recorded.borrow().clone();
        self.bench = Bench::assemble(self.bench.layout(), disks, &failed);
        let array = self.bench.array.clone();
        let verified = self.bench.run(async move { array.resync(0..STRIPES, async |_| {}).await });
        let _ = verified.expect("no more is lost than can be");
        self.now.borrow_mut().clone_from(&self.after_cut);
        self.judge();
        self.flush();
    }

    /// Repairs everything; then the array survives every loss that it should.
    fn repair(&mut self) {
        for disk in self.bench.disks.borrow().iter() {
            disk.bad.borrow_mut().clear();
            disk.stuck.borrow_mut().clear();
        }
        for member in 0..self.bench.layout().members() {
            if self.bench.disk(member).gone.get() && self.bench.state(member) == MemberState::InService {
                let array = self.bench.array.clone();
                self.bench.run(async move { array.fail(member).await }).expect("it is spared");
            }
            if self.bench.state(member) != MemberState::InService {
                self.bench.replace(member);
                assert_eq!(self.bench.rebuild(member).expect("the others are well").unreadable, []);
            }
        }
        self.judge();
    }
}

fn run(level: Level, members: usize, seed: u64) {
    let mut model = Model::new(level, members, seed);
    for _ in 0..14 {
        model.round();
        model.judge();
        match model.dice.roll(4) {
            0 => model.flush(),
            1 => model.cut_power(),
            _ => {}
        }
    }
    model.repair();
    while let Some(member) = model.victim() {
        model.bench.disk(member).gone.set(true);
    }
    model.judge();
    assert!(model.bench.status().stopped.is_none());
}

/// `RAID_MODEL_CASES=5000` runs that many cases of each level.
fn config() -> ProptestConfig {
    let asked = std::env::var("RAID_MODEL_CASES").ok().and_then(|text| text.parse().ok());
    ProptestConfig { cases: asked.unwrap_or(24), max_shrink_iters: 0, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn raid0_returns_written_data(members in 1usize..5, seed in any::<u64>()) {
        run(Level::Raid0, members, seed);
    }

    #[test]
    fn raid1_returns_written_data(members in 2usize..5, seed in any::<u64>()) {
        run(Level::Raid1, members, seed);
    }

    #[test]
    fn raid5_returns_written_data(members in 3usize..7, seed in any::<u64>()) {
        run(Level::Raid5, members, seed);
    }

    #[test]
    fn raid6_returns_written_data(members in 4usize..8, seed in any::<u64>()) {
        run(Level::Raid6, members, seed);
    }

    #[test]
    fn raid10_returns_written_data(pairs in 2usize..4, seed in any::<u64>()) {
        run(Level::Raid10, pairs * 2, seed);
    }
}
