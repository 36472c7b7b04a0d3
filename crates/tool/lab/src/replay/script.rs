//! The steps of one session, and when each of them is due.

use super::{Kind, Pace, Step};
use crate::stamp::{STAMP_BYTES, Stamp};
use block::Buf;
use shard::Time;
use std::time::Duration;

/// Commands of a session that are under way at once, whatever is due.
pub(crate) const DEPTH_MAX: usize = 1024;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The step of this number, at once.
    Now(usize),
    /// Nothing before then.
    At(Time),
    /// Nothing before a command has ended.
    Full,
    /// Nothing more; when none is under way, all is done.
    Over,
}

/// How a step went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// What it was.
    pub kind: Kind,
    /// Bytes that it moved or changed.
    pub bytes: u64,
    /// True when it ended with GOOD and moved what it should.
    pub well: bool,
    /// Since it was due, in nanoseconds; at the pace `fast`, since it was sent.
    pub took_ns: u64,
    /// How long it was due before it was sent, in nanoseconds.
    pub late_ns: u64,
    /// When it ended.
    pub ended: Time,
}

/// One session's part of a replay.
#[derive(Debug)]
pub struct Script {
    steps: Vec<Step>,
    pace: Pace,
    from: Time,
    seed: u64,
    next: usize,
    under_way: usize,
    /// For each step its place in the order in which the recorded ones ended.
    ranks: Vec<usize>,
    /// For each step how many had ended when it began; the first so many of that order.
    after: Vec<usize>,
    /// Which have ended, by rank, and how many of the first have without a gap.
    ended: Vec<bool>,
    prefix: usize,
    /// When each was due and sent.
    sent: Vec<(Time, Time)>,
    scores: Vec<Score>,
}

impl Script {
    /// The steps of a session, of which the first of all sessions is due at `from`. `seed` is that of the stamps that are written.
    #[must_use]
    pub fn new(steps: Vec<Step>, pace: Pace, from: Time, seed: u64) -> Self {
        let ends: Vec<u64> = steps.iter().map(|step| step.began_ns.saturating_add(step.took_ns)).collect();
        let mut order: Vec<usize> = (0..steps.len()).collect();
        order.sort_by_key(|&step| ends[step]);
        let mut ranks = vec![0; steps.len()];
        order.iter().enumerate().for_each(|(rank, &step)| ranks[step] = rank);
        // One that began when another ended did not wait for it: both stand for what came in one turn of the target.
        let after = steps.iter().map(|step| order.partition_point(|&other| ends[other] < step.began_ns));
        Self {
            after: after.collect(),
            ended: vec![false; steps.len()],
            sent: vec![Default::default(); steps.len()],
            scores: Vec::with_capacity(steps.len()),
            steps,
            pace,
            from,
            seed,
            next: 0,
            under_way: 0,
            ranks,
            prefix: 0,
        }
    }

    /// What comes next at `now`; a step that is due counts as sent.
    pub fn next(&mut self, now: Time) -> Due {
        let Some(step) = self.steps.get(self.next) else { return Due::Over };
        let due = match self.pace {
            Pace::Recorded { speed } => self.from + Duration::from_secs_f64(step.began_ns as f64 / 1e9 / speed),
            Pace::Fast => now.max(self.from),
        };
        if now < due {
            return Due::At(due);
        }
        let is_held = self.pace == Pace::Fast && self.prefix < self.after[self.next];
        if is_held || self.under_way == DEPTH_MAX {
            return Due::Full;
        }
        self.sent[self.next] = (due, now);
        self.under_way += 1;
        self.next += 1;
        Due::Now(self.next - 1)
    }

    /// The step of this number.
    #[must_use]
    pub fn step(&self, index: usize) -> Step {
        self.steps[index]
    }

    /// What a WRITE brings: every 512 bytes say where they belong, and which step of the replay wrote them.
    #[must_use]
    pub fn data(&self, index: usize) -> Buf {
        let step = self.steps[index];
        let mut data = Buf::zeroed(usize::try_from(step.bytes).expect("a CDB names 32 bits of blocks at most"));
        let block = step.offset / STAMP_BYTES as u64;
        Stamp { block, generation: index as u64 + 1, seed: self.seed }.fill(&mut data);
        data
    }

    /// The step has ended.
    pub fn ended(&mut self, index: usize, now: Time, well: bool) {
        let (Step { kind, bytes, .. }, (due, sent)) = (self.steps[index], self.sent[index]);
        let nanos = |from: Time, to: Time| u64::try_from(to.since(from).as_nanos()).unwrap_or(u64::MAX);
        let (took_ns, late_ns) = (nanos(due, now), nanos(due, sent));
        self.scores.push(Score { kind, bytes, well, took_ns, late_ns, ended: now });
        self.under_way -= 1;
        self.ended[self.ranks[index]] = true;
        while self.ended.get(self.prefix) == Some(&true) {
            self.prefix += 1;
        }
    }

    /// Commands under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// How the steps went, in the order in which they ended.
    #[must_use]
    pub fn scores(self) -> Vec<Score> {
        self.scores
    }
}
