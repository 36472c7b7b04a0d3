//! What a figure shows of a run, before it is drawn: lines of values along the bottom, panel by panel.

use super::scale::Scale;
use crate::figure::{Figure, Form, Measure, holds};
use crate::papers::{Papers, Printed};
use crate::run::{Latency, Measured, Run};
use model::Size;
use std::collections::BTreeMap;

/// A figure with its values.
pub(super) struct Chart<'a> {
    /// What the scenario asks for.
    pub figure: &'a Figure,
    /// What lies along the bottom.
    pub bottom: Bottom,
    /// The lines, or the bars of a group.
    pub series: Vec<Series<'a>>,
    /// One for each measure; none in a heat map.
    pub panels: Vec<Panel<'a>>,
    /// The paper's own figure.
    pub printed: Option<&'a Printed>,
    /// What is said below: what was not measured, and why.
    pub remarks: Vec<String>,
}

/// The axis along the bottom.
pub(super) struct Bottom {
    /// What it counts.
    pub title: String,
    /// The labels, in their order.
    pub labels: Vec<String>,
    /// Their numbers, where all of them are some and the form has an axis of numbers.
    pub numbers: Option<Vec<f64>>,
    /// Distances are ratios; only of numbers, all above zero.
    pub log: bool,
    /// The paper's numbers that lie along it.
    beside: Vec<f64>,
}

impl Bottom {
    fn of(figure: &Figure, labels: Vec<String>, printed: Option<&Printed>) -> Self {
        let numbers: Option<Vec<f64>> = labels.iter().map(|label| quantity(label)).collect();
        let numbers = numbers.filter(|numbers| figure.form == Form::Lines && !numbers.is_empty());
        let log = figure.log_x && numbers.as_ref().is_some_and(|numbers| numbers.iter().all(|number| *number > 0.0));
        let drawn = printed.map(|printed| printed.numbers.as_slice()).unwrap_or_default().iter();
        let drawn = drawn.filter(|number| figure.measures.contains(&number.measure));
        let beside = drawn.filter_map(|number| quantity(number.x.as_ref()?)).collect();
        let title = figure.x_title.clone().unwrap_or_else(|| figure.x.clone());
        Self { title, labels, numbers, log, beside }
    }

    /// The axis of numbers, where it is one; the paper's lie on it too.
    pub(super) fn scale(&self) -> Option<Scale> {
        let all = self.numbers.as_ref()?.iter().chain(&self.beside).copied();
        Some(if self.log { Scale::log(all) } else { Scale::linear(all) })
    }
}

/// One line: points that differ only along the bottom.
pub(super) struct Series<'a> {
    /// The labels of the other axes that are not everywhere the same.
    pub name: String,
    /// All labels of the other axes.
    pub labels: BTreeMap<String, String>,
    /// What the others are judged by.
    pub baseline: bool,
    /// The point above each label, where there is one.
    pub points: Vec<Option<&'a Measured>>,
}

/// The values of one measure.
pub(super) struct Panel<'a> {
    /// Which.
    pub measure: Measure,
    /// Of each series above each label.
    pub values: Vec<Vec<Option<Spread>>>,
    /// The paper's.
    pub marks: Vec<Mark<'a>>,
}

/// What the rounds of a point gave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// The least.
    pub low: f64,
    /// The median.
    pub middle: f64,
    /// The greatest.
    pub high: f64,
    /// How many rounds.
    pub rounds: usize,
}

/// A paper's value.
pub(super) struct Mark<'a> {
    /// What it is called on the drawing; several letters where several values lie at one place.
    pub letters: String,
    /// In the measure's unit.
    pub value: f64,
    /// Where along the bottom; all along, where there is nothing.
    pub x: Option<&'a str>,
}

impl<'a> Chart<'a> {
    /// A figure of a run.
    pub(super) fn of(run: &'a Run, figure: &'a Figure, papers: &'a Papers) -> Self {
        let shown: Vec<&Measured> = run.points.iter().filter(|one| figure.shows(&one.labels)).collect();
        let labels =
            run.scenario.axes.iter().find(|axis| axis.name == figure.x).map(|axis| axis.labels()).unwrap_or_default();
        let labels: Vec<String> = labels
            .into_iter()
            .filter(|label| shown.iter().any(|one| one.labels.get(&figure.x) == Some(label)))
            .collect();
        let mut series: Vec<Series<'a>> = Vec::new();
        for one in &shown {
            let mut rest = one.labels.clone();
            rest.remove(&figure.x);
            if !series.iter().any(|known| known.labels == rest) {
                series.push(Series::of(rest, figure, &labels, &shown));
            }
        }
        series.retain(|series| series.points.iter().flatten().any(|one| !one.samples.is_empty()));
        name(&mut series, run, figure);
        let printed = papers.printed(figure);
        let panels = figure.measures.iter().map(|&measure| Panel::of(measure, &series, printed)).collect();
        let bottom = Bottom::of(figure, labels, printed);
        Self { figure, bottom, series, panels, printed, remarks: remarks(run, figure, &shown) }
    }
}

