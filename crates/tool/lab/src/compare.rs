//! Two things that were measured in the same rounds: how many times the one is the other, and whether that is more than chance.

use crate::figure::{Measure, Sense, holds};
use crate::run::{Measured, Run};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::f64::consts::LN_2;
use std::fmt;

/// The fewest rounds whose interval holds the true median ratio 95 times out of a hundred.
pub const ROUNDS_MIN: usize = 6;
/// How often an interval of [`ROUNDS_MIN`] rounds or more holds the true median, at the least.
const CONFIDENCE: f64 = 0.95;

/// How many times one thing is the other.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// Of each round.
    pub rounds: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// The lower end of the interval that holds the true median ratio.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// How likely it holds it, from 0 to 1.
    pub confidence: f64,
}

/// What a ratio shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first is better.
    Better,
    /// The first is worse.
    Worse,
    /// Either may be.
    NotShown,
}

/// One point that both have, in one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Where it lies, on the axes that are not compared.
    pub labels: BTreeMap<String, String>,
    /// In what.
    pub measure: Measure,
    /// The first through the second; nothing where one of them was not measured.
    pub ratio: Option<Ratio>,
}

impl Ratio {
    /// The ratio of two things of which each round measured both; nothing without a round that has both, or where a value is
    /// not above zero.
    ///
    /// *Shape*: the values of round `i` are `first[i]` and `second[i]`. The interval lies between two of the ratios, and its
    /// confidence is exact whatever they scatter like, as long as rounds do not depend on each other. It is 95 % or a little
    /// more from [`ROUNDS_MIN`] rounds on; fewer give what there is, from the least to the greatest: `1 - 2^(1-n)`.
    ///
    /// *Source*: the sign test turned around (Conover, Practical Nonparametric Statistics, 3.2). A bootstrap of the median of so
    /// few rounds holds the true one less often than it says: 87 times in a hundred of seven rounds, for 95.
    #[must_use]
    pub fn of(first: &[f64], second: &[f64]) -> Option<Self> {
        let rounds: Vec<f64> = first.iter().zip(second).map(|(first, second)| first / second).collect();
        if rounds.is_empty() || !rounds.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0) {
            return None;
        }
        let mut sorted = rounds.clone();
        sorted.sort_by(f64::total_cmp);
        let median = median(&sorted);
        let (index, confidence) = rank(sorted.len());
        let (low, high) = (sorted[index], sorted[sorted.len() - 1 - index]);
        Some(Self { rounds, median, low, high, confidence })
    }

    /// What it shows of a measure.
    #[must_use]
    pub fn verdict(&self, measure: Measure) -> Verdict {
        let holds_one = self.low <= 1.0 && 1.0 <= self.high;
        if holds_one || self.rounds.len() < 2 {
            Verdict::NotShown
        } else if measure.sense().better(self.median, 1.0) {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }

    /// All of it in words: `faster: 1.20 times (1.15 to 1.24, 95 % of 12 rounds)`.
    #[must_use]
    pub fn sentence(&self, measure: Measure) -> String {
        let word = measure.sense().word(self.verdict(measure));
        let few = if self.rounds.len() < ROUNDS_MIN {
            format!("; {ROUNDS_MIN} rounds are the fewest for 95 %")
        } else {
            String::new()
        };
        format!("{word}: {self}{few}")
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, median, low, high, confidence } = self;
        let (percent, count) = (confidence * 100.0, rounds.len());
        match count {
            1 => write!(f, "{} times (one round)", places(*median)),
            _ => write!(
                f,
                "{} times ({} to {}, {percent:.0} % of {count} rounds)",
                places(*median),
                places(*low),
                places(*high)
            ),
        }
    }
}

/// A ratio with the digits that say something.
fn places(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.1}") } else { format!("{ratio:.3}") }
}

