//! Content of a figure before it is drawn: series of values along the bottom, panel by panel.

use super::scale::Scale;
use crate::figure::{Figure, Form, Measure, holds};
use crate::references::{Printed, References};
use crate::run::{Latency, Measured, Run};
use model::Size;
use std::collections::BTreeMap;

/// Figure with its values.
pub(super) struct Chart<'a> {
    /// Figure of the scenario.
    pub figure: &'a Figure,
    /// Axis along the bottom.
    pub bottom: Bottom,
    /// Lines, or bars of a group.
    pub series: Vec<Series<'a>>,
    /// Panel for each measure; none in a heat map.
    pub panels: Vec<Panel<'a>>,
    /// Published figure.
    pub printed: Option<&'a Printed>,
    /// Remarks below the drawing: unmeasured points, with the reasons.
    pub remarks: Vec<String>,
}

/// Axis along the bottom.
pub(super) struct Bottom {
    /// Title.
    pub title: String,
    /// Labels, in order.
    pub labels: Vec<String>,
    /// Numeric values of the labels, if all are numbers and the form has a numeric axis.
    pub numbers: Option<Vec<f64>>,
    /// Logarithmic scale; only for positive numbers.
    pub log: bool,
    /// Published values along the axis.
    beside: Vec<f64>,
}

impl Bottom {
    fn of(figure: &Figure, labels: Vec<String>, printed: Option<&Printed>) -> Self {
        let numbers: Option<Vec<f64>> = labels.iter().map(|label| quantity(label)).collect();
        // Bars and heat maps have places of equal width, whatever their labels are.
        let numbers = numbers.filter(|numbers| figure.form == Form::Lines && !numbers.is_empty());
        let log = figure.log_x && numbers.as_ref().is_some_and(|numbers| numbers.iter().all(|number| *number > 0.0));
        // The axis includes published values, also those at places that we did not measure.
        let drawn = printed.map(|printed| printed.numbers.as_slice()).unwrap_or_default().iter();
        let drawn = drawn.filter(|number| figure.measures.contains(&number.measure));
        let beside = drawn.filter_map(|number| quantity(number.x.as_ref()?)).collect();
        let title = figure.x_title.clone().unwrap_or_else(|| figure.x.clone());
        Self { title, labels, numbers, log, beside }
    }

    /// Returns the numeric scale, if there is one, including the published values.
    pub(super) fn scale(&self) -> Option<Scale> {
        let all = self.numbers.as_ref()?.iter().chain(&self.beside).copied();
        Some(if self.log { Scale::log(all) } else { Scale::linear(all) })
    }
}

/// Series: points that differ only along the bottom.
pub(super) struct Series<'a> {
    /// Labels of the other axes that differ between series.
    pub name: String,
    /// All labels of the other axes.
    pub labels: BTreeMap<String, String>,
    /// True for the baseline.
    pub baseline: bool,
    /// Point at each label, if there is one.
    pub points: Vec<Option<&'a Measured>>,
}

/// Panel of one measure.
pub(super) struct Panel<'a> {
    /// Measure.
    pub measure: Measure,
    /// Values of each series at each label.
    pub values: Vec<Vec<Option<Spread>>>,
    /// Published values.
    pub marks: Vec<Mark<'a>>,
}

/// Range of a point's rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    /// Minimum.
    pub low: f64,
    /// Median.
    pub middle: f64,
    /// Maximum.
    pub high: f64,
    /// Number of rounds.
    pub rounds: usize,
}

/// Published value.
pub(super) struct Mark<'a> {
    /// Letters on the drawing; several if several values coincide.
    pub letters: String,
    /// Value in the measure's unit.
    pub value: f64,
    /// Label along the bottom; none for a value along the whole axis.
    pub x: Option<&'a str>,
}

impl<'a> Chart<'a> {
    /// Builds the chart of a figure from a run.
    pub(super) fn of(run: &'a Run, figure: &'a Figure, papers: &'a References) -> Self {
        let shown: Vec<&Measured> = run.points.iter().filter(|one| figure.shows(&one.labels)).collect();
        let labels =
            run.scenario.axes.iter().find(|axis| axis.name == figure.x).map(|axis| axis.labels()).unwrap_or_default();
        let labels: Vec<String> = labels
            .into_iter()
            // Labels without a point would be empty columns.
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
        // Series without any sample only clutter the legend; the remarks name them.
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

    /// Returns the latencies of all rounds at a label.
    pub(super) fn latency(&self, label: usize) -> Option<Latency> {
        let samples = &self.points[label]?.samples;
        samples.iter().map(|sample| sample.latency()).reduce(|all, one| all.with(&one))
    }
}

/// Names each series by the labels in which it differs from others, in the order of axes; a single series by all labels
/// that the figure does not fix.
fn name(series: &mut [Series<'_>], run: &Run, figure: &Figure) {
    let alone = series.len() == 1;
    let differs = |name: &str| series.iter().any(|one| one.labels.get(name) != series[0].labels.get(name));
    let told = |name: &str| differs(name) || (alone && !figure.only.contains_key(name));
    let axes: Vec<&str> = run.scenario.axes.iter().map(|axis| axis.name.as_str()).filter(|name| told(name)).collect();
    for one in series {
        let words = axes.iter().filter_map(|axis| {
            let label = one.labels.get(*axis)?;
            // A bare number or boolean needs the name of its axis.
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
        // Letters run over the numbers of all measures, as in the legend; each panel shows those of its own.
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

    /// Returns all values that the axis must include.
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

/// Parses a label as a number or as a size.
pub(super) fn quantity(label: &str) -> Option<f64> {
    let size = || label.parse::<Size>().ok().map(|size| size.bytes() as f64);
    label.parse::<f64>().ok().filter(|number| number.is_finite()).or_else(size)
}

/// Returns the remarks below the drawing.
fn remarks(run: &Run, figure: &Figure, shown: &[&Measured]) -> Vec<String> {
    let mut remarks = figure.notes.clone();
    if figure.form == Form::Heat {
        let how = "The fuller the colour of a cell, the more commands took so long; solid line: the median, dashed: the 99th percentile.";
        remarks.push(how.into());
    }
    // Points with the same reason share a remark.
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

/// Describes points by the labels that all of them share, with their number.
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
