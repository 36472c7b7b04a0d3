//! Randomized runs of growing arrays with all other commands and failures, against a model of their content.

use crate::bench::{Bench, Plan, is_clean};
use crate::oracle::run;
use block::{Blocks, Extent};
use raid::{GrowError, Level, MemberState, Outcome, Repair};
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

struct RandomizedRun {
    bench: Bench,
    /// Name of the last write of each block.
    last_writes: Vec<u64>,
    next_name: u64,
    growths: u64,
    reshape: Rc<Reshape>,
}

/// Background reshape: the number of steps it may take, and whether it is to be dropped.
#[derive(Default)]
struct Reshape {
    runs: Cell<bool>,
    permits: Cell<u64>,
    dropped: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Reshape {
    fn wake(&self) {
        self.waker.take().into_iter().for_each(Waker::wake);
    }

    async fn pass(&self) {
        poll_fn(|cx| match self.permits.get() {
            0 => {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            }
            permits => {
                self.permits.set(permits - 1);
                Poll::Ready(())
            }
        })
        .await;
    }

    /// Output of the work, unless it is dropped before.
    async fn unless_dropped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| {
            if self.dropped.get() {
                return Poll::Ready(None);
            }
            let polled = work.as_mut().poll(cx).map(Some);
            if polled.is_pending() && self.waker.borrow().is_none() {
                *self.waker.borrow_mut() = Some(cx.waker().clone());
            }
            polled
        })
        .await
    }
}

impl RandomizedRun {
    fn new(plan: Plan, seed: u64) -> Self {
        let bench = Bench::format(plan, seed);
        let last_writes = vec![0; bench.blocks() as usize];
        Self { bench, last_writes, next_name: 1, growths: 0, reshape: Rc::default() }
    }

    fn roll(&self, sides: u64) -> u64 {
        self.bench.rack.dice.roll(sides)
    }

    fn expected(&self, extent: Extent) -> Vec<u8> {
        let block = |lba: u64| run(self.last_writes[lba as usize], Extent::new(lba, 1)).to_vec();
        (extent.start.0..extent.end().0).flat_map(block).collect()
    }

    fn some_extent(&self) -> Extent {
        let start = self.roll(self.bench.blocks());
        Extent::new(start, 1 + self.roll((self.bench.blocks() - start).min(12)))
    }

    /// Chooses some whole stripes, as hosts see them.
    fn some_stripes(&self) -> Extent {
        let stripe = self.bench.array.stripe_blocks();
        let first = self.roll(self.bench.blocks() / stripe);
        Extent::new(first * stripe, (stripe * (1 + self.roll(2))).min(self.bench.blocks() - first * stripe))
    }

    fn write(&mut self) {
        let name = self.next_name;
        self.next_name += 1;
        let kind = self.roll(4);
        let extent = if kind == 0 { self.some_stripes() } else { self.some_extent() };
        let name = if kind == 1 { 0 } else { name };
        match kind {
            0 => drop(self.bench.write_unlogged(extent.start.0, run(name, extent)).expect("serving")),
            1 => self.bench.discard(extent),
            _ => drop(self.bench.write(extent.start.0, run(name, extent)).expect("serving")),
        }
        self.last_writes[extent.start.0 as usize..extent.end().0 as usize].fill(name);
    }

    fn read(&self) -> Result<(), String> {
        let extent = self.some_extent();
        let found = self.bench.read(extent).map_err(|error| error.to_string())?;
        if found == self.expected(extent) { Ok(()) } else { Err(format!("{extent:?} holds something else")) }
    }

    fn fail_or_replace(&self) {
        let (layout, status) = (self.bench.layout(), self.bench.array.status());
        let failed = (0..).zip(&status.members).find(|(_, member)| member.state != MemberState::InService);
        let may_fail = self.roll(3) == 0 && layout.level() == Level::Raid6;
        match failed.filter(|_| !may_fail) {
            Some((member, _)) if status.reshape.is_none() => {
                assert_eq!(self.bench.replace(member).unreadable, []);
            }
            Some(_) => {}
            // A failed member is not failed again, and no more fail than the level tolerates.
            None => {
                let (array, member) = (self.bench.array.clone(), self.roll(status.members.len() as u64) as u16);
                let _ = self.bench.run(async move { array.fail(member).await });
            }
        }
    }

