//! Comparison of two things measured in the same rounds: their ratio, and whether it exceeds chance.

use crate::figure::{Measure, Sense, holds};
use crate::run::{Measured, Run};
use anyhow::{Result, ensure};
use std::collections::BTreeMap;
use std::f64::consts::LN_2;
use std::fmt;

/// Fewest rounds whose interval contains the true median ratio with a probability of 95 %.
pub const ROUNDS_MIN: usize = 6;
/// Minimum confidence of an interval of [`ROUNDS_MIN`] rounds or more.
const CONFIDENCE: f64 = 0.95;

/// Ratio of two things.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// Ratio in each round.
    pub rounds: Vec<f64>,
    /// Median of the rounds.
    pub median: f64,
    /// Lower end of the confidence interval of the median.
    pub low: f64,
    /// Upper end of the confidence interval.
    pub high: f64,
    /// Confidence, from 0 to 1.
    pub confidence: f64,
}

/// Conclusion from a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The first one is better.
    Better,
    /// The first one is worse.
    Worse,
    /// The interval contains 1.
    NotShown,
}

/// Comparison of one point in one measure.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Labels on the axes that are not compared.
    pub labels: BTreeMap<String, String>,
    /// Measure of the comparison.
    pub measure: Measure,
    /// First divided by second; none if either was not measured.
    pub ratio: Option<Ratio>,
}

impl Ratio {
    /// Returns the ratio of two things that were both measured in each round; none without such a round, or if a value
    /// is not positive.
    ///
    /// *Shape*: the values of round `i` are `first[i]` and `second[i]`. The interval lies between two of the ratios,
    /// and its confidence is exact for any distribution, as long as rounds are independent. It is 95 % or slightly more
    /// from [`ROUNDS_MIN`] rounds on; fewer rounds give the range from least to greatest, with a confidence of `1 -
    /// 2^(1-n)`.
    ///
    /// *Source*: the inverted sign test (Conover, Practical Nonparametric Statistics, 3.2). A bootstrap of the median
    /// of so few rounds contains the true one less often than claimed: 87 times in a hundred for seven rounds, instead
    /// of 95.
    #[must_use]
    pub fn of(first: &[f64], second: &[f64]) -> Option<Self> {
        // Ratios of rounds, and not a ratio of medians: both values of a round were measured beside the same other work
        // of the machine.
        let rounds: Vec<f64> = first.iter().zip(second).map(|(first, second)| first / second).collect();
        // A value that is not positive was not measured, and has no ratio.
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

    /// Returns the conclusion for a measure.
    #[must_use]
    pub fn verdict(&self, measure: Measure) -> Verdict {
        let holds_one = self.low <= 1.0 && 1.0 <= self.high;
        // A single round has no interval.
        if holds_one || self.rounds.len() < 2 {
            Verdict::NotShown
        } else if measure.sense().better(self.median, 1.0) {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }

    /// Formats the comparison: `faster: 1.20 times (1.15 to 1.24, 95 % of 12 rounds)`.
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
        // A single round has no range, and a confidence of zero.
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

/// Formats a ratio with its significant digits.
fn places(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.1}") } else { format!("{ratio:.3}") }
}

impl Sense {
    /// Returns the word for a verdict.
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

/// Compares one point with another of the same run.
#[must_use]
pub fn points(first: &Measured, second: &Measured, measure: Measure) -> Option<Ratio> {
    let values =
        |measured: &Measured| measured.samples.iter().map(|sample| measure.of(&measured.point, sample)).collect();
    let (first, second): (Vec<_>, Vec<_>) = (values(first), values(second));
    // Only rounds with both values count.
    let both: Vec<(f64, f64)> = first.into_iter().zip(second).filter_map(|(first, second)| first.zip(second)).collect();
    let (first, second): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
    Ratio::of(&first, &second)
}

/// Compares the points of `first` with the points of `second` at the same labels, for each measure. Rounds are paired
/// by number; only rounds of runs that were made alternately have the conditions in common.
#[must_use]
pub fn runs(first: &Run, second: &Run, measures: &[Measure]) -> Vec<Row> {
    let pairs = first.points.iter().filter_map(|one| {
        // By labels, not by position: the runs may have different points.
        let other = second.points.iter().find(|other| other.labels == one.labels)?;
        Some((one.labels.clone(), one, other))
    });
    rows(pairs, measures)
}

/// Compares the points at one label of an axis with those at another label, for each measure.
///
/// *Errors*: the run has no such axis or label; the existing labels are named.
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
        // The counterpart has the same labels on all other axes.
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

/// Returns the rank of the interval's lower end in `count` sorted values, and its confidence: the narrowest symmetric
/// interval that contains the median with a probability of at least 95 %, or else the widest one.
///
/// The median is below the value of rank `k` with the probability that fewer than `k` of `count` fair coins fall on one
/// side.
fn rank(count: usize) -> (usize, f64) {
    // As logarithms: `2^-count` underflows for large counts.
    let mut ways = -(count as f64) * LN_2;
    let (mut index, mut below) = (0, ways.exp());
    loop {
        // From the binomial coefficient for `index` coins to the one for one more.
        ways += ((count - index) as f64 / (index + 1) as f64).ln();
        let next = below + ways.exp();
        // True near the middle rank at the latest, so the loop ends and `index` stays in range.
        if 1.0 - 2.0 * next < CONFIDENCE {
            return (index, 1.0 - 2.0 * below);
        }
        (index, below) = (index + 1, next);
    }
}

/// Returns the median of sorted values; the mean of the middle two for an even count.
///
/// *Panics*: without a value.
#[must_use]
pub fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) }
}

#[cfg(test)]
mod tests;
