//! Figures of the recorded and of the replayed load, side by side.

use super::{Kind, Plan, Score, Step};
use serde::Serialize;
use shard::Time;
use std::collections::BTreeMap;

/// Figures of one operation. Latencies are exact, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Commands that succeeded.
    pub commands: u64,
    /// Commands that failed.
    pub failed: u64,
    /// Bytes transferred or changed by successful commands.
    pub bytes: u64,
    /// Median latency.
    pub p50_ns: u64,
    /// 99th percentile of the latency.
    pub p99_ns: u64,
    /// 99.9th percentile of the latency.
    pub p999_ns: u64,
    /// Longest latency.
    pub longest_ns: u64,
}

/// Recorded and replayed figures of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Operation.
    pub kind: Kind,
    /// Recorded figures: latency within the unit.
    pub recorded: Figures,
    /// Replayed figures: latency from the due time until the initiator has the response.
    pub replayed: Figures,
}

/// Load of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// Traced volume.
    pub volume: String,
    /// Sessions with commands that can be replayed.
    pub sessions: usize,
    /// Seconds from the start of the first command to the end of the last one.
    pub seconds: f64,
    /// Figures of each recorded operation.
    pub kinds: BTreeMap<&'static str, Figures>,
    /// Omitted operations, with their counts.
    pub skipped: BTreeMap<String, u64>,
}

/// Delay of commands behind the recording, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Late {
    /// Median delay.
    pub p50_ns: u64,
    /// 99th percentile of the delay.
    pub p99_ns: u64,
    /// Longest delay.
    pub longest_ns: u64,
}

/// Result of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// Traced volume.
    pub volume: String,
    /// Sessions of the replay.
    pub sessions: usize,
    /// Duration of the recorded load, from the start of the first command to the end of the last one.
    pub recorded_seconds: f64,
    /// Duration of the replayed load.
    pub replayed_seconds: f64,
    /// Figures of each operation.
    pub kinds: Vec<Compared>,
    /// Delays of commands; zero at the pace `fast`.
    pub late: Late,
    /// Omitted operations, with their counts.
    pub skipped: BTreeMap<String, u64>,
}

impl Figures {
    /// Computes the figures of successful commands, given as `(bytes, nanoseconds)`, and of `failed` others.
    fn of(well: impl Iterator<Item = (u64, u64)>, failed: u64) -> Self {
        let (mut bytes, mut took) = (0_u64, Vec::new());
        for (moved, nanos) in well {
            // A recorded WRITE SAME may name nearly 2^64 bytes.
            bytes = bytes.saturating_add(moved);
            took.push(nanos);
        }
        took.sort_unstable();
        let [p50_ns, p99_ns, p999_ns, longest_ns] = [500, 990, 999, 1000].map(|per_mille| within(&took, per_mille));
        Self { commands: took.len() as u64, failed, bytes, p50_ns, p99_ns, p999_ns, longest_ns }
    }

    fn of_steps(plan: &Plan, kind: Kind) -> Self {
        // A plan has no failed commands.
        Self::of(plan.steps().filter(|step| step.kind == kind).map(|step| (step.bytes, step.took_ns)), 0)
    }

    fn of_scores(scores: &[Score], kind: Kind) -> Self {
        let of_kind = || scores.iter().filter(|score| score.kind == kind);
        let failed = of_kind().filter(|score| !score.well).count();
        Self::of(of_kind().filter(|score| score.well).map(|score| (score.bytes, score.took_ns)), failed as u64)
    }
}

impl Plan {
    /// Returns the recorded figures.
    #[must_use]
    pub fn recorded(&self) -> Recorded {
        let kinds = Kind::ALL.map(|kind| (kind.name(), Figures::of_steps(self, kind)));
        Recorded {
            volume: self.volume.clone(),
            sessions: self.sessions.len(),
            seconds: seconds_of(self),
            kinds: kinds.into_iter().filter(|(_, figures)| figures.commands > 0).collect(),
            skipped: self.skipped.clone(),
        }
    }

    /// Returns the recorded figures beside the replayed ones; the first step was due at `from`.
    #[must_use]
    pub fn compared(&self, scores: &[Score], from: Time) -> Replayed {
        let compared = |kind| Compared {
            kind,
            recorded: Figures::of_steps(self, kind),
            replayed: Figures::of_scores(scores, kind),
        };
        let mut late: Vec<u64> = scores.iter().map(|score| score.late_ns).collect();
        late.sort_unstable();
        let ended = scores.iter().map(|score| score.ended).max().unwrap_or(from);
        Replayed {
            volume: self.volume.clone(),
            sessions: self.sessions.len(),
            recorded_seconds: seconds_of(self),
            replayed_seconds: ended.since(from).as_secs_f64(),
            kinds: Kind::ALL.map(compared).into_iter().filter(|kind| kind.recorded.commands > 0).collect(),
            late: Late { p50_ns: within(&late, 500), p99_ns: within(&late, 990), longest_ns: within(&late, 1000) },
            skipped: self.skipped.clone(),
        }
    }
}

fn seconds_of(plan: &Plan) -> f64 {
    // Starts are relative to the first command, so the latest end is the duration.
    let ends = plan.steps().map(|step: &Step| step.began_ns.saturating_add(step.took_ns));
    ends.max().unwrap_or_default() as f64 / 1e9
}

/// Returns the value that `per_mille` of a thousand sorted numbers do not exceed; zero without numbers.
fn within(sorted: &[u64], per_mille: usize) -> u64 {
    // Nearest rank, as for the histograms of a run.
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    rank.checked_sub(1).and_then(|at| sorted.get(at)).copied().unwrap_or_default()
}