impl Sense {
    /// A verdict in a word.
    #[must_use]
    pub fn word(self, verdict: Verdict) -> &'static str {
        match (self, verdict) {
            (_, Verdict::NotShown) => "no difference shown",
            (Self::Speed | Self::Time, Verdict::Better) => "faster",
            (Self::Speed | Self::Time, Verdict::Worse) => "slower",
            (Self::Cost, Verdict::Better) => "cheaper",
            (Self::Cost, Verdict::Worse) => "dearer",
            (Self::Fairness, Verdict::Better) => "fairer",
            (Self::Fairness, Verdict::Worse) => "less fair",
        }
    }
}

/// What one point is of another of the same run.
#[must_use]
pub fn points(first: &Measured, second: &Measured, measure: Measure) -> Option<Ratio> {
    let values =
        |measured: &Measured| measured.samples.iter().map(|sample| measure.of(&measured.point, sample)).collect();
    let (first, second): (Vec<_>, Vec<_>) = (values(first), values(second));
    let both: Vec<(f64, f64)> = first.into_iter().zip(second).filter_map(|(first, second)| first.zip(second)).collect();
    let (first, second): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
    Ratio::of(&first, &second)
}

/// The points of `first` through the points of `second` that lie at the same labels, for each measure. Rounds are paired by
/// their number: what two runs had in common at a time is only known of runs that were made in turn.
#[must_use]
pub fn runs(first: &Run, second: &Run, measures: &[Measure]) -> Vec<Row> {
    let pairs = first.points.iter().filter_map(|one| {
        let other = second.points.iter().find(|other| other.labels == one.labels)?;
        Some((one.labels.clone(), one, other))
    });
    rows(pairs, measures)
}

/// The points at one label of an axis through those at another one, for each measure.
///
/// *Errors*: the axis or a label of it is not in the run; the labels that are there are named.
pub fn labels(run: &Run, axis: &str, first: &str, second: &str, measures: &[Measure]) -> Result<Vec<Row>> {
    let known =
        run.scenario.axes.iter().find(|known| known.name == axis).map(|known| known.labels()).unwrap_or_default();
    ensure!(!known.is_empty(), "the run has no axis \"{axis}\"");
    for label in [first, second] {
        ensure!(
            known.iter().any(|known| known == label),
            "the axis \"{axis}\" has no \"{label}\", but: {}",
            known.join(", ")
        );
    }
    let at = |label: &str| BTreeMap::from([(axis.to_owned(), label.to_owned())]);
    let pairs = run.points.iter().filter(|one| holds(&one.labels, &at(first))).filter_map(|one| {
        let mut rest = one.labels.clone();
        rest.remove(axis);
        let other = run.points.iter().find(|other| holds(&other.labels, &at(second)) && holds(&other.labels, &rest))?;
        Some((rest, one, other))
    });
    Ok(rows(pairs, measures))
}

fn rows<'a>(
    pairs: impl Iterator<Item = (BTreeMap<String, String>, &'a Measured, &'a Measured)>,
    measures: &[Measure],
) -> Vec<Row> {
    let rows = pairs.flat_map(|(labels, one, other)| {
        measures.iter().map(move |&measure| Row { labels: labels.clone(), measure, ratio: points(one, other, measure) })
    });
    rows.collect()
}

/// The narrowest interval from one of `count` sorted values to its counterpart at the other end that holds the median of what
/// they are drawn from at least 95 times in a hundred, or else the widest there is: the index of its lower end, and how often it
/// holds it. The median is below the value of rank `k` as often as fewer than `k` of `count` coins fall on one side.
fn rank(count: usize) -> (usize, f64) {
    let mut ways = -(count as f64) * LN_2;
    let (mut index, mut below) = (0, ways.exp());
    loop {
        // From the ways to have `index` coins on one side, as a logarithm, to those for one more.
        ways += ((count - index) as f64 / (index + 1) as f64).ln();
        let next = below + ways.exp();
        if 1.0 - 2.0 * next < CONFIDENCE {
            return (index, 1.0 - 2.0 * below);
        }
        (index, below) = (index + 1, next);
    }
}

/// The middle of what is sorted; of two in the middle the mean.
///
/// *Panics*: without a value.
#[must_use]
pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests;