impl<'a> Series<'a> {
    fn of(rest: BTreeMap<String, String>, figure: &Figure, labels: &[String], shown: &[&'a Measured]) -> Self {
        let above = |label: &String| {
            shown.iter().copied().find(|one| one.labels.get(&figure.x) == Some(label) && holds(&one.labels, &rest))
        };
        let points = labels.iter().map(above).collect();
        let baseline = figure.baseline.iter().any(|label| rest.values().any(|known| known == label));
        Self { name: String::new(), labels: rest, baseline, points }
    }

    /// The latencies of all rounds above a label.
    pub(super) fn latency(&self, label: usize) -> Option<Latency> {
        let samples = &self.points[label]?.samples;
        samples.iter().map(|sample| sample.latency()).reduce(|all, one| all.with(&one))
    }
}

/// Names every series by the labels in which it differs from another, in the order of the axes; one that is alone by all that
/// the figure does not ask for.
fn name(series: &mut [Series<'_>], run: &Run, figure: &Figure) {
    let alone = series.len() == 1;
    let differs = |name: &str| series.iter().any(|one| one.labels.get(name) != series[0].labels.get(name));
    let told = |name: &str| differs(name) || (alone && !figure.only.contains_key(name));
    let axes: Vec<&str> = run.scenario.axes.iter().map(|axis| axis.name.as_str()).filter(|name| told(name)).collect();
    for one in series {
        let words = axes.iter().filter_map(|axis| {
            let label = one.labels.get(*axis)?;
            let bare = label.parse::<f64>().is_ok() || matches!(label.as_str(), "true" | "false");
            Some(if bare { format!("{axis} {label}") } else { label.clone() })
        });
        one.name = words.collect::<Vec<_>>().join(", ");
    }
}

impl<'a> Panel<'a> {
    fn of(measure: Measure, series: &[Series<'a>], printed: Option<&'a Printed>) -> Self {
        let spread =
            |point: &Option<&Measured>| Spread::of(point.map(|point| point.values(measure)).unwrap_or_default());
        let values = series.iter().map(|series| series.points.iter().map(spread).collect()).collect();
        let numbers = printed.map(|printed| printed.numbers.as_slice()).unwrap_or_default();
        let lettered = ('a'..='z').zip(numbers).filter(|(_, number)| number.measure == measure);
        let mut marks: Vec<Mark<'a>> = Vec::new();
        for (letter, number) in lettered {
            let (x, value) = (number.x.as_deref(), number.value);
            match marks.iter_mut().find(|mark| mark.x == x && mark.value == value) {
                Some(mark) => mark.letters.extend([' ', letter]),
                None => marks.push(Mark { letters: letter.into(), value, x }),
            }
        }
        Self { measure, values, marks }
    }

    /// Everything that must fit on its axis.
    pub(super) fn extent(&self) -> impl Iterator<Item = f64> + Clone {
        let ours = self.values.iter().flatten().flatten().flat_map(|spread| [spread.low, spread.high]);
        ours.chain(self.marks.iter().map(|mark| mark.value))
    }
}

impl Spread {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (&low, &high) = values.first().zip(values.last())?;
        Some(Self { low, middle: crate::compare::median(&values), high, rounds: values.len() })
    }
}

/// The number that a label is: plain, or a size.
pub(super) fn quantity(label: &str) -> Option<f64> {
    let size = || label.parse::<Size>().ok().map(|size| size.bytes() as f64);
    label.parse::<f64>().ok().filter(|number| number.is_finite()).or_else(size)
}

/// What is to be said below the drawing.
fn remarks(run: &Run, figure: &Figure, shown: &[&Measured]) -> Vec<String> {
    let mut remarks = figure.notes.clone();
    if figure.form == Form::Heat {
        let how = "The fuller the colour of a cell, the more commands took so long; solid line: the median, dashed: the 99th percentile.";
        remarks.push(how.into());
    }
    let mut reasons: Vec<(&str, Vec<&Measured>)> = Vec::new();
    for &one in shown {
        let Some(reason) = one.untried.as_deref() else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, points)) => points.push(one),
            None => reasons.push((reason, vec![one])),
        }
    }
    for (reason, points) in reasons {
        remarks.push(format!("Not measured here: {}: {reason}.", shared(&points)));
    }
    if shown.is_empty() {
        remarks.push("The run has none of the points of this figure.".into());
    }
    let waiting = shown.iter().filter(|one| one.samples.is_empty() && one.untried.is_none()).count();
    if waiting > 0 {
        remarks.push(format!("Not measured: the run was ended before {waiting} of {} points.", shown.len()));
    } else if !run.complete {
        remarks.push("The run was ended before every round was made.".into());
    }
    remarks.extend(run.scenario.unmeasured.iter().map(|what| format!("Not measured here: {what}")));
    remarks
}

/// What points have in common in which all others of the figure differ from them: their shared labels, and how many they are.
fn shared(points: &[&Measured]) -> String {
    let first = &points[0].labels;
    let common = first.iter().filter(|(axis, label)| points.iter().all(|one| one.labels.get(*axis) == Some(label)));
    let common: Vec<String> = common.map(|(axis, label)| format!("{axis} {label}")).collect();
    match (common.is_empty(), points.len()) {
        (true, count) => format!("{count} points"),
        (false, 1) => common.join(", "),
        (false, count) => format!("{} ({count} points)", common.join(", ")),
    }
}
