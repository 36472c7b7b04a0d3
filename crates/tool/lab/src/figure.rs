//! Figures of a scenario, and the measures that they show.

use crate::point::Point;
use crate::run::Sample;
use crate::scenario::Axis;
use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Figure: panels of the same points, one below the other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Title of the figure.
    pub title: String,
    /// Form of drawing.
    pub form: Form,
    /// Name of the axis along the bottom.
    pub x: String,
    /// Title of that axis if its name does not say it: `outstanding commands`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x_title: Option<String>,
    /// Use a logarithmic scale along the bottom.
    #[serde(default)]
    pub log_x: bool,
    /// Use a logarithmic scale upwards.
    #[serde(default)]
    pub log_y: bool,
    /// Measures, one panel each. A heat map has a panel for each line instead, and no measures.
    #[serde(default)]
    pub measures: Vec<Measure>,
    /// Name of the paper's figure in the table of papers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<String>,
    /// Filter of points: labels by axis.
    #[serde(default)]
    pub only: BTreeMap<String, String>,
    /// Label of the baseline, such as the raw device; drawn dashed and without markers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Notes printed on the drawing.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// Form of drawing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Line for each combination of labels of the other axes.
    Lines,
    /// Groups of bars.
    Bars,
    /// Distribution of latencies.
    Heat,
}

/// Measure of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// Commands per second.
    Iops,
    /// Commands per second, divided by the clients.
    IopsPerClient,
    /// MB (10^6 bytes) per second.
    Bandwidth,
    /// MB per second, divided by the clients.
    BandwidthPerClient,
    /// Mean latency.
    Latency,
    /// Median latency.
    P50,
    /// 99th percentile of the latency.
    P99,
    /// 99.9th percentile of the latency.
    P999,
    /// CPU of the target, in percent of one core.
    ServerCpu,
    /// CPU of the client, in percent of one core.
    ClientCpu,
    /// Microseconds of the target's CPU per command.
    ServerPerCommand,
    /// Microseconds of the client's CPU per command.
    ClientPerCommand,
    /// Resident memory of the target.
    ServerMemory,
    /// Resident memory of the client.
    ClientMemory,
    /// Jain's fairness index of the sessions: 1 if all have equal shares, `1/n` if one of `n` has everything.
    Fairness,
    /// Commands per second of the load beside it.
    BesideIops,
    /// Median latency of the load beside it.
    BesideP50,
}

/// Direction in which a measure is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// More is faster.
    Speed,
    /// Less is faster.
    Time,
    /// Less is cheaper.
    Cost,
    /// More is fairer.
    Fairness,
}

impl Figure {
    /// Checks that the axes and labels named by this figure exist.
    ///
    /// *Errors*: the missing one, or that there is nothing to draw.
    pub fn check(&self, axes: &[Axis]) -> Result<()> {
        let title = &self.title;
        let named = |name: &str| axes.iter().find(|axis| axis.name == name);
        ensure!(
            named(&self.x).is_some(),
            "the figure \"{title}\" has the axis \"{}\" along the bottom: no such axis",
            self.x
        );
        ensure!(
            // A heat map draws the distribution of latencies, so measures would have no effect.
            (self.form == Form::Heat) == self.measures.is_empty(),
            "the figure \"{title}\" needs measures, or is a heat map"
        );
        for (name, label) in &self.only {
            let known = named(name).is_some_and(|axis| axis.labels().contains(label));
            ensure!(known, "the figure \"{title}\" is only of {name} = {label}: no such axis or label");
        }
        let baseline = self.baseline.iter().all(|label| axes.iter().any(|axis| axis.labels().contains(label)));
        ensure!(baseline, "the figure \"{title}\" has a baseline that no axis has");
        Ok(())
    }

    /// Returns true for the points that the figure shows.
    #[must_use]
    pub fn shows(&self, labels: &BTreeMap<String, String>) -> bool {
        holds(labels, &self.only)
    }
}

/// Returns true if `labels` contains all of `part`.
#[must_use]
pub fn holds(labels: &BTreeMap<String, String>, part: &BTreeMap<String, String>) -> bool {
    part.iter().all(|(axis, label)| labels.get(axis) == Some(label))
}

impl Sense {
    /// Returns true if the first of two values is the better one.
    #[must_use]
    pub fn better(self, first: f64, second: f64) -> bool {
        match self {
            Self::Speed | Self::Fairness => first > second,
            Self::Time | Self::Cost => first < second,
        }
    }
}

impl Measure {
    /// All measures, in the order of tables.
    pub const ALL: [Self; 17] = [
        Self::Iops,
        Self::IopsPerClient,
        Self::Bandwidth,
        Self::BandwidthPerClient,
        Self::Latency,
        Self::P50,
        Self::P99,
        Self::P999,
        Self::ServerCpu,
        Self::ClientCpu,
        Self::ServerPerCommand,
        Self::ClientPerCommand,
        Self::ServerMemory,
        Self::ClientMemory,
        Self::Fairness,
        Self::BesideIops,
        Self::BesideP50,
    ];

