//! Scripts: a few random commands on a small array, with every power cut possible between their member operations.

use crate::bench::{Bench, Plan};
use crate::disk::{Cut, Dice, Left};
use crate::oracle::{Oracle, run};
use block::{BlockDevice, Blocks, Extent, Written};
use raid::GrowError;
use raid::geometry::MemberSet;
use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// Knowledge of the test at a cut.
#[derive(Clone)]
pub(crate) struct Expected {
    pub oracle: Oracle,
    pub failed: Vec<u16>,
    /// Size of the array as announced to hosts.
    pub blocks: u64,
}

/// Options of a script.
#[derive(Clone, Copy)]
pub(crate) struct Kinds {
    /// Failure of a member.
    pub failures: Failures,
    /// Rounds of concurrent commands.
    pub rounds: u64,
    /// Change of the array's size or shape.
    pub becomes: Becomes,
}

/// Change of the array in a script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Becomes {
    /// No change.
    AsItWas,
    /// Growth: the array uses more of its members, a few times.
    Larger,
    /// Reshape: the spare disk is added, and the array is reshaped.
    Wider,
}

/// Fate of a member in a script.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failures {
    /// No failure.
    Never,
    /// The member may be failed, disappear, or refuse to write a part of its log.
    Any,
    /// The member refuses to write a part of its log from the start.
    Log,
}

/// Advances a reshape as far as the script lets it.
#[derive(Default)]
struct Pace {
    permits: Cell<u64>,
    waker: RefCell<Option<Waker>>,
}

impl Pace {
    fn grant(&self, permits: u64) {
        self.permits.set(permits);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    async fn pass(&self) {
        poll_fn(|cx| {
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            match self.permits.get() {
                0 => Poll::Pending,
                permits => {
                    self.permits.set(permits - 1);
                    Poll::Ready(())
                }
            }
        })
        .await;
    }
}

/// Output of the command, unless it is dropped after this many polls.
async fn polled_at_most<T>(polls: u64, command: impl Future<Output = T>) -> Option<T> {
    let (mut command, mut left) = (pin!(command), polls);
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        command.as_mut().poll(cx).map(Some)
    })
    .await
}

struct Script {
    kinds: Kinds,
    pace: Rc<Pace>,
    reshaping: Rc<Cell<bool>>,
    round: Cell<u64>,
    bench: Rc<Bench>,
    oracle: Rc<RefCell<Oracle>>,
    next_name: Cell<u64>,
    failures: Cell<bool>,
}

/// Power cuts of one run of a script.
pub(crate) fn cuts_of(plan: Plan, kinds: Kinds, seed: u64) -> Vec<Cut<Expected>> {
    let bench = Rc::new(Bench::format(plan, seed));
    // Nothing is written beyond the size announced to hosts.
    let oracle = Rc::new(RefCell::new(Oracle::new(4 * bench.blocks() + 4 * plan.room)));
    let cuts: Rc<RefCell<Vec<Cut<Expected>>>> = Rc::default();
    let rack = Rc::downgrade(&bench.rack);
    let (seen, log, all, array) = (oracle.clone(), bench.log.clone(), cuts.clone(), Rc::downgrade(&bench.array));
    bench.rack.watch(move || {
        let Some(rack) = rack.upgrade() else { return };
        let Some(array) = array.upgrade() else { return };
        let blocks = array.layout().blocks().0;
        let known = Expected { oracle: seen.borrow().clone(), failed: log.failed.borrow().clone(), blocks };
        let cut = Cut { disks: rack.cut(), known };
        let mut all = all.borrow_mut();
        // Where nothing has changed on the disks, the latest knowledge is the strictest.
        match all.last_mut() {
            Some(last) if same(&last.disks, &cut.disks) => *last = cut,
            _ => all.push(cut),
        }
    });
    let script = Script {
        kinds,
        pace: Rc::default(),
        reshaping: Rc::default(),
        round: Cell::default(),
        bench,
        oracle,
        next_name: Cell::new(1),
        failures: Cell::new(kinds.failures == Failures::Any),
    };
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

    /// Runs some commands concurrently that do not overlap, in any order of their steps.
    fn round(&self) {
        let mut taken: Vec<Extent> = Vec::new();
        self.round.set(self.round.get() + 1);
        self.become_larger();
        for _ in 0..1 + self.dice().roll(3) {
            self.begin(&mut taken);
        }
        self.pace.grant(1 + self.dice().roll(3));
        self.bench.settle();
        let left = usize::from(self.reshaping.get());
        assert_eq!(self.bench.executor.task_count(), left, "every command ends");
    }

    fn become_larger(&self) {
        let (array, round, reshaping) = (self.bench.array.clone(), self.round.get(), self.reshaping.clone());
        match self.kinds.becomes {
            Becomes::Larger if round.is_multiple_of(3) => {
                let plan = self.bench.plan;
                let member_blocks = plan.shape().member_blocks.0 + plan.room * (round / 3) / 3;
                drop(self.bench.begin(async move {
                    match array.grow(Blocks(member_blocks)).await {
                        Ok(_) | Err(GrowError::NotInService(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }));
            }
            Becomes::Wider if round == 3 => {
                let (disk, pace) = (self.bench.disk(self.bench.plan.members as u16), self.pace.clone());
                reshaping.set(true);
                drop(self.bench.begin(async move {
                    match array.add_member(disk).await {
                        Ok(_) => array.reshape(async |_| pace.pass().await).await.expect("no more is lost than can be"),
                        Err(GrowError::NotInService(_) | GrowError::NewMemberFailed) => {}
                        Err(error) => panic!("{error}"),
                    }
                    reshaping.set(false);
                }));
            }
            _ => {}
        }
    }

    fn begin(&self, taken: &mut Vec<Extent>) {
        let (dice, array) = (self.dice(), self.bench.array.clone());
        let (blocks, stripe) = (self.bench.blocks(), self.bench.array.stripe_blocks());
        // Where blocks move, they are read, too.
        let kinds = if self.kinds.becomes == Becomes::AsItWas { 16 } else { 20 };
        let kind = dice.roll(kinds);
        let stripes = 1 + dice.roll(2);
        let extent = match kind {
            0..=6 | 18.. => {
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
                // Where blocks move, hosts abort a command from time to time.
                let is_aborted = self.kinds.becomes == Becomes::Wider && dice.roll(6) == 0;
                let patience = if is_aborted { dice.roll(12) } else { u64::MAX };
                self.bench.begin(async move {
                    oracle.borrow_mut().begin(extent, name, fresh || discard);
                    let command = async {
                        match (fresh, discard) {
                            (true, _) => array.write_unlogged(extent.start, data).await,
                            (_, true) => array.discard(extent).await,
                            _ => array.write(extent.start, data).await,
                        }
                    };
                    if let Some(done) = polled_at_most(patience, command).await {
                        let _ = done.expect("no more is lost than can be");
                        oracle.borrow_mut().end(extent);
                    }
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
            15 => self.begin_failure(),
            _ => drop(self.bench.begin(async move {
                let before = oracle.borrow().clone();
                let found = array.read(extent).await.expect("no more is lost than can be").into_view();
                let is_old = before.judge(extent.start.0, &found);
                is_old.or_else(|_| oracle.borrow().judge(extent.start.0, &found)).expect("old or new");
            })),
        }
    }

    fn begin_failure(&self) {
        let (dice, layout) = (self.dice(), self.bench.layout());
        let member = dice.roll(self.bench.array.status().members.len() as u64) as u16;
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
