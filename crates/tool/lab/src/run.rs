//! What a scenario leaves: every sample, and where and when it was measured. Stable JSON; everything else is computed from it.

use crate::load::Proof;
use crate::point::Point;
use crate::scenario::Scenario;
use crate::seen::Seen;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The format that this build writes.
pub const FORMAT: u32 = 1;

/// A run file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`]; newer ones are refused by name.
    pub format: u32,
    /// What was to be measured, and drawn.
    pub scenario: Scenario,
    /// Where.
    pub machine: Machine,
    /// When it began, RFC 3339 in UTC.
    pub begun: String,
    /// True when every point was measured as often as asked.
    pub complete: bool,
    /// Every point, in the order of the axes, the last one fastest.
    pub points: Vec<Measured>,
}

/// The machine and its software, as far as it bears on figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Facts by name: `cpu`, `cores`, `memory`, `kernel`, `system`, `blockyard`, `tgt`, `governor`, …
    pub facts: BTreeMap<String, String>,
}

/// One point and what came out of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Where on each axis it lies: the axis's name, and the label there.
    pub labels: BTreeMap<String, String>,
    /// All of it.
    pub point: Point,
    /// One for each round.
    pub samples: Vec<Sample>,
    /// Why it was not measured, where it could not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untried: Option<String>,
}

/// What came out of one point in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// How long it was measured.
    pub seconds: f64,
    /// What was read.
    pub reads: Tally,
    /// What was written.
    pub writes: Tally,
    /// Commands of each session, for who got how much.
    pub sessions: Vec<u64>,
    /// What the load beside it got, both directions, where there is one. Nothing above counts it; CPU and memory are of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Tally>,
    /// What was proved of the data, where it was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// What it took of the machine on the target's side; absent where that is another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Usage>,
    /// The same on the client's side.
    pub client: Usage,
    /// What the meters saw of both ends and the way between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Seen>,
}

/// Commands in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// That ended well.
    pub commands: u64,
    /// What those moved.
    pub bytes: u64,
    /// That ended otherwise.
    pub errors: u64,
    /// How long the good ones took.
    pub latency: Latency,
}

/// How long commands took: counts of values that are known to a hundredth of themselves.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Nanoseconds, and how many commands took so long; ascending.
    pub buckets: Vec<(u64, u64)>,
}

/// What one side took of its machine while a point was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all threads, user's and kernel's.
    pub cpu_seconds: f64,
    /// Resident memory at the end.
    pub resident_bytes: u64,
}

impl Run {
    /// Reads what was kept.
    ///
    /// *Errors*: it is no run, or of a format that this build does not know.
    pub fn parse(text: &[u8]) -> Result<Self> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let head: Head = serde_json::from_slice(text).context("it is no run of the lab")?;
        ensure!(head.format == FORMAT, "it has the format {}, and this build reads {FORMAT}", head.format);
        serde_json::from_slice(text).context("it is no whole run of the lab")
    }
}

impl Sample {
    /// Commands per second, both directions.
    #[must_use]
    pub fn iops(&self) -> f64 {
        (self.reads.commands + self.writes.commands) as f64 / self.seconds
    }

    /// Bytes per second, both directions.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        (self.reads.bytes + self.writes.bytes) as f64 / self.seconds
    }

    /// Commands per second of the load beside it, where there is one.
    #[must_use]
    pub fn beside_iops(&self) -> Option<f64> {
        self.beside.as_ref().map(|beside| beside.commands as f64 / self.seconds)
    }

    /// Microseconds of the server's CPU for each command.
    #[must_use]
    pub fn server_us(&self) -> Option<f64> {
        self.server.map(|usage| self.per_command(usage))
    }

    /// Microseconds of the client's CPU for each command.
    #[must_use]
    pub fn client_us(&self) -> f64 {
        self.per_command(self.client)
    }

    fn per_command(&self, usage: Usage) -> f64 {
        let beside = self.beside.as_ref().map_or(0, |beside| beside.commands);
        usage.cpu_seconds * 1e6 / (self.reads.commands + self.writes.commands + beside).max(1) as f64
    }

    /// Latencies of both directions.
    #[must_use]
    pub fn latency(&self) -> Latency {
        self.reads.latency.with(&self.writes.latency)
    }
}

impl Tally {
    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self {
            commands: self.commands + other.commands,
            bytes: self.bytes + other.bytes,
            errors: self.errors + other.errors,
            latency: self.latency.with(&other.latency),
        }
    }
}

impl Latency {
    /// The latency in nanoseconds that a part `quantile` of all commands did not exceed; nothing without commands.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let all: u64 = self.buckets.iter().map(|&(_, count)| count).sum();
        let rank = ((quantile * all as f64).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        self.buckets.iter().find_map(|&(value, count)| {
            seen += count;
            (seen >= rank).then_some(value)
        })
    }

    /// The mean in nanoseconds; nothing without commands.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let (mut sum, mut all) = (0.0, 0);
        for &(value, count) in &self.buckets {
            sum += value as f64 * count as f64;
            all += count;
        }
        (all > 0).then(|| sum / all as f64)
    }

    /// Both together.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let mut counts: BTreeMap<u64, u64> = self.buckets.iter().copied().collect();
        for &(value, count) in &other.buckets {
            *counts.entry(value).or_default() += count;
        }
        Self { buckets: counts.into_iter().collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_ranks() {
        let latency = Latency { buckets: vec![(10, 50), (20, 49), (900, 1)] };
        assert_eq!(
            [0.0, 0.5, 0.51, 0.99, 0.995, 1.0].map(|q| latency.quantile(q)),
            [10, 10, 20, 20, 900, 900].map(Some)
        );
        assert_eq!(latency.mean(), Some(23.8));
        assert_eq!((Latency::default().quantile(0.5), Latency::default().mean()), (None, None));
    }

    #[test]
    fn two_latencies_together_have_the_counts_of_both() {
        let (a, b) = (Latency { buckets: vec![(1, 2), (5, 1)] }, Latency { buckets: vec![(2, 1), (5, 3)] });
        assert_eq!(a.with(&b).buckets, [(1, 2), (2, 1), (5, 4)]);
    }
}
