//! Results of a scenario: every sample, with place and time of the measurement. Stable JSON; everything else is
//! computed from it.

use crate::load::Verification;
use crate::point::Point;
use crate::scenario::Scenario;
use crate::seen::Readings;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Version of the format that this build writes.
pub const FORMAT: u32 = 1;

/// Run file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of the format, [`FORMAT`]; newer ones are refused.
    pub format: u32,
    /// Scenario that was measured.
    pub scenario: Scenario,
    /// Machine of the measurement.
    pub machine: Machine,
    /// Start of the run, RFC 3339 in UTC.
    pub begun: String,
    /// True if every point was measured in all rounds.
    pub complete: bool,
    /// Points in the order of the axes; the last axis varies fastest.
    pub points: Vec<Measured>,
}

/// Facts about machine and software that affect figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Facts by name: `cpu`, `cores`, `memory`, `kernel`, `system`, `blockyard`, `tgt`, `governor`, …
    pub facts: BTreeMap<String, String>,
}

/// Point with its samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Labels by the name of their axis.
    pub labels: BTreeMap<String, String>,
    /// Complete settings.
    pub point: Point,
    /// Samples, one for each round.
    pub samples: Vec<Sample>,
    /// Reason why it was not measured, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untried: Option<String>,
}

/// Result of one point in one round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Reads.
    pub reads: Tally,
    /// Writes.
    pub writes: Tally,
    /// Commands of each session, for the fairness.
    pub sessions: Vec<u64>,
    /// Result of the load beside it, in both directions. It is not included above, but CPU and memory are of both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Tally>,
    /// Result of the verification, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Verification>,
    /// Resource usage of the target; absent if it is on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Usage>,
    /// Resource usage of the client.
    pub client: Usage,
    /// Meter readings of both ends and of the path between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen: Option<Readings>,
}

/// Commands in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Commands that succeeded.
    pub commands: u64,
    /// Bytes transferred by them.
    pub bytes: u64,
    /// Commands that failed.
    pub errors: u64,
    /// Latencies of the successful commands.
    pub latency: Latency,
}

/// Histogram of latencies, with a precision of one percent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Pairs of nanoseconds and number of commands, ascending.
    pub buckets: Vec<(u64, u64)>,
}

/// Resource usage of one side while a point was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPU time of all threads, in user and kernel mode.
    pub cpu_seconds: f64,
    /// Resident memory at the end.
    pub resident_bytes: u64,
}

impl Run {
    /// Parses a run file.
    ///
    /// *Errors*: it is no run, or of an unknown format.
    pub fn parse(text: &[u8]) -> Result<Self> {
        // The version is read on its own first: other fields may differ between formats.
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
    /// Returns commands per second, in both directions.
    #[must_use]
    pub fn iops(&self) -> f64 {
        (self.reads.commands + self.writes.commands) as f64 / self.seconds
    }

    /// Returns bytes per second, in both directions.
    #[must_use]
    pub fn bandwidth(&self) -> f64 {
        (self.reads.bytes + self.writes.bytes) as f64 / self.seconds
    }

    /// Returns commands per second of the load beside it, if there is one.
    #[must_use]
    pub fn beside_iops(&self) -> Option<f64> {
        self.beside.as_ref().map(|beside| beside.commands as f64 / self.seconds)
    }

    /// Returns CPU microseconds of the server per command.
    #[must_use]
    pub fn server_us(&self) -> Option<f64> {
        self.server.map(|usage| self.per_command(usage))
    }

    /// Returns CPU microseconds of the client per command.
    #[must_use]
    pub fn client_us(&self) -> f64 {
        self.per_command(self.client)
    }

    fn per_command(&self, usage: Usage) -> f64 {
        // CPU time includes the load beside it, so its commands count here.
        let beside = self.beside.as_ref().map_or(0, |beside| beside.commands);
        usage.cpu_seconds * 1e6 / (self.reads.commands + self.writes.commands + beside).max(1) as f64
    }

    /// Returns the latencies of both directions.
    #[must_use]
    pub fn latency(&self) -> Latency {
        self.reads.latency.with(&self.writes.latency)
    }
}

impl Tally {
    /// Returns the sum of both.
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
    /// Returns the latency in nanoseconds that a fraction `quantile` of all commands did not exceed; none without
    /// commands.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let all: u64 = self.buckets.iter().map(|&(_, count)| count).sum();
        // Nearest rank, at least one, so that quantile 0 is the smallest value.
        let rank = ((quantile * all as f64).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        self.buckets.iter().find_map(|&(value, count)| {
            seen += count;
            (seen >= rank).then_some(value)
        })
    }

    /// Returns the mean in nanoseconds; none without commands.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        // A float, because the nanoseconds of a long run may exceed 64 bits.
        let (mut sum, mut all) = (0.0, 0);
        for &(value, count) in &self.buckets {
            sum += value as f64 * count as f64;
            all += count;
        }
        (all > 0).then(|| sum / all as f64)
    }

    /// Returns the sum of both.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        // The map keeps the buckets ascending, as `quantile` requires.
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
