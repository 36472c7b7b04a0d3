//! The next command of a session.

use super::ledger::{Floors, Ledger};
use super::{Places, Tallies, Window};
use crate::point::Point;
use crate::random::Random;
use block::{Buf, View};
use shard::Time;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// How often a write is drawn that goes where another is under way.
const DRAWS_MAX: u32 = 64;

/// A command to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Its number among those of its session.
    pub id: u64,
    /// When it was due, which its latency counts from.
    pub due: Time,
    /// True when it writes.
    pub write: bool,
    /// Its first byte on the unit.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u32,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This, at once.
    Now(Op),
    /// Nothing before then.
    At(Time),
    /// Nothing before a command has ended.
    Full,
    /// Nothing more; when none is under way, all is done.
    Over,
}

/// Which part of all a session is: it sets apart what each walks, draws and may send.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// The session's number.
    pub index: u32,
    /// Of so many.
    pub of: u32,
    /// Its number among those of its unit, and how many those are.
    pub of_unit: (u32, u32),
    /// Commands that it has under way at once.
    pub depth: u32,
}

/// The commands of one session, one after the other.
#[derive(Debug)]
pub struct Source {
    random: Random,
    sizes: Vec<Sized>,
    weights: u32,
    reads: u8,
    depth: u32,
    pace: Pace,
    window: Window,
    under_way: u32,
    /// Commands that may still be sent.
    left: u64,
    /// Commands that counted and ended well.
    ended: u64,
    tallies: Rc<RefCell<Tallies>>,
    sent: u64,
    filler: View,
    judge: Option<Judge>,
}

/// The ledger of the unit, and the reads under way.
#[derive(Debug)]
struct Judge {
    ledger: Rc<RefCell<Ledger>>,
    floors: BTreeMap<u64, Floors>,
}

/// What goes out with a command.
#[derive(Debug)]
pub enum Content {
    /// This is written.
    Write(View),
    /// What is read is wanted.
    Keep,
    /// What is read is counted and thrown away.
    Discard,
}

#[derive(Debug)]
struct Sized {
    bytes: u32,
    weight: u32,
    places: Places,
}

#[derive(Debug)]
enum Pace {
    /// Slots that think until then, in order; slots that do not think are only counted.
    Closed { think: Duration, thinking: VecDeque<Time> },
    /// The next is due then; the mean time between two.
    Open { next: Time, mean_ns: f64 },
}

impl Source {
    /// The session's commands on a unit of `unit_bytes`, from `now` on until the window ends.
    ///
    /// *Panics*: when a command has no bytes, which [`Point::check`] tells before, or does not fit the unit.
    #[must_use]
    pub fn new(
        point: &Point,
        unit_bytes: u64,
        share: Share,
        seed: u64,
        now: Time,
        window: Window,
        tallies: Rc<RefCell<Tallies>>,
    ) -> Self {
        let mut random = Random::new(seed ^ (u64::from(share.index) << 32));
        let size = |bytes: u64, weight: u32| {
            let places = unit_bytes / bytes;
            let (mine, of) = (u64::from(share.of_unit.0), u64::from(share.of_unit.1));
            // Those who walk, walk each their own part.
            let (first, count) = match point.pattern {
                crate::point::Pattern::Sequential if places >= of => (places / of * mine, places / of),
                _ => (0, places),
            };
            Sized { bytes: bytes as u32, weight, places: Places::new(point.pattern, first, count) }
        };
        let sizes: Vec<Sized> = match point.blocks.is_empty() {
            true => vec![size(point.block.bytes(), 1)],
            false => point.blocks.iter().map(|each| size(each.block.bytes(), each.weight)).collect(),
        };
        let pace = if point.rate == 0 {
            Pace::Closed { think: point.think.duration(), thinking: VecDeque::new() }
        } else {
            let mean_ns = 1e9 * f64::from(share.of) / f64::from(point.rate);
            Pace::Open { next: now + pause(mean_ns, &mut random), mean_ns }
        };
        let filler = filler(sizes.iter().map(|size| size.bytes).max().unwrap_or(0));
        let weights = sizes.iter().map(|size| size.weight).sum();
        let (reads, depth) = (point.reads, share.depth);
        Self {
            random,
            sizes,
            weights,
            reads,
            depth,
            pace,
            window,
            under_way: 0,
            left: u64::MAX,
            ended: 0,
            tallies,
            sent: 0,
            filler,
            judge: None,
        }
    }

