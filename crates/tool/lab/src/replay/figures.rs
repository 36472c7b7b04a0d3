//! The recorded load and the replayed one, side by side.

use super::{Kind, Plan, Score, Step};
use serde::Serialize;
use shard::Time;
use std::collections::BTreeMap;

/// Commands of one kind. Latencies are in nanoseconds, and exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// Commands that ended well.
    pub commands: u64,
    /// Commands that did not.
    pub failed: u64,
    /// Bytes that those which ended well moved, or changed.
    pub bytes: u64,
    /// Half of them took no longer.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// None took longer.
    pub longest_ns: u64,
}

/// One kind of command, recorded and replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Which.
    pub kind: Kind,
    /// As it was: how long the unit took.
    pub recorded: Figures,
    /// As it was again: from when it was due until the initiator had its answer.
    pub replayed: Figures,
}

/// The load that a trace holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recorded {
    /// The volume that was traced.
    pub volume: String,
    /// Sessions whose commands can be replayed.
    pub sessions: usize,
    /// From the first command's beginning to the last one's end.
    pub seconds: f64,
    /// Every kind that there is.
    pub kinds: BTreeMap<&'static str, Figures>,
    /// What is left out, and how often.
    pub skipped: BTreeMap<String, u64>,
}

/// How far commands were behind the recording when they were sent, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Late {
    /// Half of them were no later.
    pub p50_ns: u64,
    /// 99 of 100 were no later.
    pub p99_ns: u64,
    /// None was later.
    pub longest_ns: u64,
}

/// What came out of a replay.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Replayed {
    /// The volume that was traced.
    pub volume: String,
    /// Sessions that it was replayed in.
    pub sessions: usize,
    /// How long the recorded load lasted: from the first command's beginning to the last one's end.
    pub recorded_seconds: f64,
    /// How long the replayed one did.
    pub replayed_seconds: f64,
    /// Every kind that there is.
    pub kinds: Vec<Compared>,
    /// How late commands were sent. At the pace `fast` none is.
    pub late: Late,
    /// What was left out, and how often.
    pub skipped: BTreeMap<String, u64>,
}

impl Figures {
    /// Of commands as `(bytes, nanoseconds)` that ended well, and the number of others.
    fn of(well: impl Iterator<Item = (u64, u64)>, failed: u64) -> Self {
        let (mut bytes, mut took) = (0_u64, Vec::new());
        for (moved, nanos) in well {
            bytes = bytes.saturating_add(moved);
            took.push(nanos);
        }
        took.sort_unstable();
        let [p50_ns, p99_ns, p999_ns, longest_ns] = [500, 990, 999, 1000].map(|per_mille| within(&took, per_mille));
        Self { commands: took.len() as u64, failed, bytes, p50_ns, p99_ns, p999_ns, longest_ns }
    }

    fn of_steps(plan: &Plan, kind: Kind) -> Self {
        Self::of(plan.steps().filter(|step| step.kind == kind).map(|step| (step.bytes, step.took_ns)), 0)
    }

    fn of_scores(scores: &[Score], kind: Kind) -> Self {
        let of_kind = || scores.iter().filter(|score| score.kind == kind);
        let failed = of_kind().filter(|score| !score.well).count();
        Self::of(of_kind().filter(|score| score.well).map(|score| (score.bytes, score.took_ns)), failed as u64)
    }
}

impl Plan {
    /// What is recorded.
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

    /// What is recorded beside how it went, when the first step was due at `from`.
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
    let ends = plan.steps().map(|step: &Step| step.began_ns.saturating_add(step.took_ns));
    ends.max().unwrap_or_default() as f64 / 1e9
}

/// What so many of a thousand of the sorted numbers do not exceed; zero of none.
fn within(sorted: &[u64], per_mille: usize) -> u64 {
    let rank = (sorted.len() * per_mille).div_ceil(1000);
    rank.checked_sub(1).and_then(|at| sorted.get(at)).copied().unwrap_or_default()
}
