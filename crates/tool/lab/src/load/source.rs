//! Next command of a session.

use super::ledger::{Floors, Ledger};
use super::{Addresses, Tallies, Window};
use crate::point::Point;
use crate::random::Random;
use block::{Buf, View};
use shard::Time;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

/// Limit of draws for a write whose blocks are not being written.
const DRAWS_MAX: u32 = 64;

/// Command to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// Number within its session.
    pub id: u64,
    /// Due time, from which its latency counts.
    pub due: Time,
    /// True for a write.
    pub write: bool,
    /// First byte on the unit.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
}

/// Next action of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send this command now.
    Now(Op),
    /// Wait until this time.
    At(Time),
    /// Wait until a command has completed.
    Full,
    /// No further commands; finished when none is in flight.
    Over,
}

/// Share of a session in the load, which separates its addresses, random numbers and depth from those of others.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Number of the session.
    pub index: u32,
    /// Number of all sessions.
    pub of: u32,
    /// Number among the sessions of its unit, and their number.
    pub of_unit: (u32, u32),
    /// Queue depth of the session.
    pub depth: u32,
}

/// Generator of the commands of one session.
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
    /// Counted commands that succeeded.
    ended: u64,
    tallies: Rc<RefCell<Tallies>>,
    sent: u64,
    filler: View,
    judge: Option<Judge>,
}

/// Ledger of the unit, and the reads in flight.
#[derive(Debug)]
struct Judge {
    ledger: Rc<RefCell<Ledger>>,
    floors: BTreeMap<u64, Floors>,
}

/// Data of a command.
#[derive(Debug)]
pub enum Content {
    /// Data to be written.
    Write(View),
    /// Read data is returned for verification.
    Keep,
    /// Read data is counted and discarded.
    Discard,
}

/// Size of commands with its weight.
#[derive(Debug)]
struct Sized {
    bytes: u32,
    weight: u32,
    places: Addresses,
}

/// Pace of commands.
#[derive(Debug)]
enum Pace {
    /// Closed loop: slots that think until these times, in order; slots without think time are only counted.
    Closed { think: Duration, thinking: VecDeque<Time> },
    /// Open loop: due time of the next command, and the mean interval.
    Open { next: Time, mean_ns: f64 },
}

