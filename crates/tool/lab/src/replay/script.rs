//! Steps of one session, with their due times.

use super::{Kind, Pace, Step};
use crate::stamp::{STAMP_BYTES, Stamp};
use block::Buf;
use shard::Time;
use std::time::Duration;

/// Limit of commands in flight per session.
pub(crate) const DEPTH_MAX: usize = 1024;

/// Next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Send the step with this number now.
    Now(usize),
    /// Wait until this time.
    At(Time),
    /// Wait until a command has completed.
    Full,
    /// No further steps; finished when none is in flight.
    Over,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Score {
    /// Operation.
    pub kind: Kind,
    /// Bytes transferred or changed.
    pub bytes: u64,
    /// True if it ended with GOOD and transferred all of its data.
    pub well: bool,
    /// Nanoseconds since the due time; at the pace `fast`, since it was sent.
    pub took_ns: u64,
    /// Nanoseconds between the due time and the send.
    pub late_ns: u64,
    /// Time of completion.
    pub ended: Time,
}

/// Replay of one session.
#[derive(Debug)]
pub struct Script {
    steps: Vec<Step>,
    pace: Pace,
    from: Time,
    seed: u64,
    next: usize,
    under_way: usize,
    /// Rank of each step in the order of recorded completions.
    ranks: Vec<usize>,
    /// Number of steps that had completed when each step started; these are the first ranks.
    after: Vec<usize>,
    /// Completed steps by rank, and the length of the gapless prefix.
    ended: Vec<bool>,
    prefix: usize,
    /// Due time and send time of each step.
    sent: Vec<(Time, Time)>,
    scores: Vec<Score>,
}

impl Script {
    /// Creates the replay of a session; the first step of all sessions is due at `from`, and `seed` is that of the
    /// written stamps.
    #[must_use]
    pub fn new(steps: Vec<Step>, pace: Pace, from: Time, seed: u64) -> Self {
        let ends: Vec<u64> = steps.iter().map(|step| step.began_ns.saturating_add(step.took_ns)).collect();
        let mut order: Vec<usize> = (0..steps.len()).collect();
        // A stable sort: equal completions keep the order of their starts.
        order.sort_by_key(|&step| ends[step]);
        let mut ranks = vec![0; steps.len()];
        order.iter().enumerate().for_each(|(rank, &step)| ranks[step] = rank);
        // A step that started at the time of another one's completion did not wait for it: both belong to one turn of
        // the target.
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

    /// Returns the next action at `now`; a step that is due counts as sent.
    pub fn next(&mut self, now: Time) -> Due {
        let Some(step) = self.steps.get(self.next) else { return Due::Over };
        let due = match self.pace {
            Pace::Recorded { speed } => self.from + Duration::from_secs_f64(step.began_ns as f64 / 1e9 / speed),
            // All sessions begin together, at either pace.
            Pace::Fast => now.max(self.from),
        };
        if now < due {
            return Due::At(due);
        }
        // All steps that it depended on must have completed: a gap in the ranks means that one of them is missing.
        let is_held = self.pace == Pace::Fast && self.prefix < self.after[self.next];
        if is_held || self.under_way == DEPTH_MAX {
            return Due::Full;
        }
        self.sent[self.next] = (due, now);
        self.under_way += 1;
        self.next += 1;
        Due::Now(self.next - 1)
    }

    /// Returns the step with this number.
    #[must_use]
    pub fn step(&self, index: usize) -> Step {
        self.steps[index]
    }

    /// Returns the data of a WRITE: every 512 bytes carry their address, and the step that wrote them.
    #[must_use]
    pub fn data(&self, index: usize) -> Buf {
        let step = self.steps[index];
        let mut data = Buf::zeroed(usize::try_from(step.bytes).expect("a CDB names 32 bits of blocks at most"));
        // Stamps number blocks of 512 bytes, whatever the block size of the volume.
        let block = step.offset / STAMP_BYTES as u64;
        Stamp { block, generation: index as u64 + 1, seed: self.seed }.fill(&mut data);
        data
    }

    /// Records the completion of a step.
    pub fn ended(&mut self, index: usize, now: Time, well: bool) {
        let (Step { kind, bytes, .. }, (due, sent)) = (self.steps[index], self.sent[index]);
        let nanos = |from: Time, to: Time| u64::try_from(to.since(from).as_nanos()).unwrap_or(u64::MAX);
        // Latency counts from the due time: a command that the replay sent late waited as well.
        let (took_ns, late_ns) = (nanos(due, now), nanos(due, sent));
        self.scores.push(Score { kind, bytes, well, took_ns, late_ns, ended: now });
        self.under_way -= 1;
        self.ended[self.ranks[index]] = true;
        while self.ended.get(self.prefix) == Some(&true) {
            self.prefix += 1;
        }
    }

    /// Returns the number of commands in flight.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns the results in the order of completion.
    #[must_use]
    pub fn scores(self) -> Vec<Score> {
        self.scores
    }
}
