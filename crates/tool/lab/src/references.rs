//! Published figures of the papers, and our results beside them.

use crate::compare::{self, Ratio};
use crate::figure::{Figure, Measure, holds};
use crate::run::{Measured, Run};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Content of `lab/papers.toml`, which is part of the program.
pub static PAPERS: LazyLock<References> =
    LazyLock::new(|| toml::from_str(include_str!("../../../../lab/papers.toml")).expect("a test reads it"));

/// Table of papers.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct References {
    /// Papers by their short names.
    pub paper: BTreeMap<String, String>,
    /// Published figures.
    #[serde(rename = "figure")]
    pub figures: Vec<Printed>,
    /// Contradictions and misleading statements of the papers.
    #[serde(rename = "contradiction")]
    pub contradictions: Vec<Contradiction>,
    /// Further published numbers.
    pub cited: Vec<Cited>,
}

/// Published figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// Name as in [`Figure::paper`].
    pub name: String,
    /// Short name of the paper.
    pub paper: String,
    /// Place in the paper.
    pub place: String,
    /// Hardware of the measurement.
    pub machine: String,
    /// Single values.
    #[serde(default, rename = "number")]
    pub numbers: Vec<Number>,
    /// Ratios.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// Published value.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// Description in the paper's words.
    pub what: String,
    /// Measure of the value.
    pub measure: Measure,
    /// Value in the measure's unit.
    pub value: f64,
    /// Interpretation of the value.
    #[serde(default)]
    pub bound: Bound,
    /// Label along the bottom of the figure; without it, the value is compared with the best point of each of our
    /// lines.
    #[serde(default)]
    pub x: Option<String>,
    /// Lines that it is compared with; all lines by default.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
}

/// Interpretation of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// Approximate value.
    #[default]
    About,
    /// Lower bound.
    AtLeast,
    /// Upper bound.
    AtMost,
}

/// Published ratio between two points.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Description in the paper's words.
    pub what: String,
    /// Measure of the ratio.
    pub measure: Measure,
    /// Lower end of the published range.
    pub low: f64,
    /// Upper end of the published range.
    pub high: f64,
    /// Labels of the numerator.
    pub of: BTreeMap<String, String>,
    /// Labels of the denominator; all other labels are equal.
    pub over: BTreeMap<String, String>,
}

/// Contradiction or misleading statement of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contradiction {
    /// Short name of the paper.
    pub paper: String,
    /// Figures that it concerns; empty if it concerns nothing that is drawn here.
    #[serde(default)]
    pub figures: Vec<String>,
    /// Description.
    pub text: String,
}

/// Published number without a figure here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cited {
    /// Short name of the paper.
    pub paper: String,
    /// Statement of the paper.
    pub text: String,
    /// Reason why no measurement is compared with it.
    pub why: String,
}

/// Published value compared with a measured one.
#[derive(Clone, Debug, PartialEq)]
pub struct Residual<'a> {
    /// Labels of our point.
    pub labels: &'a BTreeMap<String, String>,
    /// Median of our rounds.
    pub ours: f64,
    /// Our value divided by the paper's.
    pub ratio: f64,
}

/// Published ratio compared with a measured one.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimResult {
    /// Labels that both of our points share.
    pub labels: BTreeMap<String, String>,
    /// Our ratio.
    pub ours: Ratio,
    /// True if the paper's range and our interval overlap.
    pub agrees: bool,
}

impl References {
    /// Returns the published figure for a figure of a scenario.
    #[must_use]
    pub fn printed(&self, figure: &Figure) -> Option<&Printed> {
        self.figures.iter().find(|printed| Some(&printed.name) == figure.paper.as_ref())
    }

    /// Returns the contradictions that concern a published figure.
    pub fn contradictions<'a>(&'a self, printed: &'a Printed) -> impl Iterator<Item = &'a Contradiction> {
        self.contradictions.iter().filter(|one| one.figures.contains(&printed.name))
    }
}

impl Number {
    /// Formats the value with its bound: `at least 8069`.
    #[must_use]
    pub fn said(&self) -> String {
        let word = match self.bound {
            Bound::About => "",
            Bound::AtLeast => "at least ",
            Bound::AtMost => "at most ",
        };
        // A measure without a unit would leave a space at the end.
        format!("{word}{} {}", crate::report::number(self.value), self.measure.unit()).trim_end().to_owned()
    }