impl Source {
    /// Creates the commands of a session on a unit of `unit_bytes`, from `now` until the end of the window.
    ///
    /// *Panics*: a command has no bytes, which [`Point::check`] excludes, or does not fit the unit.
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
        // A stream of random numbers for each session, reproducible by the seed of the run.
        let mut random = Random::new(seed ^ (u64::from(share.index) << 32));
        let size = |bytes: u64, weight: u32| {
            let places = unit_bytes / bytes;
            let (mine, of) = (u64::from(share.of_unit.0), u64::from(share.of_unit.1));
            // Sequential sessions each have their own part of the unit. With fewer slots than sessions the parts would
            // be empty, and the sessions share all slots.
            let (first, count) = match point.pattern {
                crate::point::Pattern::Sequential if places >= of => (places / of * mine, places / of),
                _ => (0, places),
            };
            Sized { bytes: bytes as u32, weight, places: Addresses::new(point.pattern, first, count) }
        };
        let sizes: Vec<Sized> = match point.blocks.is_empty() {
            true => vec![size(point.block.bytes(), 1)],
            false => point.blocks.iter().map(|each| size(each.block.bytes(), each.weight)).collect(),
        };
        let pace = if point.rate == 0 {
            Pace::Closed { think: point.think.duration(), thinking: VecDeque::new() }
        } else {
            // Poisson processes add up: each session gets its part of the rate.
            let mean_ns = 1e9 * f64::from(share.of) / f64::from(point.rate);
            // The first command has a random time as well, so that sessions do not begin in step.
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

    /// Stamps written data, and verifies read data, by the ledger of the unit.
    #[must_use]
    pub fn judged_by(self, ledger: Rc<RefCell<Ledger>>) -> Self {
        Self { judge: Some(Judge { ledger, floors: BTreeMap::new() }), ..self }
    }

    /// Ends the source after one visit of every slot, for sequential patterns.
    pub fn only_once(&mut self) {
        self.left = self.sizes.iter().map(|size| size.places.count()).sum();
    }

    /// Returns the next action at `now`; a returned command counts as in flight.
    pub fn next(&mut self, now: Time) -> Due {
        if now >= self.window.to || self.left == 0 || self.depth == 0 {
            return Due::Over;
        }
        let due = match &mut self.pace {
            Pace::Closed { thinking, .. } => {
                // A slot that neither waits nor thinks is free.
                if self.under_way + thinking.len() as u32 >= self.depth {
                    match thinking.front() {
                        Some(&until) if until <= now => {
                            thinking.pop_front();
                        }
                        // Not beyond the window, so that the source ends in time.
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
                // Due times advance independently of completions, so that a stalled target is charged for commands that
                // had to wait.
                let due = *next;
                *next = due + pause(*mean_ns, &mut self.random);
                due
            }
        };
        self.under_way += 1;
        self.left -= 1;
        Due::Now(self.draw_free(due))
    }

    /// Draws a command; with verification, a write only where no other write is in flight.
    fn draw_free(&mut self, due: Time) -> Op {
        let mut op = self.draw(due);
        let Some(ledger) = self.judge.as_ref().map(|judge| judge.ledger.clone()) else { return op };
        for _ in 0..DRAWS_MAX {
            if !op.write || ledger.borrow_mut().admits_write(&op) {
                return op;
            }
            op = self.draw(due);
        }
        // No free blocks found: a read instead keeps the depth constant.
        Op { write: op.write && ledger.borrow_mut().admits_write(&op), ..op }
    }

    /// Returns the data of a command that begins now.
    pub fn begin(&mut self, op: &Op) -> Content {
        match &mut self.judge {
            None if op.write => Content::Write(self.filler.slice(..op.bytes as usize)),
            // Not kept, because copying it would cost the client CPU that the load needs.
            None => Content::Discard,
            Some(judge) if op.write => Content::Write(judge.ledger.borrow_mut().begin_write(op)),
            Some(judge) => {
                // Taken when the read is sent: from then on it may see newer writes, but no older ones.
                judge.floors.insert(op.id, judge.ledger.borrow_mut().begin_read(op));
                Content::Keep
            }
        }
    }

    fn draw(&mut self, due: Time) -> Op {
        self.sent += 1;
        let id = self.sent;
        // A pure read load draws no random number for the direction.
        let write = self.reads < 100 && self.random.below(100) >= u64::from(self.reads);
        // A single size needs no random number either.
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

    /// Records the end of a command; `data` is the content of a read that was kept.
    pub fn ended(&mut self, op: &Op, now: Time, well: bool, data: Option<&[u8]>) {
        self.under_way -= 1;
        self.judge(op, well, data);
        if let Pace::Closed { think, thinking } = &mut self.pace
            && !think.is_zero()
        {
            // All slots think equally long, so the queue is in the order of its times.
            thinking.push_back(now + *think);
        }
        // Commands that were due in the window count, even if they complete after it.
        if self.window.holds(op.due) {
            self.ended += u64::from(well);
            self.tallies.borrow_mut().add(op.write, op.bytes, now.since(op.due).as_nanos() as u64, well);
        }
    }

    /// Adds the time in which the target's window did not admit a command, as far as it is in the measured window.
    pub fn held(&mut self, since: Time, now: Time) {
        let (from, to) = (since.max(self.window.from), now.min(self.window.to));
        self.tallies.borrow_mut().held += to.since(from);
    }

    fn judge(&mut self, op: &Op, well: bool, data: Option<&[u8]>) {
        // Failed reads are not verified: their content is undefined.
        let Some(judge) = &mut self.judge else { return };
        if op.write {
            return judge.ledger.borrow_mut().end_write(op, well);
        }
        let floors = judge.floors.remove(&op.id).unwrap_or_default();
        if let Some(data) = data.filter(|_| well) {
            judge.ledger.borrow_mut().end_read(op, &floors, data);
        }
    }

    /// Returns the number of commands in flight.
    #[must_use]
    pub fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Returns the number of counted commands that succeeded.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.ended
    }
}

/// Returns incompressible bytes in resident memory, whose digest is computed once although they are sent repeatedly.
fn filler(len: u32) -> View {
    let mut random = Random::new(0);
    let mut buf = Buf::resident(len as usize);
    for word in buf.chunks_mut(8) {
        word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
    }
    buf.freeze()
}

/// Returns the time to the next arrival of a Poisson process.
fn pause(mean_ns: f64, random: &mut Random) -> Duration {
    // Never zero, whose logarithm is infinite.
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
        // A command that was due before the window does not count.
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
