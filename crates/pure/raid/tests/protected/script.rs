//! A few random commands on a small array, and every power cut that could happen between their member operations.

use crate::bench::{Bench, Plan};
use crate::disk::{Cut, Dice, Left};
use crate::oracle::{Oracle, run};
use block::{BlockDevice, Extent, Written};
use raid::geometry::MemberSet;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

/// What the test knows at a cut.
#[derive(Clone)]
pub struct Known {
    pub oracle: Oracle,
    pub failed: Vec<u16>,
}

/// What may happen in a script.
#[derive(Clone, Copy)]
pub struct Kinds {
    /// Whether a member fails.
    pub failures: Failures,
    /// Rounds of concurrent commands.
    pub rounds: u64,
}

/// What becomes of a member in a script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Failures {
    /// Nothing.
    Never,
    /// It may be failed, gone, or refuse to write a part of its log.
    Any,
    /// It refuses to write a part of its log from the beginning.
    Log,
}

struct Script {
    bench: Rc<Bench>,
    oracle: Rc<RefCell<Oracle>>,
    next_name: Cell<u64>,
    failures: Cell<bool>,
}

/// The cuts of one run of a script.
pub fn cuts_of(plan: Plan, kinds: Kinds, seed: u64) -> Vec<Cut<Known>> {
    let bench = Rc::new(Bench::format(plan, seed));
    let oracle = Rc::new(RefCell::new(Oracle::new(bench.blocks())));
    let cuts: Rc<RefCell<Vec<Cut<Known>>>> = Rc::default();
    let rack = Rc::downgrade(&bench.rack);
    let (seen, log, all) = (oracle.clone(), bench.log.clone(), cuts.clone());
    bench.rack.watch(move || {
        let Some(rack) = rack.upgrade() else { return };
        let known = Known { oracle: seen.borrow().clone(), failed: log.failed.borrow().clone() };
        let cut = Cut { disks: rack.cut(), known };
        let mut all = all.borrow_mut();
        // Where nothing has changed on the disks, what is known last is the strictest.
        match all.last_mut() {
            Some(last) if same(&last.disks, &cut.disks) => *last = cut,
            _ => all.push(cut),
        }
    });
    let script =
        Script { bench, oracle, next_name: Cell::new(1), failures: Cell::new(kinds.failures == Failures::Any) };
    if kinds.failures == Failures::Log {
        script.bench.disk(1).stuck.borrow_mut().extend(8..40);
    }
    for _ in 0..kinds.rounds {
        script.round();
    }
    script.bench.rack.watch(|| {});
    let cuts = cuts.take();
    drop(script);
    cuts
}

fn same(a: &[Left], b: &[Left]) -> bool {
    let versions = |left: &Left| {
        left.later
            .iter()
            .map(|(block, later)| (*block, later.len(), later.iter().filter(|v| v.1).count()))
            .collect::<Vec<_>>()
    };
    let durable =
        |left: &Left| left.durable.iter().map(|(block, view)| (*block, view.as_ptr() as usize)).collect::<Vec<_>>();
    a.iter().zip(b).all(|(a, b)| versions(a) == versions(b) && durable(a) == durable(b))
}

impl Script {
    fn dice(&self) -> Dice {
        self.bench.rack.dice.clone()
    }

    /// Some commands at once that do not overlap, in any order of their steps.
    fn round(&self) {
        let mut taken: Vec<Extent> = Vec::new();
        for _ in 0..1 + self.dice().roll(3) {
            self.begin(&mut taken);
        }
        self.bench.settle();
        assert_eq!(self.bench.executor.task_count(), 0, "every command ends");
    }

    fn begin(&self, taken: &mut Vec<Extent>) {
        let (dice, array) = (self.dice(), self.bench.array.clone());
        let (blocks, stripe) = (self.bench.blocks(), self.bench.array.stripe_blocks());
        let kind = dice.roll(16);
        let stripes = 1 + dice.roll(2);
        let extent = match kind {
            0..=6 => {
                let start = dice.roll(blocks);
                Extent::new(start, (1 + dice.roll(3)).min(blocks - start))
            }
            _ => {
                let first = dice.roll(blocks / stripe);
                Extent::new(first * stripe, (stripes * stripe).min(blocks - first * stripe))
            }
        };
        if kind <= 11 {
            if taken.iter().any(|other| other.overlaps(extent)) {
                return;
            }
            taken.push(extent);
        }
        let oracle = self.oracle.clone();
        match kind {
            0..=11 => {
                let (fresh, discard) = (matches!(kind, 9 | 10), kind == 11);
                let name = if discard { 0 } else { self.next_name.replace(self.next_name.get() + 1) };
                let data = run(name, extent);
                self.bench.begin(async move {
                    oracle.borrow_mut().begin(extent, name, fresh || discard);
                    let done = match (fresh, discard) {
                        (true, _) => array.write_fresh(extent.start, data).await,
                        (_, true) => array.discard(extent).await,
                        _ => array.write(extent.start, data).await,
                    };
                    let _ = done.expect("no more is lost than can be");
                    oracle.borrow_mut().end(extent);
                });
            }
            12 | 13 => drop(self.bench.begin(async move {
                let covered = oracle.borrow().flush_begins();
                let _ = array.flush(Written::attest()).await.expect("no more is lost than can be");
                oracle.borrow_mut().flush_ends(&covered);
            })),
            14 => drop(self.bench.begin(async move {
                let covered = oracle.borrow().flush_begins();
                let _ = array.checkpoint().await.expect("no more is lost than can be");
                oracle.borrow_mut().flush_ends(&covered);
            })),
            _ => self.begin_failure(),
        }
    }

    fn begin_failure(&self) {
        let (dice, layout) = (self.dice(), self.bench.layout());
        let member = dice.roll(u64::from(layout.members())) as u16;
        if !self.failures.get() || !layout.survives(MemberSet::only(member)) {
            return;
        }
        self.failures.set(false);
        let (disk, array, how) = (self.bench.disk(member), self.bench.array.clone(), dice.roll(4));
        if how == 3 {
            // A part of the log cannot be written any more.
            disk.stuck.borrow_mut().extend(8 + dice.roll(32)..40);
            return;
        }
        self.bench.begin(async move {
            let mut patience = dice.roll(6);
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                patience = patience.saturating_sub(1);
                if patience == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            if how == 0 {
                array.fail(member).await.expect("it is spared");
            } else {
                disk.gone.set(true);
            }
        });
    }
}