    /// What is written is stamped, and what is read is judged, by the ledger of the unit.
    #[must_use]
    pub fn judged_by(self, ledger: Rc<RefCell<Ledger>>) -> Self {
        Self { judge: Some(Judge { ledger, floors: BTreeMap::new() }), ..self }
    }

    /// Every place of the session's part is visited once, where it walks.
    pub fn only_once(&mut self) {
        self.left = self.sizes.iter().map(|size| size.places.count()).sum();
    }

    /// What comes next at `now`; a command that is given counts as under way.
    pub fn next(&mut self, now: Time) -> Due {
        if now >= self.window.to || self.left == 0 || self.depth == 0 {
            return Due::Over;
        }
        let due = match &mut self.pace {
            Pace::Closed { thinking, .. } => {
                // Slots that neither wait nor think begin.
                if self.under_way + thinking.len() as u32 >= self.depth {
                    match thinking.front() {
                        Some(&until) if until <= now => {
                            thinking.pop_front();
                        }
                        Some(&until) => return Due::At(until.min(self.window.to)),
                        None => return Due::Full,
                    }
                }
                now
            }
            Pace::Open { next, mean_ns } => {
                if *next > now {
                    return Due::At((*next).min(self.window.to));
                }
                if self.under_way >= self.depth {
                    return Due::Full;
                }
                let due = *next;
                *next = due + pause(*mean_ns, &mut self.random);
                due
            }
        };
        self.under_way += 1;
        self.left -= 1;
        Due::Now(self.draw_free(due))
    }

    /// A command; one that writes goes where nobody else writes at present, where that matters.
    fn draw_free(&mut self, due: Time) -> Op {
        let mut op = self.draw(due);
        let Some(ledger) = self.judge.as_ref().map(|judge| judge.ledger.clone()) else { return op };
        for _ in 0..DRAWS_MAX {
            if !op.write || ledger.borrow_mut().admits_write(&op) {
                return op;
            }
            op = self.draw(due);
        }
        Op { write: op.write && ledger.borrow_mut().admits_write(&op), ..op }
    }

    /// What goes out with the command, which begins now.
    pub fn begin(&mut self, op: &Op) -> Content {
        match &mut self.judge {
            None if op.write => Content::Write(self.filler.slice(..op.bytes as usize)),
            None => Content::Discard,
            Some(judge) if op.write => Content::Write(judge.ledger.borrow_mut().begin_write(op)),
            Some(judge) => {
                judge.floors.insert(op.id, judge.ledger.borrow_mut().begin_read(op));
                Content::Keep
            }
        }
    }

    fn draw(&mut self, due: Time) -> Op {
        self.sent += 1;
        let id = self.sent;
        let write = self.reads < 100 && self.random.below(100) >= u64::from(self.reads);
        let mut left = if self.sizes.len() == 1 { 0 } else { self.random.below(u64::from(self.weights)) as u32 };
        let random = &mut self.random;
        for size in &mut self.sizes {
            if left < size.weight {
                return Op {
                    id,
                    due,
                    write,
                    offset: size.places.next(random) * u64::from(size.bytes),
                    bytes: size.bytes,
                };
            }
            left -= size.weight;
        }
        unreachable!("what is drawn is below the sum of the weights")
    }

    /// A command has ended; `data` is what a read brought whose content was kept.
    pub fn ended(&mut self, op: &Op, now: Time, well: bool, data: Option<&[u8]>) {
        self.under_way -= 1;
        self.judge(op, well, data);
        if let Pace::Closed { think, thinking } = &mut self.pace
            && !think.is_zero()
        {
            thinking.push_back(now + *think);
        }
        if self.window.holds(op.due) {
            self.ended += u64::from(well);
            self.tallies.borrow_mut().add(op.write, op.bytes, now.since(op.due).as_nanos() as u64, well);
        }
    }