    fn become_larger(&mut self) {
        let (array, plan) = (self.bench.array.clone(), self.bench.plan);
        let member_blocks = plan.shape().member_blocks.0 + (self.growths + 1) * plan.room / 4;
        let grown = self.growths < 4 && self.bench.run(async move { array.grow(Blocks(member_blocks)).await }).is_ok();
        self.growths += u64::from(grown);
    }

    fn begin_reshape(&self) {
        let (array, reshape) = (self.bench.array.clone(), self.reshape.clone());
        if reshape.runs.replace(true) {
            reshape.dropped.set(self.roll(4) == 0);
            reshape.permits.set(self.roll(4));
            return reshape.wake();
        }
        let disk = (array.status().members.len() == self.bench.plan.members)
            .then(|| self.bench.disk(self.bench.plan.members as u16));
        drop(self.bench.begin(async move {
            let work = async {
                if let Some(disk) = disk {
                    match array.add_member(disk).await {
                        Ok(_) => {}
                        Err(GrowError::NotInService(_)) => return,
                        Err(error) => panic!("{error}"),
                    }
                }
                array.reshape(async |_| reshape.pass().await).await.expect("no more is lost than can be");
            };
            let _ = reshape.unless_dropped(work).await;
            reshape.runs.set(false);
            reshape.dropped.set(false);
        }));
    }

    fn reopen(mut self) -> Self {
        // Fresh writes without a flush may be lost.
        self.bench.flush();
        self.reshape = Rc::default();
        let (bench, opened) = self.bench.reopen();
        assert!(opened.rejected.is_empty(), "{opened:?}");
        self.bench = bench;
        self
    }

    fn step(mut self) -> Result<Self, String> {
        match self.roll(16) {
            0..=5 => self.write(),
            6..=8 => self.read()?,
            9 => self.bench.flush(),
            10 => self.fail_or_replace(),
            11 => self.become_larger(),
            12 | 13 => self.begin_reshape(),
            14 => {
                let scrubbed = self.bench.scrub(Repair::Report);
                if !is_clean(&scrubbed) {
                    return Err(format!("{scrubbed:?}"));
                }
            }
            _ if self.roll(3) == 0 => self = self.reopen(),
            _ => {}
        }
        self.bench.settle();
        // New blocks read as zeros.
        self.last_writes.resize(self.bench.blocks() as usize, 0);
        Ok(self)
    }
}

fn run_seed(plan: Plan, seed: u64) -> Result<bool, String> {
    let mut run_state = RandomizedRun::new(plan, seed);
    for step in 0..150 {
        run_state = run_state.step().map_err(|error| format!("step {step}: {error}"))?;
    }
    let all = Extent::new(0, run_state.bench.blocks());
    if run_state.bench.read(all).map_err(|error| error.to_string())? != run_state.expected(all) {
        return Err("not what was written".to_owned());
    }
    let scrubbed = run_state.bench.scrub(Repair::Report);
    let findings = run_state.bench.findings.borrow();
    // With a member and the next one lost, some blocks have no checksum until they are restored.
    if !is_clean(&scrubbed) || findings.iter().any(|finding| finding.outcome == Outcome::Lost) {
        return Err(format!("{scrubbed:?}, {findings:?}"));
    }
    Ok(run_state.growths > 0 && run_state.bench.array.layout().members() as usize > plan.members)
}

/// `RAID_LIVES=1000..2000` runs these seeds.
#[test]
fn array_that_grows_during_all_other_commands_returns_written_data() {
    let asked = std::env::var("RAID_LIVES").ok();
    let seeds = asked.as_deref().and_then(|asked| asked.split_once(".."));
    let seeds = seeds.map_or(0..12, |(from, to)| from.parse().expect("a number")..to.parse().expect("a number"));
    let (mut lives, mut larger) = (0, 0);
    for seed in seeds {
        for (level, members) in [(Level::Raid5, 3), (Level::Raid6, 4), (Level::Raid5, 5), (Level::Raid6, 5)] {
            let (chunk_blocks, volatile) = (1 << (seed % 4), seed & 4 == 0);
            let plan = Plan::small(level, members, volatile);
            let plan =
                Plan { chunk_blocks, stripes: 10, room: 60 * chunk_blocks, spare: true, ring_blocks: 64, ..plan };
            larger += u64::from(run_seed(plan, seed).unwrap_or_else(|error| panic!("{plan:?}, seed {seed}: {error}")));
            lives += 1;
        }
    }
    println!("{lives} lives, of which {larger} became larger in both ways");
    assert!(larger * 3 > lives, "{larger} of {lives} became larger in both ways");
}