    /// Returns the value in [`Self::unit`]; none if the sample lacks it: no command succeeded, or the target is on
    /// another machine.
    #[must_use]
    pub fn of(self, point: &Point, sample: &Sample) -> Option<f64> {
        let clients = f64::from(point.clients.max(1));
        let percent = |cpu_seconds: f64| cpu_seconds / sample.seconds * 100.0;
        let micros = |nanos: u64| nanos as f64 / 1e3;
        let quantile = |quantile: f64| sample.latency().quantile(quantile).map(micros);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        // The costs divide by the commands, and by one where there are none.
        let ended = sample.reads.commands + sample.writes.commands > 0;
        let value = match self {
            Self::Iops => Some(sample.iops()),
            Self::IopsPerClient => Some(sample.iops() / clients),
            Self::Bandwidth => Some(sample.bandwidth() / 1e6),
            Self::BandwidthPerClient => Some(sample.bandwidth() / 1e6 / clients),
            Self::Latency => sample.latency().mean().map(|nanos| nanos / 1e3),
            Self::P50 => quantile(0.5),
            Self::P99 => quantile(0.99),
            Self::P999 => quantile(0.999),
            Self::ServerCpu => sample.server.map(|usage| percent(usage.cpu_seconds)),
            Self::ClientCpu => Some(percent(sample.client.cpu_seconds)),
            // Without a command there is no cost per command.
            Self::ServerPerCommand => sample.server_us().filter(|_| ended),
            Self::ClientPerCommand => ended.then(|| sample.client_us()),
            Self::ServerMemory => sample.server.map(|usage| mib(usage.resident_bytes)),
            Self::ClientMemory => Some(mib(sample.client.resident_bytes)),
            Self::Fairness => jain(&sample.sessions),
            Self::BesideIops => sample.beside_iops(),
            Self::BesideP50 => sample.beside.as_ref().and_then(|beside| beside.latency.quantile(0.5)).map(micros),
        };
        // A sample without duration would give infinities.
        value.filter(|value| value.is_finite())
    }

    /// Returns the title of a panel.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Iops => "Commands per second",
            Self::IopsPerClient => "Commands per second and client",
            Self::Bandwidth => "Bandwidth",
            Self::BandwidthPerClient => "Bandwidth per client",
            Self::Latency => "Mean latency",
            Self::P50 => "Median latency",
            Self::P99 => "Latency, 99th percentile",
            Self::P999 => "Latency, 99.9th percentile",
            Self::ServerCpu => "CPU of the target",
            Self::ClientCpu => "CPU of the client",
            Self::ServerPerCommand => "CPU of the target per command",
            Self::ClientPerCommand => "CPU of the client per command",
            Self::ServerMemory => "Resident memory of the target",
            Self::ClientMemory => "Resident memory of the client",
            Self::Fairness => "Shares of the sessions, Jain's index",
            Self::BesideIops => "Commands per second of the load beside it",
            Self::BesideP50 => "Median latency of the load beside it",
        }
    }

    /// Returns the unit; empty for a plain number.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::Iops | Self::IopsPerClient | Self::BesideIops => "IOPS",
            Self::Bandwidth | Self::BandwidthPerClient => "MB/s",
            Self::Latency | Self::P50 | Self::P99 | Self::P999 | Self::BesideP50 => "µs",
            Self::ServerPerCommand | Self::ClientPerCommand => "µs",
            Self::ServerCpu | Self::ClientCpu => "% of a core",
            Self::ServerMemory | Self::ClientMemory => "MiB",
            Self::Fairness => "",
        }
    }

    /// Returns the direction in which values are better.
    #[must_use]
    pub fn sense(self) -> Sense {
        match self {
            Self::Iops | Self::IopsPerClient | Self::BesideIops => Sense::Speed,
            Self::Bandwidth | Self::BandwidthPerClient => Sense::Speed,
            Self::Latency | Self::P50 | Self::P99 | Self::P999 | Self::BesideP50 => Sense::Time,
            Self::Fairness => Sense::Fairness,
            Self::ServerCpu | Self::ClientCpu | Self::ServerPerCommand | Self::ClientPerCommand => Sense::Cost,
            Self::ServerMemory | Self::ClientMemory => Sense::Cost,
        }
    }
}

impl fmt::Display for Measure {
    /// Writes the name used in scenarios.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Returns Jain's index of shares; none if all are zero.
fn jain(shares: &[u64]) -> Option<f64> {
    let sum: f64 = shares.iter().map(|&share| share as f64).sum();
    let squares: f64 = shares.iter().map(|&share| (share as f64).powi(2)).sum();
    // Square of the sum, divided by n times the sum of the squares.
    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Latency, Tally, Usage};

    #[test]
    fn values_are_in_their_units() {
        let latency = Latency { buckets: vec![(50_000, 900), (150_000, 100)] };
        let sample = Sample {
            seconds: 2.0,
            reads: Tally { commands: 1000, bytes: 4_096_000, errors: 0, latency },
            sessions: vec![1000, 0],
            server: Some(Usage { cpu_seconds: 0.5, resident_bytes: 3 << 20 }),
            ..Sample::default()
        };
        let point = Point { clients: 4, ..Point::default() };
        let value = |measure: Measure| measure.of(&point, &sample);
        assert_eq!((value(Measure::Iops), value(Measure::IopsPerClient)), (Some(500.0), Some(125.0)));
        assert_eq!((value(Measure::Bandwidth), value(Measure::Latency)), (Some(2.048), Some(60.0)));
        assert_eq!((value(Measure::P50), value(Measure::P99)), (Some(50.0), Some(150.0)));
        assert_eq!((value(Measure::ServerCpu), value(Measure::ServerPerCommand)), (Some(25.0), Some(500.0)));
        assert_eq!((value(Measure::ServerMemory), value(Measure::Fairness)), (Some(3.0), Some(0.5)));
    }

    #[test]
    fn what_a_sample_does_not_have_has_no_value() {
        let sample = Sample { seconds: 1.0, ..Sample::default() };
        let values = Measure::ALL.map(|measure| measure.of(&Point::default(), &sample));
        let absent = values.iter().filter(|value| value.is_none()).count();
        assert_eq!(absent, 11, "{values:?}");
    }
}
