//! The papers' own numbers, and what ours are beside them.

use crate::compare::{self, Ratio};
use crate::figure::{Figure, Measure, holds};
use crate::run::{Measured, Run};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// All that the papers say; `lab/papers.toml`, which is part of the program.
pub static PAPERS: LazyLock<Papers> =
    LazyLock::new(|| toml::from_str(include_str!("../../../../lab/papers.toml")).expect("a test reads it"));

/// The file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Papers {
    /// The papers by their short names.
    pub paper: BTreeMap<String, String>,
    /// What each of our figures has of them.
    #[serde(rename = "figure")]
    pub figures: Vec<Printed>,
    /// Where they contradict themselves or mislead.
    #[serde(rename = "contradiction")]
    pub contradictions: Vec<Contradiction>,
    /// Their other numbers.
    pub cited: Vec<Cited>,
}

/// A figure of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    /// What [`Figure::paper`] calls it.
    pub name: String,
    /// The paper's short name.
    pub paper: String,
    /// Where in the paper.
    pub place: String,
    /// On what it was measured.
    pub machine: String,
    /// Single values.
    #[serde(default, rename = "number")]
    pub numbers: Vec<Number>,
    /// How many times one thing is another.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
}

/// One value of a paper.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// Of what, in the paper's words.
    pub what: String,
    /// In what.
    pub measure: Measure,
    /// In the measure's unit.
    pub value: f64,
    /// How it is to be read.
    #[serde(default)]
    pub bound: Bound,
    /// Where along the bottom of the figure; where it is not given, it stands beside the best point of each of our lines.
    #[serde(default)]
    pub x: Option<String>,
    /// Which of our lines it stands beside; all of them, where it is not given.
    #[serde(default)]
    pub at: BTreeMap<String, String>,
}

/// How a value is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// As it stands.
    #[default]
    About,
    /// As the least.
    AtLeast,
    /// As the most.
    AtMost,
}

/// A paper's ratio between two of its points.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Of what, in the paper's words.
    pub what: String,
    /// In what.
    pub measure: Measure,
    /// The least that the paper says.
    pub low: f64,
    /// The most.
    pub high: f64,
    /// Labels of the first.
    pub of: BTreeMap<String, String>,
    /// Labels of what it is compared with; other labels are the same.
    pub over: BTreeMap<String, String>,
}

/// Where papers contradict themselves or mislead.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contradiction {
    /// The paper's short name.
    pub paper: String,
    /// The figures that it concerns; none, where it is about what is not drawn here.
    #[serde(default)]
    pub figures: Vec<String>,
    /// What it is.
    pub text: String,
}

/// A paper's number without a figure here.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cited {
    /// The paper's short name.
    pub paper: String,
    /// What it says.
    pub text: String,
    /// Why nothing of ours stands beside it.
    pub why: String,
}

/// A paper's value and one of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Residual<'a> {
    /// Ours.
    pub labels: &'a BTreeMap<String, String>,
    /// The median of our rounds.
    pub ours: f64,
    /// Ours through the paper's.
    pub ratio: f64,
}

/// A paper's ratio and one of ours.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// The labels that both of our points have.
    pub labels: BTreeMap<String, String>,
    /// Ours.
    pub ours: Ratio,
    /// Whether the paper's range and our interval have something in common.
    pub agrees: bool,
}

impl Papers {
    /// What is printed beside a figure.
    #[must_use]
    pub fn printed(&self, figure: &Figure) -> Option<&Printed> {
        self.figures.iter().find(|printed| Some(&printed.name) == figure.paper.as_ref())
    }

    /// What is to be known of a printed figure.
    pub fn contradictions<'a>(&'a self, printed: &'a Printed) -> impl Iterator<Item = &'a Contradiction> {
        self.contradictions.iter().filter(|one| one.figures.contains(&printed.name))
    }
}

impl Number {
    /// The value as the paper means it: `at least 8069`.
    #[must_use]
    pub fn said(&self) -> String {
        let word = match self.bound {
            Bound::About => "",
            Bound::AtLeast => "at least ",
            Bound::AtMost => "at most ",
        };
        format!("{word}{} {}", crate::report::number(self.value), self.measure.unit()).trim_end().to_owned()
    }

    /// Our points that it stands beside, of those that the figure shows.
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
                Some(known) if self.measure.sense().better(one.ours, known.ours) => *known = one,
                Some(_) => {}
                None => best.push(one),
            }
        }
        best
    }
}

/// True for points that differ at most along the bottom.
fn same_line(one: &BTreeMap<String, String>, other: &BTreeMap<String, String>, x: &str) -> bool {
    let along = |(axis, _): &(&String, &String)| *axis != x;
    one.iter().filter(along).eq(other.iter().filter(along))
}

impl Claim {
    /// Our ratios between the same two points, once for each combination of the other labels.
    #[must_use]
    pub fn held(&self, run: &Run) -> Vec<Held> {
        let rest = |measured: &Measured| {
            let mut labels = measured.labels.clone();
            labels.retain(|axis, _| !self.of.contains_key(axis));
            labels
        };
        let firsts = run.points.iter().filter(|one| holds(&one.labels, &self.of));
        let held = firsts.filter_map(|one| {
            let labels = rest(one);
            let other = run.points.iter().find(|other| holds(&other.labels, &self.over) && rest(other) == labels)?;
            let ours = compare::points(one, other, self.measure)?;
            let agrees = ours.low <= self.high && self.low <= ours.high;
            Some(Held { labels, ours, agrees })
        });
        held.collect()
    }
}

impl Measured {
    /// The median of the rounds; nothing where none has the measure.
    #[must_use]
    pub fn median(&self, measure: Measure) -> Option<f64> {
        let mut values = self.values(measure);
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then(|| compare::median(&values))
    }

    /// What each round gave, without those that do not have the measure.
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
        // Two peers that were measured, two loads; 4^0.8 is 3.03.
        assert_eq!(held.len(), 4);
        assert!(held.iter().all(|held| held.agrees && (3.0..3.1).contains(&held.ours.median)), "{held:?}");
        claim.low = 3.5;
        assert!(claim.held(&run).iter().all(|held| !held.agrees));
    }
}