    /// From `since` to `now` the target's window did not admit a command that is under way; what is of the window counts.
    pub fn held(&mut self, since: Time, now: Time) {
        let (from, to) = (since.max(self.window.from), now.min(self.window.to));
        self.tallies.borrow_mut().held += to.since(from);
    }

    fn judge(&mut self, op: &Op, well: bool, data: Option<&[u8]>) {
        let Some(judge) = &mut self.judge else { return };
        if op.write {
            return judge.ledger.borrow_mut().end_write(op, well);
        }
        let floors = judge.floors.remove(&op.id).unwrap_or_default();
        if let Some(data) = data.filter(|_| well) {
            judge.ledger.borrow_mut().end_read(op, &floors, data);
        }
    }

    /// Commands under way.
    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Commands that counted and ended well.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.ended
    }
}

/// Bytes that compress to nothing less. They are storage: what is sent again and again is summed up for its digest once.
fn filler(len: u32) -> View {
    let mut random = Random::new(0);
    let mut buf = Buf::resident(len as usize);
    for word in buf.chunks_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
    }
    buf.freeze()
}

/// The time to the next arrival of a Poisson process.
fn pause(mean_ns: f64, random: &mut Random) -> Duration {
    let uniform = ((random.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    Duration::from_nanos((-uniform.ln() * mean_ns) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Size, Span};

    const WINDOW: Window = Window { from: Time(1_000), to: Time(1_000_000_000) };

    fn source(point: &Point) -> Source {
        let share = Share { index: 0, of: 1, of_unit: (0, 1), depth: point.depth };
        Source::new(point, 1 << 20, share, 7, Time(0), WINDOW, Rc::default())
    }

    #[test]
    fn closed_loop_keeps_its_depth_and_thinks_between() {
        let point = Point { depth: 2, think: Span::from_millis(10), ..Point::default() };
        let mut source = source(&point);
        let Due::Now(first) = source.next(Time(0)) else { panic!("a slot is free") };
        assert!(matches!(source.next(Time(0)), Due::Now(_)));
        assert_eq!(source.next(Time(0)), Due::Full);
        source.ended(&first, Time(5), true, None);
        assert_eq!(source.next(Time(5)), Due::At(Time(10_000_005)));
        assert!(matches!(source.next(Time(10_000_005)), Due::Now(Op { due: Time(10_000_005), .. })));
        assert_eq!(source.next(WINDOW.to), Due::Over);
        // What was due before the window does not count.
        assert_eq!(source.commands(), 0);
    }

    #[test]
    fn open_loop_charges_what_waited() {
        let point = Point { depth: 1, rate: 1_000_000, ..Point::default() };
        let mut source = source(&point);
        let Due::Now(first) = source.next(Time(500_000)) else { panic!("much is due") };
        assert!(first.due < Time(100_000), "{first:?}");
        assert_eq!(source.next(Time(500_000)), Due::Full);
        source.ended(&first, Time(600_000), true, None);
        let Due::Now(second) = source.next(Time(600_000)) else { panic!("more is due") };
        assert!(second.due > first.due && second.due < Time(100_000), "{second:?}");
    }

    #[test]
    fn mixes_have_their_parts_and_stay_on_the_unit() {
        let sized = |kib: u64, weight| crate::point::Weighted { block: Size::new(kib << 10), weight };
        let point = Point { reads: 70, blocks: vec![sized(4, 3), sized(64, 1)], depth: 100_000, ..Point::default() };
        let mut source = source(&point);
        let (mut writes, mut large, all) = (0, 0, 20_000);
        for _ in 0..all {
            let Due::Now(op) = source.next(Time(0)) else { panic!("slots are free") };
            assert!(op.offset + u64::from(op.bytes) <= 1 << 20 && op.offset.is_multiple_of(u64::from(op.bytes)));
            writes += u32::from(op.write);
            large += u32::from(op.bytes == 64 << 10);
        }
        assert!((5700..6300).contains(&writes) && (4700..5300).contains(&large), "{writes} {large}");
    }
}