    /// Returns our points that the value is compared with, among those that the figure shows.
    #[must_use]
    pub fn residuals<'a>(&self, run: &'a Run, figure: &Figure) -> Vec<Residual<'a>> {
        let beside = |measured: &&Measured| {
            let there = self.x.as_ref().is_none_or(|x| measured.labels.get(&figure.x) == Some(x));
            there && figure.shows(&measured.labels) && holds(&measured.labels, &self.at)
        };
        let residual = |measured: &'a Measured| {
            let ours = measured.median(self.measure)?;
            Some(Residual { labels: &measured.labels, ours, ratio: ours / self.value })
        };
        let mut best: Vec<Residual<'a>> = Vec::new();
        for one in run.points.iter().filter(beside).filter_map(residual) {
            match best.iter_mut().find(|known| same_line(known.labels, one.labels, &figure.x)) {
                // Without a place along the bottom, the best point of each line counts.
                Some(known) if self.measure.sense().better(one.ours, known.ours) => *known = one,
                Some(_) => {}
                None => best.push(one),
            }
        }
        best
    }
}

/// Returns true for points that differ at most along the bottom.
fn same_line(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>, x: &str) -> bool {
    let along = |(axis, _): &(&String, &String)| *axis != x;
    one.iter().filter(along).eq(other.iter().filter(along))
}

impl Claim {
    /// Returns our ratios between the same two points, for each combination of the other labels.
    #[must_use]
    pub fn held(&self, run: &Run) -> Vec<ClaimResult> {
        let rest = |measured: &Measured| {
            let mut labels = measured.labels.clone();
            // Labels outside of the claim must be equal, or the ratio would compare something else as well.
            labels.retain(|axis, _| !self.of.contains_key(axis));
            labels
        };
        let firsts = run.points.iter().filter(|one| holds(&one.labels, &self.of));
        let held = firsts.filter_map(|one| {
            let labels = rest(one);
            let other = run.points.iter().find(|other| holds(&other.labels, &self.over) && rest(other) == labels)?;
            let ours = compare::points(one, other, self.measure)?;
            // Both are ranges: they agree where they overlap.
            let agrees = ours.low <= self.high && self.low <= ours.high;
            Some(ClaimResult { labels, ours, agrees })
        });
        held.collect()
    }
}

impl Measured {
    /// Returns the median of the rounds; none if no round has the measure.
    #[must_use]
    pub fn median(&self, measure: Measure) -> Option<f64> {
        let mut values = self.values(measure);
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then(|| compare::median(&values))
    }

    /// Returns the values of all rounds that have the measure.
    #[must_use]
    pub fn values(&self, measure: Measure) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| measure.of(&self.point, sample)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn papers_are_read_and_name_each_other() {
        let papers = &*PAPERS;
        for printed in &papers.figures {
            assert!(papers.paper.contains_key(&printed.paper), "{}", printed.name);
            assert!(!printed.numbers.is_empty() || !printed.claims.is_empty(), "{} says nothing", printed.name);
            let claims = printed.claims.iter();
            assert!(claims.clone().all(|claim| claim.low <= claim.high && claim.of.keys().eq(claim.over.keys())));
            assert!(printed.numbers.iter().all(|number| number.value > 0.0), "{}", printed.name);
        }
        for one in &papers.contradictions {
            assert!(papers.paper.contains_key(&one.paper), "{}", one.text);
            let known = |name: &String| papers.figures.iter().any(|printed| printed.name == *name);
            assert!(one.figures.iter().all(known), "{}: {:?}", one.text, one.figures);
        }
        assert!(papers.cited.iter().all(|one| papers.paper.contains_key(&one.paper) && !one.why.is_empty()));
    }

    #[test]
    fn residual_is_ours_through_the_papers() {
        let run = synthetic::run();
        let figure = &run.scenario.figures[0];
        let number = Number {
            what: "cached reads".into(),
            measure: Measure::Iops,
            value: 16_000.0,
            bound: Bound::AtLeast,
            x: Some("1".into()),
            at: BTreeMap::from([("peer".into(), "blockyard".into()), ("load".into(), "100 % read".into())]),
        };
        let residuals = number.residuals(&run, figure);
        assert_eq!(residuals.len(), 1);
        assert!((1.9..2.1).contains(&residuals[0].ratio), "{residuals:?}");
        assert_eq!(number.said(), "at least 16,000 IOPS");
        let best = Number { x: None, at: BTreeMap::new(), ..number }.residuals(&run, figure);
        assert_eq!(best.len(), 4, "two peers that were measured, two loads");
        assert!(best.iter().all(|one| one.labels["depth"] == "64"), "{best:?}");
    }

    #[test]
    fn claim_is_judged_by_the_interval_of_ours() {
        let run = synthetic::run();
        let at = |label: &str| BTreeMap::from([("depth".to_owned(), label.to_owned())]);
        let (what, measure) = ("deeper is faster".to_owned(), Measure::Iops);
        let mut claim = Claim { what, measure, low: 2.0, high: 4.0, of: at("16"), over: at("4") };
        let held = claim.held(&run);
        // Two measured peers and two loads; 4^0.8 is 3.03.
        assert_eq!(held.len(), 4);
        assert!(held.iter().all(|held| held.agrees && (3.0..3.1).contains(&held.ours.median)), "{held:?}");
        claim.low = 3.5;
        assert!(claim.held(&run).iter().all(|held| !held.agrees));
    }
}
